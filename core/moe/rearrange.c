#include "core/moe/rearrange.h"

#include <string.h>

int gb_rearrange_init(gb_rearrangement *r, gb_arena *arena, gb_solver *solver, const gb_solve_options *options, uint32_t sources, gb_error *err)
{
    size_t homes = (size_t)solver->layers * solver->experts;
    *r = (gb_rearrangement){.solver = solver, .options = options};
    r->links = (gb_links){.sources = sources, .ranks = solver->ranks};
    r->window = (gb_window_table){
        .n = (double)homes * sources, .layers = solver->layers, .sources = sources, .experts = solver->experts, .ranks = solver->ranks,
        .capacity = solver->capacity, .expert_rows = (double)homes, .link_rows = (double)sources * solver->ranks,
    };
    r->window.expert_tokens = GB_ARENA_NEW(arena, double, homes);
    r->window.home = GB_ARENA_NEW(arena, double, homes);
    r->rank_traffic = GB_ARENA_NEW(arena, double, (size_t)solver->experts * solver->ranks);
    r->rank_of = GB_ARENA_NEW(arena, int32_t, homes);
    bool whole = r->window.expert_tokens && r->window.home && r->rank_traffic && r->rank_of;
    return whole ? GB_OK : gb_fail(err, GB_ENOMEM, "out of memory for a rearrangement of %u layers and %u experts", solver->layers, solver->experts);
}

static const double *layer_traffic(const gb_rearrangement *r, uint32_t layer)
{
    return r->traffic + (size_t)layer * r->links.sources * r->solver->experts;
}

static void sum_sources(gb_rearrangement *r)
{
    uint32_t E = r->solver->experts;
    memset(r->window.expert_tokens, 0, (size_t)r->window.expert_rows * sizeof(double));
    for (uint32_t l = 0; l < r->solver->layers; l++) {
        double *to = r->window.expert_tokens + (size_t)l * E;
        const double *from = layer_traffic(r, l);
        for (uint32_t s = 0; s < r->links.sources; s++)
            for (uint32_t e = 0; e < E; e++) to[e] += from[(size_t)s * E + e];
    }
}

void gb_rearrange_pose(gb_rearrangement *r, const double *traffic, const gb_links *links, const int32_t *home, uint64_t id)
{
    r->traffic = traffic;
    r->home = home;
    r->links.cost = links->cost;
    r->window.id = (double)id;
    r->window.tokens = (double *)traffic;    /* read-only to policies */
    r->window.link_cost = links->cost;
    for (size_t i = 0; i < (size_t)r->window.expert_rows; i++) r->window.home[i] = home[i];
    sum_sources(r);
}

void gb_rearrange_score(gb_rearrangement *r, uint32_t layer)
{
    gb_score_layer(&r->solver->layer[layer], &r->options->weights, &r->links, layer_traffic(r, layer), r->home + (size_t)layer * r->solver->experts, NULL);
}

/* Comm of every choice, by expert, in the order of additions of gb_score_layer: the same to the last bit. */
static void fill_rank_traffic(gb_rearrangement *r, uint32_t layer)
{
    uint32_t E = r->solver->experts, R = r->solver->ranks;
    const double *flow = layer_traffic(r, layer);
    double total = 0;
    for (uint32_t e = 0; e < E; e++) total += r->window.expert_tokens[(size_t)layer * E + e];
    double per_mean = total > 0 ? E / total : 0;
    memset(r->rank_traffic, 0, (size_t)E * R * sizeof *r->rank_traffic);
    for (uint32_t s = 0; s < r->links.sources; s++)
        for (uint32_t e = 0; e < E; e++) {
            double *to = r->rank_traffic + (size_t)e * R, tokens = flow[(size_t)s * E + e];
            for (uint32_t k = 0; k < R; k++) to[k] += per_mean * r->links.cost[(size_t)s * R + k] * tokens;
        }
}

void gb_rearrange_greedy(gb_rearrangement *r, gb_greedy *rule, uint32_t layer)
{
    size_t at = (size_t)layer * r->solver->experts;
    if (rule->score) {
        fill_rank_traffic(r, layer);
        rule->traffic = r->rank_traffic;
    }
    gb_greedy_place(rule, r->rank_of + at, &r->solver->layer[layer], &r->options->weights, r->home + at, r->solver->capacity, layer);
    r->report = (gb_solve_report){0};
}

void gb_rearrange_search(gb_rearrangement *r) { gb_solver_swap(r->solver, r->rank_of, r->home, r->options, &r->report); }

void gb_rearrange_built_in(gb_rearrangement *r)
{
    for (uint32_t l = 0; l < r->solver->layers; l++) gb_rearrange_score(r, l);
    gb_rearrange_search(r);
}
