/* A process for each rank: this program starts itself as four of them, which meet through NCCL as processes with a GPU each do. */
#include "core/base/status.h"
#include "cuda/cuemu/control.h"
#include "cuda/kernels/kernels.h"
#include "tests/check.h"
#include "tests/cuda/peers.h"
#include "tests/cuda/zoo.h"

#include <nccl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, FLOATS = 1000, INTS = RANKS * ZOO_INTS, POLLS = 100, LEFT_ALONE = 3 };

/* --- a rank -------------------------------------------------------------------------------------------------------------------------- */

typedef struct member {
    int rank;
    ncclUniqueId id;
    ncclComm_t comm;
    cudaStream_t stream;
    float *in, *out;    /* RANKS * FLOATS; in: 1000 rank + i */
} member;

static void nap(void)
{
    const struct timespec time = {.tv_nsec = 2000000};
    nanosleep(&time, NULL);
}

static void open_member(member *m)
{
    float values[RANKS * FLOATS];
    cuemu_set_devices(RANKS);
    CHECK_EQ(cudaSetDevice(m->rank), cudaSuccess);
    cudaStreamCreateWithFlags(&m->stream, cudaStreamNonBlocking);
    cudaMalloc((void **)&m->in, sizeof values);
    cudaMalloc((void **)&m->out, sizeof values);
    for (int i = 0; i < RANKS * FLOATS; i++) values[i] = (float)(1000 * m->rank + i);
    cudaMemcpy(m->in, values, sizeof values, cudaMemcpyHostToDevice);
    CHECK_EQ(ncclCommInitRank(&m->comm, RANKS, m->id, m->rank), ncclSuccess);
}

static void close_member(member *m)
{
    CHECK_EQ(ncclCommDestroy(m->comm), ncclSuccess);
    cudaStreamDestroy(m->stream);
    cudaFree(m->in);
    cudaFree(m->out);
}

static float out_of(member *m, int i)
{
    float values[RANKS * FLOATS];
    CHECK_EQ(cudaStreamSynchronize(m->stream), cudaSuccess);
    cudaMemcpy(values, m->out, sizeof values, cudaMemcpyDeviceToHost);
    return values[i];
}

static void run_collectives(member *m)
{
    int me = m->rank;
    for (int round = 0; round < 3; round++) {
        CHECK_EQ(ncclAllGather(m->in, m->out, FLOATS, ncclFloat32, m->comm, m->stream), ncclSuccess);
        CHECK_EQ(out_of(m, 2 * FLOATS + 3), 2003);
        ncclReduceScatter(m->in, m->out, FLOATS, ncclFloat32, ncclSum, m->comm, m->stream);
        CHECK_EQ(out_of(m, 1), 6000 + 4 * (me * FLOATS + 1));
        ncclAlltoAll(m->in, m->out, FLOATS, ncclFloat32, m->comm, m->stream);
        CHECK_EQ(out_of(m, 3 * FLOATS + 1), 3000 + me * FLOATS + 1);
        ncclBroadcast(m->in, m->out, FLOATS, ncclFloat32, 1, m->comm, m->stream);
        CHECK_EQ(out_of(m, 5), 1005);
        ncclAllReduce(m->in, m->out, FLOATS, ncclFloat32, ncclMax, m->comm, m->stream);
        CHECK_EQ(out_of(m, 7), 3007);
    }
}

/* Ragged, twice over; rank r sends r + 1 floats to each peer, itself too. */
static void run_sends(member *m)
{
    for (int round = 0; round < 2; round++) {
        ncclGroupStart();
        for (int peer = 0; peer < RANKS; peer++) {
            ncclSend(m->in + peer * FLOATS, (size_t)m->rank + 1, ncclFloat32, peer, m->comm, m->stream);
            ncclRecv(m->out + peer * FLOATS, (size_t)peer + 1, ncclFloat32, peer, m->comm, m->stream);
        }
        CHECK_EQ(ncclGroupEnd(), ncclSuccess);
        for (int peer = 0; peer < RANKS; peer++) CHECK_EQ(out_of(m, peer * FLOATS + peer), 1000 * peer + m->rank * FLOATS + peer);
    }
}

static void run_graphs(member *m)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeThreadLocal);
    ncclAllReduce(m->in, m->out, FLOATS, ncclFloat32, ncclSum, m->comm, m->stream);
    CHECK_EQ(cudaStreamEndCapture(m->stream, &graph), cudaSuccess);
    CHECK_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    for (int launch = 0; launch < 3; launch++) cudaGraphLaunch(executable, m->stream);
    CHECK_EQ(out_of(m, 2), 6008);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
}

/* A window of INTS, words of the barrier behind them. */
static void meet(const member *m, char **flags, uint32_t *epoch, gb_k_fault *fault)
{
    gb_k_barrier_args a = {(uint32_t *const *)(void *)flags, epoch, fault, 0, (uint32_t)m->rank, RANKS, NULL};
    CHECK_EQ(gb_k_barrier(&a, m->stream), GB_OK);
}

static void check_window(member *m, const char *part)
{
    int seen[INTS];
    cudaMemcpyAsync(m->out, part, sizeof seen, cudaMemcpyDeviceToDevice, m->stream);
    cudaStreamSynchronize(m->stream);
    cudaMemcpy(seen, m->out, sizeof seen, cudaMemcpyDeviceToHost);
    for (int i = 0; i < INTS; i++) CHECK_EQ(seen[i], 10 + i / ZOO_INTS);
}

/* Each rank writes its number into its place in everybody's part, and after the barrier sees those of all. */
static void run_windows(member *m)
{
    enum { BYTES = (INTS + RANKS) * sizeof(int) };
    char *part = NULL, *peers[RANKS], **flags = NULL, **places = NULL;
    uint32_t *epoch = NULL;
    ncclWindow_t window;
    CHECK_EQ(ncclMemAlloc((void **)&part, BYTES), ncclSuccess);
    cudaMemset(part, 0, BYTES);
    cudaMalloc((void **)&epoch, sizeof *epoch);
    cudaMemset(epoch, 0, sizeof *epoch);
    cudaMalloc((void **)&flags, sizeof peers);
    cudaMalloc((void **)&places, sizeof peers);
    CHECK_EQ(ncclCommWindowRegister(m->comm, part, BYTES, &window, NCCL_WIN_COLL_SYMMETRIC), ncclSuccess);
    peers_of_window(flags, window, INTS * sizeof(int), RANKS, m->stream);
    peers_of_window(places, window, (size_t)m->rank * ZOO_INTS * sizeof(int), RANKS, m->stream);
    CHECK_EQ(cudaStreamSynchronize(m->stream), cudaSuccess);
    cudaMemcpy(peers, places, sizeof peers, cudaMemcpyDeviceToHost);
    for (int peer = 0; peer < RANKS; peer++) zoo_fill((int *)(void *)peers[peer], 10 + m->rank, m->stream);
    meet(m, flags, epoch, NULL);
    check_window(m, part);
    meet(m, flags, epoch, NULL);    /* nobody leaves while others still read */
    CHECK_EQ(cudaStreamSynchronize(m->stream), cudaSuccess);
    CHECK_EQ(ncclCommWindowDeregister(m->comm, window), ncclSuccess);
    CHECK_EQ(ncclMemFree(part), ncclSuccess);
    cudaFree(epoch);
    cudaFree(flags);
    cudaFree(places);
}

/* Rank LEFT_ALONE dies before the collective. The others see nothing of it, until they give up. */
static void run_with_a_dead_rank(member *m)
{
    ncclResult_t error;
    if (m->rank == LEFT_ALONE) kill(getpid(), SIGKILL);
    ncclAllGather(m->in, m->out, FLOATS, ncclFloat32, m->comm, m->stream);
    for (int i = 0; i < POLLS; i++) {
        CHECK_EQ(cudaStreamQuery(m->stream), cudaErrorNotReady);
        CHECK_EQ(ncclCommGetAsyncError(m->comm, &error), ncclSuccess);
        CHECK_EQ(error, ncclSuccess);
        nap();
    }
    CHECK_EQ(ncclCommAbort(m->comm), ncclSuccess);
    CHECK_EQ(cudaStreamSynchronize(m->stream), cudaSuccess);
    _exit(check_failures != 0);
}

/* Rank LEFT_ALONE never joins. */
static void run_without_a_rank(member *m)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t state = ncclInProgress;
    config.blocking = 0;
    cuemu_set_devices(RANKS);
    cudaSetDevice(m->rank);
    if (m->rank == LEFT_ALONE) return;
    CHECK_EQ(ncclCommInitRankConfig(&m->comm, RANKS, m->id, m->rank, &config), ncclInProgress);
    for (int i = 0; i < POLLS; i++) {
        CHECK_EQ(ncclCommGetAsyncError(m->comm, &state), ncclSuccess);
        CHECK_EQ(state, ncclInProgress);
        nap();
    }
    CHECK_EQ(ncclCommAbort(m->comm), ncclSuccess);
}

static void run_disagreement(member *m)
{
    cuemu_quiet(1);
    ncclAllGather(m->in, m->out, m->rank == 2 ? 1 : 2, ncclFloat32, m->comm, m->stream);
    while (cuemu_reports() == 0) {
        CHECK_EQ(cudaStreamQuery(m->stream), cudaErrorNotReady);
        nap();
    }
    CHECK_CONTAINS(cuemu_report_text(), m->rank == 2 ? "rank 2 calls ncclAllGather of 1 elements" : "rank 2 ncclAllGather of 1");
    CHECK_EQ(ncclAllGather(m->in, m->out, 1, ncclFloat32, m->comm, m->stream), ncclSuccess);
    ncclCommAbort(m->comm);
    CHECK_EQ(cudaStreamSynchronize(m->stream), cudaSuccess);
    cuemu_clear_reports();
    _exit(check_failures != 0);
}

static const struct { const char *name; void (*run)(member *m); bool joins; } parts[] = {
    {"collectives", run_collectives, true}, {"sends", run_sends, true}, {"graphs", run_graphs, true}, {"windows", run_windows, true},
    {"dead", run_with_a_dead_rank, true}, {"absent", run_without_a_rank, false}, {"disagree", run_disagreement, true},
};

/* argv: "rank", the part, the rank, the id in hexadecimal. */
static int be_a_rank(char **argv)
{
    member m = {.rank = atoi(argv[3])};
    for (size_t i = 0; i < sizeof m.id.internal; i++) {
        unsigned byte = 0;
        sscanf(argv[4] + 2 * i, "%2x", &byte);
        m.id.internal[i] = (char)byte;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(parts[i].name, argv[2]) == 0) {
            if (parts[i].joins) open_member(&m);
            parts[i].run(&m);
            if (parts[i].joins) close_member(&m);
            return check_failures != 0;
        }
    return 2;
}

/* --- the crew ------------------------------------------------------------------------------------------------------------------------ */

static pid_t start_rank(const char *part, int rank, const char *id)
{
    char number[12];
    snprintf(number, sizeof number, "%d", rank);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "processes_test", "rank", part, number, id, (char *)NULL);
        _exit(127);
    }
    return child;
}

/* Runs a part with all ranks; expected: how rank LEFT_ALONE ends. */
static void run_crew(const char *part, int expected)
{
    ncclUniqueId id;
    char hex[2 * sizeof id.internal + 1];
    pid_t children[RANKS];
    CHECK_EQ(ncclGetUniqueId(&id), ncclSuccess);
    for (size_t i = 0; i < sizeof id.internal; i++) snprintf(hex + 2 * i, 3, "%02x", (unsigned char)id.internal[i]);
    for (int rank = 0; rank < RANKS; rank++) children[rank] = start_rank(part, rank, hex);
    for (int rank = 0; rank < RANKS; rank++) {
        int status = -1;
        CHECK_EQ(waitpid(children[rank], &status, 0), children[rank]);
        CHECK_EQ(status, rank == LEFT_ALONE ? expected : 0);
    }
}

static void collectives_cross_processes(void) { run_crew("collectives", 0); }
static void sends_and_receives_pair_up_across_processes(void) { run_crew("sends", 0); }
static void graphs_hold_collectives_of_processes(void) { run_crew("graphs", 0); }
static void kernels_write_into_windows_of_other_processes_and_meet_at_the_barrier(void) { run_crew("windows", 0); }
static void a_process_that_dies_is_seen_by_nobody_until_they_give_up(void) { run_crew("dead", SIGKILL); }
static void a_process_that_never_joins_is_waited_for_no_longer_than_the_host_wants(void) { run_crew("absent", 0); }
static void processes_that_disagree_are_reported(void) { run_crew("disagree", 0); }

static void an_id_whose_process_is_gone_is_refused(void)
{
    ncclUniqueId id = {{0}};
    ncclComm_t comm;
    cuemu_set_devices(2);
    CHECK_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclSystemError);
    int way[2];
    CHECK_EQ(pipe(way), 0);
    pid_t child = fork();
    if (child == 0) {
        ncclGetUniqueId(&id);
        _exit(write(way[1], &id, sizeof id) != sizeof id);
    }
    CHECK_EQ(waitpid(child, NULL, 0), child);
    CHECK_EQ(read(way[0], &id, sizeof id), sizeof id);
    CHECK_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclSystemError);
    close(way[0]);
    close(way[1]);
    cuemu_set_devices(1);
}

int main(int argc, char **argv)
{
    static const check_test tests[] = {
        TEST(collectives_cross_processes), TEST(sends_and_receives_pair_up_across_processes), TEST(graphs_hold_collectives_of_processes),
        TEST(kernels_write_into_windows_of_other_processes_and_meet_at_the_barrier), TEST(a_process_that_dies_is_seen_by_nobody_until_they_give_up),
        TEST(a_process_that_never_joins_is_waited_for_no_longer_than_the_host_wants), TEST(processes_that_disagree_are_reported),
        TEST(an_id_whose_process_is_gone_is_refused),
    };
    return argc == 5 && strcmp(argv[1], "rank") == 0 ? be_a_rank(argv) : check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
