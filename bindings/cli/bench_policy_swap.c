/* What changing a policy costs a server that goes on: the exchange between two decisions, the first decision after it, and the way of
   a new source from its bytes to deciding. A serving core and a policy host without a model; requests are dispatched and cancelled. */
#include "bindings/cli/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bindings/lua/lua_host.h"
#include "core/cpu/probe.h"

enum {
    ROUNDS_MAX = 100,
    TRIES_PER_ROUND = 3,     /* disturbed rounds are taken again, as in bench_policy.c */
    SWAPS = 2000,            /* of a round, between two warm versions */
    LOADS = 60,              /* of a round, each a new source */
    ENGINES = 8,
};
static const double QUIET = 0.3;    /* CPUs that others may use beside a round that counts */

typedef struct swap_scene {
    gb_server *server;
    gb_lua_host *host;
    gb_sampling sampling;
    char *source;             /* of the shipped policy, with room for a comment that makes it another */
    size_t bytes;
    gb_time now;
    double exchange[SWAPS], after_swap[SWAPS], put[LOADS], after_put[LOADS];    /* ns */
} swap_scene;

typedef struct figures {
    double exchange_p50, after_swap_p99, put_p50, after_put_p99;
} figures;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(double *x, uint32_t n, uint32_t percent)
{
    qsort(x, n, sizeof *x, ascending);
    return n ? x[(uint64_t)(n - 1) * percent / 100] : NAN;
}

/* ---- the scene ---- */

static int make_server(swap_scene *s, gb_error *err)
{
    gb_server_options options;
    gb_server_options_default(&options);
    options.engines = options.ranks = ENGINES;
    options.moe_layers = 1;
    options.experts = 2 * ENGINES;
    options.vocab = 100;
    options.max_model_len = 256;
    options.max_num_seqs = 4;
    options.queue_capacity = 32;
    options.blocks_per_engine = 64;
    int status = gb_server_new(&s->server, &options, err);
    return status ? status : gb_lua_host_new(&s->host, s->server, 1, err);
}

static int keep_source(swap_scene *s, gb_error *err)
{
    enum { COMMENT_ROOM = 64 };
    gb_lua_info info = {0};
    for (uint32_t i = 0; gb_lua_host_info(s->host, i, &info) == GB_OK && strcmp(info.name, "gimbal") != 0; i++) continue;
    const char *source = gb_lua_host_source(s->host, info.version, &s->bytes);
    s->source = source ? malloc(s->bytes + COMMENT_ROOM) : NULL;
    if (!s->source) return gb_fail(err, GB_ENOMEM, "out of memory for a policy source");
    memcpy(s->source, source, s->bytes);
    return GB_OK;
}

static int open_swap_scene(swap_scene *s, gb_error *err)
{
    *s = (swap_scene){.now = gb_ms(1)};
    gb_sampling_default(&s->sampling);
    int status = make_server(s, err);
    return status ? status : keep_source(s, err);
}

static void close_swap_scene(swap_scene *s)
{
    if (s->host) gb_lua_host_free(s->host);
    if (s->server) gb_server_free(s->server);
    free(s->source);
}

/* One request is dispatched and cancelled; *ns is what the script took to decide it. */
static int decide(swap_scene *s, double *ns, gb_error *err)
{
    static const int32_t tokens[] = {1, 2, 3};
    gb_request request = {.tokens = tokens, .n_tokens = 3, .deadline = GB_NEVER, .sampling = &s->sampling};
    gb_request_id id;
    gb_event event;
    const gb_lua_log *log = gb_lua_host_log(s->host);
    uint64_t before = gb_lua_log_decisions(log);
    s->now += gb_us(10);
    int status = gb_server_submit(s->server, &id, &request, s->now, err);
    if (status) return status;
    const gb_lua_decision *decision = gb_lua_log_next_decision(log, &before);
    if (!decision || decision->answer < 0) return gb_fail(err, GB_EINTERNAL, "the policy did not decide a request");
    *ns = (double)decision->ns;
    gb_server_cancel(s->server, id, s->now);
    while (gb_server_poll_event(s->server, &event)) continue;
    return GB_OK;
}

/* ---- measuring ---- */

static int change_source(swap_scene *s, double *put, double *first, gb_error *err)
{
    static uint32_t serial;
    uint32_t version;
    int n = sprintf(s->source + s->bytes, "\n-- %u\n", serial++);
    gb_lua_change change = {.who = "bench", .now = s->now};
    double before = now_ns();
    int status = gb_lua_host_put(s->host, &version, "swapped", "swapped.lua", s->source, s->bytes + (size_t)n, &change, err);
    if (!status) status = gb_lua_host_switch(s->host, version, &change, err);
    *put = now_ns() - before;
    return status ? status : decide(s, first, err);
}

/* Two warm versions take turns. */
static int swap(swap_scene *s, double *exchange, double *first, gb_error *err)
{
    gb_lua_change change = {.hook = "select_engine", .who = "bench", .now = s->now};
    double before = now_ns();
    int status = gb_lua_host_rollback(s->host, &change, err);
    *exchange = now_ns() - before;
    return status ? status : decide(s, first, err);
}

static int measure_round(swap_scene *s, figures *f, gb_error *err)
{
    int status = GB_OK;
    for (int i = 0; i < LOADS && !status; i++) status = change_source(s, &s->put[i], &s->after_put[i], err);
    for (int i = 0; i < SWAPS && !status; i++) status = swap(s, &s->exchange[i], &s->after_swap[i], err);
    f->put_p50 = percentile(s->put, LOADS, 50);
    f->after_put_p99 = percentile(s->after_put, LOADS, 99);
    f->exchange_p50 = percentile(s->exchange, SWAPS, 50);
    f->after_swap_p99 = percentile(s->after_swap, SWAPS, 99);
    return status;
}

/* The median of each figure over the undisturbed rounds, or over all when there is none. */
static figures middle(const figures *rounds, uint32_t n)
{
    double x[4][ROUNDS_MAX * TRIES_PER_ROUND];
    for (uint32_t i = 0; i < n; i++) {
        x[0][i] = rounds[i].exchange_p50, x[1][i] = rounds[i].after_swap_p99;
        x[2][i] = rounds[i].put_p50, x[3][i] = rounds[i].after_put_p99;
    }
    return (figures){percentile(x[0], n, 50), percentile(x[1], n, 50), percentile(x[2], n, 50), percentile(x[3], n, 50)};
}

static void add(gb_report *report, const char *name, double value, const char *unit, double bound, uint32_t quiet, uint32_t tries)
{
    gb_report_row *row = gb_report_add(report, name, value, unit);
    gb_report_bound(row, GB_BOUND_AT_MOST, bound);
    row->inconclusive = quiet == 0;
    gb_report_note(row, "%u of %u samples undisturbed", quiet, tries);
}

int gb_bench_swap(gb_report *report, int64_t rounds, gb_error *err)
{
    static swap_scene s;
    static figures quiet[ROUNDS_MAX * TRIES_PER_ROUND], all[ROUNDS_MAX * TRIES_PER_ROUND];
    uint32_t n_quiet = 0, n = 0;
    int status = open_swap_scene(&s, err);
    while (!status && n_quiet < rounds && n < rounds * TRIES_PER_ROUND) {
        gb_meter meter;
        gb_meter_start(&meter);
        status = measure_round(&s, &all[n], err);
        if (gb_meter_others(&meter) <= QUIET) quiet[n_quiet++] = all[n];
        n++;
    }
    close_swap_scene(&s);
    if (status) return status;
    figures f = n_quiet ? middle(quiet, n_quiet) : middle(all, n);
    add(report, "exchange of two warm policies: p50", f.exchange_p50 / 1e3, "us", 1, n_quiet, n);
    add(report, "  first decision after it: p99", f.after_swap_p99 / 1e3, "us", 100, n_quiet, n);
    add(report, "a new source, from put to active: p50", f.put_p50 / 1e6, "ms", 50, n_quiet, n);
    add(report, "  its first decision: p99", f.after_put_p99 / 1e3, "us", 100, n_quiet, n);
    return GB_OK;
}
