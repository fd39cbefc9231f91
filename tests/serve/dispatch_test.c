/* Dispatch under stale knowledge: engines report late and unequally, requests keep coming. The pieces are the server's own
   (select, trace); the lags are the test's. */
#include "core/serve/select.h"
#include "core/serve/trace.h"
#include "tests/check.h"

enum { ENGINES = 2, SLOTS = 512 };

typedef struct report {
    gb_trace trace;
    gb_time due;
    bool under_way;
} report;

static gb_arena arena;
static gb_pool pool;
static gb_engine engines[ENGINES];
static gb_tables tables;
static gb_pressure_params params;
static gb_policy policy;
static gb_hook_stats stats;
static uint64_t seq;
static report reports[ENGINES];

static void start(void)
{
    gb_arena_init(&arena);
    seq = 0;
    CHECK_EQ(gb_pool_init(&pool, &arena, SLOTS, 16), 0);
    CHECK_EQ(gb_tables_init(&tables, &arena, ENGINES, SLOTS), 0);
    gb_pressure_params_default(&params);
    policy = (gb_policy){.name = "builtin", .self = &params, .select_engine = gb_builtin_select};
    for (uint32_t e = 0; e < ENGINES; e++) {
        CHECK_EQ(gb_engine_init(&engines[e], &arena, e, 64, true, 4, SLOTS), 0);
        tables.engines.healthy[e] = 1;
        gb_trace trace;
        gb_trace_take(&trace, &engines[e], ++seq, 0, 1, 0);
        gb_trace_publish(&engines[e], &tables.engines, &trace, &pool);
        reports[e] = (report){.under_way = false};
    }
}

static void stop(void) { gb_arena_deinit(&arena); }

static int dispatch(uint32_t tokens)
{
    int e = gb_select_engine(&policy, &policy, &stats, &tables, 0);
    gb_live *live = gb_pool_take(&pool);
    live->engine = (uint32_t)e;
    live->n_prompt = live->n_tokens = tokens;
    gb_queue_push(&engines[e].queue, live);
    gb_trace_note_dispatch(&engines[e], &tables.engines, live);
    return e;
}

/* Each engine takes its next trace when the last one has arrived, `lag` after it was taken. */
static void exchange_reports(const gb_time *lags, gb_time now)
{
    for (uint32_t e = 0; e < ENGINES; e++) {
        report *r = &reports[e];
        if (r->under_way && r->due <= now) {
            gb_trace_publish(&engines[e], &tables.engines, &r->trace, &pool);
            r->under_way = false;
        }
        if (!r->under_way) {
            gb_trace_take(&r->trace, &engines[e], ++seq, 0, 1, now);
            *r = (report){.trace = r->trace, .due = now + lags[e], .under_way = true};
        }
    }
}

static void check_spread(const gb_time *lags)
{
    int taken[ENGINES] = {0};
    start();
    for (int i = 0; i < 200; i++) {
        exchange_reports(lags, gb_ms((uint64_t)i));
        taken[dispatch(100)]++;
    }
    CHECK_NEAR(taken[0], 100, 1);
    CHECK_EQ(taken[0] + taken[1], 200);
    stop();
}

static void equal_requests_spread_evenly_with_equal_lags(void) { check_spread((gb_time[]){gb_ms(10), gb_ms(10)}); }

static void equal_requests_spread_evenly_with_unequal_lags(void)
{
    check_spread((gb_time[]){gb_ms(10), gb_ms(80)});
    check_spread((gb_time[]){gb_ms(200), gb_ms(3)});
}

/* Without compensation the whole burst would go to the engine that looked empty in the latest trace. */
static void a_burst_between_two_traces_does_not_pile_up_on_one_engine(void)
{
    start();
    tables.engines.waiting_prefill_tokens[1] = 500;    /* as its latest trace said */
    int taken[ENGINES] = {0};
    for (int i = 0; i < 25; i++) taken[dispatch(100)]++;
    CHECK_EQ(taken[0], 15);
    CHECK_EQ(taken[1], 10);
    stop();
}

static void a_refresh_in_the_middle_of_a_burst_keeps_the_spread(void)
{
    start();
    gb_trace slow;
    for (int i = 0; i < 10; i++) dispatch(100);
    gb_trace_take(&slow, &engines[0], ++seq, 0, 1, 0);    /* sees five of them */
    int taken[ENGINES] = {0};
    for (int i = 0; i < 10; i++) taken[dispatch(100)]++;
    gb_trace_publish(&engines[0], &tables.engines, &slow, &pool);
    for (int i = 0; i < 10; i++) taken[dispatch(100)]++;
    CHECK_EQ(taken[0], 10);
    CHECK_EQ(taken[1], 10);
    stop();
}

static void one_long_prompt_is_balanced_by_many_short_ones(void)
{
    start();
    CHECK_EQ(dispatch(10000), 0);
    for (int i = 0; i < 10; i++) CHECK_EQ(dispatch(1000), 1);
    CHECK_EQ(dispatch(1000), 0);    /* 10,000 each: its turn again */
    stop();
}

TESTS(TEST(equal_requests_spread_evenly_with_equal_lags), TEST(equal_requests_spread_evenly_with_unequal_lags),
      TEST(a_burst_between_two_traces_does_not_pile_up_on_one_engine), TEST(a_refresh_in_the_middle_of_a_burst_keeps_the_spread),
      TEST(one_long_prompt_is_balanced_by_many_short_ones))
