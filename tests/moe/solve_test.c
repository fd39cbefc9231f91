#include "core/moe/solve.h"

#include "core/moe/generate.h"
#include "tests/check.h"
#include "tests/moe/fixture.h"

static gb_arena arena;

typedef struct solved {
    int32_t *home;    /* [experts] */
    gb_solve_report report;
} solved;

static solved solve_fixture(const moe_fixture *f, gb_solve_options options)
{
    gb_solver solver;
    solved s = {.home = GB_ARENA_NEW(&arena, int32_t, f->experts)};
    options.weights = f->weights;
    CHECK_EQ(gb_solver_init(&solver, &arena, 1, f->experts, f->ranks, NULL), 0);
    gb_solver_score(&solver, &f->weights, &f->links, f->flow, f->home);
    gb_solver_swap(&solver, s.home, f->home, &options, &s.report);
    return s;
}

static gb_solve_options thorough(void)
{
    gb_solve_options o = gb_solve_defaults();
    o.tolerance = 0;
    return o;
}

static void small_problems_are_solved_exactly(void)
{
    gb_arena_init(&arena);
    for (int i = 0; i < 5; i++) {
        moe_fixture f = moe_fixture_read(moe_fixture_files[i], &arena);
        solved s = solve_fixture(&f, thorough());
        CHECK_NEAR(s.report.objective, f.best, 1e-9 * f.best);
        for (uint32_t e = 0; e < f.experts; e++) CHECK_EQ(s.home[e], f.optimal[e]);
    }
    gb_arena_deinit(&arena);
}

/* All assignments of 8 experts to 4 ranks, two each. */
static double brute_force(const gb_layer *layer, const gb_place_weights *weights, int32_t *x, uint32_t expert, uint32_t *held)
{
    double best = INFINITY;
    if (expert == layer->experts) return gb_score_objective(layer, weights, x);
    for (uint32_t r = 0; r < layer->ranks; r++) {
        if (held[r] == layer->experts / layer->ranks) continue;
        held[r]++;
        x[expert] = (int32_t)r;
        best = fmin(best, brute_force(layer, weights, x, expert + 1, held));
        held[r]--;
    }
    return best;
}

static void tiny_layers_are_solved_as_by_brute_force(void)
{
    enum { E = 8, R = 4 };
    const gb_place_weights forms[] = {gb_place_weights_paper(), gb_place_weights_balanced(), gb_place_weights_latency(), {1, 1, 0.3, GB_IMBALANCE_MAX}};
    const uint64_t seed = 3;
    gb_rng rng;
    gb_rng_init(&rng, seed);
    for (int round = 0; round < 24; round++) {
        gb_arena_init(&arena);
        moe_fixture f = {.weights = forms[round % 4], .sources = 2, .experts = E, .ranks = R, .flow = GB_ARENA_NEW(&arena, double, 2 * E),
                         .home = GB_ARENA_NEW(&arena, int32_t, E)};
        CHECK_EQ(gb_links_init(&f.links, &arena, 2, R, NULL), 0);
        for (int i = 0; i < 2 * E; i++) f.flow[i] = (double)(1 + gb_rng_below(&rng, 1000));
        for (int e = 0; e < E; e++) f.home[e] = e / 2;
        gb_layer layer = {E, R, GB_ARENA_NEW(&arena, double, E * R), GB_ARENA_NEW(&arena, double, E)};
        int32_t x[E];
        uint32_t held[R] = {0};
        gb_score_layer(&layer, &f.weights, &f.links, f.flow, f.home, NULL);
        double best = brute_force(&layer, &f.weights, x, 0, held);
        solved s = solve_fixture(&f, thorough());
        CHECK_NEAR(s.report.objective, best, 1e-9 * best);
        gb_arena_deinit(&arena);
    }
}

static void large_problems_come_within_three_parts_in_a_thousand_of_the_optimum(void)
{
    gb_arena_init(&arena);
    for (int i = 5; i < MOE_FIXTURES; i++) {
        moe_fixture f = moe_fixture_read(moe_fixture_files[i], &arena);
        solved s = solve_fixture(&f, thorough());
        double allowed = f.weights.imbalance == GB_IMBALANCE_MAX ? 0.004 : 0.003;
        printf("    %-24s %.6f, best known %.6f (%+.4f %%), proved gap %.3f %%\n", f.file, s.report.objective, f.best,
               100 * (s.report.objective / f.best - 1), 100 * gb_solve_gap(&s.report));
        CHECK(s.report.objective <= f.best * (1 + allowed));
        CHECK(s.report.objective >= f.lower_bound * (1 - 1e-9));
    }
    gb_arena_deinit(&arena);
}

static void the_bound_is_never_above_the_optimum(void)
{
    gb_arena_init(&arena);
    for (int i = 0; i < MOE_FIXTURES; i++) {
        moe_fixture f = moe_fixture_read(moe_fixture_files[i], &arena);
        for (uint32_t steps = 0; steps <= 400; steps += 100) {
            gb_solve_options o = thorough();
            o.bound_steps = steps;
            solved s = solve_fixture(&f, o);
            CHECK(s.report.bound <= f.best + 1e-9 * f.best);
        }
    }
    gb_arena_deinit(&arena);
}

/* --- several layers from the generator ------------------------------------------------------------------------------- */

typedef struct bench {
    gb_solver solver;
    gb_links links;
    double *traffic;
    int32_t *home, *out;
    uint32_t layers, experts;
} bench;

static bench make_bench(uint32_t layers, uint32_t experts, uint32_t ranks, double sigma, const gb_place_weights *weights)
{
    bench b = {.layers = layers, .experts = experts};
    gb_generator_options o = gb_generator_defaults();
    gb_generator g;
    gb_matrix window;
    o.layers = layers, o.experts = experts, o.sigma = sigma;
    CHECK_EQ(gb_generator_init(&g, &arena, &o, NULL), 0);
    CHECK_EQ(gb_matrix_init(&window, &arena, layers, o.sources, experts), 0);
    CHECK_EQ(gb_links_init(&b.links, &arena, o.sources, ranks, NULL), 0);
    CHECK_EQ(gb_solver_init(&b.solver, &arena, layers, experts, ranks, NULL), 0);
    gb_generator_next(&g, &window);
    b.traffic = GB_ARENA_NEW(&arena, double, gb_matrix_cells(&window));
    for (size_t i = 0; i < gb_matrix_cells(&window); i++) b.traffic[i] = (double)window.counts[i];
    b.home = GB_ARENA_NEW(&arena, int32_t, layers * experts);
    b.out = GB_ARENA_NEW(&arena, int32_t, layers * experts);
    for (uint32_t i = 0; i < layers * experts; i++) b.home[i] = (int32_t)(i % experts * ranks / experts);
    gb_solver_score(&b.solver, weights, &b.links, b.traffic, b.home);
    return b;
}

static void check_capacity(const bench *b)
{
    for (uint32_t l = 0; l < b->layers; l++) {
        uint32_t held[GB_RANKS_MAX] = {0};
        for (uint32_t e = 0; e < b->experts; e++) held[b->out[l * b->experts + e]]++;
        for (uint32_t r = 0; r < b->solver.ranks; r++) CHECK_EQ(held[r], b->solver.capacity);
    }
}

static void a_layer_is_certified_to_the_tolerance_or_searched_to_the_end(void)
{
    gb_arena_init(&arena);
    gb_solve_options o = gb_solve_defaults();
    bench b = make_bench(12, 128, 4, 0.5, &o.weights);
    gb_solve_report r;
    gb_solver_swap(&b.solver, b.out, b.home, &o, &r);
    check_capacity(&b);
    CHECK(gb_solve_gap(&r) <= o.tolerance);
    CHECK(r.objective < r.stay);
    gb_arena_deinit(&arena);
}

static void a_budget_is_never_overdrawn_and_more_of_it_never_hurts(void)
{
    gb_arena_init(&arena);
    const gb_place_weights forms[] = {gb_place_weights_balanced(), gb_place_weights_latency()};
    for (int w = 0; w < 2; w++) {
        gb_solve_options o = gb_solve_defaults();
        o.weights = forms[w];
        bench b = make_bench(6, 64, 4, 0.5, &o.weights);
        double last = INFINITY;
        const uint32_t budgets[] = {0, 1, 2, 7, 16, 40, 100, 383};
        for (int i = 0; i < 8; i++) {
            gb_solve_report r;
            o.max_moves = budgets[i];
            gb_solver_swap(&b.solver, b.out, b.home, &o, &r);
            check_capacity(&b);
            CHECK(r.moves <= budgets[i]);
            CHECK(r.objective <= r.stay);
            CHECK(r.objective <= last);
            if (budgets[i] < 2) CHECK_EQ(r.moves, 0);
            last = r.objective;
        }
        CHECK(last < INFINITY);
    }
    gb_arena_deinit(&arena);
}

static void bytes_bind_like_moves(void)
{
    gb_arena_init(&arena);
    gb_solve_options o = gb_solve_defaults();
    o.weights = gb_place_weights_balanced();
    bench b = make_bench(6, 64, 4, 0.5, &o.weights);
    gb_solve_report by_moves, by_bytes;
    o.max_moves = 20;
    gb_solver_swap(&b.solver, b.out, b.home, &o, &by_moves);
    o.max_moves = GB_MOVES_ANY;
    o.max_bytes = 20 * o.expert_bytes + o.expert_bytes / 2;
    gb_solver_swap(&b.solver, b.out, b.home, &o, &by_bytes);
    CHECK_EQ(by_bytes.moves, by_moves.moves);
    CHECK_NEAR(by_bytes.objective, by_moves.objective, 0);
    gb_arena_deinit(&arena);
}

static void a_gain_below_the_threshold_moves_nothing(void)
{
    gb_arena_init(&arena);
    gb_solve_options o = gb_solve_defaults();
    bench b = make_bench(6, 128, 4, 0.25, &o.weights);
    gb_solve_report r;
    o.min_gain_ratio = 0.9;
    gb_solver_swap(&b.solver, b.out, b.home, &o, &r);
    CHECK_EQ(r.moves, 0);
    CHECK_NEAR(r.objective, r.stay, 0);
    o.max_moves = 50;
    gb_solver_swap(&b.solver, b.out, b.home, &o, &r);
    CHECK_EQ(r.moves, 0);
    gb_arena_deinit(&arena);
}

/* Random problems of many shapes and weights: a valid answer, no worse than staying, not below the proof. */
static void no_answer_is_invalid_or_worse_than_staying(void)
{
    const uint64_t seed = 20261130;
    gb_rng rng;
    gb_rng_init(&rng, seed);
    for (int round = 0; round < 300 && check_failures == 0; round++) {
        gb_arena_init(&arena);
        uint32_t ranks = 1 + (uint32_t)gb_rng_below(&rng, 9), per = 1 + (uint32_t)gb_rng_below(&rng, 12), experts = ranks * per;
        uint32_t layers = 1 + (uint32_t)gb_rng_below(&rng, 3), sources = 1 + (uint32_t)gb_rng_below(&rng, 4);
        gb_solve_options o = gb_solve_defaults();
        o.weights = (gb_place_weights){gb_rng_uniform(&rng), 4 * gb_rng_uniform(&rng) * (double)gb_rng_below(&rng, 2), gb_rng_uniform(&rng),
                                       gb_rng_below(&rng, 2) ? GB_IMBALANCE_MAX : GB_IMBALANCE_SQUARES};
        if (gb_rng_below(&rng, 3) == 0) o.max_moves = (uint32_t)gb_rng_below(&rng, 20);
        bench b = {.layers = layers, .experts = experts};
        CHECK_EQ(gb_links_init(&b.links, &arena, sources, ranks, NULL), 0);
        CHECK_EQ(gb_solver_init(&b.solver, &arena, layers, experts, ranks, NULL), 0);
        size_t cells = (size_t)layers * sources * experts;
        b.traffic = GB_ARENA_NEW(&arena, double, cells);
        bool idle = gb_rng_below(&rng, 10) == 0;
        for (size_t i = 0; i < cells; i++) b.traffic[i] = idle ? 0 : (double)gb_rng_below(&rng, 1000);
        b.home = GB_ARENA_NEW(&arena, int32_t, (size_t)layers * experts);
        b.out = GB_ARENA_NEW(&arena, int32_t, (size_t)layers * experts);
        for (uint32_t i = 0; i < layers * experts; i++) b.home[i] = (int32_t)(i % experts * ranks / experts);
        gb_solve_report r;
        gb_solver_score(&b.solver, &o.weights, &b.links, b.traffic, b.home);
        CHECK_EQ(gb_solver_check(&b.solver, NULL), 0);
        gb_solver_swap(&b.solver, b.out, b.home, &o, &r);
        check_capacity(&b);
        CHECK(r.objective <= r.stay);
        CHECK(r.objective >= r.bound - 1e-6 * (1 + fabs(r.bound)));
        CHECK(r.moves <= o.max_moves);
        if (check_failures) printf("    seed %llu round %d\n", (unsigned long long)seed, round);
        gb_arena_deinit(&arena);
    }
}

static void the_largest_numbers_do_not_break_the_search(void)
{
    const gb_imbalance forms[] = {GB_IMBALANCE_SQUARES, GB_IMBALANCE_MAX};
    for (int i = 0; i < 2; i++) {
        gb_arena_init(&arena);
        gb_solve_options o = gb_solve_defaults();
        gb_solve_report r;
        o.weights = (gb_place_weights){GB_PLACE_NUMBER_MAX, GB_PLACE_NUMBER_MAX, GB_PLACE_NUMBER_MAX, forms[i]};
        CHECK_EQ(gb_solve_options_check(&o, NULL), 0);
        bench b = make_bench(2, 64, 8, 1, &o.weights);
        for (uint32_t k = 0; k < b.links.sources * b.links.ranks; k++) b.links.cost[k] *= GB_PLACE_NUMBER_MAX;
        CHECK_EQ(gb_links_check(&b.links, NULL), 0);
        gb_solver_score(&b.solver, &o.weights, &b.links, b.traffic, b.home);
        CHECK_EQ(gb_solver_check(&b.solver, NULL), 0);
        gb_solver_swap(&b.solver, b.out, b.home, &o, &r);
        check_capacity(&b);
        CHECK(r.objective <= r.stay);
        CHECK(r.objective >= r.bound * (1 - 1e-9));
        gb_arena_deinit(&arena);
    }
}

static void shapes_that_do_not_fit_are_refused_with_their_numbers(void)
{
    gb_arena_init(&arena);
    gb_solver s;
    gb_error err = {{0}};
    CHECK_EQ(gb_solver_init(&s, &arena, 1, 10, 4, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "10 experts cannot be split evenly over 4 ranks");
    CHECK_EQ(gb_solver_init(&s, &arena, 1, 4, 8, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "8 ranks for 4 experts");
    CHECK_EQ(gb_solver_init(&s, &arena, 1, GB_EXPERTS_MAX + 1, 1, &err), GB_EINVAL);
    CHECK_EQ(gb_solver_init(&s, &arena, 1, 4, 0, &err), GB_EINVAL);
    gb_arena_deinit(&arena);
}

static void a_table_with_numbers_that_are_none_is_refused(void)
{
    gb_arena_init(&arena);
    gb_error err = {{0}};
    gb_solve_options o = gb_solve_defaults();
    bench b = make_bench(2, 16, 4, 0.5, &o.weights);
    CHECK_EQ(gb_solver_check(&b.solver, &err), 0);
    b.solver.layer[1].cost[3 * 16 + 7] = NAN;
    CHECK_EQ(gb_solver_check(&b.solver, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "layer 1: cost of expert 7 on rank 3 is nan");
    b.solver.layer[0].load[5] = -1;
    CHECK_EQ(gb_solver_check(&b.solver, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "layer 0: load of expert 5 is -1");
    gb_arena_deinit(&arena);
}

static void options_out_of_range_are_named(void)
{
    gb_error err = {{0}};
    gb_solve_options o = gb_solve_defaults();
    CHECK_EQ(gb_solve_options_check(&o, &err), 0);
    o.tolerance = NAN;
    CHECK_EQ(gb_solve_options_check(&o, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "tolerance is nan");
    o = gb_solve_defaults();
    o.expert_bytes = 0;
    CHECK_EQ(gb_solve_options_check(&o, &err), GB_EINVAL);
}

TESTS(TEST(small_problems_are_solved_exactly), TEST(tiny_layers_are_solved_as_by_brute_force), TEST(large_problems_come_within_three_parts_in_a_thousand_of_the_optimum),
      TEST(the_bound_is_never_above_the_optimum), TEST(a_layer_is_certified_to_the_tolerance_or_searched_to_the_end),
      TEST(a_budget_is_never_overdrawn_and_more_of_it_never_hurts), TEST(bytes_bind_like_moves),
      TEST(a_gain_below_the_threshold_moves_nothing), TEST(no_answer_is_invalid_or_worse_than_staying),
      TEST(the_largest_numbers_do_not_break_the_search), TEST(shapes_that_do_not_fit_are_refused_with_their_numbers), TEST(a_table_with_numbers_that_are_none_is_refused),
      TEST(options_out_of_range_are_named))
