/* NCCL on virtual ranks: the choreography of dispatch and combine, and mistakes that would hang a cluster. */
#include "core/base/status.h"
#include "cuda/cuemu/control.h"
#include "cuda/kernels/kernels.h"
#include "tests/check.h"
#include "tests/cuda/peers.h"
#include "tests/cuda/zoo.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum { RANKS = 4, FLOATS = 8 };

typedef struct ring {
    ncclComm_t comms[RANKS];
    cudaStream_t streams[RANKS];
    float *in[RANKS], *out[RANKS];    /* RANKS * FLOATS each */
} ring;

static float *device_floats(void)
{
    void *memory = NULL;
    cudaMalloc(&memory, RANKS * FLOATS * sizeof(float));
    cudaMemset(memory, 0, RANKS * FLOATS * sizeof(float));
    return memory;
}

/* in of rank r: 100 r + i */
static void open_ring(ring *r)
{
    cuemu_set_devices(RANKS);
    CHECK_EQ(ncclCommInitAll(r->comms, RANKS, NULL), ncclSuccess);
    for (int rank = 0; rank < RANKS; rank++) {
        float values[RANKS * FLOATS];
        cudaSetDevice(rank);
        cudaStreamCreateWithFlags(&r->streams[rank], cudaStreamNonBlocking);
        r->in[rank] = device_floats();
        r->out[rank] = device_floats();
        for (int i = 0; i < RANKS * FLOATS; i++)
            values[i] = (float)(100 * rank + i);
        cudaMemcpy(r->in[rank], values, sizeof values, cudaMemcpyHostToDevice);
    }
}

static void close_ring(ring *r)
{
    for (int rank = 0; rank < RANKS; rank++) {
        cudaSetDevice(rank);
        cudaStreamDestroy(r->streams[rank]);
        cudaFree(r->in[rank]);
        cudaFree(r->out[rank]);
        if (r->comms[rank]) ncclCommDestroy(r->comms[rank]);
    }
    cudaSetDevice(0);
    cuemu_set_devices(1);
    cuemu_set_streams(CUEMU_EAGER);
}

static float out_of(ring *r, int rank, int i)
{
    float values[RANKS * FLOATS];
    cudaSetDevice(rank);
    CHECK_EQ(cudaStreamSynchronize(r->streams[rank]), cudaSuccess);
    cudaMemcpy(values, r->out[rank], sizeof values, cudaMemcpyDeviceToHost);
    return values[i];
}

static void in_each_mode(void (*check)(ring *r))
{
    static const cuemu_streams modes[] = {CUEMU_EAGER, CUEMU_LAZY, CUEMU_OTHERS_FIRST};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        ring r;
        cuemu_set_streams(modes[i]);
        open_ring(&r);
        check(&r);
        close_ring(&r);
    }
}

#define EACH_RANK(call) \
    for (int rank = 0; rank < RANKS; rank++) { \
        cudaSetDevice(rank); \
        CHECK_EQ(call, ncclSuccess); \
    }

static void check_all_gather(ring *r)
{
    EACH_RANK(ncclAllGather(r->in[rank], r->out[rank], FLOATS, ncclFloat32, r->comms[rank], r->streams[rank]));
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_EQ(out_of(r, rank, 2 * FLOATS + 3), 203);
}

static void check_reduce_scatter(ring *r)
{
    EACH_RANK(ncclReduceScatter(r->in[rank], r->out[rank], FLOATS, ncclFloat32, ncclSum, r->comms[rank], r->streams[rank]));
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_EQ(out_of(r, rank, 1), 600 + 4 * (rank * FLOATS + 1));
}

static void check_all_reduce(ring *r)
{
    EACH_RANK(ncclAllReduce(r->in[rank], r->in[rank], FLOATS, ncclFloat32, ncclMax, r->comms[rank], r->streams[rank]));
    EACH_RANK(ncclAllReduce(r->in[rank], r->out[rank], FLOATS, ncclFloat32, ncclSum, r->comms[rank], r->streams[rank]));
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_EQ(out_of(r, rank, 5), 4 * 305);
}

static void check_all_to_all(ring *r)
{
    EACH_RANK(ncclAlltoAll(r->in[rank], r->out[rank], FLOATS, ncclFloat32, r->comms[rank], r->streams[rank]));
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_EQ(out_of(r, rank, 3 * FLOATS + 1), 300 + rank * FLOATS + 1);
}

/* Ragged: rank r sends r + 1 floats to each peer. */
static void check_grouped_sends(ring *r)
{
    for (int rank = 0; rank < RANKS; rank++) {
        cudaSetDevice(rank);
        ncclGroupStart();
        for (int peer = 0; peer < RANKS; peer++) {
            ncclSend(r->in[rank] + peer * FLOATS, (size_t)rank + 1, ncclFloat32, peer, r->comms[rank], r->streams[rank]);
            ncclRecv(r->out[rank] + peer * FLOATS, (size_t)peer + 1, ncclFloat32, peer, r->comms[rank], r->streams[rank]);
        }
        CHECK_EQ(ncclGroupEnd(), ncclSuccess);
    }
    CHECK_EQ(out_of(r, 1, 2 * FLOATS + 2), 200 + FLOATS + 2);
    CHECK_EQ(out_of(r, 1, 0 * FLOATS + 1), 0);
}

static void collectives_move_what_nccl_says(void)
{
    in_each_mode(check_all_gather);
    in_each_mode(check_reduce_scatter);
    in_each_mode(check_all_reduce);
    in_each_mode(check_all_to_all);
    in_each_mode(check_grouped_sends);
}

static void a_graph_with_a_collective_replays(void)
{
    ring r;
    cudaGraph_t graphs[RANKS];
    cudaGraphExec_t executables[RANKS];
    open_ring(&r);
    for (int rank = 0; rank < RANKS; rank++) {
        cudaSetDevice(rank);
        cudaStreamBeginCapture(r.streams[rank], cudaStreamCaptureModeThreadLocal);
        ncclAllReduce(r.in[rank], r.in[rank], FLOATS, ncclFloat32, ncclSum, r.comms[rank], r.streams[rank]);
        CHECK_EQ(cudaStreamEndCapture(r.streams[rank], &graphs[rank]), cudaSuccess);
        CHECK_EQ(cudaGraphInstantiate(&executables[rank], graphs[rank], 0), cudaSuccess);
    }
    for (int launch = 0; launch < 2; launch++)
        EACH_RANK((ncclResult_t)cudaGraphLaunch(executables[rank], r.streams[rank]));
    EACH_RANK((ncclResult_t)cudaMemcpyAsync(r.out[rank], r.in[rank], FLOATS * sizeof(float), cudaMemcpyDeviceToDevice, r.streams[rank]));
    CHECK_EQ(out_of(&r, 2, 0), 4 * 600);
    for (int rank = 0; rank < RANKS; rank++) {
        cudaGraphExecDestroy(executables[rank]);
        cudaGraphDestroy(graphs[rank]);
    }
    close_ring(&r);
}

/* Waits for rank 0 and expects that the report says why it would wait for ever. */
static void check_hang(ring *r, const char *word)
{
    cuemu_quiet(1);
    cudaSetDevice(0);
    CHECK_EQ(cudaStreamSynchronize(r->streams[0]), cudaErrorLaunchTimeout);
    CHECK_CONTAINS(cuemu_report_text(), word);
    CHECK_CONTAINS(cuemu_report_text(), "nccl_test.c:");
    for (int rank = 1; rank < RANKS; rank++) {
        cudaSetDevice(rank);
        cudaStreamSynchronize(r->streams[rank]);
    }
    cuemu_clear_reports();
    cuemu_quiet(0);
    close_ring(r);
}

static void crossing_sends_outside_a_group_are_a_deadlock(void)
{
    ring r;
    open_ring(&r);
    for (int rank = 0; rank < 2; rank++) {
        cudaSetDevice(rank);
        ncclSend(r.in[rank], FLOATS, ncclFloat32, 1 - rank, r.comms[rank], r.streams[rank]);
        ncclRecv(r.out[rank], FLOATS, ncclFloat32, 1 - rank, r.comms[rank], r.streams[rank]);
    }
    check_hang(&r, "DEADLOCK: ncclSend can never run");
}

static void a_rank_that_does_not_come_is_named_by_who_waits(void)
{
    ring r;
    open_ring(&r);
    for (int rank = 0; rank < RANKS - 1; rank++) {
        cudaSetDevice(rank);
        ncclAllGather(r.in[rank], r.out[rank], FLOATS, ncclFloat32, r.comms[rank], r.streams[rank]);
    }
    check_hang(&r, "DEADLOCK: ncclAllGather can never run");
}

static void ranks_that_disagree_are_reported(void)
{
    ring r;
    open_ring(&r);
    cuemu_quiet(1);
    for (int rank = 0; rank < RANKS; rank++) {
        cudaSetDevice(rank);
        ncclAllGather(r.in[rank], r.out[rank], rank == 2 ? FLOATS / 2 : FLOATS, ncclFloat32, r.comms[rank], r.streams[rank]);
    }
    check_hang(&r, "NCCL MISMATCH: rank 2 calls ncclAllGather of 4 elements");
}

static void sizes_that_differ_are_reported(void)
{
    ring r;
    open_ring(&r);
    cuemu_quiet(1);
    cudaSetDevice(0);
    ncclSend(r.in[0], FLOATS, ncclFloat32, 1, r.comms[0], r.streams[0]);
    cudaSetDevice(1);
    ncclRecv(r.out[1], FLOATS - 1, ncclFloat32, 0, r.comms[1], r.streams[1]);
    cudaStreamSynchronize(r.streams[1]);
    CHECK_CONTAINS(cuemu_report_text(), "NCCL MISMATCH: rank 0 sends 32 bytes");
    cuemu_clear_reports();
    cuemu_quiet(0);
    close_ring(&r);
}

static void an_abort_frees_the_stream_of_its_rank(void)
{
    ring r;
    open_ring(&r);
    cudaSetDevice(0);
    for (int i = 0; i < 2; i++)
        ncclAllGather(r.in[0], r.out[0], FLOATS, ncclFloat32, r.comms[0], r.streams[0]);
    cudaMemcpyAsync(r.out[0], r.in[0], FLOATS * sizeof(float), cudaMemcpyDeviceToDevice, r.streams[0]);
    CHECK_EQ(cudaStreamQuery(r.streams[0]), cudaErrorNotReady);
    CHECK_EQ(ncclCommAbort(r.comms[0]), ncclSuccess);
    CHECK_EQ(out_of(&r, 0, 3), 3);    /* what stands behind the collective runs */
    CHECK_EQ(cuemu_reports(), 0);
    cuemu_quiet(1);
    CHECK_EQ(ncclAllGather(r.in[0], r.out[0], FLOATS, ncclFloat32, r.comms[0], r.streams[0]), ncclInvalidArgument);
    CHECK_CONTAINS(cuemu_report_text(), "this communicator was destroyed or aborted");
    cuemu_clear_reports();
    cuemu_quiet(0);
    r.comms[0] = NULL;
    close_ring(&r);
}

/* Whoever asks is told, and has to give up itself. */
static void the_other_ranks_of_an_abort_wait_until_they_give_up(void)
{
    ring r;
    ncclResult_t error;
    open_ring(&r);
    for (int rank = 1; rank < RANKS; rank++) {
        cudaSetDevice(rank);
        for (int i = 0; i < 2; i++)
            CHECK_EQ(ncclAllGather(r.in[rank], r.out[rank], FLOATS, ncclFloat32, r.comms[rank], r.streams[rank]), ncclSuccess);
    }
    CHECK_EQ(ncclCommAbort(r.comms[0]), ncclSuccess);
    r.comms[0] = NULL;
    for (int rank = 1; rank < RANKS; rank++) {
        CHECK_EQ(ncclCommGetAsyncError(r.comms[rank], &error), ncclSuccess);
        CHECK_EQ(error, ncclRemoteError);
        CHECK_EQ(ncclAllGather(r.in[rank], r.out[rank], FLOATS, ncclFloat32, r.comms[rank], r.streams[rank]), ncclRemoteError);
        CHECK_EQ(cudaStreamQuery(r.streams[rank]), cudaErrorNotReady);
        CHECK_EQ(ncclCommAbort(r.comms[rank]), ncclSuccess);
        CHECK_EQ(cudaStreamSynchronize(r.streams[rank]), cudaSuccess);
        r.comms[rank] = NULL;
    }
    close_ring(&r);
}

/* --- communicators that do not block ------------------------------------------------------------------------------------------------ */

static ncclResult_t state_of(ncclComm_t comm)
{
    ncclResult_t state;
    CHECK_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    return state;
}

static ncclComm_t join_later(const ncclUniqueId *id, int ranks, int rank)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = 0;
    config.maxCTAs = 2;
    cudaSetDevice(rank);
    CHECK_EQ(ncclCommInitRankConfig(&comm, ranks, *id, rank, &config), ncclInProgress);
    return comm;
}

static void joining_is_in_progress_until_all_have_joined(void)
{
    ncclUniqueId id;
    cuemu_set_devices(RANKS);
    ncclGetUniqueId(&id);
    ncclComm_t first = join_later(&id, 2, 0);
    CHECK_EQ(state_of(first), ncclInProgress);
    ncclComm_t second = join_later(&id, 2, 1);
    CHECK_EQ(state_of(first), ncclSuccess);
    CHECK_EQ(state_of(second), ncclSuccess);
    ncclCommDestroy(first);
    ncclCommDestroy(second);
    ncclGetUniqueId(&id);
    ncclComm_t alone = join_later(&id, 2, 0);
    CHECK_EQ(state_of(alone), ncclInProgress);
    CHECK_EQ(ncclCommAbort(alone), ncclSuccess);    /* how a host ends a wait for a rank that never comes */
    CHECK_EQ(cuemu_reports(), 0);
    cuemu_set_devices(1);
}

static void a_call_is_taken_when_the_host_asks_and_no_sooner(void)
{
    ring r;
    ncclUniqueId id;
    open_ring(&r);
    ncclGetUniqueId(&id);
    ncclComm_t comms[2] = {join_later(&id, 2, 0), join_later(&id, 2, 1)};
    for (int rank = 0; rank < 2; rank++) {
        CHECK_EQ(state_of(comms[rank]), ncclSuccess);
        cudaSetDevice(rank);
        CHECK_EQ(ncclAllGather(r.in[rank], r.out[rank], FLOATS, ncclFloat32, comms[rank], r.streams[rank]), ncclInProgress);
        CHECK_EQ(cudaStreamQuery(r.streams[rank]), cudaSuccess);    /* the stream knows nothing of it */
    }
    cuemu_quiet(1);
    CHECK_EQ(ncclAllGather(r.in[1], r.out[1], FLOATS, ncclFloat32, comms[1], r.streams[1]), ncclInvalidArgument);
    CHECK_CONTAINS(cuemu_report_text(), "the call before is still ncclInProgress");
    cuemu_clear_reports();
    cuemu_quiet(0);
    CHECK_EQ(state_of(comms[0]), ncclSuccess);
    CHECK_EQ(cudaStreamQuery(r.streams[0]), cudaErrorNotReady);
    CHECK_EQ(state_of(comms[1]), ncclSuccess);
    CHECK_EQ(out_of(&r, 0, FLOATS + 2), 102);
    CHECK_EQ(out_of(&r, 1, FLOATS + 2), 102);
    ncclCommDestroy(comms[0]);
    ncclCommDestroy(comms[1]);
    close_ring(&r);
}

static void a_rank_that_nobody_joins_is_a_deadlock(void)
{
    ncclUniqueId id;
    ncclComm_t comm;
    cuemu_set_devices(2);
    ncclGetUniqueId(&id);
    cuemu_quiet(1);
    cuemu_set_patience_ms(50);    /* another process might join */
    CHECK_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclSystemError);
    CHECK_CONTAINS(cuemu_report_text(), "NCCL DEADLOCK: rank 0 of 2 waits in ncclCommInitRank");
    cuemu_set_patience_ms(60000);
    ncclCommDestroy(comm);
    CHECK_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclInvalidUsage);
    CHECK_CONTAINS(cuemu_report_text(), "another has this number already");
    CHECK_EQ(ncclCommInitRank(&comm, 3, id, 1), ncclInvalidUsage);
    CHECK_CONTAINS(cuemu_report_text(), "another number of ranks");
    cuemu_clear_reports();
    cuemu_quiet(0);
    cuemu_set_devices(1);
}

static void one_thread_joins_several_ranks_inside_a_group(void)
{
    ncclUniqueId id;
    ncclComm_t comms[RANKS];
    cuemu_set_devices(RANKS);
    ncclGetUniqueId(&id);
    ncclGroupStart();
    EACH_RANK(ncclCommInitRank(&comms[rank], RANKS, id, rank));
    CHECK_EQ(ncclGroupEnd(), ncclSuccess);
    EACH_RANK(ncclCommDestroy(comms[rank]));
    ncclGetUniqueId(&id);
    ncclGroupStart();
    for (int rank = 0; rank < 2; rank++) {
        cudaSetDevice(3);
        ncclCommInitRank(&comms[rank], 2, id, rank);
    }
    CHECK_EQ(ncclGroupEnd(), ncclInvalidUsage);    /* two ranks on one device */
    for (int rank = 0; rank < 2; rank++) ncclCommDestroy(comms[rank]);
    cudaSetDevice(0);
    cuemu_set_devices(1);
}

/* --- windows ------------------------------------------------------------------------------------------------------------------------ */

typedef struct shared_ring {
    ring ring;
    int *parts[RANKS];
    ncclWindow_t windows[RANKS];
} shared_ring;

static void register_parts(shared_ring *s, size_t bytes_of_last)
{
    ncclGroupStart();
    for (int rank = 0; rank < RANKS; rank++) {
        cudaSetDevice(rank);
        ncclCommWindowRegister(s->ring.comms[rank], s->parts[rank], rank == RANKS - 1 ? bytes_of_last : RANKS * ZOO_INTS * sizeof(int),
                               &s->windows[rank], NCCL_WIN_COLL_SYMMETRIC);
    }
}

static void open_shared(shared_ring *s)
{
    open_ring(&s->ring);
    for (int rank = 0; rank < RANKS; rank++) {
        cudaSetDevice(rank);
        CHECK_EQ(ncclMemAlloc((void **)&s->parts[rank], RANKS * ZOO_INTS * sizeof(int)), ncclSuccess);
    }
}

static void close_shared(shared_ring *s)
{
    for (int rank = 0; rank < RANKS; rank++) {
        if (s->windows[rank]) CHECK_EQ(ncclCommWindowDeregister(s->ring.comms[rank], s->windows[rank]), ncclSuccess);
        cudaSetDevice(rank);
        CHECK_EQ(ncclMemFree(s->parts[rank]), ncclSuccess);
    }
    close_ring(&s->ring);
}

/* Each rank writes its number into its place in everybody's part. */
static void kernels_write_into_the_windows_of_other_ranks(void)
{
    shared_ring s = {0};
    int seen[RANKS * ZOO_INTS];
    open_shared(&s);
    register_parts(&s, RANKS * ZOO_INTS * sizeof(int));
    CHECK_EQ(ncclGroupEnd(), ncclSuccess);
    for (int rank = 0; rank < RANKS; rank++) {
        char *peers[RANKS], **found = NULL;
        cudaSetDevice(rank);
        cudaMalloc((void **)&found, sizeof peers);
        peers_of_window(found, s.windows[rank], (size_t)rank * ZOO_INTS * sizeof(int), RANKS, s.ring.streams[rank]);
        cudaStreamSynchronize(s.ring.streams[rank]);
        cudaMemcpy(peers, found, sizeof peers, cudaMemcpyDeviceToHost);
        for (int peer = 0; peer < RANKS; peer++)
            zoo_fill((int *)(void *)peers[peer], 10 + rank, s.ring.streams[rank]);
        cudaStreamSynchronize(s.ring.streams[rank]);
        cudaFree(found);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        cudaSetDevice(rank);
        cudaMemcpy(seen, s.parts[rank], sizeof seen, cudaMemcpyDeviceToHost);
        for (int i = 0; i < RANKS * ZOO_INTS; i++) CHECK_EQ(seen[i], 10 + i / ZOO_INTS);
    }
    CHECK_EQ(cuemu_reports(), 0);
    close_shared(&s);
}

static void memory_that_is_no_window_is_not_for_peers(void)
{
    shared_ring s = {0};
    open_shared(&s);
    register_parts(&s, RANKS * ZOO_INTS * sizeof(int));
    CHECK_EQ(ncclGroupEnd(), ncclSuccess);
    CHECK_EQ(ncclCommWindowDeregister(s.ring.comms[0], s.windows[0]), ncclSuccess);
    s.windows[0] = NULL;
    cuemu_quiet(1);
    cudaSetDevice(0);
    zoo_fill(s.parts[1], 1, s.ring.streams[0]);
    cudaStreamSynchronize(s.ring.streams[0]);
    if (cuemu_tracks()) CHECK_CONTAINS(cuemu_report_text(), "NO PEER ACCESS: a kernel on device 0 touches memory of device 1");
    CHECK_EQ(ncclCommWindowRegister(s.ring.comms[0], s.ring.in[0], 16, &s.windows[0], NCCL_WIN_COLL_SYMMETRIC), ncclInvalidArgument);
    CHECK_CONTAINS(cuemu_report_text(), "a window is memory of ncclMemAlloc");
    CHECK_EQ(ncclMemFree(s.parts[1]), ncclInvalidUsage);
    CHECK_CONTAINS(cuemu_report_text(), "BAD FREE: the memory is still a window of its rank");
    cuemu_clear_reports();
    cuemu_quiet(0);
    close_shared(&s);
}

static void the_memory_of_a_window_stays_until_no_rank_reaches_it(void)
{
    shared_ring s = {0};
    open_shared(&s);
    register_parts(&s, RANKS * ZOO_INTS * sizeof(int));
    CHECK_EQ(ncclGroupEnd(), ncclSuccess);
    CHECK_EQ(ncclCommWindowDeregister(s.ring.comms[0], s.windows[0]), ncclSuccess);
    s.windows[0] = NULL;
    cudaSetDevice(0);
    CHECK_EQ(ncclMemFree(s.parts[0]), ncclSuccess);
    cudaSetDevice(1);
    zoo_fill(s.parts[0], 1, s.ring.streams[1]);
    cudaStreamSynchronize(s.ring.streams[1]);
    CHECK_EQ(cuemu_reports(), 0);
    cuemu_quiet(1);
    CHECK(ncclMemFree(s.parts[0]) != ncclSuccess);
    CHECK_CONTAINS(cuemu_report_text(), "BAD FREE");
    cuemu_clear_reports();
    cuemu_quiet(0);
    s.parts[0] = NULL;
    close_shared(&s);
}

static void windows_that_differ_or_miss_a_rank_are_reported(void)
{
    shared_ring s = {0};
    open_shared(&s);
    cuemu_quiet(1);
    register_parts(&s, 16);
    CHECK_EQ(ncclGroupEnd(), ncclInvalidArgument);
    CHECK_CONTAINS(cuemu_report_text(), "NCCL MISMATCH: window 0 has 1024 bytes on rank 0 and 16 on rank 3");
    close_shared(&s);
    open_shared(&s);
    CHECK_EQ(ncclCommWindowRegister(s.ring.comms[3], s.parts[3], 16, &s.windows[3], NCCL_WIN_COLL_SYMMETRIC), ncclSystemError);
    CHECK_CONTAINS(cuemu_report_text(), "NCCL DEADLOCK: rank 3 of 4 waits in ncclCommWindowRegister");
    cuemu_clear_reports();
    cuemu_quiet(0);
    close_shared(&s);
}

/* --- who can end a wait --------------------------------------------------------------------------------------------------------------- */

static void *wait_for_stream(void *argument)
{
    ring *r = argument;
    cudaSetDevice(0);
    return cudaStreamSynchronize(r->streams[0]) == cudaSuccess ? r : NULL;
}

/* One thread waits for a collective that will never happen, another asks now and then, for longer than the patience, and gives up. */
static void a_host_that_polls_with_a_deadline_is_no_deadlock(void)
{
    ring r;
    pthread_t waiter;
    void *ended;
    cuemu_set_patience_ms(1000);
    open_ring(&r);
    cudaSetDevice(0);
    ncclAllGather(r.in[0], r.out[0], FLOATS, ncclFloat32, r.comms[0], r.streams[0]);
    pthread_create(&waiter, NULL, wait_for_stream, &r);
    for (int i = 0; i < 60; i++) {
        const struct timespec nap = {.tv_nsec = 20000000};
        CHECK_EQ(cudaStreamQuery(r.streams[0]), cudaErrorNotReady);
        nanosleep(&nap, NULL);
    }
    ncclCommAbort(r.comms[0]);
    pthread_join(waiter, &ended);
    CHECK(ended == &r);
    CHECK_EQ(cuemu_reports(), 0);
    r.comms[0] = NULL;
    close_ring(&r);
}

static void an_error_that_comes_later_reaches_every_rank(void)
{
    ring r;
    ncclResult_t error;
    open_ring(&r);
    cuemu_fail_call("ncclCommGetAsyncError", 0, ncclSystemError);
    ncclCommGetAsyncError(r.comms[3], &error);
    CHECK_EQ(error, ncclSystemError);
    ncclCommGetAsyncError(r.comms[0], &error);
    CHECK_EQ(error, ncclSystemError);
    close_ring(&r);
}

/* --- the barrier of kernels ------------------------------------------------------------------------------------------------------- */

/* One word for each rank on each device, and their table on device 0. */
typedef struct meeting {
    uint32_t *flags[2], *epoch, **table;
} meeting;

static meeting open_meeting(void)
{
    meeting m;
    for (int rank = 2; rank-- > 0;) {
        cudaSetDevice(rank);
        cudaMalloc((void **)&m.flags[rank], 2 * sizeof(uint32_t));
        cudaMemset(m.flags[rank], 0, 2 * sizeof(uint32_t));
    }
    cudaMalloc((void **)&m.epoch, sizeof(uint32_t));
    cudaMemset(m.epoch, 0, sizeof(uint32_t));
    cudaMalloc((void **)&m.table, sizeof m.flags);
    cudaMemcpy(m.table, m.flags, sizeof m.flags, cudaMemcpyHostToDevice);
    return m;
}

/* Rank 0 comes to the barrier alone, without a limit; what is said about it. */
static void come_alone(cudaError_t expected, const char *word)
{
    cuemu_set_devices(2);
    meeting m = open_meeting();
    cudaStream_t stream;
    gb_k_barrier_args a = {m.table, m.epoch, NULL, 0, 0, 2, NULL};
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cuemu_quiet(1);
    cudaGetLastError();    /* of an earlier deadlock */
    CHECK_EQ(gb_k_barrier(&a, stream), GB_OK);
    CHECK_EQ(cudaStreamSynchronize(stream), expected);
    CHECK_CONTAINS(cuemu_report_text(), word);
    CHECK_CONTAINS(cuemu_report_text(), "barrier.cu:");
    cuemu_clear_reports();
    cuemu_quiet(0);
    cudaStreamDestroy(stream);
    cudaFree(m.table);
    cudaFree(m.epoch);
    for (int rank = 0; rank < 2; rank++)
        cudaFree(m.flags[rank]);
    cuemu_set_devices(1);
}

static void a_barrier_that_nobody_else_can_reach_is_a_deadlock(void)
{
    cuemu_set_devices(2);
    cudaSetDevice(0);
    cudaDeviceEnablePeerAccess(1, 0);
    come_alone(cudaErrorLaunchTimeout, "DEADLOCK: gb_k_barrier can never run");
    cudaDeviceDisablePeerAccess(1);
}

static void a_barrier_across_devices_needs_peer_access(void) { come_alone(cudaSuccess, "NO PEER ACCESS: device 0 touches memory of device 1"); }

/* --- a thread for each rank --------------------------------------------------------------------------------------------------- */

typedef struct member {
    pthread_t thread;
    int rank;
    ncclUniqueId id;
    float sum;
} member;

static void *run_member(void *argument)
{
    member *m = argument;
    ncclComm_t comm;
    cudaStream_t stream;
    float value = (float)(m->rank + 1), *device = NULL;
    cudaSetDevice(m->rank);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc((void **)&device, sizeof value);
    cudaMemcpy(device, &value, sizeof value, cudaMemcpyHostToDevice);
    ncclCommInitRank(&comm, RANKS, m->id, m->rank);
    for (int i = 0; i < 50; i++)
        ncclAllReduce(device, device, 1, ncclFloat32, i ? ncclMax : ncclSum, comm, stream);
    cudaStreamSynchronize(stream);
    cudaMemcpy(&m->sum, device, sizeof m->sum, cudaMemcpyDeviceToHost);
    cudaFree(device);
    cudaStreamDestroy(stream);
    ncclCommDestroy(comm);
    return NULL;
}

static void a_thread_for_each_rank_works_in_every_mode(void)
{
    static const cuemu_streams modes[] = {CUEMU_EAGER, CUEMU_LAZY, CUEMU_OTHERS_FIRST};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        member members[RANKS] = {{0}};
        ncclUniqueId id;
        cuemu_set_devices(RANKS);
        cuemu_set_streams(modes[i]);
        cuemu_set_patience_ms(60000);    /* a thread that the machine holds up is no deadlock */
        ncclGetUniqueId(&id);
        for (int rank = 0; rank < RANKS; rank++) {
            members[rank].rank = rank;
            members[rank].id = id;
            pthread_create(&members[rank].thread, NULL, run_member, &members[rank]);
        }
        for (int rank = 0; rank < RANKS; rank++) {
            pthread_join(members[rank].thread, NULL);
            CHECK_EQ(members[rank].sum, 10);
        }
    }
    cuemu_set_devices(1);
    cuemu_set_streams(CUEMU_EAGER);
}

TESTS(TEST(collectives_move_what_nccl_says), TEST(a_graph_with_a_collective_replays), TEST(crossing_sends_outside_a_group_are_a_deadlock),
      TEST(a_rank_that_does_not_come_is_named_by_who_waits), TEST(ranks_that_disagree_are_reported), TEST(sizes_that_differ_are_reported),
      TEST(a_barrier_that_nobody_else_can_reach_is_a_deadlock), TEST(a_barrier_across_devices_needs_peer_access),
      TEST(an_abort_frees_the_stream_of_its_rank),
      TEST(the_other_ranks_of_an_abort_wait_until_they_give_up),
      TEST(joining_is_in_progress_until_all_have_joined), TEST(a_call_is_taken_when_the_host_asks_and_no_sooner),
      TEST(a_rank_that_nobody_joins_is_a_deadlock), TEST(one_thread_joins_several_ranks_inside_a_group),
      TEST(kernels_write_into_the_windows_of_other_ranks), TEST(memory_that_is_no_window_is_not_for_peers),
      TEST(the_memory_of_a_window_stays_until_no_rank_reaches_it),
      TEST(windows_that_differ_or_miss_a_rank_are_reported), TEST(a_host_that_polls_with_a_deadline_is_no_deadlock),
      TEST(an_error_that_comes_later_reaches_every_rank), TEST(a_thread_for_each_rank_works_in_every_mode))
