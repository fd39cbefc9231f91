#include "core/moe/greedy.h"

#include "tests/check.h"
#include "tests/moe/fixture.h"

static gb_arena arena;

static gb_layer score(const moe_fixture *f)
{
    gb_layer layer = {f->experts, f->ranks, GB_ARENA_NEW(&arena, double, (size_t)f->ranks * f->experts), GB_ARENA_NEW(&arena, double, f->experts)};
    gb_score_layer(&layer, &f->weights, &f->links, f->flow, f->home, NULL);
    return layer;
}

/* The fixtures ran the rule in its form for squares, whatever the objective. */
static void the_papers_rule_answers_as_an_independent_one_did(void)
{
    gb_arena_init(&arena);
    for (int i = 0; i < MOE_FIXTURES; i++) {
        moe_fixture f = moe_fixture_read(moe_fixture_files[i], &arena);
        gb_layer layer = score(&f);
        int32_t x[GB_EXPERTS_MAX];
        gb_place_weights squares = f.weights;
        squares.imbalance = GB_IMBALANCE_SQUARES;
        gb_greedy greedy = {0};
        gb_greedy_place(&greedy, x, &layer, &squares, f.home, f.experts / f.ranks, 0);
        for (uint32_t e = 0; e < f.experts; e++) CHECK_EQ(x[e], f.greedy[e]);
    }
    gb_arena_deinit(&arena);
}

static void it_can_be_worse_than_staying(void)
{
    gb_arena_init(&arena);
    moe_fixture f = moe_fixture_read("t2_same_source_no_gain", &arena);
    gb_layer layer = score(&f);
    int32_t x[4];
    gb_greedy greedy = {0};
    gb_greedy_place(&greedy, x, &layer, &f.weights, f.home, 2, 0);
    CHECK(gb_score_objective(&layer, &f.weights, x) > gb_score_objective(&layer, &f.weights, f.home));
    gb_arena_deinit(&arena);
}

static void equal_scores_stay_then_take_the_emptier_rank(void)
{
    double cost[4 * 8] = {0}, load[8] = {0};
    gb_layer layer = {8, 4, cost, load};
    gb_place_weights w = {1, 1, 0, GB_IMBALANCE_SQUARES};
    int32_t home[8] = {3, 3, 3, 1, 1, 2, 0, 0}, x[8];
    gb_greedy greedy = {0};
    gb_greedy_place(&greedy, x, &layer, &w, home, 2, 0);
    const int32_t expected[8] = {3, 3, 0, 1, 1, 2, 0, 2};    /* expert 2 finds rank 3 full: all others are empty, 0 is the first */
    for (int e = 0; e < 8; e++) CHECK_EQ(x[e], expected[e]);
}

static void order_is_by_load_then_by_index(void)
{
    double load[6] = {1, 3, 1, 3, 2, 0};
    int32_t order[6];
    gb_greedy_order(order, load, 6);
    const int32_t expected[6] = {1, 3, 4, 0, 2, 5};
    for (int i = 0; i < 6; i++) CHECK_EQ(order[i], expected[i]);
}

typedef struct hook {
    const gb_layer *layer;
    const gb_place_weights *weights;
    int calls, fault_at, answer;
    double poison;
} hook;

/* What a script computes: the same formula. */
static int same_formula(void *self, uint32_t layer_index, uint32_t expert, const gb_rank_table *ranks)
{
    hook *h = self;
    CHECK_EQ(layer_index, 7);
    double u = h->layer->load[expert];
    for (uint32_t r = 0; r < ranks->n; r++)
        ranks->score[r] = h->layer->cost[(size_t)r * h->layer->experts + expert] + h->weights->beta * u * (2 * ranks->load[r] + u);
    if (h->calls++ != h->fault_at) return 0;
    ranks->score[0] = h->poison;
    return h->answer;
}

static void a_hook_with_the_same_formula_gives_the_same_placement(void)
{
    gb_arena_init(&arena);
    moe_fixture f = moe_fixture_read("m4_2x128x4_quad_strong", &arena);
    gb_layer layer = score(&f);
    const struct { int fault_at, answer; double poison; uint64_t refused; } cases[] = {
        {-1, 0, 0, 0}, {5, GB_POLICY_NIL, 0, 0}, {5, GB_POLICY_FAULT, 0, 1}, {9, 0, NAN, 1}, {0, 0, -INFINITY, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hook h = {&layer, &f.weights, 0, cases[i].fault_at, cases[i].answer, cases[i].poison};
        gb_greedy greedy = {.score = same_formula, .self = &h};
        int32_t x[128];
        gb_greedy_place(&greedy, x, &layer, &f.weights, f.home, 32, 7);
        CHECK_EQ(h.calls, 128);
        CHECK_EQ(greedy.refused, cases[i].refused);
        for (int e = 0; e < 128; e++) CHECK_EQ(x[e], f.greedy[e]);
    }
    gb_arena_deinit(&arena);
}

static void the_max_form_charges_only_what_rises_above_the_fullest(void)
{
    double cost[2 * 3] = {0, 0.5, 0.2, 0, 0, 0}, load[3] = {4, 1, 1};
    gb_layer layer = {3, 2, cost, load};
    gb_place_weights w = {1, 10, 0, GB_IMBALANCE_MAX};
    int32_t home[3] = {0, 0, 0}, x[3];
    gb_greedy greedy = {0};
    gb_greedy_place(&greedy, x, &layer, &w, home, 2, 0);
    CHECK_EQ(x[0], 0);
    CHECK_EQ(x[1], 1);
    CHECK_EQ(x[2], 1);
}

TESTS(TEST(the_papers_rule_answers_as_an_independent_one_did), TEST(it_can_be_worse_than_staying),
      TEST(equal_scores_stay_then_take_the_emptier_rank), TEST(order_is_by_load_then_by_index),
      TEST(a_hook_with_the_same_formula_gives_the_same_placement), TEST(the_max_form_charges_only_what_rises_above_the_fullest))
