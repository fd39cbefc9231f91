/* experts, weights = top K of softmax(logits), all in float32; highest first, the lower expert first among equal probabilities;
   divided by their sum when normalize. One warp a row: a lane keeps experts lane, lane + 32, ... and in each of K turns the warp finds
   the largest (probability, expert) key. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kWarps = 4;

/* Larger for a higher probability, then for a lower expert. Probabilities are not negative, so their bits are in order; NaN counts
   as lowest, as no comparison is true for it. */
__device__ __forceinline__ unsigned long long key_of(float p, uint32_t expert)
{
    const uint32_t bits = p >= 0 ? __float_as_uint(p) + 1 : 1;    /* 0 is what is no candidate any more */
    return (unsigned long long)bits << 32 | (0xffffffffu - expert);
}

/* V = experts of a lane */
template <int V> __device__ __forceinline__ void softmax(float (&p)[V], const float *logits, uint32_t E, uint32_t lane)
{
    float highest = -INFINITY, sum = 0;
#pragma unroll
    for (int j = 0; j < V; j++) {
        p[j] = lane + 32 * j < E ? logits[lane + 32 * j] : -INFINITY;
        highest = fmaxf(highest, p[j]);
    }
    highest = gb_warp_max(highest);
#pragma unroll
    for (int j = 0; j < V; j++) {
        p[j] = lane + 32 * j < E ? expf(p[j] - highest) : 0;
        sum += p[j];
    }
    sum = gb_warp_sum(sum);
#pragma unroll
    for (int j = 0; j < V; j++) p[j] /= sum;
}

template <int V> __global__ void __launch_bounds__(kWarps * 32) router_kernel(gb_k_router_args a)
{
    const uint32_t lane = threadIdx.x % 32, row = blockIdx.x * kWarps + threadIdx.x / 32;
    if (row >= a.n) return;    /* whole warps */
    int32_t *experts = a.experts + (size_t)row * a.K;
    float *weights = a.weights + (size_t)row * a.K;
    if (a.tokens && a.tokens[row] < 0) {
        if (lane < a.K) {
            experts[lane] = -1;
            weights[lane] = 0;
        }
        return;
    }
    float p[V], mine = 0, total = 0;
    int32_t my_expert = -1;
    uint32_t taken = 0;    /* of this lane's experts, by bit */
    softmax<V>(p, a.logits + (size_t)row * a.E, a.E, lane);
    for (uint32_t k = 0; k < a.K; k++) {
        unsigned long long best = 0;
#pragma unroll
        for (int j = 0; j < V; j++) {
            const unsigned long long key = lane + 32 * j < a.E && !(taken >> j & 1) ? key_of(p[j], lane + 32 * j) : 0;
            best = key > best ? key : best;
        }
#pragma unroll
        for (int step = 16; step; step /= 2) {
            const unsigned long long other = __shfl_xor_sync(0xffffffffu, best, step);
            best = other > best ? other : best;
        }
        const uint32_t expert = 0xffffffffu - (uint32_t)best;
        float weight = 0;
#pragma unroll
        for (int j = 0; j < V; j++)
            if (expert == lane + 32 * j) {
                taken |= 1u << j;
                weight = p[j];
            }
        weight = __shfl_sync(0xffffffffu, weight, expert % 32);
        total += weight;
        if (lane == k) {
            mine = weight;
            my_expert = (int32_t)expert;
        }
    }
    if (lane < a.K) {
        experts[lane] = my_expert;
        weights[lane] = a.normalize ? mine / total : mine;
    }
}

extern "C" int gb_k_router(const gb_k_router_args *a, cudaStream_t stream)
{
    if (a->E == 0 || a->E > GB_K_EXPERTS_MAX || a->K == 0 || a->K > GB_K_TOP_MAX || a->K > a->E)
        return gb_k_fail(GB_EINVAL, "router: %u of %u experts; at most %d of %d are supported", a->K, a->E, GB_K_TOP_MAX, GB_K_EXPERTS_MAX);
    if (a->n == 0) return GB_OK;
    const uint32_t grid = gb_k_ceil(a->n, kWarps), lanes = gb_k_ceil(a->E, 32);
    if (lanes <= 1) GB_LAUNCH((router_kernel<1>), grid, kWarps * 32, 0, stream, *a);
    else if (lanes <= 2) GB_LAUNCH((router_kernel<2>), grid, kWarps * 32, 0, stream, *a);
    else if (lanes <= 4) GB_LAUNCH((router_kernel<4>), grid, kWarps * 32, 0, stream, *a);
    else if (lanes <= 8) GB_LAUNCH((router_kernel<8>), grid, kWarps * 32, 0, stream, *a);
    else if (lanes <= 16) GB_LAUNCH((router_kernel<16>), grid, kWarps * 32, 0, stream, *a);
    else GB_LAUNCH((router_kernel<32>), grid, kWarps * 32, 0, stream, *a);
    return gb_k_launched("router");
}
