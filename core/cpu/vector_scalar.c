/* The specification: portable C, in the order of the formula. */
#include "core/cpu/bf16.h"
#include "core/cpu/vector_rungs.h"

enum { TILE_ROWS = 4 };

static void products(float *c, size_t c_stride, const float *const *a, const char *const *b, size_t step, uint32_t k,
                     uint32_t k_block, uint32_t rows, bool f32)
{
    for (uint32_t i = 0; i < k; i++) {
        uint32_t at = i % k_block;
        const char *block = b[i / k_block];
        const float *full = (const float *)(block + at * step);
        const uint16_t *half = (const uint16_t *)(block + at / 2 * step) + at % 2;
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t j = 0; j < 16; j++) c[r * c_stride + j] += a[r][i] * (f32 ? full[j] : gb_bf16_widen(half[2 * j]));
    }
}

#include "core/cpu/vector_body.h"

const gb_vector gb_vector_scalar = {"scalar", rms_norm, rotate, add, add_scaled, attend};
