/* Eight float32 lanes and FMA: bfloat16 weights are widened in registers, the even one of a pair by a shift, the odd one by
   a mask. A panel is 8 vectors wide. One row keeps all 8 sums (a latency of 4 cycles at 2 FMA a cycle needs 8 chains), more rows
   take fewer columns at a time so that sums stay in registers. k goes in blocks so that the columns' passes over a block
   read it from L1 and memory sees one forward stream. */
#include "core/cpu/matmul_rungs.h"

#ifdef __AVX2__
#include <immintrin.h>

enum {
    LANES = 8,
    VECTORS = GB_PANEL / LANES,
    BLOCK = 128,               /* inputs in a block of k: 16 KiB of bfloat16 weights */
    PREFETCH_BYTES = 2048,
};

#define GROUP_ROWS 6
#define PRODUCTS products
#define BF16_INPUTS 0

#define INLINE static inline __attribute__((always_inline))

typedef struct sums {
    __m256 v[GROUP_ROWS][VECTORS];
} sums;

INLINE void load_sums(sums *s, const float *t, int rows, int vectors)
{
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) s->v[r][j] = _mm256_load_ps(t + r * GB_PANEL + j * LANES);
    }
}

INLINE void store_sums(float *t, const sums *s, int rows, int vectors)
{
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) _mm256_store_ps(t + r * GB_PANEL + j * LANES, s->v[r][j]);
    }
}

/* One input position: sums += x[r][k] * weights. */
INLINE void add_products(sums *s, const float *const *x, uint32_t k, const __m256 *weights, int rows, int vectors)
{
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        __m256 input = _mm256_broadcast_ss(x[r] + k);
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) s->v[r][j] = _mm256_fmadd_ps(input, weights[j], s->v[r][j]);
    }
}

INLINE __m256 even_of(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

INLINE __m256 odd_of(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000u)));
}

/* t[rows][vectors * 8] += inputs k0 .. k1 of a bfloat16 panel (w stands at its column and at k0, which is even). */
INLINE void tile_bf16(float *t, const float *const *x, const uint32_t *w, uint32_t k0, uint32_t k1, int rows, int vectors)
{
    sums s;
    __m256 weights[VECTORS];
    load_sums(&s, t, rows, vectors);
    for (uint32_t k = k0; k < k1; k += 2, w += GB_PANEL) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j += 2) _mm_prefetch((const char *)(w + j * LANES) + PREFETCH_BYTES, _MM_HINT_T0);
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) weights[j] = even_of(_mm256_load_si256((const __m256i *)(w + j * LANES)));
        add_products(&s, x, k, weights, rows, vectors);
        if (k + 1 == k1) break;
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) weights[j] = odd_of(_mm256_load_si256((const __m256i *)(w + j * LANES)));
        add_products(&s, x, k + 1, weights, rows, vectors);
    }
    store_sums(t, &s, rows, vectors);
}

INLINE void tile_f32(float *t, const float *const *x, const float *w, uint32_t k0, uint32_t k1, int rows, int vectors)
{
    sums s;
    __m256 weights[VECTORS];
    load_sums(&s, t, rows, vectors);
    for (uint32_t k = k0; k < k1; k++, w += GB_PANEL) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j += 2) _mm_prefetch((const char *)(w + j * LANES) + PREFETCH_BYTES, _MM_HINT_T0);
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) weights[j] = _mm256_load_ps(w + j * LANES);
        add_products(&s, x, k, weights, rows, vectors);
    }
    store_sums(t, &s, rows, vectors);
}

/* All columns of a panel, one block of k after the other, `vectors` at a time. */
INLINE void panel_products(float *t, const float *const *x, const gb_packed *w, uint32_t panel, int rows, int vectors)
{
    const uint32_t *half = (const uint32_t *)w->data + (size_t)panel * GB_PANEL * ((w->k + 1) / 2);
    const float *full = (const float *)w->data + (size_t)panel * GB_PANEL * w->k;
    for (uint32_t k0 = 0; k0 < w->k; k0 += BLOCK) {
        uint32_t k1 = w->k - k0 < BLOCK ? w->k : k0 + BLOCK;
        for (int c = 0; c < GB_PANEL; c += vectors * LANES) {
            if (w->f32) tile_f32(t + c, x, full + (size_t)k0 * GB_PANEL + c, k0, k1, rows, vectors);
            else tile_bf16(t + c, x, half + (size_t)(k0 / 2) * GB_PANEL + c, k0, k1, rows, vectors);
        }
    }
}

static void products(float *t, const void *const *inputs, uint32_t rows, const gb_packed *w, uint32_t panel)
{
    const float *const *x = (const float *const *)inputs;
    for (uint32_t i = 0; i < rows * GB_PANEL; i++) t[i] = 0;
    switch (rows) {
    case 1: panel_products(t, x, w, panel, 1, 8); break;
    case 2: panel_products(t, x, w, panel, 2, 4); break;
    case 3: panel_products(t, x, w, panel, 3, 4); break;
    case 4: panel_products(t, x, w, panel, 4, 2); break;
    case 5: panel_products(t, x, w, panel, 5, 2); break;
    default: panel_products(t, x, w, panel, 6, 2); break;
    }
}

#include "core/cpu/matmul_body.h"

const gb_matmul_rung gb_matmul_avx2 = {"avx2", BF16_INPUTS, gb_cpu_has_avx2, multiply, gate_up, add, convert};

#endif
