#include "core/serve/kv.h"

#include "tests/check.h"

static gb_arena arena;
static gb_kv kv;
static int32_t a_blocks[8], b_blocks[8];
static gb_kv_share a, b;

static void start(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_kv_init(&kv, &arena, 6), 0);
    a = (gb_kv_share){.blocks = a_blocks, .capacity = 8};
    b = (gb_kv_share){.blocks = b_blocks, .capacity = 8};
}

static void stop(void) { gb_arena_deinit(&arena); }

static void blocks_cover_positions(void)
{
    CHECK_EQ(gb_kv_blocks_for(0), 0);
    CHECK_EQ(gb_kv_blocks_for(1), 1);
    CHECK_EQ(gb_kv_blocks_for(16), 1);
    CHECK_EQ(gb_kv_blocks_for(17), 2);
    CHECK_EQ(gb_kv_blocks_for(UINT32_MAX), 1u << 28);
}

static void growing_takes_only_what_is_missing(void)
{
    start();
    CHECK(gb_kv_grow(&kv, &a, 17));
    CHECK_EQ(a.n_blocks, 2);
    CHECK(gb_kv_grow(&kv, &a, 32));
    CHECK_EQ(a.n_blocks, 2);
    CHECK(gb_kv_grow(&kv, &a, 33));
    CHECK_EQ(a.n_blocks, 3);
    CHECK_EQ(kv.n_free, 3);
    CHECK(gb_kv_grow(&kv, &a, 1));
    CHECK_EQ(a.n_blocks, 3);
    stop();
}

static void growth_that_does_not_fit_takes_nothing(void)
{
    start();
    CHECK(gb_kv_grow(&kv, &a, 64));
    CHECK(!gb_kv_grow(&kv, &b, 48));
    CHECK_EQ(b.n_blocks, 0);
    CHECK_EQ(kv.n_free, 2);
    CHECK(gb_kv_grow(&kv, &b, 32));
    CHECK_EQ(kv.n_free, 0);
    stop();
}

static void no_block_has_two_owners(void)
{
    start();
    gb_kv_grow(&kv, &a, 48);
    gb_kv_grow(&kv, &b, 48);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(a.blocks[i] >= 0 && a.blocks[i] < 6);
        for (uint32_t j = 0; j < 3; j++) CHECK(a.blocks[i] != b.blocks[j]);
    }
    stop();
}

static void released_blocks_come_back_first(void)
{
    start();
    gb_kv_grow(&kv, &a, 32);
    CHECK_EQ(a.blocks[0], 0);
    CHECK_EQ(a.blocks[1], 1);
    gb_kv_release(&kv, &a);
    CHECK_EQ(kv.n_free, 6);
    CHECK_EQ(a.n_blocks, 0);
    gb_kv_grow(&kv, &b, 32);
    CHECK_EQ(b.blocks[0], 0);
    CHECK_EQ(b.blocks[1], 1);
    stop();
}

TESTS(TEST(blocks_cover_positions), TEST(growing_takes_only_what_is_missing), TEST(growth_that_does_not_fit_takes_nothing),
      TEST(no_block_has_two_owners), TEST(released_blocks_come_back_first))
