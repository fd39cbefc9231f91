#include "core/moe/generate.h"

#include <math.h>

#include "core/base/assert.h"

gb_generator_options gb_generator_defaults(void)
{
    return (gb_generator_options){.layers = 48, .sources = 2, .experts = 128, .top_k = 8, .pairs_per_source = 160000, .sigma = 0.5,
                                  .zipf_low = 0.45, .zipf_high = 0.70, .dispersion = 64, .drift = 0.95, .seed = 1};
}

/* --- distributions ------------------------------------------------------------------------------------------------ */

static double positive_uniform(gb_rng *rng) { return 1 - gb_rng_uniform(rng); }

/* Box and Muller's cosine half: two uniforms for one normal keep the stream free of hidden state. */
static double normal(gb_rng *rng)
{
    double radius = sqrt(-2 * log(positive_uniform(rng)));
    return radius * cos(6.283185307179586 * gb_rng_uniform(rng));
}

/* Marsaglia and Tsang 2000, mean 1; shape >= 1. */
static double gamma_noise(gb_rng *rng, double shape)
{
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = normal(rng), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(positive_uniform(rng)) < 0.5 * x * x + d - d * v + d * log(v)) return d * v / shape;
    }
}

/* log k!, by Stirling's series above 9. */
static double log_factorial(double k)
{
    static const double small[] = {0, 0, 0.6931471805599453, 1.791759469228055, 3.178053830347946, 4.787491742782046,
                                   6.579251212010101, 8.525161361065415, 10.60460290274525, 12.80182748008147};
    if (k < 10) return small[(int)k];
    double x = k + 1;
    return (x - 0.5) * log(x) - x + 0.9189385332046727 + 1 / (12 * x) - 1 / (360 * x * x * x);
}

static uint64_t poisson_by_products(gb_rng *rng, double mean)
{
    double limit = exp(-mean), product = positive_uniform(rng);
    uint64_t k = 0;
    for (; product > limit; k++) product *= positive_uniform(rng);
    return k;
}

/* Hoermann 1993 (PTRS), for means of 10 and more. */
static uint64_t poisson_by_rejection(gb_rng *rng, double mean)
{
    double b = 0.931 + 2.53 * sqrt(mean), a = -0.059 + 0.02483 * b, inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    double quick = 0.9277 - 3.6224 / (b - 2), log_mean = log(mean);
    for (;;) {
        double u = gb_rng_uniform(rng) - 0.5, v = positive_uniform(rng), us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + mean + 0.43);
        if (us >= 0.07 && v <= quick) return (uint64_t)k;
        if (k < 0 || (us < 0.013 && v > us)) continue;
        if (log(v * inverse_alpha / (a / (us * us) + b)) <= k * log_mean - mean - log_factorial(k)) return (uint64_t)k;
    }
}

static uint64_t poisson(gb_rng *rng, double mean)
{
    return mean < 10 ? poisson_by_products(rng, mean) : poisson_by_rejection(rng, mean);
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

/* A token chooses an expert at most once, so no share may exceed 1 / top_k. */
static void normalise(double *p, uint32_t n, double most)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += p[i];
    for (uint32_t i = 0; i < n; i++) p[i] = fmin(p[i] / sum, most);
}

static void shuffle(double *p, uint32_t n, gb_rng *rng)
{
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t j = (uint32_t)gb_rng_below(rng, i + 1);
        double t = p[i];
        p[i] = p[j];
        p[j] = t;
    }
}

static void fill_normal(double *x, size_t n, gb_rng *rng)
{
    for (size_t i = 0; i < n; i++) x[i] = normal(rng);
}

static void init_layer(gb_generator *g, uint32_t layer)
{
    const gb_generator_options *o = &g->options;
    uint32_t E = o->experts, S = o->sources;
    gb_rng *rng = &g->rng[layer];
    double *base = g->base + (size_t)layer * E;
    gb_rng_init(rng, o->seed ^ gb_mix64(layer + 1));
    double exponent = o->zipf_low + (o->zipf_high - o->zipf_low) * gb_rng_uniform(rng);
    for (uint32_t e = 0; e < E; e++) base[e] = pow(e + 1, -exponent) * exp(0.1 * normal(rng));
    shuffle(base, E, rng);
    normalise(base, E, 0.9 / o->top_k);
    for (uint32_t e = 0; e < E; e++) base[e] = log(base[e]);
    fill_normal(g->taste + (size_t)layer * S * E, (size_t)S * E, rng);
    fill_normal(g->block_taste + (size_t)layer * S * S, (size_t)S * S, rng);
}

static int check_options(const gb_generator_options *o, gb_error *err)
{
    if (o->layers == 0 || o->sources == 0 || o->experts < 2)
        return gb_fail(err, GB_EINVAL, "a window has at least 1 layer, 1 source and 2 experts, not %u, %u and %u", o->layers, o->sources, o->experts);
    if (o->top_k == 0 || o->top_k >= o->experts)
        return gb_fail(err, GB_EINVAL, "top-k is %u: a token chooses 1 to %u of %u experts", o->top_k, o->experts - 1, o->experts);
    const struct { const char *name; double value, low, high; } ranges[] = {
        {"pairs", o->pairs_per_source, 0, 1e15}, {"sigma", o->sigma, 0, 8}, {"block", o->block, 0, 8}, {"zipf (low)", o->zipf_low, 0, 4},
        {"zipf (high)", o->zipf_high, o->zipf_low, 4}, {"dispersion", o->dispersion, 1e-3, 1e12}, {"drift", o->drift, 0, 1}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high))
            return gb_fail(err, GB_EINVAL, "%s is %g: choose %g to %g", ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high);
    return GB_OK;
}

int gb_generator_init(gb_generator *g, gb_arena *arena, const gb_generator_options *o, gb_error *err)
{
    int rc = check_options(o, err);
    if (rc != GB_OK) return rc;
    size_t L = o->layers, S = o->sources, E = o->experts;
    *g = (gb_generator){.options = *o,
                        .rng = GB_ARENA_NEW(arena, gb_rng, L),
                        .base = GB_ARENA_NEW(arena, double, L * E),
                        .common = GB_ARENA_NEW(arena, double, L * E),
                        .taste = GB_ARENA_NEW(arena, double, L * S * E),
                        .block_taste = GB_ARENA_NEW(arena, double, L * S * S),
                        .scratch = GB_ARENA_NEW(arena, double, E)};
    if (!g->rng || !g->base || !g->common || !g->taste || !g->block_taste || !g->scratch)
        return gb_fail(err, GB_ENOMEM, "out of memory for a generator of %zu layers, %zu sources, %zu experts", L, S, E);
    for (uint32_t l = 0; l < o->layers; l++) init_layer(g, l);
    return GB_OK;
}

/* What source s prefers now: a distribution over experts in scratch. */
static void preferences(gb_generator *g, uint32_t layer, uint32_t source)
{
    const gb_generator_options *o = &g->options;
    uint32_t E = o->experts, S = o->sources;
    const double *base = g->base + (size_t)layer * E, *common = g->common + (size_t)layer * E;
    const double *taste = g->taste + ((size_t)layer * S + source) * E, *block = g->block_taste + ((size_t)layer * S + source) * S;
    for (uint32_t e = 0; e < E; e++)
        g->scratch[e] = exp(base[e] + 0.3 * common[e] + o->sigma * taste[e] + o->block * block[(uint64_t)e * S / E]);
    normalise(g->scratch, E, 1.0 / o->top_k);
    normalise(g->scratch, E, 1);
}

static void draw_counts(gb_generator *g, uint64_t *counts, gb_rng *rng)
{
    const gb_generator_options *o = &g->options;
    for (uint32_t e = 0; e < o->experts; e++) {
        double shape = fmax(o->dispersion * o->top_k * 8 * g->scratch[e], 1);
        g->scratch[e] *= gamma_noise(rng, shape);
    }
    normalise(g->scratch, o->experts, 1);
    for (uint32_t e = 0; e < o->experts; e++) counts[e] = poisson(rng, o->pairs_per_source * g->scratch[e]);
}

static void drift(double *x, size_t n, double correlation, double scale, gb_rng *rng)
{
    double fresh = scale * sqrt(1 - correlation * correlation);
    for (size_t i = 0; i < n; i++) x[i] = correlation * x[i] + fresh * normal(rng);
}

void gb_generator_next(gb_generator *g, gb_matrix *window)
{
    const gb_generator_options *o = &g->options;
    size_t S = o->sources, E = o->experts;
    GB_ASSERT(window->layers == o->layers && window->sources == S && window->experts == E);
    for (uint32_t l = 0; l < o->layers; l++) {
        gb_rng *rng = &g->rng[l];
        for (uint32_t s = 0; s < S; s++) {
            preferences(g, l, s);
            draw_counts(g, gb_matrix_row(window, l, s), rng);
        }
        drift(g->taste + l * S * E, S * E, o->drift, 1, rng);
        drift(g->block_taste + l * S * S, S * S, o->drift, 1, rng);
        drift(g->common + l * E, E, o->drift, 0.5, rng);
    }
}
