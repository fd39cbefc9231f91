/* How routes become groups of rows, one for each slot: a block counts its routes in shared memory, takes its share of each group with one
   global addition, and the block that finishes last adds up where groups begin. Places within a group are in any order: no result depends
   on it. A decode step's routes fit into one block, which needs nobody else's counts: it leaves work alone and saves the way there and back. */
#ifndef GB_CUDA_GROUPS_CUH
#define GB_CUDA_GROUPS_CUH

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/compat.cuh"

constexpr uint32_t kGroupThreads = 256;
constexpr uint32_t kTurns = 4;                             /* consecutive routes of a thread */
constexpr uint32_t kRoutes = kGroupThreads * kTurns;       /* of a block */

/* A thread's routes of a table, as one access where it is aligned; -1 beyond the last. */
__device__ __forceinline__ void gb_load_routes(int32_t (&to)[kTurns], const int32_t *table, uint32_t first, uint32_t routes)
{
    if (first + kTurns <= routes && reinterpret_cast<uintptr_t>(table) % 16 == 0) {
        const uint4 four = gb_load16(table + first);
        to[0] = (int32_t)four.x;
        to[1] = (int32_t)four.y;
        to[2] = (int32_t)four.z;
        to[3] = (int32_t)four.w;
        return;
    }
#pragma unroll
    for (uint32_t j = 0; j < kTurns; j++) to[j] = first + j < routes ? table[first + j] : -1;
}

__device__ __forceinline__ void gb_store_routes(void *table, const uint32_t (&from)[kTurns], uint32_t first, uint32_t routes)
{
    uint32_t *to = static_cast<uint32_t *>(table) + first;
    if (first + kTurns <= routes && reinterpret_cast<uintptr_t>(table) % 16 == 0) {
        gb_store16(to, make_uint4(from[0], from[1], from[2], from[3]));
        return;
    }
#pragma unroll
    for (uint32_t j = 0; j < kTurns; j++)
        if (first + j < routes) to[j] = from[j];
}

/* Sums of the threads of a block before this one, and of all; every thread calls it. */
__device__ __forceinline__ uint32_t gb_sum_before(uint32_t x, uint32_t &all)
{
    GB_SHARED(uint32_t, s_warps, [kGroupThreads / 32]);
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
    for (uint32_t w = 0; w < kGroupThreads / 32; w++) {
        before += w < warp ? s_warps[w] : 0;
        all += s_warps[w];
    }
    __syncthreads();
    return before + upto - x;
}

__device__ __forceinline__ bool gb_is_alone() { return gridDim.x == 1; }

/* slots[j] and places[j] (among the block's routes of that slot) of a thread's routes, and the block's counts in s_counts, become places
   among all routes; both are written. True in the block that comes here last; every thread calls it behind a barrier. */
__device__ __forceinline__ bool gb_place_routes(int32_t *slot_of_route, uint32_t *place_in_slot, uint32_t *work, uint32_t *s_counts,
                                                const int32_t (&slots)[kTurns], const uint32_t (&places)[kTurns], uint32_t n_slots,
                                                uint32_t routes)
{
    GB_SHARED(uint32_t, s_last, [1]);
    if (!gb_is_alone()) {
        for (uint32_t i = threadIdx.x; i < n_slots; i += kGroupThreads)
            if (s_counts[i]) s_counts[i] = atomicAdd(&work[i], s_counts[i]);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            s_last[0] = atomicAdd(&work[n_slots], 1u) == gridDim.x - 1;
            __threadfence();
        }
    }
    uint32_t to_slot[kTurns], to_place[kTurns];
#pragma unroll
    for (uint32_t j = 0; j < kTurns; j++) {
        to_slot[j] = (uint32_t)slots[j];
        to_place[j] = slots[j] < 0 ? 0 : places[j] + (gb_is_alone() ? 0 : s_counts[slots[j]]);
    }
    const uint32_t first = blockIdx.x * kRoutes + threadIdx.x * kTurns;
    gb_store_routes(slot_of_route, to_slot, first, routes);
    gb_store_routes(place_in_slot, to_place, first, routes);
    if (gb_is_alone()) return true;
    __syncthreads();
    return s_last[0];
}

/* By the last block: counts, which it takes out of work, become offsets, in s_counts too, where the whole block can read them. The sum of
   all counts. */
__device__ __forceinline__ uint32_t gb_begin_groups(uint32_t *offsets, uint32_t *work, uint32_t *s_counts, uint32_t n_slots)
{
    uint32_t begin = 0;
    for (uint32_t first = 0; first < n_slots; first += kGroupThreads) {
        const uint32_t slot = first + threadIdx.x;
        uint32_t count = 0;
        if (slot < n_slots) count = gb_is_alone() ? s_counts[slot] : atomicExch(&work[slot], 0u);
        uint32_t all;
        const uint32_t before = gb_sum_before(count, all);
        if (slot < n_slots) offsets[slot] = s_counts[slot] = begin + before;
        begin += all;
    }
    if (threadIdx.x == 0) {
        offsets[n_slots] = begin;
        if (!gb_is_alone()) atomicExch(&work[n_slots], 0u);
    }
    __syncthreads();
    return begin;
}

/* A word of the message of one source to a rank (GB_K_HEADER_WORDS); offsets of all slots, per_rank of them on each rank. */
__device__ __forceinline__ uint32_t gb_header_word(const uint32_t *offsets, const uint32_t *version, uint32_t per_rank, uint32_t rank,
                                                   uint32_t word)
{
    const uint32_t *own = offsets + (size_t)rank * per_rank;
    if (word < per_rank) return own[word + 1] - own[word];
    return word - per_rank == GB_K_HEADER_BEGIN ? own[0] : *version;
}

#endif
