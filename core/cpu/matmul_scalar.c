/* The specification: portable C, in the order of the formula. */
#include "core/cpu/bf16.h"
#include "core/cpu/matmul.h"

#define BLOCK_ROWS 1
#define PRODUCTS dot_panel
#define BF16_INPUTS 0

static void dot_panel(float *t, const void *const *x, uint32_t rows, const gb_packed *w, uint32_t panel)
{
    const float *input = x[0];
    const uint16_t *half = (const uint16_t *)w->data + (size_t)panel * GB_PANEL * (w->k + w->k % 2);
    const float *full = (const float *)w->data + (size_t)panel * GB_PANEL * w->k;
    (void)rows;    /* always BLOCK_ROWS */
    for (uint32_t o = 0; o < GB_PANEL; o++) t[o] = 0;
    for (uint32_t k = 0; k < w->k; k++) {
        const uint16_t *pairs = half + (size_t)(k / 2) * 2 * GB_PANEL + k % 2;
        for (uint32_t o = 0; o < GB_PANEL; o++) t[o] += input[k] * (w->f32 ? full[(size_t)k * GB_PANEL + o] : gb_bf16_widen(pairs[2 * o]));
    }
}

#include "core/cpu/matmul_body.h"

static bool always(void)
{
    return true;
}

const gb_matmul_rung gb_matmul_scalar = {"scalar", BF16_INPUTS, always, multiply, gate_up, add, convert};
