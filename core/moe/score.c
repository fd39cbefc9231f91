#include "core/moe/score.h"

#include <math.h>
#include <string.h>

#include "core/base/assert.h"

gb_place_weights gb_place_weights_paper(void) { return (gb_place_weights){1, 0.0025, 1, GB_IMBALANCE_SQUARES}; }
gb_place_weights gb_place_weights_balanced(void) { return (gb_place_weights){1, 0.1, 0.1, GB_IMBALANCE_SQUARES}; }
gb_place_weights gb_place_weights_latency(void) { return (gb_place_weights){1, 4, 0.1, GB_IMBALANCE_MAX}; }

static bool good_number(double x) { return x >= 0 && x <= GB_PLACE_NUMBER_MAX; }

int gb_place_weights_check(const gb_place_weights *weights, gb_error *err)
{
    const struct { const char *name; double value; } all[] = {
        {"alpha", weights->alpha}, {"beta", weights->beta}, {"gamma", weights->gamma}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!good_number(all[i].value))
            return gb_fail(err, GB_EINVAL, "weight %s is %g: weights are numbers from 0 to %g", all[i].name, all[i].value, GB_PLACE_NUMBER_MAX);
    return GB_OK;
}

/* --- links ------------------------------------------------------------------------------------------------------- */

int gb_links_init(gb_links *links, gb_arena *arena, uint32_t sources, uint32_t ranks, gb_error *err)
{
    if (sources == 0 || ranks == 0) return gb_fail(err, GB_EINVAL, "a cost matrix needs at least one source and one rank");
    *links = (gb_links){.sources = sources, .ranks = ranks};
    links->cost = GB_ARENA_NEW(arena, double, (size_t)sources * ranks);
    if (!links->cost) return gb_fail(err, GB_ENOMEM, "out of memory for a cost matrix of %u x %u", sources, ranks);
    gb_links_groups(links);
    return GB_OK;
}

void gb_links_groups(gb_links *links) { gb_links_tiers(links, links->ranks, 1); }

static bool shares_node(const gb_links *links, uint32_t source, uint32_t node, uint32_t ranks_per_node)
{
    for (uint32_t r = 0; r < links->ranks; r++)
        if (gb_links_owner(links, r) == source && r / ranks_per_node == node) return true;
    return false;
}

void gb_links_tiers(gb_links *links, uint32_t ranks_per_node, double near)
{
    GB_ASSERT(ranks_per_node > 0);
    for (uint32_t s = 0; s < links->sources; s++)
        for (uint32_t r = 0; r < links->ranks; r++) {
            bool own = gb_links_owner(links, r) == s;
            links->cost[(size_t)s * links->ranks + r] = own ? 0 : shares_node(links, s, r / ranks_per_node, ranks_per_node) ? near : 1;
        }
}

int gb_links_check(const gb_links *links, gb_error *err)
{
    for (uint32_t s = 0; s < links->sources; s++)
        for (uint32_t r = 0; r < links->ranks; r++) {
            double cost = links->cost[(size_t)s * links->ranks + r];
            if (!good_number(cost))
                return gb_fail(err, GB_EINVAL, "cost of source %u to rank %u is %g: costs are numbers from 0 to %g", s, r, cost,
                               GB_PLACE_NUMBER_MAX);
        }
    return GB_OK;
}

/* --- one layer --------------------------------------------------------------------------------------------------- */

/* u_e, and 1/b; both 0 without traffic. */
static double fill_load(double *load, const double *flow, uint32_t sources, uint32_t experts)
{
    double total = 0;
    memset(load, 0, experts * sizeof *load);
    for (uint32_t s = 0; s < sources; s++)
        for (uint32_t e = 0; e < experts; e++) load[e] += flow[(size_t)s * experts + e];
    for (uint32_t e = 0; e < experts; e++) total += load[e];
    double per_mean = total > 0 ? experts / total : 0;
    for (uint32_t e = 0; e < experts; e++) load[e] *= per_mean;
    return per_mean;
}

static void add_scaled(double *restrict to, const double *restrict from, double scale, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) to[i] += scale * from[i];
}

void gb_score_layer(gb_layer *layer, const gb_place_weights *weights, const gb_links *links, const double *flow,
                    const int32_t *home, const double *move_weight)
{
    GB_ASSERT(layer->ranks == links->ranks);
    uint32_t E = layer->experts;
    double per_mean = fill_load(layer->load, flow, links->sources, E);
    memset(layer->cost, 0, (size_t)layer->ranks * E * sizeof *layer->cost);
    for (uint32_t r = 0; r < layer->ranks; r++) {
        double *cost = layer->cost + (size_t)r * E;
        for (uint32_t s = 0; s < links->sources; s++) {
            double scale = weights->alpha * per_mean * links->cost[(size_t)s * links->ranks + r];
            if (scale != 0) add_scaled(cost, flow + (size_t)s * E, scale, E);
        }
        if (!home) continue;
        for (uint32_t e = 0; e < E; e++)
            if (home[e] != (int32_t)r) cost[e] += weights->gamma * (move_weight ? move_weight[e] : 1);
    }
}

static double imbalance_of(const double *rank_load, uint32_t ranks, gb_imbalance form)
{
    double mean = 0, squares = 0, most = rank_load[0];
    for (uint32_t r = 0; r < ranks; r++) mean += rank_load[r] / ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        squares += (rank_load[r] - mean) * (rank_load[r] - mean);
        if (rank_load[r] > most) most = rank_load[r];
    }
    return form == GB_IMBALANCE_SQUARES ? squares : most - mean;
}

double gb_score_objective(const gb_layer *layer, const gb_place_weights *weights, const int32_t *rank_of)
{
    double rank_load[GB_RANKS_MAX] = {0}, linear = 0;
    for (uint32_t e = 0; e < layer->experts; e++) {
        linear += layer->cost[(size_t)rank_of[e] * layer->experts + e];
        rank_load[rank_of[e]] += layer->load[e];
    }
    return linear + weights->beta * imbalance_of(rank_load, layer->ranks, weights->imbalance);
}

/* --- a placement on a window -------------------------------------------------------------------------------------- */

typedef struct tally {
    double total, remote, paid;    /* assignments, those off the source's ranks, and sum of their link costs */
    double rank_load[GB_RANKS_MAX];
} tally;

static void send(tally *t, const gb_links *links, uint32_t source, uint32_t rank, double amount)
{
    t->total += amount;
    t->paid += amount * links->cost[(size_t)source * links->ranks + rank];
    if (gb_links_owner(links, rank) != source) t->remote += amount;
    t->rank_load[rank] += amount;
}

static tally tally_layer(const gb_placement *p, const gb_links *links, const double *flow, uint32_t layer)
{
    tally t = {0};
    for (uint32_t s = 0; s < p->sources; s++)
        for (uint32_t e = 0; e < p->experts; e++) {
            size_t i = gb_placement_route_index(p, layer, s, e);
            double amount = flow[(size_t)s * p->experts + e], split = amount * p->other_share[i] / GB_SHARES;
            send(&t, links, s, gb_placement_rank_of_slot(p, p->route[i]), amount - split);
            if (p->other[i] >= 0) send(&t, links, s, gb_placement_rank_of_slot(p, p->other[i]), split);
        }
    return t;
}

static bool rank_holds(const gb_placement *p, uint32_t layer, uint32_t rank, int32_t expert)
{
    const int32_t *slots = gb_placement_layer_slots(p, layer) + (size_t)rank * p->slots_per_rank;
    for (uint32_t i = 0; i < p->slots_per_rank; i++)
        if (slots[i] == expert) return true;
    return false;
}

/* Experts that a rank holds and did not hold before: each is one copy. */
static uint64_t count_copies(const gb_placement *p, const gb_placement *before, uint32_t layer)
{
    uint64_t copies = 0;
    const int32_t *slots = gb_placement_layer_slots(p, layer);
    for (uint32_t i = 0; i < gb_placement_slots(p); i++)
        copies += slots[i] >= 0 && !rank_holds(before, layer, i / p->slots_per_rank, slots[i]);
    return copies;
}

/* Loads in mean experts; returns 1/b, 0 without traffic. */
static double scale_tally(tally *t, uint32_t experts, uint32_t ranks)
{
    double per_mean = t->total > 0 ? experts / t->total : 0;
    for (uint32_t r = 0; r < ranks; r++) t->rank_load[r] *= per_mean;
    return per_mean;
}

double gb_score_placement_layer(const gb_place_weights *weights, const gb_links *links, const double *flow, const gb_placement *p,
                                uint32_t layer, const gb_placement *before)
{
    tally t = tally_layer(p, links, flow, layer);
    double per_mean = scale_tally(&t, p->experts, p->ranks);
    double moves = before ? (double)count_copies(p, before, layer) : 0;
    return weights->alpha * t.paid * per_mean + weights->beta * imbalance_of(t.rank_load, p->ranks, weights->imbalance) + weights->gamma * moves;
}

void gb_score_placement(gb_place_report *report, const gb_place_weights *weights, const gb_links *links,
                        const double *traffic, const gb_placement *p, const gb_placement *before, uint64_t expert_bytes)
{
    GB_ASSERT(links->sources == p->sources && links->ranks == p->ranks);
    double total = 0, remote = 0, paid = 0;
    uint32_t busy = 0;
    *report = (gb_place_report){0};
    for (uint32_t l = 0; l < p->layers; l++) {
        tally t = tally_layer(p, links, traffic + (size_t)l * p->sources * p->experts, l);
        if (before) report->moves += count_copies(p, before, l);
        if (t.total == 0) continue;
        double per_mean = scale_tally(&t, p->experts, p->ranks), most = 0;
        for (uint32_t r = 0; r < p->ranks; r++) most = t.rank_load[r] > most ? t.rank_load[r] : most;
        double over_mean = most * p->ranks / p->experts;
        total += t.total, remote += t.remote, paid += t.paid, busy++;
        report->comm += t.paid * per_mean;
        report->imbalance += imbalance_of(t.rank_load, p->ranks, weights->imbalance);
        report->max_over_mean += over_mean;
        if (over_mean > report->worst_max_over_mean) report->worst_max_over_mean = over_mean;
    }
    report->migration = (double)report->moves;
    report->bytes = report->moves * expert_bytes;
    report->objective = weights->alpha * report->comm + weights->beta * report->imbalance + weights->gamma * report->migration;
    if (busy) report->max_over_mean /= busy;
    if (total > 0) report->remote_ratio = remote / total, report->cost_ratio = paid / total;
}
