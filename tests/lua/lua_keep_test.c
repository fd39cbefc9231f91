#include "bindings/lua/lua_host_parts.h"

#include <stdlib.h>

#include "core/base/log.h"
#include "tests/check.h"
#include "tests/serve/fake.h"

static fake f;
static gb_server *server;
static gb_lua_host *host;
static gb_error err;
static char dir[64], lines[8192];

#define POLICY(name, body) "local policy = { api = 1, name = '" name "', params = { engine = 1, label = 'x', on = true } }\n" body "\nreturn policy"
#define SELECTS "function policy.select_engine() return policy.params.engine end "
#define ORDERS "function policy.order_queue(q) for i = 0, q.n - 1 do q.key[i] = i end end "
/* Well behaved at the probe, whose time is short. */
#define FAILS "function policy.select_engine() if gimbal.now() >= 1e11 then error('no') end return 1 end "

static void listen_to(void *self, gb_log_level level, const char *line)
{
    (void)self;
    (void)level;
    size_t n = strlen(lines);
    snprintf(lines + n, sizeof lines - n, "%s\n", line);
}

static void new_directory(void)
{
    snprintf(dir, sizeof dir, "/tmp/gimbal_keep_XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
}

static void remove_directory(void)
{
    char command[192];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK_EQ(system(command), 0);
}

/* As a server starts: the store, what the options name, then what decided last. */
static void start(const char *select)
{
    gb_server_options options;
    fake_options(&options);
    fake_init(&f, &options);
    lines[0] = err.text[0] = 0;
    gb_log_set_sink(listen_to, NULL, GB_LOG_INFO);
    CHECK_EQ(gb_server_new(&server, &options, &err), 0);
    CHECK_EQ(gb_lua_host_new(&host, server, 1, &err), 0);
    CHECK_EQ(gb_lua_host_open_store(host, dir, &err), 0);
    if (select) CHECK_EQ(gb_lua_host_use(host, "select_engine", select, &err), 0);
    gb_lua_host_restore(host);
}

static void stop(void)
{
    gb_lua_host_free(host);
    gb_server_free(server);
    fake_deinit(&f);
    gb_log_set_sink(NULL, NULL, GB_LOG_INFO);
}

static void restart(const char *select)
{
    stop();
    start(select);
}

static const gb_lua_change operator = {.who = "tester"};

static uint32_t put(const char *source)
{
    uint32_t version = 0;
    CHECK_EQ(gb_lua_host_put(host, &version, NULL, "mine.lua", source, strlen(source), &operator, &err), 0);
    if (!version) printf("    %s\n", err.text);
    return version;
}

static void activate(uint32_t version, const char *hook)
{
    CHECK_EQ(gb_lua_host_switch(host, version, &(gb_lua_change){.who = "tester", .hook = hook}, &err), 0);
}

static const char *decider(gb_hook hook)
{
    static gb_lua_info info;
    uint32_t version = gb_lua_host_active(host, hook);
    if (!version) return "builtin";
    CHECK_EQ(gb_lua_host_find(host, version, &info), 0);
    return info.name;
}

static double engine_param(uint32_t version)
{
    char name[GB_LUA_NAME_MAX + 1];
    gb_lua_value value = {0};
    CHECK(gb_lua_host_param(host, version, 0, name, &value));
    CHECK_STR(name, "engine");
    return value.number;
}

static void fail_three_times(void)
{
    for (int i = 0; i < 3; i++) {
        gb_request request = fake_request(8, 1);
        gb_event event;
        fake_submit(server, &request, gb_seconds(100));
        while (fake_round(&f, server, gb_seconds(100), gb_seconds(100)))
            while (gb_server_poll_event(server, &event)) continue;
    }
}

static uint32_t count_of(const char *name, gb_lua_state state)
{
    uint32_t n = 0;
    gb_lua_info info;
    for (uint32_t i = 0; gb_lua_host_info(host, i, &info) == GB_OK; i++) n += strcmp(info.name, name) == 0 && info.state == state;
    return n;
}

/* ---- what comes back ---- */

static void what_decided_decides_again_with_the_params_that_were_set(void)
{
    gb_lua_value two = {.number = 0}, text = {.type = GB_LUA_TEXT, .text = "a \"b\"\n"}, off = {.type = GB_LUA_BOOLEAN};
    new_directory();
    start("gimbal");
    uint32_t version = put(POLICY("mine", SELECTS ORDERS));
    activate(version, NULL);
    CHECK_EQ(gb_lua_host_set(host, version, "engine", &two, &operator, &err), 0);
    CHECK_EQ(gb_lua_host_set(host, version, "label", &text, &operator, &err), 0);
    CHECK_EQ(gb_lua_host_set(host, version, "on", &off, &operator, &err), 0);
    for (int times = 0; times < 2; times++) {
        char name[GB_LUA_NAME_MAX + 1];
        gb_lua_value value;
        restart("gimbal");
        CHECK_STR(decider(GB_HOOK_SELECT), "mine");
        CHECK_STR(decider(GB_HOOK_ORDER), "mine");
        CHECK_CONTAINS(lines, "restores what decided last");
        uint32_t again = gb_lua_host_active(host, GB_HOOK_SELECT);
        CHECK_NEAR(engine_param(again), 0, 0);
        CHECK(gb_lua_host_param(host, again, 1, name, &value));
        CHECK_STR(value.text, text.text);
        CHECK(gb_lua_host_param(host, again, 2, name, &value));
        CHECK(!value.boolean);
    }
    stop();
    remove_directory();
}

static void hooks_that_nobody_changed_follow_the_options(void)
{
    new_directory();
    start("gimbal");
    activate(put(POLICY("mine", ORDERS)), NULL);
    restart("round_robin");
    CHECK_STR(decider(GB_HOOK_SELECT), "round_robin");
    CHECK_STR(decider(GB_HOOK_ORDER), "mine");
    stop();
    remove_directory();
}

static void the_red_button_stays_pressed(void)
{
    new_directory();
    start("gimbal");
    CHECK_EQ(gb_lua_host_switch(host, 0, &operator, &err), 0);
    restart("gimbal");
    CHECK_STR(decider(GB_HOOK_SELECT), "builtin");
    stop();
    remove_directory();
}

static void a_rollback_is_possible_after_a_restart_and_is_restored_itself(void)
{
    new_directory();
    start("gimbal");
    activate(put(POLICY("one", SELECTS)), NULL);
    activate(put(POLICY("two", SELECTS)), NULL);
    restart("gimbal");
    CHECK_STR(decider(GB_HOOK_SELECT), "two");
    CHECK_EQ(gb_lua_host_rollback(host, &operator, &err), 0);
    CHECK_STR(decider(GB_HOOK_SELECT), "one");
    restart("gimbal");
    CHECK_STR(decider(GB_HOOK_SELECT), "one");
    CHECK_EQ(gb_lua_host_rollback(host, &operator, &err), 0);
    CHECK_STR(decider(GB_HOOK_SELECT), "two");
    stop();
    remove_directory();
}

/* Who looked before a restart must not undo what others did since. */
static void a_generation_from_before_a_restart_never_comes_again(void)
{
    new_directory();
    start("gimbal");
    for (int run = 0; run < 3; run++) {
        uint32_t version = put(POLICY("mine", SELECTS));
        activate(version, NULL);
        activate(0, NULL);
        activate(version, NULL);
        uint64_t before = gb_lua_host_generation(host);
        restart("gimbal");
        CHECK(gb_lua_host_generation(host) >= before);
        activate(0, NULL);
        CHECK(gb_lua_host_generation(host) > before);
        gb_lua_change late = {.who = "late", .expected_generation = &before};
        CHECK_EQ(gb_lua_host_switch(host, version, &late, &err), GB_EVERSION);
    }
    stop();
    remove_directory();
}

static void a_shipped_policy_that_was_activated_is_the_shipped_one_again(void)
{
    gb_lua_info info;
    new_directory();
    start(NULL);
    uint32_t n = gb_lua_host_count(host);
    for (uint32_t i = 0; gb_lua_host_info(host, i, &info) == GB_OK && strcmp(info.name, "p2c") != 0; i++) continue;
    activate(info.version, NULL);
    restart(NULL);
    CHECK_EQ(gb_lua_host_count(host), n);
    CHECK_STR(decider(GB_HOOK_SELECT), "p2c");
    stop();
    remove_directory();
}

static void scripts_that_were_put_are_there_again_up_to_a_number(void)
{
    char source[256];
    new_directory();
    start(NULL);
    activate(put(POLICY("first", SELECTS)), NULL);
    for (int i = 0; i < GB_LUA_RESTORED_MAX + 5; i++) {
        snprintf(source, sizeof source, "-- %d\n%s", i, POLICY("mine", SELECTS));
        put(source);
    }
    restart(NULL);
    CHECK_EQ(count_of("mine", GB_LUA_RETIRED), GB_LUA_RESTORED_MAX);
    CHECK_EQ(count_of("first", GB_LUA_ACTIVE), 1);
    gb_lua_info info;
    CHECK_EQ(gb_lua_host_info(host, gb_lua_host_count(host) - 1, &info), 0);
    activate(info.version, NULL);
    CHECK_STR(decider(GB_HOOK_SELECT), "mine");
    stop();
    remove_directory();
}

static void two_loads_of_one_text_keep_their_own_params(void)
{
    gb_lua_value zero = {.number = 0};
    new_directory();
    start(NULL);
    uint32_t first = put(POLICY("mine", SELECTS));
    CHECK_EQ(gb_lua_host_set(host, first, "engine", &zero, &operator, &err), 0);
    activate(put(POLICY("mine", SELECTS)), NULL);
    restart(NULL);
    CHECK_NEAR(engine_param(gb_lua_host_active(host, GB_HOOK_SELECT)), 1, 0);
    stop();
    remove_directory();
}

/* ---- what does not ---- */

static void a_quarantined_script_is_not_restored_and_stays_quarantined(void)
{
    new_directory();
    start(NULL);
    uint32_t version = put(POLICY("bad", FAILS ORDERS));
    activate(version, NULL);
    fail_three_times();
    CHECK_STR(decider(GB_HOOK_SELECT), "builtin");
    for (int times = 0; times < 2; times++) {
        restart(NULL);
        CHECK_STR(decider(GB_HOOK_SELECT), "builtin");
        CHECK_STR(decider(GB_HOOK_ORDER), "builtin");
        CHECK_EQ(count_of("bad", GB_LUA_QUARANTINED), 1 + times);    /* each start puts it once more */
        uint32_t again = put(POLICY("bad", FAILS ORDERS));
        CHECK_EQ(gb_lua_host_switch(host, again, &operator, &err), GB_EPOLICY);
        CHECK_CONTAINS(err.text, "quarantined");
        gb_lua_host_forget(host, gb_lua_host_find_version(host, again));
    }
    stop();
    remove_directory();
}

static void force_lifts_a_quarantine_for_good(void)
{
    new_directory();
    start(NULL);
    uint32_t version = put(POLICY("bad", FAILS));
    activate(version, NULL);
    fail_three_times();
    CHECK_EQ(gb_lua_host_switch(host, version, &(gb_lua_change){.who = "tester", .force = true}, &err), 0);
    restart(NULL);
    CHECK_STR(decider(GB_HOOK_SELECT), "bad");
    stop();
    remove_directory();
}

static void an_option_that_names_a_quarantined_script_gets_the_built_in(void)
{
    static const char source[] = POLICY("bad", FAILS);
    char path[96];
    new_directory();
    snprintf(path, sizeof path, "%s/bad.lua", dir);
    FILE *file = fopen(path, "w");
    fputs(source, file);
    fclose(file);
    start(path);
    CHECK_STR(decider(GB_HOOK_SELECT), "bad");
    fail_three_times();
    restart(path);
    CHECK_STR(decider(GB_HOOK_SELECT), "builtin");
    CHECK_CONTAINS(lines, "is quarantined in");
    stop();
    remove_directory();
}

static void a_script_that_is_missing_or_changed_is_named_and_the_options_decide(void)
{
    static const struct {
        const char *change, *says;
    } cases[] = {{"rm %s/sources/*.lua", "does not exist"}, {"for f in %s/sources/*.lua; do echo >>$f; done", "has changed"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[192];
        new_directory();
        start("gimbal");
        activate(put(POLICY("mine", SELECTS)), NULL);
        stop();
        snprintf(command, sizeof command, cases[i].change, dir);
        CHECK_EQ(system(command), 0);
        start("gimbal");
        CHECK_STR(decider(GB_HOOK_SELECT), "gimbal");
        CHECK_CONTAINS(lines, cases[i].says);
        CHECK_CONTAINS(lines, "so the options decide");
        stop();
        remove_directory();
    }
}

static void a_damaged_log_restores_nobody(void)
{
    char command[192];
    gb_lua_store_info info;
    new_directory();
    start("gimbal");
    activate(put(POLICY("mine", SELECTS)), NULL);
    activate(put(POLICY("other", SELECTS)), NULL);
    stop();
    snprintf(command, sizeof command, "sed -i '3s/activate/activeta/' %s/policies.log", dir);
    CHECK_EQ(system(command), 0);
    start("gimbal");
    CHECK_STR(decider(GB_HOOK_SELECT), "gimbal");
    CHECK(gb_lua_host_store(host, &info) && info.damaged);
    CHECK_CONTAINS(lines, "policies.log:3: this record is damaged");
    CHECK_EQ(count_of("other", GB_LUA_RETIRED), 1);
    stop();
    remove_directory();
}

static void a_change_that_cannot_be_recorded_is_done_with_a_warning_and_a_load_is_refused(void)
{
    char command[192];
    uint32_t refused = 0;
    gb_lua_store_info info;
    static const char source[] = POLICY("late", SELECTS);
    new_directory();
    start("gimbal");
    uint32_t n = gb_lua_host_count(host);
    snprintf(command, sizeof command, "rmdir %s/sources && touch %s/sources", dir, dir);
    CHECK_EQ(system(command), 0);
    CHECK_EQ(gb_lua_host_put(host, &refused, NULL, "late.lua", source, sizeof source - 1, &operator, &err), GB_EIO);
    CHECK_CONTAINS(err.text, "cannot be kept");
    CHECK_EQ(gb_lua_host_count(host), n);
    activate(2, NULL);    /* a shipped one, whose source has to be kept first */
    CHECK_CONTAINS(lines, "a restart will not know of it");
    CHECK(gb_lua_host_store(host, &info) && info.unrecorded == 1);
    stop();
    remove_directory();
}

TESTS(TEST(what_decided_decides_again_with_the_params_that_were_set), TEST(hooks_that_nobody_changed_follow_the_options),
      TEST(the_red_button_stays_pressed), TEST(a_rollback_is_possible_after_a_restart_and_is_restored_itself),
      TEST(a_generation_from_before_a_restart_never_comes_again),
      TEST(a_shipped_policy_that_was_activated_is_the_shipped_one_again), TEST(scripts_that_were_put_are_there_again_up_to_a_number),
      TEST(two_loads_of_one_text_keep_their_own_params), TEST(a_quarantined_script_is_not_restored_and_stays_quarantined),
      TEST(force_lifts_a_quarantine_for_good), TEST(an_option_that_names_a_quarantined_script_gets_the_built_in),
      TEST(a_script_that_is_missing_or_changed_is_named_and_the_options_decide), TEST(a_damaged_log_restores_nobody),
      TEST(a_change_that_cannot_be_recorded_is_done_with_a_warning_and_a_load_is_refused))
