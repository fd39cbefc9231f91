#include "core/moe/estimate.h"

#include "core/moe/generate.h"
#include "tests/check.h"

static gb_arena arena;

static gb_matrix matrix(uint32_t sources, uint32_t experts, const uint64_t *counts)
{
    gb_matrix m;
    CHECK_EQ(gb_matrix_init(&m, &arena, 1, sources, experts), 0);
    memcpy(m.counts, counts, gb_matrix_cells(&m) * sizeof *counts);
    return m;
}

static void one_window_alone_says_nothing_about_sources(void)
{
    gb_arena_init(&arena);
    gb_estimate e;
    CHECK_EQ(gb_estimate_init(&e, &arena, 1, 2, 2), 0);
    gb_matrix w = matrix(2, 2, (uint64_t[]){30, 10, 20, 40});
    gb_estimate_add(&e, &w);
    CHECK_NEAR(e.traffic[0], 40 * 0.5, 1e-12);    /* source 0's volume times the pooled share */
    CHECK_NEAR(e.traffic[3], 60 * 0.5, 1e-12);
    CHECK_NEAR(e.persistence[0], 0, 0);
    CHECK_NEAR(e.variation[0], 0.75 - 1.0 / 3, 1e-12);
    gb_arena_deinit(&arena);
}

static void a_difference_that_repeats_is_kept_whole_and_one_that_flips_is_dropped(void)
{
    gb_arena_init(&arena);
    gb_matrix w = matrix(2, 2, (uint64_t[]){30, 10, 10, 30}), flipped = matrix(2, 2, (uint64_t[]){10, 30, 30, 10});
    gb_estimate same, other;
    CHECK_EQ(gb_estimate_init(&same, &arena, 1, 2, 2), 0);
    CHECK_EQ(gb_estimate_init(&other, &arena, 1, 2, 2), 0);
    gb_estimate_add(&same, &w);
    gb_estimate_add(&same, &w);
    CHECK_NEAR(same.persistence[0], 1, 1e-12);
    CHECK_NEAR(same.traffic[0], 30, 1e-12);
    gb_estimate_add(&other, &w);
    gb_estimate_add(&other, &flipped);
    CHECK_NEAR(other.persistence[0], 0, 0);
    CHECK_NEAR(other.traffic[0], 20, 1e-12);
    gb_arena_deinit(&arena);
}

static void a_cleared_estimate_remembers_nothing(void)
{
    gb_arena_init(&arena);
    gb_matrix w = matrix(2, 2, (uint64_t[]){30, 10, 10, 30});
    gb_estimate e;
    CHECK_EQ(gb_estimate_init(&e, &arena, 1, 2, 2), 0);
    gb_estimate_add(&e, &w);
    gb_estimate_add(&e, &w);
    gb_estimate_clear(&e);
    gb_estimate_add(&e, &w);
    CHECK_NEAR(e.persistence[0], 0, 0);
    CHECK_NEAR(e.traffic[0], 20, 1e-12);
    gb_arena_deinit(&arena);
}

static void without_shrinkage_the_estimate_is_the_mean(void)
{
    gb_arena_init(&arena);
    gb_estimate e;
    CHECK_EQ(gb_estimate_init(&e, &arena, 1, 1, 2), 0);
    e.shrink = false;
    e.keep = 0.75;
    gb_matrix a = matrix(1, 2, (uint64_t[]){100, 0}), b = matrix(1, 2, (uint64_t[]){20, 40});
    gb_estimate_add(&e, &a);
    gb_estimate_add(&e, &b);
    CHECK_NEAR(e.traffic[0], 0.75 * 100 + 0.25 * 20, 1e-12);
    CHECK_NEAR(e.traffic[1], 10, 1e-12);
    gb_arena_deinit(&arena);
}

static void idle_sources_and_layers_stay_at_zero(void)
{
    gb_arena_init(&arena);
    gb_estimate e;
    CHECK_EQ(gb_estimate_init(&e, &arena, 1, 2, 2), 0);
    gb_matrix nothing = matrix(2, 2, (uint64_t[]){0, 0, 0, 0}), half = matrix(2, 2, (uint64_t[]){5, 7, 0, 0});
    gb_estimate_add(&e, &nothing);
    gb_estimate_add(&e, &nothing);
    for (int i = 0; i < 4; i++) CHECK_NEAR(e.traffic[i], 0, 0);
    gb_estimate_add(&e, &half);
    CHECK_NEAR(e.traffic[2], 0, 0);
    CHECK_NEAR(e.traffic[0], 2.5, 1e-12);
    gb_arena_deinit(&arena);
}

/* Mean k measured by the research: .05 at sigma 0, .74 at .25, .87 at .5. */
static void persistence_tells_noise_from_skew(void)
{
    const double sigmas[] = {0, 0.25, 0.5};
    double found[3];
    for (int i = 0; i < 3; i++) {
        gb_arena_init(&arena);
        gb_generator_options o = gb_generator_defaults();
        gb_generator g;
        gb_matrix window;
        gb_estimate e;
        o.sigma = sigmas[i];
        CHECK_EQ(gb_generator_init(&g, &arena, &o, NULL), 0);
        CHECK_EQ(gb_matrix_init(&window, &arena, o.layers, o.sources, o.experts), 0);
        CHECK_EQ(gb_estimate_init(&e, &arena, o.layers, o.sources, o.experts), 0);
        for (int w = 0; w < 6; w++) {
            gb_generator_next(&g, &window);
            gb_estimate_add(&e, &window);
        }
        found[i] = gb_estimate_persistence(&e);
        CHECK(gb_estimate_variation(&e) > 0.05);
        gb_arena_deinit(&arena);
    }
    CHECK(found[0] < 0.1);
    CHECK(found[1] > 0.6);
    CHECK(found[2] > 0.8 && found[2] > found[1]);
}

TESTS(TEST(one_window_alone_says_nothing_about_sources), TEST(a_difference_that_repeats_is_kept_whole_and_one_that_flips_is_dropped),
      TEST(a_cleared_estimate_remembers_nothing),
      TEST(without_shrinkage_the_estimate_is_the_mean), TEST(idle_sources_and_layers_stay_at_zero), TEST(persistence_tells_noise_from_skew))
