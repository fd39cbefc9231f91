/* All ranks of a round, on their own streams, wait for each other. The n-th barrier of a rank writes n into its word of everybody's window
   (release: with it goes all that the stream did before) and waits until all words of its own window say n or more (acquire). Words only
   grow, and a rank is never more than one barrier ahead, so nothing is cleared and nothing is lost.

   One block, a thread for each peer. It spins, so it must run beside the others' barriers: on a device of its own, or in a stream of its
   own where ranks share one. The emulator runs a kernel to its end before the next, so there the barrier is an operation of its streams. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

#ifdef GB_CUEMU

static void start_barrier(const gb_k_barrier_args &a, cudaStream_t stream)
{
    auto gave_up = [fault = a.fault](unsigned missing, uint32_t epoch) { gb_report(fault, GB_K_FAULT_BARRIER, missing, (int32_t)epoch); };
    cuemu::enqueue_rank_barrier({a.flags, a.epoch, a.rank, a.ranks, a.limit_ns, gave_up}, stream);
}

#else

#include "cuda/kernels/sync.cuh"

__global__ void __launch_bounds__(GB_K_PEERS_MAX) barrier_kernel(gb_k_barrier_args a)
{
    const uint32_t peer = threadIdx.x, epoch = *a.epoch + 1;
    __syncthreads();    /* everybody has read it */
    if (peer == 0) *a.epoch = epoch;
    if (peer >= a.ranks) return;
    gb_release(&a.flags[peer][a.rank], epoch);
    const uint64_t start = gb_nanoseconds();
    while ((int32_t)(gb_acquire(&a.flags[a.rank][peer]) - epoch) < 0)
        if (a.limit_ns && gb_nanoseconds() - start >= a.limit_ns) {
            gb_report(a.fault, GB_K_FAULT_BARRIER, peer, (int32_t)epoch);
            return;
        }
}

static void start_barrier(const gb_k_barrier_args &a, cudaStream_t stream) { GB_LAUNCH(barrier_kernel, 1, GB_K_PEERS_MAX, 0, stream, a); }

#endif

extern "C" int gb_k_barrier(const gb_k_barrier_args *a, cudaStream_t stream)
{
    if (a->ranks == 0 || a->ranks > GB_K_PEERS_MAX || a->rank >= a->ranks)
        return gb_k_fail(GB_EINVAL, "barrier: rank %u of %u, at most %d ranks meet", a->rank, a->ranks, GB_K_PEERS_MAX);
    start_barrier(*a, stream);
    return gb_k_launched("barrier");
}
