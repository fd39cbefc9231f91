/* One pass over the routes of a layer: the slot that the map names for (source, expert, token), the route's place among those of its
   slot, tokens sent by (source, expert); the block that finishes last adds up where each slot's group begins and what each rank
   receives. Sender and receiver count apart: what was sent is counted by expert, what arrives by slot.

   A block counts its routes in shared memory (the hardware adds up equal addresses of a warp), then takes its share of each slot with
   one global addition. Places within a slot are in any order: no result depends on it. Where two slots share a source's tokens, the
   token's own name decides (gb_placement_slot of core/flow/placement.h), so that neither padding nor arrival chooses a copy. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kThreads = 256;
constexpr uint32_t kTurns = 4;                        /* routes of a thread */
constexpr uint32_t kRoutes = kThreads * kTurns;       /* of a block */
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

/* Sums of the threads before this one, and of all; every thread calls it. */
__device__ __forceinline__ uint32_t sum_before(uint32_t x, uint32_t &all)
{
    GB_SHARED(uint32_t, s_warps, [kThreads / 32]);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t upto = x, before = 0;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, upto, step);
        if (lane >= (uint32_t)step) upto += other;
    }
    if (lane == 31) s_warps[warp] = upto;
    __syncthreads();
    all = 0;
#pragma unroll
    for (uint32_t w = 0; w < kThreads / 32; w++) {
        before += w < warp ? s_warps[w] : 0;
        all += s_warps[w];
    }
    __syncthreads();
    return before + upto - x;
}

/* By the last block: counts of slots, which it takes out of work, become offsets and what ranks receive. */
__device__ __forceinline__ void add_up(const gb_k_dispatch_args &a, uint32_t *s_counts)
{
    const uint32_t slots_per_rank = a.map.slots / a.map.ranks;
    uint32_t begin = 0;
    for (uint32_t first = 0; first < a.map.slots; first += kThreads) {
        const uint32_t slot = first + threadIdx.x;
        const uint32_t count = slot < a.map.slots ? atomicExch(&a.work[slot], 0u) : 0;
        uint32_t all;
        const uint32_t before = sum_before(count, all);
        if (slot < a.map.slots) {
            a.offsets[slot] = begin + before;
            s_counts[slot] = count;
        }
        begin += all;
    }
    if (threadIdx.x == 0) {
        a.offsets[a.map.slots] = begin;
        atomicExch(&a.work[a.map.slots], 0u);
    }
    __syncthreads();
    for (uint32_t rank = threadIdx.x; rank < a.map.ranks; rank += kThreads) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < slots_per_rank; i++) sum += s_counts[rank * slots_per_rank + i];
        a.received[rank] += sum;
    }
}

/* s_slots[slots]: routes of each slot, then where this block's begin; s_sent[sources][E] when kSharedSent */
template <bool kSharedSent> __global__ void __launch_bounds__(kThreads) dispatch_kernel(gb_k_dispatch_args a)
{
    GB_DYN_SHARED(uint32_t, s_slots);
    GB_SHARED(uint32_t, s_last, [1]);
    uint32_t *s_sent = s_slots + a.map.slots;
    const uint32_t routes = a.rows.n * a.K, cells = a.map.sources * a.map.E, words = a.map.slots + (kSharedSent ? cells : 0);
    for (uint32_t i = threadIdx.x; i < words; i += kThreads) s_slots[i] = 0;
    __syncthreads();

    int32_t slots[kTurns];
    uint32_t places[kTurns];
#pragma unroll
    for (uint32_t j = 0; j < kTurns; j++) {
        const uint32_t route = blockIdx.x * kRoutes + j * kThreads + threadIdx.x, row = route / a.K;
        slots[j] = -1;
        places[j] = 0;
        if (route >= routes || a.rows.tokens[row] < 0) continue;
        const int32_t expert = a.experts[route];
        slots[j] = slot_of(a, row, expert);
        if (slots[j] < 0) continue;
        places[j] = atomicAdd(&s_slots[slots[j]], 1u);
        atomicAdd((kSharedSent ? s_sent : a.sent) + (size_t)a.rows.engines[row] * a.map.E + expert, 1u);
    }
    __syncthreads();

    for (uint32_t i = threadIdx.x; i < a.map.slots; i += kThreads)
        if (s_slots[i]) s_slots[i] = atomicAdd(&a.work[i], s_slots[i]);
    for (uint32_t i = threadIdx.x; kSharedSent && i < cells; i += kThreads)
        if (s_sent[i]) atomicAdd(&a.sent[i], s_sent[i]);
    __threadfence();
    __syncthreads();
#pragma unroll
    for (uint32_t j = 0; j < kTurns; j++) {
        const uint32_t route = blockIdx.x * kRoutes + j * kThreads + threadIdx.x;
        if (route >= routes) continue;
        a.slot_of_route[route] = slots[j];
        a.place_in_slot[route] = slots[j] < 0 ? 0 : s_slots[slots[j]] + places[j];
    }
    if (threadIdx.x == 0) s_last[0] = atomicAdd(&a.work[a.map.slots], 1u) == gridDim.x - 1;
    __syncthreads();
    if (s_last[0]) add_up(a, s_slots);
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
    if (a->rows.n == 0) return GB_OK;
    if (a->rows.n > kGridMax / a->K) return gb_k_fail(GB_EINVAL, "dispatch: %u rows are too many for 32-bit routes", a->rows.n);
    const uint32_t grid = gb_k_ceil(a->rows.n * a->K, kRoutes);
    const uint64_t words = map->slots + (uint64_t)map->sources * map->E;
    if (words <= kSharedWords) GB_LAUNCH((dispatch_kernel<true>), grid, kThreads, words * sizeof(uint32_t), stream, *a);
    else GB_LAUNCH((dispatch_kernel<false>), grid, kThreads, map->slots * sizeof(uint32_t), stream, *a);
    return gb_k_launched("dispatch");
}
