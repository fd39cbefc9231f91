/* What the backend does when the device fails it: at every step of opening, and in the middle of rounds. The emulator refuses the calls. */
#include "cuda/cuemu/control.h"
#include "tests/cuda/device.h"
#include "tests/forward/harness.h"

#include <cublasLt.h>

gb_backend_open_fn gimbal_backend_open;

static const char model[] = "tests/golden/plain";

static size_t free_memory(void)
{
    size_t free_bytes = 0, bytes = 0;
    CHECK_EQ(cudaMemGetInfo(&free_bytes, &bytes), cudaSuccess);
    return free_bytes;
}

static int open_ops(gb_ops **ops, gb_error *err)
{
    gb_model_config config;
    gb_weights *weights = NULL;
    gb_backend_options options = {.limits = {.engines = 1, .ranks = 2, .max_works = 2, .max_tokens = 16, .max_positions = 64, .blocks_per_engine = 8}};
    CHECK_EQ(gb_model_config_load(&config, check_path(model), err), GB_OK);
    CHECK_EQ(gb_weights_open(&weights, check_path(model), err), GB_OK);
    int status = gimbal_backend_open(GB_BACKEND_ABI)->ops_new(ops, &config, weights, &options, err);
    gb_weights_free(weights);
    return status;
}

/* Refuses the first call, then the second, and so on, until opening needs no more of them. */
static void check_opening(const char *function, int refusal, int status, unsigned least)
{
    size_t before = free_memory();
    unsigned after = 0;
    for (;; after++) {
        gb_ops *ops = NULL;
        gb_error err = {0};
        cuemu_fail_call(function, after, refusal);
        int got = open_ops(&ops, &err);
        if (got == GB_OK) {
            gb_ops_free(ops);
            break;
        }
        CHECK_EQ(got, status);
        CHECK_CONTAINS(err.text, "backend cuemu: ");
        CHECK_EQ(free_memory(), before);
    }
    cuemu_fail_call(function, ~0u, 0);
    CHECK(after >= least);
    CHECK_EQ(free_memory(), before);
}

static void opening_gives_everything_back_wherever_memory_ends(void)
{
    check_opening("cudaMalloc", cudaErrorMemoryAllocation, GB_ENOMEM, 30);
    check_opening("cudaHostAlloc", cudaErrorMemoryAllocation, GB_ENOMEM, 8);
}

static void opening_gives_everything_back_wherever_a_library_fails(void)
{
    check_opening("cudaStreamCreateWithPriority", cudaErrorUnknown, GB_EDOWN, 2);
    check_opening("cudaEventCreateWithFlags", cudaErrorUnknown, GB_EDOWN, 1);
    check_opening("cudaMemcpy", cudaErrorUnknown, GB_EDOWN, 20);
    check_opening("cublasLtCreate", CUBLAS_STATUS_NOT_INITIALIZED, GB_EDOWN, 1);
    check_opening("cublasLtMatmulDescCreate", CUBLAS_STATUS_ALLOC_FAILED, GB_EDOWN, 4);
    check_opening("cublasLtMatrixLayoutCreate", CUBLAS_STATUS_ALLOC_FAILED, GB_EDOWN, 12);
    check_opening("cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED, GB_EUNSUPPORTED, 4);
}

/* A round ends with GB_EDOWN when one of its calls fails, whichever; the next one is as if nothing had been. */
static void check_rounds(const char *function, int refusal, bool graphs, uint32_t count)
{
    harness h;
    harness_options options = {.directory = model, .backend = gimbal_backend_open(GB_BACKEND_ABI), .graphs = graphs};
    const int32_t tokens[] = {1, 2, 3};
    harness_open(&h, &options);
    harness_clear(&h);
    harness_add(&h, 0, 0, tokens, count, count, 0, count, &harness_greedy);
    if (graphs) CHECK_EQ(harness_run(&h), GB_OK);    /* the next step of this size is captured */
    cuemu_fail_call(function, 0, refusal);
    CHECK_EQ(harness_run(&h), GB_EDOWN);
    CHECK(strlen(gb_k_message()) > 0);
    CHECK_EQ(harness_run(&h), GB_OK);
    int32_t token = h.result.sampled[0][0].token;
    CHECK(token >= 0);
    CHECK_EQ(harness_run(&h), GB_OK);
    CHECK_EQ(h.result.sampled[0][0].token, token);
    harness_close(&h);
}

static void a_round_whose_call_fails_is_down_and_the_next_one_is_not(void)
{
    static const char *const calls[] = {
        "cudaMemcpyAsync", "cudaMemsetAsync", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaEventRecord", "cudaStreamWaitEvent", "embed_kernel", "norm_kernel",
        "attention_prepare_kernel", "commit_kernel", "combine_kernel", "sample_kernel",
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) check_rounds(calls[i], cudaErrorUnknown, false, 3);
    check_rounds("cublasLtMatmul", CUBLAS_STATUS_EXECUTION_FAILED, false, 3);
}

static void a_graph_that_fails_leaves_no_half_of_itself(void)
{
    static const char *const calls[] = {
        "cudaStreamBeginCapture", "cudaGraphInstantiate", "cudaGraphLaunch", "norm_kernel", "cudaMemsetAsync",
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) check_rounds(calls[i], cudaErrorUnknown, true, 1);
    check_rounds("cublasLtMatmul", CUBLAS_STATUS_EXECUTION_FAILED, true, 1);
}

static void a_machine_without_devices_is_no_place_for_the_backend(void)
{
    gb_backend_device device = {0};
    gb_error err = {0};
    const gb_backend *backend = gimbal_backend_open(GB_BACKEND_ABI);
    CHECK_EQ(backend->probe(&device, &err), GB_OK);
    CHECK(device.memory > 0 && device.name[0]);
    cuemu_set_devices(0);
    CHECK_EQ(backend->probe(&device, &err), GB_EUNSUPPORTED);
    CHECK_CONTAINS(err.text, "use --backend cpu");
    cuemu_set_devices(1);
}

TESTS(TEST(opening_gives_everything_back_wherever_memory_ends), TEST(opening_gives_everything_back_wherever_a_library_fails),
      TEST(a_round_whose_call_fails_is_down_and_the_next_one_is_not), TEST(a_graph_that_fails_leaves_no_half_of_itself),
      TEST(a_machine_without_devices_is_no_place_for_the_backend))
