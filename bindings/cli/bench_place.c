/* The placement solver against what it promises: CPU time of one thread (scoring included) and proved gaps on generated windows,
   what a budget buys, that noise moves nothing, and what copies are worth on the next window. docs/placement.md explains. */
#include "bindings/cli/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bindings/cli/command.h"
#include "bindings/cli/placer.h"
#include "bindings/cli/report.h"
#include "core/cpu/probe.h"
#include "core/moe/generate.h"

enum {
    TRIES_PER_ROUND = 3,    /* disturbed samples are taken again: at most this many tries for each wanted one */
    SAMPLES_MAX = 100 * TRIES_PER_ROUND,
    SOLVES_MAX = 4096,      /* in one sample */
};
static const double SAMPLE_SECONDS = 0.12;    /* the kernel counts CPU in hundredths: a sample must be much longer */
static const double QUIET = 0.3;              /* CPUs that others may use beside a sample that counts */

typedef struct shape {
    uint32_t layers, sources, experts, ranks;
} shape;

static const shape qwen = {48, 2, 128, 4}, deepseek = {58, 8, 256, 8};    /* Qwen3-30B-A3B on 4 ranks, DeepSeek-V3 on 8 */

/* A generator with what a server would hold. */
typedef struct scene {
    gb_arena arena;
    gb_generator generator;
    gb_matrix window;
    gb_links links;
    gb_solver solver;
    double *traffic;           /* [layers][sources][experts] */
    int32_t *home, *out;       /* [layers][experts] */
    size_t homes;
} scene;

static int open_scene(scene *s, shape size, double sigma, double block, uint64_t seed, gb_error *err)
{
    gb_generator_options o = gb_generator_defaults();
    o.layers = size.layers, o.sources = size.sources, o.experts = size.experts, o.sigma = sigma, o.block = block, o.seed = seed;
    gb_arena_init(&s->arena);
    s->homes = (size_t)size.layers * size.experts;
    s->traffic = GB_ARENA_NEW(&s->arena, double, s->homes * size.sources);
    s->home = GB_ARENA_NEW(&s->arena, int32_t, s->homes);
    s->out = GB_ARENA_NEW(&s->arena, int32_t, s->homes);
    int rc = gb_generator_init(&s->generator, &s->arena, &o, err);
    if (rc == GB_OK) rc = gb_links_init(&s->links, &s->arena, size.sources, size.ranks, err);
    if (rc == GB_OK) rc = gb_solver_init(&s->solver, &s->arena, size.layers, size.experts, size.ranks, err);
    if (rc == GB_OK && (!s->traffic || !s->home || !s->out || gb_matrix_init(&s->window, &s->arena, size.layers, size.sources, size.experts) != GB_OK))
        rc = gb_fail(err, GB_ENOMEM, "out of memory for a bench scene");
    for (size_t i = 0; rc == GB_OK && i < s->homes; i++) s->home[i] = (int32_t)(i % size.experts * size.ranks / size.experts);
    return rc;
}

static void next_window(scene *s)
{
    gb_generator_next(&s->generator, &s->window);
    for (size_t i = 0, n = gb_matrix_cells(&s->window); i < n; i++) s->traffic[i] = (double)s->window.counts[i];
}

static void solve(scene *s, const gb_solve_options *options, gb_solve_report *report)
{
    gb_solver_score(&s->solver, &options->weights, &s->links, s->traffic, s->home);
    gb_solver_swap(&s->solver, s->out, s->home, options, report);
}

/* --- time ---------------------------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, uint32_t n)
{
    qsort(x, n, sizeof *x, ascending);
    return n ? x[n / 2] : NAN;
}

static double wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Median CPU time of solves over SAMPLE_SECONDS. */
static double take_sample(scene *s, const gb_solve_options *options, gb_solve_report *report, double *others)
{
    static double ms[SOLVES_MAX];
    gb_meter meter;
    uint32_t n = 0;
    double end = wall_seconds() + SAMPLE_SECONDS;
    gb_meter_start(&meter);
    while (n < SOLVES_MAX && (n < 3 || wall_seconds() < end)) {
        double started = gb_placer_cpu_ms();
        solve(s, options, report);
        ms[n++] = gb_placer_cpu_ms() - started;
    }
    *others = gb_meter_others(&meter);
    return median(ms, n);
}

typedef struct timing {
    double ms;
    uint32_t quiet, samples;
} timing;

static timing measure(scene *s, const gb_solve_options *options, gb_solve_report *report, int64_t rounds)
{
    double quiet[SAMPLES_MAX], all[SAMPLES_MAX], others;
    timing t = {0};
    while (t.quiet < rounds && t.samples < rounds * TRIES_PER_ROUND) {
        double ms = take_sample(s, options, report, &others);
        all[t.samples++] = ms;
        if (others <= QUIET) quiet[t.quiet++] = ms;
    }
    t.ms = t.quiet ? median(quiet, t.quiet) : median(all, t.samples);
    return t;
}

static void add_time(gb_report *report, const char *name, timing t, double bound)
{
    gb_report_row *row = gb_report_add(report, name, t.ms, "ms");
    gb_report_bound(row, GB_BOUND_AT_MOST, bound);
    row->inconclusive = t.quiet == 0;
    gb_report_note(row, "%u of %u samples undisturbed", t.quiet, t.samples);
}

/* --- search and proof ------------------------------------------------------------------------------------------------------------ */

typedef struct search {
    const char *name;
    const shape *shape;
    gb_place_weights (*weights)(void);
    double sigma, block, tolerance;
    uint32_t warm;                      /* windows solved before: homes are the last answer */
    double most_ms, most_gap;           /* gap in per cent */
} search;

static const search searches[] = {
    {"paper weights, cold", &qwen, gb_place_weights_paper, 0.5, 0.5, 1e-3, 0, 1, 0.1},
    {"paper weights, warm", &qwen, gb_place_weights_paper, 0.5, 0.5, 1e-3, 2, 1, 0.1},
    {"paper weights, sigma 1, cold", &qwen, gb_place_weights_paper, 1, 0, 1e-3, 0, 1, 0.1},
    {"latency weights, cold", &qwen, gb_place_weights_latency, 0.5, 0.5, 4e-3, 0, 8, 0.7},
    {"balanced weights, cold", &qwen, gb_place_weights_balanced, 0.5, 0.5, 4e-3, 0, 8, 0.7},
    {"balanced, 58x8x256x8, cold", &deepseek, gb_place_weights_balanced, 0.5, 0.5, 1e-3, 0, 40, 0.3},
    {"balanced, 58x8x256x8, warm", &deepseek, gb_place_weights_balanced, 0.5, 0.5, 1e-3, 2, 15, 0.3},
};

enum { SEEDS = 3 };    /* one set of windows may be kind */

/* The window of a seed, with homes as `warm` windows before it left them; solved once. */
static int prepare(scene *s, const search *what, const gb_solve_options *options, uint64_t seed, gb_solve_report *solved, gb_error *err)
{
    int rc = open_scene(s, *what->shape, what->sigma, what->block, seed, err);
    if (rc != GB_OK) return rc;
    for (uint32_t w = 0; w < what->warm; w++) {
        next_window(s);
        solve(s, options, solved);
        memcpy(s->home, s->out, s->homes * sizeof *s->home);
    }
    next_window(s);
    solve(s, options, solved);
    return GB_OK;
}

static int run_search(gb_report *report, const search *what, int64_t rounds, gb_error *err)
{
    gb_solve_options options = gb_solve_defaults();
    double gap = 0, worst = 0, moves = 0;
    int rc = GB_OK;
    options.weights = what->weights();
    options.tolerance = what->tolerance;
    for (uint64_t seed = 1; seed <= SEEDS && rc == GB_OK; seed++) {
        scene s;
        gb_solve_report solved;
        rc = prepare(&s, what, &options, seed, &solved, err);
        if (rc == GB_OK && seed == 1) add_time(report, what->name, measure(&s, &options, &solved, rounds), what->most_ms);
        if (rc == GB_OK) {
            double here = 100 * gb_solve_gap(&solved);
            gap += here / SEEDS;
            worst = fmax(worst, here);
            moves += (double)solved.moves / SEEDS;
        }
        gb_arena_deinit(&s.arena);
    }
    if (rc != GB_OK) return rc;
    gb_report_row *row = gb_report_add(report, "  proved gap", gap, "%");
    gb_report_bound(row, GB_BOUND_AT_MOST, what->most_gap);
    gb_report_note(row, "mean of %d seeds, worst %.3f %%; %.0f moves", SEEDS, worst, moves);
    return GB_OK;
}

/* --- budget ------------------------------------------------------------------------------------------------------------------------ */

/* A proved bound of J with at most `moves` moves and gamma 0: the best over gamma of (bound at gamma) - gamma moves. */
static double budget_bound(scene *s, const gb_solve_options *free_moves, uint32_t moves)
{
    double best = -INFINITY;
    for (double gamma = 0.003; gamma < 20; gamma *= 1.25) {
        gb_solve_options options = *free_moves;
        gb_solve_report report;
        options.weights.gamma = gamma;
        options.tolerance = 1e-5;
        options.bound_steps = 400;
        solve(s, &options, &report);
        best = fmax(best, report.bound - gamma * moves);
    }
    return best;
}

static int run_budget(gb_report *report, double sigma, double block, double beta, int64_t rounds, gb_error *err)
{
    enum { MOVES = 192 };
    scene s;
    char name[64];
    int rc = open_scene(&s, qwen, sigma, block, 1, err);
    if (rc == GB_OK) {
        gb_solve_options free_moves = gb_solve_defaults(), budget;
        gb_solve_report solved;
        free_moves.weights = (gb_place_weights){1, beta, 0, GB_IMBALANCE_SQUARES};
        budget = free_moves;
        budget.max_moves = MOVES;
        next_window(&s);
        timing t = measure(&s, &budget, &solved, rounds);
        double bound = budget_bound(&s, &free_moves, MOVES);
        snprintf(name, sizeof name, "budget of %d moves, sigma %g, beta %g", MOVES, sigma, beta);
        add_time(report, name, t, 1);
        gb_report_row *row = gb_report_add(report, "  of the proved best for it", 100 * (solved.stay - solved.objective) / (solved.stay - bound), "%");
        gb_report_bound(row, GB_BOUND_AT_LEAST, 94);
        gb_report_note(row, "%u moves, cost %.1f, staying %.1f", solved.moves, solved.objective, solved.stay);
    }
    gb_arena_deinit(&s.arena);
    return rc;
}

/* --- out of sample ------------------------------------------------------------------------------------------------------------------ */

enum { WARM_UP = 3, WINDOWS = 10 };    /* windows that warm up, and all */

typedef struct outlook {
    double remote, max_over_mean, moves;    /* means after the warm-up: of the next window; moves per rearrangement */
} outlook;

/* A policy decides on the estimate of each window and is looked at on the next. */
static int look_ahead(outlook *mean, double sigma, uint32_t spare, const char *policy_name, const gb_place_weights *weights, gb_error *err)
{
    gb_arena arena;
    gb_dump d;
    gb_generator g;
    gb_generator_options o = gb_generator_defaults();
    static gb_placer placer;
    const gb_placer_policy *policy = NULL;
    gb_placement now, next;
    gb_arena_init(&arena);
    o.sigma = sigma;
    int rc = gb_dump_init(&d, &arena, WINDOWS, o.layers, o.sources, o.experts, qwen.ranks, spare, gb_solve_defaults().expert_bytes, err);
    if (rc == GB_OK) rc = gb_generator_init(&g, &arena, &o, err);
    if (rc == GB_OK) rc = gb_placer_init(&placer, &arena, &d, err);
    if (rc == GB_OK) rc = gb_placer_find(&policy, policy_name, err);
    if (rc == GB_OK) rc = gb_placement_init(&now, &arena, o.layers, o.sources, o.experts, qwen.ranks, spare, err);
    if (rc == GB_OK) rc = gb_placement_init(&next, &arena, o.layers, o.sources, o.experts, qwen.ranks, spare, err);
    for (uint32_t w = 0; rc == GB_OK && w < WINDOWS; w++) gb_generator_next(&g, &d.window[w].counts);
    *mean = (outlook){0};
    placer.options.weights = *weights;
    for (uint32_t w = 0; rc == GB_OK && w + 1 < WINDOWS; w++) {
        gb_placer_outcome outcome;
        gb_place_report report;
        rc = gb_placer_step(&placer, policy, &next, &now, &d.window[w].counts, false, &outcome, err);
        if (rc != GB_OK) break;
        gb_score_placement(&report, weights, &placer.links, gb_placer_numbers(&placer, &d.window[w + 1].counts), &next, NULL, 1);
        gb_placement_copy(&now, &next);
        if (w < WARM_UP) continue;
        double share = 1.0 / (WINDOWS - 1 - WARM_UP);
        mean->remote += share * report.remote_ratio;
        mean->max_over_mean += share * report.max_over_mean;
        mean->moves += share * gb_plan_copies(&placer.decider.plan);
    }
    gb_arena_deinit(&arena);
    return rc;
}

static void add_bounded(gb_report *report, const char *name, double value, const char *unit, double most)
{
    gb_report_row *row = gb_report_add(report, name, value, unit);
    if (most < INFINITY) gb_report_bound(row, GB_BOUND_AT_MOST, most);
}

static int run_outlooks(gb_report *report, gb_error *err)
{
    gb_place_weights balanced = gb_place_weights_balanced();
    gb_place_weights for_copies = {1, 0.08, 0.03, GB_IMBALANCE_SQUARES};    /* copies even out loads: prices may be lower */
    outlook noise, skew, copies;
    int rc = look_ahead(&noise, 0, 0, "swap", &balanced, err);
    if (rc == GB_OK) rc = look_ahead(&skew, 0.5, 0, "swap", &balanced, err);
    if (rc == GB_OK) rc = look_ahead(&copies, 0.5, 4, "replicas", &for_copies, err);
    if (rc != GB_OK) return rc;
    add_bounded(report, "no skew: moves per rearrangement", noise.moves, "", 30);
    add_bounded(report, "  fullest rank, next window", noise.max_over_mean, "x mean", 1.05);
    add_bounded(report, "sigma 0.5: moves per rearrangement", skew.moves, "", INFINITY);
    add_bounded(report, "  remote, next window", skew.remote, "", INFINITY);
    add_bounded(report, "  fullest rank, next window", skew.max_over_mean, "x mean", INFINITY);
    add_bounded(report, "sigma 0.5, 4 copies a rank: moves", copies.moves, "", INFINITY);
    add_bounded(report, "  remote, next window", copies.remote, "", 0.24);
    add_bounded(report, "  fullest rank, next window", copies.max_over_mean, "x mean", 1.05);
    return GB_OK;
}

/* --- the bench ------------------------------------------------------------------------------------------------------------------------ */

static int run(gb_report *report, const gb_bench_flags *flags, gb_error *err)
{
    int rc = GB_OK;
    for (size_t i = 0; i < sizeof searches / sizeof *searches && rc == GB_OK; i++) rc = run_search(report, &searches[i], flags->rounds, err);
    if (rc == GB_OK) rc = run_budget(report, 0.5, 0.5, 0.1, flags->rounds, err);
    if (rc == GB_OK) rc = run_budget(report, 0, 0, 0.1, flags->rounds, err);
    if (rc == GB_OK) rc = run_budget(report, 0.5, 0, 0.02, flags->rounds, err);
    return rc == GB_OK ? run_outlooks(report, err) : rc;
}

int gb_bench_place(const gb_bench_flags *flags)
{
    static gb_report report;
    gb_error err = {{0}};
    int code = GB_EXIT_OK;
    report.bench = "place";
    snprintf(report.setting, sizeof report.setting, "one thread, CPU time, %s kernels; 48x2x128x4 unless said (layers x sources x experts x ranks)",
             gb_swap_kernels_best()->name);
    int rc = run(&report, flags, &err);
    if (rc == GB_OK) rc = gb_report_finish(&report, flags->json, flags->check, &code, &err);
    return rc == GB_OK ? code : gb_command_failed(rc, &err);
}
