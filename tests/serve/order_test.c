#include "core/serve/order.h"

#include "core/serve/builtin.h"
#include "tests/check.h"

static gb_arena arena;
static gb_pool pool;
static gb_engine engine;
static gb_tables tables;
static gb_policy builtin, policy;
static gb_hook_stats stats;
static double keys[8];
static int answer;

static int give_keys(void *self, gb_queue_table *queue, gb_time now)
{
    (void)self, (void)now;
    for (uint32_t i = 0; i < queue->n; i++) queue->key[i] = keys[i];
    return answer;
}

static int give_one_key(void *self, gb_queue_table *queue, gb_time now)
{
    (void)self, (void)now;
    queue->key[0] = 1;
    return 0;
}

static void start(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_pool_init(&pool, &arena, 8, 1024), 0);
    CHECK_EQ(gb_engine_init(&engine, &arena, 3, 40, true, 4, 8), 0);
    CHECK_EQ(gb_tables_init(&tables, &arena, 4, 8), 0);
    stats = (gb_hook_stats){0};
    builtin = (gb_policy){.name = "builtin", .order_queue = gb_builtin_order};
    policy = (gb_policy){.name = "test", .order_queue = give_keys};
    answer = 0;
}

static void stop(void) { gb_arena_deinit(&arena); }

static gb_live *wait_in_line(uint32_t tokens, gb_time arrived)
{
    gb_live *live = gb_pool_take(&pool);
    live->n_prompt = live->n_tokens = tokens;
    live->arrived = arrived;
    live->stream->sampling.max_tokens = 9;
    gb_queue_push(&engine.queue, live);
    return live;
}

static void order(gb_time now) { gb_order_queue(&engine, &policy, &builtin, &stats, &tables.queue, now); }

static gb_live *head(void) { return engine.queue.entries[0].live; }

static void the_policy_sees_every_column_of_the_line(void)
{
    start();
    gb_live *live = wait_in_line(100, gb_ms(10));
    live->n_tokens = 104;    /* preempted after four tokens */
    live->preemptions = 2;
    live->priority = -5;
    live->deadline = gb_ms(100);
    live->promoted = true;
    wait_in_line(20, gb_ms(12));
    keys[0] = keys[1] = 0;
    order(gb_ms(40));
    const gb_queue_table *q = &tables.queue;
    CHECK_EQ(q->n, 2);
    CHECK_EQ(q->engine, 3);
    CHECK_NEAR(q->prefill_tokens[0], 104, 0);
    CHECK_NEAR(q->prompt_tokens[0], 100, 0);
    CHECK_NEAR(q->generated_tokens[0], 4, 0);
    CHECK_NEAR(q->max_tokens[0], 9, 0);
    CHECK_NEAR(q->wait_ns[0], (double)gb_ms(30), 0);
    CHECK_NEAR(q->priority[0], -5, 0);
    CHECK_NEAR(q->deadline_ns[0], (double)gb_ms(60), 0);
    CHECK_NEAR(q->preemptions[0], 2, 0);
    CHECK_NEAR(q->promoted[0], 1, 0);
    CHECK(isinf(q->deadline_ns[1]));
    CHECK_NEAR(q->promoted[1], 0, 0);
    stop();
}

static void keys_of_the_policy_decide(void)
{
    start();
    wait_in_line(10, 1);
    gb_live *longer = wait_in_line(500, 2);
    keys[0] = 2, keys[1] = 1;
    order(3);
    CHECK(head() == longer);
    CHECK_EQ(stats.calls, 1);
    CHECK_EQ(stats.nils + stats.faults, 0);
    stop();
}

static void a_line_that_did_not_change_is_not_ordered_again(void)
{
    start();
    wait_in_line(10, 1);
    order(2);
    order(3);
    CHECK_EQ(stats.calls, 1);
    engine.queue.dirty = true;    /* someone was promoted */
    order(4);
    CHECK_EQ(stats.calls, 2);
    stop();
}

/* The built-in serves the shorter one first. */
static void nil_or_no_hook_lets_the_builtin_decide(void)
{
    start();
    wait_in_line(500, 1);
    gb_live *shorter = wait_in_line(10, 2);
    keys[0] = 1, keys[1] = 2;
    answer = GB_POLICY_NIL;
    order(3);
    CHECK(head() == shorter);
    CHECK_EQ(stats.nils, 1);
    policy.order_queue = NULL;
    engine.queue.dirty = true;
    order(4);
    CHECK(head() == shorter);
    CHECK_EQ(stats.nils, 2);
    CHECK_EQ(stats.faults, 0);
    stop();
}

static void keys_that_are_no_numbers_are_refused_for_that_decision_only(void)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    start();
    gb_live *longer = wait_in_line(500, 1), *shorter = wait_in_line(10, 2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        keys[0] = 1, keys[1] = bad[i];
        engine.queue.dirty = true;
        order(3);
        CHECK(head() == shorter);
        CHECK_EQ(stats.faults, i + 1);
        for (uint32_t k = 0; k < 2; k++) keys[k] = engine.queue.entries[k].live == longer ? 1 : 2;
        engine.queue.dirty = true;
        order(3);
        CHECK(head() == longer);
        CHECK_EQ(stats.faults, i + 1);
    }
    stop();
}

static void a_fault_or_a_key_left_out_falls_back(void)
{
    start();
    wait_in_line(500, 1);
    gb_live *shorter = wait_in_line(10, 2);
    answer = GB_POLICY_FAULT;
    keys[0] = 1, keys[1] = 2;
    order(3);
    CHECK(head() == shorter);
    answer = 17;
    engine.queue.dirty = true;
    order(3);
    CHECK_EQ(stats.faults, 2);
    policy.order_queue = give_one_key;
    engine.queue.dirty = true;
    order(3);
    CHECK(head() == shorter);
    CHECK_EQ(stats.faults, 3);
    stop();
}

static void no_key_overtakes_a_promoted_request(void)
{
    start();
    gb_live *old = wait_in_line(500, 1);
    wait_in_line(10, 2);
    keys[0] = 1e300, keys[1] = -1e300;
    old->promoted = true;
    order(gb_seconds(9));
    CHECK(head() == old);
    stop();
}

TESTS(TEST(the_policy_sees_every_column_of_the_line), TEST(keys_of_the_policy_decide), TEST(a_line_that_did_not_change_is_not_ordered_again),
      TEST(nil_or_no_hook_lets_the_builtin_decide), TEST(keys_that_are_no_numbers_are_refused_for_that_decision_only),
      TEST(a_fault_or_a_key_left_out_falls_back), TEST(no_key_overtakes_a_promoted_request))
