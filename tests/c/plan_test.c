#include "bindings/c/plan.h"

#include "tests/check.h"

static void check_ranks(uint32_t dp, uint32_t tp, uint32_t ep, uint32_t ranks)
{
    gb_topology t = {0};
    CHECK_EQ(gb_plan_ranks(&t, dp, tp, ep, 64, NULL), GB_OK);
    CHECK_EQ(t.engines, dp);
    CHECK_EQ(t.ranks, ranks);
}

static void missing_sizes_follow_from_the_others(void)
{
    check_ranks(1, 0, 0, 1);
    check_ranks(2, 0, 0, 2);
    check_ranks(2, 0, 4, 4);
    check_ranks(2, 2, 0, 4);
    check_ranks(2, 2, 4, 4);
    check_ranks(1, 0, 64, 64);
}

static void sizes_that_disagree_are_all_named(void)
{
    static const uint32_t bad[][3] = {{2, 2, 8}, {2, 1, 4}, {4, 0, 6}, {3, 0, 2}};    /* dp, tp, ep */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gb_topology t = {0};
        gb_error err = {0};
        char figure[64];
        CHECK_EQ(gb_plan_ranks(&t, bad[i][0], bad[i][1], bad[i][2], 64, &err), GB_EINVAL);
        snprintf(figure, sizeof figure, "data_parallel_size %u", bad[i][0]);
        CHECK_CONTAINS(err.text, figure);
        snprintf(figure, sizeof figure, "expert_parallel_size %u", bad[i][2]);
        CHECK_CONTAINS(err.text, figure);
        CHECK_CONTAINS(err.text, "tensor_parallel_size");
        CHECK_EQ(t.engines, 0);
    }
}

static void experts_that_do_not_divide_and_too_many_ranks_are_refused(void)
{
    gb_topology t;
    gb_error err = {0};
    CHECK_EQ(gb_plan_ranks(&t, 3, 0, 0, 64, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "64 experts");
    CHECK_EQ(gb_plan_ranks(&t, 512, 512, 0, 64, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "at most 512");
}

static const gb_kv_wish small = {
    .memory = 1 << 20, .machine = UINT64_C(1) << 30, .block_bytes = 1024, .engines = 2, .max_num_seqs = 8, .model_len = 2048,
};

static void memory_is_shared_by_the_engines(void)
{
    gb_kv_plan p;
    CHECK_EQ(gb_plan_kv(&p, &small, NULL), GB_OK);
    CHECK_EQ(p.blocks_per_engine, 512);
    CHECK_EQ(p.max_model_len, 2048);
    CHECK(!p.memory_cut && !p.len_cut);
}

static void the_cache_never_takes_more_than_a_quarter_of_the_machine(void)
{
    gb_kv_wish w = small;
    gb_kv_plan p;
    w.machine = 2 << 20;
    CHECK_EQ(gb_plan_kv(&p, &w, NULL), GB_OK);
    CHECK(p.memory <= 512 << 10);
    CHECK_EQ(p.blocks_per_engine, 256);
    CHECK(p.memory_cut);
}

static void blocks_that_no_sequence_could_use_are_not_taken(void)
{
    gb_kv_wish w = small;
    gb_kv_plan p;
    w.max_num_seqs = 3;
    w.max_model_len = 100;    /* 7 blocks */
    CHECK_EQ(gb_plan_kv(&p, &w, NULL), GB_OK);
    CHECK_EQ(p.blocks_per_engine, 21);
    CHECK_EQ(p.memory, 2 * 21 * 1024);
}

static void fewer_blocks_than_sequences_say_what_to_raise(void)
{
    gb_kv_wish w = small;
    gb_kv_plan p;
    gb_error err = {0};
    w.memory = 15 << 10;
    CHECK_EQ(gb_plan_kv(&p, &w, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "raise kv_cache_memory to at least 16384");
    CHECK_CONTAINS(err.text, "max_num_seqs of 8");
    w.memory = 16 << 10;
    CHECK_EQ(gb_plan_kv(&p, &w, NULL), GB_OK);
}

static void a_wished_length_that_does_not_fit_is_an_error_and_the_models_own_is_cut(void)
{
    gb_kv_wish w = small;
    gb_kv_plan p;
    gb_error err = {0};
    w.memory = 100 << 10;    /* 50 blocks an engine */
    w.max_model_len = 801;
    CHECK_EQ(gb_plan_kv(&p, &w, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "800 positions");
    CHECK_CONTAINS(err.text, "max_model_len of 801");
    CHECK_CONTAINS(err.text, "at least 104448");
    w.max_model_len = 800;
    CHECK_EQ(gb_plan_kv(&p, &w, NULL), GB_OK);
    CHECK_EQ(p.max_model_len, 800);
    w.max_model_len = 0;
    CHECK_EQ(gb_plan_kv(&p, &w, NULL), GB_OK);
    CHECK_EQ(p.max_model_len, 800);
    CHECK(p.len_cut);
}

static void this_machine_has_memory(void) { CHECK(gb_plan_machine_memory() > 1 << 20); }

TESTS(TEST(missing_sizes_follow_from_the_others), TEST(sizes_that_disagree_are_all_named),
      TEST(experts_that_do_not_divide_and_too_many_ranks_are_refused), TEST(memory_is_shared_by_the_engines),
      TEST(the_cache_never_takes_more_than_a_quarter_of_the_machine), TEST(blocks_that_no_sequence_could_use_are_not_taken),
      TEST(fewer_blocks_than_sequences_say_what_to_raise),
      TEST(a_wished_length_that_does_not_fit_is_an_error_and_the_models_own_is_cut), TEST(this_machine_has_memory))
