#include "core/serve/kv.h"

#include "tests/check.h"

static gb_arena arena;
static gb_kv kv;
static int32_t a_blocks[8], b_blocks[8], c_blocks[8];
static uint64_t a_hashes[8], b_hashes[8], c_hashes[8];
static gb_kv_share a, b, c;
static int32_t text[128], other[128];    /* other differs from text in its second block */

static void fresh(gb_kv_share *share, int32_t *blocks, uint64_t *hashes)
{
    *share = (gb_kv_share){.blocks = blocks, .hashes = hashes, .capacity = 8};
}

static void start_sharing(bool sharing)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_kv_init(&kv, &arena, 6, sharing), 0);
    fresh(&a, a_blocks, a_hashes);
    fresh(&b, b_blocks, b_hashes);
    fresh(&c, c_blocks, c_hashes);
    for (int i = 0; i < 128; i++) text[i] = other[i] = i * 3;
    other[20] = 1000;
}

static void start(void) { start_sharing(true); }

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

/* --- sharing --- */

/* A request that computes a whole text and ends. */
static void compute(gb_kv_share *share, const int32_t *tokens, uint32_t n)
{
    CHECK(gb_kv_take(&kv, share, tokens, n, n));
    gb_kv_publish(&kv, share, tokens, n);
}

static void a_text_computed_once_is_found_by_the_next_request(void)
{
    start();
    compute(&a, text, 50);
    CHECK_EQ(a.n_shared, 3);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, text, 60), 48);
    CHECK(gb_kv_take(&kv, &b, text, 60, 60));
    CHECK_EQ(b.n_shared, 3);
    CHECK_EQ(b.n_blocks, 4);
    CHECK(memcmp(a.blocks, b.blocks, 3 * sizeof *a.blocks) == 0);
    CHECK(a.blocks[3] != b.blocks[3]);
    CHECK_EQ(gb_kv_held(&kv), 5);
    gb_kv_release(&kv, &a);
    CHECK_EQ(gb_kv_held(&kv), 4);
    gb_kv_release(&kv, &b);
    CHECK_EQ(gb_kv_held(&kv), 0);
    CHECK_EQ(kv.n_idle, 3);
    stop();
}

static void only_what_is_computed_is_shared(void)
{
    start();
    CHECK(gb_kv_take(&kv, &a, text, 50, 50));
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, text, 50), 0);
    gb_kv_publish(&kv, &a, text, 31);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, text, 50), 16);
    gb_kv_publish(&kv, &a, text, 32);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, text, 50), 32);
    stop();
}

static void the_last_token_is_always_computed(void)
{
    start();
    compute(&a, text, 48);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, text, 48), 32);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, text, 49), 48);
    fresh(&b, b_blocks, b_hashes);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, text, 16), 0);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, text, 1), 0);
    stop();
}

static void texts_share_up_to_the_block_in_which_they_differ(void)
{
    start();
    compute(&a, text, 50);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, other, 50), 16);
    stop();
}

static void two_that_compute_one_text_end_up_with_one_copy(void)
{
    start();
    CHECK(gb_kv_take(&kv, &a, text, 40, 40));
    CHECK(gb_kv_take(&kv, &b, text, 40, 40));
    CHECK_EQ(kv.n_free, 0);
    gb_kv_publish(&kv, &a, text, 40);
    gb_kv_publish(&kv, &b, text, 40);
    CHECK_EQ(kv.n_free, 2);
    CHECK_EQ(b.n_shared, 2);
    CHECK(memcmp(a.blocks, b.blocks, 2 * sizeof *a.blocks) == 0);
    CHECK(a.blocks[2] != b.blocks[2]);
    gb_kv_release(&kv, &a);
    CHECK_EQ(kv.n_idle, 0);
    stop();
}

static void what_has_been_idle_longest_is_given_away_first_and_from_its_end(void)
{
    start();
    compute(&a, text, 49);          /* 3 full blocks and one more */
    gb_kv_release(&kv, &a);
    compute(&b, other, 33);         /* shares the first, adds a second of its own */
    gb_kv_release(&kv, &b);
    CHECK_EQ(kv.n_idle, 4);
    CHECK_EQ(kv.n_free, 2);
    CHECK(gb_kv_grow(&kv, &c, 48));    /* two free ones and the oldest idle one: the text's third block */
    fresh(&a, a_blocks, a_hashes);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &a, text, 50), 32);
    CHECK(gb_kv_grow(&kv, &c, 64));
    CHECK_EQ(gb_kv_cached_tokens(&kv, &a, text, 50), 16);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, other, 50), 32);
    CHECK(gb_kv_grow(&kv, &c, 96));
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, other, 50), 0);
    CHECK(!gb_kv_grow(&kv, &c, 97));
    stop();
}

static void a_text_in_use_is_not_given_away(void)
{
    start();
    compute(&a, text, 48);
    CHECK(gb_kv_take(&kv, &b, text, 49, 49));
    gb_kv_release(&kv, &a);
    CHECK(!gb_kv_grow(&kv, &c, 48));
    CHECK(gb_kv_grow(&kv, &c, 32));
    CHECK_EQ(gb_kv_cached_tokens(&kv, &a, text, 49), 48);
    stop();
}

/* The idle blocks that a request would share do not count as room for the rest of it. */
static void a_take_that_does_not_fit_changes_nothing(void)
{
    start();
    compute(&a, text, 48);
    gb_kv_release(&kv, &a);
    CHECK(gb_kv_grow(&kv, &c, 32));
    CHECK_EQ(gb_kv_available(&kv), 4);
    CHECK(!gb_kv_take(&kv, &b, text, 49, 81));    /* 6 blocks, 3 of them there: 3 more, but only 1 is left beside them */
    CHECK_EQ(b.n_blocks, 0);
    CHECK_EQ(gb_kv_available(&kv), 4);
    CHECK(gb_kv_take(&kv, &b, text, 49, 64));
    CHECK_EQ(b.n_shared, 3);
    stop();
}

static void a_look_notices_that_what_it_found_was_given_away(void)
{
    start();
    compute(&a, text, 64);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, text, 65), 64);
    gb_kv_release(&kv, &a);
    CHECK(gb_kv_grow(&kv, &c, 64));              /* two of the text's blocks go */
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, text, 65), 32);
    stop();
}

static void a_cache_that_is_forgotten_shares_nothing(void)
{
    start();
    compute(&a, text, 48);
    compute(&b, other, 48);
    gb_kv_release(&kv, &b);
    CHECK_EQ(kv.n_idle, 2);
    gb_kv_forget(&kv);
    CHECK_EQ(kv.n_idle, 0);
    CHECK_EQ(gb_kv_held(&kv), 3);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &c, text, 48), 0);
    gb_kv_release(&kv, &a);
    CHECK_EQ(kv.n_free, 6);
    stop();
}

static void without_sharing_nothing_is_found(void)
{
    start_sharing(false);
    compute(&a, text, 48);
    CHECK_EQ(a.n_shared, 0);
    CHECK_EQ(gb_kv_cached_tokens(&kv, &b, text, 48), 0);
    gb_kv_release(&kv, &a);
    CHECK_EQ(kv.n_free, 6);
    stop();
}

TESTS(TEST(a_text_computed_once_is_found_by_the_next_request), TEST(only_what_is_computed_is_shared),
      TEST(the_last_token_is_always_computed), TEST(texts_share_up_to_the_block_in_which_they_differ),
      TEST(two_that_compute_one_text_end_up_with_one_copy),
      TEST(what_has_been_idle_longest_is_given_away_first_and_from_its_end), TEST(a_text_in_use_is_not_given_away),
      TEST(a_take_that_does_not_fit_changes_nothing), TEST(a_look_notices_that_what_it_found_was_given_away),
      TEST(a_cache_that_is_forgotten_shares_nothing), TEST(without_sharing_nothing_is_found),
      TEST(blocks_cover_positions), TEST(growing_takes_only_what_is_missing), TEST(growth_that_does_not_fit_takes_nothing),
      TEST(no_block_has_two_owners), TEST(released_blocks_come_back_first))
