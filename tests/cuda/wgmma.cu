#include "cuda/kernels/number.cuh"
#include "cuda/kernels/tensor_map.h"
#include "cuda/kernels/wgmma.cuh"

/* D = A B^T by one warpgroup, A [64][k] a matrix of several (z says which), B [rows][k], both brought by tensor copies, 64 of k at a time,
   as a kernel would: d [64][N] in float32, and turned round to t [N][64] in bfloat16. */
template <uint32_t kColumns>
__global__ void multiply_tile(float *d, uint16_t *t, uint32_t k, int z, const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b)
{
#ifdef GB_HOPPER
    GB_DYN_SHARED(unsigned char, s_memory);
    unsigned char *s_a = s_memory + (1024 - gb_shared_address(s_memory) % 1024) % 1024, *s_b = s_a + 64 * 128, *s_turn = s_b + kColumns * 128;
    auto *s_barrier = reinterpret_cast<uint64_t *>(s_turn + 4 * 16 * 48);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, pair = 2 * (lane % 4);
    float sums[kColumns / 2];
    if (threadIdx.x == 0) {
        gb_mbarrier_init(s_barrier, 1);
        gb_fence_async();
    }
    __syncthreads();
    for (uint32_t step = 0; step * 64 < k; step++) {
        if (threadIdx.x == 0) {
            gb_mbarrier_arrive_expect(s_barrier, (64 + kColumns) * 128);
            gb_tensor_load_3d(s_a, &a, s_barrier, (int)step * 64, 0, z);
            gb_tensor_load_2d(s_b, &b, s_barrier, (int)step * 64, 0);
        }
        gb_mbarrier_wait(s_barrier, step % 2);
        gb_wgmma_fence();
        for (uint32_t first = 0; first < 64; first += 16)
            gb_wgmma<kColumns>(sums, gb_wgmma_tile(s_a, first), gb_wgmma_tile(s_b, first), step + first > 0);
        gb_wgmma_commit();
        gb_wgmma_wait<0>();
        __syncthreads();
    }
    for (uint32_t i = 0; i < kColumns / 2; i++) d[(warp * 16 + g + i % 4 / 2 * 8) * kColumns + i / 4 * 8 + pair + i % 2] = sums[i];
    for (uint32_t column = 0; column < kColumns; column += 8) {    /* matrices 2 and 3 go where nobody looks */
        const float *s = sums + column / 2;
        const uint32_t pairs[4] = {gb_pack_bf16(s[0], s[1]), gb_pack_bf16(s[2], s[3]), 0, 0};
        uint16_t *s_mine = reinterpret_cast<uint16_t *>(s_turn) + warp * 16 * 24;
        __syncwarp();
        gb_stmatrix_x4_trans(s_mine + (lane / 16 * 8 + lane % 8) * 24 + lane / 8 % 2 * 8, pairs);
        __syncwarp();
        if (lane < 16) gb_store16(t + (column + lane / 2) * 64 + warp * 16 + lane % 2 * 8, *reinterpret_cast<const uint4 *>(s_mine + lane / 2 * 24 + lane % 2 * 8));
    }
#endif
}

template <uint32_t kColumns>
static int run(float *d, uint16_t *t, const uint16_t *a, int matrices, int z, const uint16_t *b, uint32_t rows, uint32_t k, cudaStream_t stream)
{
    enum { kBytes = 1024 + (64 + kColumns) * 128 + 4 * 16 * 48 + 8 };
    const gb_k_tensor of_a = {a, k, 64, (uint32_t)matrices, (uint64_t)64 * k, 64}, of_b = {b, k, rows, 0, 0, kColumns};
    CUtensorMap map_a, map_b;
    int status = gb_k_tensor_map(&map_a, &of_a);
    if (status == 0) status = gb_k_tensor_map(&map_b, &of_b);
    if (status == 0) GB_LAUNCH((multiply_tile<kColumns>), 1, 128, kBytes, stream, d, t, k, z, map_a, map_b);
    return status;
}

extern "C" int test_multiply_tile(uint32_t columns, float *d, uint16_t *t, const uint16_t *a, int matrices, int z, const uint16_t *b, uint32_t rows,
                                  uint32_t k, cudaStream_t stream)
{
    return columns == 8    ? run<8>(d, t, a, matrices, z, b, rows, k, stream)
           : columns == 64 ? run<64>(d, t, a, matrices, z, b, rows, k, stream)
                           : run<128>(d, t, a, matrices, z, b, rows, k, stream);
}
