/* Hopper's copies of boxes of a tensor into shared memory, and the barriers that tell when they are there: with wgmma.cuh and mma.cuh the
   only files with inline PTX. Each wrapper has a twin in cuda/cuemu/tma.h.

       gb_mbarrier_init            a barrier of `arrivals` a phase; others may use it after a block barrier behind gb_fence_async by the
                                   thread that made it. Phases count from 0
       gb_mbarrier_arrive          one arrival: what this thread did before is seen by whoever waits for the phase
       gb_mbarrier_arrive_expect   the same, and the phase is not over before that many bytes more have come
       gb_mbarrier_wait            returns when the phase of that parity is over: 0 for phases 0, 2 ..; 1 on a new barrier returns at once
       gb_tensor_load_2d, _3d      one thread: copies a box, its corner at (x, y, z), x along memory, zeros where it reaches over the
                                   tensor, to shared memory; its bytes, all of them, count at the barrier. The target of a box with the
                                   128-byte swizzle begins at a multiple of 1024
       gb_fence_async              stores of this thread to shared memory are seen by copies and tensor cores from here on

   A tensor map is 64-byte aligned: a __grid_constant__ parameter of the kernel. */
#ifndef GB_CUDA_TMA_CUH
#define GB_CUDA_TMA_CUH

#include "cuda/kernels/compat.cuh"

/* Where Hopper's own instructions can be compiled: a kernel that needs them is empty elsewhere, and no host chooses it there. */
#if defined(GB_CUEMU) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GB_HOPPER 1
#endif

#ifdef GB_CUEMU
#include "cuda/cuemu/tma.h"
#else

#include <cuda.h>

#include "cuda/kernels/mma.cuh"

__device__ __forceinline__ void gb_mbarrier_init(uint64_t *s_barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" :: "r"(gb_shared_address(s_barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void gb_mbarrier_arrive(uint64_t *s_barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" :: "r"(gb_shared_address(s_barrier)) : "memory");
}

__device__ __forceinline__ void gb_mbarrier_arrive_expect(uint64_t *s_barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" :: "r"(gb_shared_address(s_barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void gb_mbarrier_wait(uint64_t *s_barrier, uint32_t parity)
{
    uint32_t over;
    do
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}\n"
                     : "=r"(over)
                     : "r"(gb_shared_address(s_barrier)), "r"(parity)
                     : "memory");
    while (!over);
}

__device__ __forceinline__ void gb_fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

__device__ __forceinline__ void gb_tensor_load_2d(void *to_shared, const CUtensorMap *map, uint64_t *s_barrier, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];\n"
                 :: "r"(gb_shared_address(to_shared)), "l"(map), "r"(gb_shared_address(s_barrier)), "r"(x), "r"(y)
                 : "memory");
}

__device__ __forceinline__ void gb_tensor_load_3d(void *to_shared, const CUtensorMap *map, uint64_t *s_barrier, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];\n"
                 :: "r"(gb_shared_address(to_shared)), "l"(map), "r"(gb_shared_address(s_barrier)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

#endif

#endif
