/* Tensor cores of a Hopper warpgroup (128 threads, the first a multiple of 128): with tma.cuh and mma.cuh the only files with inline PTX.
   Each wrapper has a twin in cuda/cuemu/wgmma.h.

       gb_wgmma_tile          describes a factor in shared memory: rows of 64 bf16 (128 bytes) along K, 128-byte swizzle, 8 rows behind 8
                              rows, at a multiple of 1024: as a tensor copy with a box of 64 brings it. first: the k where the product's
                              16 begin
       gb_wgmma<N>            D[64][N] (+)= A[64][16] * B[N][16]^T, bf16 in, float32 out, begun; all 128 threads. add: += . Thread 32w + 4g + t
                              holds d[4j + 2i + c] = D[16w + g + 8i][8j + 2t + c]. N is 8, 64 or 128
       gb_wgmma_fence         before products that are given accumulators that this thread wrote or read
       gb_wgmma_commit        closes this warpgroup's group of products
       gb_wgmma_wait<n>       all but the last n groups are over: accumulators can be read, factors overwritten
       gb_stmatrix_x4_trans   four 8x8 matrices of 16-bit words into shared memory, transposed: register i is the pair [g][2t, 2t+1] of
                              matrix i, lanes 8i..8i+7 give where its columns go (16 bytes each, 16-aligned); all 32 lanes */
#ifndef GB_CUDA_WGMMA_CUH
#define GB_CUDA_WGMMA_CUH

#include "cuda/kernels/tma.cuh"

#ifdef GB_CUEMU
#include "cuda/cuemu/wgmma.h"
__forceinline__ uint32_t gb_shared_address(const void *pointer) { return (uint32_t)reinterpret_cast<uintptr_t>(pointer); }
#else

__device__ __forceinline__ void gb_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void gb_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int kPending> __device__ __forceinline__ void gb_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" :: "n"(kPending) : "memory");
}

__device__ __forceinline__ void gb_stmatrix_x4_trans(void *row, const uint32_t (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n"
                 :: "r"(gb_shared_address(row)), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

template <uint32_t kColumns> __device__ __forceinline__ void gb_wgmma(float (&d)[kColumns / 2], uint64_t a, uint64_t b, bool add);

#define GB_FLOATS4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define GB_FLOATS16(d, i) GB_FLOATS4(d, i), GB_FLOATS4(d, i + 4), GB_FLOATS4(d, i + 8), GB_FLOATS4(d, i + 12)

template <> __device__ __forceinline__ void gb_wgmma<8>(float (&d)[4], uint64_t a, uint64_t b, bool add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3}, "
                 "%4, %5, p, 1, 1, 0, 0;\n}\n"
                 : GB_FLOATS4(d, 0)
                 : "l"(a), "l"(b), "r"((int)add));
}

template <> __device__ __forceinline__ void gb_wgmma<64>(float (&d)[32], uint64_t a, uint64_t b, bool add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, p, 1, 1, 0, 0;\n}\n"
                 : GB_FLOATS16(d, 0), GB_FLOATS16(d, 16)
                 : "l"(a), "l"(b), "r"((int)add));
}

template <> __device__ __forceinline__ void gb_wgmma<128>(float (&d)[64], uint64_t a, uint64_t b, bool add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, p, 1, 1, 0, 0;\n}\n"
                 : GB_FLOATS16(d, 0), GB_FLOATS16(d, 16), GB_FLOATS16(d, 32), GB_FLOATS16(d, 48)
                 : "l"(a), "l"(b), "r"((int)add));
}

#undef GB_FLOATS4
#undef GB_FLOATS16

#endif

/* Bits 0-13: address / 16; 16-29: not used with this layout, 1; 32-45: bytes from 8 rows to the next 8, / 16; 62-63: 1, the swizzle. */
__device__ __forceinline__ uint64_t gb_wgmma_tile(const void *s_tile, uint32_t first)
{
    const uint64_t address = gb_shared_address(s_tile) + first * 2;
    return (address & 0x3ffff) >> 4 | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#endif
