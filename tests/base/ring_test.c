#include "core/base/ring.h"

#include "tests/check.h"

static void items_leave_in_the_order_they_came(void)
{
    int items[3];
    gb_ring ring = {.capacity = 3};
    for (int i = 0; i < 3; i++) items[gb_ring_push(&ring)] = i;
    CHECK(gb_ring_full(&ring));
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(items[gb_ring_pop(&ring)], i);
        items[gb_ring_push(&ring)] = i + 3;
        CHECK_EQ(items[gb_ring_place(&ring, 2)], i + 3);
    }
}

static void a_ring_that_runs_empty_starts_over_at_the_first_place(void)
{
    gb_ring ring = {.capacity = 1000};
    for (int i = 0; i < 5000; i++) {
        CHECK_EQ(gb_ring_push(&ring), 0);
        CHECK_EQ(gb_ring_push(&ring), 1);
        CHECK_EQ(gb_ring_pop(&ring), 0);
        CHECK_EQ(gb_ring_pop(&ring), 1);
    }
}

static void a_wrapped_ring_keeps_its_order(void)
{
    gb_ring ring = {.capacity = 4};
    for (int i = 0; i < 4; i++) gb_ring_push(&ring);
    gb_ring_pop(&ring);
    gb_ring_pop(&ring);
    CHECK_EQ(gb_ring_push(&ring), 0);
    CHECK_EQ(gb_ring_place(&ring, 0), 2);
    CHECK_EQ(gb_ring_place(&ring, 2), 0);
    CHECK_EQ(ring.count, 3);
}

TESTS(TEST(items_leave_in_the_order_they_came), TEST(a_ring_that_runs_empty_starts_over_at_the_first_place),
      TEST(a_wrapped_ring_keeps_its_order))
