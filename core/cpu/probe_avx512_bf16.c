#include "core/cpu/probe_kernels.h"

#ifdef __AVX512BF16__
#include <immintrin.h>

enum { CHAINS = 16, LANES = 32 };

static float run_dot(uint32_t steps)
{
    __m512 sums[CHAINS];
    const __m512bh x = (__m512bh)_mm512_set1_epi16(0x3f80), y = (__m512bh)_mm512_set1_epi16(0x3c00);
    for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_set1_ps((float)i);
    for (uint32_t step = 0; step < steps; step++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_dpbf16_ps(sums[i], x, y);
    }
    for (int i = 1; i < CHAINS; i++) sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return _mm512_cvtss_f32(sums[0]);
}

const gb_peak_kernel gb_peak_avx512_bf16 = {run_dot, CHAINS * LANES * 2};

#endif
