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

/* A round from start to end; whether it is the window's last is known from the start. */
static bool add_pending(uint64_t count, bool pending, gb_time started, gb_time now)
{
    bool last = gb_windows_begin(&windows, started);
    gb_matrix_row(&round_counts, 0, 1)[3] = count;
    CHECK_EQ(gb_windows_add(&windows, &round_counts, pending, now), last);
    return last;
}

static bool add(uint64_t count, gb_time started, gb_time now) { return add_pending(count, false, started, now); }

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

static void a_window_that_has_lasted_long_enough_closes_with_the_next_round(void)
{
    start_timed(100, gb_ms(10));
    CHECK(!add(1, gb_ms(5), gb_ms(6)));
    CHECK(!add(1, gb_ms(14), gb_ms(20)));      /* it was early when this one began */
    CHECK(add(1, gb_ms(21), gb_ms(22)));
    CHECK_EQ(windows.closed.rounds, 3);
    CHECK_EQ(windows.closed.from, gb_ms(5));
    CHECK_EQ(windows.closed.to, gb_ms(22));
    CHECK(!add(1, gb_ms(100), gb_ms(101)));    /* idle time is nobody's window */
    CHECK_EQ(windows.running.from, gb_ms(100));
    stop();
}

static void counts_that_come_with_the_last_round_make_the_same_window(void)
{
    start(3);
    CHECK(!add_pending(0, true, gb_ms(1), gb_ms(2)));
    CHECK(!add_pending(0, true, gb_ms(3), gb_ms(4)));
    CHECK_EQ(windows.running.rounds, 2);
    CHECK_EQ(windows.running.counted, 0);
    CHECK(add_pending(11, false, gb_ms(5), gb_ms(6)));
    CHECK_EQ(windows.closed.rounds, 3);
    CHECK_EQ(windows.closed.counted, 3);
    CHECK_EQ(windows.closed.from, gb_ms(1));
    CHECK_EQ(gb_matrix_row(&windows.closed.counts, 0, 1)[3], 11);
    CHECK(!add(4, gb_ms(7), gb_ms(8)));
    CHECK_EQ(windows.running.counted, 1);
    stop();
}

static void a_failed_round_takes_the_running_window_with_it(void)
{
    start(2);
    add(5, gb_ms(1), gb_ms(2));
    add(6, gb_ms(3), gb_ms(4));
    add(7, gb_ms(5), gb_ms(6));
    CHECK(gb_windows_begin(&windows, gb_ms(7)));
    gb_windows_fail(&windows);
    CHECK_EQ(windows.closed.id, 1);
    CHECK_EQ(gb_matrix_row(&windows.closed.counts, 0, 1)[3], 11);
    CHECK_EQ(windows.running.id, 2);
    CHECK_EQ(windows.running.rounds, 0);
    CHECK_EQ(gb_matrix_row(&windows.running.counts, 0, 1)[3], 0);
    CHECK(!add(8, gb_ms(9), gb_ms(10)));
    CHECK(add(9, gb_ms(11), gb_ms(12)));
    CHECK_EQ(windows.closed.from, gb_ms(9));
    CHECK_EQ(gb_matrix_row(&windows.closed.counts, 0, 1)[3], 17);
    stop();
}

TESTS(TEST(a_window_that_has_lasted_long_enough_closes_with_the_next_round), TEST(counts_that_come_with_the_last_round_make_the_same_window),
      TEST(a_failed_round_takes_the_running_window_with_it), TEST(nothing_is_closed_before_the_first_window_is_full),
      TEST(a_full_window_is_kept_closed_with_its_bounds_while_the_next_one_counts),
      TEST(windows_of_one_round_take_turns_in_two_matrices))
