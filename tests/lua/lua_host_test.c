#include "bindings/lua/lua_host.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bindings/lua/embedded.h"
#include "core/base/log.h"
#include "core/base/sha256.h"
#include "tests/check.h"
#include "tests/serve/fake.h"

static fake f;
static gb_server *server;
static gb_lua_host *host;
static gb_error err;

static void start(void)
{
    gb_server_options options;
    fake_options(&options);
    fake_init(&f, &options);
    err.text[0] = 0;
    CHECK_EQ(gb_server_new(&server, &options, &err), 0);
    CHECK_EQ(gb_lua_host_new(&host, server, 1, &err), 0);
    if (!host) exit(1);    /* there is nothing to test then */
    CHECK_STR(err.text, "");
}

static void stop(void)
{
    gb_lua_host_free(host);
    host = NULL;
    gb_server_free(server);
    fake_deinit(&f);
}

static uint32_t load_named(const char *name, const char *source)
{
    uint32_t version = 0;
    CHECK_EQ(gb_lua_host_load(host, &version, NULL, name, "mine.lua", source, strlen(source), &err), 0);
    return version;
}

static uint32_t load(const char *source) { return load_named(NULL, source); }

/* Policies that come with gimbal are versions 1 .. shipped(), in order of their names. */
static uint32_t shipped(void)
{
    static const char folder[] = "lua/policies/";
    uint32_t n = 0;
    for (unsigned i = 0; i < gb_embedded_count; i++) n += strncmp(gb_embedded_files[i].name, folder, sizeof folder - 1) == 0;
    return n;
}

static gb_lua_info info_of(uint32_t version)
{
    gb_lua_info info = {0};
    CHECK_EQ(gb_lua_host_find(host, version, &info), 0);
    return info;
}

/* The version of a shipped policy. */
static uint32_t named(const char *name)
{
    for (uint32_t version = 1; version <= shipped(); version++)
        if (strcmp(info_of(version).name, name) == 0) return version;
    CHECK_STR(name, "shipped");
    return 0;
}

static uint32_t submit_at(gb_time now)
{
    gb_request request = fake_request(8, 1);
    gb_request_id id = fake_submit(server, &request, now);
    gb_request_info info = {0};
    for (uint32_t cursor = 0; gb_server_request_next(server, &cursor, &info);) {
        if (info.id == id) break;
    }
    CHECK(info.id == id);
    return info.engine;
}

/* Runs everything that was submitted to its end. */
static uint32_t finish(gb_time now)
{
    uint32_t done = 0;
    gb_event event;
    while (fake_round(&f, server, now, now)) {
        while (gb_server_poll_event(server, &event)) done += event.kind == GB_EVENT_DONE;
    }
    return done;
}

#define ALWAYS(engine) "return { api = 1, name = 'always', select_engine = function() return " engine " end }"
#define LATE "if gimbal.now() < 7e9 then return nil end "

/* ---- deciding ---- */

static void shipped_policies_are_loaded_and_none_decides_yet(void)
{
    start();
    CHECK(named("fcfs") < named("gimbal") && named("gimbal") < named("round_robin"));
    CHECK_EQ(gb_lua_host_count(host), shipped());
    for (uint32_t i = 0; i < shipped(); i++) {
        gb_lua_info info;
        CHECK_EQ(gb_lua_host_info(host, i, &info), 0);
        CHECK_EQ(info.version, i + 1);
        CHECK_EQ(strlen(info.sha256), 64);
        CHECK(info.builtin);
        CHECK(info.state != GB_LUA_ACTIVE);
    }
    CHECK_EQ(gb_lua_host_info(host, shipped(), &(gb_lua_info){0}), GB_ENOTFOUND);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), 0);
    CHECK_EQ(gb_server_policy(server, GB_HOOK_SELECT)->version, 0);
    stop();
}

static void an_active_script_decides_in_the_real_server(void)
{
    start();
    CHECK_EQ(gb_lua_host_use(host, NULL, "gimbal", &err), 0);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), named("gimbal"));
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_ORDER), named("gimbal"));
    CHECK_STR(gb_server_policy(server, GB_HOOK_SELECT)->name, "gimbal");
    for (int i = 0; i < 20; i++) submit_at(gb_ms(1));
    CHECK_EQ(finish(gb_ms(2)), 20);
    gb_server_stats stats;
    gb_server_stats_get(server, &stats);
    CHECK_EQ(stats.hooks[GB_HOOK_SELECT].calls, 20);
    CHECK(stats.hooks[GB_HOOK_ORDER].calls > 0);
    CHECK_EQ(stats.hooks[GB_HOOK_SELECT].faults + stats.hooks[GB_HOOK_ORDER].faults, 0);
    CHECK_EQ(stats.hooks[GB_HOOK_SELECT].nils + stats.hooks[GB_HOOK_ORDER].nils, 0);
    gb_lua_info info = info_of(named("gimbal"));
    CHECK_EQ(info.calls, stats.hooks[GB_HOOK_SELECT].calls + stats.hooks[GB_HOOK_ORDER].calls);
    CHECK_EQ(info.faults, 0);
    CHECK_EQ(info.state, GB_LUA_ACTIVE);
    gb_lua_host_idle(host, gb_ms(3));
    stop();
}

static void round_robin_takes_turns(void)
{
    start();
    CHECK_EQ(gb_lua_host_use(host, "select_engine", "round_robin", &err), 0);
    for (uint32_t i = 0; i < 10; i++) CHECK_EQ(submit_at(gb_ms(1)), i % 2);
    finish(gb_ms(1));
    stop();
}

static void keys_decide_who_is_served_first(void)
{
    static const char *const scripts[] = {"return { api = 1, order_queue = function(q) for i = 0, q.n - 1 do q.key[i] = q.prompt_tokens[i] end end }",
                                          "return { api = 1, order_queue = function(q) for i = 0, q.n - 1 do q.key[i] = -q.prompt_tokens[i] end end }"};
    for (int longest_first = 0; longest_first < 2; longest_first++) {
        start();
        uint32_t always = load(ALWAYS("0")), order = load_named("order", scripts[longest_first]);
        CHECK_EQ(gb_lua_host_activate(host, NULL, always, &err), 0);
        CHECK_EQ(gb_lua_host_activate(host, NULL, order, &err), 0);
        for (uint32_t length = 1; length <= 3; length++) {
            gb_request request = fake_request(length * 60, 1);    /* a batch holds 64 */
            request.tag = length;
            fake_submit(server, &request, 0);
        }
        uint64_t done[3], n = 0;
        gb_event event;
        while (fake_round(&f, server, 0, 0)) {
            while (gb_server_poll_event(server, &event)) {
                if (event.kind == GB_EVENT_DONE && n < 3) done[n++] = event.tag;
            }
        }
        CHECK_EQ(n, 3);
        for (uint32_t i = 0; i < 3; i++) CHECK_EQ(done[i], longest_first ? 3 - i : i + 1);
        stop();
    }
}

static void loading_changes_no_decision_and_activating_changes_the_next(void)
{
    start();
    uint32_t first = load(ALWAYS("0"));
    CHECK_EQ(gb_lua_host_activate(host, NULL, first, &err), 0);
    CHECK_EQ(submit_at(0), 0);
    uint32_t second = load(ALWAYS("1"));
    CHECK_EQ(second, first + 1);
    CHECK_STR(info_of(second).name, "always");
    CHECK_EQ(info_of(second).state, GB_LUA_READY);
    CHECK_EQ(submit_at(0), 0);
    CHECK_EQ(gb_lua_host_activate(host, "select_engine", second, &err), 0);
    CHECK_EQ(submit_at(0), 1);
    CHECK_EQ(submit_at(0), 1);
    CHECK_EQ(info_of(first).state, GB_LUA_STANDBY);
    CHECK_EQ(info_of(first).calls, 2);
    CHECK_EQ(info_of(second).calls, 2);
    CHECK_EQ(gb_lua_host_activate(host, NULL, first, &err), 0);    /* and back at once */
    CHECK_EQ(submit_at(0), 0);
    finish(0);
    stop();
}

static void a_fault_is_answered_by_the_built_in_for_that_decision_only(void)
{
    start();
    uint32_t version = load("return { api = 1, name = 'odd', select_engine = function()\n" LATE
                            "if gimbal.now() % 2 == 1 then error('odd time') end\nreturn 1 end }");
    CHECK_EQ(gb_lua_host_activate(host, NULL, version, &err), 0);
    for (gb_time i = 0; i < 10; i++) {
        uint32_t engine = submit_at(gb_seconds(7 + 6 * i) + i); /* a fault each 12 s: too few for quarantine */
        if (i % 2 == 0) CHECK_EQ(engine, 1);
    }
    gb_lua_info info = info_of(version);
    CHECK_EQ(info.calls, 10);
    CHECK_EQ(info.faults, 5);
    CHECK_STR(info.last_fault, "mine.lua:2: odd time\n  in select_engine (mine.lua:2)");
    gb_server_stats stats;
    gb_server_stats_get(server, &stats);
    CHECK_EQ(stats.hooks[GB_HOOK_SELECT].faults, 5);
    CHECK_EQ(stats.accepted, 10);
    CHECK_EQ(finish(gb_seconds(70)), 10);
    stop();
}

static void the_built_in_takes_over_again_when_asked(void)
{
    start();
    CHECK_EQ(gb_lua_host_use(host, NULL, "gimbal", &err), 0);
    CHECK_EQ(gb_lua_host_builtin(host, "order_queue", &err), 0);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), named("gimbal"));
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_ORDER), 0);
    CHECK_EQ(gb_lua_host_use(host, NULL, "builtin", &err), 0);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), 0);
    CHECK_EQ(gb_server_policy(server, GB_HOOK_SELECT)->version, 0);
    CHECK_EQ(info_of(named("gimbal")).state, GB_LUA_STANDBY);
    submit_at(0);
    CHECK_EQ(finish(0), 1);
    stop();
}

static void a_host_that_goes_leaves_the_built_in_behind(void)
{
    start();
    CHECK_EQ(gb_lua_host_use(host, NULL, "gimbal", &err), 0);
    gb_lua_host_free(host);
    host = NULL;
    host = NULL;
    submit_at(0);
    CHECK_EQ(finish(0), 1);
    stop();
}

/* Swaps and reloads, half of them of broken files, while requests come in: each decision is the active version's. */
static void two_hundred_swaps_under_load_lose_no_decision(void)
{
    start();
    gb_log_set_sink(NULL, NULL, GB_LOG_INFO);
    uint64_t decided = 0, finished = 0;
    for (uint32_t swap = 0; swap < 200; swap++) {
        uint32_t version = 0, broken = 0;
        char source[256];
        snprintf(source, sizeof source, "return { api = 1, name = 'swap', select_engine = function() return %u end }", swap % 2);
        CHECK_EQ(gb_lua_host_load(host, &version, NULL, NULL, "swap.lua", source, strlen(source), &err), 0);
        CHECK_EQ(gb_lua_host_load(host, &broken, NULL, NULL, "swap.lua", source, strlen(source) - 1, &err), GB_EPOLICY);
        CHECK_EQ(gb_lua_host_activate(host, NULL, version, &err), 0);
        for (int i = 0; i < 5; i++, decided++) CHECK_EQ(submit_at(gb_ms(swap)), swap % 2);
        CHECK_EQ(info_of(version).calls, 5);
        finished += finish(gb_ms(swap));
    }
    gb_server_stats stats;
    gb_server_stats_get(server, &stats);
    CHECK_EQ(stats.hooks[GB_HOOK_SELECT].calls, decided);
    CHECK_EQ(stats.hooks[GB_HOOK_SELECT].faults + stats.hooks[GB_HOOK_SELECT].nils, 0);
    CHECK_EQ(stats.accepted, decided);
    CHECK_EQ(finished, decided);
    stop();
}

/* ---- versions ---- */

static void only_the_latest_idle_versions_keep_a_vm_and_the_others_come_back_when_needed(void)
{
    start();
    uint32_t first = load(ALWAYS("1"));
    CHECK_EQ(gb_lua_host_activate(host, NULL, first, &err), 0);
    CHECK_EQ(submit_at(0), 1);
    CHECK_EQ(gb_lua_host_builtin(host, NULL, &err), 0);
    CHECK_EQ(info_of(first).state, GB_LUA_STANDBY);
    CHECK_EQ(gb_lua_host_use(host, "select_engine", "gimbal", &err), 0); /* now the built-in stands by, and not it */
    uint32_t last = 0;
    for (int i = 0; i <= GB_LUA_WARM_MAX; i++) last = load(ALWAYS("0"));
    CHECK_EQ(info_of(first).state, GB_LUA_RETIRED);
    CHECK_EQ(info_of(last).state, GB_LUA_READY);
    CHECK_EQ(gb_lua_host_activate(host, NULL, first, &err), 0);
    CHECK_EQ(submit_at(0), 1);
    CHECK_EQ(info_of(first).calls, 2);    /* counted over both lives */
    CHECK_STR(gb_lua_state_name(info_of(first).state), "active");
    finish(0);
    stop();
}

static void the_oldest_idle_version_is_forgotten_when_there_are_too_many(void)
{
    start();
    uint32_t active = load(ALWAYS("1")), second = load(ALWAYS("0")), last = 0;
    CHECK_EQ(gb_lua_host_activate(host, NULL, active, &err), 0);
    while (gb_lua_host_count(host) < GB_LUA_VERSIONS_MAX) last = load(ALWAYS("0"));
    CHECK(gb_lua_host_source(host, second, NULL) != NULL);
    CHECK_EQ(load(ALWAYS("0")), last + 1);
    CHECK_EQ(gb_lua_host_count(host), GB_LUA_VERSIONS_MAX);
    CHECK(gb_lua_host_source(host, second, NULL) == NULL);
    CHECK_EQ(info_of(active).state, GB_LUA_ACTIVE);
    CHECK_STR(info_of(named("fcfs")).name, "fcfs");
    stop();
}

static void a_version_keeps_its_source_and_its_digest(void)
{
    start();
    const char *source = ALWAYS("1");
    uint32_t version = load(source);
    size_t bytes = 0;
    char digest[65];
    CHECK_STR(gb_lua_host_source(host, version, &bytes), source);
    CHECK_EQ(bytes, strlen(source));
    gb_sha256_hex(digest, source, bytes);
    CHECK_STR(info_of(version).sha256, digest);
    CHECK(gb_lua_host_source(host, version + 1, NULL) == NULL);
    stop();
}

static void names_come_from_the_caller_then_the_script_then_the_file(void)
{
    start();
    CHECK_STR(info_of(load_named("given", ALWAYS("1"))).name, "given");
    CHECK_STR(info_of(load(ALWAYS("1"))).name, "always");
    CHECK_STR(info_of(load("return { api = 1, select_engine = function() end }")).name, "mine");
    uint32_t version;
    const char *source = ALWAYS("1");
    static const char *const bad[] = {"", "a b", "a/b", "builtin", "0123456789012345678901234567890123456789012345678901234567890123x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_EQ(gb_lua_host_load(host, &version, NULL, bad[i], "mine.lua", source, strlen(source), &err), GB_EINVAL);
        CHECK_CONTAINS(err.text, "is no policy name; use 1 to 64 letters");
    }
    stop();
}

static void a_long_path_is_named_by_its_end(void)
{
    start();
    uint32_t version;
    char path[600];
    memset(path, 'd', sizeof path);
    strcpy(path + sizeof path - 10, "/mine.lua");
    CHECK_EQ(gb_lua_host_load(host, &version, NULL, NULL, path, "return 5", 8, &err), GB_EPOLICY);
    CHECK(strncmp(err.text, "...ddd", 6) == 0);
    CHECK_CONTAINS(err.text, "d/mine.lua: the file returned 5");
    CHECK_EQ(gb_lua_host_load(host, &version, NULL, NULL, path, "return {", 8, &err), GB_EPOLICY);
    CHECK_CONTAINS(err.text, "d/mine.lua:1: unexpected symbol");
    stop();
}

static void a_load_may_keep_one_hook_of_a_script(void)
{
    start();
    const char *both = "return { api = 1, name = 'both', select_engine = function() return 1 end,\n"
                       "order_queue = function(q) for i = 0, q.n - 1 do q.key[i] = 0 end end }";
    uint32_t version;
    CHECK_EQ(gb_lua_host_load(host, &version, "order_queue", NULL, NULL, both, strlen(both), &err), 0);
    gb_lua_info info = info_of(version);
    CHECK(!info.hooks[GB_HOOK_SELECT] && info.hooks[GB_HOOK_ORDER]);
    CHECK_EQ(gb_lua_host_activate(host, NULL, version, &err), 0);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), 0);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_ORDER), version);
    CHECK_EQ(gb_lua_host_activate(host, "select_engine", version, &err), GB_EINVAL);
    CHECK_EQ(version, shipped() + 1);
    CHECK_CONTAINS(err.text, "policy both v");
    CHECK_CONTAINS(err.text, " has no select_engine");
    CHECK_EQ(gb_lua_host_load(host, &version, "order_queue", NULL, "mine.lua", ALWAYS("1"), strlen(ALWAYS("1")), &err), GB_EINVAL);
    CHECK_STR(err.text, "mine.lua has no order_queue");
    CHECK_EQ(gb_lua_host_load(host, &version, "place", NULL, NULL, both, strlen(both), &err), GB_EINVAL);
    CHECK_STR(err.text, "\"place\" is no hook; hooks are select_engine, order_queue, score_expert and placement_cost");
    stop();
}

static void unknown_versions_and_names_are_refused_with_a_hint(void)
{
    start();
    CHECK_EQ(gb_lua_host_activate(host, NULL, 9999, &err), GB_ENOTFOUND);
    CHECK_STR(err.text, "there is no policy version 9999; policy_list shows them all");
    CHECK_EQ(gb_lua_host_use(host, NULL, "gimball", &err), GB_ENOTFOUND);
    CHECK_STR(err.text, "there is no policy \"gimball\"; did you mean gimbal?");
    CHECK_EQ(gb_lua_host_use(host, NULL, "zzzzzzzzzzzz", &err), GB_ENOTFOUND);
    CHECK_CONTAINS(err.text, "name a loaded policy, builtin, or a .lua file");
    CHECK_EQ(gb_lua_host_use(host, "select_engine", "fcfs", &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "policy fcfs v");
    CHECK_CONTAINS(err.text, " has no select_engine");
    CHECK_EQ(gb_lua_host_builtin(host, "place", &err), GB_EINVAL);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), 0);
    stop();
}

/* ---- files ---- */

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void make_dir(void)
{
    strcpy(dir, "/tmp/gimbal-policies-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
}

static void write_bytes(const char *name, const char *text, size_t bytes)
{
    FILE *file = fopen(in_dir(name), "w");
    CHECK(file != NULL);
    CHECK_EQ(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

static void write_file(const char *name, const char *text) { write_bytes(name, text, strlen(text)); }

static void remove_dir(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) unlink(in_dir(names[i]));
    CHECK_EQ(rmdir(dir), 0);
}

static void check_file_refused(const char *name, int status, const char *refusal)
{
    uint32_t version, before = gb_lua_host_count(host);
    CHECK_EQ(gb_lua_host_load_file(host, &version, NULL, in_dir(name), &err), status);
    CHECK_CONTAINS(err.text, refusal);
    CHECK_CONTAINS(err.text, dir);
    CHECK_EQ(gb_lua_host_count(host), before);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), named("gimbal"));    /* untouched */
}

static void bad_files_are_refused_and_the_active_policy_stays(void)
{
    static const char *const names[] = {"big.lua", "nul.lua", "bom.lua", "crlf.lua", "bytecode.lua", "empty.lua", "api.lua", "hook.lua", "fifo.lua", "params.lua"};
    start();
    make_dir();
    CHECK_EQ(gb_lua_host_use(host, NULL, "gimbal", &err), 0);
    check_file_refused("missing.lua", GB_ENOTFOUND, "missing.lua does not exist; check the path");
    check_file_refused(".", GB_EINVAL, "is a directory; a policy is one .lua file");
    CHECK_EQ(mkfifo(in_dir("fifo.lua"), 0600), 0);
    check_file_refused("fifo.lua", GB_EINVAL, "fifo.lua is not a regular file; a policy is one .lua file");
    write_file("big.lua", "");
    CHECK_EQ(truncate(in_dir("big.lua"), 10 << 20), 0);
    check_file_refused("big.lua", GB_ETOOBIG, "big.lua has 10485760 bytes; a policy has at most 262144");
    write_bytes("nul.lua", "local x = 1\nreturn '\0'", 21);
    check_file_refused("nul.lua", GB_EINVAL, "nul.lua:2: a NUL byte at offset 20; this is not a Lua text");
    write_file("bom.lua", "\xef\xbb\xbf" ALWAYS("1"));
    check_file_refused("bom.lua", GB_EINVAL, "bom.lua starts with a UTF-8 byte order mark; save it as UTF-8 without BOM");
    write_file("crlf.lua", "local policy = {}\r\nreturn policy\r\n");
    check_file_refused("crlf.lua", GB_EINVAL, "crlf.lua:1: a carriage return; save the file with Unix line ends (LF)");
    write_file("bytecode.lua", "\x1bLJ\x02");
    check_file_refused("bytecode.lua", GB_EINVAL, "bytecode.lua is Lua bytecode; only source text is accepted");
    write_file("empty.lua", "local policy = { api = 1 }");
    check_file_refused("empty.lua", GB_EPOLICY, "empty.lua: the file returned nil; end it with `return policy`");
    write_file("api.lua", "return { api = 7 }");
    check_file_refused("api.lua", GB_EPOLICY, "api.lua: the policy is written for api 7; this gimbal speaks api 1");
    write_file("hook.lua", "return { api = 1, select_engine = 5 }");
    check_file_refused("hook.lua", GB_EPOLICY, "hook.lua: policy.select_engine is 5; a hook must be a function");
    write_file("params.lua", "return { api = 1, params = { w = {} }, select_engine = function() end }");
    check_file_refused("params.lua", GB_EPOLICY, "params.lua: policy.params.w must be a number, a string or a boolean, got a table");
    remove_dir(names, sizeof names / sizeof *names);
    stop();
}

static void a_source_that_is_too_big_is_refused_in_memory_too(void)
{
    start();
    uint32_t version;
    char *source = malloc(GB_LUA_SOURCE_MAX + 1);
    memset(source, ' ', GB_LUA_SOURCE_MAX + 1);
    CHECK_EQ(gb_lua_host_load(host, &version, NULL, NULL, "big.lua", source, GB_LUA_SOURCE_MAX + 1, &err), GB_ETOOBIG);
    CHECK_STR(err.text, "big.lua has 262145 bytes; a policy has at most 262144");
    free(source);
    stop();
}

static void a_file_is_loaded_by_its_path_once_for_both_hooks(void)
{
    static const char *const names[] = {"mine.lua"};
    start();
    make_dir();
    write_file("mine.lua", "return { api = 1, select_engine = function() return 1 end,\n"
                           "order_queue = function(q) for i = 0, q.n - 1 do q.key[i] = 0 end end }");
    CHECK_EQ(gb_lua_host_use(host, "select_engine", in_dir("mine.lua"), &err), 0);
    CHECK_EQ(gb_lua_host_use(host, "order_queue", in_dir("mine.lua"), &err), 0);
    CHECK_EQ(gb_lua_host_count(host), shipped() + 1);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), shipped() + 1);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_ORDER), shipped() + 1);
    CHECK_STR(info_of(shipped() + 1).name, "mine");
    CHECK_EQ(gb_lua_host_use(host, NULL, in_dir("other.lua"), &err), GB_ENOTFOUND);
    remove_dir(names, 1);
    stop();
}

static void a_directory_gives_all_its_policies_in_order_of_names(void)
{
    static const char *const names[] = {"b.lua", "a.lua", "link.lua", "notes.txt", ".hidden.lua"};
    start();
    make_dir();
    write_file("b.lua", "return { api = 1, select_engine = function() return 1 end }");
    write_file("a.lua", ALWAYS("0"));
    write_file("notes.txt", "no Lua");
    write_file(".hidden.lua", "no Lua");
    CHECK_EQ(symlink("b.lua", in_dir("link.lua")), 0);    /* stays inside */
    CHECK_EQ(gb_lua_host_load_dir(host, dir, &err), 0);
    CHECK_EQ(gb_lua_host_count(host), shipped() + 3);
    CHECK_STR(info_of(shipped() + 1).name, "always");
    CHECK_STR(info_of(shipped() + 2).name, "b");
    CHECK_STR(info_of(shipped() + 3).name, "link");
    remove_dir(names, sizeof names / sizeof *names);
    stop();
}

static void check_dir_refused(int status, const char *refusal, const char *also)
{
    CHECK_EQ(gb_lua_host_load_dir(host, dir, &err), status);
    CHECK_CONTAINS(err.text, refusal);
    CHECK_CONTAINS(err.text, also);
    CHECK_EQ(gb_lua_host_count(host), shipped());    /* all or nothing */
}

static void a_directory_with_a_mistake_gives_nothing(void)
{
    static const char *const names[] = {"a.lua", "b.lua", "c.lua"};
    start();
    make_dir();
    write_file("a.lua", ALWAYS("0"));
    write_file("b.lua", ALWAYS("1"));
    check_dir_refused(GB_EEXIST, "b.lua both make a policy named always; rename one", "a.lua and ");
    unlink(in_dir("b.lua"));
    CHECK_EQ(symlink("/etc/hostname", in_dir("b.lua")), 0);
    check_dir_refused(GB_EINVAL, "b.lua is a link out of the policy directory, to /etc/hostname; copy the file into it", dir);
    unlink(in_dir("b.lua"));
    CHECK_EQ(symlink("nowhere", in_dir("b.lua")), 0);
    check_dir_refused(GB_EIO, "b.lua cannot be opened: No such file or directory", dir);
    write_file("c.lua", "return {");
    unlink(in_dir("b.lua"));
    check_dir_refused(GB_EPOLICY, "unexpected symbol near '<eof>'", "c.lua:1:");
    remove_dir(names, sizeof names / sizeof *names);
    CHECK_EQ(gb_lua_host_load_dir(host, dir, &err), GB_ENOTFOUND);
    CHECK_CONTAINS(err.text, "cannot be read: No such file or directory");
    stop();
}

/* ---- trying ---- */

static void a_version_decides_a_snapshot_without_deciding_anything_real(void)
{
    start();
    uint32_t version = load("return { api = 1, select_engine = function(request, engines)\n"
                            "if request.prompt_tokens == 7 then error('seven') end\n"
                            "return gimbal.now() == 5 and engines.n - 1 or nil end }");
    gb_request_row request = {.prompt_tokens = 6};
    gb_lua_snapshot *snapshot = NULL;
    gb_lua_trial trial;
    CHECK_EQ(gb_lua_snapshot_take(&snapshot, GB_HOOK_SELECT, &request, &gb_server_tables(server)->engines, NULL, 5), 0);
    gb_rng_init(&snapshot->rng, 1);
    CHECK_EQ(gb_lua_host_try(host, version, snapshot, &trial, &err), 0);
    CHECK_EQ(trial.answer, gb_server_tables(server)->engines.n - 1);
    CHECK_STR(trial.fault, "");
    snapshot->tables.request.prompt_tokens = 7;
    CHECK_EQ(gb_lua_host_try(host, version, snapshot, &trial, &err), 0);
    CHECK_EQ(trial.answer, GB_POLICY_FAULT);
    CHECK_EQ(trial.fault_kind, GB_LUA_FAULT_ERROR);
    CHECK_STR(trial.fault, "mine.lua:2: seven\n  in select_engine (mine.lua:2)");
    CHECK_EQ(info_of(version).calls, 0);
    CHECK_EQ(info_of(version).faults, 0);
    CHECK_EQ(gb_lua_host_try(host, 99, snapshot, &trial, &err), GB_ENOTFOUND);
    CHECK_EQ(gb_lua_host_try(host, named("fcfs"), snapshot, &trial, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "has no select_engine");
    gb_lua_snapshot_free(snapshot);
    stop();
}

/* ---- log ---- */

static char lines[4096];

static void keep_line(void *self, gb_log_level level, const char *line)
{
    (void)self;
    (void)level;
    size_t used = strlen(lines);
    snprintf(lines + used, sizeof lines - used, "%s\n", line);
}

static void every_change_of_who_decides_is_logged_with_its_digest(void)
{
    start();
    lines[0] = 0;
    gb_log_set_sink(keep_line, NULL, GB_LOG_INFO);
    CHECK_EQ(gb_lua_host_use(host, "order_queue", "fcfs", &err), 0);
    char expected[256];
    snprintf(expected, sizeof expected, "policy fcfs v%u decides order_queue (by start, sha256 %s)\n", named("fcfs"),
             info_of(named("fcfs")).sha256);
    CHECK_STR(lines, expected);
    lines[0] = 0;
    CHECK_EQ(gb_lua_host_builtin(host, NULL, &err), 0);
    CHECK_STR(lines, "the built-in policy decides order_queue (by start)\n");
    gb_log_set_sink(NULL, NULL, GB_LOG_INFO);
    stop();
}

TESTS(TEST(shipped_policies_are_loaded_and_none_decides_yet), TEST(an_active_script_decides_in_the_real_server),
      TEST(round_robin_takes_turns), TEST(keys_decide_who_is_served_first),
      TEST(loading_changes_no_decision_and_activating_changes_the_next),
      TEST(a_fault_is_answered_by_the_built_in_for_that_decision_only), TEST(the_built_in_takes_over_again_when_asked),
      TEST(a_host_that_goes_leaves_the_built_in_behind), TEST(two_hundred_swaps_under_load_lose_no_decision),
      TEST(only_the_latest_idle_versions_keep_a_vm_and_the_others_come_back_when_needed),
      TEST(the_oldest_idle_version_is_forgotten_when_there_are_too_many), TEST(a_version_keeps_its_source_and_its_digest),
      TEST(names_come_from_the_caller_then_the_script_then_the_file), TEST(a_long_path_is_named_by_its_end), TEST(a_load_may_keep_one_hook_of_a_script),
      TEST(unknown_versions_and_names_are_refused_with_a_hint), TEST(bad_files_are_refused_and_the_active_policy_stays),
      TEST(a_source_that_is_too_big_is_refused_in_memory_too), TEST(a_file_is_loaded_by_its_path_once_for_both_hooks),
      TEST(a_directory_gives_all_its_policies_in_order_of_names), TEST(a_directory_with_a_mistake_gives_nothing),
      TEST(a_version_decides_a_snapshot_without_deciding_anything_real), TEST(every_change_of_who_decides_is_logged_with_its_digest))
