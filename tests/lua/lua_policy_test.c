#include "bindings/lua/lua_policy.h"

#include <stdlib.h>

#include "bindings/lua/embedded.h"
#include "core/base/log.h"
#include "tests/check.h"

enum { ENGINES = 4, QUEUE = 64 };

static gb_arena arena;
static gb_tables tables;
static gb_lua_counts counts;
static gb_error err;

static void make_tables(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&tables, &arena, ENGINES, QUEUE), 0);
    for (uint32_t i = 0; i < ENGINES; i++) tables.engines.valid[i] = tables.engines.healthy[i] = 1;
}

static int try_load(gb_lua_policy **policy, const char *source)
{
    gb_lua_script script = {.chunk = "mine.lua", .source = source, .bytes = strlen(source), .engines = ENGINES};
    gb_lua_vm_options_default(&script.vm);
    script.budgets = (gb_lua_budgets){.hooks = {gb_seconds(10), gb_seconds(10)}, .load = gb_seconds(10)};
    counts = (gb_lua_counts){0};
    err.text[0] = 0;
    *policy = NULL;
    return gb_lua_policy_new(policy, &script, &counts, &err);
}

static gb_lua_policy *load(const char *source)
{
    gb_lua_policy *policy;
    if (try_load(&policy, source)) {
        printf("%s\n%s\n", source, err.text);
        abort();
    }
    make_tables();
    return policy;
}

static void unload(gb_lua_policy *policy)
{
    gb_lua_policy_free(policy);
    gb_arena_deinit(&arena);
}

static int choose(gb_lua_policy *policy, gb_time now) { return gb_lua_policy_select(policy, &tables.request, &tables.engines, now); }

static int order(gb_lua_policy *policy, uint32_t n, gb_time now)
{
    tables.queue.n = n;
    return gb_lua_policy_order(policy, &tables.queue, now);
}

#define SELECT(body) "return { api = 1, select_engine = function(request, engines)\n" body "\nend }\n"
#define ORDER(body) "return { api = 1, order_queue = function(queue)\n" body "\nend }\n"

/* ---- what a script sees ---- */

static void select_engine_reads_the_live_columns_and_the_request(void)
{
    gb_lua_policy *p = load(SELECT("local best, at = math.huge, nil\n"
                                   "for i = 0, engines.n - 1 do\n"
                                   "  local cost = engines.kv_used_ratio[i] * request.prompt_tokens\n"
                                   "  if cost < best then best, at = cost, i end\n"
                                   "end\n"
                                   "return at"));
    tables.request.prompt_tokens = 10;
    for (int round = 0; round < 500; round++) {
        uint32_t lowest = (uint32_t)round % ENGINES;
        for (uint32_t i = 0; i < ENGINES; i++) tables.engines.kv_used_ratio[i] = i == lowest ? 0.1 : 0.5;
        CHECK_EQ(choose(p, 0), lowest);
    }
    CHECK_EQ(counts.calls, 500);
    CHECK_EQ(counts.faults, 0);
    unload(p);
}

static void select_engine_sees_how_many_engines_there_are_and_whose_turn_it_is(void)
{
    gb_lua_policy *p = load(SELECT("return (engines.next + 1) % engines.n"));
    for (uint32_t turn = 0; turn < ENGINES; turn++) {
        tables.engines.next = turn;
        CHECK_EQ(choose(p, 0), (turn + 1) % ENGINES);
    }
    unload(p);
}

static void order_queue_writes_a_key_for_every_request(void)
{
    gb_lua_policy *p = load(ORDER("for i = 0, queue.n - 1 do queue.key[i] = queue.wait_ns[i] * 2 + queue.engine end"));
    tables.queue.engine = 3;
    for (uint32_t i = 0; i < QUEUE; i++) tables.queue.wait_ns[i] = i;
    CHECK_EQ(order(p, QUEUE, 0), 0);
    for (uint32_t i = 0; i < QUEUE; i++) CHECK_EQ(tables.queue.key[i], 2 * i + 3);
    CHECK_EQ(order(p, 0, 0), 0);
    unload(p);
}

static void now_is_the_time_of_the_decision(void)
{
    gb_lua_policy *p = load(SELECT("return math.floor(gimbal.now() / 1e9)"));
    for (uint32_t second = 0; second < ENGINES; second++) CHECK_EQ(choose(p, gb_seconds(second)), second);
    unload(p);
}

static void random_numbers_come_from_the_seed_alone(void)
{
    int first[100];
    for (int run = 0; run < 2; run++) {
        gb_lua_policy *p = load(SELECT("local r = gimbal.random() assert(r >= 0 and r < 1) return gimbal.random(engines.n)"));
        int seen = 0;
        for (int i = 0; i < 100; i++) {
            int answer = choose(p, 0);
            if (run == 0) first[i] = answer;
            CHECK_EQ(answer, first[i]);
            seen |= 1 << answer;
        }
        CHECK_EQ(seen, (1 << ENGINES) - 1);
        unload(p);
    }
}

static void params_named_like_server_options_start_with_the_servers_value(void)
{
    const char *source = "local policy = { api = 1, params = { stale_after_ns = 1, mine = 2 } }\n"
                         "function policy.select_engine()\n  return gimbal.now() < 7e9 and 0 or policy.params.stale_after_ns / 1e9 + policy.params.mine\nend\n"
                         "return policy";
    gb_lua_policy *p = load(source);
    CHECK_EQ(choose(p, gb_seconds(7)), 3);
    unload(p);
}

static void what_the_probe_did_to_a_script_is_forgotten(void)
{
    gb_lua_policy *p = load("local calls = 0\n"
                            "local floor = math.floor\n"
                            "math.floor = nil\n"
                            "return { api = 1, select_engine = function()\n"
                            "  calls = calls + 1\n"
                            "  return gimbal.now() < 7e9 and 0 or floor(calls) - 1\n"
                            "end }");
    for (int i = 0; i < ENGINES; i++) CHECK_EQ(choose(p, gb_seconds(7)), i);
    unload(p);
}

static void a_script_has_the_hooks_that_it_defines(void)
{
    gb_lua_policy *p = load(ORDER("for i = 0, queue.n - 1 do queue.key[i] = 0 end"));
    CHECK(!gb_lua_policy_has(p, GB_HOOK_SELECT));
    CHECK(gb_lua_policy_has(p, GB_HOOK_ORDER));
    CHECK_STR(gb_lua_policy_name(p), "");
    unload(p);
}

/* ---- answers that are refused ---- */

/* Scripts misbehave only at time 7 s and later, so that the probe lets them pass. */
#define LATE "if gimbal.now() < 7e9 then return nil end\n"

typedef struct bad {
    const char *source, *fault;
} bad;

static void check_fault(const bad *script, int answer)
{
    CHECK_EQ(answer, GB_POLICY_FAULT);
    CHECK_EQ(counts.faults, 1);
    CHECK_CONTAINS(counts.last_fault, script->fault);
}

static void every_bad_answer_of_select_engine_is_a_fault_with_its_sentence(void)
{
    static const bad scripts[] = {
        {SELECT(LATE "return engines.n"), "mine.lua: select_engine returned 4; engines are 0..3"},
        {SELECT(LATE "return -1"), "select_engine returned -1; engines are 0..3"},
        {SELECT(LATE "return 0/0"), "nan; engines are 0..3"},
        {SELECT(LATE "return 1.5"), "select_engine returned 1.5; engines are 0..3"},
        {SELECT(LATE "return math.huge"), "select_engine returned inf"},
        {SELECT(LATE "return 2^53"), "select_engine returned 9.007199254741e+15"},
        {SELECT(LATE "return '0'"), "select_engine returned a string"},
        {SELECT(LATE "return {}"), "select_engine returned a table"},
        {SELECT(LATE "return true"), "select_engine returned a boolean"},
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        gb_lua_policy *p = load(scripts[i].source);
        CHECK_EQ(choose(p, 0), GB_POLICY_NIL);
        CHECK_EQ(counts.nils, 1);
        check_fault(&scripts[i], choose(p, gb_seconds(7)));
        unload(p);
    }
}

static void every_error_in_a_script_is_a_fault_with_file_and_line(void)
{
    static const bad scripts[] = {
        {SELECT(LATE "error('no idea')"), "mine.lua:3: no idea\n  in select_engine (mine.lua:3)"},
        {SELECT(LATE "error('no idea', 0)"), "mine.lua:3: no idea"},
        {SELECT(LATE "error({})"), "mine.lua:3: error value is a table; raise a text"},
        {SELECT(LATE "error()"), "mine.lua:3: error without a message"},
        {SELECT(LATE "error(7)"), "mine.lua:3: 7"},
        {SELECT(LATE "return engines.runing[0]"), "mine.lua:3: engines has no column \"runing\"; did you mean running?"},
        {SELECT(LATE "return engines[0]"), "mine.lua:3: engines has no column 0"},
        {SELECT(LATE "return request.tokens"), "mine.lua:3: request has no field \"tokens\""},
        {SELECT(LATE "return engines.running[4]"), "mine.lua:3: engines.running[4]: index out of range 0..3"},
        {SELECT(LATE "return engines.running[-1]"), "mine.lua:3: engines.running[-1]: index out of range 0..3"},
        {SELECT(LATE "return engines.running[2^53]"), "index out of range 0..3"},
        {SELECT(LATE "return engines.running[0/0]"), "must be a whole number"},
        {SELECT(LATE "return engines.running[1.5]"), "mine.lua:3: engines.running[1.5]: the index must be a whole number"},
        {SELECT(LATE "return engines.running['x']"), "mine.lua:3: engines.running[\"x\"]: the index must be a number"},
        {SELECT(LATE "return engines.running[nil]"), "mine.lua:3: engines.running[nil]: the index must be a number"},
        {SELECT(LATE "engines.running[0] = 1"), "mine.lua:3: engines.running is read-only"},
        {SELECT(LATE "engines.running = 1"), "mine.lua:3: engines is read-only"},
        {SELECT(LATE "request.priority = 1"), "mine.lua:3: request is read-only"},
        {SELECT(LATE "answer = 1"), "mine.lua:3: assignment to global answer; write local answer"},
        {SELECT(LATE "return answer"), "mine.lua:3: answer is not defined"},
        {SELECT(LATE "return gimble.now()"), "mine.lua:3: gimble is not defined; did you mean gimbal?"},
        {SELECT(LATE "return gimbal.clock()"), "mine.lua:3: gimbal.clock is not available to policies"},
        {SELECT(LATE "return gimbal.random(0)"), "mine.lua: gimbal.random(n): n must"},
        {SELECT(LATE "local r = gimbal.random(1.5)\nreturn r"), "mine.lua:3: gimbal.random(n): n must be a whole number of at least 1"},
        {SELECT(LATE "local n = nil\nreturn n.x"), "mine.lua:4: attempt to index local 'n' (a nil value)"},
        {SELECT(LATE "local function f(n) return 1 + f(n + 1) end\nreturn f(1)"), "stack overflow"},    /* LuaJIT may have no room left to name the line */
        {SELECT(LATE "local t = {}\nfor i = 1, 1e9 do t[i] = { i } end"), "memory budget exceeded: a policy may hold 32 MiB"},
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        gb_lua_policy *p = load(scripts[i].source);
        check_fault(&scripts[i], choose(p, gb_seconds(7)));
        CHECK(!strstr(counts.last_fault, "prelude"));
        CHECK_EQ(choose(p, 0), GB_POLICY_NIL);    /* and it lives on */
        unload(p);
    }
}

static void every_bad_order_is_a_fault_with_its_sentence(void)
{
    static const bad scripts[] = {
        {ORDER(LATE "queue.key[0] = 1"), "mine.lua: order_queue left 2 of 3 keys unset, the first of them queue.key[1]"},
        {ORDER(LATE "queue.key[1] = 0/0"), "queue.key[1] = "},
        {ORDER(LATE "queue.key[1] = -math.huge"), "mine.lua:3: queue.key[1] = -inf: a key must be a finite number"},
        {ORDER(LATE "queue.key[1] = '5'"), "mine.lua:3: queue.key[1] = \"5\": a key must be a finite number"},
        {ORDER(LATE "queue.key[1] = nil"), "mine.lua:3: queue.key[1] = nil: a key must be a finite number"},
        {ORDER(LATE "queue.key[3] = 1"), "mine.lua:3: queue.key[3]: index out of range 0..2"},
        {ORDER(LATE "queue.wait_ns[0] = 1"), "mine.lua:3: queue.wait_ns is read-only"},
        {ORDER(LATE "for i = 0, queue.n - 1 do queue.key[i] = i end return {}"), "order_queue returned a table; it must fill queue.key[i]"},
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        gb_lua_policy *p = load(scripts[i].source);
        CHECK_EQ(order(p, 3, 0), GB_POLICY_NIL);    /* no key written: no opinion */
        check_fault(&scripts[i], order(p, 3, gb_seconds(7)));
        unload(p);
    }
}

static void a_traceback_names_the_scripts_functions_only(void)
{
    gb_lua_policy *p = load("local function score(engines, i)\n"
                            "  return engines.running[i]\n"
                            "end\n"
                            "local function best(engines)\n"
                            "  local answer = score(engines, 9)\n"
                            "  return answer\n"
                            "end\n" SELECT(LATE "local answer = best(engines)\nreturn answer"));
    CHECK_EQ(choose(p, gb_seconds(7)), GB_POLICY_FAULT);
    CHECK_STR(counts.last_fault, "mine.lua:2: engines.running[9]: index out of range 0..3\n"
                                 "  in score (mine.lua:2)\n"
                                 "  in best (mine.lua:5)\n"
                                 "  in select_engine (mine.lua:10)");
    unload(p);
}

static void errors_that_a_script_catches_are_its_own(void)
{
    gb_lua_policy *p = load(SELECT("local ok, why = pcall(function() return engines.running[99] end)\n"
                                   "return not ok and why == 'mine.lua:2: engines.running[99]: index out of range 0..' .. engines.n - 1 and engines.n - 1 or nil"));
    CHECK_EQ(choose(p, 0), ENGINES - 1);
    unload(p);
}

static void the_first_two_hundred_calls_of_a_hook_get_time_to_compile(void)
{
    gb_lua_policy *p = load("return { api = 1, select_engine = function() return 1 end, order_queue = function() end }");
    const gb_lua_guard *guard = &gb_lua_policy_vm(p)->guard;
    for (int call = 1; call <= 300; call++) {
        choose(p, 0);
        CHECK_EQ(guard->budget_ns, gb_seconds(10) + (call <= 200 ? gb_ms(4) : 0));    /* the budget of these tests, and more */
    }
    order(p, 1, 0);
    CHECK_EQ(guard->budget_ns, gb_seconds(10) + gb_ms(4));    /* each hook has its own */
    unload(p);
}

/* Each level is unwound by itself when a script is stopped: two hundred take a millisecond, ten thousand did seventy. */
static void pcalls_nest_two_hundred_deep_and_every_call_starts_anew(void)
{
    gb_lua_policy *p = load("local depth, why\n"
                            "local function deeper()\ndepth = depth + 1\n"
                            "local ok, message = pcall(deeper)\nif not ok then why = why or message end end\n"
                            "return { api = 1, select_engine = function()\n"
                            "depth, why = 0, nil deeper()\n"
                            "if depth ~= 201 or why ~= 'mine.lua:4: pcall: more than 200 of them one inside the other' then return 0 end\n"
                            "if gimbal.now() >= 7e9 then pcall(deeper) error('no') end\nreturn 1 end }");
    CHECK_EQ(choose(p, 1), 1);
    CHECK_EQ(choose(p, gb_seconds(7)), GB_POLICY_FAULT);
    CHECK_EQ(choose(p, 1), 1);
    unload(p);
}

static void views_show_nothing_outside_their_hook(void)
{
    gb_lua_policy *p = load("local seen, asked\n"
                            "return { api = 1, select_engine = function(request, engines) seen, asked = engines, request return nil end,\n"
                            "  order_queue = function(queue)\n"
                            "    if gimbal.now() < 7e9 then return end\n"
                            "    local field = gimbal.now() < 8e9 and seen.running[0] or asked.priority\n"
                            "  end }");
    CHECK_EQ(choose(p, 0), GB_POLICY_NIL);
    CHECK_EQ(order(p, 2, gb_seconds(7)), GB_POLICY_FAULT);
    CHECK_CONTAINS(counts.last_fault, "mine.lua:5: engines.running[0]: there is nothing to index here");
    unload(p);
    p = load("local asked\n"
             "return { api = 1, select_engine = function(request) asked = request return nil end,\n"
             "  order_queue = function() if gimbal.now() >= 7e9 then local priority = asked.priority end end }");
    CHECK_EQ(choose(p, 0), GB_POLICY_NIL);
    CHECK_EQ(order(p, 2, gb_seconds(7)), GB_POLICY_FAULT);
    CHECK_CONTAINS(counts.last_fault, "mine.lua:3: request.priority can be read only inside select_engine");
    unload(p);
}

/* ---- scripts that are not accepted ---- */

static void a_script_that_cannot_work_is_refused_with_its_reason(void)
{
    static const bad scripts[] = {
        {"return {", "mine.lua:1: unexpected symbol near '<eof>'"},
        {"local x = \n\nreturn {}", "mine.lua:3:"},
        {"", "mine.lua: the file returned nil; end it with `return policy`"},
        {"return 5", "mine.lua: the file returned 5; end it with `return policy`"},
        {"return {}", "mine.lua: the policy names no API; add `api = 1`"},
        {"return { api = 2 }", "mine.lua: the policy is written for api 2; this gimbal speaks api 1"},
        {"return { api = '1' }", "mine.lua: the policy is written for api \"1\""},
        {"return { api = 1 }", "mine.lua: the policy has no hook; give it select_engine, order_queue, score_expert or placement_cost"},
        {"return { api = 1, name = 3, select_engine = function() end }", "mine.lua: policy.name must be a string, got 3"},
        {"return { api = 1, select_engine = 'x' }", "mine.lua: policy.select_engine is \"x\"; a hook must be a function"},
        {"return { api = 1, order_queue = {} }", "mine.lua: policy.order_queue is a table; a hook must be a function"},
        {"return { api = 1, selct_engine = function() end }", "mine.lua: policy.selct_engine is no hook of api 1; did you mean select_engine?"},
        {"return { api = 1, params = 3, order_queue = function() end }", "mine.lua: policy.params must be a table of defaults, got 3"},
        {"return { api = 1, params = { w = {} }, order_queue = function() end }", "policy.params.w must be a number, a string or a boolean, got a table"},
        {"return { api = 1, params = { w = 0/0 }, order_queue = function() end }", "policy.params.w is not a number"},
        {"return { api = 1, params = { 5 }, order_queue = function() end }", "policy.params: keys are names, got 1"},
        {"w_wait = 1\nreturn {}", "mine.lua:1: assignment to global w_wait; write local w_wait"},
        {"local x = wait\nreturn {}", "mine.lua:1: wait is not defined"},
        {"local ffi = require 'ffi'\nreturn {}", "mine.lua:1: require is not available to policies; a policy is one file"},
        {"local t = nil\nt.x = 1", "mine.lua:2: attempt to index local 't' (a nil value)\n  in the file itself (mine.lua:2)"},
        {"local base = gimbal.shipped('nobody')\nreturn base", "mine.lua:1: gimbal.shipped: no policy named \"nobody\" is shipped"},
        {"local base = gimbal.shipped('../config/default')\nreturn base", "mine.lua:1: gimbal.shipped: no policy named"},
        {"local base = gimbal.shipped(5)\nreturn base", "mine.lua:1: gimbal.shipped: no policy named 5 is shipped"},
        {SELECT("return engines.n"), "mine.lua: select_engine returned 4; engines are 0..3"},
        {SELECT("return engines.running[engines.n]"), "mine.lua:2: engines.running[4]: index out of range 0..3"},
        {ORDER("return 1"), "mine.lua: order_queue returned a number"},
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        gb_lua_policy *p;
        CHECK_EQ(try_load(&p, scripts[i].source), GB_EPOLICY);
        CHECK_CONTAINS(err.text, scripts[i].fault);
        CHECK(!strstr(err.text, "prelude"));
        CHECK_EQ(counts.calls + counts.faults, 0);
    }
}

static void a_script_may_start_from_a_shipped_policy(void)
{
    gb_lua_policy *p = load("local base = gimbal.shipped('gimbal')\nbase.params.w_moe = 0\nbase.order_queue = nil\nreturn base");
    gb_lua_value value;
    char name[GB_LUA_NAME_MAX + 1];
    double w_moe = NAN;
    for (uint32_t i = 0; gb_lua_policy_param(p, i, name, &value); i++)
        if (strcmp(name, "w_moe") == 0) w_moe = value.number;
    CHECK_NEAR(w_moe, 0, 0);
    CHECK(gb_lua_policy_has(p, GB_HOOK_SELECT) && !gb_lua_policy_has(p, GB_HOOK_ORDER));
    tables.engines.moe_pressure[0] = 9;
    CHECK_EQ(choose(p, 0), 0);
    value = (gb_lua_value){.type = GB_LUA_NUMBER, .number = 2048};
    CHECK_EQ(gb_lua_policy_set_param(p, "w_moe", &value, &err), 0);    /* its functions read the same params */
    CHECK(choose(p, 0) != 0);
    tables.engines.moe_pressure[0] = 0;
    unload(p);
}

/* ---- memory ---- */

static void shipped_policies_allocate_nothing_per_decision(void)
{
    for (unsigned f = 0; f < gb_embedded_count; f++) {
        if (strncmp(gb_embedded_files[f].name, "lua/policies/", 13) != 0) continue;
        gb_lua_policy *p = load(gb_embedded_files[f].data);
        gb_rng rng;
        size_t before = 0, grown = 0;
        for (int call = 0; call < 30000; call++) {
            if (call % 1000 == 0) gb_rng_init(&rng, 5);    /* the same thousand again */
            if (call % 10000 == 0) before = gb_lua_policy_vm(p)->arena.live_bytes;
            for (uint32_t i = 0; i < ENGINES; i++) {
                tables.engines.running_prefill_tokens[i] = (double)gb_rng_below(&rng, 10000);
                tables.engines.kv_used_ratio[i] = gb_rng_uniform(&rng);
            }
            if (gb_lua_policy_has(p, GB_HOOK_SELECT)) choose(p, (gb_time)call);
            if (gb_lua_policy_has(p, GB_HOOK_ORDER)) order(p, 1 + (uint32_t)gb_rng_below(&rng, QUEUE), (gb_time)call);
            if (call % 10000 == 9999) grown = gb_lua_policy_vm(p)->arena.live_bytes - before;
        }
        CHECK_EQ(grown, 0);    /* in the last 10,000, when the JIT has nothing left to compile */
        CHECK_EQ(counts.faults, 0);
        unload(p);
    }
}

static void a_script_that_makes_garbage_never_meets_its_cap(void)
{
    gb_lua_policy *p = load(SELECT("local t = {}\nfor i = 1, 1000 do t[i] = { i } end\nreturn #t % engines.n"));
    gb_lua_vm *vm = gb_lua_policy_vm(p);
    for (int i = 0; i < 2000; i++) {    /* about 50 MB in all */
        CHECK_EQ(choose(p, 0), 0);
        CHECK(vm->arena.live_bytes < vm->arena.cap_bytes);
    }
    CHECK_EQ(counts.faults, 0);
    size_t before = vm->arena.live_bytes;
    for (int i = 0; i < 100000 && vm->arena.live_bytes > vm->settled_bytes; i++) gb_lua_vm_idle(vm);
    CHECK(vm->arena.live_bytes < before);
    unload(p);
}

static void a_vm_gives_all_its_memory_back(void)
{
    gb_lua_policy *p = load(SELECT("local t = {}\nfor i = 1, 1000 do t[i] = { i } end\nreturn 0"));
    for (int i = 0; i < 500; i++) choose(p, 0);
    gb_lua_vm *vm = gb_lua_policy_vm(p);
    lua_close(vm->L);
    vm->L = NULL;
    CHECK_EQ(vm->arena.live_bytes, 0);
    unload(p);
}

/* ---- log ---- */

static int lines;
static char last_line[1024];

static void count_line(void *self, gb_log_level level, const char *line)
{
    (void)self;
    (void)level;
    lines++;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void a_script_may_log_ten_lines_a_second(void)
{
    gb_lua_policy *p = load(SELECT("for i = 1, 25 do gimbal.log('line\\n' .. i) end return 0"));
    gb_lua_policy_label(p, "mine", 3);
    gb_log_set_sink(count_line, NULL, GB_LOG_INFO);
    lines = 0;
    choose(p, gb_seconds(1));
    CHECK_EQ(lines, GB_LUA_LOG_LINES);
    CHECK_STR(last_line, "policy mine v3: line 10");
    choose(p, gb_seconds(1) + gb_ms(999));
    CHECK_EQ(lines, GB_LUA_LOG_LINES);
    choose(p, gb_seconds(2));
    CHECK_EQ(lines, 2 * GB_LUA_LOG_LINES + 1);    /* and one that tells how many were left out */
    gb_log_set_sink(NULL, NULL, GB_LOG_INFO);
    unload(p);
}

static void a_failing_script_warns_once_a_second(void)
{
    gb_lua_policy *p = load(SELECT(LATE "return 99"));
    gb_lua_policy_label(p, "mine", 3);
    gb_log_set_sink(count_line, NULL, GB_LOG_INFO);
    lines = 0;
    for (int i = 0; i < 100; i++) choose(p, gb_seconds(7));
    CHECK_EQ(lines, 1);
    CHECK_STR(last_line, "policy mine v3 failed, the built-in decided: mine.lua: select_engine returned 99; engines are 0..3");
    choose(p, gb_seconds(8));
    CHECK_EQ(lines, 2);
    CHECK_EQ(counts.faults, 101);
    gb_log_set_sink(NULL, NULL, GB_LOG_INFO);
    unload(p);
}

TESTS(TEST(select_engine_reads_the_live_columns_and_the_request),
      TEST(select_engine_sees_how_many_engines_there_are_and_whose_turn_it_is), TEST(order_queue_writes_a_key_for_every_request),
      TEST(now_is_the_time_of_the_decision), TEST(random_numbers_come_from_the_seed_alone),
      TEST(params_named_like_server_options_start_with_the_servers_value), TEST(what_the_probe_did_to_a_script_is_forgotten),
      TEST(a_script_has_the_hooks_that_it_defines), TEST(every_bad_answer_of_select_engine_is_a_fault_with_its_sentence),
      TEST(every_error_in_a_script_is_a_fault_with_file_and_line), TEST(every_bad_order_is_a_fault_with_its_sentence),
      TEST(a_traceback_names_the_scripts_functions_only), TEST(errors_that_a_script_catches_are_its_own),
      TEST(the_first_two_hundred_calls_of_a_hook_get_time_to_compile), TEST(pcalls_nest_two_hundred_deep_and_every_call_starts_anew),
      TEST(views_show_nothing_outside_their_hook), TEST(a_script_that_cannot_work_is_refused_with_its_reason),
      TEST(a_script_may_start_from_a_shipped_policy),
      TEST(shipped_policies_allocate_nothing_per_decision), TEST(a_script_that_makes_garbage_never_meets_its_cap),
      TEST(a_vm_gives_all_its_memory_back), TEST(a_script_may_log_ten_lines_a_second), TEST(a_failing_script_warns_once_a_second))
