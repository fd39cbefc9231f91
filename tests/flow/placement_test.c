#include "core/flow/placement.h"

#include "tests/check.h"

static gb_arena arena;

static void make(gb_placement *p, uint32_t spare)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_placement_init(p, &arena, 2, 2, 8, 4, spare, NULL), 0);
}

static void linear_puts_consecutive_experts_on_a_rank(void)
{
    gb_placement p;
    make(&p, 1);
    CHECK_EQ(gb_placement_check(&p, NULL), 0);
    CHECK_EQ(gb_placement_rank_of_slot(&p, gb_placement_routes(&p, 1, 0)[5]), 2);
    CHECK_EQ(gb_placement_layer_slots(&p, 0)[2], -1);
    gb_arena_deinit(&arena);
}

static void experts_that_do_not_divide_are_refused_with_both_numbers(void)
{
    gb_placement p;
    gb_error err = {{0}};
    gb_arena_init(&arena);
    CHECK_EQ(gb_placement_init(&p, &arena, 1, 1, 8, 3, 0, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "8 experts");
    CHECK_CONTAINS(err.text, "3 ranks");
    gb_arena_deinit(&arena);
}

static void a_missing_expert_is_named(void)
{
    gb_placement p;
    gb_error err = {{0}};
    make(&p, 0);
    gb_placement_layer_slots(&p, 1)[5] = -1;
    CHECK_EQ(gb_placement_check(&p, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "layer 1 source 0 sends expert 5 to slot 5");
    gb_arena_deinit(&arena);
}

static void two_copies_on_one_rank_are_refused(void)
{
    gb_placement p;
    gb_error err = {{0}};
    make(&p, 1);
    gb_placement_layer_slots(&p, 0)[2] = 0;
    CHECK_EQ(gb_placement_check(&p, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "rank 0 holds expert 0 twice");
    gb_arena_deinit(&arena);
}

/* Expert 3's replica on rank 0 takes a quarter of source 1's tokens. */
static void a_split_follows_the_token_hash_in_its_share(void)
{
    gb_placement p;
    make(&p, 1);
    gb_placement_layer_slots(&p, 0)[2] = 3;
    size_t i = gb_placement_route_index(&p, 0, 1, 3);
    p.other[i] = 2;
    p.other_share[i] = GB_SHARES / 4;
    CHECK_EQ(gb_placement_check(&p, NULL), 0);
    int other = 0;
    for (uint64_t token = 0; token < 4000; token++) {
        int32_t slot = gb_placement_slot(&p, 0, 1, 3, token);
        CHECK(slot == 2 || slot == p.route[i]);
        CHECK_EQ(slot, gb_placement_slot(&p, 0, 1, 3, token));
        CHECK_EQ(gb_placement_slot(&p, 0, 0, 3, token), p.route[i]);
        other += slot == 2;
    }
    CHECK_NEAR(other, 1000, 100);
    gb_arena_deinit(&arena);
}

static void a_split_to_a_slot_without_the_expert_is_refused(void)
{
    gb_placement p;
    gb_error err = {{0}};
    make(&p, 1);
    p.other[gb_placement_route_index(&p, 1, 0, 3)] = 2;
    CHECK_EQ(gb_placement_check(&p, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "layer 1 source 0 splits expert 3 to slot 2");
    gb_arena_deinit(&arena);
}

TESTS(TEST(a_split_follows_the_token_hash_in_its_share), TEST(a_split_to_a_slot_without_the_expert_is_refused),
      TEST(linear_puts_consecutive_experts_on_a_rank), TEST(experts_that_do_not_divide_are_refused_with_both_numbers),
      TEST(a_missing_expert_is_named), TEST(two_copies_on_one_rank_are_refused))
