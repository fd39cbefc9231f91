#include "core/serve/builtin.h"

#include "tests/check.h"

enum { ENGINES = 3 };

static gb_arena arena;
static gb_tables tables;
static gb_engine_table *engines;
static gb_pressure_params params;

static void start(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&tables, &arena, ENGINES, 8), 0);
    engines = &tables.engines;
    gb_pressure_params_default(&params);
    for (uint32_t e = 0; e < ENGINES; e++) engines->valid[e] = engines->healthy[e] = engines->moe_pressure[e] = 1;
}

static void stop(void) { gb_arena_deinit(&arena); }

static int select_engine(void) { return gb_builtin_select(&params, &tables.request, engines, 0); }

static void the_lowest_pressure_wins(void)
{
    start();
    engines->running_prefill_tokens[0] = 500;
    engines->waiting_prefill_tokens[1] = 300;
    engines->pending_tokens[2] = 400;
    CHECK_EQ(select_engine(), 1);
    engines->pending_tokens[1] = 200;
    CHECK_EQ(select_engine(), 2);
    stop();
}

/* One engine works on a single 10,000-token prompt, the others on two of 1,000: counting requests sends the next one to the
   first, counting tokens does not. */
static void one_long_prompt_outweighs_two_short_ones(void)
{
    start();
    engines->running[0] = 1;
    engines->running_prefill_tokens[0] = 10000;
    for (uint32_t e = 1; e < ENGINES; e++) {
        engines->running[e] = engines->waiting[e] = 1;
        engines->running_prefill_tokens[e] = engines->waiting_prefill_tokens[e] = 1000;
    }
    CHECK(select_engine() != 0);
    stop();
}

static void near_ties_are_taken_in_rotating_order(void)
{
    start();
    engines->running_prefill_tokens[0] = 1000;
    engines->running_prefill_tokens[1] = 1040;    /* within max(64, 5 %) */
    engines->running_prefill_tokens[2] = 1200;
    engines->next = 1;
    CHECK_EQ(select_engine(), 1);
    engines->next = 2;
    CHECK_EQ(select_engine(), 0);
    stop();
}

/* Two idle engines: whatever rotation says, a tie breaks neither always to the first nor by what is equal. */
static void ties_have_no_favourite(void)
{
    uint32_t taken[ENGINES] = {0};
    start();
    for (uint32_t i = 0; i < 30 * ENGINES; i++) {
        int e = select_engine();
        taken[e]++;
        engines->next = ((uint32_t)e + 1) % ENGINES;
    }
    for (uint32_t e = 0; e < ENGINES; e++) CHECK_EQ(taken[e], 30);
    stop();
}

static void a_session_breaks_near_ties_instead_of_rotation(void)
{
    start();
    tables.request.session = 7;    /* 7 mod 3 */
    for (engines->next = 0; engines->next < ENGINES; engines->next++) CHECK_EQ(select_engine(), 1);
    engines->running_prefill_tokens[1] = 64;
    CHECK_EQ(select_engine(), 1);
    engines->running_prefill_tokens[1] = 65;    /* no tie any more */
    CHECK_EQ(select_engine(), 2);
    engines->running_prefill_tokens[1] = 0;
    engines->healthy[1] = 0;
    CHECK_EQ(select_engine(), 2);
    stop();
}

static void a_cached_prefix_breaks_near_ties_before_a_session(void)
{
    start();
    tables.request.session = 7;
    engines->cached_tokens[0] = 16;
    engines->cached_tokens[2] = 32;
    CHECK_EQ(select_engine(), 2);
    engines->running_prefill_tokens[2] = 65;    /* worth no more than a near-tie */
    CHECK_EQ(select_engine(), 0);
    stop();
}

static void an_affinity_draws_no_crowd(void)
{
    start();
    tables.request.session = 7;
    engines->cached_tokens[1] = 320;
    engines->running[1] = 8;
    CHECK_EQ(select_engine(), 1);
    engines->waiting[1] = 1;
    CHECK_EQ(select_engine(), 2);
    stop();
}

static void the_order_of_dispatch_follows_no_affinity_while_traces_are_missing(void)
{
    start();
    tables.request.session = 7;
    engines->cached_tokens[1] = 320;
    engines->valid[0] = 0;
    engines->next = 2;
    CHECK_EQ(select_engine(), 2);
    stop();
}

static void the_band_is_the_larger_of_64_tokens_and_5_percent(void)
{
    start();
    engines->next = 1;
    engines->running_prefill_tokens[0] = 100;
    engines->running_prefill_tokens[1] = 164;
    engines->running_prefill_tokens[2] = 1e6;
    CHECK_EQ(select_engine(), 1);
    engines->running_prefill_tokens[1] = 165;
    CHECK_EQ(select_engine(), 0);
    engines->running_prefill_tokens[0] = 10000;
    engines->running_prefill_tokens[1] = 10500;
    CHECK_EQ(select_engine(), 1);
    engines->running_prefill_tokens[1] = 10501;
    CHECK_EQ(select_engine(), 0);
    stop();
}

static void high_and_uneven_kv_sends_to_the_lowest_kv(void)
{
    start();
    engines->kv_used_ratio[0] = 0.95;
    engines->kv_used_ratio[1] = 0.84;
    engines->kv_used_ratio[2] = 0.80;
    engines->running_prefill_tokens[2] = 1e6;
    CHECK_EQ(select_engine(), 2);
    engines->kv_used_ratio[0] = 0.90;    /* not above kv_high any more */
    CHECK(select_engine() != 2);
    engines->kv_used_ratio[0] = 0.95;
    engines->kv_used_ratio[1] = engines->kv_used_ratio[2] = 0.86;    /* high, but even */
    CHECK(select_engine() != 2);
    stop();
}

static void kv_above_the_soft_limit_and_expert_pressure_cost_tokens(void)
{
    start();
    engines->kv_used_ratio[0] = 0.80;    /* 0.1 * 8192 = 819.2 tokens */
    engines->running_prefill_tokens[1] = 700;
    engines->running_prefill_tokens[2] = 1e6;
    CHECK_EQ(select_engine(), 1);
    engines->running_prefill_tokens[1] = 900;
    CHECK_EQ(select_engine(), 0);
    engines->kv_used_ratio[0] = 0;
    engines->moe_pressure[0] = 1.5;      /* 0.5 * 2048 = 1024 tokens */
    CHECK_EQ(select_engine(), 1);
    engines->moe_pressure[0] = 0.2;      /* below average earns nothing */
    engines->running_prefill_tokens[0] = 1000;
    CHECK_EQ(select_engine(), 1);
    stop();
}

static void missing_or_stale_traces_mean_ordered_dispatch(void)
{
    start();
    engines->running_prefill_tokens[1] = 1e6;
    engines->next = 1;
    CHECK(select_engine() != 1);
    engines->valid[0] = 0;
    CHECK_EQ(select_engine(), 1);
    engines->valid[0] = 1;
    engines->age_ns[2] = 1e9;
    CHECK(select_engine() != 1);
    engines->age_ns[2] = 1e9 + 1;
    CHECK_EQ(select_engine(), 1);
    stop();
}

static void engines_that_are_down_are_never_chosen(void)
{
    start();
    engines->healthy[1] = 0;
    engines->valid[1] = 0;                /* and its missing trace does not count */
    engines->running_prefill_tokens[0] = engines->running_prefill_tokens[2] = 1e6;
    for (engines->next = 0; engines->next < ENGINES; engines->next++) {
        CHECK(select_engine() != 1);
        CHECK(gb_builtin_ordered(engines) != 1);
    }
    engines->next = 0;
    engines->healthy[0] = engines->healthy[2] = 0;
    CHECK_EQ(select_engine(), GB_POLICY_NIL);
    CHECK_EQ(gb_builtin_ordered(engines), GB_POLICY_NIL);
    stop();
}

static void the_order_key_is_the_prefill_length(void)
{
    start();
    gb_queue_table *queue = &tables.queue;
    queue->n = 2;
    queue->prefill_tokens[0] = 300;
    queue->prefill_tokens[1] = 20;
    CHECK_EQ(gb_builtin_order(NULL, queue, 0), 0);
    CHECK(queue->key[0] == 300 && queue->key[1] == 20);
    stop();
}

TESTS(TEST(the_lowest_pressure_wins), TEST(one_long_prompt_outweighs_two_short_ones), TEST(near_ties_are_taken_in_rotating_order),
      TEST(ties_have_no_favourite), TEST(a_session_breaks_near_ties_instead_of_rotation), TEST(a_cached_prefix_breaks_near_ties_before_a_session),
      TEST(an_affinity_draws_no_crowd), TEST(the_order_of_dispatch_follows_no_affinity_while_traces_are_missing),
      TEST(the_band_is_the_larger_of_64_tokens_and_5_percent), TEST(high_and_uneven_kv_sends_to_the_lowest_kv),
      TEST(kv_above_the_soft_limit_and_expert_pressure_cost_tokens), TEST(missing_or_stale_traces_mean_ordered_dispatch),
      TEST(engines_that_are_down_are_never_chosen), TEST(the_order_key_is_the_prefill_length))
