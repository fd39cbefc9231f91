/* The barrier between ranks: speaks through the same words of memory as the kernel of cuda/kernels/barrier.cu, so that ranks of this
   process and of others meet in the same way. Who wrote a word tells beside it what it knew then; ranks of other processes cannot. */
#include "cuda/cuemu/cuemu.h"
#include "cuda/cuemu/internal.h"

#include <map>

namespace cuemu {

/* What the writer of a word knew, by the parity of the epoch: it is at most one barrier ahead of its readers. */
struct Known {
    uint32_t epoch[2];
    Clock clock[2];
};

static std::map<const uint32_t *, Known> known_at;

struct Waiting {
    RankBarrier barrier;
    Stream *stream;
    uint32_t epoch;
    std::vector<uint32_t *> windows;
    const uint32_t *own() const { return windows[barrier.rank]; }
    bool has_come(unsigned rank) const { return int32_t(__atomic_load_n(own() + rank, __ATOMIC_ACQUIRE) - epoch) >= 0; }
};

static void tell(const Waiting &w, unsigned rank)
{
    uint32_t *word = w.windows[rank] + w.barrier.rank;
    if (tracking) {
        Known &known = known_at[word];
        known.epoch[w.epoch % 2] = w.epoch;
        known.clock[w.epoch % 2] = clock_of(w.stream);
    }
    __atomic_store_n(word, w.epoch, __ATOMIC_RELEASE);
}

static void learn_from(const Waiting &w, unsigned rank)
{
    auto found = known_at.find(w.own() + rank);
    if (found != known_at.end() && found->second.epoch[w.epoch % 2] == w.epoch)
        learn(w.stream, found->second.clock[w.epoch % 2]);
}

/* All came, or the time is over. */
static bool is_over(const Waiting &w, int64_t due_ns)
{
    if (w.barrier.is_over())
        return true;
    for (unsigned rank = 0; rank < w.barrier.ranks; rank++)
        if (!w.has_come(rank)) {
            if (now_ns() < due_ns)
                return false;
            w.barrier.gave_up(rank, w.epoch);
            return true;
        }
    for (unsigned rank = 0; rank < w.barrier.ranks; rank++)
        learn_from(w, rank);
    return true;
}

static bool can_touch(const Waiting &w, int device, const void *where)
{
    unsigned rank = w.barrier.rank;
    for (unsigned i = 0; i < w.barrier.ranks; i++)
        if (!touch_atomic(w.windows[i] + rank, sizeof(uint32_t), device, where) ||
            !touch_atomic(w.own() + i, sizeof(uint32_t), device, where))
            return false;
    return true;
}

/* A barrier whose memory is wrong was reported, and waits for nobody. */
static Started start(const RankBarrier &barrier, Stream *stream, int device, const void *where)
{
    Started nothing = {[] { return true; }};
    if (!touch(barrier.flags, barrier.ranks * sizeof *barrier.flags, false, where) || !touch_atomic(barrier.epoch, sizeof(uint32_t), device, where))
        return nothing;
    Waiting w = {barrier, stream, *barrier.epoch + 1, {barrier.flags, barrier.flags + barrier.ranks}};
    if (!can_touch(w, device, where))
        return nothing;
    *barrier.epoch = w.epoch;
    if (barrier.is_over())
        return nothing;
    for (unsigned rank = 0; rank < barrier.ranks; rank++)
        tell(w, rank);
    int64_t due_ns = barrier.limit_ns && barrier.limit_ns < uint64_t(kNever - now_ns()) ? now_ns() + int64_t(barrier.limit_ns) : kNever;
    return {[w, due_ns] { return is_over(w, due_ns); }, due_ns};
}

cudaError_t enqueue_rank_barrier(const RankBarrier &barrier, cudaStream_t handle)
{
    Locked locked;
    const void *where = CUEMU_CALLER;
    cudaError_t refused;
    if (!may_launch("barrier_kernel", handle, where, &refused))
        return refused;
    Stream *stream = stream_of(handle);
    int device = device_of_stream(handle);
    push(stream, {Op::collective, "gb_k_barrier", where, nullptr, nullptr, 0,
                  [=] { return start(barrier, stream, device, where); }, {}, {}});
    return cudaSuccess;
}

}    // namespace cuemu
