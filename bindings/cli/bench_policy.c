/* What a decision costs in Lua and in C: the shipped policy gimbal on made-up tables of a busy server, as the serving core calls
   it. Wall time of single decisions, clock included; a ratio and an absent hook by batches, where the clock does not count. */
#include "bindings/cli/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bindings/cli/command.h"
#include "bindings/cli/report.h"
#include "bindings/lua/lua_desk.h"
#include "bindings/lua/lua_host.h"
#include "core/cpu/probe.h"
#include "core/serve/queue.h"
#include "core/serve/select.h"

enum {
    TRIES_PER_ROUND = 3,         /* disturbed samples are taken again: at most this many tries for each wanted one */
    SAMPLES_MAX = 100 * TRIES_PER_ROUND,
    DECISIONS_MAX = 1 << 17,     /* in one sample */
    BATCH = 500,                 /* decisions between two looks at the clock */
    WARM_UP = 2000,              /* decisions before the first sample: the JIT has compiled */
    WAITING = 1024,
    SEED = 1,
};
static const double SAMPLE_SECONDS = 0.12;    /* the kernel counts CPU in hundredths: a sample must be much longer */
static const double QUIET = 0.3;              /* CPUs that others may use beside a sample that counts */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* ---- the scene ---- */

typedef struct scene {
    gb_arena arena;
    gb_tables tables;
    gb_lua_desk *desk;
    gb_pressure_params params;
    gb_policy lua, c, absent;
    gb_hook_stats stats;
    gb_queue queue;
    gb_live *lives;            /* [WAITING]; who waits */
    gb_rng rng;
    double *ns;                /* [DECISIONS_MAX] of a sample */
    unsigned answers;          /* summed, so that no decision is optimised away */
} scene;

static void make_busy(scene *s)
{
    gb_engine_table *e = &s->tables.engines;
    for (uint32_t i = 0; i < e->n; i++) {
        e->running_prefill_tokens[i] = (double)gb_rng_below(&s->rng, 8192);
        e->waiting_prefill_tokens[i] = (double)gb_rng_below(&s->rng, 65536);
        e->pending_tokens[i] = (double)gb_rng_below(&s->rng, 2048);
        e->kv_used_ratio[i] = 0.85 * gb_rng_uniform(&s->rng);
        e->moe_pressure[i] = 0.5 + gb_rng_uniform(&s->rng);
        e->age_ns[i] = 1e6;
        e->valid[i] = e->healthy[i] = 1;
    }
    s->tables.request = (gb_request_row){.prompt_tokens = 500, .max_tokens = 100, .deadline_ns = INFINITY};
}

static int make_line(scene *s)
{
    gb_queue_table *q = &s->tables.queue;
    s->lives = GB_ARENA_NEW(&s->arena, gb_live, WAITING);
    if (!s->lives || gb_queue_init(&s->queue, &s->arena, WAITING) != GB_OK) return GB_ENOMEM;
    q->n = WAITING;
    for (uint32_t i = 0; i < WAITING; i++) {
        q->prompt_tokens[i] = q->prefill_tokens[i] = (double)(1 + gb_rng_below(&s->rng, 8192));
        q->max_tokens[i] = 100;
        q->deadline_ns[i] = INFINITY;
        s->lives[i] = (gb_live){.id = i + 1, .arrived = gb_ms(i)};
        gb_queue_push(&s->queue, &s->lives[i]);
    }
    return GB_OK;
}

static int open_scene(scene *s, uint32_t engines, gb_error *err)
{
    memset(s, 0, sizeof *s);
    gb_arena_init(&s->arena);
    gb_rng_init(&s->rng, SEED);
    gb_pressure_params_default(&s->params);
    s->c = (gb_policy){.self = &s->params, .select_engine = gb_builtin_select, .order_queue = gb_builtin_order};
    s->ns = GB_ARENA_NEW(&s->arena, double, DECISIONS_MAX);
    if (!s->ns || gb_tables_init(&s->tables, &s->arena, engines, WAITING) != GB_OK || make_line(s) != GB_OK)
        return gb_fail(err, GB_ENOMEM, "out of memory for a bench scene");
    make_busy(s);
    int status = gb_lua_desk_open_shipped(&s->desk, "gimbal", engines, err);
    if (!status) s->lua = *gb_lua_desk_policy(s->desk);
    return status;
}

static void close_scene(scene *s)
{
    gb_lua_desk_close(s->desk);
    gb_arena_deinit(&s->arena);
}

/* ---- decisions ---- */

/* One engine's row changes between two decisions, and the turn passes on, as in a server. */
static void change_engines(scene *s)
{
    gb_engine_table *e = &s->tables.engines;
    uint32_t i = (uint32_t)gb_rng_below(&s->rng, e->n);
    e->pending_tokens[i] = (double)gb_rng_below(&s->rng, 2048);
    e->running_prefill_tokens[i] = (double)gb_rng_below(&s->rng, 8192);
    e->next = (e->next + 1) % e->n;
}

static void select_once(scene *s, const gb_policy *policy)
{
    s->answers += (unsigned)policy->select_engine(policy->self, &s->tables.request, &s->tables.engines, gb_ms(1));
}

/* Back to the order of arrival, the worst a sort by prefill can find. */
static void unsort(scene *s)
{
    for (uint32_t i = 0; i < WAITING; i++)
        s->queue.entries[i] = (gb_queue_entry){.arrived = s->lives[i].arrived, .id = s->lives[i].id, .live = &s->lives[i]};
}

static void order_once(scene *s, const gb_policy *policy)
{
    gb_queue_table *q = &s->tables.queue;
    s->answers += (unsigned)policy->order_queue(policy->self, q, gb_ms(1));
    for (uint32_t i = 0; i < WAITING; i++) s->queue.entries[i].key = q->key[i];
    gb_queue_sort(&s->queue);
}

typedef struct subject {
    void (*prepare)(scene *s);    /* not timed */
    void (*decide)(scene *s, const gb_policy *policy);
} subject;

static const subject selecting = {change_engines, select_once}, ordering = {unsort, order_once};

/* ---- single decisions ---- */

typedef struct timing {
    double p50, p99;    /* ns */
    uint32_t quiet, samples;
} timing;

static double take_sample(scene *s, const subject *what, const gb_policy *policy, double *p50, double *p99)
{
    gb_meter meter;
    uint32_t n = 0;
    double end = now_ns() + 1e9 * SAMPLE_SECONDS, before, after = 0;
    gb_meter_start(&meter);
    do {
        what->prepare(s);
        before = now_ns();
        what->decide(s, policy);
        after = now_ns();
        s->ns[n++] = after - before;
    } while (n < DECISIONS_MAX && after < end);
    while (now_ns() < end) what->decide(s, policy);    /* a full sample, but not long enough for the meter */
    double others = gb_meter_others(&meter);
    qsort(s->ns, n, sizeof *s->ns, ascending);
    *p50 = s->ns[n / 2];
    *p99 = s->ns[(uint64_t)n * 99 / 100];
    return others;
}

static double median(double *x, uint32_t n)
{
    qsort(x, n, sizeof *x, ascending);
    return n ? x[n / 2] : NAN;
}

/* Medians over the undisturbed samples, or over all of them when there is none. */
static timing measure(scene *s, const subject *what, const gb_policy *policy, int64_t rounds)
{
    double p50[2][SAMPLES_MAX], p99[2][SAMPLES_MAX];    /* undisturbed, all */
    timing t = {0};
    for (int i = 0; i < WARM_UP; i++) what->prepare(s), what->decide(s, policy);
    while (t.quiet < rounds && t.samples < rounds * TRIES_PER_ROUND) {
        double others = take_sample(s, what, policy, &p50[1][t.samples], &p99[1][t.samples]);
        if (others <= QUIET) p50[0][t.quiet] = p50[1][t.samples], p99[0][t.quiet++] = p99[1][t.samples];
        t.samples++;
    }
    t.p50 = t.quiet ? median(p50[0], t.quiet) : median(p50[1], t.samples);
    t.p99 = t.quiet ? median(p99[0], t.quiet) : median(p99[1], t.samples);
    return t;
}

static void add_time(gb_report *report, const char *name, double us, const timing *t, double bound)
{
    gb_report_row *row = gb_report_add(report, name, us, "us");
    if (bound < INFINITY) gb_report_bound(row, GB_BOUND_AT_MOST, bound);
    row->inconclusive = t->quiet == 0;
    gb_report_note(row, "%u of %u samples undisturbed", t->quiet, t->samples);
}

/* ---- batches ---- */

/* ns a decision: two of them in turns, so that what disturbs hits both. */
typedef struct pair {
    double a, b;
    uint32_t quiet, samples;
} pair;

typedef void step(scene *s);

static void select_lua(scene *s) { select_once(s, &s->lua); }
static void select_c(scene *s) { select_once(s, &s->c); }
static void seam_with_hook(scene *s) { s->answers += (unsigned)gb_select_engine(&s->c, &s->c, &s->stats, &s->tables, gb_ms(1)); }
static void seam_without_hook(scene *s) { s->answers += (unsigned)gb_select_engine(&s->absent, &s->c, &s->stats, &s->tables, gb_ms(1)); }

static double time_batch(scene *s, step *decide)
{
    double start = now_ns();
    for (int i = 0; i < BATCH; i++) decide(s);
    return (now_ns() - start) / BATCH;
}

static double sample_pair(scene *s, step *a, step *b, double *ns_a, double *ns_b)
{
    double *of_a = s->ns, *of_b = s->ns + DECISIONS_MAX / 2, end = now_ns() + 1e9 * SAMPLE_SECONDS;
    gb_meter meter;
    uint32_t n = 0;
    gb_meter_start(&meter);
    do {
        of_a[n] = time_batch(s, a);
        of_b[n++] = time_batch(s, b);
    } while (n < DECISIONS_MAX / 2 && now_ns() < end);
    double others = gb_meter_others(&meter);
    *ns_a = median(of_a, n);
    *ns_b = median(of_b, n);
    return others;
}

static pair measure_pair(scene *s, step *a, step *b, int64_t rounds)
{
    double as[2][SAMPLES_MAX], bs[2][SAMPLES_MAX];
    pair p = {0};
    for (int i = 0; i < WARM_UP; i++) a(s), b(s);
    while (p.quiet < rounds && p.samples < rounds * TRIES_PER_ROUND) {
        double others = sample_pair(s, a, b, &as[1][p.samples], &bs[1][p.samples]);
        if (others <= QUIET) as[0][p.quiet] = as[1][p.samples], bs[0][p.quiet++] = bs[1][p.samples];
        p.samples++;
    }
    p.a = p.quiet ? median(as[0], p.quiet) : median(as[1], p.samples);
    p.b = p.quiet ? median(bs[0], p.quiet) : median(bs[1], p.samples);
    return p;
}

static void add_pair(gb_report *report, const char *name, double value, const char *unit, const pair *p, double bound)
{
    gb_report_row *row = gb_report_add(report, name, value, unit);
    gb_report_bound(row, GB_BOUND_AT_MOST, bound);
    row->inconclusive = p->quiet == 0;
    gb_report_note(row, "%.1f and %.1f ns; %u of %u samples undisturbed", p->a, p->b, p->quiet, p->samples);
}

/* ---- the bench ---- */

static const struct {
    uint32_t engines;
    double p50, p99, ratio;    /* bounds; INFINITY: none, ratio 0: not measured */
} sizes[] = {{8, 0.5, 2, 5}, {64, 1, INFINITY, 0}, {512, 5, INFINITY, 0}};

static void run_select(gb_report *report, scene *s, size_t i, int64_t rounds)
{
    char name[64];
    timing t = measure(s, &selecting, &s->lua, rounds);
    snprintf(name, sizeof name, "select_engine, %u engines: p50", sizes[i].engines);
    add_time(report, name, t.p50 / 1e3, &t, sizes[i].p50);
    add_time(report, "  p99", t.p99 / 1e3, &t, sizes[i].p99);
    if (sizes[i].ratio == 0) return;
    pair p = measure_pair(s, select_lua, select_c, rounds);
    add_pair(report, "  over the built-in in C", p.a / p.b, "x", &p, sizes[i].ratio);
}

static void run_absent(gb_report *report, scene *s, int64_t rounds)
{
    pair p = measure_pair(s, seam_without_hook, seam_with_hook, rounds);
    add_pair(report, "a hook that is absent", fmax(0, p.a - p.b), "ns", &p, 5);
}

static void run_order(gb_report *report, scene *s, int64_t rounds)
{
    timing lua = measure(s, &ordering, &s->lua, rounds), c = measure(s, &ordering, &s->c, rounds);
    add_time(report, "order_queue, 1024 waiting, sort included: p50", lua.p50 / 1e3, &lua, 60);
    add_time(report, "  p99", lua.p99 / 1e3, &lua, INFINITY);
    add_time(report, "  the built-in in C, sort included: p50", c.p50 / 1e3, &c, INFINITY);
}

static int run_all(gb_report *report, int64_t rounds, gb_error *err)
{
    static scene s;
    int status = GB_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++) {
        status = open_scene(&s, sizes[i].engines, err);
        if (!status) run_select(report, &s, i, rounds);
        close_scene(&s);
    }
    if (status) return status;
    status = open_scene(&s, 1, err);    /* one engine: the cheapest built-in, so that the hook shows */
    if (!status) run_order(report, &s, rounds);
    if (!status) run_absent(report, &s, rounds);
    close_scene(&s);
    if (!status) status = gb_bench_swap(report, rounds, err);
    return status ? status : gb_bench_score(report, rounds, err);
}

int gb_bench_policy(const gb_bench_flags *flags)
{
    static gb_report report;
    gb_error err = {{0}};
    int code = GB_EXIT_OK;
    report.bench = "policy";
    snprintf(report.setting, sizeof report.setting, "policy gimbal in LuaJIT, stopped by %s; wall time of single decisions, clock included", gb_lua_host_prepare());
    int status = run_all(&report, flags->rounds, &err);
    if (!status) status = gb_report_finish(&report, flags->json, flags->check, &code, &err);
    return status ? gb_command_failed(status, &err) : code;
}
