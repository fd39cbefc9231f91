#include "core/moe/rearrange.h"

#include <string.h>

#include "core/base/assert.h"
#include "core/moe/plan.h"
#include "core/moe/route.h"

static uint32_t slots_of(const gb_rearrangement *r) { return r->solver->ranks * r->slots_per_rank; }

static int out_of_memory(const gb_rearrangement *r, gb_error *err)
{
    return gb_fail(err, GB_ENOMEM, "out of memory for a rearrangement of %u layers and %u experts", r->solver->layers, r->solver->experts);
}

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
    r->has_slots = GB_ARENA_NEW(arena, bool, solver->layers);
    bool whole = r->window.expert_tokens && r->window.home && r->rank_traffic && r->rank_of && r->has_slots;
    return whole ? gb_rearrange_add_spare(r, arena, 0, err) : out_of_memory(r, err);
}

int gb_rearrange_add_spare(gb_rearrangement *r, gb_arena *arena, uint32_t spare, gb_error *err)
{
    r->slots_per_rank = r->solver->capacity + spare;
    r->slots = GB_ARENA_NEW(arena, double, slots_of(r));
    r->expert_of_slot = GB_ARENA_NEW(arena, int32_t, (size_t)r->solver->layers * slots_of(r));
    return r->slots && r->expert_of_slot ? GB_OK : out_of_memory(r, err);
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
    memset(r->has_slots, 0, r->solver->layers * sizeof *r->has_slots);
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

/* --- slots --------------------------------------------------------------------------------------------------------------- */

static int check_slot(const gb_rearrangement *r, uint32_t slot, uint32_t layer, gb_error *err)
{
    double expert = r->slots[slot];
    if (!(expert >= -1 && expert < r->solver->experts) || expert != (double)(int32_t)expert)
        return gb_fail(err, GB_EINVAL, "slot %u of layer %u holds %.14g; experts are 0..%u, and -1 is none", slot, layer, expert, r->solver->experts - 1);
    for (uint32_t i = slot - slot % r->slots_per_rank; i < slot && expert >= 0; i++)
        if (r->slots[i] == expert)
            return gb_fail(err, GB_EINVAL, "rank %u holds expert %d of layer %u twice", slot / r->slots_per_rank, (int)expert, layer);
    return GB_OK;
}

static bool has_spare(const gb_rearrangement *r) { return r->slots_per_rank > r->solver->capacity; }

/* Without spare slots they are an assignment; with them an expert may have several ranks, and a rank more experts than its share. */
static void find_ranks(const gb_rearrangement *r, uint32_t layer)
{
    size_t at = (size_t)layer * r->solver->experts;
    const int32_t *slots = r->expert_of_slot + (size_t)layer * slots_of(r);
    memcpy(r->rank_of + at, r->home + at, r->solver->experts * sizeof *r->rank_of);
    for (uint32_t i = 0; i < slots_of(r) && !has_spare(r); i++) r->rank_of[at + (uint32_t)slots[i]] = (int32_t)(i / r->slots_per_rank);
}

static int check_all_live(const gb_rearrangement *r, uint32_t layer, gb_error *err)
{
    bool lives[GB_EXPERTS_MAX] = {0};
    const int32_t *slots = r->expert_of_slot + (size_t)layer * slots_of(r);
    for (uint32_t i = 0; i < slots_of(r); i++)
        if (slots[i] >= 0) lives[slots[i]] = true;
    for (uint32_t e = 0; e < r->solver->experts; e++)
        if (!lives[e]) return gb_fail(err, GB_EINVAL, "expert %u of layer %u lives nowhere", e, layer);
    return GB_OK;
}

int gb_rearrange_take_slots(gb_rearrangement *r, uint32_t layer, gb_error *err)
{
    int32_t *slots = r->expert_of_slot + (size_t)layer * slots_of(r);
    for (uint32_t i = 0; i < slots_of(r); i++) {
        int rc = check_slot(r, i, layer, err);
        if (rc != GB_OK) return rc;
        slots[i] = (int32_t)r->slots[i];
    }
    int rc = check_all_live(r, layer, err);
    if (rc != GB_OK) return rc;
    r->has_slots[layer] = true;
    find_ranks(r, layer);
    return GB_OK;
}

/* --- answers ------------------------------------------------------------------------------------------------------------- */

void gb_rearrange_search(gb_rearrangement *r)
{
    gb_solver_swap(r->solver, r->rank_of, r->home, r->options, &r->report);
    for (uint32_t l = 0; l < r->solver->layers; l++)
        if (r->has_slots[l]) find_ranks(r, l);
}

bool gb_rearrange_is_by_slots(const gb_rearrangement *r)
{
    for (uint32_t l = 0; l < r->solver->layers; l++)
        if (!r->has_slots[l]) return false;
    return has_spare(r);
}

void gb_rearrange_put_slots(const gb_rearrangement *r, gb_placement *next, uint32_t layer)
{
    memcpy(gb_placement_layer_slots(next, layer), r->expert_of_slot + (size_t)layer * slots_of(r), slots_of(r) * sizeof *r->expert_of_slot);
    gb_route_evenly(next, layer, layer_traffic(r, layer));
}

void gb_rearrange_settle(const gb_rearrangement *r, gb_placement *next, const gb_placement *now)
{
    GB_ASSERT(next->slots_per_rank == r->slots_per_rank);
    next->version = now->version + 1;
    if (!gb_rearrange_is_by_slots(r)) gb_plan_settle(next, now, r->rank_of);
    for (uint32_t l = 0; l < next->layers; l++)
        if (r->has_slots[l] && has_spare(r)) gb_rearrange_put_slots(r, next, l);
}

void gb_rearrange_built_in(gb_rearrangement *r)
{
    for (uint32_t l = 0; l < r->solver->layers; l++) gb_rearrange_score(r, l);
    gb_rearrange_search(r);
}
