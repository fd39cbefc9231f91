#include "core/moe/pressure.h"

#include "tests/check.h"

static gb_arena arena;
static gb_pressure pressure;

static void start(uint32_t engines, uint32_t ranks)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_pressure_init(&pressure, &arena, (gb_topology){engines, ranks}), 0);
}

static void stop(void) { gb_arena_deinit(&arena); }

static void nothing_counted_is_average(void)
{
    start(2, 4);
    CHECK_NEAR(gb_pressure_of(&pressure, 0), 1, 0);
    gb_pressure_add(&pressure, (uint64_t[]){0, 0, 0, 0});
    CHECK_NEAR(gb_pressure_of(&pressure, 1), 1, 0);
    stop();
}

static void an_engine_is_the_sum_of_its_ranks_over_the_mean(void)
{
    start(2, 4);
    gb_pressure_add(&pressure, (uint64_t[]){10, 50, 20, 0});
    CHECK_NEAR(gb_pressure_of(&pressure, 0), 1.5, 1e-12);
    CHECK_NEAR(gb_pressure_of(&pressure, 1), 0.5, 1e-12);
    stop();
}

static void pressures_average_to_one(void)
{
    start(3, 3);
    for (uint64_t i = 0; i < 50; i++) gb_pressure_add(&pressure, (uint64_t[]){i, 2 * i + 1, i % 7});
    CHECK_NEAR(gb_pressure_of(&pressure, 0) + gb_pressure_of(&pressure, 1) + gb_pressure_of(&pressure, 2), 3, 1e-9);
    stop();
}

static void recent_rounds_weigh_more_and_old_ones_fade(void)
{
    start(2, 2);
    for (int i = 0; i < 100; i++) gb_pressure_add(&pressure, (uint64_t[]){100, 0});
    CHECK_NEAR(gb_pressure_of(&pressure, 0), 2, 1e-9);
    for (int i = 0; i < GB_PRESSURE_ROUNDS; i++) gb_pressure_add(&pressure, (uint64_t[]){0, 100});
    CHECK(gb_pressure_of(&pressure, 0) < 0.8);
    CHECK(gb_pressure_of(&pressure, 0) > 0.6);
    stop();
}

TESTS(TEST(nothing_counted_is_average), TEST(an_engine_is_the_sum_of_its_ranks_over_the_mean), TEST(pressures_average_to_one),
      TEST(recent_rounds_weigh_more_and_old_ones_fade))
