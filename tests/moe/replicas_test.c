#include "core/moe/replicas.h"

#include "core/moe/eplb.h"
#include "core/moe/generate.h"
#include "core/moe/route.h"
#include "core/moe/solve.h"
#include "tests/check.h"

static gb_arena arena;

typedef struct bench {
    gb_solver solver;
    gb_links links;
    double *now, *next;    /* traffic of two windows */
    int32_t *home, *good;
    gb_placement before;
} bench;

enum { LAYERS = 8, SOURCES = 2, EXPERTS = 128, RANKS = 4 };

static double *traffic_of(gb_generator *g, gb_matrix *window)
{
    gb_generator_next(g, window);
    double *t = GB_ARENA_NEW(&arena, double, gb_matrix_cells(window));
    for (size_t i = 0; i < gb_matrix_cells(window); i++) t[i] = (double)window->counts[i];
    return t;
}

static bench make(double sigma, uint32_t spare, const gb_place_weights *weights)
{
    bench b;
    gb_generator_options o = gb_generator_defaults();
    gb_generator g;
    gb_matrix window;
    o.layers = LAYERS, o.sigma = sigma;
    CHECK_EQ(gb_generator_init(&g, &arena, &o, NULL), 0);
    CHECK_EQ(gb_matrix_init(&window, &arena, LAYERS, SOURCES, EXPERTS), 0);
    CHECK_EQ(gb_links_init(&b.links, &arena, SOURCES, RANKS, NULL), 0);
    CHECK_EQ(gb_solver_init(&b.solver, &arena, LAYERS, EXPERTS, RANKS, NULL), 0);
    CHECK_EQ(gb_placement_init(&b.before, &arena, LAYERS, SOURCES, EXPERTS, RANKS, spare, NULL), 0);
    b.now = traffic_of(&g, &window);
    b.next = traffic_of(&g, &window);
    b.home = GB_ARENA_NEW(&arena, int32_t, LAYERS * EXPERTS);
    b.good = GB_ARENA_NEW(&arena, int32_t, LAYERS * EXPERTS);
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) b.home[i] = (int32_t)(i % EXPERTS * RANKS / EXPERTS);
    gb_solve_options so = gb_solve_defaults();
    gb_solve_report report;
    so.weights = *weights;
    gb_solver_score(&b.solver, weights, &b.links, b.now, b.home);
    gb_solver_swap(&b.solver, b.good, b.home, &so, &report);
    return b;
}

static gb_placement place(const bench *b, uint32_t spare, const gb_place_weights *weights, const gb_placement *before)
{
    gb_placement p;
    gb_replicas r;
    gb_error err = {{0}};
    CHECK_EQ(gb_placement_init(&p, &arena, LAYERS, SOURCES, EXPERTS, RANKS, spare, NULL), 0);
    CHECK_EQ(gb_replicas_init(&r, &arena, SOURCES, EXPERTS, RANKS, EXPERTS / RANKS + spare), 0);
    for (uint32_t l = 0; l < LAYERS; l++)
        gb_replicas_place(&r, &p, l, weights, &b->links, b->now + (size_t)l * SOURCES * EXPERTS, b->good + (size_t)l * EXPERTS, before);
    CHECK_EQ(gb_placement_check(&p, &err), 0);
    CHECK_STR(err.text, "");
    return p;
}

static gb_place_report report_of(const gb_placement *p, const bench *b, const double *traffic)
{
    gb_place_report r;
    gb_place_weights w = gb_place_weights_balanced();
    gb_score_placement(&r, &w, &b->links, traffic, p, &b->before, 1);
    return r;
}

static const gb_place_weights free_moves = {1, 0.1, 0, GB_IMBALANCE_SQUARES};

static void four_spare_slots_serve_three_quarters_at_home_and_balance_the_next_window(void)
{
    gb_arena_init(&arena);
    bench b = make(0.5, 4, &free_moves);
    gb_placement p = place(&b, 4, &free_moves, NULL);
    gb_place_report now = report_of(&p, &b, b.now), next = report_of(&p, &b, b.next);
    printf("    this window: remote %.3f, max/mean %.3f; next: %.3f, %.3f\n", now.remote_ratio, now.max_over_mean, next.remote_ratio, next.max_over_mean);
    CHECK(now.remote_ratio <= 0.23);
    CHECK(next.remote_ratio <= 0.26);
    CHECK(next.max_over_mean <= 1.08);
    gb_arena_deinit(&arena);
}

static void it_beats_eplb_with_the_same_slots_on_what_is_remote(void)
{
    gb_arena_init(&arena);
    bench b = make(0.5, 4, &free_moves);
    gb_placement ours = place(&b, 4, &free_moves, NULL), eplb;
    CHECK_EQ(gb_placement_init(&eplb, &arena, LAYERS, SOURCES, EXPERTS, RANKS, 4, NULL), 0);
    CHECK_EQ(gb_eplb_place(&eplb, b.now, 1, 1, NULL), 0);
    CHECK_EQ(gb_placement_check(&eplb, NULL), 0);
    gb_place_report even = report_of(&eplb, &b, b.next);
    CHECK(report_of(&ours, &b, b.next).remote_ratio < even.remote_ratio - 0.1);
    CHECK(even.max_over_mean < 1.1);
    for (uint32_t l = 0; l < LAYERS; l++) gb_route_nearest(&eplb, l, &b.links);
    CHECK(report_of(&ours, &b, b.next).remote_ratio < report_of(&eplb, &b, b.next).remote_ratio - 0.05);
    gb_arena_deinit(&arena);
}

static void no_spare_slots_means_no_copies(void)
{
    gb_arena_init(&arena);
    bench b = make(0.5, 0, &free_moves);
    gb_placement p = place(&b, 0, &free_moves, NULL);
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) CHECK(p.expert_of_slot[i] >= 0);
    for (uint32_t i = 0; i < LAYERS * SOURCES * EXPERTS; i++) CHECK_EQ(p.other[i], -1);
    gb_arena_deinit(&arena);
}

static void dear_moves_make_few_copies(void)
{
    gb_arena_init(&arena);
    gb_place_weights dear = {1, 0.1, 0.5, GB_IMBALANCE_SQUARES}, dearest = {1, 0.1, 100, GB_IMBALANCE_SQUARES};
    bench b = make(0.5, 4, &dearest);
    gb_placement cheap = place(&b, 4, &free_moves, &b.before), few = place(&b, 4, &dear, &b.before), none = place(&b, 4, &dearest, &b.before);
    CHECK(report_of(&few, &b, b.now).moves < report_of(&cheap, &b, b.now).moves / 2);
    CHECK(report_of(&few, &b, b.now).moves > 0);
    CHECK_EQ(report_of(&none, &b, b.now).moves, 0);
    gb_arena_deinit(&arena);
}

/* Two sources, two ranks: the hot expert that both use belongs on both, each served at home. */
static void each_source_uses_its_own_copy(void)
{
    gb_arena_init(&arena);
    gb_replicas r;
    gb_placement p;
    gb_links links;
    double flow[2][4] = {{100, 10, 10, 1}, {100, 1, 10, 10}};
    int32_t home[4] = {0, 0, 1, 1};
    CHECK_EQ(gb_links_init(&links, &arena, 2, 2, NULL), 0);
    CHECK_EQ(gb_placement_init(&p, &arena, 1, 2, 4, 2, 1, NULL), 0);
    CHECK_EQ(gb_replicas_init(&r, &arena, 2, 4, 2, 3), 0);
    gb_replicas_place(&r, &p, 0, &free_moves, &links, &flow[0][0], home, NULL);
    CHECK_EQ(gb_placement_check(&p, NULL), 0);
    CHECK_EQ(gb_placement_rank_of_slot(&p, gb_placement_routes(&p, 0, 0)[0]), 0);
    CHECK_EQ(gb_placement_rank_of_slot(&p, gb_placement_routes(&p, 0, 1)[0]), 1);
    gb_arena_deinit(&arena);
}

TESTS(TEST(four_spare_slots_serve_three_quarters_at_home_and_balance_the_next_window), TEST(it_beats_eplb_with_the_same_slots_on_what_is_remote),
      TEST(no_spare_slots_means_no_copies), TEST(dear_moves_make_few_copies), TEST(each_source_uses_its_own_copy))
