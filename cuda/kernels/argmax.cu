/* The lowest id among the highest logits: what core/model's sampler gives at temperature 0. -1 when a logit is NaN or +inf, or all
   are -inf. One block a row; a thread's best is a key that grows with the logit and falls with the id. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kThreads = 256;

__device__ __forceinline__ unsigned long long key_of(float logit, uint32_t id)
{
    if (logit == 0) logit = 0;    /* -0 equals 0 */
    const uint32_t bits = __float_as_uint(logit), ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (unsigned long long)ordered << 32 | (0xffffffffu - id);
}

__global__ void __launch_bounds__(kThreads) argmax_kernel(gb_k_argmax_args a)
{
    GB_SHARED(unsigned long long, s_best, [kThreads / 32]);
    const float *logits = a.logits + (size_t)blockIdx.x * a.vocab;
    unsigned long long best = 0;
    int bad = 0;
    for (uint32_t i = threadIdx.x; i < a.vocab; i += kThreads) {
        const float logit = logits[i];
        bad |= !(logit < INFINITY);    /* NaN, too */
        const unsigned long long key = logit == -INFINITY ? 0 : key_of(logit, i);
        best = key > best ? key : best;
    }
#pragma unroll
    for (int step = 16; step; step /= 2) {
        const unsigned long long other = __shfl_xor_sync(0xffffffffu, best, step);
        best = other > best ? other : best;
    }
    if (threadIdx.x % 32 == 0) s_best[threadIdx.x / 32] = best;
    bad = __syncthreads_or(bad);
    if (threadIdx.x != 0) return;
    for (uint32_t w = 1; w < kThreads / 32; w++) best = s_best[w] > best ? s_best[w] : best;
    a.out[blockIdx.x] = bad || best == 0 ? -1 : (int32_t)(0xffffffffu - (uint32_t)best);
}

extern "C" int gb_k_argmax(const gb_k_argmax_args *a, cudaStream_t stream)
{
    if (a->vocab == 0 || a->vocab > kGridMax) return gb_k_fail(GB_EINVAL, "argmax: a vocabulary of %u", a->vocab);
    if (a->n == 0) return GB_OK;
    if (a->n > kGridMax) return gb_k_fail(GB_EINVAL, "argmax: %u rows are more than a grid has", a->n);
    GB_LAUNCH(argmax_kernel, a->n, kThreads, 0, stream, *a);
    return gb_k_launched("argmax");
}
