/* Numbers on the device: bfloat16 and sums over the lanes of a warp in an order that never changes. */
#ifndef GB_CUDA_NUMBER_CUH
#define GB_CUDA_NUMBER_CUH

#include "cuda/kernels/compat.cuh"
#include "cuda/kernels/kernels.h"

__device__ __forceinline__ float gb_widen(uint32_t bits) { return __uint_as_float(bits << 16); }

/* To nearest, ties to even; NaN stays NaN. */
__device__ __forceinline__ uint32_t gb_round_bf16(float x)
{
    uint32_t u = __float_as_uint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return u >> 16 | 0x40;
    return (u + 0x7fffu + (u >> 16 & 1)) >> 16;
}

__device__ __forceinline__ float gb_silu(float x) { return x / (1.0f + expf(-x)); }

__device__ __forceinline__ uint32_t gb_pack_bf16(float low, float high) { return gb_round_bf16(low) | gb_round_bf16(high) << 16; }

/* Four float32 or eight bfloat16 as one access. */
__device__ __forceinline__ void gb_load_floats(float (&to)[4], const float *from)
{
    const uint4 bits = gb_load16(from);
    to[0] = __uint_as_float(bits.x);
    to[1] = __uint_as_float(bits.y);
    to[2] = __uint_as_float(bits.z);
    to[3] = __uint_as_float(bits.w);
}

__device__ __forceinline__ void gb_store_floats(float *to, const float (&from)[4])
{
    gb_store16(to, make_uint4(__float_as_uint(from[0]), __float_as_uint(from[1]), __float_as_uint(from[2]), __float_as_uint(from[3])));
}

__device__ __forceinline__ void gb_widen8(float (&to)[8], uint4 bits)
{
    const uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        to[2 * j] = gb_widen(pairs[j] & 0xffff);
        to[2 * j + 1] = gb_widen(pairs[j] >> 16);
    }
}

__device__ __forceinline__ void gb_load_bf16(float (&to)[8], const uint16_t *from) { gb_widen8(to, gb_load16(from)); }

__device__ __forceinline__ float gb_warp_sum(float x)
{
#pragma unroll
    for (int step = 16; step; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

__device__ __forceinline__ float gb_warp_max(float x)
{
#pragma unroll
    for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* gb_exp_f32 of core/base/exp.h, bit for bit: nothing may be fused here. */
__device__ __forceinline__ float gb_exp(float x)
{
    const float to_integer = 12582912.0f;
    const float factors[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    x = x < 88.0f ? x : 88.0f;
    x = x > -104.0f ? x : -104.0f;
    const float n = __fsub_rn(__fadd_rn(__fmul_rn(x, 1.44269504f), to_integer), to_integer);
    const float r = __fadd_rn(__fsub_rn(x, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, 2.12194440e-4f));
    float p = 1.9875691500e-4f;
#pragma unroll
    for (int i = 0; i < 5; i++) p = __fadd_rn(__fmul_rn(p, r), factors[i]);
    p = __fadd_rn(__fadd_rn(__fmul_rn(p, __fmul_rn(r, r)), r), 1.0f);
    const int exponent = (int)n + 127;
    return __fmul_rn(p, __uint_as_float((uint32_t)(exponent > 0 ? exponent : 0) << 23));
}

/* A word that says yes or no, if there is one. */
__device__ __forceinline__ bool gb_is_set(const uint32_t *word) { return word && *word; }

/* The first to come keeps its words. */
__device__ __forceinline__ void gb_report(gb_k_fault *fault, gb_k_fault_kind kind, uint32_t row, int32_t value)
{
    if (atomicCAS(&fault->kind, (uint32_t)GB_K_FAULT_NONE, (uint32_t)kind) != GB_K_FAULT_NONE) return;
    fault->row = row;
    fault->value = value;
}

#endif
