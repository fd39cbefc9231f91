#include "core/moe/solve.h"

#include <math.h>
#include <string.h>

enum { STEPS_PER_EXPERT = 4 };    /* most steps under a budget */

/* The best step of a layer, while it has one. */
struct gb_solve_offer {
    gb_swap swap;
    uint32_t a, b;
    bool open;
};

typedef struct gb_solve_offer offer;

gb_solve_options gb_solve_defaults(void)
{
    return (gb_solve_options){.weights = gb_place_weights_paper(), .tolerance = 1e-3, .bound_steps = 120, .kicks = 48, .max_moves = GB_MOVES_ANY,
                              .max_bytes = UINT64_MAX, .expert_bytes = 3ull * 2048 * 768 * 2};
}

int gb_solve_options_check(const gb_solve_options *o, gb_error *err)
{
    int rc = gb_place_weights_check(&o->weights, err);
    if (rc != GB_OK) return rc;
    const struct { const char *name; double value; } ratios[] = {{"tolerance", o->tolerance}, {"min_gain_ratio", o->min_gain_ratio}};
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++)
        if (!(ratios[i].value >= 0 && ratios[i].value <= 1))
            return gb_fail(err, GB_EINVAL, "%s is %g: choose 0 to 1", ratios[i].name, ratios[i].value);
    if (o->expert_bytes == 0) return gb_fail(err, GB_EINVAL, "expert_bytes is 0: an expert has weights");
    return GB_OK;
}

double gb_solve_gap(const gb_solve_report *report)
{
    return isfinite(report->bound) ? (report->objective - report->bound) / fmax(fabs(report->bound), 1e-300) : INFINITY;
}

int gb_solver_init(gb_solver *s, gb_arena *arena, uint32_t layers, uint32_t experts, uint32_t ranks, gb_error *err)
{
    if (layers == 0 || experts == 0 || experts > GB_EXPERTS_MAX || ranks > GB_RANKS_MAX)
        return gb_fail(err, GB_EINVAL, "cannot place %u experts of %u layers on %u ranks: at most %d experts and %d ranks", experts, layers, ranks,
                       GB_EXPERTS_MAX, GB_RANKS_MAX);
    if (ranks > experts) return gb_fail(err, GB_EINVAL, "%u ranks for %u experts: every rank holds at least one expert", ranks, experts);
    if (ranks == 0 || experts % ranks != 0)
        return gb_fail(err, GB_EINVAL, "%u experts cannot be split evenly over %u ranks: choose a divisor of %u", experts, ranks, experts);
    *s = (gb_solver){.layers = layers, .experts = experts, .ranks = ranks, .capacity = experts / ranks,
                     .layer = GB_ARENA_NEW(arena, gb_layer, layers), .search = GB_ARENA_NEW(arena, gb_swap_search, layers),
                     .objective = GB_ARENA_NEW(arena, double, layers), .proof = GB_ARENA_NEW(arena, double, layers),
                     .offers = GB_ARENA_NEW(arena, offer, layers), .candidate = GB_ARENA_NEW(arena, int32_t, experts)};
    double *cost = GB_ARENA_NEW(arena, double, (size_t)layers * ranks * experts), *load = GB_ARENA_NEW(arena, double, (size_t)layers * experts);
    bool whole = s->layer && s->search && s->objective && s->proof && s->offers && s->candidate && cost && load;
    for (uint32_t l = 0; whole && l < layers; l++) {
        s->layer[l] = (gb_layer){experts, ranks, cost + (size_t)l * ranks * experts, load + (size_t)l * experts};
        whole = gb_swap_init(&s->search[l], arena, experts, ranks, s->capacity) == GB_OK;
    }
    if (whole) whole = gb_bound_init(&s->bound, arena, &s->search[0]) == GB_OK;
    return whole ? GB_OK : gb_fail(err, GB_ENOMEM, "out of memory for a solver of %u layers, %u experts, %u ranks", layers, experts, ranks);
}

void gb_solver_score(gb_solver *s, const gb_place_weights *weights, const gb_links *links, const double *traffic, const int32_t *home)
{
    for (uint32_t l = 0; l < s->layers; l++)
        gb_score_layer(&s->layer[l], weights, links, traffic + (size_t)l * links->sources * s->experts, home + (size_t)l * s->experts, NULL);
}

int gb_solver_check(const gb_solver *s, gb_error *err)
{
    for (uint32_t l = 0; l < s->layers; l++) {
        const gb_layer *layer = &s->layer[l];
        for (uint32_t e = 0; e < s->experts; e++) {
            if (!(layer->load[e] >= 0 && layer->load[e] <= GB_SOLVE_LOAD_MAX))
                return gb_fail(err, GB_EINVAL, "layer %u: load of expert %u is %g: loads are numbers from 0 to %g", l, e, layer->load[e], GB_SOLVE_LOAD_MAX);
            for (uint32_t r = 0; r < s->ranks; r++)
                if (!(fabs(layer->cost[(size_t)r * s->experts + e]) <= GB_SOLVE_COST_MAX))
                    return gb_fail(err, GB_EINVAL, "layer %u: cost of expert %u on rank %u is %g: costs are numbers up to %g", l, e, r,
                                   layer->cost[(size_t)r * s->experts + e], GB_SOLVE_COST_MAX);
        }
    }
    return GB_OK;
}

/* --- one layer, without a budget ------------------------------------------------------------------------------------- */

typedef struct attempt {
    gb_solver *solver;
    const gb_layer *layer;
    const gb_solve_options *options;
    const int32_t *home;
    int32_t *best;
    double stay, objective;
    uint32_t steps;
} attempt;

static void consider(attempt *a, const int32_t *rank_of)
{
    double objective = gb_score_objective(a->layer, &a->options->weights, rank_of);
    if (!(objective < a->objective)) return;
    a->objective = objective;
    memcpy(a->best, rank_of, a->solver->experts * sizeof *a->best);
}

static bool proved(const attempt *a)
{
    return a->objective - a->solver->bound.value <= a->options->tolerance * fabs(a->objective);
}

static void try_from(attempt *a, gb_swap_search *search, const int32_t *start, uint32_t (*descend)(gb_swap_search *))
{
    gb_swap_load(search, start);
    a->steps += descend(search);
    consider(a, search->rank_of);
}

/* Where a few experts share a rank, one valley may be far from the best, and looking around costs little. The layer's number
   is the seed: the same problem has the same answer. */
static void kick(attempt *a, gb_swap_search *search, uint32_t layer_index)
{
    enum { SMALL = 64 };
    gb_rng rng;
    gb_rng_init(&rng, layer_index);
    for (uint32_t k = 0; k < a->options->kicks && search->experts <= SMALL && !proved(a); k++) {
        gb_swap_load(search, a->best);
        gb_swap_shake(search, &rng, 2 + k % 3);
        a->steps += k % 2 ? gb_swap_descend(search) : gb_swap_continue(search);
        consider(a, search->rank_of);
    }
}

static double solve_layer(gb_solver *s, uint32_t l, int32_t *out, const int32_t *home, const gb_solve_options *options, attempt *a)
{
    gb_swap_search *search = &s->search[0];
    gb_prices *bound = &s->bound;
    const gb_layer *layer = &s->layer[l];
    double stay = gb_score_objective(layer, &options->weights, home);
    *a = (attempt){.solver = s, .layer = layer, .options = options, .home = home, .best = out, .stay = stay, .objective = stay};
    memcpy(out, home, s->experts * sizeof *out);

    gb_swap_set_layer(search, layer, &options->weights, home);
    /* The max form is flat wherever the fullest rank is not involved: descending it directly gets stuck far away. */
    bool flat = options->weights.imbalance == GB_IMBALANCE_MAX;
    uint32_t rounds = flat ? 2 : 1;
    try_from(a, search, home, flat ? gb_swap_continue : gb_swap_descend);
    gb_bound_start(bound, search);
    if (!proved(a) && !flat) try_from(a, search, home, gb_swap_continue);
    for (uint32_t i = 0; i < rounds && !proved(a); i++) {
        gb_bound_improve(bound, search, a->objective, options->tolerance, options->bound_steps / rounds);
        if (proved(a)) break;
        gb_bound_round(bound, search, s->candidate);
        if (!flat) try_from(a, search, s->candidate, gb_swap_descend);
        if (!proved(a)) try_from(a, search, s->candidate, gb_swap_continue);
    }
    kick(a, search, l);
    return gb_bound_proof(bound, search, layer, &options->weights);
}

static uint32_t count_moves(const int32_t *x, const int32_t *home, size_t n)
{
    uint32_t moves = 0;
    for (size_t i = 0; i < n; i++) moves += x[i] != home[i];
    return moves;
}

static void solve_freely(gb_solver *s, int32_t *out, const int32_t *home, const gb_solve_options *options, gb_solve_report *report)
{
    for (uint32_t l = 0; l < s->layers; l++) {
        int32_t *x = out + (size_t)l * s->experts;
        const int32_t *x0 = home + (size_t)l * s->experts;
        attempt a;
        s->proof[l] = solve_layer(s, l, x, x0, options, &a);
        if (a.stay - a.objective < options->min_gain_ratio * fabs(a.stay)) {
            a.objective = a.stay;
            memcpy(x, x0, s->experts * sizeof *x);
        }
        s->objective[l] = a.objective;
        report->stay += a.stay;
        report->objective += a.objective;
        report->bound += s->proof[l];
        report->steps += a.steps;
    }
    report->moves = count_moves(out, home, (size_t)s->layers * s->experts);
}

/* --- all layers under one budget ------------------------------------------------------------------------------------- */

static uint32_t budget_of(const gb_solve_options *o)
{
    uint64_t by_bytes = o->max_bytes / o->expert_bytes;
    return by_bytes < o->max_moves ? (uint32_t)by_bytes : o->max_moves;
}

/* Moves that the step adds: an expert that returns home gives one back. */
static int step_moves(const gb_swap_search *s, const offer *o, const int32_t *home)
{
    int32_t i = s->item_of_slot[(size_t)o->a * s->padded + (uint32_t)o->swap.i], j = s->item_of_slot[(size_t)o->b * s->padded + (uint32_t)o->swap.j];
    int32_t a = (int32_t)o->a, b = (int32_t)o->b;
    return (home[i] != b) - (home[i] != a) + (home[j] != a) - (home[j] != b);
}

static offer best_offer(const gb_swap_search *s)
{
    offer o = {0};
    o.open = gb_swap_best(s, &o.swap, &o.a, &o.b);
    return o;
}

/* Steepest steps over all layers, most gain first (experts are of one size, and a step moves two), until the budget is spent.
   A step that would overdraw closes its layer. Every state is valid and better than the one before: it may stop anywhere. The search adds
   in float, where each of two like states can look better than the other: so many steps are enough for any honest descent. */
static uint32_t spend(gb_solver *s, const int32_t *home, uint32_t budget, offer *offers)
{
    uint32_t steps = 0, most = STEPS_PER_EXPERT * s->layers * s->experts;
    int64_t left = budget;
    for (uint32_t l = 0; l < s->layers; l++) {
        gb_swap_survey(&s->search[l]);
        offers[l] = best_offer(&s->search[l]);
    }
    for (; steps < most; steps++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t l = 0; l < s->layers; l++)
            if (offers[l].open && (best == UINT32_MAX || offers[l].swap.delta < offers[best].swap.delta)) best = l;
        if (best == UINT32_MAX) break;
        offer *o = &offers[best];
        int moves = step_moves(&s->search[best], o, home + (size_t)best * s->experts);
        if (moves > left) {
            o->open = false;
            continue;
        }
        left -= moves;
        gb_swap_take(&s->search[best], &o->swap, o->a, o->b);
        *o = best_offer(&s->search[best]);
    }
    return steps;
}

static void solve_within(gb_solver *s, int32_t *out, const int32_t *home, const gb_solve_options *options, gb_solve_report *report)
{
    for (uint32_t l = 0; l < s->layers; l++) {
        gb_swap_set_layer(&s->search[l], &s->layer[l], &options->weights, home + (size_t)l * s->experts);
        gb_swap_load(&s->search[l], home + (size_t)l * s->experts);
    }
    report->steps = spend(s, home, budget_of(options), s->offers);
    report->bound = -INFINITY;
    for (uint32_t l = 0; l < s->layers; l++) {
        int32_t *x = out + (size_t)l * s->experts;
        const int32_t *x0 = home + (size_t)l * s->experts;
        double stay = gb_score_objective(&s->layer[l], &options->weights, x0);
        memcpy(x, s->search[l].rank_of, s->experts * sizeof *x);
        double objective = gb_score_objective(&s->layer[l], &options->weights, x);
        if (!(stay - objective > options->min_gain_ratio * fabs(stay))) {
            objective = stay;
            memcpy(x, x0, s->experts * sizeof *x);
        }
        s->objective[l] = objective;
        s->proof[l] = -INFINITY;
        report->stay += stay;
        report->objective += objective;
    }
    report->moves = count_moves(out, home, (size_t)s->layers * s->experts);
}

void gb_solver_swap(gb_solver *s, int32_t *out, const int32_t *home, const gb_solve_options *options, gb_solve_report *report)
{
    *report = (gb_solve_report){0};
    if (budget_of(options) < s->layers * s->experts) solve_within(s, out, home, options, report);
    else solve_freely(s, out, home, options, report);
}
