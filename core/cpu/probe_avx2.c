#include "core/cpu/probe_kernels.h"

#ifdef __AVX2__
#include <immintrin.h>

enum { CHAINS = 12, LANES = 8 };

/* Twelve independent chains cover the latency of two FMA units. */
static float run_fma(uint32_t steps)
{
    __m256 sums[CHAINS];
    const __m256 factor = _mm256_set1_ps(0.9999f), term = _mm256_set1_ps(1e-3f);
    for (int i = 0; i < CHAINS; i++) sums[i] = _mm256_set1_ps((float)i);
    for (uint32_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
    }
    for (int i = 1; i < CHAINS; i++) sums[0] = _mm256_add_ps(sums[0], sums[i]);
    return _mm256_cvtss_f32(sums[0]);
}

const gb_peak_kernel gb_peak_avx2 = {run_fma, CHAINS * LANES * 2};

uint64_t gb_read_avx2(const void *memory, size_t bytes)
{
    enum { STREAM = 512, AHEAD = 4096 };
    const char *p = memory;
    __m256i x[8];
    for (int i = 0; i < 8; i++) x[i] = _mm256_setzero_si256();
    for (size_t at = 0; at < bytes; at += STREAM) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            _mm_prefetch(p + at + AHEAD + i * 64, _MM_HINT_T0);
            x[i] = _mm256_xor_si256(x[i], _mm256_load_si256((const __m256i *)(p + at + i * 64)));
            x[i] = _mm256_xor_si256(x[i], _mm256_load_si256((const __m256i *)(p + at + i * 64 + 32)));
        }
    }
    for (int i = 1; i < 8; i++) x[0] = _mm256_xor_si256(x[0], x[i]);
    return (uint64_t)_mm256_extract_epi64(x[0], 0) ^ (uint64_t)_mm256_extract_epi64(x[0], 3);
}

#endif
