#include "core/moe/window.h"

#include "tests/check.h"

static gb_arena arena;
static gb_windows windows;
static gb_matrix round_counts;

static void start_timed(uint32_t rounds, gb_time longest)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_windows_init(&windows, &arena, 1, 2, 4, rounds, longest), 0);
    CHECK_EQ(gb_matrix_init(&round_counts, &arena, 1, 2, 4), 0);
}

static void start(uint32_t rounds) { start_timed(rounds, GB_NEVER); }

static void stop(void) { gb_arena_deinit(&arena); }

static bool add(uint64_t count, gb_time started, gb_time now)
{
    gb_matrix_row(&round_counts, 0, 1)[3] = count;
    return gb_windows_add(&windows, &round_counts, started, now);
}

static void nothing_is_closed_before_the_first_window_is_full(void)
{
    start(2);
    CHECK_EQ(windows.closed.id, 0);
    CHECK_EQ(windows.running.id, 1);
    CHECK(!add(5, gb_ms(1), gb_ms(2)));
    CHECK_EQ(windows.closed.id, 0);
    CHECK_EQ(gb_matrix_row(&windows.closed.counts, 0, 1)[3], 0);
    CHECK_EQ(gb_matrix_row(&windows.running.counts, 0, 1)[3], 5);
    stop();
}

static void a_full_window_is_kept_closed_with_its_bounds_while_the_next_one_counts(void)
{
    start(2);
    add(5, gb_ms(1), gb_ms(2));
    CHECK(add(6, gb_ms(3), gb_ms(4)));
    CHECK_EQ(windows.closed.id, 1);
    CHECK_EQ(windows.closed.from, gb_ms(1));
    CHECK_EQ(windows.closed.to, gb_ms(4));
    CHECK_EQ(gb_matrix_row(&windows.closed.counts, 0, 1)[3], 11);
    CHECK_EQ(windows.running.id, 2);
    CHECK_EQ(gb_matrix_row(&windows.running.counts, 0, 1)[3], 0);
    add(7, gb_seconds(60), gb_seconds(61));
    CHECK_EQ(windows.running.from, gb_seconds(60));
    CHECK_EQ(gb_matrix_row(&windows.running.counts, 0, 1)[3], 7);
    CHECK_EQ(gb_matrix_row(&windows.closed.counts, 0, 1)[3], 11);
    stop();
}

static void windows_of_one_round_take_turns_in_two_matrices(void)
{
    start(1);
    for (uint64_t i = 1; i <= 10; i++) {
        CHECK(add(i, gb_ms(i), gb_ms(i + 1)));
        CHECK_EQ(windows.closed.id, i);
        CHECK_EQ(gb_matrix_row(&windows.closed.counts, 0, 1)[3], i);
        CHECK_EQ(gb_matrix_row(&windows.running.counts, 0, 1)[3], 0);
    }
    stop();
}

static void a_window_that_has_lasted_long_enough_closes_with_the_round_that_says_so(void)
{
    start_timed(100, gb_ms(10));
    CHECK(!add(1, gb_ms(5), gb_ms(6)));
    CHECK(!add(1, gb_ms(6), gb_ms(14)));
    CHECK(add(1, gb_ms(14), gb_ms(15)));
    CHECK_EQ(windows.closed.rounds, 3);
    CHECK_EQ(windows.closed.from, gb_ms(5));
    CHECK_EQ(windows.closed.to, gb_ms(15));
    CHECK(!add(1, gb_ms(100), gb_ms(101)));    /* idle time is nobody's window */
    CHECK_EQ(windows.running.from, gb_ms(100));
    stop();
}

TESTS(TEST(a_window_that_has_lasted_long_enough_closes_with_the_round_that_says_so), TEST(nothing_is_closed_before_the_first_window_is_full),
      TEST(a_full_window_is_kept_closed_with_its_bounds_while_the_next_one_counts),
      TEST(windows_of_one_round_take_turns_in_two_matrices))
