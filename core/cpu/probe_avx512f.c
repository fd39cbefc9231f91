#include "core/cpu/probe_kernels.h"

#ifdef __AVX512F__
#include <immintrin.h>

enum { CHAINS = 16, LANES = 16 };

static float run_fma(uint32_t steps)
{
    __m512 sums[CHAINS];
    const __m512 factor = _mm512_set1_ps(0.9999f), term = _mm512_set1_ps(1e-3f);
    for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_set1_ps((float)i);
    for (uint32_t step = 0; step < steps; step++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
    }
    for (int i = 1; i < CHAINS; i++) sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return _mm512_cvtss_f32(sums[0]);
}

const gb_peak_kernel gb_peak_avx512f = {run_fma, CHAINS * LANES * 2};

uint64_t gb_read_avx512f(const void *memory, size_t bytes)
{
    enum { STREAM = 512, AHEAD = 4096 };
    const char *p = memory;
    __m512i x[8];
    for (int i = 0; i < 8; i++) x[i] = _mm512_setzero_si512();
    for (size_t at = 0; at < bytes; at += STREAM) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            _mm_prefetch(p + at + AHEAD + i * 64, _MM_HINT_T0);
            x[i] = _mm512_xor_si512(x[i], _mm512_load_si512((const void *)(p + at + i * 64)));
        }
    }
    for (int i = 1; i < 8; i++) x[0] = _mm512_xor_si512(x[0], x[i]);
    return (uint64_t)_mm512_reduce_add_epi64(x[0]);
}

#endif
