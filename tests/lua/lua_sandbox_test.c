/* What a script must not reach. Each probe is the body of select_engine; loading it has to fail with the sentence beside it,
   because the first trial run meets the refusal. A sandbox guards against mistakes, not against hostile authors. */
#include "bindings/lua/lua_policy.h"

#include <unistd.h>

#include "tests/check.h"

typedef struct probe {
    const char *body, *refusal;
} probe;

static int load_bytes(const char *source, size_t bytes, gb_error *err)
{
    gb_lua_policy *policy = NULL;
    gb_lua_counts counts = {0};
    gb_lua_script script = {.chunk = "probe.lua", .source = source, .bytes = bytes, .engines = 4};
    gb_lua_vm_options_default(&script.vm);
    script.budgets = (gb_lua_budgets){.hooks = {gb_seconds(10), gb_seconds(10)}, .load = gb_seconds(10)};
    int status = gb_lua_policy_new(&policy, &script, &counts, err);
    gb_lua_policy_free(policy);
    return status;
}

static void check_refused(const probe *probes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char source[4096];
        gb_error err = {0};
        snprintf(source, sizeof source, "return { api = 1, select_engine = function(request, engines)\n%s\nend }", probes[i].body);
        CHECK_EQ(load_bytes(source, strlen(source), &err), GB_EPOLICY);
        CHECK_CONTAINS(err.text, probes[i].refusal);
        CHECK_CONTAINS(err.text, "probe.lua");
    }
}

#define CHECK_REFUSED(probes) check_refused(probes, sizeof probes / sizeof *probes)
#define ABSENT(name) name " is not available to policies"

static void files_processes_and_modules_are_out_of_reach(void)
{
    static const probe probes[] = {
        {"return io.open('/etc/passwd')", ABSENT("io")},
        {"return io.popen('id')", ABSENT("io")},
        {"return os.execute('id')", ABSENT("os")},
        {"return os.getenv('HOME')", ABSENT("os")},
        {"return os.exit(0)", ABSENT("os")},
        {"return os.clock()", "use gimbal.now() for time"},
        {"return require('ffi')", ABSENT("require")},
        {"return package.loadlib('libc.so.6', 'system')", "package is not defined"},
        {"return package.loaded.os", "package is not defined"},
        {"return module('x')", "module is not defined"},
        {"return dofile('/etc/passwd')", ABSENT("dofile")},
        {"return loadfile('/etc/passwd')", ABSENT("loadfile")},
        {"print('x')", ABSENT("print")},
    };
    CHECK_REFUSED(probes);
}

static void nothing_makes_code_from_text_or_bytes(void)
{
    static const probe probes[] = {
        {"return load('return 1')()", ABSENT("load")},
        {"return loadstring('return 1')()", ABSENT("loadstring")},
        {"return loadstring('\\27LJ')", ABSENT("loadstring")},
        {"return string.dump(function() end)", ABSENT("string.dump")},
        {"return ('x').dump(function() end)", ABSENT("string.dump")},
        {"return ('x'):dump()", ABSENT("string.dump")},
    };
    CHECK_REFUSED(probes);
}

static void bytecode_is_no_script(void)
{
    static const char bytecode[] = "\x1bLJ\x02\x00";
    gb_error err = {0};
    CHECK_EQ(load_bytes(bytecode, sizeof bytecode, &err), GB_EPOLICY);
    CHECK_CONTAINS(err.text, "attempt to load chunk with wrong mode");
}

static void the_virtual_machine_is_out_of_reach(void)
{
    static const probe probes[] = {
        {"return ffi.new('int')", "ffi is not defined"},
        {"jit.off()", ABSENT("jit")},
        {"return debug.getregistry()", "debug is not defined"},
        {"debug.sethook()", "debug is not defined"},
        {"collectgarbage('restart')", ABSENT("collectgarbage")},
        {"return gcinfo()", ABSENT("gcinfo")},
        {"return newproxy(true)", ABSENT("newproxy")},
        {"return coroutine.create(function() end)", ABSENT("coroutine")},
        {"return coroutine.wrap(function() end)", ABSENT("coroutine")},
        {"return xpcall(error, function() while true do end end)", ABSENT("xpcall")},
        {"return getfenv(0)", ABSENT("getfenv")},
        {"return getfenv(1)", ABSENT("getfenv")},
        {"setfenv(1, {})", ABSENT("setfenv")},
        {"return _G.io", ABSENT("_G")},
        {"return _VERSION", ABSENT("_VERSION")},
        {"return _ENV", "_ENV is not defined"},
        {"return arg", "arg is not defined"},
    };
    CHECK_REFUSED(probes);
}

static void metatables_are_out_of_reach(void)
{
    static const probe probes[] = {
        {"return getmetatable('')", ABSENT("getmetatable")},
        {"return getmetatable('').__index", ABSENT("getmetatable")},
        {"return setmetatable({}, { __gc = function() end })", ABSENT("setmetatable")},
        {"return rawget(engines, 'n')", ABSENT("rawget")},
        {"rawset(engines.running, 0, 1)", ABSENT("rawset")},
        {"return rawequal(1, 1)", ABSENT("rawequal")},
        {"return rawlen({})", "rawlen is not defined"},
        {"return engines.running.__index(nil, 99)", "the index must be a number"},
        {"return engines.__metatable", "engines has no column \"__metatable\""},
        {"return ('x').__index", ABSENT("string.__index")},
        {"local s = 'x' s.len = 1", "attempt to index"},
        {"return (1):foo()", "attempt to index"},
    };
    CHECK_REFUSED(probes);
}

static void string_functions_that_cannot_be_interrupted_are_gone(void)
{
    static const probe probes[] = {
        {"return string.find(('a'):rep(5000), ('.-'):rep(8) .. 'b')", ABSENT("string.find")},
        {"return ('abc'):find('b')", ABSENT("string.find")},
        {"return ('abc'):match('b')", ABSENT("string.match")},
        {"return ('abc'):gmatch('b')", ABSENT("string.gmatch")},
        {"return ('abc'):gsub('b', 'c')", ABSENT("string.gsub")},
        {"return string.gfind('a', 'b')", ABSENT("string.gfind")},
    };
    CHECK_REFUSED(probes);
}

static void what_could_run_long_or_grow_large_is_bounded(void)
{
    static const probe probes[] = {
        {"return #string.rep('x', 1e9)", "string.rep: the result would exceed 65536 bytes"},
        {"return #('x'):rep(1e9)", "string.rep: the result would exceed 65536 bytes"},
        {"local t = {} for i = 1, 2e4 do t[i] = i end table.sort(t)", "table.sort: more than 16384 items"},
        {"local t = {} table.insert(t, -2^31, 1)", "table.insert: wants (list, value) or (list, position 1..1, value)"},
        {"local t = {} table.insert(t, 1e9, 1)", "table.insert: wants"},
        {"local s = 'x' while true do s = s .. s end", "memory budget exceeded"},
        {"local t = {} for i = 1, 1e4 do t[i] = ('x'):rep(60000) .. i end", "memory budget exceeded"},
        {"local t = {} for i = 1, 1e9 do t[i] = i end", "memory budget exceeded"},
        {"local t = {} for i = 1, 1e3 do t[i] = ('x'):rep(60000) end return #table.concat(t)", "memory budget exceeded"},
        {"return select('#', unpack({}, 1, 1e7))", "too many results to unpack"},
        {"local s = ('%d'):rep(3000) return string.format(s)", "the format must be a string of at most 4096 bytes"},
        {"local n = string.format('%99999d', 1) return n", "invalid"},
        {"local function f(n) return 1 + f(n + 1) end return f(1)", "stack overflow"},
        {"local s = ('('):rep(100) return #s, gimbal.random(-1)", "gimbal.random(n)"},
    };
    CHECK_REFUSED(probes);
}

static void addresses_do_not_leak(void)
{
    static const probe probes[] = {
        {"local s = string.format('%s', engines) return s", "string.format: argument 2 is a userdata; format its fields"},
        {"local s = string.format('%p', {}) return s", "string.format: argument 2 is a table"},
        {"local s = ('%s'):format(function() end) return s", "string.format: argument 2 is a function"},
        {"error(tostring(engines))", "probe.lua:2: userdata"},
        {"error(tostring({}))", "probe.lua:2: table"},
        {"error(tostring(math.floor))", "probe.lua:2: function"},
    };
    CHECK_REFUSED(probes);
}

static void randomness_and_time_come_from_the_host_only(void)
{
    static const probe probes[] = {
        {"return math.random()", "math.random is not available to policies; use gimbal.random()"},
        {"math.randomseed(1)", "math.randomseed is not available to policies; use gimbal.random()"},
        {"return gimbal.clock()", ABSENT("gimbal.clock")},
    };
    CHECK_REFUSED(probes);
}

static void views_cannot_be_written_or_walked(void)
{
    static const probe probes[] = {
        {"engines.n = 1e9", "engines is read-only"},
        {"engines.next = 0", "engines is read-only"},
        {"engines.running = nil", "engines is read-only"},
        {"engines.running[0] = 1", "engines.running is read-only"},
        {"request.prompt_tokens = 1", "request is read-only"},
        {"for k in pairs(engines) do end", "bad argument #1 to 'pairs' (table expected, got userdata)"},
        {"for k in pairs(engines.running) do end", "table expected, got userdata"},
        {"for k in ipairs(request) do end", "table expected, got userdata"},
        {"local k = next(engines.running)", "table expected, got userdata"},
        {"error(type(engines.running))", "probe.lua:2: userdata"},
        {"return #engines.running", "attempt to get length"},
        {"return engines.running + 1", "attempt to perform arithmetic"},
        {"table.insert(engines.running, 5)", "table.insert: wants a table, got a userdata"},
        {"local t = table.remove(engines.running)", "table expected, got userdata"},
        {"table.sort(engines.running)", "table.sort: wants a table, got a userdata"},
        {"local t = table.concat(engines.running)", "table expected, got userdata"},
    };
    CHECK_REFUSED(probes);
}

static void a_script_keeps_the_part_of_lua_that_computes(void)
{
    static const char source[] =
        "local list = { 3, 1, 2 }\n"
        "table.sort(list, function(a, b) return a > b end)\n"
        "table.insert(list, 1, 9)\n"
        "table.insert(list, 0)\n"
        "assert(table.concat(list, ',') == '9,3,2,1,0' and table.remove(list) == 0)\n"
        "assert(math.floor(1.5) == 1 and math.max(1, 2) == 2 and math.huge > 0 and math.pi > 3)\n"
        "assert(bit.band(6, 3) == 2 and bit.tohex(255) == '000000ff')\n"
        "assert(('abc'):upper() == 'ABC' and string.format('%.2f %s %5d', 1, 'x', 7) == '1.00 x     7')\n"
        "assert(('ab'):rep(2) == 'abab' and ('abc'):sub(2) == 'bc' and #tostring(12) == 2 and tonumber('7') == 7)\n"
        "assert(select('#', unpack({ 1, 2 })) == 2 and not pcall(error, 'x') and type(next({ 1 })) == 'number')\n"
        "local sum = 0\n"
        "for _, v in ipairs(list) do sum = sum + v end\n"
        "for k in pairs({ a = 1 }) do assert(k == 'a') end\n"
        "return { api = 1, select_engine = function() return sum - 15 end }\n";
    gb_error err = {0};
    CHECK_EQ(load_bytes(source, sizeof source - 1, &err), 0);
    CHECK_STR(err.text, "");
}

TESTS(TEST(files_processes_and_modules_are_out_of_reach), TEST(nothing_makes_code_from_text_or_bytes), TEST(bytecode_is_no_script),
      TEST(the_virtual_machine_is_out_of_reach), TEST(metatables_are_out_of_reach),
      TEST(string_functions_that_cannot_be_interrupted_are_gone), TEST(what_could_run_long_or_grow_large_is_bounded),
      TEST(addresses_do_not_leak), TEST(randomness_and_time_come_from_the_host_only), TEST(views_cannot_be_written_or_walked),
      TEST(a_script_keeps_the_part_of_lua_that_computes))
