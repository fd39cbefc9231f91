/* Where ranks are is chosen from options and devices, with a sentence where that cannot be. */
#include "cuda/host/layout.h"
#include "tests/check.h"

static const gb_model_config config = {.heads = 8, .kv_heads = 4};

static int choose(gb_cuda_layout *layout, const char *name, const char *exchange, uint32_t engines, uint32_t ranks, uint32_t devices, gb_error *err)
{
    gb_backend_options options = {.limits = {.engines = engines, .ranks = ranks}, .layout = name, .exchange = exchange, .directory = "model"};
    *err = (gb_error){0};
    return gb_cuda_choose_layout(layout, &config, &options, devices, err);
}

static void check_choice(const char *name, uint32_t engines, uint32_t ranks, uint32_t devices, gb_cuda_layout want)
{
    gb_cuda_layout got;
    gb_error err;
    CHECK_EQ(choose(&got, name, "auto", engines, ranks, devices, &err), GB_OK);
    CHECK_EQ(got, want);
}

static void auto_takes_threads_where_every_rank_of_several_can_have_a_device(void)
{
    check_choice("auto", 1, 1, 8, GB_CUDA_ONE);
    check_choice("auto", 2, 4, 4, GB_CUDA_THREADS);
    check_choice("auto", 2, 4, 8, GB_CUDA_THREADS);
    check_choice("auto", 2, 4, 3, GB_CUDA_ONE);
    check_choice("auto", 2, 4, 0, GB_CUDA_ONE);
    check_choice("auto", 1, 8, 8, GB_CUDA_ONE);    /* 4 kv heads cannot be split over 8 ranks */
}

static void a_layout_that_is_named_is_taken_and_one_is_the_default(void)
{
    check_choice(NULL, 2, 4, 4, GB_CUDA_ONE);
    check_choice("one", 2, 4, 4, GB_CUDA_ONE);
    check_choice("threads", 1, 1, 1, GB_CUDA_THREADS);
    check_choice("processes", 2, 4, 4, GB_CUDA_PROCESSES);
}

static void check_refusal(const char *name, const char *exchange, uint32_t devices, int status, const char *part)
{
    gb_cuda_layout layout;
    gb_error err;
    CHECK_EQ(choose(&layout, name, exchange, 2, 4, devices, &err), status);
    CHECK_CONTAINS(err.text, part);
}

static void what_cannot_be_says_what_to_change(void)
{
    check_refusal("threads", "auto", 3, GB_EUNSUPPORTED, "4 ranks with a GPU each need 4 of them, but 3 can be seen");
    check_refusal("processes", NULL, 0, GB_EUNSUPPORTED, "--distributed-executor-backend one");
    check_refusal("one", "lsa", 4, GB_EINVAL, "--all2all-backend lsa is how tokens travel between GPUs, but all ranks are on one");
    check_refusal("auto", "agrs", 1, GB_EINVAL, "--all2all-backend agrs");
    check_refusal("mpi", NULL, 4, GB_EINVAL, "choose auto, one, threads or processes");
    gb_cuda_layout layout;
    gb_error err = {0};
    gb_backend_options options = {.limits = {.engines = 1, .ranks = 1}, .layout = "processes"};
    CHECK_EQ(gb_cuda_choose_layout(&layout, &config, &options, 1, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "the model's directory");
}

TESTS(TEST(auto_takes_threads_where_every_rank_of_several_can_have_a_device), TEST(a_layout_that_is_named_is_taken_and_one_is_the_default),
      TEST(what_cannot_be_says_what_to_change))
