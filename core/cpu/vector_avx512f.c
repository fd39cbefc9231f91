/* Sixteen lanes: a block's columns are one vector, so a tile takes 12 queries to have sums enough for the latency of FMA. */
#include "core/cpu/vector_rungs.h"

#if defined(__AVX512F__) || defined(GB_EMULATE_AVX512)
#ifndef GB_EMULATE_AVX512
#include <immintrin.h>
#endif

#define LANES 16
enum { TILE_ROWS = 12 };

typedef __m512 vf;

static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_even(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
static inline vf vf_odd(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000u)));
}

#include "core/cpu/vector_tile.h"

#include "core/cpu/vector_body.h"

const gb_vector gb_vector_avx512f = {"avx512f", rms_norm, rotate, add, add_scaled, attend};

#endif
