#include "core/moe/decide.h"

#include "tests/check.h"

static gb_arena arena;

/* 2 layers, 2 sources, 8 experts on 2 ranks. In each layer source 0 uses experts 0..2 and 7, source 1 the rest: experts 3 and 7
   sit wrong. Layer 1 has ten times the skew in shares, so its trade is worth more. */
typedef struct scene {
    gb_placement now, next;
    gb_links links;
    gb_decider decider;
    gb_place_weights weights;
    gb_decision_limits limits;
    double traffic[2 * 2 * 8];
} scene;

static void set(scene *s)
{
    gb_arena_deinit(&arena);    /* of an earlier scene of the same test */
    gb_arena_init(&arena);
    s->weights = (gb_place_weights){1, 0.0025, 0.01, GB_IMBALANCE_SQUARES};
    s->limits = (gb_decision_limits){0, UINT32_MAX, UINT64_MAX, 100, false};
    CHECK_EQ(gb_placement_init(&s->now, &arena, 2, 2, 8, 2, 0, NULL), 0);
    CHECK_EQ(gb_placement_init(&s->next, &arena, 2, 2, 8, 2, 0, NULL), 0);
    CHECK_EQ(gb_links_init(&s->links, &arena, 2, 2, NULL), 0);
    CHECK_EQ(gb_decider_init(&s->decider, &arena, &s->now, NULL), 0);
    for (int l = 0; l < 2; l++)
        for (int e = 0; e < 8; e++) {
            bool first = e < 3 || e == 7;
            double much = l ? 100 : 60, little = l ? 10 : 50;
            s->traffic[l * 16 + e] = first ? much : little;
            s->traffic[l * 16 + 8 + e] = first ? little : much;
        }
    const int32_t home[16] = {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0};
    gb_plan_settle(&s->next, &s->now, home);
}

static gb_verdict judge(scene *s, gb_error *err)
{
    return gb_decide(&s->decider, &s->next, &s->now, s->traffic, &s->links, &s->weights, &s->limits, err);
}

static bool stays(const scene *s) { return memcmp(s->next.expert_of_slot, s->now.expert_of_slot, 16 * sizeof(int32_t)) == 0 && s->decider.plan.n == 0; }

static void a_better_placement_is_accepted_with_its_best_step_first(void)
{
    scene s;
    set(&s);
    CHECK_EQ(judge(&s, NULL), GB_VERDICT_ACCEPTED);
    CHECK_EQ(s.decider.plan.steps, 2);
    CHECK_EQ(s.decider.plan.moves[0].layer, 1);
    CHECK_EQ(s.next.version, s.now.version + 1);
    gb_arena_deinit(&arena);
}

static void caps_hold_for_whatever_comes(void)
{
    scene s;
    set(&s);
    s.limits.max_moves = 3;
    CHECK_EQ(judge(&s, NULL), GB_VERDICT_CUT);
    CHECK_EQ(gb_plan_copies(&s.decider.plan), 2);
    CHECK_EQ(gb_placement_layer_slots(&s.next, 0)[3], 3);    /* layer 0 waits */
    CHECK_EQ(gb_placement_layer_slots(&s.next, 1)[3], 7);
    CHECK_EQ(gb_placement_check(&s.next, NULL), 0);
    set(&s);
    s.limits.max_bytes = 399;
    CHECK_EQ(judge(&s, NULL), GB_VERDICT_CUT);
    set(&s);
    s.limits.max_moves = 1;
    CHECK_EQ(judge(&s, NULL), GB_VERDICT_TOO_DEAR);
    CHECK(stays(&s));
    gb_arena_deinit(&arena);
}

static void worse_and_hardly_better_placements_are_refused(void)
{
    scene s;
    set(&s);
    s.weights.gamma = 10;
    CHECK_EQ(judge(&s, NULL), GB_VERDICT_NO_GAIN);
    CHECK(stays(&s));
    set(&s);
    s.limits.min_gain_ratio = 0.9;
    CHECK_EQ(judge(&s, NULL), GB_VERDICT_NO_GAIN);
    set(&s);
    s.weights.gamma = 10;
    s.limits.even_if_worse = true;
    CHECK_EQ(judge(&s, NULL), GB_VERDICT_ACCEPTED);
    set(&s);
    gb_placement_copy(&s.next, &s.now);
    CHECK_EQ(judge(&s, NULL), GB_VERDICT_SAME);
    gb_arena_deinit(&arena);
}

static void an_invalid_placement_is_refused_with_the_reason(void)
{
    scene s;
    gb_error err = {{0}};
    set(&s);
    gb_placement_layer_slots(&s.next, 1)[0] = 1;
    CHECK_EQ(judge(&s, &err), GB_VERDICT_INVALID);
    CHECK_CONTAINS(err.text, "layer 1 rank 0 holds expert 1 twice");
    CHECK(stays(&s));
    gb_arena_deinit(&arena);
}

static void verdicts_have_names(void)
{
    CHECK_STR(gb_verdict_name(GB_VERDICT_ACCEPTED), "accepted");
    CHECK_STR(gb_verdict_name(GB_VERDICT_TOO_DEAR), "too dear");
}

TESTS(TEST(a_better_placement_is_accepted_with_its_best_step_first), TEST(caps_hold_for_whatever_comes),
      TEST(worse_and_hardly_better_placements_are_refused), TEST(an_invalid_placement_is_refused_with_the_reason), TEST(verdicts_have_names))
