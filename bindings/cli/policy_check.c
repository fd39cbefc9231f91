#include "bindings/cli/policy_check.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bindings/cli/command.h"
#include "bindings/lua/lua_desk.h"
#include "bindings/lua/lua_globals.h"

enum {
    DECISIONS = 400,     /* timed, on each kind of table */
    WARM_UP = 200,       /* before: the JIT has compiled */
    TRIES = 32,          /* looked at for memory */
    WAITING_MAX = 1024,
    SEED = 1,
};

typedef enum shape { IDLE, BUSY, SKEWED, STALE, SHAPES } shape;
static const char *const shape_names[] = {"idle", "busy", "skewed", "stale traces"};
static const uint32_t engine_counts[] = {1, 8, 512}, queue_lengths[] = {0, 1, WAITING_MAX};
enum { SIZES = 3 };

/* ---- made-up tables ---- */

static double load_of(gb_rng *rng, shape kind, uint32_t engine)
{
    if (kind == IDLE) return 0;
    if (kind == SKEWED) return engine == 0 ? 0.99 : 0.05 * gb_rng_uniform(rng);
    return gb_rng_uniform(rng);
}

static void fill_engines(gb_tables *t, gb_rng *rng, shape kind)
{
    gb_engine_table *e = &t->engines;
    e->next = (uint32_t)gb_rng_below(rng, e->n);
    for (uint32_t i = 0; i < e->n; i++) {
        double load = load_of(rng, kind, i);
        e->running_prefill_tokens[i] = floor(load * 8192);
        e->waiting_prefill_tokens[i] = floor(load * 65536);
        e->pending_tokens[i] = floor(load * 2048);
        e->kv_used_ratio[i] = load;
        e->pending[i] = floor(load * 8);
        e->kv_used_tokens[i] = floor(load * 100000);
        e->kv_free_tokens[i] = floor((1 - load) * 100000);
        e->moe_pressure[i] = 0.5 + load;
        e->running[i] = floor(load * 64);
        e->waiting[i] = floor(load * 256);
        e->oldest_wait_ns[i] = floor(load * 6e9);
        e->age_ns[i] = kind == STALE ? 5e9 : 1e6;
        e->valid[i] = kind != STALE || gb_rng_below(rng, 2);
        e->healthy[i] = 1;
    }
    t->request = (gb_request_row){.prompt_tokens = (double)(1 + gb_rng_below(rng, 8192)), .max_tokens = 100, .deadline_ns = INFINITY};
}

static void fill_queue(gb_queue_table *q, gb_rng *rng)
{
    for (uint32_t i = 0; i < q->n; i++) {
        q->prompt_tokens[i] = q->prefill_tokens[i] = (double)(1 + gb_rng_below(rng, 8192));
        q->max_tokens[i] = (double)(1 + gb_rng_below(rng, 2048));
        q->wait_ns[i] = (double)gb_rng_below(rng, gb_seconds(10));
        q->priority[i] = (double)gb_rng_below(rng, 3);
        q->deadline_ns[i] = INFINITY;
        q->promoted[i] = q->wait_ns[i] > 5e9;
    }
}

/* ---- one kind of table ---- */

typedef struct outcome {
    gb_hook hook;
    char tables[48];
    double p50_us, p99_us;
    uint32_t nils, faults;
    size_t allocated_bytes;    /* of a middling decision */
    char fault[GB_LUA_FAULT_BYTES];
} outcome;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static int decide(const gb_policy *policy, gb_hook hook, gb_tables *t)
{
    if (hook == GB_HOOK_SELECT) return policy->select_engine(policy->self, &t->request, &t->engines, gb_seconds(1));
    return policy->order_queue(policy->self, &t->queue, gb_seconds(1));
}

static void fill(gb_tables *t, gb_rng *rng, gb_hook hook, shape kind)
{
    if (hook == GB_HOOK_SELECT) fill_engines(t, rng, kind);
    else fill_queue(&t->queue, rng);
}

static void time_decisions(outcome *o, const gb_lua_desk *desk, gb_tables *t, gb_rng *rng, shape kind)
{
    const gb_policy *policy = gb_lua_desk_policy(desk);
    double us[DECISIONS];
    for (int i = -WARM_UP; i < DECISIONS; i++) {
        fill(t, rng, o->hook, kind);
        double start = now_us();
        int answer = decide(policy, o->hook, t);
        if (i >= 0) us[i] = now_us() - start;
        if (answer == GB_POLICY_NIL) o->nils++;
        if (answer != GB_POLICY_FAULT) continue;
        if (!o->faults++) snprintf(o->fault, sizeof o->fault, "%s", gb_lua_desk_fault(desk));
    }
    qsort(us, DECISIONS, sizeof *us, ascending);
    o->p50_us = us[DECISIONS / 2];
    o->p99_us = us[DECISIONS * 99 / 100];
}

static int weigh_decisions(outcome *o, gb_lua_desk *desk, const gb_tables *t)
{
    double bytes[TRIES];
    gb_lua_snapshot *snapshot;
    gb_lua_trial trial;
    int status = gb_lua_snapshot_take(&snapshot, o->hook, &t->request, &t->engines, &t->queue, gb_seconds(1));
    if (status) return status;
    for (int i = 0; i < TRIES; i++) {
        gb_lua_desk_try(desk, snapshot, &trial);
        bytes[i] = (double)trial.allocated_bytes;
    }
    gb_lua_snapshot_free(snapshot);
    qsort(bytes, TRIES, sizeof *bytes, ascending);
    o->allocated_bytes = (size_t)bytes[TRIES / 2];
    return GB_OK;
}

/* ---- the whole check ---- */

typedef struct check {
    const char *path;
    char name[256];
    gb_error refusal;
    bool hooks[GB_HOOKS];
    gb_lua_global globals[GB_LUA_GLOBALS_MAX];
    uint32_t n_globals, n;
    outcome outcomes[SIZES * SHAPES + SIZES];
} check;

static int run_tables(check *c, gb_lua_desk *desk, gb_hook hook, shape kind, uint32_t engines, uint32_t waiting)
{
    outcome *o = &c->outcomes[c->n++];
    gb_arena arena;
    gb_tables tables;
    gb_rng rng;
    *o = (outcome){.hook = hook};
    if (hook == GB_HOOK_SELECT) snprintf(o->tables, sizeof o->tables, "%u engine%s, %s", engines, engines == 1 ? "" : "s", shape_names[kind]);
    else snprintf(o->tables, sizeof o->tables, "%u waiting", waiting);
    gb_rng_init(&rng, SEED);
    gb_arena_init(&arena);
    int status = gb_tables_init(&tables, &arena, engines, WAITING_MAX);
    tables.queue.n = waiting;
    if (!status) time_decisions(o, desk, &tables, &rng, kind);
    if (!status) status = weigh_decisions(o, desk, &tables);
    gb_arena_deinit(&arena);
    return status;
}

static int run_size(check *c, uint32_t i, gb_error *err)
{
    gb_lua_desk *desk;
    int status = gb_lua_desk_open_file(&desk, c->path, engine_counts[i], err);
    if (status) return status;
    const gb_policy *policy = gb_lua_desk_policy(desk);
    snprintf(c->name, sizeof c->name, "%s", gb_lua_desk_name(desk));
    for (int h = 0; h < GB_HOOKS; h++) c->hooks[h] = gb_lua_desk_has(desk, (gb_hook)h);
    for (shape kind = IDLE; kind < SHAPES && policy->select_engine && !status; kind++)
        status = run_tables(c, desk, GB_HOOK_SELECT, kind, engine_counts[i], 0);
    if (policy->order_queue && !status) status = run_tables(c, desk, GB_HOOK_ORDER, IDLE, engine_counts[i], queue_lengths[i]);
    gb_lua_desk_close(desk);
    return status ? gb_fail(err, status, "out of memory for made-up tables") : GB_OK;
}

static void run_check(check *c)
{
    gb_error err = {{0}};
    int status = gb_lua_globals_find(c->globals, &c->n_globals, c->path, &err);
    for (uint32_t i = 0; i < SIZES && !status; i++) status = run_size(c, i, &err);
    if (status) c->refusal = err;
}

static bool is_good(const check *c)
{
    bool good = !c->refusal.text[0] && c->n_globals == 0;
    for (uint32_t i = 0; i < c->n; i++) good = good && c->outcomes[i].faults == 0;
    return good;
}

/* ---- reporting ---- */

static double budget_us(gb_hook hook) { return (double)gb_lua_desk_budget(hook) / 1e3; }

static void print_outcomes(const check *c)
{
    if (c->n) printf("\n%-15s%-26s%10s%10s%12s%10s%8s%8s\n", "hook", "tables", "p50 us", "p99 us", "budget us", "bytes", "nil", "faults");
    for (uint32_t i = 0; i < c->n; i++) {
        const outcome *o = &c->outcomes[i];
        printf("%-15s%-26s%10.2f%10.2f%12.0f%10zu%8u%8u\n", gb_hook_name(o->hook), o->tables, o->p50_us, o->p99_us, budget_us(o->hook),
               o->allocated_bytes, o->nils, o->faults);
    }
}

static void print_findings(const check *c)
{
    for (uint32_t i = 0; i < c->n_globals; i++) printf("%s:%u: %s\n", c->path, c->globals[i].line, c->globals[i].why);
    if (c->refusal.text[0]) printf("refused: %s\n", c->refusal.text);
    for (uint32_t i = 0; i < c->n; i++) {
        const outcome *o = &c->outcomes[i];
        if (o->faults) printf("fault: %s on %s: %s\n", gb_hook_name(o->hook), o->tables, o->fault);
        if (o->allocated_bytes) printf("warning: %s on %s allocates %zu bytes per decision\n", gb_hook_name(o->hook), o->tables, o->allocated_bytes);
    }
}

static void print_hooks(const check *c)
{
    printf("policy %s, api 1:", c->name[0] ? c->name : "without a name");
    for (int h = 0; h < GB_HOOKS; h++)
        if (c->hooks[h]) printf(" %s", gb_hook_name((gb_hook)h));
    putchar('\n');
}

static void print_text(const check *c)
{
    if (!c->refusal.text[0])
        print_hooks(c);
    print_outcomes(c);
    print_findings(c);
    printf("%s: %s\n", c->path, is_good(c) ? "ok" : "not fit to serve");
}

static void print_json(const check *c)
{
    json_t *globals = json_array(), *tables = json_array(), *hooks = json_array();
    for (int h = 0; h < GB_HOOKS; h++)
        if (c->hooks[h]) json_array_append_new(hooks, json_string(gb_hook_name((gb_hook)h)));
    for (uint32_t i = 0; i < c->n_globals; i++)
        json_array_append_new(globals, json_pack("{s:i, s:s}", "line", (int)c->globals[i].line, "why", c->globals[i].why));
    for (uint32_t i = 0; i < c->n; i++) {
        const outcome *o = &c->outcomes[i];
        json_array_append_new(tables, json_pack("{s:s, s:s, s:f, s:f, s:f, s:I, s:i, s:i, s:s}", "hook", gb_hook_name(o->hook), "tables", o->tables,
                                                "p50_us", o->p50_us, "p99_us", o->p99_us, "budget_us", budget_us(o->hook), "allocated_bytes",
                                                (json_int_t)o->allocated_bytes, "nils", (int)o->nils, "faults", (int)o->faults, "fault", o->fault));
    }
    json_t *root = json_pack("{s:s, s:b, s:s, s:s, s:o, s:o, s:o}", "file", c->path, "ok", is_good(c), "name", c->name, "refusal", c->refusal.text,
                             "hooks", hooks, "globals", globals, "tables", tables);
    json_dumpf(root, stdout, JSON_COMPACT);
    fputc('\n', stdout);
    json_decref(root);
}

int gb_policy_check(const char *path, bool json)
{
    static check c;
    c = (check){.path = path};
    run_check(&c);
    if (json) print_json(&c);
    else print_text(&c);
    return is_good(&c) ? GB_EXIT_OK : GB_EXIT_FAILED;
}
