#include "core/serve/select.h"

#include "tests/check.h"

enum { ENGINES = 4 };

static gb_arena arena;
static gb_tables tables;
static gb_engine_table *engines;
static gb_pressure_params params;
static gb_policy builtin, policy;
static gb_hook_stats stats;
static int answer;

static int answer_it(void *self, const gb_request_row *request, const gb_engine_table *table, gb_time now)
{
    (void)self, (void)request, (void)table, (void)now;
    return answer;
}

static void start(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&tables, &arena, ENGINES, 8), 0);
    engines = &tables.engines;
    gb_pressure_params_default(&params);
    stats = (gb_hook_stats){0};
    builtin = (gb_policy){.name = "builtin", .self = &params, .select_engine = gb_builtin_select};
    policy = (gb_policy){.name = "test", .version = 1, .select_engine = answer_it};
    for (uint32_t e = 0; e < ENGINES; e++) engines->valid[e] = engines->healthy[e] = engines->moe_pressure[e] = 1;
}

static void stop(void) { gb_arena_deinit(&arena); }

static int select_engine(void) { return gb_select_engine(&policy, &builtin, &stats, &tables, 0); }

static void a_valid_answer_of_the_policy_decides(void)
{
    start();
    answer = 3;
    CHECK_EQ(select_engine(), 3);
    CHECK_EQ(stats.calls, 1);
    CHECK_EQ(stats.nils + stats.faults, 0);
    CHECK_EQ(engines->next, 0);
    stop();
}

static void nil_or_no_hook_lets_the_builtin_decide(void)
{
    start();
    engines->running_prefill_tokens[0] = engines->running_prefill_tokens[1] = engines->running_prefill_tokens[3] = 1e6;
    answer = GB_POLICY_NIL;
    CHECK_EQ(select_engine(), 2);
    CHECK_EQ(stats.nils, 1);
    policy.select_engine = NULL;
    CHECK_EQ(select_engine(), 2);
    CHECK_EQ(stats.nils, 2);
    CHECK_EQ(stats.faults, 0);
    stop();
}

static void a_bad_answer_is_counted_and_replaced_for_that_decision_only(void)
{
    static const int bad[] = {ENGINES, 1000000, -3, INT32_MIN, INT32_MAX, GB_POLICY_FAULT};
    start();
    engines->running_prefill_tokens[0] = engines->running_prefill_tokens[1] = engines->running_prefill_tokens[3] = 1e6;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        answer = bad[i];
        CHECK_EQ(select_engine(), 2);
        CHECK_EQ(stats.faults, i + 1);
        answer = 0;
        CHECK_EQ(select_engine(), 0);
    }
    stop();
}

static void an_answer_that_names_a_dead_engine_is_refused(void)
{
    start();
    engines->healthy[1] = 0;
    answer = 1;
    CHECK(select_engine() != 1);
    CHECK_EQ(stats.faults, 1);
    stop();
}

static void with_every_engine_down_nobody_is_asked(void)
{
    start();
    for (uint32_t e = 0; e < ENGINES; e++) engines->healthy[e] = 0;
    answer = 0;
    CHECK_EQ(select_engine(), GB_POLICY_NIL);
    CHECK_EQ(stats.calls, 0);
    stop();
}

/* Equal requests between two traces must not pile up on the first engine. */
static void ties_are_spread_without_bias(void)
{
    int taken[ENGINES] = {0};
    start();
    policy = builtin;
    for (int i = 0; i < 100; i++) {
        int e = select_engine();
        taken[e]++;
        engines->pending_tokens[e] += 100;    /* the compensation the server adds */
    }
    for (uint32_t e = 0; e < ENGINES; e++) CHECK_EQ(taken[e], 25);
    stop();
}

static void identical_engines_are_taken_in_turn(void)
{
    start();
    policy = builtin;
    for (int i = 0; i < 12; i++) CHECK_EQ(select_engine(), i % ENGINES);
    stop();
}

TESTS(TEST(a_valid_answer_of_the_policy_decides), TEST(nil_or_no_hook_lets_the_builtin_decide),
      TEST(a_bad_answer_is_counted_and_replaced_for_that_decision_only), TEST(an_answer_that_names_a_dead_engine_is_refused),
      TEST(with_every_engine_down_nobody_is_asked), TEST(ties_are_spread_without_bias), TEST(identical_engines_are_taken_in_turn))
