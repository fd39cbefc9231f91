/* Wrong host code on the emulator: what hides in one stream mode shows in another. */
#include "cuda/cuemu/control.h"
#include "tests/check.h"
#include "tests/cuda/zoo.h"

#include <string.h>

enum { BYTES = ZOO_INTS * sizeof(int) };

static int *ints(int value)
{
    int *device = NULL;
    cudaMalloc((void **)&device, BYTES);
    cudaMemset(device, value, BYTES);
    return device;
}

static int first_of(const int *device)
{
    int host[ZOO_INTS];
    cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
    return host[0];
}

static cudaStream_t new_stream(void)
{
    cudaStream_t stream = NULL;
    CHECK_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    return stream;
}

/* One stream fills, another copies what was filled, with or without an event between them. */
static int value_copied(cuemu_streams mode, bool waits)
{
    cuemu_set_streams(mode);
    cudaStream_t fills = new_stream(), copies = new_stream();
    cudaEvent_t filled;
    int *from = ints(0), *to = ints(0);
    cudaEventCreateWithFlags(&filled, cudaEventDisableTiming);
    zoo_fill(from, 7, fills);
    cudaEventRecord(filled, fills);
    if (waits)
        cudaStreamWaitEvent(copies, filled, 0);
    zoo_copy(to, from, copies);
    CHECK_EQ(cudaStreamSynchronize(copies), cudaSuccess);
    int value = first_of(to);
    cudaStreamDestroy(fills);
    cudaStreamDestroy(copies);
    cudaEventDestroy(filled);
    cudaFree(from);
    cudaFree(to);
    cuemu_set_streams(CUEMU_EAGER);
    return value;
}

static void a_missing_event_shows_when_streams_are_lazy(void)
{
    cuemu_quiet(1);
    CHECK_EQ(value_copied(CUEMU_LAZY, false), 0);
    CHECK_EQ(value_copied(CUEMU_EAGER, false), 7);
    cuemu_clear_reports();
    cuemu_quiet(0);
    CHECK_EQ(value_copied(CUEMU_LAZY, true), 7);
    CHECK_EQ(value_copied(CUEMU_OTHERS_FIRST, true), 7);
}

/* The track build needs no luck: the two kernels are not ordered, whatever the values are. */
static void a_missing_event_is_a_race_where_accesses_are_tracked(void)
{
    if (!cuemu_tracks())
        return;
    cuemu_quiet(1);
    value_copied(CUEMU_EAGER, false);
    CHECK_CONTAINS(cuemu_report_text(), "RACE between streams: read after unordered write");
    CHECK_CONTAINS(cuemu_report_text(), "zoo.cu:");
    cuemu_clear_reports();
    cuemu_quiet(0);
    value_copied(CUEMU_EAGER, true);
    CHECK_EQ(cuemu_reports(), 0);
}

/* Pinned memory is read when the copy runs, pageable memory when it is queued. */
static void a_pinned_buffer_used_again_too_early_shows(void)
{
    int *pinned = NULL, pageable[ZOO_INTS] = {3}, *device = ints(0);
    cudaStream_t stream = new_stream();
    cudaHostAlloc((void **)&pinned, BYTES, cudaHostAllocDefault);
    memset(pinned, 0, BYTES);
    cuemu_set_streams(CUEMU_LAZY);
    pinned[0] = 3;
    cudaMemcpyAsync(device, pinned, BYTES, cudaMemcpyHostToDevice, stream);
    pinned[0] = 99;
    cudaStreamSynchronize(stream);
    CHECK_EQ(first_of(device), 99);
    cudaMemcpyAsync(device, pageable, BYTES, cudaMemcpyHostToDevice, stream);
    pageable[0] = 99;
    cudaStreamSynchronize(stream);
    CHECK_EQ(first_of(device), 3);
    cuemu_set_streams(CUEMU_EAGER);
    cudaStreamDestroy(stream);
    cudaFreeHost(pinned);
    cudaFree(device);
}

static void what_a_capture_forbids_spoils_it(void)
{
    cudaStream_t stream = new_stream();
    cudaGraph_t graph = NULL;
    void *memory = NULL;
    cuemu_quiet(1);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    CHECK_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    CHECK_EQ(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
    CHECK_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    CHECK(graph == NULL);
    CHECK_CONTAINS(cuemu_report_text(), "CAPTURE: cudaMalloc");
    cuemu_clear_reports();
    cuemu_quiet(0);
    CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaStreamDestroy(stream);
}

static void no_device_answers_like_a_machine_without_a_driver(void)
{
    int n = -1;
    void *memory = NULL;
    cuemu_set_devices(0);
    CHECK_EQ(cudaGetDeviceCount(&n), cudaErrorInsufficientDriver);
    CHECK_EQ(n, -1);
    CHECK_EQ(cudaMalloc(&memory, 16), cudaErrorInsufficientDriver);
    CHECK_EQ(cudaGetLastError(), cudaErrorInsufficientDriver);
    CHECK_EQ(cudaGetLastError(), cudaSuccess);
    cuemu_set_devices(1);
}

static void a_full_device_says_so(void)
{
    size_t unused, total;
    void *first = NULL, *second = NULL;
    cudaMemGetInfo(&unused, &total);
    cuemu_set_memory(total - unused + 1024);
    CHECK_EQ(cudaMalloc(&first, 1000), cudaSuccess);
    CHECK_EQ(cudaMalloc(&second, 1000), cudaErrorMemoryAllocation);
    CHECK(second == NULL);
    cudaFree(first);
    cuemu_set_memory(total);
    cudaGetLastError();
}

static void calls_fail_when_told_to(void)
{
    void *memory = NULL;
    cuemu_fail_call("cudaMalloc", 1, cudaErrorMemoryAllocation);
    CHECK_EQ(cudaMalloc(&memory, 16), cudaSuccess);
    cudaFree(memory);
    CHECK_EQ(cudaMalloc(&memory, 16), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaMalloc(&memory, 16), cudaSuccess);
    cudaFree(memory);
    cudaGetLastError();
}

TESTS(TEST(a_missing_event_shows_when_streams_are_lazy), TEST(a_missing_event_is_a_race_where_accesses_are_tracked),
      TEST(a_pinned_buffer_used_again_too_early_shows),
      TEST(what_a_capture_forbids_spoils_it),
      TEST(no_device_answers_like_a_machine_without_a_driver), TEST(a_full_device_says_so), TEST(calls_fail_when_told_to))
