#include "core/moe/exact.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct writer {
    const gb_layer *layer;
    const gb_place_weights *weights;
    gb_exact_sink *sink;
    void *self;
    int rc;             /* of the sink; the rest is skipped once it is not 0 */
    uint32_t terms;     /* on this line: LP lines must stay short */
} writer;

static void put(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(writer *w, const char *format, ...)
{
    char text[128];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (w->rc == 0) w->rc = w->sink(w->self, text, (size_t)n);
}

static void put_term(writer *w, double factor, uint32_t rank, uint32_t expert)
{
    if (factor == 0) return;
    put(w, " %+.17g x%u_%u%s", factor, rank, expert, ++w->terms % 6 == 0 ? "\n" : "");
}

static double mean_load(const gb_layer *layer)
{
    double total = 0;
    for (uint32_t e = 0; e < layer->experts; e++) total += layer->load[e];
    return total / layer->ranks;
}

static void put_objective(writer *w)
{
    const gb_layer *layer = w->layer;
    put(w, "Minimize\n obj:");
    for (uint32_t r = 0; r < layer->ranks; r++)
        for (uint32_t e = 0; e < layer->experts; e++) put_term(w, layer->cost[(size_t)r * layer->experts + e], r, e);
    uint32_t loads = w->weights->imbalance == GB_IMBALANCE_SQUARES ? layer->ranks : 1;
    for (uint32_t i = 0; i < loads; i++) put(w, " %+.17g y%u", w->weights->beta, i);
    put(w, "\nSubject To\n");
}

static void put_assignment(writer *w, uint32_t capacity)
{
    const gb_layer *layer = w->layer;
    for (uint32_t e = 0; e < layer->experts; e++) {
        for (uint32_t r = 0; r < layer->ranks; r++) put_term(w, 1, r, e);
        put(w, " = 1\n");
    }
    for (uint32_t r = 0; r < layer->ranks; r++) {
        for (uint32_t e = 0; e < layer->experts; e++) put_term(w, 1, r, e);
        put(w, " <= %u\n", capacity);
    }
}

/* y_r >= (t - mean)^2 + 2 (t - mean) (W_r - t) for tangent points t from 0.4 to 1.6 of the mean, and y_r >= 0. */
static void put_tangents(writer *w)
{
    double mean = mean_load(w->layer);
    for (uint32_t r = 0; r < w->layer->ranks; r++)
        for (int i = 0; i < GB_EXACT_TANGENTS; i++) {
            double t = mean * (0.4 + 1.2 * i / (GB_EXACT_TANGENTS - 1)), slope = 2 * (t - mean);
            for (uint32_t e = 0; e < w->layer->experts; e++) put_term(w, -slope * w->layer->load[e], r, e);
            put(w, " + y%u >= %.17g\n", r, (t - mean) * (t - mean) - slope * t);
        }
}

/* y0 >= W_r - mean */
static void put_tops(writer *w)
{
    double mean = mean_load(w->layer);
    for (uint32_t r = 0; r < w->layer->ranks; r++) {
        for (uint32_t e = 0; e < w->layer->experts; e++) put_term(w, -w->layer->load[e], r, e);
        put(w, " + y0 >= %.17g\n", -mean);
    }
}

int gb_exact_write(const gb_layer *layer, const gb_place_weights *weights, uint32_t capacity, gb_exact_sink *sink, void *self)
{
    writer w = {.layer = layer, .weights = weights, .sink = sink, .self = self};
    put_objective(&w);
    put_assignment(&w, capacity);
    if (weights->imbalance == GB_IMBALANCE_SQUARES) put_tangents(&w);
    else put_tops(&w);
    put(&w, "Binaries\n");
    for (uint32_t r = 0; r < layer->ranks; r++)
        for (uint32_t e = 0; e < layer->experts; e++) put(&w, " x%u_%u%s", r, e, e % 8 == 7 ? "\n" : "");
    put(&w, "\nEnd\n");
    return w.rc;
}

/* --- the answer ------------------------------------------------------------------------------------------------------------ */

static int check_answer(const int32_t *rank_of, const gb_layer *layer, uint32_t capacity, gb_error *err)
{
    uint32_t held[GB_RANKS_MAX] = {0};
    for (uint32_t e = 0; e < layer->experts; e++) {
        if (rank_of[e] < 0) return gb_fail(err, GB_EFORMAT, "the exact solver's answer places expert %u nowhere", e);
        if (++held[rank_of[e]] > capacity)
            return gb_fail(err, GB_EFORMAT, "the exact solver's answer puts more than %u experts on rank %d", capacity, rank_of[e]);
    }
    return GB_OK;
}

int gb_exact_read(const char *text, const gb_layer *layer, uint32_t capacity, int32_t *rank_of, bool *optimal, gb_error *err)
{
    *optimal = strncmp(text, "Optimal", 7) == 0;
    if (strncmp(text, "Infeasible", 10) == 0 || strstr(text, "no integer solution"))
        return gb_fail(err, GB_ENOTFOUND, "the exact solver found no placement in its time");
    for (uint32_t e = 0; e < layer->experts; e++) rank_of[e] = -1;
    for (const char *line = strchr(text, '\n'); line; line = strchr(line + 1, '\n')) {
        unsigned index, rank, expert;
        double value;
        if (sscanf(line, " %u x%u_%u %lf", &index, &rank, &expert, &value) != 4 || value < 0.5) continue;
        if (rank >= layer->ranks || expert >= layer->experts) return gb_fail(err, GB_EFORMAT, "the exact solver's answer names x%u_%u", rank, expert);
        rank_of[expert] = (int32_t)rank;
    }
    return check_answer(rank_of, layer, capacity, err);
}
