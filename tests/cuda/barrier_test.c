/* The barrier between ranks; here they are streams of one device. */
#include "tests/cuda/device.h"

#include <string.h>

enum { RANKS = 3, BYTES = 64 };

/* Each rank has a window that the others write: words of the barrier, and BYTES from each. */
typedef struct party {
    cudaStream_t streams[RANKS];
    uint32_t *flags[RANKS];
    uint32_t *const *all_flags;
    uint32_t *epochs[RANKS], *abandoned[RANKS];
    uint8_t *windows[RANKS], *seen[RANKS];    /* [RANKS][BYTES] */
    gb_k_fault *fault;
} party;

static void open_party(party *p)
{
    uint32_t zeros[RANKS] = {0};
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK_EQ(cudaStreamCreateWithFlags(&p->streams[rank], cudaStreamNonBlocking), cudaSuccess);
        p->flags[rank] = DEVICE_COPY(zeros);
        p->epochs[rank] = device_copy(zeros, 1, sizeof *zeros);
        p->abandoned[rank] = device_copy(zeros, 1, sizeof *zeros);
        p->windows[rank] = device_new(RANKS, BYTES);
        p->seen[rank] = device_new(RANKS, BYTES);
    }
    p->all_flags = DEVICE_COPY(p->flags);
    p->fault = fault_new();
}

static void close_party(party *p)
{
    for (int rank = 0; rank < RANKS; rank++) cudaStreamDestroy(p->streams[rank]);
    device_free_all();
}

static gb_k_barrier_args barrier_of(const party *p, uint32_t rank)
{
    return (gb_k_barrier_args){p->all_flags, p->epochs[rank], p->fault, 0, rank, RANKS, p->abandoned[rank]};
}

static void meet(const party *p, int rank)
{
    gb_k_barrier_args a = barrier_of(p, (uint32_t)rank);
    CHECK_EQ(gb_k_barrier(&a, p->streams[rank]), GB_OK);
}

/* What rank does in a round: writes value + rank to everybody, meets them, takes what came. A second barrier keeps the next round's
   writes out until everybody has taken. */
static void round_of(const party *p, int rank, int value)
{
    for (int peer = 0; peer < RANKS; peer++)
        cudaMemsetAsync(p->windows[peer] + rank * BYTES, value + rank, BYTES, p->streams[rank]);
    meet(p, rank);
    cudaMemcpyAsync(p->seen[rank], p->windows[rank], RANKS * BYTES, cudaMemcpyDeviceToDevice, p->streams[rank]);
    meet(p, rank);
}

static void check_seen(const party *p, int value)
{
    for (int rank = 0; rank < RANKS; rank++) {
        uint8_t seen[RANKS * BYTES];
        CHECK_EQ(cudaStreamSynchronize(p->streams[rank]), cudaSuccess);
        device_read(seen, p->seen[rank], RANKS, BYTES);
        for (int i = 0; i < RANKS * BYTES; i++) CHECK_EQ(seen[i], value + i / BYTES);
    }
    CHECK_EQ(fault_read(p->fault).kind, GB_K_FAULT_NONE);
}

static void what_any_rank_wrote_before_is_seen_by_all_after(void)
{
    party p;
    open_party(&p);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < RANKS; i++) round_of(&p, (i + round) % RANKS, 10 * round);
        check_seen(&p, 10 * round);
    }
    close_party(&p);
}

static void rounds_may_be_queued_ahead(void)
{
    party p;
    open_party(&p);
    for (int rank = RANKS; rank-- > 0;)
        for (int round = 0; round < 4; round++) round_of(&p, rank, 10 * round);
    check_seen(&p, 30);
    close_party(&p);
}

static void graphs_replay_it(void)
{
    party p;
    cudaGraph_t graphs[RANKS];
    cudaGraphExec_t executables[RANKS];
    open_party(&p);
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK_EQ(cudaStreamBeginCapture(p.streams[rank], cudaStreamCaptureModeThreadLocal), cudaSuccess);
        round_of(&p, rank, 7);
        CHECK_EQ(cudaStreamEndCapture(p.streams[rank], &graphs[rank]), cudaSuccess);
        CHECK_EQ(cudaGraphInstantiate(&executables[rank], graphs[rank], 0), cudaSuccess);
    }
    for (int launch = 0; launch < 3; launch++) {
        for (int rank = 0; rank < RANKS; rank++) CHECK_EQ(cudaGraphLaunch(executables[rank], p.streams[rank]), cudaSuccess);
        check_seen(&p, 7);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        uint32_t epoch;
        device_read(&epoch, p.epochs[rank], 1, sizeof epoch);
        CHECK_EQ(epoch, 6);
        cudaGraphExecDestroy(executables[rank]);
        cudaGraphDestroy(graphs[rank]);
    }
    close_party(&p);
}

static uint32_t abandoned_by(const party *p, int rank)
{
    uint32_t word;
    device_read(&word, p->abandoned[rank], 1, sizeof word);
    return word;
}

static void a_rank_that_does_not_come_in_time_is_a_fault(void)
{
    party p;
    open_party(&p);
    for (int rank = 0; rank < RANKS - 1; rank++) {
        gb_k_barrier_args a = barrier_of(&p, (uint32_t)rank);
        a.limit_ns = 2000000;
        CHECK_EQ(gb_k_barrier(&a, p.streams[rank]), GB_OK);
    }
    for (int rank = 0; rank < RANKS - 1; rank++) CHECK_EQ(cudaStreamSynchronize(p.streams[rank]), cudaSuccess);
    gb_k_fault fault = fault_read(p.fault);
    CHECK_EQ(fault.kind, GB_K_FAULT_BARRIER);
    CHECK_EQ(fault.row, RANKS - 1);
    CHECK_EQ(fault.value, 1);
    for (int rank = 0; rank < RANKS; rank++) CHECK_EQ(abandoned_by(&p, rank), rank < RANKS - 1);
    meet(&p, RANKS - 1);    /* it comes late, and finds that the others were here */
    CHECK_EQ(cudaStreamSynchronize(p.streams[RANKS - 1]), cudaSuccess);
    close_party(&p);
}

static void a_barrier_whose_fault_says_so_is_abandoned_at_once_and_tells_nobody(void)
{
    const gb_k_fault over = {.kind = GB_K_FAULT_BARRIER};
    uint32_t flags[RANKS];
    party p;
    open_party(&p);
    cudaMemcpy(p.fault, &over, sizeof over, cudaMemcpyHostToDevice);
    meet(&p, 0);
    CHECK_EQ(cudaStreamSynchronize(p.streams[0]), cudaSuccess);
    CHECK_EQ(abandoned_by(&p, 0), 1);
    device_read(flags, p.flags[1], RANKS, sizeof *flags);
    CHECK_EQ(flags[0], 0);
    close_party(&p);
}

/* Words count on beyond their range. */
static void epochs_wrap_around(void)
{
    party p;
    uint32_t last[RANKS];
    open_party(&p);
    memset(last, 0xff, sizeof last);
    for (int rank = 0; rank < RANKS; rank++) {
        cudaMemcpy(p.flags[rank], last, sizeof last, cudaMemcpyHostToDevice);
        cudaMemcpy(p.epochs[rank], last, sizeof *last, cudaMemcpyHostToDevice);
    }
    for (int rank = 0; rank < RANKS; rank++) round_of(&p, rank, 3);
    check_seen(&p, 3);
    close_party(&p);
}

static void ranks_that_cannot_be_are_refused(void)
{
    party p;
    open_party(&p);
    gb_k_barrier_args a = barrier_of(&p, 0);
    a.rank = RANKS;
    CHECK_EQ(gb_k_barrier(&a, p.streams[0]), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "rank 3 of 3");
    a.ranks = GB_K_PEERS_MAX + 1;
    CHECK_EQ(gb_k_barrier(&a, p.streams[0]), GB_EINVAL);
    a.ranks = a.rank = 0;
    CHECK_EQ(gb_k_barrier(&a, p.streams[0]), GB_EINVAL);
    close_party(&p);
}

TESTS(TEST(what_any_rank_wrote_before_is_seen_by_all_after), TEST(rounds_may_be_queued_ahead), TEST(graphs_replay_it),
      TEST(a_rank_that_does_not_come_in_time_is_a_fault),
      TEST(a_barrier_whose_fault_says_so_is_abandoned_at_once_and_tells_nobody), TEST(epochs_wrap_around), TEST(ranks_that_cannot_be_are_refused))
