#include "core/serve/engine.h"

#include "tests/check.h"

static gb_arena arena;
static gb_engine engine;

static void start(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_engine_init(&engine, &arena, 2, 10, true, 4, 8), 0);
}

static void stop(void) { gb_arena_deinit(&arena); }

static void a_new_engine_is_healthy_and_owns_all_its_blocks(void)
{
    start();
    CHECK(engine.healthy);
    CHECK_EQ(engine.index, 2);
    CHECK_EQ(engine.kv.n_free, 10);
    CHECK_EQ(engine.queue.capacity, 8);
    CHECK_EQ(engine.n_running + engine.n_flight + engine.queue.n, 0);
    stop();
}

static void running_requests_stand_in_order_of_importance_whenever_they_came(void)
{
    gb_live low = {.id = 1, .priority = 9, .arrived = 1}, young = {.id = 2, .arrived = 5}, old = {.id = 3, .arrived = 2},
            urgent = {.id = 4, .priority = -1, .arrived = 9};
    start();
    gb_engine_add_running(&engine, &low);
    gb_engine_add_running(&engine, &young);
    gb_engine_add_running(&engine, &old);
    gb_engine_add_running(&engine, &urgent);
    CHECK(engine.running[0] == &urgent && engine.running[1] == &old && engine.running[2] == &young && engine.running[3] == &low);
    CHECK_EQ(low.phase, GB_PHASE_RUNNING);
    gb_engine_remove_running(&engine, &old);
    CHECK_EQ(engine.n_running, 3);
    CHECK(engine.running[0] == &urgent && engine.running[1] == &young && engine.running[2] == &low);
    stop();
}

TESTS(TEST(a_new_engine_is_healthy_and_owns_all_its_blocks), TEST(running_requests_stand_in_order_of_importance_whenever_they_came))
