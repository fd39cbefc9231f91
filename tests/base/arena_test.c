#include "core/base/arena.h"

#include "tests/check.h"

static void pieces_are_zeroed_aligned_and_apart(void)
{
    gb_arena arena;
    gb_arena_init(&arena);
    char *a = gb_arena_take(&arena, 3, 1), *b = gb_arena_take(&arena, 1 << 20, 1), *c = gb_arena_take(&arena, 10, 8);
    CHECK(a && b && c);
    CHECK_EQ((uintptr_t)a % 64, 0);
    CHECK_EQ((uintptr_t)b % 64, 0);
    CHECK_EQ((uintptr_t)c % 64, 0);
    for (int i = 0; i < 1 << 20; i++) CHECK(b[i] == 0);
    memset(a, 1, 3);
    memset(b, 2, 1 << 20);
    memset(c, 3, 80);
    CHECK(a[2] == 1 && b[0] == 2 && b[(1 << 20) - 1] == 2 && c[79] == 3);
    gb_arena_deinit(&arena);
}

static void a_product_that_overflows_gives_null(void)
{
    gb_arena arena;
    gb_arena_init(&arena);
    CHECK(gb_arena_take(&arena, SIZE_MAX / 2, 4) == NULL);
    CHECK(gb_arena_take(&arena, SIZE_MAX, SIZE_MAX) == NULL);
    gb_arena_deinit(&arena);
}

TESTS(TEST(pieces_are_zeroed_aligned_and_apart), TEST(a_product_that_overflows_gives_null))
