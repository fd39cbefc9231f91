#include "core/serve/queue.h"

#include "core/base/rng.h"
#include "tests/check.h"

enum { CAPACITY = 300 };

static gb_arena arena;
static gb_pool pool;
static gb_queue queue;

static void start(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_pool_init(&pool, &arena, CAPACITY, 16), 0);
    CHECK_EQ(gb_queue_init(&queue, &arena, CAPACITY), 0);
}

static void stop(void) { gb_arena_deinit(&arena); }

static gb_live *push(double key, gb_time arrived, bool promoted)
{
    gb_live *live = gb_pool_take(&pool);
    live->arrived = arrived;
    live->promoted = promoted;
    live->n_tokens = live->n_prompt = 10;
    gb_queue_push(&queue, live);
    queue.entries[queue.n - 1].key = key;
    return live;
}

static void queue_serves_the_lowest_key_first_then_arrival_then_id(void)
{
    start();
    gb_live *late = push(5, 30, false), *early = push(5, 20, false), *low = push(1, 90, false), *twin = push(5, 20, false);
    gb_queue_sort(&queue);
    CHECK(queue.entries[0].live == low);
    CHECK(queue.entries[1].live == early);
    CHECK(queue.entries[2].live == twin);
    CHECK(queue.entries[3].live == late);
    stop();
}

static void queue_serves_promoted_requests_before_all_others_by_arrival(void)
{
    start();
    gb_live *low = push(0, 1, false), *second = push(0, 9, true), *first = push(1e9, 8, true);
    gb_queue_sort(&queue);
    CHECK(queue.entries[0].live == first);
    CHECK(queue.entries[1].live == second);
    CHECK(queue.entries[2].live == low);
    stop();
}

static void changes_make_the_line_dirty_and_sorting_cleans_it(void)
{
    start();
    CHECK(!queue.dirty);
    gb_live *live = push(1, 1, false);
    CHECK(queue.dirty);
    gb_queue_sort(&queue);
    CHECK(!queue.dirty);
    gb_queue_remove(&queue, live);
    CHECK(queue.dirty);
    stop();
}

static void waiting_tokens_follow_who_comes_and_goes(void)
{
    start();
    gb_live *a = push(1, 5, false), *b = push(2, 3, false);
    CHECK_EQ(queue.prefill_tokens, 20);
    CHECK_EQ(gb_queue_oldest(&queue), 3);
    gb_queue_remove(&queue, b);
    CHECK_EQ(queue.prefill_tokens, 10);
    CHECK_EQ(gb_queue_oldest(&queue), 5);
    CHECK(gb_queue_take(&queue, 0) == a);
    CHECK_EQ(queue.prefill_tokens, 0);
    CHECK(gb_queue_oldest(&queue) == GB_NEVER);
    stop();
}

static bool in_order(const gb_queue_entry *a, const gb_queue_entry *b)
{
    if (a->promoted != b->promoted) return a->promoted;
    if (!a->promoted && a->key != b->key) return a->key < b->key;
    return a->arrived != b->arrived ? a->arrived < b->arrived : a->id < b->id;
}

static void random_lines_are_sorted_without_losing_anyone(void)
{
    gb_rng rng;
    gb_rng_init(&rng, 11);
    for (int round = 0; round < 200; round++) {
        uint64_t sum = 0, sorted_sum = 0;
        uint32_t n = (uint32_t)gb_rng_below(&rng, CAPACITY);
        start();
        for (uint32_t i = 0; i < n; i++) sum += push((double)gb_rng_below(&rng, 20), gb_rng_below(&rng, 10), gb_rng_below(&rng, 4) == 0)->id;
        gb_queue_sort(&queue);
        for (uint32_t i = 0; i < n; i++) {
            sorted_sum += queue.entries[i].id;
            CHECK(queue.entries[i].live->id == queue.entries[i].id);
            if (i > 0) CHECK(in_order(&queue.entries[i - 1], &queue.entries[i]));
        }
        CHECK(sum == sorted_sum);
        stop();
    }
}

TESTS(TEST(queue_serves_the_lowest_key_first_then_arrival_then_id), TEST(queue_serves_promoted_requests_before_all_others_by_arrival),
      TEST(changes_make_the_line_dirty_and_sorting_cleans_it), TEST(waiting_tokens_follow_who_comes_and_goes),
      TEST(random_lines_are_sorted_without_losing_anyone))
