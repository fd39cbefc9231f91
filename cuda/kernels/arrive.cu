/* dispatch's second half where everybody's routes are here: which of them reach slots of ours, their places among those of a slot, where
   our groups begin. 1024 routes a block, as dispatch. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/groups.cuh"

/* s_counts[slots] */
__global__ void __launch_bounds__(kGroupThreads) arrive_kernel(gb_k_arrive_args a)
{
    GB_DYN_SHARED(uint32_t, s_counts);
    const uint32_t routes = a.n * a.K;
    for (uint32_t i = threadIdx.x; i < a.slots; i += kGroupThreads) s_counts[i] = 0;
    __syncthreads();
    int32_t slots[kTurns];
    uint32_t places[kTurns];
    gb_load_routes(slots, a.slot_of_route, blockIdx.x * kRoutes + threadIdx.x * kTurns, routes);
#pragma unroll
    for (uint32_t j = 0; j < kTurns; j++) {
        const uint32_t own = (uint32_t)slots[j] - a.first_slot;
        const bool ours = slots[j] >= 0 && own < a.slots;
        slots[j] = ours ? (int32_t)own : -1;
        places[j] = ours ? atomicAdd(&s_counts[own], 1u) : 0;
    }
    __syncthreads();
    if (!gb_place_routes(a.own_slot_of_route, a.place_in_slot, a.work, s_counts, slots, places, a.slots, routes)) return;
    const uint32_t all = gb_begin_groups(a.offsets, a.work, s_counts, a.slots);
    if (threadIdx.x == 0) a.received[0] += all;
}

extern "C" int gb_k_arrive(const gb_k_arrive_args *a, cudaStream_t stream)
{
    if (a->slots == 0 || a->slots > GB_K_SLOTS_MAX || a->K == 0)
        return gb_k_fail(GB_EINVAL, "arrive: %u slots, %u routes a row; at most %d slots are supported", a->slots, a->K, GB_K_SLOTS_MAX);
    if (a->n > kGridMax / a->K) return gb_k_fail(GB_EINVAL, "arrive: %u rows are too many for 32-bit routes", a->n);
    const uint32_t grid = a->n ? gb_k_ceil(a->n * a->K, kRoutes) : 1;    /* no rows: the offsets say so */
    GB_LAUNCH(arrive_kernel, grid, kGroupThreads, a->slots * sizeof(uint32_t), stream, *a);
    return gb_k_launched("arrive");
}
