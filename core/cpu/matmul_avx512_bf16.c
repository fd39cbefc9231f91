/* vdpbf16ps multiplies pairs of bfloat16 as they are packed and adds them to sixteen float32 sums; activations are rounded to
   bfloat16. The instruction flushes denormals and rounds each of its steps its own way. 6 rows x 4 vectors of sums. */
#include "core/cpu/matmul_rungs.h"

#if defined(__AVX512BF16__) || defined(GB_EMULATE_AVX512)
#ifndef GB_EMULATE_AVX512
#include <immintrin.h>
#endif
#include <string.h>

#define LANES 16
#define GROUP_ROWS 6
#define GROUPS(X) X(1, 4) X(2, 4) X(3, 4) X(4, 4) X(5, 4) X(6, 4)
#define BF16_INPUTS 1
#define DOT

typedef __m512 vec;
typedef __m512bh vec_pairs;

static inline vec load(const float *p) { return _mm512_load_ps(p); }
static inline void store(float *p, vec v) { _mm512_store_ps(p, v); }
static inline vec broadcast(const float *p) { return _mm512_set1_ps(*p); }
static inline vec multiply_add(vec x, vec w, vec sum) { return _mm512_fmadd_ps(x, w, sum); }

static inline vec_pairs pair_of(const uint16_t *inputs, size_t n)
{
    int32_t pair = 0;
    memcpy(&pair, inputs, n * sizeof *inputs);
    return (vec_pairs)_mm512_set1_epi32(pair);
}

static inline vec dot(vec_pairs x, const uint32_t *w, vec sum)
{
    return _mm512_dpbf16_ps(sum, x, (vec_pairs)_mm512_load_si512(w));
}

#include "core/cpu/matmul_tile.h"

const gb_matmul_rung gb_matmul_avx512_bf16 = {"avx512_bf16", BF16_INPUTS, gb_cpu_has_avx512_bf16, multiply, gate_up, add, convert};

#endif
