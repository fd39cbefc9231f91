/* permute into the memory of others: the row of each route to the window of the rank that computes it, behind the source's other rows for
   that rank, and to every rank the header that says how many came. A warp a route; the words of the headers are shared out among all
   threads. What is written here can be read there behind a barrier (barrier.cu); once one was abandoned, others may still be at work on
   what came before, and nothing is written any more. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/groups.cuh"
#include "cuda/kernels/number.cuh"
#include "cuda/kernels/rows.cuh"

__device__ __forceinline__ void push_headers(const gb_k_push_args &a, uint32_t per_rank)
{
    const uint32_t words = per_rank + GB_K_HEADER_WORDS;
    for (uint32_t i = blockIdx.x * kRowThreads + threadIdx.x; i < a.ranks * words; i += gridDim.x * kRowThreads) {
        const uint32_t rank = i / words, word = i % words;
        a.headers[rank][(size_t)a.source * words + word] = gb_header_word(a.offsets, a.version, per_rank, rank, word);
    }
}

__global__ void __launch_bounds__(kRowThreads) push_kernel(gb_k_push_args a)
{
    const uint32_t per_rank = a.slots / a.ranks, route = blockIdx.x * kRowWarps + threadIdx.x / 32;
    const bool sends = !gb_is_set(a.abandoned);
    if (sends) push_headers(a, per_rank);
    if (route >= a.n * a.K) return;    /* whole warps */
    const int32_t slot = sends ? a.slot_of_route[route] : -1;
    uint32_t to = 0, rank = 0, number = 0;    /* number: among our rows for that rank */
    bool goes = slot >= 0;
    if (goes) {
        to = a.offsets[slot] + a.place_in_slot[route];
        rank = (uint32_t)slot / per_rank;
        number = to - a.offsets[rank * per_rank];
        goes = number < a.stride;
    }
    if (threadIdx.x % 32 == 0) {
        if (slot >= 0 && !goes) gb_report(a.fault, GB_K_FAULT_ROOM, route / a.K, (int32_t)number);
        a.grouped_of_route[route] = goes ? (int32_t)to : -1;
    }
    if (goes) gb_copy_row(a.rows[rank] + ((size_t)a.source * a.stride + number) * a.hidden, a.h + (size_t)(route / a.K) * a.hidden, a.hidden);
}

extern "C" int gb_k_push(const gb_k_push_args *a, cudaStream_t stream)
{
    if (a->hidden == 0 || a->hidden % 8 || a->K == 0)
        return gb_k_fail(GB_EINVAL, "push: a hidden size of %u is no multiple of 8, or no routes (%u)", a->hidden, a->K);
    if (a->ranks == 0 || a->ranks > GB_K_PEERS_MAX || a->slots == 0 || a->slots % a->ranks || a->slots > GB_K_SLOTS_MAX)
        return gb_k_fail(GB_EINVAL, "push: %u slots on %u ranks; each rank needs the same number, at most %d on %d", a->slots, a->ranks,
                         GB_K_SLOTS_MAX, GB_K_PEERS_MAX);
    if (a->source >= a->ranks) return gb_k_fail(GB_EINVAL, "push: rank %u of %u", a->source, a->ranks);
    if (a->n > kGridMax / a->K) return gb_k_fail(GB_EINVAL, "push: %u rows are too many for 32-bit routes", a->n);
    const uint32_t grid = a->n ? gb_k_ceil(a->n * a->K, kRowWarps) : 1;    /* no rows: the headers say so */
    GB_LAUNCH(push_kernel, grid, kRowThreads, 0, stream, *a);
    return gb_k_launched("push");
}
