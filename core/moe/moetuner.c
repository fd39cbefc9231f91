#include "core/moe/moetuner.h"

#include <string.h>

#include "core/moe/greedy.h"

/* share[s][r]: the part of a source's tokens that sits on rank r after layer l. */
static void find_shares(double *share, const double *flow, const int32_t *home, uint32_t sources, uint32_t experts, uint32_t ranks)
{
    memset(share, 0, (size_t)sources * ranks * sizeof *share);
    for (uint32_t s = 0; s < sources; s++) {
        double total = 0;
        for (uint32_t e = 0; e < experts; e++) {
            share[(size_t)s * ranks + (uint32_t)home[e]] += flow[(size_t)s * experts + e];
            total += flow[(size_t)s * experts + e];
        }
        for (uint32_t r = 0; r < ranks && total > 0; r++) share[(size_t)s * ranks + r] /= total;
    }
}

/* cost[r][e]: tokens for e that come from other ranks, in mean experts. share NULL: the first layer, where none come yet. */
static void fill_costs(gb_layer *layer, const double *flow, uint32_t sources, const double *share)
{
    uint32_t E = layer->experts, R = layer->ranks;
    double total = 0;
    memset(layer->cost, 0, (size_t)R * E * sizeof *layer->cost);
    memset(layer->load, 0, E * sizeof *layer->load);
    for (uint32_t i = 0; i < sources * E; i++) {
        layer->load[i % E] += flow[i];
        total += flow[i];
    }
    double per_mean = total > 0 ? E / total : 0;
    for (uint32_t e = 0; e < E; e++) layer->load[e] *= per_mean;
    for (uint32_t s = 0; share && s < sources; s++)
        for (uint32_t r = 0; r < R; r++)
            for (uint32_t e = 0; e < E; e++)
                layer->cost[(size_t)r * E + e] += per_mean * flow[(size_t)s * E + e] * (1 - share[(size_t)s * R + r]);
}

void gb_moetuner_place(gb_solver *solver, int32_t *home, const double *traffic, uint32_t sources, double *share)
{
    gb_place_weights weights = gb_place_weights_latency();
    gb_swap_search *search = &solver->search[0];
    uint32_t E = solver->experts;
    for (uint32_t l = 0; l < solver->layers; l++) {
        const double *flow = traffic + (size_t)l * sources * E;
        int32_t *x = home + (size_t)l * E, no_home[GB_EXPERTS_MAX];
        gb_greedy greedy = {0};
        for (uint32_t e = 0; e < E; e++) no_home[e] = -1;
        if (l > 0) find_shares(share, flow - (size_t)sources * E, x - E, sources, E, solver->ranks);
        fill_costs(&solver->layer[l], flow, sources, l > 0 ? share : NULL);
        gb_greedy_place(&greedy, x, &solver->layer[l], &weights, no_home, solver->capacity, l);
        gb_swap_set_layer(search, &solver->layer[l], &weights, x);
        gb_swap_load(search, x);
        gb_swap_continue(search);
        memcpy(x, search->rank_of, E * sizeof *x);
    }
}
