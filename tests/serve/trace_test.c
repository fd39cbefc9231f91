#include "core/serve/trace.h"

#include "tests/check.h"

static gb_arena arena;
static gb_pool pool;
static gb_engine engine;
static gb_tables tables;

static void start(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_pool_init(&pool, &arena, 8, 1024), 0);
    CHECK_EQ(gb_engine_init(&engine, &arena, 0, 40, true, 4, 8), 0);
    CHECK_EQ(gb_tables_init(&tables, &arena, 1, 8), 0);
}

static void stop(void) { gb_arena_deinit(&arena); }

static gb_live *dispatch(uint32_t tokens, gb_time now)
{
    gb_live *live = gb_pool_take(&pool);
    live->n_prompt = live->n_tokens = tokens;
    live->arrived = now;
    gb_queue_push(&engine.queue, live);
    gb_trace_note_dispatch(&engine, &tables.engines, live);
    return live;
}

static void withdraw(gb_live *live)
{
    gb_queue_remove(&engine.queue, live);
    live->phase = GB_PHASE_ENDED;
    gb_trace_note_withdrawal(&engine, &tables.engines, live);
}

static void run(gb_live *live, uint32_t computed)
{
    gb_queue_remove(&engine.queue, live);
    gb_engine_add_running(&engine, live);
    gb_kv_grow(&engine.kv, &live->kv, live->n_tokens);
    live->n_computed = computed;
}

static gb_trace take(uint64_t seq, gb_time now)
{
    gb_trace trace;
    gb_trace_take(&trace, &engine, seq, gb_ms(7), 1.25, now);
    return trace;
}

static bool publish(const gb_trace *trace) { return gb_trace_publish(&engine, &tables.engines, trace, &pool); }

static void a_trace_reports_what_runs_and_what_waits(void)
{
    start();
    run(dispatch(100, gb_ms(1)), 30);
    gb_live *decoding = dispatch(50, gb_ms(2));
    run(decoding, 50);
    decoding->n_tokens = 51;
    dispatch(200, gb_ms(5));
    dispatch(10, gb_ms(8));
    gb_trace trace = take(1, gb_ms(20));
    CHECK(publish(&trace));
    gb_engine_table *t = &tables.engines;
    CHECK_NEAR(t->running_prefill_tokens[0], 70, 0);
    CHECK_NEAR(t->waiting_prefill_tokens[0], 210, 0);
    CHECK_NEAR(t->kv_used_ratio[0], 11.0 / 40, 1e-12);
    CHECK_NEAR(t->kv_used_tokens[0], 11 * 16, 0);
    CHECK_NEAR(t->kv_free_tokens[0], 29 * 16, 0);
    CHECK_NEAR(t->running[0], 2, 0);
    CHECK_NEAR(t->waiting[0], 2, 0);
    CHECK_NEAR(t->oldest_wait_ns[0], (double)gb_ms(15), 0);
    CHECK_NEAR(t->round_time_ns[0], (double)gb_ms(7), 0);
    CHECK_NEAR(t->moe_pressure[0], 1.25, 0);
    CHECK_NEAR(t->valid[0], 1, 0);
    stop();
}

static void pending_requests_and_tokens_are_acknowledged_by_the_trace_that_saw_them(void)
{
    start();
    dispatch(100, 1);
    dispatch(50, 2);
    CHECK_NEAR(tables.engines.pending[0], 2, 0);
    CHECK_NEAR(tables.engines.pending_tokens[0], 150, 0);
    gb_trace trace = take(1, 3);
    publish(&trace);
    CHECK_NEAR(tables.engines.pending[0], 0, 0);
    CHECK_NEAR(tables.engines.pending_tokens[0], 0, 0);
    CHECK_NEAR(tables.engines.waiting_prefill_tokens[0], 150, 0);
    stop();
}

/* A report that was under way while requests were dispatched must not wipe out their compensation. */
static void a_late_refresh_neither_drops_nor_double_counts_a_dispatch(void)
{
    start();
    dispatch(100, 1);
    gb_trace slow = take(1, 2);
    dispatch(30, 3);
    dispatch(7, 4);
    CHECK_NEAR(tables.engines.pending_tokens[0], 137, 0);
    publish(&slow);
    CHECK_NEAR(tables.engines.waiting_prefill_tokens[0], 100, 0);
    CHECK_NEAR(tables.engines.pending[0], 2, 0);
    CHECK_NEAR(tables.engines.pending_tokens[0], 37, 0);
    gb_trace fresh = take(2, 5);
    publish(&fresh);
    CHECK_NEAR(tables.engines.waiting_prefill_tokens[0], 137, 0);
    CHECK_NEAR(tables.engines.pending_tokens[0], 0, 0);
    stop();
}

static void an_older_trace_never_replaces_a_newer_one(void)
{
    start();
    gb_trace old = take(1, 1);
    dispatch(100, 2);
    gb_trace fresh = take(2, 3);
    CHECK(publish(&fresh));
    CHECK(!publish(&old));
    CHECK(!publish(&fresh));
    CHECK_NEAR(tables.engines.waiting_prefill_tokens[0], 100, 0);
    CHECK_EQ(engine.trace.seq, 2);
    stop();
}

static void a_request_withdrawn_before_it_was_seen_leaves_no_pressure_behind(void)
{
    start();
    gb_live *seen = dispatch(100, 1);
    gb_trace slow = take(1, 2);
    gb_live *unseen = dispatch(30, 3);
    withdraw(unseen);
    CHECK_NEAR(tables.engines.pending[0], 1, 0);
    CHECK_NEAR(tables.engines.pending_tokens[0], 100, 0);
    publish(&slow);
    CHECK_NEAR(tables.engines.pending_tokens[0], 0, 0);
    withdraw(seen);
    CHECK_NEAR(tables.engines.pending[0], 0, 0);
    CHECK_NEAR(tables.engines.pending_tokens[0], 0, 0);
    stop();
}

static void an_engine_with_nothing_in_flight_is_never_stale(void)
{
    start();
    gb_trace trace = take(1, gb_seconds(1));
    publish(&trace);
    gb_trace_refresh_age(&engine, &tables.engines, gb_seconds(100));
    CHECK_NEAR(tables.engines.age_ns[0], 0, 0);
    engine.n_flight = 1;
    gb_trace_refresh_age(&engine, &tables.engines, gb_seconds(3));
    CHECK_NEAR(tables.engines.age_ns[0], 2e9, 0);
    stop();
}

TESTS(TEST(a_trace_reports_what_runs_and_what_waits), TEST(pending_requests_and_tokens_are_acknowledged_by_the_trace_that_saw_them),
      TEST(a_late_refresh_neither_drops_nor_double_counts_a_dispatch), TEST(an_older_trace_never_replaces_a_newer_one),
      TEST(a_request_withdrawn_before_it_was_seen_leaves_no_pressure_behind), TEST(an_engine_with_nothing_in_flight_is_never_stale))
