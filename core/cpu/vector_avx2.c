/* Eight lanes and FMA: a tile of 6 queries by 16 columns is 12 sums, 2 vectors of keys or values and one query. */
#include "core/cpu/vector_rungs.h"

#ifdef __AVX2__
#include <immintrin.h>

#define LANES 8
enum { TILE_ROWS = 6 };

typedef __m256 vf;

static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
static inline vf vf_set1(float x) { return _mm256_set1_ps(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_even(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)p), 16));
}
static inline vf vf_odd(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256((const __m256i *)p), _mm256_set1_epi32((int)0xffff0000u)));
}

#include "core/cpu/vector_tile.h"

#include "core/cpu/vector_body.h"

const gb_vector gb_vector_avx2 = {"avx2", rms_norm, rotate, add, add_scaled, attend};

#endif
