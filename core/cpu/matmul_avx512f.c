/* Sixteen float32 lanes and FMA on bfloat16 weights that are widened in registers: more exact than vdpbf16ps, and faster where that
   instruction runs at half rate. 12 rows x 2 vectors of sums widen each weight once for 12 uses. */
#include "core/cpu/matmul_rungs.h"

#if defined(__AVX512F__) || defined(GB_EMULATE_AVX512)
#ifndef GB_EMULATE_AVX512
#include <immintrin.h>
#endif

#define LANES 16
#define GROUP_ROWS 12
#define GROUPS(X) \
    X(1, 4) X(2, 4) X(3, 4) X(4, 4) X(5, 2) X(6, 2) X(7, 2) X(8, 2) X(9, 2) X(10, 2) X(11, 2) X(12, 2)
#define BF16_INPUTS 0

typedef __m512 vec;

static inline vec load(const float *p) { return _mm512_load_ps(p); }
static inline void store(float *p, vec v) { _mm512_store_ps(p, v); }
static inline vec broadcast(const float *p) { return _mm512_set1_ps(*p); }
static inline vec multiply_add(vec x, vec w, vec sum) { return _mm512_fmadd_ps(x, w, sum); }

static inline vec even(const uint32_t *pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_load_si512(pairs), 16));
}

static inline vec odd(const uint32_t *pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_load_si512(pairs), _mm512_set1_epi32((int)0xffff0000u)));
}

#include "core/cpu/matmul_tile.h"

const gb_matmul_rung gb_matmul_avx512f = {"avx512f", BF16_INPUTS, gb_cpu_has_avx512f, multiply, gate_up, add, convert};

#endif
