#include "core/moe/planner.h"

#include "core/base/assert.h"

static uint32_t spare_slots(const gb_placement *p) { return p->slots_per_rank - p->experts / p->ranks; }

static int init_search(gb_planner *p, gb_arena *arena, const gb_placement *shape, gb_error *err)
{
    int rc = gb_solver_init(&p->solver, arena, shape->layers, shape->experts, shape->ranks, err);
    if (!rc) rc = gb_rearrange_init(&p->rearrangement, arena, &p->solver, &p->options.solve, shape->sources, err);
    if (!rc) rc = gb_rearrange_add_spare(&p->rearrangement, arena, spare_slots(shape), err);
    if (!rc) rc = gb_links_init(&p->links, arena, shape->sources, shape->ranks, err);
    if (!rc) rc = gb_decider_init(&p->decider, arena, shape, err);
    if (!rc) rc = gb_placement_init(&p->next, arena, shape->layers, shape->sources, shape->experts, shape->ranks, spare_slots(shape), err);
    if (rc) return rc;
    gb_links_groups(&p->links);
    p->home = GB_ARENA_NEW(arena, int32_t, (size_t)shape->layers * shape->experts);
    if (p->home && spare_slots(shape))
        rc = gb_replicas_init(&p->replicas, arena, shape->sources, shape->experts, shape->ranks, shape->slots_per_rank);
    return p->home && !rc ? GB_OK : gb_fail(err, GB_ENOMEM, "out of memory for the placement of %u experts", shape->experts);
}

int gb_planner_init(gb_planner *p, gb_arena *arena, const gb_placement *shape, const gb_planner_options *options, gb_error *err)
{
    GB_ASSERT(shape->layers >= 1);
    *p = (gb_planner){.options = *options};
    int rc = gb_solve_options_check(&options->solve, err);
    if (rc) return rc;
    if (gb_estimate_init(&p->estimate, arena, shape->layers, shape->sources, shape->experts))
        return gb_fail(err, GB_ENOMEM, "out of memory for estimates of %u experts", shape->experts);
    return init_search(p, arena, shape, err);
}

void gb_planner_observe(gb_planner *p, const gb_window *closed)
{
    gb_estimate_add(&p->estimate, &closed->counts);
    p->window_id = closed->id;
    p->waiting++;
}

bool gb_planner_due(const gb_planner *p) { return p->options.every > 0 && p->waiting >= p->options.every; }

/* The search knows experts / ranks homes on each rank: where copies have left it otherwise, a layer starts from the linear ones. */
static void find_homes(gb_planner *p, const gb_placement *live)
{
    uint32_t per_rank = live->experts / live->ranks;
    for (uint32_t l = 0; l < live->layers; l++) {
        int32_t *home = p->home + (size_t)l * live->experts;
        uint32_t held[GB_RANKS_MAX] = {0};
        bool even = true;
        for (uint32_t e = 0; e < live->experts; e++) {
            home[e] = (int32_t)gb_placement_rank_of_slot(live, gb_placement_routes(live, l, 0)[e]);
            even = even && ++held[home[e]] <= per_rank;
        }
        for (uint32_t e = 0; !even && e < live->experts; e++) home[e] = (int32_t)(e / per_rank);
    }
}

static void place_copies(gb_planner *p, const gb_placement *live)
{
    size_t row = (size_t)live->sources * live->experts;
    for (uint32_t l = 0; l < live->layers; l++) {
        if (p->rearrangement.has_slots[l]) gb_rearrange_put_slots(&p->rearrangement, &p->next, l);
        else gb_replicas_place(&p->replicas, &p->next, l, &p->options.solve.weights, &p->links, p->estimate.traffic + l * row,
                               p->rearrangement.rank_of + (size_t)l * live->experts, live);
    }
}

gb_verdict gb_planner_decide(gb_planner *p, const gb_placement *live, gb_time now)
{
    gb_rearrangement *r = &p->rearrangement;
    const gb_solve_options *o = &p->options.solve;
    gb_decision_limits limits = {.min_gain_ratio = o->min_gain_ratio, .max_moves = o->max_moves, .max_bytes = o->max_bytes, .expert_bytes = o->expert_bytes};
    p->waiting = 0;
    find_homes(p, live);
    gb_rearrange_pose(r, p->estimate.traffic, &p->links, p->home, p->window_id);
    if (p->place) p->place(p->self, r, now);
    else gb_rearrange_built_in(r);
    if (spare_slots(live)) place_copies(p, live);
    else gb_plan_settle(&p->next, live, r->rank_of);
    p->stats.verdict = gb_decide(&p->decider, &p->next, live, p->estimate.traffic, &p->links, &o->weights, &limits, NULL);
    p->stats.report = r->report;
    p->stats.decisions++;
    p->stats.accepted += p->stats.verdict <= GB_VERDICT_CUT;
    return p->stats.verdict;
}
