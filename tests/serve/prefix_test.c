#include "core/serve/prefix.h"

#include "tests/check.h"

enum { BLOCKS = 8 };

static gb_arena arena;
static gb_prefix prefix;
static int32_t text[3][GB_BLOCK_TOKENS];

static void start(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_prefix_init(&prefix, &arena, BLOCKS), 0);
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < GB_BLOCK_TOKENS; i++) text[t][i] = t * 100 + i;
}

static void stop(void) { gb_arena_deinit(&arena); }

static void a_block_is_found_by_its_parent_and_its_tokens(void)
{
    start();
    uint64_t one = gb_prefix_hash(0, text[0]), two = gb_prefix_hash(one, text[1]);
    CHECK_EQ(gb_prefix_find(&prefix, GB_PREFIX_ROOT, one, text[0]), -1);
    gb_prefix_add(&prefix, 5, GB_PREFIX_ROOT, one, text[0]);
    gb_prefix_add(&prefix, 2, 5, two, text[1]);
    CHECK_EQ(gb_prefix_find(&prefix, GB_PREFIX_ROOT, one, text[0]), 5);
    CHECK_EQ(gb_prefix_find(&prefix, 5, two, text[1]), 2);
    CHECK_EQ(gb_prefix_find(&prefix, GB_PREFIX_ROOT, two, text[1]), -1);
    CHECK(gb_prefix_has(&prefix, 5) && gb_prefix_has(&prefix, 2) && !gb_prefix_has(&prefix, 0));
    stop();
}

/* The same hash for everything is the worst that a hash can do. */
static void texts_with_one_hash_are_told_apart(void)
{
    start();
    gb_prefix_add(&prefix, 0, GB_PREFIX_ROOT, 7, text[0]);
    gb_prefix_add(&prefix, 1, GB_PREFIX_ROOT, 7, text[1]);
    gb_prefix_add(&prefix, 2, 0, 7, text[0]);
    gb_prefix_add(&prefix, 3, 1, 7, text[0]);
    CHECK_EQ(gb_prefix_find(&prefix, GB_PREFIX_ROOT, 7, text[0]), 0);
    CHECK_EQ(gb_prefix_find(&prefix, GB_PREFIX_ROOT, 7, text[1]), 1);
    CHECK_EQ(gb_prefix_find(&prefix, 0, 7, text[0]), 2);
    CHECK_EQ(gb_prefix_find(&prefix, 1, 7, text[0]), 3);
    CHECK_EQ(gb_prefix_find(&prefix, GB_PREFIX_ROOT, 7, text[2]), -1);
    gb_prefix_remove(&prefix, 2);
    gb_prefix_remove(&prefix, 0);
    CHECK_EQ(gb_prefix_find(&prefix, GB_PREFIX_ROOT, 7, text[0]), -1);
    CHECK_EQ(gb_prefix_find(&prefix, GB_PREFIX_ROOT, 7, text[1]), 1);
    CHECK_EQ(gb_prefix_find(&prefix, 1, 7, text[0]), 3);
    stop();
}

static void a_block_that_comes_back_has_another_serial(void)
{
    start();
    uint64_t hash = gb_prefix_hash(0, text[0]);
    gb_prefix_add(&prefix, 4, GB_PREFIX_ROOT, hash, text[0]);
    uint64_t serial = prefix.nodes[4].serial;
    gb_prefix_remove(&prefix, 4);
    CHECK_EQ(prefix.nodes[4].serial, 0);
    gb_prefix_add(&prefix, 4, GB_PREFIX_ROOT, hash, text[0]);
    CHECK(prefix.nodes[4].serial != serial);
    gb_prefix_clear(&prefix);
    CHECK(!gb_prefix_has(&prefix, 4));
    CHECK_EQ(gb_prefix_find(&prefix, GB_PREFIX_ROOT, hash, text[0]), -1);
    gb_prefix_add(&prefix, 4, GB_PREFIX_ROOT, hash, text[0]);
    CHECK(prefix.nodes[4].serial > serial + 1);
    stop();
}

static void the_hash_depends_on_every_token_and_on_what_came_before(void)
{
    start();
    uint64_t hash = gb_prefix_hash(0, text[0]);
    CHECK(gb_prefix_hash(hash, text[0]) != hash);
    for (int i = 0; i < GB_BLOCK_TOKENS; i++) {
        text[0][i]++;
        CHECK(gb_prefix_hash(0, text[0]) != hash);
        text[0][i]--;
    }
    CHECK(gb_prefix_hash(0, text[0]) == hash);
    stop();
}

TESTS(TEST(a_block_is_found_by_its_parent_and_its_tokens), TEST(texts_with_one_hash_are_told_apart),
      TEST(a_block_that_comes_back_has_another_serial), TEST(the_hash_depends_on_every_token_and_on_what_came_before))
