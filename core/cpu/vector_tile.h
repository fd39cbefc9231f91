/* The products of attention for files with vector registers. Before it includes this, the file defines TILE_ROWS, LANES,
   the type vf and

       vf_load vf_store vf_set1 vf_fma(a, b, c) = a * b + c
       vf_even(p) vf_odd(p)    the first and second of LANES pairs of bfloat16 at p

   All rows of a tile share the loads of b; sums stay in registers over all of k. */
#define INLINE static inline __attribute__((always_inline))

enum { VECTORS = 16 / LANES };

typedef struct tile_sums {
    vf v[TILE_ROWS][VECTORS];
} tile_sums;

INLINE void add_products(tile_sums *s, const float *const *a, uint32_t i, const vf b[VECTORS], int rows)
{
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        vf input = vf_set1(a[r][i]);
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; j++) s->v[r][j] = vf_fma(input, b[j], s->v[r][j]);
    }
}

INLINE void add_block_f32(tile_sums *s, const float *const *a, uint32_t i, const char *b, size_t step, uint32_t n, int rows)
{
    vf row[VECTORS];
    for (uint32_t end = i + n; i < end; i++, b += step) {
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; j++) row[j] = vf_load((const float *)b + j * LANES);
        add_products(s, a, i, row, rows);
    }
}

INLINE void add_block_bf16(tile_sums *s, const float *const *a, uint32_t i, const char *b, size_t step, uint32_t n, int rows)
{
    vf even[VECTORS], odd[VECTORS];
    for (uint32_t end = i + n; i < end; i += 2, b += step) {
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; j++) even[j] = vf_even((const uint16_t *)b + 2 * j * LANES);
        add_products(s, a, i, even, rows);
        if (i + 1 == end) break;    /* the other half of the pair is not this sequence's */
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; j++) odd[j] = vf_odd((const uint16_t *)b + 2 * j * LANES);
        add_products(s, a, i + 1, odd, rows);
    }
}

INLINE void tile(float *c, size_t c_stride, const float *const *a, const char *const *b, size_t step, uint32_t k,
                 uint32_t k_block, bool f32, int rows)
{
    tile_sums s;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; j++) s.v[r][j] = vf_load(c + r * c_stride + j * LANES);
    }
    for (uint32_t i = 0; i < k; i += k_block, b++) {
        uint32_t n = k - i < k_block ? k - i : k_block;
        if (f32) add_block_f32(&s, a, i, *b, step, n, rows);
        else add_block_bf16(&s, a, i, *b, step, n, rows);
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; j++) vf_store(c + r * c_stride + j * LANES, s.v[r][j]);
    }
}

static void products(float *c, size_t c_stride, const float *const *a, const char *const *b, size_t step, uint32_t k,
                     uint32_t k_block, uint32_t rows, bool f32)
{
#define ROWS(n) case n: tile(c, c_stride, a, b, step, k, k_block, f32, n); break;
    switch (rows) {
    ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6)
#if LANES == 16
    ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12)
#endif
    }
#undef ROWS
}
