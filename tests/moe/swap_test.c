#include "core/moe/swap.h"

#include "core/base/rng.h"
#include "core/moe/bound.h"
#include "tests/check.h"

static gb_arena arena;

/* A layer of random costs and loads; home is linear. */
static gb_layer random_layer(uint32_t experts, uint32_t ranks, uint64_t seed, int32_t *home)
{
    gb_rng rng;
    gb_rng_init(&rng, seed);
    gb_layer layer = {experts, ranks, GB_ARENA_NEW(&arena, double, (size_t)experts * ranks), GB_ARENA_NEW(&arena, double, experts)};
    for (uint32_t e = 0; e < experts; e++) {
        home[e] = (int32_t)(e * ranks / experts);
        layer.load[e] = 2 * gb_rng_uniform(&rng);
        for (uint32_t r = 0; r < ranks; r++) layer.cost[(size_t)r * experts + e] = layer.load[e] * gb_rng_uniform(&rng) + 0.1 * (home[e] != (int32_t)r);
    }
    return layer;
}

static const gb_place_weights forms[] = {{1, 0.0025, 1, GB_IMBALANCE_SQUARES}, {1, 0.3, 0.1, GB_IMBALANCE_SQUARES}, {1, 3, 0.1, GB_IMBALANCE_MAX}};
enum { FORMS = sizeof forms / sizeof *forms };

static void ranks_keep_their_number_of_experts(void)
{
    gb_arena_init(&arena);
    const uint32_t shapes[][3] = {{128, 4, 32}, {36, 4, 9}, {64, 16, 4}, {8, 8, 1}, {24, 3, 11}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int w = 0; w < FORMS; w++) {
            uint32_t E = shapes[k][0], R = shapes[k][1], capacity = shapes[k][2], held[GB_RANKS_MAX] = {0};
            int32_t home[GB_EXPERTS_MAX];
            gb_layer layer = random_layer(E, R, 11 + k, home);
            gb_swap_search s;
            CHECK_EQ(gb_swap_init(&s, &arena, E, R, capacity), 0);
            gb_swap_set_layer(&s, &layer, &forms[w], home);
            gb_swap_load(&s, home);
            gb_swap_continue(&s);
            for (uint32_t i = 0; i < s.items; i++) held[s.rank_of[i]]++;
            for (uint32_t r = 0; r < R; r++) CHECK_EQ(held[r], capacity);
        }
    gb_arena_deinit(&arena);
}

static void every_step_lowers_the_objective_by_what_the_table_said(void)
{
    gb_arena_init(&arena);
    for (int w = 0; w < FORMS; w++) {
        int32_t home[96];
        gb_layer layer = random_layer(96, 6, 3, home);
        gb_swap_search s;
        CHECK_EQ(gb_swap_init(&s, &arena, 96, 6, 16), 0);
        gb_swap_set_layer(&s, &layer, &forms[w], home);
        gb_swap_load(&s, home);
        gb_swap_survey(&s);
        double before = gb_score_objective(&layer, &forms[w], s.rank_of);
        gb_swap swap;
        uint32_t a = 0, b = 0;
        int steps = 0;
        for (; gb_swap_best(&s, &swap, &a, &b); steps++) {
            gb_swap_take(&s, &swap, a, b);
            double after = gb_score_objective(&layer, &forms[w], s.rank_of);
            CHECK_NEAR(after - before, swap.delta, 1e-4);
            CHECK(swap.delta < 0);
            before = after;
        }
        CHECK(steps > 3);
    }
    gb_arena_deinit(&arena);
}

/* At a local optimum no exchange of two experts, tried by brute force, is better. */
static void descent_ends_where_no_exchange_helps(void)
{
    gb_arena_init(&arena);
    for (int w = 0; w < FORMS; w++) {
        int32_t home[40], x[40];
        gb_layer layer = random_layer(40, 5, 5, home);
        gb_swap_search s;
        CHECK_EQ(gb_swap_init(&s, &arena, 40, 5, 8), 0);
        gb_swap_set_layer(&s, &layer, &forms[w], home);
        gb_swap_load(&s, home);
        gb_swap_descend(&s);
        memcpy(x, s.rank_of, sizeof x);
        double reached = gb_score_objective(&layer, &forms[w], x);
        for (int i = 0; i < 40; i++)
            for (int j = 0; j < i; j++) {
                int32_t a = x[i], b = x[j];
                x[i] = b, x[j] = a;
                CHECK(gb_score_objective(&layer, &forms[w], x) >= reached - 1e-4);
                x[i] = a, x[j] = b;
            }
    }
    gb_arena_deinit(&arena);
}

/* The plan must not depend on the machine that made it. */
static void all_instruction_sets_take_the_same_steps_to_the_last_bit(void)
{
    gb_arena_init(&arena);
    for (int w = 0; w < FORMS; w++)
        for (uint32_t ranks = 4; ranks <= 16; ranks *= 2) {
            int32_t home[144], *found[2];
            gb_layer layer = random_layer(144, ranks, 17, home);
            float value[2];
            for (int k = 0; k < 2; k++) {
                gb_swap_search s;
                gb_prices bound;
                CHECK_EQ(gb_swap_init(&s, &arena, 144, ranks, 144 / ranks), 0);
                CHECK_EQ(gb_bound_init(&bound, &arena, &s), 0);
                if (k == 1) s.kernels = &gb_swap_kernels_portable;
                gb_swap_set_layer(&s, &layer, &forms[w], home);
                gb_swap_load(&s, home);
                gb_swap_continue(&s);
                gb_bound_start(&bound, &s);
                gb_bound_improve(&bound, &s, gb_score_objective(&layer, &forms[w], s.rank_of), 0, 50);
                found[k] = s.rank_of;
                value[k] = (float)bound.value;
            }
            for (int e = 0; e < 144; e++) CHECK_EQ(found[0][e], found[1][e]);
            CHECK(value[0] == value[1]);
        }
    gb_arena_deinit(&arena);
}

static void empty_slots_let_experts_move_without_a_partner(void)
{
    gb_arena_init(&arena);
    int32_t home[4] = {0, 0, 0, 1};
    double cost[8] = {1, 0, 0, 1, 0, 1, 1, 0}, load[4] = {1, 1, 1, 1};
    gb_layer layer = {4, 2, cost, load};
    gb_place_weights w = {1, 0, 0, GB_IMBALANCE_SQUARES};
    gb_swap_search s;
    CHECK_EQ(gb_swap_init(&s, &arena, 4, 2, 3), 0);
    gb_swap_set_layer(&s, &layer, &w, home);
    gb_swap_load(&s, home);
    CHECK_EQ(gb_swap_descend(&s), 1);
    CHECK_EQ(s.rank_of[0], 1);
    CHECK_EQ(s.rank_of[3], 1);
    gb_arena_deinit(&arena);
}

TESTS(TEST(ranks_keep_their_number_of_experts), TEST(every_step_lowers_the_objective_by_what_the_table_said),
      TEST(descent_ends_where_no_exchange_helps), TEST(all_instruction_sets_take_the_same_steps_to_the_last_bit),
      TEST(empty_slots_let_experts_move_without_a_partner))
