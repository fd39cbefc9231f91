/* router: which experts a row goes to. */
#include "tests/cuda/device.h"

#include <stdlib.h>

enum { ROWS = 9, E_MAX = 1024, K_MAX = 32 };

static void expect_routes(const float *logits, uint32_t E, uint32_t K, bool normalize, const int32_t *experts, const float *weights)
{
    bool taken[E_MAX] = {false};
    float p[E_MAX], highest = -INFINITY;
    double sum = 0, chosen = 0, want[K_MAX];
    for (uint32_t e = 0; e < E; e++) highest = fmaxf(highest, logits[e]);
    for (uint32_t e = 0; e < E; e++) sum += p[e] = expf(logits[e] - highest);
    for (uint32_t k = 0; k < K; k++) {
        int32_t best = -1;
        for (uint32_t e = 0; e < E; e++)
            if (!taken[e] && (best < 0 || p[e] > p[best])) best = (int32_t)e;
        taken[best] = true;
        CHECK_EQ(experts[k], best);
        chosen += want[k] = p[best] / sum;
    }
    for (uint32_t k = 0; k < K; k++) CHECK_NEAR(weights[k], normalize ? want[k] / chosen : want[k], 1e-6);
}

/* Logits in steps of 1/8, so that ties are common. */
static void check_router(uint32_t E, uint32_t K, bool normalize)
{
    static float logits[ROWS * E_MAX], weights[ROWS * K_MAX];
    static int32_t experts[ROWS * K_MAX];
    const int32_t tokens[ROWS] = {1, 1, -1, 1, 1, 1, 1, 1, -1};
    gb_rng rng;
    fresh_rng(&rng, E);
    for (uint32_t i = 0; i < ROWS * E; i++) logits[i] = (float)gb_rng_below(&rng, 32) / 8 - 2;
    gb_k_router_args a = {.experts = device_new(ROWS * K, 4), .weights = device_new(ROWS * K, 4), .logits = device_copy(logits, ROWS * E, 4),
                          .tokens = DEVICE_COPY(tokens), .n = ROWS, .E = E, .K = K, .normalize = normalize};
    CHECK_EQ(gb_k_router(&a, 0), GB_OK);
    device_read(experts, a.experts, ROWS * K, 4);
    device_read(weights, a.weights, ROWS * K, 4);
    for (uint32_t row = 0; row < ROWS; row++) {
        if (tokens[row] >= 0) expect_routes(logits + row * E, E, K, normalize, experts + row * K, weights + row * K);
        for (uint32_t k = 0; tokens[row] < 0 && k < K; k++) {
            CHECK_EQ(experts[row * K + k], -1);
            CHECK_EQ(weights[row * K + k] == 0, 1);
        }
    }
    device_free_all();
}

static void the_router_takes_the_best_experts_and_the_lower_one_among_equals(void)
{
    check_router(128, 8, true);
    check_router(128, 8, false);
    check_router(32, 4, true);
}

static void any_number_of_experts_fits(void)
{
    check_router(1, 1, true);
    check_router(33, 32, false);
    check_router(60, 4, true);
    check_router(200, 6, true);
    check_router(500, 22, true);
    check_router(1024, 10, false);
}

/* As comparisons with NaN are never true: the first experts. */
static void logits_that_are_no_numbers_route_to_the_first_experts(void)
{
    float logits[40];
    int32_t experts[3];
    for (int e = 0; e < 40; e++) logits[e] = NAN;
    gb_k_router_args a = {.experts = device_new(3, 4), .weights = device_new(3, 4), .logits = DEVICE_COPY(logits), .n = 1, .E = 40, .K = 3};
    CHECK_EQ(gb_k_router(&a, 0), GB_OK);
    device_read(experts, a.experts, 3, 4);
    for (int k = 0; k < 3; k++) CHECK_EQ(experts[k], k);
    device_free_all();
}

static void shapes_that_do_not_fit_are_refused_and_no_rows_are_no_work(void)
{
    gb_k_router_args r = {.n = 1, .E = 8, .K = 9};
    CHECK_EQ(gb_k_router(&r, 0), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "9 of 8 experts");
    r = (gb_k_router_args){.n = 1, .E = GB_K_EXPERTS_MAX + 1, .K = 1};
    CHECK_EQ(gb_k_router(&r, 0), GB_EINVAL);
    r = (gb_k_router_args){.n = 1, .E = 100, .K = GB_K_TOP_MAX + 1};
    CHECK_EQ(gb_k_router(&r, 0), GB_EINVAL);
    r = (gb_k_router_args){.E = 8, .K = 2};
    CHECK_EQ(gb_k_router(&r, 0), GB_OK);
}

TESTS(TEST(the_router_takes_the_best_experts_and_the_lower_one_among_equals), TEST(any_number_of_experts_fits),
      TEST(logits_that_are_no_numbers_route_to_the_first_experts), TEST(shapes_that_do_not_fit_are_refused_and_no_rows_are_no_work))
