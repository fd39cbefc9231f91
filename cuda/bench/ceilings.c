/* What the device gives at best, so that a kernel's time can be told as a fraction of it, measured in the same run. */
#include <cublas_v2.h>

#include "cuda/bench/bench.h"
#include "cuda/bench/rivals.h"

enum { NODES = 1000, TINY_NODES = 10, MATMUL = 8192, TINY_MATMUL = 16 };

typedef struct transfer {
    gb_bench *bench;
    gb_bench_array from, to;
    uint32_t *sink;
} transfer;

static int copy_once(void *self, uint32_t set, cudaStream_t stream)
{
    const transfer *t = self;
    GB_CUDA(cudaMemcpyAsync(gb_bench_at(&t->to, set), gb_bench_at(&t->from, set), t->from.bytes, cudaMemcpyDeviceToDevice, stream));
    return GB_OK;
}

static int read_once(void *self, uint32_t set, cudaStream_t stream)
{
    const transfer *t = self;
    return gb_b_read(t->sink, gb_bench_at(&t->from, set), t->from.bytes / 4, t->bench->processors, stream);
}

static int measure_bandwidth(gb_bench *b)
{
    const size_t bytes = b->emulated ? 4096 : (size_t)4 << 30;
    const char *size = b->emulated ? "4 KB" : "4 GB";
    transfer t = {.bench = b};
    gb_bench_array sink;
    gb_bench_time time;
    GB_TRY(gb_bench_random_bf16(b, &t.from, 1, bytes / 2, 1));
    GB_TRY(gb_bench_take(b, &t.to, 1, bytes, 1));
    GB_TRY(gb_bench_take(b, &sink, 1, 4, 4));
    t.sink = gb_bench_at(&sink, 0);
    GB_TRY(gb_bench_repeat(b, &time, copy_once, &t, 1));
    gb_bench_report_ceiling(b, "copy", size, 2e-3 * (double)bytes / time.us, "GB/s", time.spread);
    GB_TRY(gb_bench_repeat(b, &time, read_once, &t, 1));
    gb_bench_report_ceiling(b, "read", size, 1e-3 * (double)bytes / time.us, "GB/s", time.spread);
    gb_bench_give_back();
    return GB_OK;
}

typedef struct matmul {
    cublasHandle_t blas;
    gb_bench_array a, b, c;
    int n;
} matmul;

static int multiply_once(void *self, uint32_t set, cudaStream_t stream)
{
    const matmul *m = self;
    const float one = 1, zero = 0;
    GB_CUBLAS(cublasSetStream(m->blas, stream));
    GB_CUBLAS(cublasGemmEx(m->blas, CUBLAS_OP_T, CUBLAS_OP_N, m->n, m->n, m->n, &one, gb_bench_at(&m->a, set), CUDA_R_16BF, m->n,
                           gb_bench_at(&m->b, set), CUDA_R_16BF, m->n, &zero, gb_bench_at(&m->c, set), CUDA_R_16BF, m->n, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT));
    return GB_OK;
}

static int multiply_often(gb_bench *b, matmul *m)
{
    gb_bench_time time;
    const size_t elements = (size_t)m->n * (size_t)m->n;
    GB_TRY(gb_bench_random_bf16(b, &m->a, 1, elements, 1));
    GB_TRY(gb_bench_random_bf16(b, &m->b, 1, elements, 1));
    GB_TRY(gb_bench_take(b, &m->c, 1, elements, 2));
    GB_TRY(gb_bench_repeat(b, &time, multiply_once, m, 1));
    char size[48];
    snprintf(size, sizeof size, "%d^3, bfloat16", m->n);
    gb_bench_report_ceiling(b, "cuBLAS", size, 2e-6 * (double)elements * m->n / time.us, "TFLOP/s", time.spread);
    gb_bench_give_back();
    return GB_OK;
}

static int measure_matmul(gb_bench *b)
{
    matmul m = {.n = b->emulated ? TINY_MATMUL : MATMUL};
    GB_CUBLAS(cublasCreate(&m.blas));
    int status = multiply_often(b, &m);
    cublasDestroy(m.blas);
    return status;
}

static int launch_nothing(void *self, uint32_t set, cudaStream_t stream)
{
    (void)self;
    (void)set;
    return gb_b_nothing(stream);
}

static int measure_launch(gb_bench *b)
{
    const uint32_t nodes = b->emulated ? TINY_NODES : NODES;
    gb_bench_time time;
    char size[48];
    GB_TRY(gb_bench_replay(b, &time, launch_nothing, NULL, nodes));
    snprintf(size, sizeof size, "%u empty kernels in a graph", nodes);
    gb_bench_report_ceiling(b, "launch", size, time.us, "us", time.spread);
    return GB_OK;
}

int gb_bench_ceilings_step(gb_bench *b)
{
    GB_TRY(measure_launch(b));
    GB_TRY(measure_bandwidth(b));
    return measure_matmul(b);
}
