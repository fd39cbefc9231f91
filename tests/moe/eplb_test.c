#include "core/moe/eplb.h"

#include "core/moe/score.h"
#include "tests/check.h"

/* The two layers of EPLB's README. */
static const double loads[2][12] = {{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86}, {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};

static void check_slots(const double *load, gb_eplb_shape shape, const int32_t *expected)
{
    int32_t slots[64];
    CHECK_EQ(gb_eplb_check(&shape, NULL), 0);
    gb_eplb_layer(slots, load, &shape);
    for (uint32_t i = 0; i < shape.slots; i++) CHECK_EQ(slots[i], expected[i]);
}

static void both_vectors_of_the_readme_come_out_to_the_slot(void)
{
    gb_eplb_shape shape = {12, 16, 4, 2, 8};
    check_slots(loads[0], shape, (int32_t[]){5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1});
    check_slots(loads[1], shape, (int32_t[]){7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1});
}

static void the_global_policy_agrees_with_the_port_of_the_research(void)
{
    check_slots(loads[0], (gb_eplb_shape){12, 16, 1, 1, 8}, (int32_t[]){10, 6, 10, 7, 0, 2, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1});
    check_slots(loads[0], (gb_eplb_shape){12, 12, 1, 1, 4}, (int32_t[]){10, 3, 7, 5, 8, 6, 1, 11, 2, 4, 0, 9});
}

static void a_second_copy_on_one_rank_leaves_its_slot_empty(void)
{
    gb_arena arena;
    gb_arena_init(&arena);
    gb_placement p;
    double traffic[8] = {1000, 1, 1, 1, 1, 1, 1, 1};
    CHECK_EQ(gb_placement_init(&p, &arena, 1, 1, 8, 4, 2, NULL), 0);
    CHECK_EQ(gb_eplb_place(&p, traffic, 1, 1, NULL), 0);
    gb_error err = {{0}};
    CHECK_EQ(gb_placement_check(&p, &err), 0);
    uint32_t empty = 0, copies = 0;
    for (uint32_t i = 0; i < 16; i++) empty += gb_placement_layer_slots(&p, 0)[i] < 0, copies += gb_placement_layer_slots(&p, 0)[i] == 0;
    CHECK_EQ(copies, 4);
    CHECK_EQ(empty, 5);
    gb_arena_deinit(&arena);
}

static void copies_share_the_load_evenly_over_the_sources(void)
{
    gb_arena arena;
    gb_arena_init(&arena);
    gb_placement p;
    gb_links links;
    double traffic[2][4] = {{90, 10, 10, 10}, {30, 10, 10, 10}};
    CHECK_EQ(gb_placement_init(&p, &arena, 1, 2, 4, 2, 1, NULL), 0);
    CHECK_EQ(gb_links_init(&links, &arena, 2, 2, NULL), 0);
    CHECK_EQ(gb_eplb_place(&p, &traffic[0][0], 1, 1, NULL), 0);
    CHECK_EQ(gb_placement_check(&p, NULL), 0);
    gb_place_weights w = gb_place_weights_paper();
    gb_place_report r;
    gb_score_placement(&r, &w, &links, &traffic[0][0], &p, NULL, 1);
    CHECK_NEAR(r.max_over_mean, 100.0 / 90, 0.01);    /* 60 + 20 + 20 against 60 + 20 */
    gb_arena_deinit(&arena);
}

static void shapes_that_do_not_divide_are_named(void)
{
    gb_error err = {{0}};
    CHECK_EQ(gb_eplb_check(&(gb_eplb_shape){12, 16, 5, 1, 8}, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "12 experts cannot be split evenly over 5 groups");
    CHECK_EQ(gb_eplb_check(&(gb_eplb_shape){12, 16, 4, 3, 8}, &err), GB_EINVAL);
    CHECK_EQ(gb_eplb_check(&(gb_eplb_shape){12, 16, 4, 2, 6}, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "16 slots cannot be split evenly over 6 ranks");
    CHECK_EQ(gb_eplb_check(&(gb_eplb_shape){12, 8, 4, 2, 8}, &err), GB_EINVAL);
    CHECK_EQ(gb_eplb_check(&(gb_eplb_shape){12, 16, 4, 0, 8}, &err), GB_EINVAL);
}

TESTS(TEST(both_vectors_of_the_readme_come_out_to_the_slot), TEST(the_global_policy_agrees_with_the_port_of_the_research),
      TEST(a_second_copy_on_one_rank_leaves_its_slot_empty), TEST(copies_share_the_load_evenly_over_the_sources),
      TEST(shapes_that_do_not_divide_are_named))
