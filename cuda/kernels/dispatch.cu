/* One pass over the routes of a layer: the slot that the map names for (source, expert, token), the route's place among those of its
   slot, tokens sent by (source, expert); the block that finishes last adds up where each slot's group begins and what each rank
   receives. Sender and receiver count apart: what was sent is counted by expert, what arrives by slot.

   Groups are made as groups.cuh says. Where two slots share a source's tokens, the token's own name decides (gb_placement_slot of
   core/flow/placement.h), so that neither padding nor arrival chooses a copy. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/groups.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kSharedWords = 12 * 1024 - 64;     /* what a block can have without asking, less the static part */

__device__ __forceinline__ unsigned long long mix64(unsigned long long x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* -1 for what is absent or must not be there. */
__device__ __forceinline__ int32_t slot_of(const gb_k_dispatch_args &a, uint32_t row, int32_t expert)
{
    if (expert == -1) return -1;
    if (expert < 0 || (uint32_t)expert >= a.map.E) {
        gb_report(a.fault, GB_K_FAULT_EXPERT, row, expert);
        return -1;
    }
    const size_t at = (size_t)a.rows.engines[row] * a.map.E + expert;
    int32_t slot = a.map.route[at];
    const int32_t other = a.map.other[at];
    if (other >= 0) {
        const unsigned long long name = mix64((unsigned long long)(uint32_t)a.rows.positions[row] << 32 | (uint32_t)a.rows.tokens[row]);
        if (mix64(name + (uint32_t)expert) >> 48 < a.map.other_share[at]) slot = other;
    }
    if (slot >= 0 && (uint32_t)slot < a.map.slots) return slot;
    gb_report(a.fault, GB_K_FAULT_SLOT, row, slot);
    return -1;
}

/* s_slots[slots]: routes of each slot, then where this block's begin; s_sent[sources][E] when kSharedSent */
template <bool kSharedSent> __global__ void __launch_bounds__(kGroupThreads) dispatch_kernel(gb_k_dispatch_args a)
{
    GB_DYN_SHARED(uint32_t, s_slots);
    uint32_t *s_sent = s_slots + a.map.slots;
    const uint32_t routes = a.rows.n * a.K, cells = a.map.sources * a.map.E, words = a.map.slots + (kSharedSent ? cells : 0);
    for (uint32_t i = threadIdx.x; i < words; i += kGroupThreads) s_slots[i] = 0;
    __syncthreads();

    const uint32_t first = blockIdx.x * kRoutes + threadIdx.x * kTurns;
    int32_t slots[kTurns];    /* experts at first */
    uint32_t places[kTurns];
    gb_load_routes(slots, a.experts, first, routes);
#pragma unroll
    for (uint32_t j = 0; j < kTurns; j++) {
        const uint32_t row = (first + j) / a.K;
        const int32_t expert = slots[j];
        slots[j] = -1;
        places[j] = 0;
        if (first + j >= routes || a.rows.tokens[row] < 0) continue;
        slots[j] = slot_of(a, row, expert);
        if (slots[j] < 0) continue;
        places[j] = atomicAdd(&s_slots[slots[j]], 1u);
        atomicAdd((kSharedSent ? s_sent : a.sent) + (size_t)a.rows.engines[row] * a.map.E + expert, 1u);
    }
    __syncthreads();

    for (uint32_t i = threadIdx.x; kSharedSent && i < cells; i += kGroupThreads)
        if (s_sent[i]) atomicAdd(&a.sent[i], s_sent[i]);
    if (!gb_place_routes(a.slot_of_route, a.place_in_slot, a.work, s_slots, slots, places, a.map.slots, routes)) return;
    const uint32_t all = gb_begin_groups(a.offsets, a.work, s_slots, a.map.slots);
    const uint32_t per_rank = a.map.slots / a.map.ranks;
    for (uint32_t rank = threadIdx.x; rank < a.map.ranks; rank += kGroupThreads)
        a.received[rank] += (rank + 1 < a.map.ranks ? s_slots[(rank + 1) * per_rank] : all) - s_slots[rank * per_rank];
}

extern "C" int gb_k_dispatch(const gb_k_dispatch_args *a, cudaStream_t stream)
{
    const gb_k_map *map = &a->map;
    if (map->E == 0 || map->E > GB_K_EXPERTS_MAX || map->sources == 0 || a->K == 0 || a->K > GB_K_TOP_MAX)
        return gb_k_fail(GB_EINVAL, "dispatch: %u of %u experts from %u sources; at most %d of %d are supported", a->K, map->E, map->sources,
                         GB_K_TOP_MAX, GB_K_EXPERTS_MAX);
    if (map->ranks == 0 || map->slots == 0 || map->slots % map->ranks || map->slots > GB_K_SLOTS_MAX)
        return gb_k_fail(GB_EINVAL, "dispatch: %u slots on %u ranks; each rank needs the same number, %d in all at most", map->slots, map->ranks,
                         GB_K_SLOTS_MAX);
    if (a->rows.n > kGridMax / a->K) return gb_k_fail(GB_EINVAL, "dispatch: %u rows are too many for 32-bit routes", a->rows.n);
    const uint32_t grid = a->rows.n ? gb_k_ceil(a->rows.n * a->K, kRoutes) : 1;    /* no rows: the offsets say so */
    const uint64_t words = map->slots + (uint64_t)map->sources * map->E;
    if (words <= kSharedWords) GB_LAUNCH((dispatch_kernel<true>), grid, kGroupThreads, words * sizeof(uint32_t), stream, *a);
    else GB_LAUNCH((dispatch_kernel<false>), grid, kGroupThreads, map->slots * sizeof(uint32_t), stream, *a);
    return gb_k_launched("dispatch");
}
