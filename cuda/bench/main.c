#include "cuda/bench/bench.h"

#include <stdlib.h>
#include <string.h>

enum { SKIPPED = 77, REPETITIONS = 50, EMULATED_REPETITIONS = 2 };

static const gb_bench_shape full_shape = {.hidden = 2048, .width = 768, .experts = 128, .K = 8, .heads = 32, .kv_heads = 4, .head_dim = 128,
                                          .vocab = 151936};
const gb_bench_shape gb_bench_tiny_shape = {.hidden = 64, .width = 32, .experts = 8, .K = 2, .heads = 4, .kv_heads = 2, .head_dim = 16,
                                          .vocab = 256};

static const struct {
    const char *name, *does;
    int (*run)(gb_bench *b);
} steps[] = {
    {"ceilings", "copy and read bandwidth, cuBLAS in bfloat16, a launch in a graph", gb_bench_ceilings_step},
    {"kernels", "each kernel at sizes of decode and prefill", gb_bench_kernels_step},
    {"counting", "ways to count who sends to which expert", gb_bench_counting_step},
    {"layers", "decode steps and prefill through the op table, in all a layer's kernels", gb_bench_layers_step},
    {"ranks", "four ranks on one device: rows through windows, experts that move", gb_bench_ranks_step},
    {"nccl", "NCCL with one rank: calls in a stream and in a graph", gb_bench_nccl_step},
};
enum { STEPS = sizeof steps / sizeof *steps };

static int usage(FILE *to, int status)
{
    fprintf(to, "usage: gimbal_" GB_CUDA_NAME "_bench STEP [--rows FILE] [--seed N]\n       gimbal_" GB_CUDA_NAME "_bench --bounds\n\n");
    for (size_t i = 0; i < STEPS; i++) fprintf(to, "  %-10s %s\n", steps[i].name, steps[i].does);
    fprintf(to, "\nResults are added to FILE, one a line (cuda/bench/report.c); ceilings are read from it. Default: the standard output.\n"
                "Ends with 0, with 1 when a result is wrong, with %d where there is no GPU.\n", SKIPPED);
    return status;
}

static int open_device(gb_bench *b)
{
    struct cudaDeviceProp properties;
    GB_CUDA(cudaSetDevice(0));
    GB_CUDA(cudaGetDeviceProperties(&properties, 0));
    b->processors = (uint32_t)properties.multiProcessorCount;
    b->l2_bytes = (size_t)properties.l2CacheSize;
    if (!b->emulated) printf("%s, %u processors, %zu MB of L2, %zu GB\n", properties.name, b->processors, b->l2_bytes >> 20, properties.totalGlobalMem >> 30);
    GB_CUDA(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
    return GB_OK;
}

static int run_step(gb_bench *b, size_t step)
{
    int status = open_device(b);
    if (status == GB_OK) status = steps[step].run(b);
    gb_bench_give_back();
    if (b->stream) cudaStreamDestroy(b->stream);
    if (status != GB_OK) fprintf(stderr, "%s: %s\n", steps[step].name, gb_k_message());
    return status != GB_OK || b->wrong > 0;
}

static bool parse(gb_bench *b, const char **rows, size_t *step, int argc, char **argv)
{
    *step = STEPS;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rows") == 0 && i + 1 < argc) *rows = argv[++i];
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) b->seed = strtoull(argv[++i], NULL, 0);
        else
            for (*step = 0; *step < STEPS && strcmp(steps[*step].name, argv[i]); ++*step) continue;
    }
    return *step < STEPS;
}

int main(int argc, char **argv)
{
    bool emulated = strcmp(GB_CUDA_NAME, "cuemu") == 0;
    gb_bench b = {.emulated = emulated, .seed = 1, .shape = emulated ? gb_bench_tiny_shape : full_shape, .rows = stdout,
                  .repetitions = emulated ? EMULATED_REPETITIONS : REPETITIONS};
    const char *rows = NULL;
    size_t step;
    int devices = 0;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) return usage(stdout, 0);
    if (argc == 2 && strcmp(argv[1], "--bounds") == 0) return gb_bench_list_bounds(stdout), 0;
    if (!parse(&b, &rows, &step, argc, argv)) return usage(stderr, 64);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);    /* loading a kernel at its first launch may wait for one that waits for it */
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
        printf("skipped: there is no GPU here (%s)\n", error == cudaSuccess ? "the driver lists none" : cudaGetErrorString(error));
        return SKIPPED;
    }
    if (rows && !(b.rows = fopen(rows, "a+"))) {
        fprintf(stderr, "%s cannot be written\n", rows);
        return 64;
    }
    if (rows) gb_bench_read_ceilings(&b, b.rows);
    int status = run_step(&b, step);
    if (rows) fclose(b.rows);
    return status;
}
