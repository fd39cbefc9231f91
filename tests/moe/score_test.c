#include "core/moe/score.h"

#include "tests/check.h"
#include "tests/moe/fixture.h"

static gb_arena arena;

static gb_layer score(const moe_fixture *f, const int32_t *home)
{
    gb_layer layer = {f->experts, f->ranks, GB_ARENA_NEW(&arena, double, (size_t)f->ranks * f->experts), GB_ARENA_NEW(&arena, double, f->experts)};
    gb_score_layer(&layer, &f->weights, &f->links, f->flow, home, NULL);
    return layer;
}

static void the_objective_agrees_with_an_independent_evaluation(void)
{
    gb_arena_init(&arena);
    for (int i = 0; i < MOE_FIXTURES; i++) {
        moe_fixture f = moe_fixture_read(moe_fixture_files[i], &arena);
        gb_layer layer = score(&f, f.home);
        CHECK_NEAR(gb_score_objective(&layer, &f.weights, f.home), f.stay, 1e-9 * f.stay);
        CHECK_NEAR(gb_score_objective(&layer, &f.weights, f.optimal), f.best, 1e-9 * f.best);
        CHECK_NEAR(gb_score_objective(&layer, &f.weights, f.greedy), f.greedy_objective, 1e-9 * f.greedy_objective);
    }
    gb_arena_deinit(&arena);
}

/* Experts 0, 1 belong to source 0 and 2, 3 to source 1; 1 and 3 sit on the wrong rank. */
static void the_terms_of_a_hand_made_layer_are_what_one_computes_by_hand(void)
{
    gb_arena_init(&arena);
    double flow[2][4] = {{40, 10, 5, 5}, {5, 5, 10, 40}};
    gb_place_weights w = {1, 0.5, 2, GB_IMBALANCE_MAX};
    gb_links links;
    CHECK_EQ(gb_links_init(&links, &arena, 2, 2, NULL), 0);
    int32_t home[4] = {0, 1, 0, 1}, other[4] = {0, 0, 1, 1};
    gb_layer layer = {4, 2, GB_ARENA_NEW(&arena, double, 8), GB_ARENA_NEW(&arena, double, 4)};
    gb_score_layer(&layer, &w, &links, &flow[0][0], home, NULL);
    double b = 120.0 / 4;
    CHECK_NEAR(layer.load[0], 45 / b, 1e-12);
    CHECK_NEAR(layer.cost[0 * 4 + 0], 5 / b, 1e-12);        /* source 1 pays, expert stays */
    CHECK_NEAR(layer.cost[1 * 4 + 0], 40 / b + 2, 1e-12);   /* source 0 pays, expert moves */
    CHECK_NEAR(gb_score_objective(&layer, &w, home), (5 + 10 + 10 + 5) / b + 0.5 * (60 / b - 2) + 0, 1e-12);
    CHECK_NEAR(gb_score_objective(&layer, &w, other), (5 + 5 + 5 + 5) / b + 0.5 * (60 / b - 2) + 2 * 2, 1e-12);
    gb_arena_deinit(&arena);
}

static void units_do_not_depend_on_the_length_of_the_window(void)
{
    gb_arena_init(&arena);
    moe_fixture f = moe_fixture_read("m1_2x32x4_quad", &arena);
    gb_layer once = score(&f, f.home);
    for (uint32_t i = 0; i < f.sources * f.experts; i++) f.flow[i] *= 1000;
    gb_layer longer = score(&f, f.home);
    CHECK_NEAR(gb_score_objective(&once, &f.weights, f.optimal), gb_score_objective(&longer, &f.weights, f.optimal), 1e-9);
    gb_arena_deinit(&arena);
}

static void a_layer_without_traffic_costs_only_its_moves(void)
{
    gb_arena_init(&arena);
    moe_fixture f = moe_fixture_read("t1_2x4x2_quad", &arena);
    memset(f.flow, 0, f.sources * f.experts * sizeof *f.flow);
    gb_layer layer = score(&f, f.home);
    CHECK_NEAR(gb_score_objective(&layer, &f.weights, f.home), 0, 0);
    CHECK_NEAR(gb_score_objective(&layer, &f.weights, f.optimal), 2 * f.weights.gamma, 0);
    gb_arena_deinit(&arena);
}

static void heavier_experts_cost_more_to_move(void)
{
    gb_arena_init(&arena);
    moe_fixture f = moe_fixture_read("t1_2x4x2_quad", &arena);
    double heavy[4] = {3, 1, 1, 1};
    gb_layer plain = score(&f, f.home), weighted = score(&f, f.home);
    gb_score_layer(&weighted, &f.weights, &f.links, f.flow, f.home, heavy);
    uint32_t away = 1 - (uint32_t)f.home[0];
    CHECK_NEAR(weighted.cost[away * 4] - plain.cost[away * 4], 2 * f.weights.gamma, 1e-12);
    gb_arena_deinit(&arena);
}

static void tiers_charge_own_ranks_nothing_the_node_little_and_the_fabric_all(void)
{
    gb_arena_init(&arena);
    gb_links links;
    CHECK_EQ(gb_links_init(&links, &arena, 4, 8, NULL), 0);
    gb_links_tiers(&links, 4, 0.2);
    CHECK_NEAR(links.cost[0 * 8 + 1], 0, 0);
    CHECK_NEAR(links.cost[0 * 8 + 2], 0.2, 0);
    CHECK_NEAR(links.cost[0 * 8 + 4], 1, 0);
    CHECK_NEAR(links.cost[3 * 8 + 4], 0.2, 0);
    gb_arena_deinit(&arena);
}

static void weights_and_links_that_are_not_numbers_are_named(void)
{
    gb_error err = {{0}};
    gb_place_weights w = gb_place_weights_paper();
    CHECK_EQ(gb_place_weights_check(&w, &err), 0);
    w.beta = NAN;
    CHECK_EQ(gb_place_weights_check(&w, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "beta is nan");
    w.beta = -1;
    CHECK_EQ(gb_place_weights_check(&w, &err), GB_EINVAL);
    gb_arena_init(&arena);
    gb_links links;
    CHECK_EQ(gb_links_init(&links, &arena, 2, 4, NULL), 0);
    links.cost[1 * 4 + 3] = INFINITY;
    CHECK_EQ(gb_links_check(&links, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "source 1 to rank 3");
    gb_arena_deinit(&arena);
}

/* 2 ranks with one spare slot each: expert 0's replica on rank 1 takes half of source 1's tokens. */
static void a_report_counts_splits_remote_tokens_and_copies(void)
{
    gb_arena_init(&arena);
    gb_placement before, after;
    gb_links links;
    CHECK_EQ(gb_placement_init(&before, &arena, 1, 2, 4, 2, 1, NULL), 0);
    CHECK_EQ(gb_placement_init(&after, &arena, 1, 2, 4, 2, 1, NULL), 0);
    CHECK_EQ(gb_links_init(&links, &arena, 2, 2, NULL), 0);
    double flow[2][4] = {{30, 10, 0, 0}, {30, 0, 10, 20}};
    gb_placement_layer_slots(&after, 0)[5] = 0;
    size_t i = gb_placement_route_index(&after, 0, 1, 0);
    after.other[i] = 5;
    after.other_share[i] = GB_SHARES / 2;
    gb_place_weights w = gb_place_weights_paper();
    gb_place_report r;
    gb_score_placement(&r, &w, &links, &flow[0][0], &after, &before, 100);
    CHECK_EQ(r.moves, 1);
    CHECK_EQ(r.bytes, 100);
    CHECK_NEAR(r.remote_ratio, 15 / 100.0, 1e-12);
    CHECK_NEAR(r.max_over_mean, 55 / 50.0, 1e-12);
    CHECK_NEAR(r.comm, 15 / 25.0, 1e-12);
    CHECK_NEAR(r.imbalance, 2 * 0.2 * 0.2, 1e-12);
    CHECK_NEAR(r.objective, 15 / 25.0 + 0.0025 * 0.08 + 1, 1e-12);
    gb_arena_deinit(&arena);
}

TESTS(TEST(the_objective_agrees_with_an_independent_evaluation), TEST(the_terms_of_a_hand_made_layer_are_what_one_computes_by_hand),
      TEST(units_do_not_depend_on_the_length_of_the_window), TEST(a_layer_without_traffic_costs_only_its_moves),
      TEST(heavier_experts_cost_more_to_move), TEST(tiers_charge_own_ranks_nothing_the_node_little_and_the_fabric_all),
      TEST(weights_and_links_that_are_not_numbers_are_named), TEST(a_report_counts_splits_remote_tokens_and_copies))
