/* Decisions as a server takes them: window after window, each from where the last one ended. */
#include "core/moe/planner.h"

#include "core/moe/generate.h"
#include "tests/check.h"

enum { LAYERS = 4, SOURCES = 2, EXPERTS = 16, RANKS = 4 };

static gb_arena arena;
static gb_planner planner;
static gb_placement live;
static gb_window window;
static gb_planner_options options;

static void start_shape(uint32_t layers, uint32_t experts, uint32_t spare)
{
    gb_error err = {{0}};
    gb_arena_init(&arena);
    CHECK_EQ(gb_placement_init(&live, &arena, layers, SOURCES, experts, RANKS, spare, NULL), GB_OK);
    CHECK_EQ(gb_matrix_init(&window.counts, &arena, layers, SOURCES, experts), GB_OK);
    window.id = 0;
    CHECK_EQ(gb_planner_init(&planner, &arena, &live, &options, &err), GB_OK);
    CHECK_STR(err.text, "");
}

static void start(uint32_t spare)
{
    options = (gb_planner_options){.every = 1, .solve = gb_solve_defaults()};
    options.solve.weights = gb_place_weights_balanced();
    start_shape(LAYERS, EXPERTS, spare);
}

static void stop(void) { gb_arena_deinit(&arena); }

/* Source 0 (ranks 0 and 1) asks for the even experts, source 1 for the odd ones. */
static void observe_a_split_by_parity(void)
{
    window.id++;
    for (uint32_t l = 0; l < live.layers; l++)
        for (uint32_t s = 0; s < SOURCES; s++)
            for (uint32_t e = 0; e < EXPERTS; e++) gb_matrix_row(&window.counts, l, s)[e] = e % 2 == s ? 1000 : 10;
    gb_planner_observe(&planner, &window);
}

static uint32_t take_the_plan(void)
{
    const gb_plan *plan = &planner.decider.plan;
    gb_placement now;
    CHECK_EQ(gb_placement_init(&now, &arena, live.layers, SOURCES, live.experts, RANKS, live.slots_per_rank - live.experts / RANKS, NULL), GB_OK);
    gb_plan_apply(&now, &live, &planner.next, plan, plan->steps);
    CHECK_EQ(memcmp(now.expert_of_slot, planner.next.expert_of_slot, live.layers * gb_placement_slots(&live) * sizeof(int32_t)), 0);
    CHECK_EQ(gb_placement_check(&planner.next, NULL), GB_OK);
    gb_placement_copy(&live, &planner.next);
    return gb_plan_copies(plan);
}

static double remote_ratio(void)
{
    gb_place_report report;
    gb_score_placement(&report, &options.solve.weights, &planner.links, planner.estimate.traffic, &live, NULL, 1);
    return report.remote_ratio;
}

static void experts_move_to_the_sources_that_use_them_and_then_stay(void)
{
    start(0);
    for (int i = 0; i < 4; i++) observe_a_split_by_parity();
    CHECK_NEAR(remote_ratio(), 0.5, 1e-9);
    CHECK_EQ(gb_planner_decide(&planner, &live, 0), GB_VERDICT_ACCEPTED);
    CHECK(take_the_plan() > 0);
    CHECK(remote_ratio() < 0.02);
    CHECK(gb_solve_gap(&planner.stats.report) < 0.01);
    observe_a_split_by_parity();
    CHECK(gb_planner_decide(&planner, &live, 0) > GB_VERDICT_CUT);
    CHECK_EQ(planner.stats.decisions, 2);
    CHECK_EQ(planner.stats.accepted, 1);
    stop();
}

static void spare_slots_get_copies_for_the_sources_that_lack_them(void)
{
    start(2);
    for (int i = 0; i < 3; i++) {
        window.id++;
        for (uint32_t l = 0; l < LAYERS; l++)
            for (uint32_t s = 0; s < SOURCES; s++)
                for (uint32_t e = 0; e < EXPERTS; e++) gb_matrix_row(&window.counts, l, s)[e] = e < 4 ? 1000 : 50;    /* hot for both */
        gb_planner_observe(&planner, &window);
    }
    double before = remote_ratio();
    CHECK(gb_planner_decide(&planner, &live, 0) <= GB_VERDICT_CUT);
    take_the_plan();
    CHECK(remote_ratio() < 0.5 * before);
    observe_a_split_by_parity();
    gb_planner_decide(&planner, &live, 0);    /* from homes that copies have left uneven */
    CHECK_EQ(gb_placement_check(&planner.next, NULL), GB_OK);
    stop();
}

/* Homes as they are; the hot experts 0 to 3 have a copy on the ranks of source 1, and layer 0 is left to the core. */
static int place_slots(void *self, gb_rearrangement *r, gb_time now)
{
    gb_error err = {{0}};
    (void)now;
    ++*(int *)self;
    gb_rearrange_built_in(r);
    for (uint32_t l = 1; l < LAYERS; l++) {
        for (uint32_t i = 0; i < RANKS * r->slots_per_rank; i++) {
            int rank = (int)(i / r->slots_per_rank), place = (int)(i % r->slots_per_rank), share = EXPERTS / RANKS;
            r->slots[i] = place < share ? rank * share + place : rank < 2 ? -1 : (rank - 2) * 2 + place - share;
        }
        CHECK_EQ(gb_rearrange_take_slots(r, l, &err), 0);
    }
    return GB_OK;
}

static void slots_that_a_policy_fills_are_taken_as_they_are(void)
{
    int asked = 0;
    start(2);
    planner.place = place_slots;
    planner.self = &asked;
    for (int i = 0; i < 3; i++) {
        window.id++;
        for (uint32_t l = 0; l < LAYERS; l++)
            for (uint32_t s = 0; s < SOURCES; s++)
                for (uint32_t e = 0; e < EXPERTS; e++) gb_matrix_row(&window.counts, l, s)[e] = e < 4 ? 1000 : 50;
        gb_planner_observe(&planner, &window);
    }
    CHECK_EQ(gb_planner_decide(&planner, &live, 0), GB_VERDICT_ACCEPTED);
    CHECK_EQ(asked, 1);
    CHECK(take_the_plan() >= 4 * (LAYERS - 1));
    for (uint32_t l = 1; l < LAYERS; l++) {
        const int32_t *slots = gb_placement_layer_slots(&live, l);
        for (int e = 0; e < 4; e++) {
            CHECK_EQ(slots[e], e);
            CHECK_EQ(slots[(2 + e / 2) * 6 + 4 + e % 2], e);
            CHECK_EQ(gb_placement_rank_of_slot(&live, gb_placement_routes(&live, l, 0)[e]), 0);
            CHECK_EQ(gb_placement_rank_of_slot(&live, gb_placement_routes(&live, l, 1)[e]), 2 + e / 2);
        }
    }
    stop();
}

static void a_decision_waits_for_so_many_windows(void)
{
    start(0);
    planner.options.every = 3;
    for (int round = 0; round < 2; round++) {
        observe_a_split_by_parity();
        observe_a_split_by_parity();
        CHECK(!gb_planner_due(&planner));
        observe_a_split_by_parity();
        CHECK(gb_planner_due(&planner));
        gb_planner_decide(&planner, &live, 0);
        CHECK(!gb_planner_due(&planner));
    }
    planner.options.every = 0;
    observe_a_split_by_parity();
    CHECK(!gb_planner_due(&planner));
    stop();
}

static void the_caps_cut_the_plan_and_the_threshold_refuses_it(void)
{
    start(0);
    for (int i = 0; i < 3; i++) observe_a_split_by_parity();
    planner.options.solve.max_moves = 6;
    CHECK(gb_planner_decide(&planner, &live, 0) <= GB_VERDICT_CUT);
    CHECK(gb_plan_copies(&planner.decider.plan) > 0 && gb_plan_copies(&planner.decider.plan) <= 6);
    planner.options.solve.max_moves = GB_MOVES_ANY;
    planner.options.solve.max_bytes = 5 * planner.options.solve.expert_bytes;
    CHECK(gb_planner_decide(&planner, &live, 0) <= GB_VERDICT_CUT);
    CHECK(gb_plan_copies(&planner.decider.plan) > 0 && gb_plan_copies(&planner.decider.plan) <= 5);
    planner.options.solve.max_bytes = UINT64_MAX;
    planner.options.solve.min_gain_ratio = 1;
    CHECK(gb_planner_decide(&planner, &live, 0) > GB_VERDICT_CUT);
    CHECK_EQ(gb_plan_copies(&planner.decider.plan), 0);
    CHECK_EQ(memcmp(planner.next.route, live.route, LAYERS * SOURCES * EXPERTS * sizeof *live.route), 0);
    stop();
}

/* Moves all experts of rank 0 to rank 1 and back, whatever the traffic says. */
static int rotate(void *self, gb_rearrangement *r, gb_time now)
{
    uint32_t *calls = self;
    ++*calls;
    CHECK_EQ(now, gb_ms(7));
    CHECK_EQ(r->window.id, window.id);
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) r->rank_of[i] = (r->home[i] + 1) % RANKS;
    return 0;
}

static void whoever_places_a_gain_is_asked_for(void)
{
    uint32_t calls = 0;
    start(0);
    planner.place = rotate;
    planner.self = &calls;
    for (int i = 0; i < 3; i++) observe_a_split_by_parity();
    CHECK_EQ(gb_planner_decide(&planner, &live, gb_ms(7)), GB_VERDICT_NO_GAIN);
    CHECK_EQ(calls, 1);
    stop();
}

/* 48 layers of 128 experts; the popular ones stay popular, and every count trembles by 1 %. */
static void noise_of_1_percent_moves_at_most_30_experts_a_window(void)
{
    enum { BIG_LAYERS = 48, BIG_EXPERTS = 128, WINDOWS = 8 };
    gb_matrix base;
    gb_rng rng;
    gb_generator generator;
    gb_generator_options g = gb_generator_defaults();
    uint32_t first = 0;
    options = (gb_planner_options){.every = 1, .solve = gb_solve_defaults()};
    options.solve.weights = gb_place_weights_balanced();
    start_shape(BIG_LAYERS, BIG_EXPERTS, 0);
    gb_rng_init(&rng, 5);
    CHECK_EQ(gb_generator_init(&generator, &arena, &g, NULL), GB_OK);
    CHECK_EQ(gb_matrix_init(&base, &arena, BIG_LAYERS, SOURCES, BIG_EXPERTS), GB_OK);
    gb_generator_next(&generator, &base);
    for (int w = 0; w < WINDOWS; w++) {
        window.id++;
        for (size_t i = 0; i < gb_matrix_cells(&base); i++)
            window.counts.counts[i] = (uint64_t)((double)base.counts[i] * (1 + 0.02 * (gb_rng_uniform(&rng) - 0.5)));
        gb_planner_observe(&planner, &window);
        uint32_t moves = gb_planner_decide(&planner, &live, 0) <= GB_VERDICT_CUT ? take_the_plan() : 0;
        first += w < 3 ? moves : 0;
        if (w >= 3) CHECK(moves <= 30);
    }
    CHECK(first > 300);    /* it did find what was to be found */
    stop();
}

static void options_out_of_range_are_refused(void)
{
    gb_error err = {{0}};
    start(0);
    options.solve.weights.beta = -1;
    CHECK_EQ(gb_planner_init(&planner, &arena, &live, &options, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "beta");
    stop();
}

TESTS(TEST(experts_move_to_the_sources_that_use_them_and_then_stay), TEST(spare_slots_get_copies_for_the_sources_that_lack_them),
      TEST(slots_that_a_policy_fills_are_taken_as_they_are), TEST(a_decision_waits_for_so_many_windows), TEST(the_caps_cut_the_plan_and_the_threshold_refuses_it),
      TEST(whoever_places_a_gain_is_asked_for), TEST(noise_of_1_percent_moves_at_most_30_experts_a_window),
      TEST(options_out_of_range_are_refused))
