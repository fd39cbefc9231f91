/* The part of a rung that is the same for all: cutting rows into blocks, and what happens to a block's products. A rung's file
   defines before it includes this

       BLOCK_ROWS       rows whose sums it keeps at once
       PRODUCTS         static void (float *t, const void *const *x, uint32_t rows, const gb_packed *w, uint32_t panel):
                        t[rows][GB_PANEL] = x[i] . W[64 panel ..], rows <= BLOCK_ROWS
       BF16_INPUTS      0 or 1, as in its table entry

   and gets multiply, gate_up, add and convert, compiled for its instruction set: the loops below are plain C that compilers
   turn into vectors. Each element is computed by itself, so its bits do not depend on the block it is in. */
#include <string.h>

#include "core/cpu/bf16.h"
#include "core/cpu/matmul.h"

/* Rows of the next block: as many as fit, but the last two blocks share evenly. */
static uint32_t next_block(uint32_t left)
{
    if (left <= BLOCK_ROWS) return left;
    return left >= 2 * BLOCK_ROWS ? BLOCK_ROWS : (left + 1) / 2;
}

static size_t input_bytes(const gb_packed *w)
{
    return BF16_INPUTS && !w->f32 ? sizeof(uint16_t) : sizeof(float);
}

static void block_rows(const void *rows[BLOCK_ROWS], const gb_inputs *x, size_t element, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = x->index ? x->index[first + i] : first + i;
        rows[i] = (const char *)x->data + row * x->stride * element;
    }
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* exp(x) for x in -87 .. 88 (clamped; NaN counts as 88) to about 1e-7: x = n ln 2 + r, a polynomial in r (Cephes expf), times 2^n. */
static float exp_f32(float x)
{
    x = x < 88.0f ? x : 88.0f;
    x = x > -87.0f ? x : -87.0f;
    const float to_integer = 12582912.0f;    /* 1.5 * 2^23: adding it rounds to a whole number */
    float n = (x * 1.44269504f + to_integer) - to_integer;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* SiLU saturates where exp is clamped: the result differs from the exact one by less than the smallest normal float32. */
static void gate(float *restrict h, const float *restrict g, const float *restrict u)
{
    for (uint32_t i = 0; i < GB_HALF_PANEL; i++) h[i] = g[i] / (1.0f + exp_f32(-g[i])) * u[i];
}

static void convert(void *inputs, const float *x, size_t n)
{
    if (!BF16_INPUTS) {
        memcpy(inputs, x, n * sizeof *x);
        return;
    }
    uint16_t *out = inputs;
    for (size_t i = 0; i < n; i++) out[i] = gb_bf16_round(x[i]);
}

static void multiply(float *y, size_t y_stride, const gb_inputs *x, const gb_packed *w, uint32_t m, uint32_t p0, uint32_t p1)
{
    _Alignas(64) float t[BLOCK_ROWS * GB_PANEL];
    const void *rows[BLOCK_ROWS];
    for (uint32_t p = p0; p < p1; p++) {
        uint32_t columns = min_u32(w->n - p * GB_PANEL, GB_PANEL);
        for (uint32_t first = 0, n; first < m; first += n) {
            n = next_block(m - first);
            block_rows(rows, x, input_bytes(w), first, n);
            PRODUCTS(t, rows, n, w, p);
            for (uint32_t i = 0; i < n; i++) {
                memcpy(y + (first + i) * y_stride + p * GB_PANEL, t + i * GB_PANEL, columns * sizeof *y);
            }
        }
    }
}

static void gate_up(void *h, size_t h_stride, const gb_inputs *x, const gb_packed *w, uint32_t m, uint32_t p0, uint32_t p1)
{
    _Alignas(64) float t[BLOCK_ROWS * GB_PANEL], gated[GB_HALF_PANEL];
    const void *rows[BLOCK_ROWS];
    size_t element = input_bytes(w);
    for (uint32_t p = p0; p < p1; p++) {
        uint32_t columns = min_u32(w->n / 2 - p * GB_HALF_PANEL, GB_HALF_PANEL);
        for (uint32_t first = 0, n; first < m; first += n) {
            n = next_block(m - first);
            block_rows(rows, x, element, first, n);
            PRODUCTS(t, rows, n, w, p);
            for (uint32_t i = 0; i < n; i++) {
                char *out = (char *)h + ((first + i) * h_stride + p * GB_HALF_PANEL) * element;
                gate(gated, t + i * GB_PANEL, t + i * GB_PANEL + GB_HALF_PANEL);
                if (element == sizeof(float)) memcpy(out, gated, columns * sizeof(float));
                else convert(out, gated, columns);
            }
        }
    }
}

static void add_row(float *restrict y, const float *restrict t, uint32_t n)
{
    if (n == GB_PANEL) {
        for (uint32_t i = 0; i < GB_PANEL; i++) y[i] += t[i];
    } else {
        for (uint32_t i = 0; i < n; i++) y[i] += t[i];
    }
}

static void add(float *y, size_t y_stride, const gb_inputs *x, const gb_packed *w, uint32_t m, uint32_t p0, uint32_t p1)
{
    _Alignas(64) float t[BLOCK_ROWS * GB_PANEL];
    const void *rows[BLOCK_ROWS];
    for (uint32_t p = p0; p < p1; p++) {
        uint32_t columns = min_u32(w->n - p * GB_PANEL, GB_PANEL);
        for (uint32_t first = 0, n; first < m; first += n) {
            n = next_block(m - first);
            block_rows(rows, x, input_bytes(w), first, n);
            PRODUCTS(t, rows, n, w, p);
            for (uint32_t i = 0; i < n; i++) add_row(y + (first + i) * y_stride + p * GB_PANEL, t + i * GB_PANEL, columns);
        }
    }
}
