#include "bindings/cli/placer.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "core/base/nearest.h"
#include "core/moe/eplb.h"
#include "core/moe/greedy.h"
#include "core/moe/moetuner.h"

double gb_placer_cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

int gb_placer_init(gb_placer *p, gb_arena *arena, const gb_dump *dump, gb_error *err)
{
    const gb_placement *shape = &dump->placement;
    size_t homes = (size_t)shape->layers * shape->experts;
    *p = (gb_placer){.arena = arena, .options = gb_solve_defaults(), .links = dump->links, .groups = 1, .nodes = 1,
                     .home = GB_ARENA_NEW(arena, int32_t, homes), .out = GB_ARENA_NEW(arena, int32_t, homes),
                     .share = GB_ARENA_NEW(arena, double, (size_t)shape->sources * shape->ranks),
                     .window = GB_ARENA_NEW(arena, double, homes * shape->sources)};
    p->options.expert_bytes = dump->expert_bytes;
    int rc = gb_solver_init(&p->solver, arena, shape->layers, shape->experts, shape->ranks, err);
    if (rc == GB_OK) rc = gb_decider_init(&p->decider, arena, shape, err);
    if (rc != GB_OK) return rc;
    bool whole = p->home && p->out && p->share && p->window &&
                 gb_estimate_init(&p->estimate, arena, shape->layers, shape->sources, shape->experts) == GB_OK &&
                 gb_replicas_init(&p->replicas, arena, shape->sources, shape->experts, shape->ranks, shape->slots_per_rank) == GB_OK;
    return whole ? GB_OK : gb_fail(err, GB_ENOMEM, "out of memory for the placement solver");
}

void gb_placer_forget(gb_placer *p) { gb_estimate_clear(&p->estimate); }

const double *gb_placer_numbers(gb_placer *p, const gb_matrix *window)
{
    for (size_t i = 0, n = gb_matrix_cells(window); i < n; i++) p->window[i] = (double)window->counts[i];
    return p->window;
}

/* --- policies ------------------------------------------------------------------------------------------------------------- */

static void find_homes(gb_placer *p, const gb_placement *now)
{
    for (uint32_t l = 0; l < now->layers; l++)
        for (uint32_t e = 0; e < now->experts; e++)
            p->home[(size_t)l * now->experts + e] = (int32_t)gb_placement_rank_of_slot(now, gb_placement_routes(now, l, 0)[e]);
}

/* The search knows experts / ranks homes on each rank; copies may have left it otherwise. */
static bool homes_fit(const gb_placer *p)
{
    for (uint32_t l = 0; l < p->solver.layers; l++) {
        uint32_t held[GB_RANKS_MAX] = {0};
        for (uint32_t e = 0; e < p->solver.experts; e++)
            if (++held[p->home[(size_t)l * p->solver.experts + e]] > p->solver.capacity) return false;
    }
    return true;
}

int gb_placer_find_homes(gb_placer *p, const gb_placement *now, gb_error *err)
{
    find_homes(p, now);
    if (homes_fit(p)) return GB_OK;
    return gb_fail(err, GB_EUNSUPPORTED, "the placement in this dump has more homes on one rank than experts / ranks: only stay, linear, eplb and replicas start from copies");
}

void gb_placer_assume_homes(gb_placer *p)
{
    for (uint32_t i = 0; i < p->solver.layers * p->solver.experts; i++) p->home[i] = (int32_t)(i % p->solver.experts / p->solver.capacity);
}

static int stay(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    (void)p, (void)traffic, (void)err;
    gb_placement_copy(next, now);
    return GB_OK;
}

static int linear(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    (void)p, (void)now, (void)traffic, (void)err;
    gb_placement_linear(next);
    return GB_OK;
}

static int eplb(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    (void)now;
    return gb_eplb_place(next, traffic, p->groups, p->nodes, err);
}

static int moetuner(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    int status = gb_placer_find_homes(p, now, err);
    if (status) return status;
    gb_moetuner_place(&p->solver, p->out, traffic, now->sources, p->share);
    gb_plan_settle(next, now, p->out);
    return GB_OK;
}

/* Cheapest rank with room, hottest expert first; ties go to the lower rank (after SGLang's topology-aware proposal). */
static int cheapest_rank(void *self, uint32_t layer, uint32_t expert, const gb_rank_table *ranks)
{
    const gb_layer *l = &((const gb_placer *)self)->solver.layer[layer];
    for (uint32_t r = 0; r < ranks->n; r++) ranks->score[r] = l->cost[(size_t)r * l->experts + expert] + 1e-9 * r;
    return 0;
}

static int greedy(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_greedy *rule,
                  const gb_place_weights *weights, gb_error *err)
{
    int status = gb_placer_find_homes(p, now, err);
    if (status) return status;
    gb_solver_score(&p->solver, weights, &p->links, traffic, p->home);
    for (uint32_t l = 0; l < p->solver.layers; l++) {
        size_t at = (size_t)l * p->solver.experts;
        gb_greedy_place(rule, p->out + at, &p->solver.layer[l], weights, p->home + at, p->solver.capacity, l);
    }
    gb_plan_settle(next, now, p->out);
    return GB_OK;
}

static int topology(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    gb_place_weights comm_only = {1, 0, 0, GB_IMBALANCE_SQUARES};
    gb_greedy rule = {.score = cheapest_rank, .self = p};
    return greedy(p, next, now, traffic, &rule, &comm_only, err);
}

static int paper(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    gb_greedy rule = {0};
    return greedy(p, next, now, traffic, &rule, &p->options.weights, err);
}

static int search(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, const gb_solve_options *options, gb_error *err)
{
    int status = gb_placer_find_homes(p, now, err);
    if (status) return status;
    gb_solver_score(&p->solver, &options->weights, &p->links, traffic, p->home);
    gb_solver_swap(&p->solver, p->out, p->home, options, &p->solved);
    gb_plan_settle(next, now, p->out);
    return GB_OK;
}

static int swap(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    return search(p, next, now, traffic, &p->options, err);
}

static int grouped(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    int status = gb_placer_find_homes(p, now, err);
    if (status) return status;
    if (p->nodes_solver.groups != p->groups || p->nodes_solver.nodes != p->nodes) {
        int rc = gb_nodes_init(&p->nodes_solver, p->arena, now->experts, now->ranks, p->groups, p->nodes, err);
        if (rc != GB_OK) return rc;
    }
    gb_solver_score(&p->solver, &p->options.weights, &p->links, traffic, p->home);
    for (uint32_t l = 0; l < now->layers; l++) {
        size_t at = (size_t)l * now->experts;
        gb_nodes_place(&p->nodes_solver, p->out + at, &p->solver.layer[l], &p->options.weights, p->home + at);
    }
    gb_plan_settle(next, now, p->out);
    return GB_OK;
}

static int max(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    gb_solve_options options = p->options;
    options.weights = gb_place_weights_latency();
    return search(p, next, now, traffic, &options, err);
}

static int budget(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    enum { USUAL_MOVES = 192 };
    gb_solve_options options = p->options;
    if (options.max_moves == GB_MOVES_ANY && options.max_bytes == UINT64_MAX) options.max_moves = USUAL_MOVES;
    return search(p, next, now, traffic, &options, err);
}

static int copies(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    (void)err;
    gb_solve_options options = p->options;
    options.max_moves = GB_MOVES_ANY;
    options.max_bytes = UINT64_MAX;
    find_homes(p, now);
    if (!homes_fit(p)) gb_placer_assume_homes(p);
    gb_solver_score(&p->solver, &options.weights, &p->links, traffic, p->home);
    gb_solver_swap(&p->solver, p->out, p->home, &options, &p->solved);
    for (uint32_t l = 0; l < now->layers; l++)
        gb_replicas_place(&p->replicas, next, l, &options.weights, &p->links, traffic + (size_t)l * now->sources * now->experts,
                          p->out + (size_t)l * now->experts, now);
    return GB_OK;
}

const gb_placer_policy gb_placer_policies[] = {
    {"stay", "leave everything where it is", false, stay},
    {"linear", "consecutive experts on a rank, whatever the traffic", true, linear},
    {"eplb", "DeepSeek's EPLB: loads only, copies in spare slots", true, eplb},
    {"moetuner", "after MoETuner: balance, and tokens stay on their rank between layers", true, moetuner},
    {"topology", "cheapest rank with room, hottest expert first (after SGLang's proposal)", true, topology},
    {"paper", "the paper's greedy rule", false, paper},
    {"swap", "swap search with a proved bound", false, swap},
    {"grouped", "swap search with --groups of experts kept whole on --nodes", true, grouped},
    {"max", "swap search for the fullest rank (latency weights)", false, max},
    {"budget", "swap search within --max-moves (192) or --max-bytes", false, budget},
    {"replicas", "swap search, then copies placed by source in spare slots", false, copies},
};
const uint32_t gb_placer_policy_count = sizeof gb_placer_policies / sizeof *gb_placer_policies;

int gb_placer_find(const gb_placer_policy **policy, const char *name, gb_error *err)
{
    gb_nearest nearest = gb_nearest_to(name);
    for (uint32_t i = 0; i < gb_placer_policy_count; i++) {
        if (strcmp(gb_placer_policies[i].name, name) == 0) {
            *policy = &gb_placer_policies[i];
            return GB_OK;
        }
        gb_nearest_offer(&nearest, gb_placer_policies[i].name);
    }
    const char *found = gb_nearest_found(&nearest);
    if (found) return gb_fail(err, GB_ENOTFOUND, "no placement policy is called \"%s\"; did you mean %s?", name, found);
    return gb_fail(err, GB_ENOTFOUND, "no placement policy is called \"%s\"; gimbal place --help lists them", name);
}

/* --- steps ---------------------------------------------------------------------------------------------------------------- */

static double objective_of(const gb_placer *p, const double *traffic, const gb_placement *placement, const gb_placement *before)
{
    double sum = 0;
    for (uint32_t l = 0; l < placement->layers; l++)
        sum += gb_score_placement_layer(&p->options.weights, &p->links, traffic + (size_t)l * placement->sources * placement->experts, placement, l, before);
    return sum;
}

/* The bound that the unrestricted search proves from the same homes. */
static double prove_bound(gb_placer *p, const gb_placement *now, const double *traffic)
{
    gb_solve_options options = p->options;
    gb_solve_report report;
    options.max_moves = GB_MOVES_ANY;
    options.max_bytes = UINT64_MAX;
    find_homes(p, now);
    if (!homes_fit(p)) return NAN;
    gb_solver_score(&p->solver, &options.weights, &p->links, traffic, p->home);
    gb_solver_swap(&p->solver, p->out, p->home, &options, &report);
    return report.bound;
}

int gb_placer_step(gb_placer *p, const gb_placer_policy *policy, gb_placement *next, const gb_placement *now, const gb_matrix *window,
                   bool prove, gb_placer_outcome *outcome, gb_error *err)
{
    gb_decision_limits limits = {p->options.min_gain_ratio, p->options.max_moves, p->options.max_bytes, p->options.expert_bytes, policy->even_if_worse};
    gb_place_weights weights = policy->decide == max ? gb_place_weights_latency() : p->options.weights;
    gb_estimate_add(&p->estimate, window);
    const double *traffic = p->raw ? gb_placer_numbers(p, window) : p->estimate.traffic;
    double started = gb_placer_cpu_ms();
    int rc = policy->decide(p, next, now, traffic, err);
    if (rc != GB_OK) return rc;
    *outcome = (gb_placer_outcome){.bound = NAN};
    outcome->verdict = gb_decide(&p->decider, next, now, traffic, &p->links, &weights, &limits, err);
    outcome->cpu_ms = gb_placer_cpu_ms() - started;
    if (outcome->verdict == GB_VERDICT_INVALID) return GB_EINTERNAL;
    outcome->stay = objective_of(p, traffic, now, NULL);
    outcome->objective = objective_of(p, traffic, next, now);
    if (prove) outcome->bound = prove_bound(p, now, traffic);
    return GB_OK;
}
