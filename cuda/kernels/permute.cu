/* grouped[offsets[slot] + place] = h[row] for each route, and grouped_of_route. One warp a route. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/rows.cuh"

__global__ void __launch_bounds__(kRowThreads) permute_kernel(gb_k_permute_args a)
{
    const uint32_t route = blockIdx.x * kRowWarps + threadIdx.x / 32;
    if (route >= a.n * a.K) return;    /* whole warps */
    const int32_t slot = a.slot_of_route[route];
    const uint32_t to = slot < 0 ? 0 : a.offsets[slot] + a.place_in_slot[route];
    if (threadIdx.x % 32 == 0) a.grouped_of_route[route] = slot < 0 ? -1 : (int32_t)to;
    if (slot >= 0) gb_copy_row(a.grouped + (size_t)to * a.hidden, a.h + (size_t)(route / a.K) * a.hidden, a.hidden);
}

extern "C" int gb_k_permute(const gb_k_permute_args *a, cudaStream_t stream)
{
    if (a->hidden == 0 || a->hidden % 8 || a->K == 0)
        return gb_k_fail(GB_EINVAL, "permute: a hidden size of %u is no multiple of 8, or no routes (%u)", a->hidden, a->K);
    if (a->n == 0) return GB_OK;
    if (a->n > kGridMax / a->K) return gb_k_fail(GB_EINVAL, "permute: %u rows are too many for 32-bit routes", a->n);
    GB_LAUNCH(permute_kernel, gb_k_ceil(a->n * a->K, kRowWarps), kRowThreads, 0, stream, *a);
    return gb_k_launched("permute");
}
