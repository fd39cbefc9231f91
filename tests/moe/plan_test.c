#include "core/moe/plan.h"

#include "core/base/rng.h"
#include "core/moe/route.h"
#include "tests/check.h"

static gb_arena arena;

static gb_placement placement(uint32_t layers, uint32_t experts, uint32_t ranks, uint32_t spare)
{
    gb_placement p;
    CHECK_EQ(gb_placement_init(&p, &arena, layers, 2, experts, ranks, spare, NULL), 0);
    return p;
}

static bool same_slots(const gb_placement *a, const gb_placement *b)
{
    return memcmp(a->expert_of_slot, b->expert_of_slot, (size_t)a->layers * gb_placement_slots(a) * sizeof(int32_t)) == 0;
}

/* Every prefix is valid, the whole leads to `to`, and a rank that receives needs room for one expert more. */
static void check_prefixes(const gb_plan *plan, const gb_placement *from, const gb_placement *to)
{
    for (uint32_t i = 0; i < plan->n; i++)
        for (uint32_t j = 0; j < i; j++)
            CHECK(plan->moves[i].step != plan->moves[j].step || plan->moves[i].expert < 0 ||
                  gb_placement_rank_of_slot(from, plan->moves[i].to) != gb_placement_rank_of_slot(from, plan->moves[j].to));
    gb_placement now;
    gb_placement_init(&now, &arena, from->layers, from->sources, from->experts, from->ranks, from->slots_per_rank - from->experts / from->ranks, NULL);
    for (uint32_t steps = 0; steps <= plan->steps && check_failures == 0; steps++) {
        gb_error err = {{0}};
        gb_plan_apply(&now, from, to, plan, steps);
        CHECK_EQ(gb_placement_check(&now, &err), 0);
        if (err.text[0]) printf("    step %u: %s\n", steps, err.text);
    }
    CHECK(same_slots(&now, to));
}

static void two_experts_that_trade_ranks_are_one_step(void)
{
    gb_arena_init(&arena);
    gb_placement from = placement(1, 8, 4, 0), to = placement(1, 8, 4, 0);
    int32_t home[8] = {3, 0, 1, 1, 2, 2, 0, 3};
    gb_plan plan;
    CHECK_EQ(gb_plan_init(&plan, &arena, &from), 0);
    gb_plan_settle(&to, &from, home);
    CHECK_EQ(gb_placement_check(&to, NULL), 0);
    gb_plan_build(&plan, &from, &to);
    CHECK_EQ(plan.steps, 1);
    CHECK_EQ(plan.n, 2);
    CHECK_EQ(plan.moves[0].expert, 0);
    CHECK_EQ(plan.moves[0].to, 6);
    check_prefixes(&plan, &from, &to);
    gb_arena_deinit(&arena);
}

static void a_circle_of_three_is_one_step_of_three_copies(void)
{
    gb_arena_init(&arena);
    gb_placement from = placement(1, 6, 3, 0), to = placement(1, 6, 3, 0);
    int32_t home[6] = {1, 0, 2, 1, 0, 2};
    gb_plan plan;
    CHECK_EQ(gb_plan_init(&plan, &arena, &from), 0);
    gb_plan_settle(&to, &from, home);
    gb_plan_build(&plan, &from, &to);
    CHECK_EQ(plan.steps, 1);
    CHECK_EQ(gb_plan_copies(&plan), 3);
    check_prefixes(&plan, &from, &to);
    gb_arena_deinit(&arena);
}

/* 0 -> rank 1, 2 -> rank 2, 4 -> rank 1 again, 3 -> rank 0: as slots say it is one circle, as ranks it is two. */
static void a_circle_that_would_pass_a_rank_twice_is_turned_as_two(void)
{
    gb_arena_init(&arena);
    gb_placement from = placement(1, 6, 3, 0), to = placement(1, 6, 3, 0);
    const int32_t slots[6] = {3, 1, 0, 4, 2, 5};
    memcpy(gb_placement_layer_slots(&to, 0), slots, sizeof slots);
    for (uint32_t s = 0; s < 2; s++)
        for (int32_t i = 0; i < 6; i++) gb_placement_routes(&to, 0, s)[slots[i]] = i;
    gb_plan plan;
    CHECK_EQ(gb_plan_init(&plan, &arena, &from), 0);
    gb_plan_build(&plan, &from, &to);
    CHECK_EQ(gb_placement_check(&to, NULL), 0);
    CHECK_EQ(plan.steps, 2);
    CHECK_EQ(gb_plan_copies(&plan), 4);
    check_prefixes(&plan, &from, &to);
    gb_arena_deinit(&arena);
}

static void equal_placements_need_no_plan(void)
{
    gb_arena_init(&arena);
    gb_placement from = placement(3, 8, 4, 1);
    gb_plan plan;
    CHECK_EQ(gb_plan_init(&plan, &arena, &from), 0);
    gb_plan_build(&plan, &from, &from);
    CHECK_EQ(plan.n, 0);
    CHECK_EQ(plan.steps, 0);
    gb_arena_deinit(&arena);
}

/* Homes dealt at random, plus random copies in the spare slots. */
static void deal(gb_placement *p, gb_rng *rng)
{
    uint32_t per = p->experts / p->ranks;
    for (uint32_t l = 0; l < p->layers; l++) {
        int32_t *slots = gb_placement_layer_slots(p, l), order[64];
        for (uint32_t e = 0; e < p->experts; e++) order[e] = (int32_t)e;
        for (uint32_t e = p->experts - 1; e > 0; e--) {
            uint32_t j = (uint32_t)gb_rng_below(rng, e + 1);
            int32_t t = order[e];
            order[e] = order[j], order[j] = t;
        }
        for (uint32_t i = 0; i < gb_placement_slots(p); i++) slots[i] = -1;
        for (uint32_t e = 0; e < p->experts; e++) slots[e / per * p->slots_per_rank + e % per] = order[e];
        for (uint32_t i = 0; i < gb_placement_slots(p); i++) {
            int32_t copy = (int32_t)gb_rng_below(rng, p->experts);
            uint32_t first = i - i % p->slots_per_rank;
            bool there = false;
            for (uint32_t k = first; k < first + p->slots_per_rank; k++) there |= slots[k] == copy;
            if (slots[i] < 0 && !there && gb_rng_below(rng, 3)) slots[i] = copy;
        }
        double flow[2 * 64];
        for (uint32_t i = 0; i < 2 * p->experts; i++) flow[i] = (double)gb_rng_below(rng, 100);
        gb_route_evenly(p, l, flow);
    }
}

static void every_prefix_of_any_plan_is_a_valid_placement(void)
{
    const uint64_t seed = 5;
    gb_rng rng;
    gb_rng_init(&rng, seed);
    for (int round = 0; round < 60 && check_failures == 0; round++) {
        gb_arena_init(&arena);
        uint32_t ranks = 2 + (uint32_t)gb_rng_below(&rng, 5), per = 1 + (uint32_t)gb_rng_below(&rng, 5), spare = (uint32_t)gb_rng_below(&rng, 3);
        gb_placement from = placement(2, ranks * per, ranks, spare), to = placement(2, ranks * per, ranks, spare);
        gb_plan plan;
        deal(&from, &rng);
        deal(&to, &rng);
        CHECK_EQ(gb_placement_check(&from, NULL), 0);
        CHECK_EQ(gb_placement_check(&to, NULL), 0);
        gb_plan_align(&to, &from);
        CHECK_EQ(gb_placement_check(&to, NULL), 0);
        CHECK_EQ(gb_plan_init(&plan, &arena, &from), 0);
        gb_plan_build(&plan, &from, &to);
        check_prefixes(&plan, &from, &to);
        double worth[1024];
        for (uint32_t i = 0; i < plan.steps; i++) worth[i] = gb_rng_uniform(&rng);
        uint32_t n = plan.n, steps = plan.steps;
        gb_plan_sort(&plan, worth);
        CHECK_EQ(plan.n, n);
        CHECK_EQ(plan.steps, steps);
        check_prefixes(&plan, &from, &to);
        if (check_failures) printf("    seed %llu round %d\n", (unsigned long long)seed, round);
        gb_arena_deinit(&arena);
    }
}

static void an_aligned_expert_that_stays_on_its_rank_does_not_move(void)
{
    gb_arena_init(&arena);
    gb_placement from = placement(1, 8, 2, 1), to = placement(1, 8, 2, 1);
    int32_t *slots = gb_placement_layer_slots(&to, 0);
    const int32_t shuffled[10] = {3, 1, -1, 0, 2, 6, 7, 5, 4, 0};
    memcpy(slots, shuffled, sizeof shuffled);
    double flow[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    gb_route_evenly(&to, 0, flow);
    gb_plan_align(&to, &from);
    CHECK_EQ(gb_placement_check(&to, NULL), 0);
    gb_plan plan;
    CHECK_EQ(gb_plan_init(&plan, &arena, &from), 0);
    gb_plan_build(&plan, &from, &to);
    CHECK_EQ(gb_plan_copies(&plan), 1);
    CHECK_EQ(plan.moves[0].expert, 0);
    CHECK_EQ(plan.moves[0].to, 9);
    gb_arena_deinit(&arena);
}

static void limits_cut_between_steps_and_the_best_steps_come_first(void)
{
    gb_arena_init(&arena);
    gb_placement from = placement(3, 8, 4, 0), to = placement(3, 8, 4, 0);
    const int32_t home[24] = {3, 0, 1, 1, 2, 2, 0, 3, 1, 0, 0, 1, 2, 2, 3, 3, 0, 2, 1, 1, 0, 2, 3, 3};
    gb_plan plan;
    CHECK_EQ(gb_plan_init(&plan, &arena, &from), 0);
    gb_plan_settle(&to, &from, home);
    gb_plan_build(&plan, &from, &to);
    CHECK_EQ(plan.steps, 3);
    gb_plan_sort(&plan, (double[]){1, 3, 2});
    CHECK_EQ(plan.moves[0].layer, 1);
    CHECK_EQ(plan.moves[2].layer, 2);
    CHECK_EQ(gb_plan_limit(&plan, 5, UINT64_MAX, 100), 1);
    CHECK_EQ(plan.steps, 2);
    CHECK_EQ(gb_plan_copies(&plan), 4);
    CHECK_EQ(gb_plan_limit(&plan, 5, 399, 100), 1);
    CHECK_EQ(gb_plan_copies(&plan), 2);
    CHECK_EQ(gb_plan_limit(&plan, 1, UINT64_MAX, 100), 1);
    CHECK_EQ(plan.n, 0);
    gb_arena_deinit(&arena);
}

TESTS(TEST(two_experts_that_trade_ranks_are_one_step), TEST(a_circle_of_three_is_one_step_of_three_copies), TEST(a_circle_that_would_pass_a_rank_twice_is_turned_as_two),
      TEST(equal_placements_need_no_plan),
      TEST(every_prefix_of_any_plan_is_a_valid_placement), TEST(an_aligned_expert_that_stays_on_its_rank_does_not_move),
      TEST(limits_cut_between_steps_and_the_best_steps_come_first))
