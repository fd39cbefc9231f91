#include "bindings/cli/policy_check.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bindings/c/instance.h"
#include "bindings/cli/command.h"
#include "bindings/cli/policy_tables.h"
#include "bindings/lua/embedded.h"
#include "bindings/lua/lua_file.h"
#include "bindings/lua/lua_host.h"
#include "core/base/assert.h"

enum {
    DECISIONS = 400,        /* timed, on each kind of table */
    WARM_UP = 200,          /* before: the JIT has compiled */
    WINDOWS = 40,           /* shown, of each size */
    TRIES = 32,             /* of each snapshot, and of a table looked at for memory */
    PLACE_TRIES = 8,        /* of a placement: each is many calls of its hook */
    PLACE_WARM_UP = 4096,   /* experts placed before */
    FAULTS_ENOUGH = 5,      /* on one kind of table: the rest would fail as well, and each may use up its budget */
    CALLS_MAX = 4096,       /* timed for one outcome */
    WAITING_MAX = 1024,
    SMOKE_ENGINES = 8,
    SEED = 1,
    SIZES = 3,
};

static const uint32_t engine_counts[SIZES] = {1, 8, 512}, queue_lengths[SIZES] = {0, 1, WAITING_MAX};
const double gb_check_share_limits[GB_CHECK_SHARES - 1] = {0.001, 0.01, 0.1, 0.5, 1};

/* ---- one call ---- */

static double now_us(clockid_t clock)
{
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* A kind of table and what decides it. */
typedef struct trial {
    gb_lua_desk *desk;
    gb_hook hook;
    gb_policy_shape shape;
    gb_tables *tables;
    gb_window_table window;
    gb_rng rng;
    gb_error fault;
    int (*call)(struct trial *t);    /* GB_POLICY_* or more */
} trial;

static int call_select(trial *t)
{
    const gb_policy *policy = gb_lua_desk_policy(t->desk);
    return policy->select_engine(policy->self, &t->tables->request, &t->tables->engines, gb_seconds(1));
}

static int call_order(trial *t)
{
    const gb_policy *policy = gb_lua_desk_policy(t->desk);
    return policy->order_queue(policy->self, &t->tables->queue, gb_seconds(1));
}

static int call_window(trial *t)
{
    t->window.id++;
    return gb_lua_desk_window(t->desk, &t->window, gb_seconds(1), &t->fault) ? GB_POLICY_FAULT : GB_OK;
}

static void refill(trial *t)
{
    if (t->call == call_select) gb_policy_fill_engines(t->tables, &t->rng, t->shape);
    else if (t->call == call_order) gb_policy_fill_queue(&t->tables->queue, &t->rng);
}

/* The thread's clock counts its own system call; the one on the wall counts other processes. Neither counts too little. */
static double timed_call(trial *t, int *answer)
{
    double cpu = now_us(CLOCK_THREAD_CPUTIME_ID), wall = now_us(CLOCK_MONOTONIC);
    *answer = t->call(t);
    wall = now_us(CLOCK_MONOTONIC) - wall;
    cpu = now_us(CLOCK_THREAD_CPUTIME_ID) - cpu;
    return cpu < wall ? cpu : wall;
}

/* ---- outcomes ---- */

static double samples[CALLS_MAX];

static void count_answer(gb_check_outcome *o, double us, int answer, const char *fault)
{
    uint32_t share = 0;
    while (share < GB_CHECK_SHARES - 1 && us > gb_check_share_limits[share] * o->budget_us) share++;
    o->shares[share]++;
    if (o->calls < CALLS_MAX) samples[o->calls] = us;
    o->calls++;
    if (answer == GB_POLICY_NIL) o->nils++;
    if (answer != GB_POLICY_FAULT) return;
    if (!o->faults++) snprintf(o->fault, sizeof o->fault, "%.*s", GB_LUA_FAULT_BYTES - 1, fault);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sum_up(gb_check_outcome *o)
{
    uint32_t n = o->calls < CALLS_MAX ? o->calls : CALLS_MAX;
    if (n == 0) return;
    qsort(samples, n, sizeof *samples, ascending);
    o->p50_us = samples[n / 2];
    o->p99_us = samples[n * 99 / 100];
    o->max_us = samples[n - 1];
}

static gb_check_outcome *add_outcome(gb_check *c, const char *call, gb_time budget)
{
    GB_ASSERT(c->n < GB_CHECK_OUTCOMES_MAX);
    gb_check_outcome *o = &c->outcomes[c->n++];
    *o = (gb_check_outcome){.call = call, .budget_us = (double)budget / 1e3};
    return o;
}

static void time_calls(gb_check_outcome *o, trial *t, int warm_up, int calls)
{
    int answer;
    for (int i = 0; i < warm_up + calls && o->faults < FAULTS_ENOUGH; i++) {
        refill(t);
        double us = timed_call(t, &answer);
        if (i >= warm_up || answer == GB_POLICY_FAULT) count_answer(o, us, answer, t->fault.text[0] ? t->fault.text : gb_lua_desk_fault(t->desk));
    }
    sum_up(o);
}

/* ---- snapshots ---- */

static bool places_experts(const gb_lua_snapshot *s) { return s->hook == GB_HOOK_SCORE || s->hook == GB_HOOK_COST; }

static int warm_up_of(const gb_lua_snapshot *s)
{
    return places_experts(s) ? 1 + PLACE_WARM_UP / (int)s->rearrangement.window.expert_rows : WARM_UP;
}

/* Decides it again and again; returns the bytes that a middling decision makes. What is not compiled yet makes more. */
static size_t try_snapshot(gb_check_outcome *o, gb_lua_desk *desk, gb_lua_snapshot *snapshot)
{
    double bytes[TRIES] = {0};
    int tries = places_experts(snapshot) ? PLACE_TRIES : TRIES;
    for (int i = -warm_up_of(snapshot); i < tries && o->faults < FAULTS_ENOUGH; i++) {
        gb_lua_trial tried;
        gb_lua_desk_try(desk, snapshot, &tried);
        if (i >= 0 || tried.answer == GB_POLICY_FAULT) count_answer(o, (double)tried.cpu_ns / 1e3, tried.answer, tried.fault);
        if (i >= 0) bytes[i] = (double)tried.allocated_bytes;
    }
    qsort(bytes, (size_t)tries, sizeof *bytes, ascending);
    return (size_t)bytes[tries / 2];
}

static int weigh(gb_check_outcome *o, trial *t)
{
    gb_check_outcome unused = {.budget_us = o->budget_us};
    gb_lua_snapshot *snapshot;
    int status = gb_lua_snapshot_take(&snapshot, t->hook, &t->tables->request, &t->tables->engines, &t->tables->queue, gb_seconds(1));
    if (status) return status;
    o->allocated_bytes = try_snapshot(&unused, t->desk, snapshot);
    gb_lua_snapshot_free(snapshot);
    return GB_OK;
}

typedef struct recording {
    const char *name;         /* "shipped", "recorded" */
    const char *source;       /* how errors name the text */
    const char *text;         /* one snapshot a line */
    size_t bytes;
} recording;

static int read_line(gb_lua_snapshot **out, const recording *from, const char *line, size_t bytes, uint32_t number, gb_error *err)
{
    char what[300];
    snprintf(what, sizeof what, "%s:%u", from->source, number);
    return gb_lua_snapshot_read(out, what, line, bytes, err);
}

static bool concerns(const gb_check *c, const gb_lua_snapshot *s, gb_hook hook)
{
    if (s->hook != hook) return false;
    return hook != GB_HOOK_SELECT || c->engines == 0 || s->tables.engines.n == c->engines;
}

/* Every line that is of this hook. */
static int try_recording(gb_check *c, gb_lua_desk *desk, gb_hook hook, const recording *from, gb_error *err)
{
    gb_check_outcome *o = add_outcome(c, gb_hook_name(hook), c->budgets.hooks[hook]);
    uint32_t n = 0, number = 0;
    for (const char *line = from->text, *end = line + from->bytes; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t bytes = (size_t)((stop ? stop : end) - line);
        gb_lua_snapshot *snapshot = NULL;
        number++;
        int status = bytes ? read_line(&snapshot, from, line, bytes, number, err) : GB_OK;
        if (status) return status;
        if (snapshot && concerns(c, snapshot, hook)) {
            size_t made = try_snapshot(o, desk, snapshot);
            if (made > o->allocated_bytes) o->allocated_bytes = made;
            n++;
        }
        gb_lua_snapshot_free(snapshot);
        line += bytes + 1;
    }
    snprintf(o->tables, sizeof o->tables, "%u %s snapshot%s", n, from->name, n == 1 ? "" : "s");
    sum_up(o);
    if (n == 0) c->n--;
    return GB_OK;
}

static int try_recordings(gb_check *c, gb_lua_desk *desk, const recording *recorded, gb_error *err)
{
    const gb_embedded_file *shipped = gb_embedded_find("lua/snapshots/shipped.jsonl");
    GB_ASSERT(shipped);
    recording smoke = {"shipped", shipped->name, shipped->data, shipped->bytes};
    int status = GB_OK;
    for (int hook = 0; hook < GB_HOOKS && !status; hook++) {
        if (!gb_lua_desk_has(desk, (gb_hook)hook)) continue;
        status = try_recording(c, desk, (gb_hook)hook, &smoke, err);
        if (!status && recorded->text) status = try_recording(c, desk, (gb_hook)hook, recorded, err);
    }
    return status;
}

/* ---- made-up tables ---- */

static int run_tables(gb_check *c, trial t, uint32_t engines, uint32_t waiting)
{
    gb_check_outcome *o = add_outcome(c, gb_hook_name(t.hook), c->budgets.hooks[t.hook]);
    gb_arena arena;
    gb_tables tables;
    if (t.hook == GB_HOOK_SELECT)
        snprintf(o->tables, sizeof o->tables, "%u engine%s, %s", engines, engines == 1 ? "" : "s", gb_policy_shape_name(t.shape));
    else snprintf(o->tables, sizeof o->tables, "%u waiting", waiting);
    gb_rng_init(&t.rng, SEED);
    gb_arena_init(&arena);
    int status = gb_tables_init(&tables, &arena, engines, WAITING_MAX);
    tables.queue.n = waiting;
    t.tables = &tables;
    t.call = t.hook == GB_HOOK_SELECT ? call_select : call_order;
    if (!status) time_calls(o, &t, WARM_UP, DECISIONS);
    if (!status && !o->faults) status = weigh(o, &t);
    gb_arena_deinit(&arena);
    return status;
}

static void describe(char *out, size_t capacity, const gb_policy_sizes *s)
{
    snprintf(out, capacity, "%u layers, %u engines, %u experts, %u ranks", s->layers, s->sources, s->experts, s->ranks);
}

static int run_window(gb_check *c, gb_lua_desk *desk, gb_policy_scene *scene, const gb_policy_sizes *sizes)
{
    gb_check_outcome *o = add_outcome(c, "on_window", c->budgets.window);
    trial t = {.desk = desk, .call = call_window, .window = scene->rearrangement.window};
    t.window.duration_ns = 1e9;
    describe(o->tables, sizeof o->tables, sizes);
    time_calls(o, &t, 0, WINDOWS);
    return GB_OK;
}

/* What the script does of a rearrangement, greedy rule included; the search that follows placement_cost is not its cost. */
static int run_placement(gb_check *c, gb_lua_desk *desk, gb_hook hook, gb_policy_scene *scene, const gb_policy_sizes *sizes)
{
    gb_check_outcome *o = add_outcome(c, gb_hook_name(hook), c->budgets.hooks[hook]);
    gb_lua_snapshot *snapshot;
    int status = gb_lua_snapshot_take_placement(&snapshot, hook, &scene->rearrangement, gb_seconds(1));
    if (status) return status;
    describe(o->tables, sizeof o->tables, sizes);
    o->allocated_bytes = try_snapshot(o, desk, snapshot);
    sum_up(o);
    gb_lua_snapshot_free(snapshot);
    return GB_OK;
}

static int run_scene(gb_check *c, gb_lua_desk *desk, const gb_policy_sizes *sizes, gb_error *err)
{
    gb_arena arena;
    gb_policy_scene scene;
    gb_rng rng;
    gb_rng_init(&rng, SEED);
    gb_arena_init(&arena);
    int status = gb_policy_make_scene(&scene, &arena, &rng, sizes, err);
    if (!status && gb_lua_desk_has(desk, GB_HOOK_SCORE)) status = run_placement(c, desk, GB_HOOK_SCORE, &scene, sizes);
    if (!status && gb_lua_desk_has(desk, GB_HOOK_COST)) status = run_placement(c, desk, GB_HOOK_COST, &scene, sizes);
    if (!status && gb_lua_desk_wants_windows(desk)) status = run_window(c, desk, &scene, sizes);
    gb_arena_deinit(&arena);
    return status;
}

/* Of the tables of some size; those of a server's own number of engines count as the first. */
static uint32_t engines_at(const gb_check *c, uint32_t size) { return c->engines ? c->engines : engine_counts[size]; }

static int run_hooks(gb_check *c, gb_lua_desk *desk, uint32_t size)
{
    const gb_policy *policy = gb_lua_desk_policy(desk);
    trial t = {.desk = desk, .hook = GB_HOOK_SELECT};
    int status = GB_OK;
    bool selects = policy->select_engine && (size == 0 || c->engines == 0);
    for (t.shape = GB_SHAPE_IDLE; t.shape < GB_SHAPES && selects && !status; t.shape++) status = run_tables(c, t, engines_at(c, size), 0);
    t.hook = GB_HOOK_ORDER;
    if (policy->order_queue && !status) status = run_tables(c, t, engines_at(c, size), queue_lengths[size]);
    return status;
}

static int run_scenes(gb_check *c, gb_lua_desk *desk, gb_error *err)
{
    static const gb_policy_sizes sizes[SIZES] = {{2, 1, 8, 2}, {48, 4, 128, 16}, {48, 8, 128, 64}};
    int status = GB_OK;
    for (int i = 0; i < SIZES && !status; i++) status = run_scene(c, desk, &sizes[i], err);
    return status;
}

/* ---- state ---- */

static void add_carry(gb_check *c, const char *call, const gb_lua_handover *h, uint64_t cpu_ns, const char *fault)
{
    gb_check_outcome *o = add_outcome(c, call, c->budgets.carry);
    snprintf(o->tables, sizeof o->tables, h->exported ? "%zu bytes of state" : "no state", h->bytes);
    count_answer(o, (double)cpu_ns / 1e3, fault ? GB_POLICY_FAULT : GB_OK, fault);
    sum_up(o);
}

/* From the script as the decisions left it to a fresh one. */
static void run_carry(gb_check *c, gb_lua_desk *used, gb_lua_desk *fresh)
{
    gb_lua_handover h;
    gb_error err = {{0}};
    bool failed = gb_lua_desk_hand_over(used, fresh, &h, &err) != GB_OK, at_import = failed && h.import_ns > 0;
    if (h.exports || (failed && !at_import)) add_carry(c, "export", &h, h.export_ns, failed && !at_import ? err.text : NULL);
    if (h.imports && h.exported && h.import_ns > 0) add_carry(c, "import", &h, h.import_ns, at_import ? err.text : NULL);
}

/* ---- the whole check ---- */

/* Behind the sentence, before the calls that led there. */
static void add_engines(gb_error *refusal, uint32_t engines)
{
    char calls[sizeof refusal->text];
    size_t n = strcspn(refusal->text, "\n");
    memcpy(calls, refusal->text, sizeof calls);
    snprintf(refusal->text + n, sizeof refusal->text - n, " (with %u engines)%s", engines, calls + n);
}

static int open_desk(gb_check *c, gb_lua_desk **desk, const gb_lua_text *text, uint32_t engines)
{
    int status = gb_lua_desk_open(desk, c->label, text->data, text->bytes, engines, &c->budgets, &c->refusal);
    if (status && engines != engines_at(c, 0)) add_engines(&c->refusal, engines);
    if (!status) snprintf(c->name, sizeof c->name, "%s", gb_lua_desk_name(*desk));
    return status;
}

/* Returns a status only when the check itself cannot go on; a refusal is in c. */
static int run_smoke(gb_check *c, const gb_lua_text *text, const recording *recorded, gb_error *err)
{
    gb_lua_desk *desk = NULL, *fresh = NULL;
    int status = GB_OK;
    uint32_t engines = c->engines ? c->engines : SMOKE_ENGINES;
    if (open_desk(c, &desk, text, engines)) return GB_OK;
    status = try_recordings(c, desk, recorded, err);
    if (!status) status = run_scenes(c, desk, err);
    if (!status && !open_desk(c, &fresh, text, engines)) run_carry(c, desk, fresh);
    gb_lua_desk_close(fresh);
    gb_lua_desk_close(desk);
    return status;
}

static int run_text(gb_check *c, const gb_lua_text *text, const recording *recorded, gb_error *err)
{
    gb_sha256_hex(c->sha256, text->data, text->bytes);
    if (gb_lua_globals_find(c->globals, &c->n_globals, c->label, text->data, text->bytes, &c->refusal)) return GB_OK;
    int status = GB_OK;
    for (uint32_t i = 0; i < SIZES && !status && !c->refusal.text[0]; i++) {
        gb_lua_desk *desk;
        if (open_desk(c, &desk, text, engines_at(c, i))) break;
        if (run_hooks(c, desk, i)) status = gb_fail(err, GB_ENOMEM, "out of memory for made-up tables");
        gb_lua_desk_close(desk);
    }
    return status || c->refusal.text[0] ? status : run_smoke(c, text, recorded, err);
}

int gb_check_budgets(gb_lua_budgets *budgets, gb_error *err)
{
    gb_options options;
    int status = gb_options_init(&options);
    if (status) return gb_fail(err, status, "out of memory for options");
    status = gb_options_read_environment(&options, err);
    *budgets = gb_policy_budgets(&options);
    gb_options_deinit(&options);
    return status;
}

static int read_recorded(gb_lua_text *text, const char *path, gb_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return gb_fail(err, GB_ENOTFOUND, "the recorded snapshots in %s cannot be opened; give a file with one snapshot a line", path);
    int status = gb_lua_stream_read(text, fd, path, "a file of snapshots", GB_CHECK_RECORDED_MAX, err);
    close(fd);
    return status;
}

int gb_check_run(gb_check *c, const char *path, const char *label, const char *recorded, uint32_t engines, const gb_lua_budgets *budgets,
                 gb_error *err)
{
    gb_lua_text text = {0}, lines = {0};
    bool is_stream = strcmp(path, "-") == 0;
    *c = (gb_check){.label = is_stream ? label : path, .budgets = *budgets, .engines = engines};
    int status = recorded ? read_recorded(&lines, recorded, err) : GB_OK;
    if (status) return status;
    recording from = {"recorded", recorded, lines.data, lines.bytes};
    if (is_stream) gb_lua_stream_read(&text, STDIN_FILENO, label, "a policy", GB_LUA_SOURCE_MAX, &c->refusal);
    else gb_lua_file_read(&text, path, "a policy", GB_LUA_SOURCE_MAX, &c->refusal);
    if (!c->refusal.text[0]) status = run_text(c, &text, &from, err);
    gb_lua_text_free(&text);
    gb_lua_text_free(&lines);
    return status;
}

bool gb_check_is_good(const gb_check *c)
{
    bool good = !c->refusal.text[0] && c->n_globals == 0;
    for (uint32_t i = 0; i < c->n; i++) good = good && c->outcomes[i].faults == 0;
    return good;
}

int gb_policy_check(const char *path, const char *label, const char *recorded, uint32_t engines, bool json)
{
    static gb_check c;
    gb_error err = {{0}};
    gb_lua_budgets budgets;
    int status = gb_check_budgets(&budgets, &err);
    if (!status) status = gb_check_run(&c, path, label, recorded, engines, &budgets, &err);
    if (status) return gb_command_failed(status, &err);
    if (json) gb_check_print_json(&c);
    else gb_check_print(&c);
    return gb_check_is_good(&c) ? GB_EXIT_OK : GB_EXIT_FAILED;
}
