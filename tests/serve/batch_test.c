#include "core/serve/batch.h"

#include "tests/check.h"

enum { SLOTS = 16, WORKS = 8 };

static gb_arena arena;
static gb_pool pool;
static gb_engine engine;
static gb_batch batch;
static gb_work works[WORKS];
static gb_batch_limits limits;

static void start(uint32_t blocks)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_pool_init(&pool, &arena, SLOTS, 1024), 0);
    CHECK_EQ(gb_engine_init(&engine, &arena, 0, blocks, true, WORKS, SLOTS), 0);
    limits = (gb_batch_limits){.max_tokens = 64, .max_running = 4, .max_preemptions = 2, .max_bypass = 3};
}

static void stop(void) { gb_arena_deinit(&arena); }

static gb_live *wait_in_line(uint32_t tokens, uint32_t max_tokens, gb_time arrived)
{
    gb_live *live = gb_pool_take(&pool);
    live->n_prompt = live->n_tokens = tokens;
    live->arrived = arrived;
    live->stream->sampling = (gb_sampling){.max_tokens = max_tokens};
    live->stream->n_banned = 0;
    gb_queue_push(&engine.queue, live);
    return live;
}

/* What a round leaves behind: everything computed, one token more where one was sampled. */
static void finish_round(void)
{
    for (uint32_t i = 0; i < engine.n_flight; i++) {
        gb_live *live = engine.flight[i];
        live->in_round = false;
        live->n_computed += engine.flight_counts[i];
        if (live->n_computed == live->n_tokens) live->n_tokens++;
    }
}

static void plan(void)
{
    batch = (gb_batch){.works = works};
    engine.n_flight = 0;
    if (!gb_batch_continue(&engine, &batch, &limits)) return;
    for (uint32_t i = 0; i < engine.queue.n; i++) engine.queue.entries[i].key = (double)engine.queue.entries[i].arrived;
    gb_queue_sort(&engine.queue);
    gb_batch_admit(&engine, &batch, &limits, gb_ms(1));
}

static void run_round(void)
{
    plan();
    finish_round();
}

static const gb_work *work_of(const gb_live *live) { return live->in_round ? &works[live->work] : NULL; }

static void a_prompt_is_computed_in_chunks_under_the_token_budget(void)
{
    start(40);
    gb_live *live = wait_in_line(150, 4, 1);
    static const uint32_t starts[] = {0, 64, 128}, counts[] = {64, 64, 22};
    for (int i = 0; i < 3; i++) {
        plan();
        CHECK_EQ(batch.n_works, 1);
        CHECK_EQ(batch.n_tokens, counts[i]);
        CHECK_EQ(works[0].start, starts[i]);
        CHECK_EQ(works[0].count, counts[i]);
        CHECK_EQ(works[0].samples, i == 2);
        finish_round();
    }
    plan();
    CHECK_EQ(works[0].start, 150);
    CHECK_EQ(works[0].count, 1);
    CHECK(works[0].samples && works[0].id == live->id && works[0].tokens == live->tokens && works[0].n_prompt == 150);
    stop();
}

static void decodes_come_first_and_prefill_gets_the_rest_of_the_budget(void)
{
    start(40);
    gb_live *a = wait_in_line(10, 9, 1), *b = wait_in_line(10, 9, 2);
    run_round();
    gb_live *c = wait_in_line(500, 9, 3);
    plan();
    CHECK_EQ(batch.n_tokens, 64);
    CHECK(works[0].id == a->id && works[1].id == b->id && works[2].id == c->id);
    CHECK_EQ(works[2].count, 62);
    stop();
}

static void prefill_chunks_follow_the_order_of_the_line(void)
{
    start(40);
    gb_live *second = wait_in_line(50, 9, 5), *first = wait_in_line(40, 9, 1);
    plan();
    CHECK(works[0].id == first->id && works[0].count == 40);
    CHECK(works[1].id == second->id && works[1].count == 24);
    stop();
}

static void no_more_requests_run_than_allowed(void)
{
    start(40);
    for (int i = 0; i < 6; i++) wait_in_line(5, 9, (gb_time)i);
    plan();
    CHECK_EQ(batch.n_works, 4);
    CHECK_EQ(engine.n_running, 4);
    CHECK_EQ(engine.queue.n, 2);
    stop();
}

static void an_admitted_request_owns_blocks_for_its_whole_prompt(void)
{
    start(40);
    gb_live *live = wait_in_line(150, 9, 1);
    plan();
    CHECK_EQ(live->kv.n_blocks, 10);
    CHECK_EQ(engine.kv.n_free, 30);
    CHECK(work_of(live)->blocks == live->kv.blocks);
    stop();
}

/* Two requests fill the cache; when the older needs a block, the newer gives all of its own. */
static void a_decode_without_a_block_preempts_the_newest(void)
{
    start(4);
    gb_live *old = wait_in_line(32, 20, 1), *young = wait_in_line(32, 20, 2);
    run_round();
    CHECK_EQ(engine.n_running, 2);
    CHECK_EQ(engine.kv.n_free, 0);
    plan();
    CHECK_EQ(batch.n_works, 1);
    CHECK(works[0].id == old->id);
    CHECK_EQ(young->phase, GB_PHASE_PREEMPTED);
    CHECK_EQ(young->n_computed, 0);
    CHECK_EQ(young->n_tokens, 33);
    CHECK_EQ(young->kv.n_blocks, 0);
    CHECK_EQ(young->preemptions, 1);
    CHECK_EQ(engine.preemptions, 1);
    CHECK_EQ(engine.queue.prefill_tokens, 33);
    stop();
}

static void the_lowest_class_is_preempted_before_the_newest(void)
{
    start(6);
    gb_live *low = wait_in_line(32, 20, 1), *mid = wait_in_line(32, 20, 2);
    gb_live *young = wait_in_line(20, 20, 3);
    low->priority = 7;
    limits.max_tokens = 100;
    run_round();
    CHECK_EQ(engine.n_running, 3);
    plan();
    CHECK_EQ(low->phase, GB_PHASE_PREEMPTED);
    CHECK_EQ(mid->phase, GB_PHASE_RUNNING);
    CHECK_EQ(young->phase, GB_PHASE_RUNNING);
    stop();
}

static void nobody_is_admitted_in_a_round_that_preempted(void)
{
    start(4);
    wait_in_line(32, 20, 1);
    gb_live *young = wait_in_line(32, 20, 2);
    run_round();
    gb_live *tiny = wait_in_line(1, 20, 3);
    plan();
    CHECK_EQ(young->phase, GB_PHASE_PREEMPTED);
    CHECK_EQ(tiny->phase, GB_PHASE_WAITING);
    finish_round();
    plan();
    CHECK_EQ(tiny->phase, GB_PHASE_RUNNING);
    stop();
}

static void a_request_preempted_too_often_comes_back_only_with_all_it_can_need(void)
{
    start(4);
    gb_live *pinned = wait_in_line(20, 29, 1);    /* 48 positions in all: 3 blocks */
    pinned->preemptions = 2;
    gb_live *other = wait_in_line(17, 20, 0);
    run_round();
    CHECK_EQ(other->phase, GB_PHASE_RUNNING);
    CHECK_EQ(pinned->phase, GB_PHASE_WAITING);     /* 2 of 4 blocks are free, the prompt alone would fit */
    gb_engine_remove_running(&engine, other);
    gb_kv_release(&engine.kv, &other->kv);
    plan();
    CHECK_EQ(pinned->phase, GB_PHASE_RUNNING);
    CHECK_EQ(pinned->kv.n_blocks, 3);
    stop();
}

static void a_pinned_request_is_never_a_victim(void)
{
    start(4);
    gb_live *old = wait_in_line(16, 40, 1);
    gb_live *pinned = wait_in_line(20, 29, 2);
    pinned->preemptions = 2;
    run_round();
    CHECK_EQ(engine.n_running, 2);
    CHECK_EQ(engine.kv.n_free, 0);
    plan();                                        /* old has no block for position 16: it stalls, the pinned one goes on */
    CHECK_EQ(batch.n_works, 1);
    CHECK(works[0].id == pinned->id);
    CHECK_EQ(old->phase, GB_PHASE_RUNNING);
    CHECK_EQ(old->n_computed, 16);
    stop();
}

static void a_stalled_request_goes_on_once_a_block_is_free(void)
{
    start(2);
    gb_live *old = wait_in_line(14, 40, 1), *young = wait_in_line(16, 40, 2);
    run_round();
    plan();
    CHECK_EQ(batch.n_works, 1);                    /* young has nobody behind it to take a block from */
    CHECK(works[0].id == old->id);
    CHECK_EQ(young->phase, GB_PHASE_RUNNING);
    finish_round();
    gb_engine_remove_running(&engine, old);
    gb_kv_release(&engine.kv, &old->kv);
    plan();
    CHECK_EQ(batch.n_works, 1);
    CHECK(works[0].id == young->id && works[0].start == 16);
    stop();
}

static void a_blocked_head_is_bypassed_a_bounded_number_of_times_and_then_holds(void)
{
    start(8);
    limits.max_running = WORKS;
    wait_in_line(64, 4, 0);
    run_round();
    gb_live *big = wait_in_line(100, 4, 1);
    for (int i = 0; i < 5; i++) wait_in_line(4, 4, (gb_time)(2 + i));
    plan();
    CHECK_EQ(big->phase, GB_PHASE_WAITING);
    CHECK_EQ(big->bypassed, 3);
    CHECK_EQ(engine.queue.n, 3);                   /* the head and the two it held back */
    finish_round();
    plan();
    CHECK_EQ(engine.queue.n, 3);
    CHECK_EQ(big->bypassed, 3);
    stop();
}

static void whoever_is_behind_a_holding_head_waits_until_it_fits(void)
{
    start(8);
    gb_live *runs = wait_in_line(64, 4, 0);
    run_round();
    gb_live *big = wait_in_line(100, 4, 1);
    big->bypassed = limits.max_bypass;
    gb_live *tiny = wait_in_line(1, 4, 2);
    run_round();
    CHECK_EQ(tiny->phase, GB_PHASE_WAITING);
    gb_engine_remove_running(&engine, runs);
    gb_kv_release(&engine.kv, &runs->kv);
    run_round();
    CHECK_EQ(big->phase, GB_PHASE_RUNNING);
    stop();
}

static void tokens_are_banned_until_min_tokens_are_there(void)
{
    start(8);
    gb_live *live = wait_in_line(4, 9, 1);
    live->stream->sampling.min_tokens = 2;
    live->stream->n_banned = 1;
    live->stream->banned[0] = 42;
    for (uint32_t generated = 0; generated < 4; generated++) {
        plan();
        CHECK_EQ(works[0].n_banned, generated < 2);
        CHECK_EQ(works[0].banned[0], 42);
        finish_round();
    }
    stop();
}

static void the_first_admission_is_when_a_request_was_scheduled(void)
{
    start(8);
    gb_live *live = wait_in_line(4, 9, 0);
    CHECK(live->scheduled == GB_NEVER);
    plan();
    CHECK_EQ(live->scheduled, gb_ms(1));
    stop();
}

TESTS(TEST(a_prompt_is_computed_in_chunks_under_the_token_budget), TEST(decodes_come_first_and_prefill_gets_the_rest_of_the_budget),
      TEST(prefill_chunks_follow_the_order_of_the_line), TEST(no_more_requests_run_than_allowed),
      TEST(an_admitted_request_owns_blocks_for_its_whole_prompt), TEST(a_decode_without_a_block_preempts_the_newest),
      TEST(the_lowest_class_is_preempted_before_the_newest), TEST(nobody_is_admitted_in_a_round_that_preempted),
      TEST(a_request_preempted_too_often_comes_back_only_with_all_it_can_need), TEST(a_pinned_request_is_never_a_victim),
      TEST(a_stalled_request_goes_on_once_a_block_is_free),
      TEST(a_blocked_head_is_bypassed_a_bounded_number_of_times_and_then_holds),
      TEST(whoever_is_behind_a_holding_head_waits_until_it_fits), TEST(tokens_are_banned_until_min_tokens_are_there),
      TEST(the_first_admission_is_when_a_request_was_scheduled))
