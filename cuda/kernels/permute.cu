/* grouped[offsets[slot] + place] = h[row] for each route, and grouped_of_route. One block a row, 8 elements a thread and step: a row is read
   once and written for each of its routes. */
#include "cuda/kernels/launch.cuh"

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads) permute_kernel(gb_k_permute_args a)
{
    GB_SHARED(int32_t, s_to, [GB_K_TOP_MAX]);
    int32_t to = -1;
    if (threadIdx.x < a.K) {
        const size_t route = (size_t)blockIdx.x * a.K + threadIdx.x;
        const int32_t slot = a.slot_of_route[route];
        if (slot >= 0) to = (int32_t)(a.offsets[slot] + a.place_in_slot[route]);
        s_to[threadIdx.x] = a.grouped_of_route[route] = to;
    }
    if (!__syncthreads_or(to >= 0)) return;    /* padding, or a row for other ranks */
    const uint16_t *row = a.h + (size_t)blockIdx.x * a.hidden;
    for (uint32_t i = threadIdx.x * 8; i < a.hidden; i += blockDim.x * 8) {
        const uint4 part = gb_load16(row + i);
        for (uint32_t k = 0; k < a.K; k++)
            if (s_to[k] >= 0) gb_store16(a.grouped + (size_t)s_to[k] * a.hidden + i, part);
    }
}

extern "C" int gb_k_permute(const gb_k_permute_args *a, cudaStream_t stream)
{
    if (a->hidden == 0 || a->hidden % 8 || a->K == 0 || a->K > GB_K_TOP_MAX)
        return gb_k_fail(GB_EINVAL, "permute: a hidden size of %u is no multiple of 8, or %u routes a row are not 1 to %d", a->hidden, a->K,
                         GB_K_TOP_MAX);
    if (a->n == 0) return GB_OK;
    if (a->n > kGridMax / a->K) return gb_k_fail(GB_EINVAL, "permute: %u rows are too many for 32-bit routes", a->n);
    GB_LAUNCH(permute_kernel, a->n, gb_k_row_threads(a->hidden / 8, kThreads), 0, stream, *a);
    return gb_k_launched("permute");
}
