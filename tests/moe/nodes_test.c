#include "core/moe/nodes.h"

#include "tests/check.h"

static gb_arena arena;

/* Traffic of S sources that own consecutive ranks, scored over tiers; home is linear. */
static gb_layer random_layer(uint32_t E, uint32_t R, uint32_t S, uint32_t ranks_per_node, uint64_t seed, const gb_place_weights *w, int32_t *home)
{
    gb_rng rng;
    gb_links links;
    gb_rng_init(&rng, seed);
    gb_layer layer = {E, R, GB_ARENA_NEW(&arena, double, (size_t)E * R), GB_ARENA_NEW(&arena, double, E)};
    double *flow = GB_ARENA_NEW(&arena, double, (size_t)S * E);
    for (uint32_t i = 0; i < S * E; i++) flow[i] = (double)(1 + gb_rng_below(&rng, 1000));
    for (uint32_t e = 0; e < E; e++) home[e] = (int32_t)(e * R / E);
    CHECK_EQ(gb_links_init(&links, &arena, S, R, NULL), 0);
    gb_links_tiers(&links, ranks_per_node, 0.2);
    gb_score_layer(&layer, w, &links, flow, home, NULL);
    return layer;
}

static void groups_stay_whole_and_ranks_full_whatever_the_start(void)
{
    const uint32_t shapes[][5] = {{64, 8, 8, 2, 4}, {256, 16, 8, 4, 4}, {24, 6, 6, 3, 2}, {16, 4, 4, 1, 2}};    /* E, R, groups, nodes, S */
    for (int k = 0; k < 4; k++)
        for (int form = 0; form < 2; form++) {
            gb_arena_init(&arena);
            uint32_t E = shapes[k][0], R = shapes[k][1], held[GB_RANKS_MAX] = {0};
            int32_t home[256], x[256];
            gb_place_weights w = form ? gb_place_weights_latency() : gb_place_weights_balanced();
            gb_layer layer = random_layer(E, R, shapes[k][4], R / shapes[k][3], 7 + (uint64_t)k, &w, home);
            if (k % 2)
                for (uint32_t e = 0; e < E; e++) home[e] = (int32_t)(e % R);    /* groups torn apart */
            gb_nodes n;
            CHECK_EQ(gb_nodes_init(&n, &arena, E, R, shapes[k][2], shapes[k][3], NULL), 0);
            gb_nodes_place(&n, x, &layer, &w, home);
            CHECK(gb_nodes_hold(&n, x));
            for (uint32_t e = 0; e < E; e++) held[x[e]]++;
            for (uint32_t r = 0; r < R; r++) CHECK_EQ(held[r], E / R);
            if (gb_nodes_hold(&n, home)) CHECK(gb_score_objective(&layer, &w, x) <= gb_score_objective(&layer, &w, home));
            gb_arena_deinit(&arena);
        }
}

/* Best of all placements of 8 experts, two a rank, 4 groups on 2 nodes. */
static double brute_force(const gb_nodes *n, const gb_layer *layer, const gb_place_weights *w, int32_t *x, uint32_t e, uint32_t *held)
{
    double best = INFINITY;
    if (e == 8) return gb_nodes_hold(n, x) ? gb_score_objective(layer, w, x) : INFINITY;
    for (uint32_t r = 0; r < 4; r++) {
        if (held[r] == 2) continue;
        held[r]++;
        x[e] = (int32_t)r;
        best = fmin(best, brute_force(n, layer, w, x, e + 1, held));
        held[r]--;
    }
    return best;
}

static void two_levels_come_close_to_the_best_of_all(void)
{
    double found = 0, best = 0;
    gb_place_weights w = gb_place_weights_balanced();
    for (uint64_t seed = 1; seed <= 20; seed++) {
        gb_arena_init(&arena);
        int32_t home[8], x[8];
        uint32_t held[4] = {0};
        gb_layer layer = random_layer(8, 4, 2, 2, seed, &w, home);
        gb_nodes n;
        CHECK_EQ(gb_nodes_init(&n, &arena, 8, 4, 4, 2, NULL), 0);
        gb_nodes_place(&n, x, &layer, &w, home);
        double here = gb_score_objective(&layer, &w, x), least = brute_force(&n, &layer, &w, x, 0, held);
        CHECK(here >= least - 1e-9);
        found += here, best += least;
        gb_arena_deinit(&arena);
    }
    CHECK(found <= 1.01 * best);
}

static void shapes_that_do_not_divide_are_named(void)
{
    gb_nodes n;
    gb_error err = {{0}};
    gb_arena_init(&arena);
    CHECK_EQ(gb_nodes_init(&n, &arena, 64, 8, 6, 2, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "64 experts cannot be split evenly over 6 groups");
    CHECK_EQ(gb_nodes_init(&n, &arena, 64, 8, 4, 3, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "4 groups cannot be split evenly over 3 nodes");
    CHECK_EQ(gb_nodes_init(&n, &arena, 64, 8, 4, 0, &err), GB_EINVAL);
    gb_arena_deinit(&arena);
}

TESTS(TEST(groups_stay_whole_and_ranks_full_whatever_the_start), TEST(two_levels_come_close_to_the_best_of_all),
      TEST(shapes_that_do_not_divide_are_named))
