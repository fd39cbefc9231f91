/* All ranks of a round, on their own streams, wait for each other. The n-th barrier of a rank writes n into its word of everybody's window
   (release: with it goes all that the stream did before) and waits until all words of its own window say n or more (acquire). Words only
   grow, and a rank is never more than one barrier ahead, so nothing is cleared and nothing is lost.

   A barrier whose fault says already that one was waited for in vain is over at once, and so is one that is told so while it waits: the
   fault may be pinned host memory, where whoever gives up says it. So a step with many barriers, one of which fails, ends. A rank that has
   abandoned one never comes to another: what it wrote before stays as others found it, for it tells by abandoned what runs behind.

   One block, a thread for each peer. It spins, so it must run beside the others' barriers: on a device of its own, or in a stream of its
   own where ranks share one. The emulator runs a kernel to its end before the next, so there the barrier is an operation of its streams. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

#ifdef GB_CUEMU

/* Asked by the stream, not by a kernel. */
CUEMU_CALL bool is_over(const gb_k_fault *fault) { return fault && __atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE) == GB_K_FAULT_BARRIER; }

CUEMU_CALL bool abandon(const gb_k_barrier_args &a)
{
    if (a.abandoned) *a.abandoned = 1;
    return true;
}

static void start_barrier(const gb_k_barrier_args &a, cudaStream_t stream)
{
    auto gave_up = [a](unsigned missing, uint32_t epoch) {
        gb_report(a.fault, GB_K_FAULT_BARRIER, missing, (int32_t)epoch);
        abandon(a);
    };
    auto over = [a] { return is_over(a.fault) && abandon(a); };
    cuemu::enqueue_rank_barrier({a.flags, a.epoch, a.rank, a.ranks, a.limit_ns, gave_up, over}, stream);
}

#else

#include "cuda/kernels/sync.cuh"

constexpr uint32_t kTurns = 256;    /* between looks at the fault, which may be far away */

__device__ __forceinline__ bool is_over(const gb_k_fault *fault) { return fault && gb_acquire(&fault->kind) == GB_K_FAULT_BARRIER; }

/* Whichever threads: it is the same word. */
__device__ __forceinline__ void abandon(const gb_k_barrier_args &a)
{
    if (a.abandoned) *a.abandoned = 1;
}

__global__ void __launch_bounds__(GB_K_PEERS_MAX) barrier_kernel(gb_k_barrier_args a)
{
    const uint32_t peer = threadIdx.x, epoch = *a.epoch + 1;
    const bool over = is_over(a.fault);
    __syncthreads();    /* everybody has read it */
    if (peer == 0) *a.epoch = epoch;
    if (peer >= a.ranks) return;
    if (over) return abandon(a);
    gb_release(&a.flags[peer][a.rank], epoch);
    const uint64_t start = gb_nanoseconds();
    for (uint32_t turn = 1; (int32_t)(gb_acquire(&a.flags[a.rank][peer]) - epoch) < 0; turn++) {
        if (turn % kTurns == 0 && is_over(a.fault)) return abandon(a);
        if (a.limit_ns && gb_nanoseconds() - start >= a.limit_ns) {
            gb_report(a.fault, GB_K_FAULT_BARRIER, peer, (int32_t)epoch);
            return abandon(a);
        }
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
