#include "core/moe/trade.h"

#include "tests/check.h"

static gb_arena arena;
static gb_placement p;

static void start(uint32_t layers, uint32_t experts, uint32_t ranks, uint32_t spare)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_placement_init(&p, &arena, layers, 2, experts, ranks, spare, NULL), GB_OK);
}

static void stop(void) { gb_arena_deinit(&arena); }

static void two_experts_trade_slots_and_their_routes_follow(void)
{
    start(2, 8, 4, 0);
    gb_trade_slots(&p, 1, 0, 7);
    CHECK_EQ(gb_placement_layer_slots(&p, 1)[0], 7);
    CHECK_EQ(gb_placement_layer_slots(&p, 1)[7], 0);
    for (uint32_t s = 0; s < 2; s++) {
        CHECK_EQ(gb_placement_routes(&p, 1, s)[0], 7);
        CHECK_EQ(gb_placement_routes(&p, 1, s)[7], 0);
    }
    CHECK_EQ(gb_placement_layer_slots(&p, 0)[0], 0);
    CHECK_EQ(gb_placement_check(&p, NULL), GB_OK);
    stop();
}

static uint32_t experts_elsewhere(const gb_placement *before, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < gb_placement_slots(&p); i++)
        n += gb_placement_layer_slots(&p, layer)[i] != gb_placement_layer_slots(before, layer)[i];
    return n;
}

static void at_random_two_experts_of_two_ranks_trade_in_every_layer(void)
{
    gb_placement before;
    gb_rng rng;
    start(5, 12, 3, 0);
    CHECK_EQ(gb_placement_init(&before, &arena, 5, 2, 12, 3, 0, NULL), GB_OK);
    gb_rng_init(&rng, 7);
    for (int i = 0; i < 50; i++) {
        gb_placement_copy(&before, &p);
        gb_trade_at_random(&p, &rng);
        CHECK_EQ(gb_placement_check(&p, NULL), GB_OK);
        for (uint32_t l = 0; l < 5; l++) CHECK_EQ(experts_elsewhere(&before, l), 2);
    }
    stop();
}

/* Ranks 0 and 1 both hold expert 0: it never trades between them. */
static void no_trade_puts_an_expert_on_a_rank_twice(void)
{
    gb_rng rng;
    start(1, 4, 2, 1);
    gb_placement_layer_slots(&p, 0)[5] = 0;
    gb_rng_init(&rng, 7);
    for (int i = 0; i < 200; i++) {
        gb_trade_at_random(&p, &rng);
        CHECK_EQ(gb_placement_check(&p, NULL), GB_OK);
    }
    stop();
}

static void one_rank_has_nobody_to_trade_with(void)
{
    gb_rng rng;
    start(3, 4, 1, 0);
    gb_rng_init(&rng, 7);
    gb_trade_at_random(&p, &rng);
    for (int32_t i = 0; i < 4; i++) CHECK_EQ(gb_placement_layer_slots(&p, 2)[i], i);
    stop();
}

TESTS(TEST(two_experts_trade_slots_and_their_routes_follow), TEST(at_random_two_experts_of_two_ranks_trade_in_every_layer),
      TEST(no_trade_puts_an_expert_on_a_rank_twice), TEST(one_rank_has_nobody_to_trade_with))
