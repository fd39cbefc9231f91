#include "core/flow/matrix.h"

#include "tests/check.h"

static gb_arena arena;

static gb_matrix make(void)
{
    gb_matrix m;
    gb_arena_init(&arena);
    CHECK_EQ(gb_matrix_init(&m, &arena, 2, 3, 4), 0);
    return m;
}

static void rows_are_layer_then_source_then_expert(void)
{
    gb_matrix m = make();
    gb_matrix_row(&m, 1, 2)[3] = 9;
    CHECK_EQ(m.counts[1 * 12 + 2 * 4 + 3], 9);
    CHECK_EQ(gb_matrix_cells(&m), 24);
    gb_arena_deinit(&arena);
}

static void b_is_a_summed_over_sources(void)
{
    uint64_t b[8];
    gb_matrix m = make();
    for (uint32_t s = 0; s < 3; s++) gb_matrix_row(&m, 1, s)[2] = 10 + s;
    gb_matrix_sum_sources(&m, b);
    CHECK_EQ(b[4 + 2], 33);
    CHECK_EQ(b[2], 0);
    gb_arena_deinit(&arena);
}

static void add_and_clear(void)
{
    gb_matrix m = make(), n;
    CHECK_EQ(gb_matrix_init(&n, &arena, 2, 3, 4), 0);
    gb_matrix_row(&m, 0, 0)[0] = UINT32_MAX;
    gb_matrix_row(&n, 0, 0)[0] = 1;
    gb_matrix_add(&m, &n);
    CHECK_EQ(gb_matrix_row(&m, 0, 0)[0], (uint64_t)UINT32_MAX + 1);
    gb_matrix_clear(&m);
    CHECK_EQ(gb_matrix_row(&m, 0, 0)[0], 0);
    gb_arena_deinit(&arena);
}

TESTS(TEST(rows_are_layer_then_source_then_expert), TEST(b_is_a_summed_over_sources), TEST(add_and_clear))
