#include "bindings/lua/lua_host_parts.h"

#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/log.h"
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
}

static void stop(void)
{
    gb_lua_host_free(host);
    host = NULL;
    gb_server_free(server);
    fake_deinit(&f);
}

static uint32_t load(const char *source)
{
    uint32_t version = 0;
    CHECK_EQ(gb_lua_host_load(host, &version, NULL, "mine", "mine.lua", source, strlen(source), &err), 0);
    if (!version) printf("    %s\n", err.text);
    return version;
}

static void activate(uint32_t version, gb_time now)
{
    CHECK_EQ(gb_lua_host_switch(host, version, &(gb_lua_change){.now = now}, &err), 0);
}

static gb_lua_info info_of(uint32_t version)
{
    gb_lua_info info = {0};
    CHECK_EQ(gb_lua_host_find(host, version, &info), 0);
    return info;
}

static uint32_t submit_at(gb_time now)
{
    gb_request request = fake_request(8, 1);
    gb_request_id id = fake_submit(server, &request, now);
    gb_request_info info = {0};
    for (uint32_t cursor = 0; gb_server_request_next(server, &cursor, &info);) {
        if (info.id == id) break;
    }
    return info.engine;
}

static uint32_t finish(gb_time now)
{
    uint32_t done = 0;
    gb_event event;
    while (fake_round(&f, server, now, now)) {
        while (gb_server_poll_event(server, &event)) done += event.kind == GB_EVENT_DONE;
    }
    return done;
}

#define POLICY(body) "local policy = { api = 1, params = { engine = 1, name = 'x', on = true } }\n" body "\nreturn policy"
#define ALWAYS(engine) POLICY("function policy.select_engine() return " engine " end")
/* Well behaved at the probe, whose time is short; a fault from second 100 on. */
#define LATER(bad) POLICY("function policy.select_engine(request, engines)\nif gimbal.now() >= 1e11 then " bad " end return 1 end")

#define ORDER_LATER(bad) POLICY("function policy.order_queue(queue)\nif gimbal.now() >= 1e11 then " bad " end\n" \
                                "if gimbal.now() < 1e11 then for i = 0, queue.n - 1 do queue.key[i] = 1 end end end")

/* ---- faults and quarantine ---- */

static void faults_are_counted_by_hook_and_kind(void)
{
    static const struct {
        const char *source;
        gb_lua_fault_kind kind;
    } cases[] = {
        {LATER("return 'one'"), GB_LUA_FAULT_TYPE},
        {LATER("return 99"), GB_LUA_FAULT_RANGE},
        {LATER("return 0 / 0"), GB_LUA_FAULT_NAN},
        {LATER("error('no')"), GB_LUA_FAULT_ERROR},
        {LATER("local function deep() return 1 + deep() end return deep()"), GB_LUA_FAULT_STACK},
        {POLICY("local kept, text = {}, string.rep('x', 65536)\nfunction policy.select_engine()\n"
                "if gimbal.now() >= 1e11 then for i = 1, 4 do kept[#kept + 1] = text .. #kept end end return 1 end"),
         GB_LUA_FAULT_MEMORY},
    };
    bool slow = strcmp(gb_lua_host_prepare(), "none") == 0;    /* a sanitizer: filling a stack takes longer than the budget */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (slow && cases[i].kind == GB_LUA_FAULT_STACK) continue;
        start();
        uint32_t version = load(cases[i].source);
        activate(version, 1);
        for (int tries = 0; tries < 500 && info_of(version).faults == 0; tries++) {
            submit_at(gb_seconds(100));
            CHECK_EQ(finish(gb_seconds(100)), 1);
        }
        gb_lua_info info = info_of(version);
        for (int kind = 0; kind < GB_LUA_FAULT_KINDS; kind++) {
            CHECK_EQ(info.faults_by[GB_HOOK_SELECT][kind], kind == (int)cases[i].kind);
            CHECK_EQ(info.faults_by[GB_HOOK_ORDER][kind], 0);
        }
        stop();
    }
}

static void three_faults_within_ten_seconds_quarantine_a_version(void)
{
    start();
    uint32_t version = load(LATER("error('no')"));
    activate(version, 1);
    uint64_t generation = gb_lua_host_generation(host);
    for (uint64_t second = 100; second < 150; second += 5) { /* never the third within ten */
        submit_at(gb_seconds(second));
        CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), version);
    }
    submit_at(gb_seconds(149));
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), 0);
    CHECK_EQ(gb_server_policy(server, GB_HOOK_SELECT)->version, 0);
    CHECK_EQ(info_of(version).state, GB_LUA_QUARANTINED);
    CHECK_EQ(gb_lua_host_generation(host), generation + 1);
    uint64_t faults = info_of(version).faults;
    for (int i = 0; i < 10; i++) submit_at(gb_seconds(150));
    CHECK_EQ(info_of(version).faults, faults); /* nobody asks it any more */
    finish(gb_seconds(150));
    stop();
}

/* A policy that is wrong in any way for three decisions is not asked a fourth time, and no request suffers. */
static void every_kind_of_invalid_answer_leads_to_quarantine(void)
{
    static const struct {
        const char *source;
        gb_hook hook;
        gb_lua_fault_kind kind;
    } cases[] = {
        {LATER("return 99"), GB_HOOK_SELECT, GB_LUA_FAULT_RANGE},
        {LATER("return 0.5"), GB_HOOK_SELECT, GB_LUA_FAULT_RANGE},
        {LATER("return 0 / 0"), GB_HOOK_SELECT, GB_LUA_FAULT_NAN},
        {LATER("return {}"), GB_HOOK_SELECT, GB_LUA_FAULT_TYPE},
        {LATER("return 0"), GB_HOOK_SELECT, GB_LUA_FAULT_DOWN},
        {ORDER_LATER("queue.key[0] = 0 / 0"), GB_HOOK_ORDER, GB_LUA_FAULT_NAN},
        {ORDER_LATER("queue.key[0] = math.huge"), GB_HOOK_ORDER, GB_LUA_FAULT_NAN},
        {ORDER_LATER("return 1"), GB_HOOK_ORDER, GB_LUA_FAULT_TYPE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start();
        uint32_t version = load(cases[i].source);
        activate(version, 1);
        gb_server_engine_down(server, 0, gb_seconds(100));
        for (int decision = 0; decision < 5; decision++) {
            CHECK_EQ(gb_lua_host_active(host, cases[i].hook), decision < 3 ? version : 0);
            CHECK_EQ(submit_at(gb_seconds(100)), 1);
            CHECK_EQ(finish(gb_seconds(100)), 1);
        }
        CHECK_EQ(info_of(version).state, GB_LUA_QUARANTINED);
        CHECK_EQ(info_of(version).faults_by[cases[i].hook][cases[i].kind], 3);
        stop();
    }
}

static void an_answer_is_good_again_once_the_engine_is_up(void)
{
    start();
    uint32_t version = load(ALWAYS("0"));    /* it overlooks engines that are down, and is loaded all the same */
    activate(version, 1);
    gb_server_engine_down(server, 0, 2);
    CHECK_EQ(submit_at(2), 1);
    gb_server_engine_up(server, 0);
    CHECK_EQ(submit_at(3), 0);
    CHECK_EQ(info_of(version).faults, 1);
    CHECK_CONTAINS(info_of(version).last_fault, "select_engine returned 0, an engine that is down; look at engines.healthy[i]");
    CHECK_EQ(finish(3), 2);
    stop();
}

static void a_quarantined_source_is_not_tried_again_unless_someone_insists(void)
{
    start();
    uint32_t version = load(LATER("error('no')"));
    activate(version, 1);
    for (int i = 0; i < 3; i++) submit_at(gb_seconds(100));
    CHECK_EQ(gb_lua_host_activate(host, NULL, version, &err), GB_EPOLICY);
    CHECK_CONTAINS(err.text, "is quarantined for its faults; load a mended source, or activate it with force: mine.lua:3: no");
    uint32_t again = load(LATER("error('no')")); /* the same bytes under a new number */
    CHECK_EQ(info_of(again).state, GB_LUA_QUARANTINED);
    CHECK_EQ(gb_lua_host_activate(host, NULL, again, &err), GB_EPOLICY);
    uint32_t mended = load(LATER("return 0"));
    CHECK_EQ(gb_lua_host_activate(host, NULL, mended, &err), 0);
    CHECK_EQ(gb_lua_host_switch(host, again, &(gb_lua_change){.force = true}, &err), 0);
    CHECK_EQ(info_of(again).state, GB_LUA_ACTIVE);
    CHECK_EQ(info_of(version).state, GB_LUA_READY);
    finish(gb_seconds(100));
    stop();
}

static void a_quarantine_goes_back_to_the_version_that_was_healthy_for_a_minute(void)
{
    for (int healthy = 0; healthy < 2; healthy++) {
        start();
        uint32_t good = load(ALWAYS("0")), bad = load(LATER("error('no')"));
        activate(good, gb_seconds(1));
        activate(bad, gb_seconds(healthy ? 61 : 60));
        for (int i = 0; i < 3; i++) submit_at(gb_seconds(100) + 1);
        CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), healthy ? good : 0);
        if (healthy) CHECK_EQ(submit_at(gb_seconds(101)), 0);
        finish(gb_seconds(101));
        stop();
    }
}

static void one_decision_over_its_time_is_enough_for_quarantine(void)
{
    if (strcmp(gb_lua_host_prepare(), "none") == 0) return; /* no interrupts under this sanitizer */
    start();
    uint32_t version = load(LATER("while true do end"));
    activate(version, 1);
    submit_at(gb_seconds(100));
    CHECK_EQ(info_of(version).state, GB_LUA_QUARANTINED);
    CHECK_EQ(info_of(version).faults_by[GB_HOOK_SELECT][GB_LUA_FAULT_TIME], 1);
    CHECK_EQ(finish(gb_seconds(100)), 1);
    stop();
}

static void a_fault_keeps_what_the_hook_saw_so_that_it_happens_again(void)
{
    start();
    const char *source = POLICY("function policy.select_engine(request, engines)\n"
                                "local luck = gimbal.random()\n"
                                "if gimbal.now() >= 1e11 then error('luck is ' .. luck) end return 1 end");
    uint32_t version = load(source);
    activate(version, 1);
    submit_at(gb_seconds(1));
    submit_at(gb_seconds(100));
    uint64_t seq = 0;
    const gb_lua_fault *fault = gb_lua_log_next_fault(gb_lua_host_log(host), &seq);
    CHECK(fault != NULL);
    if (!fault) return;
    CHECK_EQ(fault->seq, 1);
    CHECK_EQ(fault->hook, GB_HOOK_SELECT);
    CHECK_EQ(fault->version, version);
    CHECK_EQ(fault->at, gb_seconds(100));
    CHECK_STR(fault->sha256, info_of(version).sha256);
    CHECK_CONTAINS(fault->message, "mine.lua:4: luck is 0.");
    char *text = gb_lua_snapshot_write(gb_lua_log_snapshot(gb_lua_host_log(host), 1));
    gb_lua_snapshot *snapshot = NULL;
    CHECK_EQ(gb_lua_snapshot_read(&snapshot, "fault", text, strlen(text), &err), 0);
    CHECK_EQ(snapshot->n_params, 3);
    CHECK_EQ(snapshot->fault.decision, 2);
    CHECK_STR(snapshot->fault.message, fault->message);
    gb_lua_trial trial;
    CHECK_EQ(gb_lua_host_try(host, load(source), snapshot, &trial, &err), 0);
    CHECK_STR(trial.fault, fault->message);
    CHECK_CONTAINS(text, "\"prompt_tokens\":8.0");
    free(text);
    gb_lua_snapshot_free(snapshot);
    finish(gb_seconds(100));
    stop();
}

/* ---- generations ---- */

static void a_change_that_expects_another_generation_is_refused(void)
{
    start();
    uint32_t first = load(ALWAYS("0")), second = load(ALWAYS("1"));
    uint64_t seen = gb_lua_host_generation(host);
    gb_lua_change change = {.expected_generation = &seen};
    CHECK_EQ(gb_lua_host_switch(host, first, &change, &err), 0);
    CHECK_EQ(gb_lua_host_generation(host), seen + 1);
    CHECK_EQ(gb_lua_host_switch(host, second, &change, &err), GB_EVERSION);
    CHECK_CONTAINS(err.text, "the policies are at generation 1, not 0");
    CHECK_EQ(gb_lua_host_rollback(host, &change, &err), GB_EVERSION);
    CHECK_EQ(gb_lua_host_set(host, first, "engine", &(gb_lua_value){.number = 0}, &change, &err), GB_EVERSION);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), first);
    seen = gb_lua_host_generation(host);
    CHECK_EQ(gb_lua_host_switch(host, second, &change, &err), 0);
    stop();
}

static void a_rollback_goes_back_and_forth_between_two_versions(void)
{
    start();
    gb_lua_change any = {0};
    CHECK_EQ(gb_lua_host_rollback(host, &any, &err), GB_ENOTFOUND);
    CHECK_STR(err.text, "no hook has nothing to go back to: no other policy decided before");
    const char *counting = POLICY("local n = 0 function policy.select_engine() n = n + 1 return n > 2 and 1 or 0 end");
    uint32_t first = load(counting), second = load(ALWAYS("1"));
    activate(first, 1);
    submit_at(1), submit_at(1);
    activate(second, 2);
    CHECK_EQ(info_of(first).state, GB_LUA_STANDBY);
    CHECK(info_of(first).standby[GB_HOOK_SELECT]);
    for (int i = 0; i < 10; i++) load(ALWAYS("0")); /* a standby keeps its VM, whatever comes */
    CHECK_EQ(gb_lua_host_rollback(host, &any, &err), 0);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), first);
    CHECK_EQ(submit_at(3), 1); /* its third decision: it kept its state */
    CHECK_EQ(gb_lua_host_rollback(host, &(gb_lua_change){.hook = "select_engine"}, &err), 0);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), second);
    finish(3);
    stop();
}

static void the_red_button_stops_every_script_and_can_be_taken_back(void)
{
    start();
    CHECK_EQ(gb_lua_host_use(host, NULL, "gimbal", &err), 0);
    uint32_t version = gb_lua_host_active(host, GB_HOOK_SELECT);
    CHECK_EQ(gb_lua_host_switch(host, 0, &(gb_lua_change){.who = "signal"}, &err), 0);
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        CHECK_EQ(gb_lua_host_active(host, (gb_hook)hook), 0);
        CHECK_EQ(gb_server_policy(server, (gb_hook)hook)->version, 0);
    }
    CHECK_EQ(gb_lua_host_rollback(host, &(gb_lua_change){0}, &err), 0);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), version);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_ORDER), version);
    stop();
}

/* ---- params ---- */

static void a_param_changes_the_next_decision_without_a_reload(void)
{
    start();
    uint32_t version = load(POLICY("function policy.select_engine() return policy.params.on and policy.params.engine or 0 end"));
    activate(version, 1);
    gb_lua_change any = {0};
    CHECK_EQ(submit_at(1), 1);
    CHECK_EQ(gb_lua_host_set(host, version, "engine", &(gb_lua_value){.number = 0}, &any, &err), 0);
    CHECK_EQ(submit_at(1), 0);
    CHECK_EQ(gb_lua_host_set(host, version, "engine", &(gb_lua_value){.type = GB_LUA_TEXT, .text = "one"}, &any, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "params.engine of policy mine");
    CHECK_CONTAINS(err.text, "is a number, not a string");
    CHECK_EQ(gb_lua_host_set(host, version, "engine", &(gb_lua_value){.number = NAN}, &any, &err), GB_EINVAL);
    CHECK_EQ(gb_lua_host_set(host, version, "engin", &(gb_lua_value){.number = 1}, &any, &err), GB_ENOTFOUND);
    CHECK_CONTAINS(err.text, "has no param \"engin\"; did you mean engine?");
    CHECK_EQ(gb_lua_host_set(host, 99, "engine", &(gb_lua_value){.number = 1}, &any, &err), GB_ENOTFOUND);
    char name[GB_LUA_NAME_MAX + 1];
    gb_lua_value value;
    CHECK(gb_lua_host_param(host, version, 0, name, &value) && strcmp(name, "engine") == 0 && value.number == 0);
    CHECK(gb_lua_host_param(host, version, 1, name, &value) && strcmp(name, "name") == 0 && strcmp(value.text, "x") == 0);
    CHECK(gb_lua_host_param(host, version, 2, name, &value) && strcmp(name, "on") == 0 && value.boolean);
    CHECK(!gb_lua_host_param(host, version, 3, name, &value));
    finish(1);
    stop();
}

static void a_changed_param_survives_the_retirement_of_its_vm(void)
{
    start();
    uint32_t version = load(POLICY("function policy.select_engine() return policy.params.engine end"));
    gb_lua_change any = {0};
    CHECK_EQ(gb_lua_host_set(host, version, "engine", &(gb_lua_value){.number = 0}, &any, &err), 0);
    for (int i = 0; i <= GB_LUA_WARM_MAX; i++) load(ALWAYS("1"));
    CHECK_EQ(info_of(version).state, GB_LUA_RETIRED);
    activate(version, 1);
    CHECK_EQ(submit_at(1), 0);
    finish(1);
    stop();
}

/* ---- state ---- */

#define COUNTS(extra) \
    POLICY("local n = 0\nfunction policy.select_engine() n = n + 1 return n > 3 and 1 or 0 end\n" \
           "function policy.export() return { n = n, deep = { { true, 'text', 0.5 } } } end\n" \
           "function policy.import(state, from) assert(state.deep[1][2] == 'text' and from > 0) n = state.n " extra " end")

static void state_goes_from_the_old_version_to_the_new(void)
{
    start();
    uint32_t old = load(COUNTS("")), new = load(COUNTS("+ 0"));
    activate(old, 1);
    for (int i = 0; i < 3; i++) CHECK_EQ(submit_at(1), 0);
    activate(new, 2);
    CHECK_EQ(submit_at(2), 1); /* the fourth */
    finish(2);
    stop();
}

static void check_not_taken_over(const char *from, const char *to, int status, const char *why)
{
    start();
    uint32_t old = load(from), new = load(to);
    activate(old, 1);
    uint64_t generation = gb_lua_host_generation(host);
    CHECK_EQ(gb_lua_host_activate(host, NULL, new, &err), status);
    CHECK_CONTAINS(err.text, why);
    CHECK_CONTAINS(err.text, "which goes on");
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), old);
    CHECK_EQ(gb_lua_host_generation(host), generation);
    CHECK_EQ(gb_lua_host_switch(host, new, &(gb_lua_change){.force = true}, &err), 0); /* without the state */
    submit_at(2);
    CHECK_EQ(finish(2), 1);
    stop();
}

#define EXPORTS(body) POLICY("function policy.select_engine() return 0 end function policy.export() " body " end")

static void a_state_that_cannot_be_taken_over_leaves_the_old_version_active(void)
{
    const char *imports = COUNTS("");
    check_not_taken_over(COUNTS(""), COUNTS("error('too old')"), GB_EPOLICY, "mine.lua:5: too old");
    check_not_taken_over(EXPORTS("error('no')"), imports, GB_EPOLICY, "mine.lua:2: no");
    check_not_taken_over(EXPORTS("return { a = { b = print_it or function() end } }"), imports, GB_EPOLICY, "print_it");
    check_not_taken_over(EXPORTS("return { a = { b = function() end } }"), imports, GB_EPOLICY,
                         "state.a.b is a function; state is numbers");
    check_not_taken_over(EXPORTS("local t = {} t[1] = t return t"), imports, GB_EPOLICY, "tables lie more than 16 deep");
    check_not_taken_over(EXPORTS("return { [{}] = 1 }"), imports, GB_EPOLICY, "a key is a table");
    check_not_taken_over(EXPORTS("local t = {} for i = 1, 30000 do t[i] = i end return t"), imports, GB_ETOOBIG,
                         "more than 262144 bytes");
}

static void a_version_without_import_takes_over_without_state(void)
{
    start();
    uint32_t old = load(COUNTS("")), new = load(ALWAYS("1"));
    activate(old, 1);
    activate(new, 1);
    activate(old, 2);
    CHECK_EQ(submit_at(2), 0);
    finish(2);
    stop();
}

/* ---- continuity ---- */

/* Every decision has its number, and is the active version's. */
static void swaps_and_reloads_under_load_lose_and_repeat_no_decision(void)
{
    start();
    uint64_t expected = 0, finished = 0;
    for (uint32_t swap = 0; swap < 200; swap++) {
        const char *source = swap % 2 ? ALWAYS("1") : ALWAYS("0");
        uint32_t broken = 0, version = load(source);
        if (swap % 2) CHECK_EQ(gb_lua_host_load(host, &broken, NULL, NULL, "x.lua", source, strlen(source) - 3, &err), GB_EPOLICY);
        activate(version, gb_ms(swap + 1));
        for (int i = 0; i < 5; i++) {
            CHECK_EQ(submit_at(gb_ms(swap + 1)), swap % 2);
            uint64_t seq = expected++;
            const gb_lua_decision *decision = gb_lua_log_next_decision(gb_lua_host_log(host), &seq);
            CHECK(decision && decision->seq == expected && decision->version == version && decision->answer == (int)(swap % 2));
        }
        finished += finish(gb_ms(swap + 1));
    }
    gb_server_stats stats;
    gb_server_stats_get(server, &stats);
    CHECK_EQ(stats.hooks[GB_HOOK_SELECT].calls, expected);
    CHECK_EQ(stats.hooks[GB_HOOK_SELECT].nils + stats.hooks[GB_HOOK_SELECT].faults, 0);
    CHECK_EQ(gb_lua_log_decisions(gb_lua_host_log(host)), expected);
    CHECK_EQ(finished, expected);
    stop();
}

static long maps(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    long lines = 0;
    for (int c; file && (c = fgetc(file)) != EOF;) lines += c == '\n';
    if (file) fclose(file);
    return lines;
}

/* What may come after the ring of versions is full; none of it depends on how many reloads there are. */
enum { SETTLED_AFTER = 300, RELOADS = 1000, MAPS_MORE = 4, HEAP_BYTES_MORE = 64 << 10, RESIDENT_BYTES_MORE = 4 << 20 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KEEPS_MEMORY true    /* of its own */
#else
#define KEEPS_MEMORY false
#endif

static long resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%*s %ld", &pages) == 1);
    if (file) fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Every second reload is a broken file, every one that is not has bytes of its own. */
static void a_thousand_reloads_leave_memory_as_it_was(void)
{
    start();
    char source[256];
    long mapped = 0, resident = 0;
    size_t used = 0;
    for (int i = 0; i < SETTLED_AFTER + RELOADS; i++) {
        uint32_t broken = 0;
        snprintf(source, sizeof source, "%s\n-- %d", ALWAYS("1"), i);
        activate(load(source), (gb_time)i + 1);
        CHECK_EQ(submit_at((gb_time)i + 1), 1);
        CHECK_EQ(finish((gb_time)i + 1), 1);
        if (i % 2) CHECK_EQ(gb_lua_host_load(host, &broken, NULL, NULL, "x.lua", "return { api = ", 15, &err), GB_EPOLICY);
        if (i < SETTLED_AFTER) continue;
        if (i == SETTLED_AFTER) mapped = maps(), used = mallinfo2().uordblks, resident = resident_bytes();
        CHECK_EQ(gb_lua_host_count(host), GB_LUA_VERSIONS_MAX);
    }
    CHECK(KEEPS_MEMORY || maps() <= mapped + MAPS_MORE);
    CHECK(mallinfo2().uordblks <= used + HEAP_BYTES_MORE);
    CHECK(KEEPS_MEMORY || resident_bytes() <= resident + RESIDENT_BYTES_MORE);
    stop();
}

static void changes_are_remembered_with_who_made_them(void)
{
    start();
    uint32_t version = load(ALWAYS("1"));
    CHECK_EQ(gb_lua_host_switch(host, version, &(gb_lua_change){.who = "unix socket", .now = 5}, &err), 0);
    CHECK_EQ(gb_lua_host_switch(host, 0, &(gb_lua_change){.who = "signal", .now = 6}, &err), 0);
    static const struct {
        gb_lua_event_kind kind;
        const char *who;
    } expected[] = {{GB_LUA_EVENT_LOAD, "start"}, {GB_LUA_EVENT_ACTIVATE, "unix socket"}, {GB_LUA_EVENT_BUILTIN, "signal"}};
    uint64_t seq = 0;
    for (int i = 0; i < 3; i++) {
        const gb_lua_event *event = gb_lua_log_next_event(gb_lua_host_log(host), &seq);
        CHECK(event && event->kind == expected[i].kind);
        if (!event) break;
        CHECK_STR(event->who, expected[i].who);
        CHECK_EQ(event->version, i < 2 ? version : 0);
    }
    CHECK(gb_lua_log_next_event(gb_lua_host_log(host), &seq) == NULL);
    stop();
}

static uint32_t events(void) { return (uint32_t)gb_lua_log_events(gb_lua_host_log(host)); }

static const gb_lua_event *last_event(void)
{
    uint64_t before = events() - 1;
    return gb_lua_log_next_event(gb_lua_host_log(host), &before);
}

static void one_change_is_one_event_however_many_hooks_it_moves(void)
{
    start();
    uint32_t both = load(POLICY("function policy.select_engine() end function policy.order_queue() end")), before = events();
    uint64_t generation = gb_lua_host_generation(host);
    activate(both, 1);
    CHECK_EQ(events(), before + 1);
    CHECK_CONTAINS(last_event()->text, "decides select_engine and order_queue");
    activate(both, 2);    /* it does already */
    CHECK_EQ(events(), before + 1);
    CHECK_EQ(gb_lua_host_generation(host), generation + 1);
    CHECK_EQ(gb_lua_host_builtin(host, NULL, &err), 0);
    CHECK_EQ(events(), before + 2);
    CHECK_CONTAINS(last_event()->text, "the built-in policy decides select_engine and order_queue");
    CHECK_EQ(gb_lua_host_builtin(host, NULL, &err), 0);
    CHECK_EQ(events(), before + 2);
    CHECK_EQ(gb_lua_host_rollback(host, &(gb_lua_change){0}, &err), 0);
    CHECK_EQ(events(), before + 3);
    CHECK_EQ(last_event()->kind, GB_LUA_EVENT_ROLLBACK);
    CHECK_CONTAINS(last_event()->text, "which decides select_engine and order_queue");
    stop();
}

TESTS(TEST(faults_are_counted_by_hook_and_kind), TEST(three_faults_within_ten_seconds_quarantine_a_version),
      TEST(every_kind_of_invalid_answer_leads_to_quarantine),
      TEST(an_answer_is_good_again_once_the_engine_is_up),
      TEST(a_quarantined_source_is_not_tried_again_unless_someone_insists),
      TEST(a_quarantine_goes_back_to_the_version_that_was_healthy_for_a_minute),
      TEST(one_decision_over_its_time_is_enough_for_quarantine), TEST(a_fault_keeps_what_the_hook_saw_so_that_it_happens_again),
      TEST(a_change_that_expects_another_generation_is_refused), TEST(a_rollback_goes_back_and_forth_between_two_versions),
      TEST(the_red_button_stops_every_script_and_can_be_taken_back), TEST(a_param_changes_the_next_decision_without_a_reload),
      TEST(a_changed_param_survives_the_retirement_of_its_vm), TEST(state_goes_from_the_old_version_to_the_new),
      TEST(a_state_that_cannot_be_taken_over_leaves_the_old_version_active), TEST(a_version_without_import_takes_over_without_state),
      TEST(swaps_and_reloads_under_load_lose_and_repeat_no_decision), TEST(a_thousand_reloads_leave_memory_as_it_was),
      TEST(changes_are_remembered_with_who_made_them), TEST(one_change_is_one_event_however_many_hooks_it_moves))
