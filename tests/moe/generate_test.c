#include "core/moe/generate.h"

#include "tests/check.h"

static gb_arena arena;

static gb_matrix window_of(const gb_generator_options *o, int drifts)
{
    gb_generator g;
    gb_matrix m;
    CHECK_EQ(gb_generator_init(&g, &arena, o, NULL), 0);
    CHECK_EQ(gb_matrix_init(&m, &arena, o->layers, o->sources, o->experts), 0);
    for (int i = 0; i <= drifts; i++) gb_generator_next(&g, &m);
    return m;
}

static gb_generator_options small(void)
{
    gb_generator_options o = gb_generator_defaults();
    o.layers = 4;
    return o;
}

static void the_same_seed_gives_the_same_window(void)
{
    gb_arena_init(&arena);
    gb_generator_options o = small();
    gb_matrix a = window_of(&o, 2), b = window_of(&o, 2);
    CHECK(memcmp(a.counts, b.counts, gb_matrix_cells(&a) * sizeof *a.counts) == 0);
    o.seed = 2;
    gb_matrix c = window_of(&o, 2);
    CHECK(memcmp(a.counts, c.counts, gb_matrix_cells(&a) * sizeof *a.counts) != 0);
    gb_arena_deinit(&arena);
}

static void a_layer_does_not_depend_on_how_many_there_are(void)
{
    gb_arena_init(&arena);
    gb_generator_options o = small();
    gb_matrix four = window_of(&o, 1);
    o.layers = 2;
    gb_matrix two = window_of(&o, 1);
    CHECK(memcmp(four.counts, two.counts, gb_matrix_cells(&two) * sizeof *two.counts) == 0);
    gb_arena_deinit(&arena);
}

static double variation(const gb_matrix *m, uint32_t l)
{
    double total[2] = {0}, distance = 0;
    for (uint32_t s = 0; s < 2; s++)
        for (uint32_t e = 0; e < m->experts; e++) total[s] += (double)gb_matrix_row(m, l, s)[e];
    for (uint32_t e = 0; e < m->experts; e++)
        distance += fabs((double)gb_matrix_row(m, l, 0)[e] / total[0] - (double)gb_matrix_row(m, l, 1)[e] / total[1]) / 2;
    return distance;
}

/* The table that the research generator gave: total variation .094 at sigma 0 (noise), .292 at 0.5, .522 at 1. */
static void sigma_sets_how_much_sources_differ(void)
{
    gb_arena_init(&arena);
    const double sigmas[] = {0, 0.5, 1}, expected[] = {0.094, 0.292, 0.522};
    for (int i = 0; i < 3; i++) {
        gb_generator_options o = gb_generator_defaults();
        o.sigma = sigmas[i];
        gb_matrix m = window_of(&o, 0);
        double mean = 0;
        for (uint32_t l = 0; l < o.layers; l++) mean += variation(&m, l) / o.layers;
        CHECK_NEAR(mean, expected[i], 0.02);
    }
    gb_arena_deinit(&arena);
}

static void the_hottest_expert_is_five_to_ten_times_the_mean_and_totals_are_as_asked(void)
{
    gb_arena_init(&arena);
    gb_generator_options o = gb_generator_defaults();
    gb_matrix m = window_of(&o, 0);
    double ratio = 0;
    for (uint32_t l = 0; l < o.layers; l++) {
        double most = 0, total = 0;
        for (uint32_t e = 0; e < o.experts; e++) {
            double n = (double)(gb_matrix_row(&m, l, 0)[e] + gb_matrix_row(&m, l, 1)[e]);
            total += n;
            most = n > most ? n : most;
        }
        CHECK_NEAR(total, 2 * o.pairs_per_source, 0.01 * total);
        ratio += most / (total / o.experts) / o.layers;
    }
    CHECK(ratio > 5 && ratio < 10);
    gb_arena_deinit(&arena);
}

static void small_means_are_poisson_too(void)
{
    gb_arena_init(&arena);
    gb_generator_options o = small();
    o.pairs_per_source = 200;    /* most experts expect fewer than ten */
    double total = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        o.seed = seed;
        gb_matrix m = window_of(&o, 0);
        for (size_t i = 0; i < gb_matrix_cells(&m); i++) total += (double)m.counts[i];
    }
    CHECK_NEAR(total / (20.0 * o.layers * o.sources), 200, 6);
    gb_arena_deinit(&arena);
}

static void options_out_of_range_are_named(void)
{
    gb_arena_init(&arena);
    gb_generator g;
    gb_error err = {{0}};
    gb_generator_options o = small();
    o.drift = NAN;
    CHECK_EQ(gb_generator_init(&g, &arena, &o, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "drift is nan");
    o = small();
    o.top_k = 128;
    CHECK_EQ(gb_generator_init(&g, &arena, &o, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "top-k is 128");
    gb_arena_deinit(&arena);
}

TESTS(TEST(the_same_seed_gives_the_same_window), TEST(a_layer_does_not_depend_on_how_many_there_are), TEST(sigma_sets_how_much_sources_differ),
      TEST(the_hottest_expert_is_five_to_ten_times_the_mean_and_totals_are_as_asked), TEST(small_means_are_poisson_too),
      TEST(options_out_of_range_are_named))
