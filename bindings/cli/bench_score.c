/* What a whole rearrangement costs when gimbal.lua scores the experts: one call of score_expert for every expert of 48 layers of 128, on
   4, 16 and 64 ranks, beside the greedy rule in C. CPU time of one thread, scoring included. Every plan is compared with C's: a faster
   answer that is another answer does not count. */
#include "bindings/cli/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bindings/cli/placer.h"
#include "bindings/lua/lua_desk.h"
#include "core/cpu/probe.h"
#include "core/moe/generate.h"

enum {
    LAYERS = 48,
    EXPERTS = 128,
    WINDOWS = 6,            /* in turn, so that no sample sees one window twice in a row */
    TRIES_PER_ROUND = 3,    /* disturbed samples are taken again: at most this many tries for each wanted one */
    SAMPLES_MAX = 100 * TRIES_PER_ROUND,
    PLANS_MAX = 1024,       /* in one sample */
    WARM_UP = 4,            /* rearrangements before the first sample: the JIT has compiled */
};
static const double SAMPLE_SECONDS = 0.12, QUIET = 0.3;    /* as in the other rows of this bench */

static const struct size {
    uint32_t sources, ranks;
    double most_ms;
} sizes[] = {{2, 4, 2}, {4, 16, 4}, {8, 64, 15}};

typedef struct scene {
    gb_arena arena;
    gb_solver solver;
    gb_solve_options options;
    gb_rearrangement r;
    gb_links links;
    gb_lua_desk *desk;
    double *traffic[WINDOWS];      /* [layers][sources][experts] */
    int32_t *home, *expected;      /* [layers][experts] */
    uint64_t plans, others;        /* compared with C's, and not the same; an answer that was not the script's is one of them */
} scene;

/* ---- the scene ---- */

static int make_windows(scene *s, uint32_t sources, gb_error *err)
{
    gb_generator generator;
    gb_matrix window;
    gb_generator_options o = gb_generator_defaults();
    o.layers = LAYERS, o.sources = sources, o.experts = EXPERTS;
    int status = gb_generator_init(&generator, &s->arena, &o, err);
    if (status) return status;
    if (gb_matrix_init(&window, &s->arena, LAYERS, sources, EXPERTS)) return GB_ENOMEM;
    for (int w = 0; w < WINDOWS; w++) {
        s->traffic[w] = GB_ARENA_NEW(&s->arena, double, gb_matrix_cells(&window));
        if (!s->traffic[w]) return GB_ENOMEM;
        gb_generator_next(&generator, &window);
        for (size_t i = 0; i < gb_matrix_cells(&window); i++) s->traffic[w][i] = (double)window.counts[i];
    }
    return GB_OK;
}

static int open_scene(scene *s, const struct size *size, gb_error *err)
{
    memset(s, 0, sizeof *s);
    gb_arena_init(&s->arena);
    s->options = gb_solve_defaults();
    s->home = GB_ARENA_NEW(&s->arena, int32_t, LAYERS * EXPERTS);
    s->expected = GB_ARENA_NEW(&s->arena, int32_t, LAYERS * EXPERTS);
    int status = s->home && s->expected ? make_windows(s, size->sources, err) : GB_ENOMEM;
    if (!status) status = gb_solver_init(&s->solver, &s->arena, LAYERS, EXPERTS, size->ranks, err);
    if (!status) status = gb_links_init(&s->links, &s->arena, size->sources, size->ranks, err);
    if (!status) status = gb_rearrange_init(&s->r, &s->arena, &s->solver, &s->options, size->sources, err);
    if (status) return gb_fail(err, status, "out of memory for a bench scene");
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) s->home[i] = (int32_t)(i % EXPERTS * size->ranks / EXPERTS);
    return gb_lua_desk_open_shipped(&s->desk, "gimbal", size->sources, err);
}

static void close_scene(scene *s)
{
    gb_lua_desk_close(s->desk);
    gb_arena_deinit(&s->arena);
}

/* ---- one rearrangement ---- */

typedef double place(scene *s);    /* returns its CPU time in ms */

static double place_in_lua(scene *s)
{
    double started = gb_placer_cpu_ms();
    int answer = gb_lua_desk_place(s->desk, &s->r);
    double ms = gb_placer_cpu_ms() - started;
    if (answer != GB_OK) memset(s->r.rank_of, 0xff, LAYERS * EXPERTS * sizeof *s->r.rank_of);
    return ms;
}

static double place_in_c(scene *s)
{
    gb_greedy built_in = {0};
    double started = gb_placer_cpu_ms();
    for (uint32_t l = 0; l < LAYERS; l++) {
        gb_rearrange_score(&s->r, l);
        gb_rearrange_greedy(&s->r, &built_in, l);
    }
    return gb_placer_cpu_ms() - started;
}

static void pose(scene *s, uint32_t i) { gb_rearrange_pose(&s->r, s->traffic[i % WINDOWS], &s->links, s->home, i); }

static void compare(scene *s)
{
    memcpy(s->expected, s->r.rank_of, LAYERS * EXPERTS * sizeof *s->expected);
    place_in_c(s);
    s->plans++;
    s->others += memcmp(s->expected, s->r.rank_of, LAYERS * EXPERTS * sizeof *s->expected) != 0;
}

/* ---- time ---- */

typedef struct timing {
    double ms;
    uint32_t quiet, samples;
} timing;

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

static double take_sample(scene *s, place *how, double *others)
{
    static double ms[PLANS_MAX];
    gb_meter meter;
    uint32_t n = 0;
    double end = wall_seconds() + SAMPLE_SECONDS;
    gb_meter_start(&meter);
    while (n < PLANS_MAX && (n < 3 || wall_seconds() < end)) {
        pose(s, n);
        ms[n++] = how(s);
        if (how == place_in_lua) compare(s);
    }
    *others = gb_meter_others(&meter);
    return median(ms, n);
}

static timing measure(scene *s, place *how, int64_t rounds)
{
    double quiet[SAMPLES_MAX], all[SAMPLES_MAX], others;
    timing t = {0};
    for (uint32_t i = 0; i < WARM_UP; i++) pose(s, i), how(s);
    while (t.quiet < rounds && t.samples < rounds * TRIES_PER_ROUND) {
        double ms = take_sample(s, how, &others);
        all[t.samples++] = ms;
        if (others <= QUIET) quiet[t.quiet++] = ms;
    }
    t.ms = t.quiet ? median(quiet, t.quiet) : median(all, t.samples);
    return t;
}

/* ---- the rows ---- */

static gb_report_row *add_time(gb_report *report, const char *name, const timing *t)
{
    gb_report_row *row = gb_report_add(report, name, t->ms, "ms");
    row->inconclusive = t->quiet == 0;
    gb_report_note(row, "%u of %u samples undisturbed", t->quiet, t->samples);
    return row;
}

static void run_size(gb_report *report, scene *s, const struct size *size, int64_t rounds)
{
    char name[64];
    timing lua = measure(s, place_in_lua, rounds), c = measure(s, place_in_c, rounds);
    snprintf(name, sizeof name, "score_expert, %dx%d on %u ranks", LAYERS, EXPERTS, size->ranks);
    gb_report_bound(add_time(report, name, &lua), GB_BOUND_AT_MOST, size->most_ms);
    add_time(report, "  the greedy rule in C", &c)->inconclusive = false;    /* there is no bound to miss */
    gb_report_row *row = gb_report_add(report, "  plans that differ from C's", (double)s->others, "plans");
    gb_report_bound(row, GB_BOUND_AT_MOST, 0);
    gb_report_note(row, "of %llu", (unsigned long long)s->plans);
}

int gb_bench_score(gb_report *report, int64_t rounds, gb_error *err)
{
    static scene s;
    int status = GB_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++) {
        status = open_scene(&s, &sizes[i], err);
        if (!status) run_size(report, &s, &sizes[i], rounds);
        close_scene(&s);
    }
    return status;
}
