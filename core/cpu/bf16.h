/* bfloat16 is the upper half of a float32. Inline, so that loops over them become vectors (core/model/weights.h has the same
   two for code that converts single numbers). */
#ifndef GB_CPU_BF16_H
#define GB_CPU_BF16_H

#include <stdint.h>
#include <string.h>

static inline float gb_bf16_widen(uint16_t x)
{
    union { uint32_t u; float f; } v = {.u = (uint32_t)x << 16};
    return v.f;
}

/* To nearest, ties to even; NaN stays NaN. */
static inline uint16_t gb_bf16_round(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    uint32_t nan = (u & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(nan ? u >> 16 | 0x40 : (u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

#endif
