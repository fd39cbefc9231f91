/* grouped[offsets[slot] + place] = h[row] for each route, and grouped_of_route. One warp a route, 8 elements a lane and step. */
#include "cuda/kernels/launch.cuh"

constexpr uint32_t kWarps = 8;

__global__ void __launch_bounds__(kWarps * 32) permute_kernel(gb_k_permute_args a)
{
    const uint32_t lane = threadIdx.x % 32, route = blockIdx.x * kWarps + threadIdx.x / 32;
    if (route >= a.n * a.K) return;    /* whole warps */
    const int32_t slot = a.slot_of_route[route];
    const uint32_t to = slot < 0 ? 0 : a.offsets[slot] + a.place_in_slot[route];
    if (lane == 0) a.grouped_of_route[route] = slot < 0 ? -1 : (int32_t)to;
    for (uint32_t i = lane * 8; slot >= 0 && i < a.hidden; i += 32 * 8)
        gb_store16(a.grouped + (size_t)to * a.hidden + i, gb_load16(a.h + (size_t)(route / a.K) * a.hidden + i));
}

extern "C" int gb_k_permute(const gb_k_permute_args *a, cudaStream_t stream)
{
    if (a->hidden == 0 || a->hidden % 8 || a->K == 0)
        return gb_k_fail(GB_EINVAL, "permute: a hidden size of %u is no multiple of 8, or no routes (%u)", a->hidden, a->K);
    if (a->n == 0) return GB_OK;
    if (a->n > kGridMax / a->K) return gb_k_fail(GB_EINVAL, "permute: %u rows are too many for 32-bit routes", a->n);
    GB_LAUNCH(permute_kernel, gb_k_ceil(a->n * a->K, kWarps), kWarps * 32, 0, stream, *a);
    return gb_k_launched("permute");
}
