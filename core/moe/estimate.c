#include "core/moe/estimate.h"

#include <math.h>
#include <string.h>

#include "core/base/assert.h"

int gb_estimate_init(gb_estimate *e, gb_arena *arena, uint32_t layers, uint32_t sources, uint32_t experts)
{
    size_t row = (size_t)sources * experts, all = layers * row;
    *e = (gb_estimate){.layers = layers, .sources = sources, .experts = experts, .keep = 0.5, .shrink = true,
                       .mean = GB_ARENA_NEW(arena, double, all), .traffic = GB_ARENA_NEW(arena, double, all),
                       .persistence = GB_ARENA_NEW(arena, double, layers), .variation = GB_ARENA_NEW(arena, double, layers),
                       .fresh = GB_ARENA_NEW(arena, double, row), .past = GB_ARENA_NEW(arena, double, row)};
    return e->mean && e->traffic && e->persistence && e->variation && e->fresh && e->past ? GB_OK : GB_ENOMEM;
}

void gb_estimate_clear(gb_estimate *e)
{
    e->windows = 0;
    memset(e->persistence, 0, e->layers * sizeof *e->persistence);
    memset(e->variation, 0, e->layers * sizeof *e->variation);
}

static double total_of(const double *x, size_t n)
{
    double total = 0;
    for (size_t i = 0; i < n; i++) total += x[i];
    return total;
}

/* d[s][e] = share of e in s minus share of e in all; 0 for a source without traffic. */
static void differences(double *d, const double *flow, uint32_t sources, uint32_t experts)
{
    double all = total_of(flow, (size_t)sources * experts);
    memset(d, 0, (size_t)sources * experts * sizeof *d);
    if (all <= 0) return;
    for (uint32_t e = 0; e < experts; e++) {
        double pooled = 0;
        for (uint32_t s = 0; s < sources; s++) pooled += flow[(size_t)s * experts + e];
        for (uint32_t s = 0; s < sources; s++) d[(size_t)s * experts + e] = -pooled / all;
    }
    for (uint32_t s = 0; s < sources; s++) {
        double *row = d + (size_t)s * experts, volume = total_of(flow + (size_t)s * experts, experts);
        for (uint32_t e = 0; e < experts; e++) row[e] = volume > 0 ? row[e] + flow[(size_t)s * experts + e] / volume : 0;
    }
}

static double dot(const double *x, const double *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Half the L1 distance of two sources' distributions is half that of their differences. */
static double variation_of(const double *d, uint32_t sources, uint32_t experts)
{
    double sum = 0;
    for (uint32_t s = 0; s < sources; s++)
        for (uint32_t t = 0; t < s; t++)
            for (uint32_t e = 0; e < experts; e++) sum += fabs(d[(size_t)s * experts + e] - d[(size_t)t * experts + e]) / 2;
    return sources > 1 ? sum / (sources * (sources - 1) / 2.0) : 0;
}

static void note_persistence(gb_estimate *e, uint32_t layer)
{
    size_t row = (size_t)e->sources * e->experts;
    double length = dot(e->past, e->past, row);
    double k = length > 0 ? dot(e->fresh, e->past, row) / length : 0;
    k = fmin(fmax(k, 0), 1);
    e->persistence[layer] = e->windows == 1 ? k : 0.5 * e->persistence[layer] + 0.5 * k;
}

static void shrink_layer(gb_estimate *e, uint32_t layer)
{
    size_t row = (size_t)e->sources * e->experts;
    const double *mean = e->mean + layer * row;
    double *traffic = e->traffic + layer * row, k = e->shrink ? e->persistence[layer] : 1;
    differences(e->past, mean, e->sources, e->experts);
    for (uint32_t s = 0; s < e->sources; s++) {
        double volume = total_of(mean + (size_t)s * e->experts, e->experts);
        for (uint32_t i = 0; i < e->experts; i++) {
            size_t at = (size_t)s * e->experts + i;
            traffic[at] = fmax(mean[at] - (1 - k) * volume * e->past[at], 0);
        }
    }
}

void gb_estimate_add(gb_estimate *e, const gb_matrix *window)
{
    GB_ASSERT(window->layers == e->layers && window->sources == e->sources && window->experts == e->experts);
    size_t row = (size_t)e->sources * e->experts;
    for (uint32_t l = 0; l < e->layers; l++) {
        double *mean = e->mean + l * row, keep = e->windows ? e->keep : 0;
        const uint64_t *counts = window->counts + l * row;
        for (size_t i = 0; i < row; i++) e->traffic[l * row + i] = (double)counts[i];
        differences(e->fresh, e->traffic + l * row, e->sources, e->experts);
        e->variation[l] = variation_of(e->fresh, e->sources, e->experts);
        if (e->windows) {
            differences(e->past, mean, e->sources, e->experts);
            note_persistence(e, l);
        }
        for (size_t i = 0; i < row; i++) mean[i] = keep * mean[i] + (1 - keep) * (double)counts[i];
        shrink_layer(e, l);
    }
    e->windows++;
}

double gb_estimate_persistence(const gb_estimate *e) { return total_of(e->persistence, e->layers) / e->layers; }
double gb_estimate_variation(const gb_estimate *e) { return total_of(e->variation, e->layers) / e->layers; }
