/* Scripts that never end, with the JIT on: each is stopped, names its line, and leaves a VM that goes on deciding. None of the
   checks depends on how fast it happens; a script that is not stopped hangs, and the test's own time limit tells. */
#include "bindings/lua/lua_guard.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "bindings/lua/lua_policy.h"
#include "tests/check.h"

enum { ENGINES = 4 };

static gb_arena arena;
static gb_tables tables;
static gb_lua_counts counts;
static gb_error err;

static int try_load(gb_lua_policy **policy, const char *source)
{
    gb_lua_script script = {.chunk = "mine.lua", .source = source, .bytes = strlen(source), .engines = ENGINES};
    gb_lua_vm_options_default(&script.vm);
    gb_lua_budgets_default(&script.budgets);
    counts = (gb_lua_counts){0};
    *policy = NULL;
    return gb_lua_policy_new(policy, &script, &counts, &err);
}

static void make_tables(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&tables, &arena, ENGINES, 64), 0);
    for (uint32_t i = 0; i < ENGINES; i++) tables.engines.healthy[i] = 1;
}

/* Runs away at 7 s and later; line 3 is the one that never ends. */
static gb_lua_policy *load_late(const char *body)
{
    char source[2048];
    gb_lua_policy *policy;
    snprintf(source, sizeof source, "return { api = 1, select_engine = function(request, engines)\n"
                                    "if gimbal.now() < 7e9 then return 1 end\n%s\nend }", body);
    if (try_load(&policy, source)) printf("    %s\n", err.text);
    return policy;
}

static int choose(gb_lua_policy *policy, gb_time now) { return gb_lua_policy_select(policy, &tables.request, &tables.engines, now); }

static void check_stopped(const char *body, const char *fault)
{
    gb_lua_policy *policy = load_late(body);
    CHECK(policy != NULL);
    if (!policy) return;
    make_tables();
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(choose(policy, gb_seconds(7)), GB_POLICY_FAULT);
        CHECK_CONTAINS(counts.last_fault, fault);
        CHECK(!strstr(counts.last_fault, "prelude"));
        CHECK_EQ(choose(policy, 0), 1);    /* and goes on */
    }
    CHECK_EQ(counts.faults, 3);
    gb_lua_policy_free(policy);
    gb_arena_deinit(&arena);
}

#define OUT_OF_TIME "mine.lua:3: time budget exceeded: select_engine may use 2 ms of CPU time\n"

static void the_way_to_interrupt_is_proven_at_start(void)
{
    gb_lua_interrupts interrupts = gb_lua_guard_prepare();
    CHECK(interrupts == GB_LUA_IRPROF || interrupts == GB_LUA_CHECKHOOK);
    CHECK_STR(gb_lua_interrupts_name(GB_LUA_IRPROF), "irprof");
    CHECK_STR(gb_lua_interrupts_name(GB_LUA_NO_INTERRUPTS), "none");
}

static void endless_loops_are_stopped_at_their_line(void)
{
    static const char *const bodies[] = {
        "while true do end",
        "repeat until false",
        "::again:: goto again",
        "local x = 0 for i = 1, 1e18 do x = x + i % 7 end",
        "local x = 0 while true do x = x + engines.running[0] end",
        "local t = {} for i = 1, 100 do t[i] = i end while true do for k, v in pairs(t) do end end",
        "local t = {} for i = 1, 100 do t[i] = i end while true do for k, v in ipairs(t) do end end",
        "local function f(n) return f(n + 1) end local answer = f(1) return answer",
        "while true do gimbal.random() end",
        "while true do gimbal.log('x') end",
        "while true do local s = bit.bxor(1, 2) + math.floor(1.5) end",
        "local t = { 3, 1, 2 } while true do t[1], t[2] = t[2], t[1] end",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) check_stopped(bodies[i], OUT_OF_TIME);
}

static void an_endless_loop_of_many_lines_is_stopped_in_one_of_them(void)
{
    check_stopped("local a, b, c = 1, 2, 3\nwhile true do\n  a = a + b\n  if a > 1000 then\n    a = c\n  end\nend", "time budget exceeded");
}

static void catching_the_error_does_not_help(void)
{
    static const char *const bodies[] = {
        "while true do pcall(function() while true do end end) end",
        "while true do pcall(error, 'x') end",
        "while true do pcall(function() return engines.running[99] end) end",
        "local function g() pcall(g) while true do pcall(g) end end g()",
        "local function f() while true do end end for i = 1, 1e9 do pcall(pcall, pcall, f) end",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) check_stopped(bodies[i], "time budget exceeded");
}

static void callbacks_and_strings_are_stopped_too(void)
{
    static const char *const bodies[] = {
        "local t = {} for i = 1, 9999 do t[i] = i * 7919 % 10007 end while true do table.sort(t, function(a, b) return a < b end) end",
        "table.sort({ 1, 2, 3 }, function(a, b) while true do end end)",
        "while true do local s = ('x'):rep(100) end",
        "local t, i = {}, 0 while true do i = i + 1 t[i % 1000] = 'a' .. i end",
        "local t = {} for i = 1, 1000 do t[i] = 'abc' end while true do local s = table.concat(t) end",
        "while true do local s = string.format('%d', 5) end",
        "while true do local s = tostring(1.5) end",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        gb_lua_policy *policy = load_late(bodies[i]);
        make_tables();
        CHECK_EQ(choose(policy, gb_seconds(7)), GB_POLICY_FAULT);
        CHECK_CONTAINS(counts.last_fault, "mine.lua:3: ");
        CHECK_CONTAINS(counts.last_fault, " budget exceeded");    /* of time, or of memory where that comes first */
        CHECK_EQ(choose(policy, 0), 1);
        gb_lua_policy_free(policy);
        gb_arena_deinit(&arena);
    }
}

static void a_file_that_never_ends_is_refused(void)
{
    gb_lua_policy *policy;
    CHECK_EQ(try_load(&policy, "local n = 0\nwhile true do n = n + 1 end\n"), GB_EPOLICY);
    CHECK_CONTAINS(err.text, "mine.lua:2: time budget exceeded: the file itself may use 100 ms of CPU time");
    CHECK_EQ(try_load(&policy, "return { api = 1, order_queue = function() while true do end end }"), GB_EPOLICY);
    CHECK_CONTAINS(err.text, "mine.lua:1: time budget exceeded: order_queue may use 5 ms of CPU time");
}

static void memory_runs_out_with_a_line(void)
{
    gb_lua_policy *policy;
    char source[] = "local hoard\nreturn { api = 1, select_engine = function()\n"
                    "for i = 1, 2000 do hoard = { hoard } end\nreturn 0 end }";
    CHECK_EQ(try_load(&policy, source), 0);
    make_tables();
    int answer = 0;
    for (int i = 0; i < 1000 && answer == 0; i++) answer = choose(policy, 0);
    CHECK_EQ(answer, GB_POLICY_FAULT);
    CHECK_STR(counts.last_fault, "mine.lua:3: memory budget exceeded: a policy may hold 32 MiB\n  in select_engine (mine.lua:3)");
    gb_lua_policy_free(policy);
    gb_arena_deinit(&arena);
}

/* A second thread decides on its own VM while the first one stops runaways: signals reach their own thread only. */
static void *decide_undisturbed(void *self)
{
    gb_lua_policy *policy = self;
    gb_request_row request = {0};
    gb_engine_table engines = tables.engines;
    uintptr_t wrong = 0;
    for (int i = 0; i < 300000; i++) wrong += gb_lua_policy_select(policy, &request, &engines, 0) != 1;
    return (void *)wrong;
}

static void a_runaway_disturbs_no_other_thread(void)
{
    static gb_lua_counts its_counts;
    gb_lua_policy *runaway = load_late("while true do end"), *other = NULL;
    gb_lua_script script = {.chunk = "other.lua", .source = "return { api = 1, select_engine = function() return 1 end }", .engines = ENGINES};
    script.bytes = strlen(script.source);
    gb_lua_vm_options_default(&script.vm);
    gb_lua_budgets_default(&script.budgets);
    CHECK_EQ(gb_lua_policy_new(&other, &script, &its_counts, &err), 0);
    make_tables();
    pthread_t thread;
    void *wrong = NULL;
    CHECK_EQ(pthread_create(&thread, NULL, decide_undisturbed, other), 0);
    for (int i = 0; i < 20; i++) CHECK_EQ(choose(runaway, gb_seconds(7)), GB_POLICY_FAULT);
    pthread_join(thread, &wrong);
    CHECK_EQ((uintptr_t)wrong, 0);
    CHECK_EQ(its_counts.faults, 0);
    CHECK_EQ(its_counts.calls, 300000);
    CHECK_EQ(counts.faults, 20);
    gb_lua_policy_free(runaway);
    gb_lua_policy_free(other);
    gb_arena_deinit(&arena);
}

/* Two busy threads and this one on few CPUs: waiting for a CPU is not running. */
static atomic_int busy;

static void *keep_busy(void *self)
{
    (void)self;
    while (atomic_load(&busy)) {}
    return NULL;
}

static void waiting_for_a_cpu_stops_no_script(void)
{
    gb_lua_policy *policy = load_late("return 1");
    pthread_t threads[3];
    make_tables();
    atomic_store(&busy, 1);
    for (int i = 0; i < 3; i++) CHECK_EQ(pthread_create(&threads[i], NULL, keep_busy, NULL), 0);
    for (int i = 0; i < 300000; i++) choose(policy, 0);
    atomic_store(&busy, 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(counts.faults, 0);
    CHECK_EQ(counts.calls, 300000);
    gb_lua_policy_free(policy);
    gb_arena_deinit(&arena);
}

TESTS(TEST(the_way_to_interrupt_is_proven_at_start), TEST(endless_loops_are_stopped_at_their_line),
      TEST(an_endless_loop_of_many_lines_is_stopped_in_one_of_them), TEST(catching_the_error_does_not_help),
      TEST(callbacks_and_strings_are_stopped_too), TEST(a_file_that_never_ends_is_refused), TEST(memory_runs_out_with_a_line),
      TEST(a_runaway_disturbs_no_other_thread), TEST(waiting_for_a_cpu_stops_no_script))
