/* Streams, events and graphs as the backend uses them: the same on the emulator and on a GPU. */
#include "cuda/cuemu/control.h"
#include "tests/cuda/device.h"

enum { WORDS = 64, POLLS_MAX = 100 * 1000 * 1000 };

static int *ints(int value)
{
    int words[WORDS];
    for (int i = 0; i < WORDS; i++) words[i] = value;
    return DEVICE_COPY(words);
}

static int first_of(const int *device)
{
    int value;
    CHECK_EQ(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
    return value;
}

static cudaStream_t new_stream(void)
{
    cudaStream_t stream = NULL;
    CHECK_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    return stream;
}

/* A kernel that copies. */
static void copy(int *to, const int *from, cudaStream_t stream)
{
    gb_k_commit_args a = {.live = to, .staged = from, .words = WORDS};
    CHECK_EQ(gb_k_commit(&a, stream), GB_OK);
}

static void fill(int *to, int value, cudaStream_t stream) { copy(to, ints(value), stream); }

static void polling_gets_there_in_every_mode(void)
{
    static const cuemu_streams modes[] = {CUEMU_EAGER, CUEMU_LAZY, CUEMU_OTHERS_FIRST};
    for (size_t i = 0; i < 3; i++) {
        cuemu_set_streams(modes[i]);
        cudaStream_t stream = new_stream();
        cudaEvent_t done;
        int *device = ints(0), polls = 0;
        cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
        fill(device, 5, stream);
        cudaEventRecord(done, stream);
        while (cudaEventQuery(done) == cudaErrorNotReady && polls < POLLS_MAX)
            polls++;
        CHECK(polls < POLLS_MAX);
        CHECK_EQ(first_of(device), 5);
        cudaStreamDestroy(stream);
        cudaEventDestroy(done);
        device_free_all();
    }
    cuemu_set_streams(CUEMU_EAGER);
}

/* A graph with a branch that forks off and joins, launched twice: it reads its buffers at each launch. */
static void a_graph_replays_with_the_data_of_its_launch(void)
{
    cudaStream_t stream = new_stream(), side = new_stream();
    cudaEvent_t fork, join;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    int *from = ints(0), *middle = ints(0), *to = ints(0);
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
    CHECK_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    cudaEventRecord(fork, stream);
    cudaStreamWaitEvent(side, fork, 0);
    copy(middle, from, side);
    cudaEventRecord(join, side);
    cudaStreamWaitEvent(stream, join, 0);
    copy(to, middle, stream);
    CHECK_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    CHECK_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    CHECK_EQ(first_of(to), 0);
    for (int value = 1; value <= 2; value++) {
        fill(from, value, stream);
        cudaGraphLaunch(executable, stream);
        cudaStreamSynchronize(stream);
        CHECK_EQ(first_of(to), value);
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    cudaStreamDestroy(stream);
    cudaStreamDestroy(side);
    device_free_all();
}

TESTS(TEST(polling_gets_there_in_every_mode), TEST(a_graph_replays_with_the_data_of_its_launch))
