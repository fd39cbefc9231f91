/* Every script that tries not to end is interrupted or refused, the report names its line, control is back soon after the budget, and
   serving goes on. Times are CPU time of the deciding thread, so that they mean the same on a busy machine. */
#define _GNU_SOURCE    /* RUSAGE_THREAD */
#include "bindings/lua/lua_host_parts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/lua/runaway.h"
#include "tests/serve/fake.h"

#if defined(__SANITIZE_ADDRESS__)
#define INSTRUMENTED true
#elif defined(__has_feature)
#define INSTRUMENTED __has_feature(address_sanitizer)
#else
#define INSTRUMENTED false
#endif

enum { REPEATS = 3, PROGRAMS = 1000, SEED = 20110 };
static const double MOST_OVER_MS = 20;

static gb_error err;

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Milliseconds after the budget; an instrumented library is slower to unwind, so there they are only told. */
static void check_overshoot(const char *what, double *over_ms, int n)
{
    qsort(over_ms, (size_t)n, sizeof *over_ms, ascending);
    double p99 = over_ms[n * 99 / 100];
    printf("     %d %s: back %.1f ms after the budget (median), %.1f (p99), %.1f (most)\n", n, what, over_ms[n / 2], p99, over_ms[n - 1]);
    CHECK(INSTRUMENTED || p99 <= MOST_OVER_MS);
}

/* ---- known ones, in a server ---- */

typedef enum outcome { TIME, TIME_OR_MEMORY, STACK, REFUSED } outcome;

/* Each body is line 3 of a select_engine. */
static const struct {
    const char *body;
    outcome outcome;
    const char *why;    /* of a refusal */
} corpus[] = {
    /* loops that compile to code without a way out */
    {"while true do end", TIME, NULL},
    {"local x = 0 for i = 1, 1e18 do x = x + i % 7 end", TIME, NULL},
    {"repeat until false", TIME, NULL},
    {"::a:: goto a", TIME, NULL},
    {"local t = {} for i = 1, 100 do t[i] = i end while true do for k, v in pairs(t) do end end", TIME, NULL},
    {"local function f(n) return f(n + 1) end local x = f(1)", TIME, NULL},
    {"local k = engines.running while true do local x = k[0] end", TIME, NULL},
    /* memory and stacks */
    {"while true do local t = {} end", TIME_OR_MEMORY, NULL},
    {"local t, i = {}, 0 while true do i = i + 1 t[i] = ('x'):rep(1000) .. i end", TIME_OR_MEMORY, NULL},
    {"local s = 'x' while true do s = s .. s end", TIME_OR_MEMORY, NULL},
    {"local function f(n) return 1 + f(n + 1) end local x = f(1)", STACK, NULL},
    {"local t = {} for i = 1, 1e6 do t[i] = 'abc' end while true do local s = table.concat(t) end", TIME_OR_MEMORY, NULL},
    {"local t = {} for i = 1, 3e6 do t[i] = i * 7919 % 3000017 end while true do table.sort(t, function(a, b) return a < b end) end", TIME_OR_MEMORY, NULL},
    {"table.sort({ 1, 2, 3 }, function(a, b) while true do end end)", TIME, NULL},
    /* the error that stops them is caught */
    {"while true do pcall(function() while true do end end) end", TIME, NULL},
    {"while true do pcall(error, 'x') end", TIME, NULL},
    {"local function g() pcall(g) while true do pcall(g) end end g()", TIME, NULL},
    /* what policies do not have */
    {"local function h() while true do end end while true do xpcall(function() while true do end end, h) end", REFUSED, "xpcall is not available to policies"},
    {"local co = coroutine.wrap(function() while true do end end) co()", REFUSED, "coroutine is not available to policies"},
    {"local co = coroutine.wrap(function() while true do coroutine.yield() end end) while true do co() end", REFUSED, "coroutine is not available"},
    {"while true do local s = string.rep('x', 1e7) end", REFUSED, "string.rep: the result would exceed 65536 bytes"},
    {"local x = string.find(('a'):rep(5000), ('.-'):rep(8) .. 'b')", REFUSED, "string.find is not available to policies"},
    {"local x = (('a'):rep(10):gsub('a', function() while true do end end))", REFUSED, "string.gsub is not available to policies"},
    {"local t = setmetatable({}, { __index = function(t, k) return k end }) while true do local x = t[1] end", REFUSED, "setmetatable is not available"},
    {"local ffi = require 'ffi' while true do local x = ffi.new('int[1]') end", REFUSED, "require is not available to policies; a policy is one file"},
    {"local ffi = require 'ffi' ffi.cdef 'int usleep(unsigned)' while true do ffi.C.usleep(900000) end", REFUSED, "require is not available"},
    {"local ffi = require 'ffi' ffi.cdef 'unsigned sleep(unsigned)' ffi.C.sleep(100)", REFUSED, "require is not available"},
    /* tricks against hooks that count instructions */
    {"local function loop() while true do end end while true do pcall(loop) end", TIME, NULL},
    {"while true do coroutine.resume(coroutine.create(function() while true do end end)) end", REFUSED, "coroutine is not available"},
    {"local p = newproxy(true) getmetatable(p).__gc = function() while true do end end", REFUSED, "newproxy is not available"},
    {"local x = ('a'):rep(1e5):find(('a*'):rep(12) .. 'b')", REFUSED, "string.rep: the result would exceed"},
    {"local x = ('a'):rep(1e4):find(('a*'):rep(12) .. 'b')", REFUSED, "string.find is not available"},
    {"local x = ('x'):rep(1e9)", REFUSED, "string.rep: the result would exceed"},
    {"local f = loadstring(string.dump(function() while true do end end)) f()", REFUSED, "loadstring is not available"},
    {"getmetatable('').__index = function() while true do end end", REFUSED, "getmetatable is not available"},
};
enum { CORPUS = sizeof corpus / sizeof *corpus };

static bool kind_fits(outcome expected, const gb_lua_fault *fault)
{
    switch (expected) {
    case TIME: return fault->kind == GB_LUA_FAULT_TIME;
    case TIME_OR_MEMORY: return fault->kind == GB_LUA_FAULT_TIME || fault->kind == GB_LUA_FAULT_MEMORY;
    case STACK: return fault->kind == GB_LUA_FAULT_STACK;
    case REFUSED: return fault->kind == GB_LUA_FAULT_ERROR;
    }
    return false;
}

/* A full stack may have no room left for the handler that looks for the line, and LuaJIT calls no handler when an allocation is refused. */
static bool names_line_3(const gb_lua_fault *fault)
{
    if (fault->kind == GB_LUA_FAULT_MEMORY && strstr(fault->message, "one allocation in select_engine was too large")) return true;
    if (fault->kind == GB_LUA_FAULT_STACK && strncmp(fault->message, "mine.lua: stack overflow; ", 26) == 0) return true;
    return strncmp(fault->message, "mine.lua:3: ", 12) == 0;
}

static fake f;
static gb_server *server;
static gb_lua_host *host;

static void start(void)
{
    gb_server_options options;
    fake_options(&options);
    fake_init(&f, &options);
    CHECK_EQ(gb_server_new(&server, &options, &err), 0);
    CHECK_EQ(gb_lua_host_new(&host, server, 1, &err), 0);
    if (!host) exit(1);    /* there is nothing to test then */
}

static void stop(void)
{
    gb_lua_host_free(host);
    host = NULL;
    gb_server_free(server);
    fake_deinit(&f);
}

static const gb_lua_fault *latest_fault(void)
{
    const gb_lua_log *log = gb_lua_host_log(host);
    uint64_t after = gb_lua_log_faults(log) - 1;
    return gb_lua_log_faults(log) ? gb_lua_log_next_fault(log, &after) : NULL;
}

static uint32_t serve_all(gb_time now)
{
    uint32_t done = 0;
    gb_event event;
    while (fake_round(&f, server, now, now)) {
        while (gb_server_poll_event(server, &event)) done += event.kind == GB_EVENT_DONE;
    }
    return done;
}

/* Milliseconds of CPU time from the submission to its answer. */
static double submit(gb_time now)
{
    gb_request request = fake_request(8, 1);
    double start_ms = cpu_ms();
    CHECK(fake_submit(server, &request, now) != 0);
    return cpu_ms() - start_ms;
}

static double run_known(int i)
{
    char source[2048];
    uint32_t version = 0;
    gb_time now = gb_seconds(100 + 10 * (uint64_t)i);
    snprintf(source, sizeof source, "return { api = 1, select_engine = function(request, engines)\nif gimbal.now() < 1e11 then return 1 end\n%s\nend }",
             corpus[i].body);
    CHECK_EQ(gb_lua_host_load(host, &version, NULL, "mine", "mine.lua", source, strlen(source), &err), 0);
    CHECK_EQ(gb_lua_host_switch(host, version, &(gb_lua_change){.now = now, .force = true}, &err), 0);
    uint64_t faults = gb_lua_log_faults(gb_lua_host_log(host));
    double took_ms = submit(now);
    CHECK_EQ(gb_lua_log_faults(gb_lua_host_log(host)), faults + 1);
    const gb_lua_fault *fault = latest_fault();
    bool fits = fault && kind_fits(corpus[i].outcome, fault) && names_line_3(fault) &&
                (!corpus[i].why || strstr(fault->message, corpus[i].why));
    if (!fits) check_fail(__FILE__, __LINE__, "%s: %s", corpus[i].body, fault ? fault->message : "no fault");
    submit(now + 1);    /* the built-in's, or the script's next fault */
    CHECK_EQ(serve_all(now + 1), 2);
    return took_ms - 2;
}

static void every_known_runaway_is_stopped_or_refused_and_serving_goes_on(void)
{
    static double over_ms[CORPUS * REPEATS];
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        start();
        for (int i = 0; i < CORPUS; i++) over_ms[repeat * CORPUS + i] = run_known(i);
        CHECK_EQ(gb_lua_host_switch(host, 0, &(gb_lua_change){0}, &err), 0);
        CHECK_EQ(gb_lua_host_use(host, NULL, "gimbal", &err), 0);    /* and a good script decides */
        submit(gb_seconds(1000));
        CHECK_EQ(serve_all(gb_seconds(1000)), 1);
        stop();
    }
    check_overshoot("known runaways", over_ms, CORPUS * REPEATS);
}

static void files_that_are_no_text_or_never_end_are_refused_at_load(void)
{
    static const struct {
        const char *source, *why;
        size_t bytes;
    } cases[] = {
        {"\x1bLJ\x02", "mine.lua", 4},
        {"while true do end", "mine.lua:1: time budget exceeded: the file itself may use 100 ms of CPU time", 0},
        {"return { api = 1, select_engine = function() while true do end end }", "mine.lua:1: time budget exceeded", 0},
        {"return { api = 1, score_expert = function() while true do end end }", "mine.lua:1: time budget exceeded: score_expert may use 250 ms", 0},
        {"local t = {} while true do t = { t } end", "budget exceeded", 0},
    };
    start();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t version;
        size_t bytes = cases[i].bytes ? cases[i].bytes : strlen(cases[i].source);
        CHECK(gb_lua_host_load(host, &version, NULL, "mine", "mine.lua", cases[i].source, bytes, &err) != 0);
        CHECK_CONTAINS(err.text, cases[i].why);
    }
    stop();
}

/* ---- random ones ---- */

typedef struct scene {
    gb_arena arena;
    gb_tables tables;
    gb_solver solver;
    gb_solve_options options;
    gb_rearrangement r;
    gb_links links;
    double traffic[2 * 8];
    int32_t home[8];
} scene;

static void open_scene(scene *s)
{
    gb_arena_init(&s->arena);
    s->options = gb_solve_defaults();
    CHECK_EQ(gb_tables_init(&s->tables, &s->arena, 4, 16), 0);
    for (uint32_t i = 0; i < 4; i++) s->tables.engines.healthy[i] = 1;
    s->tables.queue.n = 16;
    CHECK_EQ(gb_solver_init(&s->solver, &s->arena, 1, 8, 4, &err), 0);
    CHECK_EQ(gb_links_init(&s->links, &s->arena, 2, 4, &err), 0);
    CHECK_EQ(gb_rearrange_init(&s->r, &s->arena, &s->solver, &s->options, 2, &err), 0);
    for (int i = 0; i < 16; i++) s->traffic[i] = 10 + i;
    for (int e = 0; e < 8; e++) s->home[e] = e / 2;
    gb_rearrange_pose(&s->r, s->traffic, &s->links, s->home, 1);
}

static int decide(scene *s, gb_lua_policy *policy, gb_hook hook, gb_time now)
{
    if (hook == GB_HOOK_SELECT) return gb_lua_policy_select(policy, &s->tables.request, &s->tables.engines, now);
    if (hook == GB_HOOK_ORDER) return gb_lua_policy_order(policy, &s->tables.queue, now);
    return gb_lua_policy_place(policy, hook, &s->r, now);
}

/* "mine.lua:LINE: " of a line that the program has; the programs fill no stack. */
static bool names_its_line(const char *fault, unsigned lines)
{
    unsigned line = 0;
    char colon = 0;
    return sscanf(fault, "mine.lua:%u%c", &line, &colon) == 2 && colon == ':' && line >= 3 && line <= lines;
}

static double run_random(scene *s, const runaway *program, int number)
{
    static gb_lua_counts counts;
    gb_lua_policy *policy = NULL;
    gb_lua_script script = {.chunk = "mine.lua", .source = program->source, .bytes = strlen(program->source), .engines = 4};
    gb_lua_vm_options_default(&script.vm);
    gb_lua_budgets_default(&script.budgets);
    script.budgets.hooks[GB_HOOK_SCORE] = script.budgets.hooks[GB_HOOK_COST] = gb_ms(10);    /* of a thousand programs, none is worth 250 */
    counts = (gb_lua_counts){0};
    CHECK_EQ(gb_lua_policy_new(&policy, &script, &counts, &err), 0);
    if (!policy) {
        printf("    program %d: %s\n%s", number, err.text, program->source);
        return 0;
    }
    double start_ms = cpu_ms();
    int answer = decide(s, policy, program->hook, gb_seconds(7));
    double over_ms = cpu_ms() - start_ms - gb_to_ms(script.budgets.hooks[program->hook]);
    gb_lua_fault_kind kind = gb_lua_policy_vm(policy)->fault_kind;
    bool stopped = answer == GB_POLICY_FAULT && (kind == GB_LUA_FAULT_TIME || kind == GB_LUA_FAULT_MEMORY || kind == GB_LUA_FAULT_STACK);
    if (!stopped || !names_its_line(counts.last_fault, program->lines))
        check_fail(__FILE__, __LINE__, "program %d of seed %d: answer %d, %s\n%s", number, SEED, answer, counts.last_fault, program->source);
    CHECK_EQ(decide(s, policy, program->hook, 0), GB_POLICY_NIL);    /* the VM goes on */
    gb_lua_policy_free(policy);
    return over_ms;
}

static void every_random_runaway_is_stopped_at_one_of_its_lines(void)
{
    static double over_ms[PROGRAMS];
    static runaway program;
    static scene s;
    gb_rng rng;
    gb_rng_init(&rng, SEED);
    open_scene(&s);
    for (int i = 0; i < PROGRAMS && check_failures < 5; i++) {
        runaway_make(&program, &rng);
        over_ms[i] = run_random(&s, &program, i);
    }
    check_overshoot("random runaways", over_ms, PROGRAMS);
    gb_arena_deinit(&s.arena);
}

/* ---- and none that is not one ---- */

static atomic_int busy;

static void *keep_busy(void *self)
{
    (void)self;
    while (atomic_load_explicit(&busy, memory_order_relaxed)) {}
    return NULL;
}

static long preemptions(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

/* Two threads for each CPU. A decision takes some microseconds here, a time slice some milliseconds: of a million decisions hundreds
   lose the CPU in the middle, for longer than their budget. */
static void a_million_decisions_on_a_machine_with_twice_its_work_meet_no_false_stop(void)
{
    enum { DECISIONS = 1000 * 1000, THREADS_MAX = 64 };
    static const char source[] = "return { api = 1, select_engine = function(request, engines)\n"
                                 "local sum = 0\nfor k = 1, 100 do for i = 0, engines.n - 1 do sum = sum + engines.running[i] end end\nreturn sum > 0 and 1 or 2 end }";
    pthread_t threads[THREADS_MAX];
    static gb_lua_counts counts;
    static scene s;
    gb_lua_policy *policy = NULL;
    gb_lua_script script = {.chunk = "mine.lua", .source = source, .bytes = sizeof source - 1, .engines = 4};
    gb_lua_vm_options_default(&script.vm);
    gb_lua_budgets_default(&script.budgets);
    counts = (gb_lua_counts){0};
    CHECK_EQ(gb_lua_policy_new(&policy, &script, &counts, &err), 0);
    open_scene(&s);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN), n = 2 * cpus - 1 < THREADS_MAX ? 2 * cpus - 1 : THREADS_MAX;
    atomic_store(&busy, 1);
    for (long i = 0; i < n; i++) CHECK_EQ(pthread_create(&threads[i], NULL, keep_busy, NULL), 0);
    long before = preemptions();
    int wrong = 0;
    for (int i = 0; i < DECISIONS; i++) wrong += decide(&s, policy, GB_HOOK_SELECT, (gb_time)i) != 2;
    long lost = preemptions() - before;
    atomic_store(&busy, 0);
    for (long i = 0; i < n; i++) pthread_join(threads[i], NULL);
    printf("     %d decisions on %ld CPUs with %ld busy threads beside, the CPU lost %ld times: %d stopped\n", DECISIONS, cpus, n, lost, (int)counts.faults);
    CHECK_EQ(counts.calls, DECISIONS);
    CHECK_EQ(counts.faults, 0);
    CHECK_EQ(wrong, 0);
    gb_lua_policy_free(policy);
    gb_arena_deinit(&s.arena);
}

TESTS(TEST(every_known_runaway_is_stopped_or_refused_and_serving_goes_on), TEST(files_that_are_no_text_or_never_end_are_refused_at_load),
      TEST(every_random_runaway_is_stopped_at_one_of_its_lines), TEST(a_million_decisions_on_a_machine_with_twice_its_work_meet_no_false_stop))
