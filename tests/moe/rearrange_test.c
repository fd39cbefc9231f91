#include "core/moe/rearrange.h"

#include "tests/check.h"

enum { LAYERS = 4, SOURCES = 2, EXPERTS = 16, RANKS = 4 };

static gb_arena arena;
static gb_solver solver;
static gb_solve_options options;
static gb_rearrangement r;
static gb_links links;
static double traffic[LAYERS * SOURCES * EXPERTS];
static int32_t home[LAYERS * EXPERTS];

static void pose(uint64_t seed)
{
    gb_error err;
    gb_rng rng;
    gb_rng_init(&rng, seed);
    gb_arena_init(&arena);
    options = gb_solve_defaults();
    options.weights = gb_place_weights_balanced();
    CHECK_EQ(gb_solver_init(&solver, &arena, LAYERS, EXPERTS, RANKS, &err), 0);
    CHECK_EQ(gb_links_init(&links, &arena, SOURCES, RANKS, &err), 0);
    CHECK_EQ(gb_rearrange_init(&r, &arena, &solver, &options, SOURCES, &err), 0);
    for (int i = 0; i < LAYERS * SOURCES * EXPERTS; i++) traffic[i] = (double)gb_rng_below(&rng, 1000);
    for (int i = 0; i < LAYERS * EXPERTS; i++) home[i] = i % EXPERTS / (EXPERTS / RANKS);
    gb_rearrange_pose(&r, traffic, &links, home, 9);
}

static void the_window_table_shows_the_problem(void)
{
    pose(1);
    const gb_window_table *w = &r.window;
    CHECK(w->n == LAYERS * SOURCES * EXPERTS && w->expert_rows == LAYERS * EXPERTS && w->link_rows == SOURCES * RANKS);
    CHECK(w->id == 9 && w->layers == LAYERS && w->sources == SOURCES && w->experts == EXPERTS && w->ranks == RANKS && w->capacity == EXPERTS / RANKS);
    CHECK(w->tokens == traffic);
    for (int l = 0; l < LAYERS; l++)
        for (int e = 0; e < EXPERTS; e++) {
            CHECK(w->expert_tokens[l * EXPERTS + e] == traffic[l * SOURCES * EXPERTS + e] + traffic[(l * SOURCES + 1) * EXPERTS + e]);
            CHECK(w->home[l * EXPERTS + e] == home[l * EXPERTS + e]);
        }
    CHECK(w->link_cost[0] == 0 && w->link_cost[RANKS - 1] == 1);
    gb_arena_deinit(&arena);
}

static void the_built_in_answer_is_the_search_on_built_in_numbers(void)
{
    pose(2);
    int32_t expected[LAYERS * EXPERTS];
    gb_solve_report report;
    gb_solver_score(&solver, &options.weights, &links, traffic, home);
    gb_solver_swap(&solver, expected, home, &options, &report);
    gb_rearrange_built_in(&r);
    CHECK(memcmp(expected, r.rank_of, sizeof expected) == 0);
    CHECK(report.objective == r.report.objective);
    gb_arena_deinit(&arena);
}

/* The column that a score sees holds Comm alone: with the rest of the paper's score it gives the built-in's plan, bit for bit. */
static int papers_score(void *self, uint32_t layer, uint32_t expert, const gb_rank_table *ranks)
{
    const gb_place_weights *w = self;
    CHECK(ranks->home == home[layer * EXPERTS + expert]);
    for (uint32_t k = 0; k < ranks->n; k++) {
        double cost = ranks->traffic[k];
        if ((double)k != ranks->home) cost += w->gamma;
        ranks->score[k] = cost + w->beta * ranks->expert_load * (2 * ranks->load[k] + ranks->expert_load);
    }
    return 0;
}

static void a_rule_with_a_score_sees_the_traffic_of_each_choice(void)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        pose(seed);
        gb_greedy built_in = {0}, rule = {.score = papers_score, .self = &options.weights};
        for (uint32_t l = 0; l < LAYERS; l++) {
            int32_t expected[EXPERTS];
            gb_rearrange_score(&r, l);
            gb_rearrange_greedy(&r, &built_in, l);
            memcpy(expected, r.rank_of + l * EXPERTS, sizeof expected);
            gb_rearrange_greedy(&r, &rule, l);
            CHECK(memcmp(expected, r.rank_of + l * EXPERTS, sizeof expected) == 0);
        }
        CHECK_EQ(rule.refused, 0);
        gb_arena_deinit(&arena);
    }
}

TESTS(TEST(the_window_table_shows_the_problem), TEST(the_built_in_answer_is_the_search_on_built_in_numbers),
      TEST(a_rule_with_a_score_sees_the_traffic_of_each_choice))
