#include "cuda/bench/bench.h"

#include <math.h>
#include <stdlib.h>

enum { WARM_UPS = 3, REPETITIONS_MAX = 100 };

/* One round over all sets: a replay of their graph, or their launches one by one. */
typedef struct rounds {
    cudaGraphExec_t graph;     /* NULL: one by one */
    gb_bench_work *work;
    void *self;
    uint32_t sets;
} rounds;

static int launch_all(const rounds *r, cudaStream_t stream)
{
    for (uint32_t set = 0; set < r->sets; set++) GB_TRY(r->work(r->self, set, stream));
    return GB_OK;
}

static int run(const rounds *r, cudaStream_t stream)
{
    if (!r->graph) return launch_all(r, stream);
    GB_CUDA(cudaGraphLaunch(r->graph, stream));
    return GB_OK;
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Microseconds of one launch: the median over repetitions. */
static int median(gb_bench *b, const rounds *r, cudaEvent_t begin, cudaEvent_t end, double *us)
{
    float ms[REPETITIONS_MAX];
    uint32_t n = b->repetitions < REPETITIONS_MAX ? b->repetitions : REPETITIONS_MAX;
    for (uint32_t i = 0; i < n; i++) {
        GB_CUDA(cudaEventRecord(begin, b->stream));
        GB_TRY(run(r, b->stream));
        GB_CUDA(cudaEventRecord(end, b->stream));
        GB_CUDA(cudaEventSynchronize(end));
        GB_CUDA(cudaEventElapsedTime(&ms[i], begin, end));
    }
    qsort(ms, n, sizeof *ms, compare);
    *us = 1e3 * ms[n / 2] / r->sets;
    return GB_OK;
}

static int two_medians(gb_bench *b, gb_bench_time *out, const rounds *r, cudaEvent_t begin, cudaEvent_t end)
{
    double first, second;
    for (int i = 0; i < (b->emulated ? 1 : WARM_UPS); i++) GB_TRY(run(r, b->stream));
    GB_TRY(median(b, r, begin, end, &first));
    GB_TRY(median(b, r, begin, end, &second));
    out->us = (first + second) / 2;
    out->spread = out->us > 0 ? fabs(first - second) / out->us : 0;
    return GB_OK;
}

static int time_rounds(gb_bench *b, gb_bench_time *out, const rounds *r)
{
    cudaEvent_t begin = NULL, end = NULL;
    GB_CUDA(cudaEventCreate(&begin));
    cudaError_t error = cudaEventCreate(&end);
    int status = error == cudaSuccess ? two_medians(b, out, r, begin, end) : gb_k_fail(GB_EDOWN, "no event: %s", cudaGetErrorString(error));
    cudaEventDestroy(begin);
    if (end) cudaEventDestroy(end);
    return status;
}

int gb_bench_repeat(gb_bench *b, gb_bench_time *out, gb_bench_work *work, void *self, uint32_t sets)
{
    const rounds r = {NULL, work, self, sets};
    return time_rounds(b, out, &r);
}

static int capture(gb_bench *b, rounds *r)
{
    cudaGraph_t graph = NULL;
    GB_CUDA(cudaStreamSynchronize(b->stream));
    GB_CUDA(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    int status = launch_all(r, b->stream);
    cudaError_t ended = cudaStreamEndCapture(b->stream, &graph);
    if (status == GB_OK && ended != cudaSuccess) status = gb_k_fail(GB_EDOWN, "the capture failed: %s", cudaGetErrorString(ended));
    if (status == GB_OK) {
        cudaError_t made = cudaGraphInstantiate(&r->graph, graph, 0);
        if (made != cudaSuccess) status = gb_k_fail(GB_EDOWN, "the graph was not made: %s", cudaGetErrorString(made));
    }
    if (graph) cudaGraphDestroy(graph);
    return status;
}

int gb_bench_replay(gb_bench *b, gb_bench_time *out, gb_bench_work *work, void *self, uint32_t sets)
{
    rounds r = {NULL, work, self, sets};
    GB_TRY(work(self, 0, b->stream));    /* what a first launch loads cannot be captured */
    GB_TRY(capture(b, &r));
    int status = time_rounds(b, out, &r);
    cudaGraphExecDestroy(r.graph);
    return status;
}
