/* The wrappers of mma.cuh: a tile multiplied by one warp is the product of its matrices. On a GPU the same test checks the PTX. */
#include "tests/cuda/device.h"

void test_multiply(float *d, const uint16_t *a, const uint16_t *b, cudaStream_t stream);

static void a_warp_multiplies_a_tile(void)
{
    gb_rng rng;
    uint16_t a[16 * 16], b[16 * 8];
    float d[16 * 8];
    fresh_rng(&rng, 3);
    fill_bf16(a, 16 * 16, 1, &rng);
    fill_bf16(b, 16 * 8, 1, &rng);
    float *out = device_new(16 * 8, sizeof *out);
    test_multiply(out, DEVICE_COPY(a), DEVICE_COPY(b), 0);
    device_read(d, out, 16 * 8, sizeof *d);
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            double want = 0;
            for (int k = 0; k < 16; k++)
                want += (double)gb_bf16_to_f32(a[row * 16 + k]) * (double)gb_bf16_to_f32(b[k * 8 + column]);
            CHECK_NEAR(d[row * 8 + column], want, 1e-5);
        }
    device_free_all();
}

TESTS(TEST(a_warp_multiplies_a_tile))
