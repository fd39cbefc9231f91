/* Eight float32 lanes and FMA. Bfloat16 weights are widened in registers, the even one of a pair by a shift, the odd one by a
   mask. 6 rows x 2 vectors of sums, 2 vectors of weights, 1 input and the mask take all 16 registers. */
#include "core/cpu/matmul_rungs.h"

#ifdef __AVX2__
#include <immintrin.h>

#define LANES 8
#define GROUP_ROWS 6
#define GROUPS(X) X(1, 8) X(2, 4) X(3, 2) X(4, 2) X(5, 2) X(6, 2)
#define BF16_INPUTS 0

typedef __m256 vec;

static inline vec load(const float *p) { return _mm256_load_ps(p); }
static inline void store(float *p, vec v) { _mm256_store_ps(p, v); }
static inline vec broadcast(const float *p) { return _mm256_broadcast_ss(p); }
static inline vec multiply_add(vec x, vec w, vec sum) { return _mm256_fmadd_ps(x, w, sum); }

static inline vec even(const uint32_t *pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_load_si256((const __m256i *)pairs), 16));
}

static inline vec odd(const uint32_t *pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_load_si256((const __m256i *)pairs), _mm256_set1_epi32((int)0xffff0000u)));
}

#include "core/cpu/matmul_tile.h"

const gb_matmul_rung gb_matmul_avx2 = {"avx2", BF16_INPUTS, gb_cpu_has_avx2, multiply, gate_up, add, convert};

#endif
