#include "tests/moe/fixture.h"

#include <jansson.h>
#include <stdlib.h>

#include "tests/check.h"

const char *const moe_fixture_files[MOE_FIXTURES] = {
    "t1_2x4x2_quad", "t2_same_source_no_gain", "t3_2x8x4_quad", "t4_2x8x4_max", "t5_3x9x3_tiers", "m1_2x32x4_quad",
    "m2_2x32x4_max", "m3_2x128x4_paper", "m4_2x128x4_quad_strong", "m5_2x128x4_max_strong", "m6_4x64x8_tiers"};

static double number(const json_t *object, const char *key) { return json_number_value(json_object_get(object, key)); }

static int32_t *integers(const json_t *array, gb_arena *arena)
{
    int32_t *x = GB_ARENA_NEW(arena, int32_t, json_array_size(array));
    for (size_t i = 0; i < json_array_size(array); i++) x[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return x;
}

static double *rows(const json_t *matrix, gb_arena *arena)
{
    size_t n = json_array_size(matrix), m = json_array_size(json_array_get(matrix, 0));
    double *x = GB_ARENA_NEW(arena, double, n * m);
    for (size_t i = 0; i < n * m; i++) x[i] = json_number_value(json_array_get(json_array_get(matrix, i / m), i % m));
    return x;
}

moe_fixture moe_fixture_read(const char *file, gb_arena *arena)
{
    char path[256];
    json_error_t error;
    snprintf(path, sizeof path, "tests/moe/fixtures/%s.json", file);
    json_t *j = json_load_file(check_path(path), 0, &error);
    if (!j) {
        printf("%s: %s\n", check_path(path), error.text);
        exit(1);
    }
    moe_fixture f = {.file = file, .sources = (uint32_t)number(j, "sources"), .experts = (uint32_t)number(j, "experts"),
                     .ranks = (uint32_t)number(j, "ranks"), .stay = number(j, "J_at_x0")};
    bool max = strcmp(json_string_value(json_object_get(j, "imbalance")), "max_minus_mean") == 0;
    f.weights = (gb_place_weights){number(j, "alpha"), number(j, "beta"), number(j, "gamma"), max ? GB_IMBALANCE_MAX : GB_IMBALANCE_SQUARES};
    f.links = (gb_links){f.sources, f.ranks, rows(json_object_get(j, "cost"), arena)};
    f.flow = rows(json_object_get(j, "A"), arena);
    f.home = integers(json_object_get(j, "x0"), arena);
    f.optimal = integers(json_object_get(j, "optimal_placement"), arena);
    bool exact = json_object_get(j, "optimal") != NULL;
    f.best = number(j, exact ? "optimal" : "best_known");
    f.lower_bound = exact ? f.best : number(j, "lower_bound");
    const json_t *greedy = json_object_get(j, "paper_greedy");
    f.greedy = integers(json_object_get(greedy, "placement"), arena);
    f.greedy_objective = number(greedy, "J");
    json_decref(j);
    return f;
}
