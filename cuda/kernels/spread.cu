/* out[route] = in[grouped_of_route[route]], for ranks whose outs are added up: each route was computed by one rank, and all others bring
   -0.0, the only number that changes no sum (+0.0 would turn a result of -0.0 into +0.0). One warp a route. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/rows.cuh"

constexpr uint32_t kNothing = 0x80008000;    /* a pair of -0.0 in bfloat16 */

__global__ void __launch_bounds__(kRowThreads) spread_kernel(gb_k_spread_args a)
{
    const uint32_t route = blockIdx.x * kRowWarps + threadIdx.x / 32;
    if (route >= a.n * a.K) return;    /* whole warps */
    const int32_t from = a.grouped_of_route[route];
    uint16_t *to = a.out + (size_t)route * a.hidden;
    if (from < 0) gb_fill_row(to, kNothing, a.hidden);
    else gb_copy_row(to, a.in + (size_t)from * a.hidden, a.hidden);
}

extern "C" int gb_k_spread(const gb_k_spread_args *a, cudaStream_t stream)
{
    if (a->hidden == 0 || a->hidden % 8 || a->K == 0)
        return gb_k_fail(GB_EINVAL, "spread: a hidden size of %u is no multiple of 8, or no routes (%u)", a->hidden, a->K);
    if (a->n == 0) return GB_OK;
    if (a->n > kGridMax / a->K) return gb_k_fail(GB_EINVAL, "spread: %u rows are too many for 32-bit routes", a->n);
    GB_LAUNCH(spread_kernel, gb_k_ceil(a->n * a->K, kRowWarps), kRowThreads, 0, stream, *a);
    return gb_k_launched("spread");
}
