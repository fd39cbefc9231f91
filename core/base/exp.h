/* exp in float32 to about 1e-7, in steps that compilers turn into vectors: exactly 1 at 0, exactly 0 below -87.7 (where the
   result would be subnormal), clamped above 88. x = n ln 2 + r, a polynomial in r (Cephes expf), times 2^n. */
#ifndef GB_BASE_EXP_H
#define GB_BASE_EXP_H

#include <stdint.h>
#include <string.h>

static inline float gb_exp_f32(float x)
{
    const float to_integer = 12582912.0f;    /* 1.5 * 2^23: adding it rounds to a whole number */
    x = x < 88.0f ? x : 88.0f;
    x = x > -104.0f ? x : -104.0f;
    float n = (x * 1.44269504f + to_integer) - to_integer;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    int32_t exponent = (int32_t)n + 127;
    uint32_t bits = (uint32_t)(exponent > 0 ? exponent : 0) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

#endif
