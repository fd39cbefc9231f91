/* Rows that travel: one warp moves a row, 8 elements of bfloat16 a lane and step, several steps under way at once. */
#ifndef GB_CUDA_ROWS_CUH
#define GB_CUDA_ROWS_CUH

#include "cuda/kernels/compat.cuh"

constexpr uint32_t kRowWarps = 8;                     /* rows of a block */
constexpr uint32_t kRowThreads = kRowWarps * 32;
constexpr uint32_t kRowBlocks = 2048;                 /* more than a device holds at once; for grids whose rows only the device counts */

__device__ __forceinline__ void gb_copy_row(uint16_t *to, const uint16_t *from, uint32_t hidden)
{
    constexpr uint32_t kUnderWay = 4, kStep = 32 * 8;
    for (uint32_t first = threadIdx.x % 32 * 8; first < hidden; first += kUnderWay * kStep) {
        uint4 part[kUnderWay];
#pragma unroll
        for (uint32_t j = 0; j < kUnderWay; j++)
            if (first + j * kStep < hidden) part[j] = gb_load16(from + first + j * kStep);
#pragma unroll
        for (uint32_t j = 0; j < kUnderWay; j++)
            if (first + j * kStep < hidden) gb_store16(to + first + j * kStep, part[j]);
    }
}

/* Both elements of pair, over and over. */
__device__ __forceinline__ void gb_fill_row(uint16_t *to, uint32_t pair, uint32_t hidden)
{
    for (uint32_t i = threadIdx.x % 32 * 8; i < hidden; i += 32 * 8) gb_store16(to + i, make_uint4(pair, pair, pair, pair));
}

#endif
