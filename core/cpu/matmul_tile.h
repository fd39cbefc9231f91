/* The inner loops of a vector rung, written once over a few vector operations. A rung's file defines before it includes this

       vec, LANES       a vector of float32
       load, store, broadcast, multiply_add(x, w, sum)
       even(w), odd(w)  the even and odd weights of LANES bfloat16 pairs at w, widened
       DOT              only where pairs are multiplied as they are: dot(x, w, sum) of LANES pairs at w and the pair x,
                        pair_of(inputs, n) of the next n = 1 or 2 inputs, broadcast
       GROUPS(X)        X(rows, vectors) for rows = 1, 2, ...: the columns that so many rows take at a time
       GROUP_ROWS       the last of them

   panel -> block of k -> group of rows -> columns -> k. A block of weights (16 KiB of bfloat16) is read from L1 by every group
   and column pass; the sums of a group and its columns live in registers, and between blocks in t. Few rows take many
   columns, since several independent sums are needed to hide the latency of an addition. While a block is used the next
   one is prefetched, in address order and spread evenly over all passes: for few rows memory is the bound and must never
   idle. The order of additions of one sum is always that of k. */
#include <string.h>

#include "core/cpu/matmul_rungs.h"

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))

/* Keeps a sum in its register: without it GCC 12 renames sums until some spill. */
#ifndef PIN
#define PIN(v) __asm__("" : "+v"(v))
#endif

enum {
    VECTORS = GB_PANEL / LANES,
    BLOCK = 256,    /* inputs in a block of k */
    LINE = 64,      /* bytes that one prefetch fetches */
};

#define BLOCK_ROWS 24
#define PRODUCTS products

typedef struct sums {
    vec v[GROUP_ROWS][VECTORS];
} sums;

/* Where to prefetch, and how far each prefetch moves on. */
typedef struct ahead {
    const char *at;
    uint32_t step;
} ahead;

INLINE void load_sums(sums *s, const float *t, int rows, int vectors)
{
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int j = 0; j < vectors; j++) s->v[r][j] = load(t + r * GB_PANEL + j * LANES);
    }
}

INLINE void store_sums(float *t, const sums *s, int rows, int vectors)
{
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int j = 0; j < vectors; j++) store(t + r * GB_PANEL + j * LANES, s->v[r][j]);
    }
}

/* One input of every row: sums += x[r][k] * weights. */
INLINE void add_products(sums *s, const float *const *x, size_t k, const vec *weights, int rows, int vectors)
{
    UNROLL for (int r = 0; r < rows; r++) {
        vec input = broadcast(x[r] + k);
        UNROLL for (int j = 0; j < vectors; j++) {
            s->v[r][j] = multiply_add(input, weights[j], s->v[r][j]);
            PIN(s->v[r][j]);
        }
    }
}

#ifdef DOT

typedef uint16_t half_input;

INLINE void add_pair(sums *s, const half_input *const *x, size_t k, size_t n, const uint32_t *w, int rows, int vectors)
{
    UNROLL for (int r = 0; r < rows; r++) {
        vec_pairs input = pair_of(x[r] + k, n);
        UNROLL for (int j = 0; j < vectors; j++) {
            s->v[r][j] = dot(input, w + j * LANES, s->v[r][j]);
            PIN(s->v[r][j]);
        }
    }
}

#else

typedef float half_input;    /* an input of a bfloat16 product */

/* Inputs k and, for n = 2, k + 1 times a row of pairs. */
INLINE void add_pair(sums *s, const half_input *const *x, size_t k, size_t n, const uint32_t *w, int rows, int vectors)
{
    vec weights[VECTORS];
    UNROLL for (int j = 0; j < vectors; j++) weights[j] = even(w + j * LANES);
    add_products(s, x, k, weights, rows, vectors);
    if (n == 1) return;
    UNROLL for (int j = 0; j < vectors; j++) weights[j] = odd(w + j * LANES);
    add_products(s, x, k + 1, weights, rows, vectors);
}

#endif

/* One line for each two vectors of 32 bytes, into L2: L1 is full of the running block. */
INLINE void prefetch(ahead *next, int vectors)
{
    UNROLL for (int line = 0; line < vectors * LANES / 16; line++, next->at += next->step) __builtin_prefetch(next->at, 0, 2);
}

/* t[rows][vectors * LANES] += the first n inputs of x times a bfloat16 block (w stands at its column). */
INLINE void tile_bf16(float *t, const half_input *const *x, const uint32_t *w, size_t n, ahead *next, int rows, int vectors)
{
    sums s;
    ahead here = *next;
    size_t k = 0;
    load_sums(&s, t, rows, vectors);
#ifndef __clang__
#pragma GCC unroll 2
#endif
    for (; k + 1 < n; k += 2, w += GB_PANEL) {
        prefetch(&here, vectors);
        add_pair(&s, x, k, 2, w, rows, vectors);
    }
    if (k < n) add_pair(&s, x, k, 1, w, rows, vectors);
    store_sums(t, &s, rows, vectors);
    *next = here;
}

INLINE void tile_f32(float *t, const float *const *x, const float *w, size_t n, ahead *next, int rows, int vectors)
{
    sums s;
    ahead here = *next;
    vec weights[VECTORS];
    load_sums(&s, t, rows, vectors);
    for (size_t k = 0; k < n; k++, w += GB_PANEL) {
        prefetch(&here, vectors);
        UNROLL for (int j = 0; j < vectors; j++) weights[j] = load(w + j * LANES);
        add_products(&s, x, k, weights, rows, vectors);
    }
    store_sums(t, &s, rows, vectors);
    *next = here;
}

/* All columns of a block for one group of rows, whose inputs start at the block. */
INLINE void group(float *t, const void *const *x, const void *block, bool f32, size_t n, ahead *next, int rows, int vectors)
{
    for (int c = 0; c < GB_PANEL; c += vectors * LANES) {
        if (f32) tile_f32(t + c, (const float *const *)x, (const float *)block + c, n, next, rows, vectors);
        else tile_bf16(t + c, (const half_input *const *)x, (const uint32_t *)block + c, n, next, rows, vectors);
    }
}

static void group_of(uint32_t rows, float *t, const void *const *x, const void *block, bool f32, size_t n, ahead *next)
{
    switch (rows) {
#define X(r, v) case r: group(t, x, block, f32, n, next, r, v); break;
    GROUPS(X)
#undef X
    }
}

static void products(float *t, const void *const *inputs, uint32_t rows, const gb_packed *w, uint32_t panel)
{
    const void *x[GROUP_ROWS];
    size_t input = w->f32 ? sizeof(float) : sizeof(half_input);
    size_t line = GB_PANEL * (w->f32 ? sizeof(float) : sizeof(uint16_t));    /* bytes of weights for one k */
    const char *block = (const char *)w->data + panel * line * (w->f32 ? w->k : w->k + w->k % 2);
    uint32_t groups = (rows + GROUP_ROWS - 1) / GROUP_ROWS;
    memset(t, 0, rows * GB_PANEL * sizeof *t);
    for (uint32_t k0 = 0; k0 < w->k; k0 += BLOCK, block += BLOCK * line) {
        uint32_t n = w->k - k0 < BLOCK ? w->k - k0 : BLOCK;
        ahead next = {block + BLOCK * line, LINE / groups};
        for (uint32_t g = 0, first = 0, size; g < groups; g++, first += size) {
            size = (rows - first + groups - g - 1) / (groups - g);    /* as even as possible: 7 rows are 4 + 3 */
            for (uint32_t i = 0; i < size; i++) x[i] = (const char *)inputs[first + i] + k0 * input;
            group_of(size, t + first * GB_PANEL, x, block, w->f32, n, &next);
        }
    }
}

#include "core/cpu/matmul_body.h"
