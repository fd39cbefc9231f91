#include "core/moe/decide.h"

#include <math.h>

const char *gb_verdict_name(gb_verdict verdict)
{
    static const char *const names[] = {"accepted", "cut", "same", "invalid", "no gain", "too dear"};
    return names[verdict];
}

int gb_decider_init(gb_decider *d, gb_arena *arena, const gb_placement *shape, gb_error *err)
{
    uint32_t spare = shape->slots_per_rank - shape->experts / shape->ranks;
    int rc = gb_placement_init(&d->cut, arena, shape->layers, shape->sources, shape->experts, shape->ranks, spare, err);
    if (rc == GB_OK) rc = gb_placement_init(&d->prefix, arena, shape->layers, shape->sources, shape->experts, shape->ranks, spare, err);
    if (rc == GB_OK && gb_plan_init(&d->plan, arena, shape) != GB_OK) rc = gb_fail(err, GB_ENOMEM, "out of memory for a plan");
    if (rc != GB_OK) return rc;
    d->worth = GB_ARENA_NEW(arena, double, d->plan.capacity);
    return d->worth ? GB_OK : gb_fail(err, GB_ENOMEM, "out of memory for a plan");
}

typedef struct question {
    gb_decider *decider;
    const gb_placement *now, *next;
    const double *traffic;
    const gb_links *links;
    const gb_place_weights *weights;
} question;

static double layer_worth(const question *q, const gb_placement *p, uint32_t layer)
{
    const double *flow = q->traffic + (size_t)layer * p->sources * p->experts;
    return gb_score_placement_layer(q->weights, q->links, flow, p, layer, q->now);
}

static double total_worth(const question *q, const gb_placement *p)
{
    double total = 0;
    for (uint32_t l = 0; l < p->layers; l++) total += layer_worth(q, p, l);
    return total;
}

/* What each step gains when its layer's steps are taken in order. */
static void value_steps(const question *q)
{
    gb_decider *d = q->decider;
    uint32_t i = 0;
    gb_placement_copy(&d->prefix, q->now);
    while (i < d->plan.n) {
        uint32_t step = d->plan.moves[i].step, layer = d->plan.moves[i].layer;
        double before = layer_worth(q, &d->prefix, layer);
        uint32_t begin = i;
        while (i < d->plan.n && d->plan.moves[i].step == step) i++;
        gb_plan_take(&d->prefix, q->now, q->next, &d->plan, begin, i);
        d->worth[step] = before - layer_worth(q, &d->prefix, layer);
    }
}

static bool gains_enough(const question *q, const gb_placement *p, const gb_decision_limits *limits)
{
    double stay = total_worth(q, q->now), gain = stay - total_worth(q, p);
    return limits->even_if_worse || (gain > 0 && gain >= limits->min_gain_ratio * fabs(stay));
}

static gb_verdict judge(const question *q, gb_placement *next, const gb_decision_limits *limits)
{
    gb_decider *d = q->decider;
    gb_plan_align(next, q->now);
    gb_plan_build(&d->plan, q->now, next);
    if (d->plan.n == 0 && !gains_enough(q, next, limits)) return GB_VERDICT_SAME;
    if (!gains_enough(q, next, limits)) return GB_VERDICT_NO_GAIN;
    value_steps(q);
    gb_plan_sort(&d->plan, d->worth);
    if (gb_plan_limit(&d->plan, limits->max_moves, limits->max_bytes, limits->expert_bytes) == 0) return GB_VERDICT_ACCEPTED;
    if (d->plan.steps == 0) return GB_VERDICT_TOO_DEAR;
    gb_plan_apply(&d->cut, q->now, next, &d->plan, d->plan.steps);
    if (!gains_enough(q, &d->cut, limits)) return GB_VERDICT_NO_GAIN;
    gb_placement_copy(next, &d->cut);
    return GB_VERDICT_CUT;
}

gb_verdict gb_decide(gb_decider *d, gb_placement *next, const gb_placement *now, const double *traffic, const gb_links *links,
                     const gb_place_weights *weights, const gb_decision_limits *limits, gb_error *err)
{
    gb_verdict verdict = GB_VERDICT_INVALID;
    question q = {d, now, next, traffic, links, weights};
    if (gb_placement_check(next, err) == GB_OK) verdict = judge(&q, next, limits);
    if (verdict > GB_VERDICT_CUT) {
        gb_placement_copy(next, now);
        d->plan.n = d->plan.steps = 0;
        return verdict;
    }
    next->version = now->version + 1;
    return verdict;
}
