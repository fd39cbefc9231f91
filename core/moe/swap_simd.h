/* Eight floats at a time, the few operations that the search needs. Included by swap_kernels.h, once per instruction set;
   lane k of every result depends on lane k of the inputs only, and there is no fused multiply-add, so all instruction sets
   compute the same bits. */
#ifndef GB_MOE_SWAP_SIMD_H
#define GB_MOE_SWAP_SIMD_H

#include <stdint.h>
#include <string.h>

enum { GB_LANES = 8 };

#if defined(__AVX2__)

#include <immintrin.h>

typedef __m256 gb_f8;
typedef __m256i gb_i8;

static inline gb_f8 f8_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void f8_store(float *p, gb_f8 a) { _mm256_storeu_ps(p, a); }
static inline gb_f8 f8_all(float x) { return _mm256_set1_ps(x); }
static inline gb_f8 f8_add(gb_f8 a, gb_f8 b) { return _mm256_add_ps(a, b); }
static inline gb_f8 f8_sub(gb_f8 a, gb_f8 b) { return _mm256_sub_ps(a, b); }
static inline gb_f8 f8_mul(gb_f8 a, gb_f8 b) { return _mm256_mul_ps(a, b); }
static inline gb_f8 f8_min(gb_f8 a, gb_f8 b) { return _mm256_min_ps(a, b); }
static inline gb_f8 f8_max(gb_f8 a, gb_f8 b) { return _mm256_max_ps(a, b); }
static inline gb_i8 f8_less(gb_f8 a, gb_f8 b) { return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
static inline gb_f8 f8_keep(gb_f8 a, gb_i8 mask) { return _mm256_and_ps(a, _mm256_castsi256_ps(mask)); }
static inline gb_i8 i8_load(const int32_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
static inline void i8_store(int32_t *p, gb_i8 a) { _mm256_storeu_si256((__m256i *)(void *)p, a); }
static inline gb_i8 i8_all(int32_t x) { return _mm256_set1_epi32(x); }
static inline gb_i8 i8_equal(gb_i8 a, gb_i8 b) { return _mm256_cmpeq_epi32(a, b); }
static inline gb_i8 i8_choose(gb_i8 mask, gb_i8 yes, gb_i8 no) { return _mm256_blendv_epi8(no, yes, mask); }

#else

/* Two vectors of four in the compiler's own notation: SSE2, NEON, or scalar code. */
typedef float gb_f4 __attribute__((vector_size(16)));
typedef int32_t gb_i4 __attribute__((vector_size(16)));
typedef struct { gb_f4 h[2]; } gb_f8;
typedef struct { gb_i4 h[2]; } gb_i8;

static inline gb_i4 i4_choose(gb_i4 mask, gb_i4 yes, gb_i4 no) { return (mask & yes) | (~mask & no); }
static inline gb_f4 f4_choose(gb_i4 mask, gb_f4 yes, gb_f4 no) { return (gb_f4)i4_choose(mask, (gb_i4)yes, (gb_i4)no); }

static inline gb_f8 f8_load(const float *p) { gb_f8 a; memcpy(&a, p, sizeof a); return a; }
static inline void f8_store(float *p, gb_f8 a) { memcpy(p, &a, sizeof a); }
static inline gb_f8 f8_all(float x) { return (gb_f8){{{x, x, x, x}, {x, x, x, x}}}; }
static inline gb_f8 f8_add(gb_f8 a, gb_f8 b) { return (gb_f8){{a.h[0] + b.h[0], a.h[1] + b.h[1]}}; }
static inline gb_f8 f8_sub(gb_f8 a, gb_f8 b) { return (gb_f8){{a.h[0] - b.h[0], a.h[1] - b.h[1]}}; }
static inline gb_f8 f8_mul(gb_f8 a, gb_f8 b) { return (gb_f8){{a.h[0] * b.h[0], a.h[1] * b.h[1]}}; }
static inline gb_f4 f4_min(gb_f4 a, gb_f4 b) { return f4_choose(a < b, a, b); }
static inline gb_f4 f4_max(gb_f4 a, gb_f4 b) { return f4_choose(a > b, a, b); }
static inline gb_f8 f8_min(gb_f8 a, gb_f8 b) { return (gb_f8){{f4_min(a.h[0], b.h[0]), f4_min(a.h[1], b.h[1])}}; }
static inline gb_f8 f8_max(gb_f8 a, gb_f8 b) { return (gb_f8){{f4_max(a.h[0], b.h[0]), f4_max(a.h[1], b.h[1])}}; }
static inline gb_i8 f8_less(gb_f8 a, gb_f8 b) { return (gb_i8){{a.h[0] < b.h[0], a.h[1] < b.h[1]}}; }
static inline gb_f8 f8_keep(gb_f8 a, gb_i8 m) { return (gb_f8){{(gb_f4)((gb_i4)a.h[0] & m.h[0]), (gb_f4)((gb_i4)a.h[1] & m.h[1])}}; }
static inline gb_i8 i8_load(const int32_t *p) { gb_i8 a; memcpy(&a, p, sizeof a); return a; }
static inline void i8_store(int32_t *p, gb_i8 a) { memcpy(p, &a, sizeof a); }
static inline gb_i8 i8_all(int32_t x) { return (gb_i8){{{x, x, x, x}, {x, x, x, x}}}; }
static inline gb_i8 i8_equal(gb_i8 a, gb_i8 b) { return (gb_i8){{a.h[0] == b.h[0], a.h[1] == b.h[1]}}; }
static inline gb_i8 i8_choose(gb_i8 m, gb_i8 y, gb_i8 n) { return (gb_i8){{i4_choose(m.h[0], y.h[0], n.h[0]), i4_choose(m.h[1], y.h[1], n.h[1])}}; }

#endif

/* Horizontal results, in one fixed order. */
static inline float f8_least(gb_f8 a)
{
    float lane[GB_LANES], least;
    f8_store(lane, a);
    least = lane[0];
    for (int k = 1; k < GB_LANES; k++) least = lane[k] < least ? lane[k] : least;
    return least;
}

static inline float f8_sum(gb_f8 a)
{
    float lane[GB_LANES];
    f8_store(lane, a);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

#endif
