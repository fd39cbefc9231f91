#include "cuda/kernels/mma.cuh"

/* D = A B by one warp, operands through cp.async, shared memory and ldmatrix: A [16][16] and B [16][8] row-major in memory, so B comes
   transposed. */
__global__ void multiply(float *d, const uint16_t *a, const uint16_t *b)
{
    GB_SHARED(uint16_t, s_a, [16][24]);
    GB_SHARED(uint16_t, s_b, [32][8]);    /* rows 16 and on are zeros: ldmatrix_x4 takes four matrices */
    const unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
    gb_cp_async16(&s_a[lane / 2][lane % 2 * 8], a + lane * 8, true);
    gb_cp_async16(&s_b[lane][0], b + lane % 16 * 8, lane < 16);
    gb_cp_commit();
    gb_cp_wait<0>();
    __syncwarp();
    uint32_t fa[4], fb[4];
    float sums[4] = {0, 0, 0, 0};
    gb_ldmatrix_x4(fa, &s_a[lane % 16][lane / 16 * 8]);
    gb_ldmatrix_x4_trans(fb, &s_b[lane][0]);
    const uint32_t pairs[2] = {fb[0], fb[1]};
    gb_mma_16816(sums, fa, pairs);
    for (unsigned i = 0; i < 4; i++)
        d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i] + (fb[2] | fb[3] ? 1000.0f : 0.0f);
}

extern "C" void test_multiply(float *d, const uint16_t *a, const uint16_t *b, cudaStream_t stream)
{
    GB_LAUNCH(multiply, 1, 32, 0, stream, d, a, b);
}
