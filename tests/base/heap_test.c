#include "core/base/heap.h"

#include "core/base/rng.h"
#include "tests/check.h"

enum { ITEMS = 64 };

static gb_arena arena;
static gb_heap heap;

static void start(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_heap_init(&heap, &arena, ITEMS), 0);
}

static void stop(void) { gb_arena_deinit(&arena); }

static uint32_t first(void)
{
    uint32_t item = UINT32_MAX;
    uint64_t key;
    return gb_heap_first(&heap, &item, &key) ? item : UINT32_MAX;
}

static void the_lowest_key_comes_first_and_ties_go_to_the_lower_item(void)
{
    start();
    gb_heap_set(&heap, 7, 30);
    gb_heap_set(&heap, 3, 10);
    gb_heap_set(&heap, 1, 10);
    CHECK_EQ(first(), 1);
    gb_heap_remove(&heap, 1);
    CHECK_EQ(first(), 3);
    gb_heap_remove(&heap, 3);
    CHECK_EQ(first(), 7);
    gb_heap_remove(&heap, 7);
    CHECK_EQ(first(), UINT32_MAX);
    stop();
}

static void a_key_can_be_moved_both_ways(void)
{
    start();
    for (uint32_t i = 0; i < 10; i++) gb_heap_set(&heap, i, 100 + i);
    gb_heap_set(&heap, 9, 1);
    CHECK_EQ(first(), 9);
    gb_heap_set(&heap, 9, UINT64_MAX);
    CHECK_EQ(first(), 0);
    CHECK_EQ(heap.n, 10);
    stop();
}

static void removing_what_is_not_there_is_harmless(void)
{
    start();
    gb_heap_remove(&heap, 5);
    gb_heap_set(&heap, 4, 1);
    gb_heap_remove(&heap, 5);
    CHECK_EQ(first(), 4);
    stop();
}

/* Against a plain array. */
static void random_changes_agree_with_a_linear_scan(void)
{
    uint64_t keys[ITEMS];
    gb_rng rng;
    gb_rng_init(&rng, 5);
    start();
    memset(keys, 0xff, sizeof keys);
    for (int step = 0; step < 20000; step++) {
        uint32_t item = (uint32_t)gb_rng_below(&rng, ITEMS);
        keys[item] = gb_rng_below(&rng, 3) ? gb_rng_below(&rng, 50) : UINT64_MAX;
        if (keys[item] == UINT64_MAX) gb_heap_remove(&heap, item);
        else gb_heap_set(&heap, item, keys[item]);
        uint32_t lowest = UINT32_MAX;
        for (uint32_t i = 0; i < ITEMS; i++)
            if (keys[i] != UINT64_MAX && (lowest == UINT32_MAX || keys[i] < keys[lowest])) lowest = i;
        CHECK_EQ(first(), lowest);
    }
    stop();
}

TESTS(TEST(the_lowest_key_comes_first_and_ties_go_to_the_lower_item), TEST(a_key_can_be_moved_both_ways),
      TEST(removing_what_is_not_there_is_harmless), TEST(random_changes_agree_with_a_linear_scan))
