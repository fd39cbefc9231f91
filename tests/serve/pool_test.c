#include "core/serve/pool.h"

#include "tests/check.h"

static gb_arena arena;
static gb_pool pool;

static void start(uint32_t capacity)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_pool_init(&pool, &arena, capacity, 64), 0);
}

static void stop(void) { gb_arena_deinit(&arena); }

static void give_back(gb_live *live)
{
    live->phase = GB_PHASE_ENDED;
    gb_pool_give_back(&pool, live);
}

static void a_full_pool_says_so(void)
{
    start(2);
    gb_live *a = gb_pool_take(&pool), *b = gb_pool_take(&pool);
    CHECK(a && b && a != b);
    CHECK(gb_pool_take(&pool) == NULL);
    give_back(a);
    CHECK(gb_pool_take(&pool) == a);
    stop();
}

static void ids_are_never_zero_and_never_come_twice(void)
{
    gb_request_id seen[100];
    start(1);
    for (int i = 0; i < 100; i++) {
        gb_live *live = gb_pool_take(&pool);
        CHECK(live->id != 0);
        for (int j = 0; j < i; j++) CHECK(seen[j] != live->id);
        seen[i] = live->id;
        give_back(live);
    }
    stop();
}

static void an_old_id_does_not_find_the_slot_s_next_request(void)
{
    start(1);
    gb_live *live = gb_pool_take(&pool);
    gb_request_id old = live->id;
    CHECK(gb_pool_find(&pool, old) == live);
    give_back(live);
    CHECK(gb_pool_find(&pool, old) == NULL);
    gb_pool_take(&pool);
    CHECK(gb_pool_find(&pool, old) == NULL);
    CHECK(gb_pool_find(&pool, live->id) == live);
    CHECK(gb_pool_find(&pool, 0) == NULL);
    CHECK(gb_pool_find(&pool, 12345) == NULL);
    stop();
}

static void steady_load_touches_the_same_slots(void)
{
    start(1000);
    for (int i = 0; i < 5000; i++) {
        gb_live *a = gb_pool_take(&pool), *b = gb_pool_take(&pool);
        CHECK(a->index < 2 && b->index < 2);
        give_back(a);
        give_back(b);
    }
    stop();
}

static void a_fresh_slot_remembers_nothing(void)
{
    start(1);
    gb_live *live = gb_pool_take(&pool);
    live->n_tokens = live->n_prompt = 7;
    live->preemptions = 3;
    live->promoted = true;
    live->scheduled = live->first_token = 5;
    give_back(live);
    live = gb_pool_take(&pool);
    CHECK_EQ(live->n_tokens, 0);
    CHECK_EQ(live->preemptions, 0);
    CHECK(!live->promoted && live->scheduled == GB_NEVER && live->first_token == GB_NEVER && live->deadline == GB_NEVER);
    CHECK_EQ(live->phase, GB_PHASE_WAITING);
    stop();
}

static void importance_is_class_then_arrival_then_id(void)
{
    gb_live a = {.id = 1, .priority = 0, .arrived = 5}, b = {.id = 2, .priority = 0, .arrived = 5};
    CHECK(gb_live_outranks(&a, &b) && !gb_live_outranks(&b, &a));
    b.arrived = 4;
    CHECK(gb_live_outranks(&b, &a));
    a.priority = -1;
    CHECK(gb_live_outranks(&a, &b));
    CHECK(!gb_live_outranks(&a, &a));
}

TESTS(TEST(a_full_pool_says_so), TEST(ids_are_never_zero_and_never_come_twice), TEST(an_old_id_does_not_find_the_slot_s_next_request),
      TEST(steady_load_touches_the_same_slots), TEST(a_fresh_slot_remembers_nothing), TEST(importance_is_class_then_arrival_then_id))
