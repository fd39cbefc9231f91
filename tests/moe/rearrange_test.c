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

/* A policy's slots: consecutive experts, and copies of the first experts of the next rank in the spare slots. */
static void fill_slots(void)
{
    for (uint32_t i = 0; i < RANKS * r.slots_per_rank; i++) {
        uint32_t rank = i / r.slots_per_rank, place = i % r.slots_per_rank, per_rank = EXPERTS / RANKS;
        r.slots[i] = place < per_rank ? rank * per_rank + place : (rank + 1) % RANKS * per_rank + place - per_rank;
    }
}

static void slots_without_spare_ones_are_an_assignment(void)
{
    gb_error err = {{0}};
    pose(3);
    for (int e = 0; e < EXPERTS; e++) home[EXPERTS + e] = e % RANKS;
    fill_slots();
    CHECK_EQ(gb_rearrange_take_slots(&r, 1, &err), 0);
    for (uint32_t l = 0; l < LAYERS; l++) gb_rearrange_score(&r, l);
    gb_rearrange_search(&r);
    for (int e = 0; e < EXPERTS; e++) CHECK_EQ(r.rank_of[EXPERTS + e], e / (EXPERTS / RANKS));
    CHECK(!r.has_slots[0] && r.has_slots[1]);
    gb_rearrange_pose(&r, traffic, &links, home, 10);
    CHECK(!r.has_slots[1]);
    gb_arena_deinit(&arena);
}

static void copies_live_in_spare_slots_and_share_their_experts_traffic(void)
{
    gb_error err = {{0}};
    gb_placement now, next;
    pose(4);
    CHECK_EQ(gb_rearrange_add_spare(&r, &arena, 2, &err), 0);
    CHECK_EQ(gb_placement_init(&now, &arena, LAYERS, SOURCES, EXPERTS, RANKS, 2, &err), 0);
    CHECK_EQ(gb_placement_init(&next, &arena, LAYERS, SOURCES, EXPERTS, RANKS, 2, &err), 0);
    fill_slots();
    CHECK_EQ(gb_rearrange_take_slots(&r, 2, &err), 0);
    for (uint32_t l = 0; l < LAYERS; l++) gb_rearrange_score(&r, l);
    gb_rearrange_search(&r);
    gb_rearrange_settle(&r, &next, &now);
    CHECK_EQ(gb_placement_check(&next, &err), 0);
    const int32_t *slots = gb_placement_layer_slots(&next, 2);
    for (uint32_t i = 0; i < RANKS * r.slots_per_rank; i++) CHECK_EQ(slots[i], (int32_t)r.slots[i]);
    double served[RANKS * 6] = {0}, total = 0;    /* of expert 0, which has two copies */
    for (uint32_t s = 0; s < SOURCES; s++) {
        size_t at = gb_placement_route_index(&next, 2, s, 0);
        double tokens = traffic[(2 * SOURCES + s) * EXPERTS], other = tokens * next.other_share[at] / GB_SHARES;
        served[next.route[at]] += tokens - other;
        if (next.other[at] >= 0) served[next.other[at]] += other;
        total += tokens;
    }
    for (uint32_t i = 0; i < RANKS * 6; i++) CHECK_NEAR(served[i], slots[i] == 0 ? total / 2 : 0, total / 1000);
    for (uint32_t i = 0; i < RANKS; i++) CHECK_EQ(gb_placement_layer_slots(&next, 0)[i * 6 + 5], -1);    /* searched: no copies */
    gb_arena_deinit(&arena);
}

static void slots_that_cannot_be_are_named(void)
{
    static const struct {
        double slot[2];    /* into slots 4 and 5 of layer 1, with one spare slot a rank */
        const char *why;
    } cases[] = {
        {{16, -1}, "slot 4 of layer 1 holds 16; experts are 0..15, and -1 is none"}, {{-2, -1}, "slot 4 of layer 1 holds -2"},
        {{0.5, -1}, "slot 4 of layer 1 holds 0.5"},                                 {{3, -1}, "rank 0 holds expert 3 of layer 1 twice"},
        {{-1, -1}, "expert 4 of layer 1 lives nowhere"},
    };
    pose(5);
    gb_error err = {{0}};
    CHECK_EQ(gb_rearrange_add_spare(&r, &arena, 1, &err), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fill_slots();
        r.slots[19] = -1;    /* the other copy of expert 0 */
        memcpy(r.slots + 4, cases[i].slot, sizeof cases[i].slot);
        CHECK_EQ(gb_rearrange_take_slots(&r, 1, &err), GB_EINVAL);
        CHECK_CONTAINS(err.text, cases[i].why);
        CHECK(!r.has_slots[1]);
    }
    gb_arena_deinit(&arena);
}

TESTS(TEST(the_window_table_shows_the_problem), TEST(the_built_in_answer_is_the_search_on_built_in_numbers),
      TEST(a_rule_with_a_score_sees_the_traffic_of_each_choice), TEST(slots_without_spare_ones_are_an_assignment),
      TEST(copies_live_in_spare_slots_and_share_their_experts_traffic), TEST(slots_that_cannot_be_are_named))
