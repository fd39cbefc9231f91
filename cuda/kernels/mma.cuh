/* Tensor-core tiles and asynchronous copies: the only file with inline PTX. Each wrapper has a twin in cuda/cuemu/mma.h, so that
   kernels above it run on a CPU. Lane l of a warp is in group g = l / 4 with place t = l % 4.

       gb_mma_16816      D[16][8] += A[16][16] * B[16][8], bf16 in, float out; all 32 lanes
                         a0 = A[g][2t..]  a1 = A[g+8][2t..]  a2 = A[g][2t+8..]  a3 = A[g+8][2t+8..]   pairs along k, low half first
                         b0 = B[2t..][g]  b1 = B[2t+8..][g]                                            pairs along k
                         d0 d1 = D[g][2t, 2t+1]  d2 d3 = D[g+8][2t, 2t+1]
       gb_ldmatrix_x4    four 8x8 matrices of 16-bit words from shared memory; lanes 8i..8i+7 give the rows of matrix i (16 bytes
                         each, 16-aligned); register i of a lane is the pair [g][2t, 2t+1] of matrix i
       ..._x4_trans      the same, each matrix transposed: register i is the pair [2t, 2t+1][g]
       gb_cp_async16     16 bytes, global to shared, both 16-aligned; zeros when not valid (then nothing is read). In shared memory
                         only after gb_cp_wait by this thread, for other threads after a barrier behind it
       gb_cp_commit      closes this thread's group of copies
       gb_cp_wait<N>     all but the last N groups of this thread have arrived */
#ifndef GB_CUDA_MMA_CUH
#define GB_CUDA_MMA_CUH

#include "cuda/kernels/compat.cuh"

#ifdef GB_CUEMU
#include "cuda/cuemu/mma.h"
#else

__device__ __forceinline__ void gb_mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t gb_shared_address(const void *pointer)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void gb_ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(gb_shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void gb_ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(gb_shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void gb_cp_async16(void *to_shared, const void *from_global, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
                 :: "r"(gb_shared_address(to_shared)), "l"(from_global), "r"(valid ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void gb_cp_commit()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

template <int kPending> __device__ __forceinline__ void gb_cp_wait()
{
    asm volatile("cp.async.wait_group %0;\n" :: "n"(kPending) : "memory");
}

#endif

#endif
