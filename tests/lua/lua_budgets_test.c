/* What scripts may use is the operator's choice. Budgets here are far above or far below what the scripts need, so that no machine is too
   slow or too fast. */
#include "bindings/lua/lua_host_parts.h"

#include <stdlib.h>

#include "core/base/log.h"
#include "tests/check.h"
#include "tests/serve/fake.h"

static fake f;
static gb_server *server;
static gb_lua_host *host;
static gb_lua_budgets budgets;
static gb_error err;
static int warnings;
static char last_warning[1024];

static void count_warning(void *self, gb_log_level level, const char *line)
{
    (void)self;
    warnings += level == GB_LOG_WARN;
    if (level == GB_LOG_WARN) snprintf(last_warning, sizeof last_warning, "%s", line);
}

static void start(void)
{
    gb_server_options options;
    fake_options(&options);
    fake_init(&f, &options);
    err.text[0] = 0;
    warnings = 0;
    gb_log_set_sink(count_warning, NULL, GB_LOG_INFO);
    CHECK_EQ(gb_server_new(&server, &options, &err), 0);
    CHECK_EQ(gb_lua_host_new_within(&host, server, 1, &budgets, &err), 0);
    if (!host) exit(1);    /* there is nothing to test then */
}

static void stop(void)
{
    gb_lua_host_free(host);
    host = NULL;
    gb_server_free(server);
    fake_deinit(&f);
    gb_log_set_sink(NULL, NULL, GB_LOG_INFO);
}

static int load(const char *source, uint32_t *version)
{
    return gb_lua_host_load(host, version, NULL, "mine", "mine.lua", source, strlen(source), &err);
}

static void decide(int n, gb_time now)
{
    const gb_policy *policy = gb_server_policy(server, GB_HOOK_SELECT);
    gb_request_row request = {.prompt_tokens = 1};
    for (int i = 0; i < n; i++) policy->select_engine(policy->self, &request, &gb_server_tables(server)->engines, now);
}

static void every_budget_of_time_is_in_the_sentence_that_refuses(void)
{
    static const struct {
        const char *source, *why;
    } cases[] = {
        {"while true do end", "the file itself may use 14 ms"},
        {"return { api = 1, select_engine = function() while true do end end }", "select_engine may use 11 ms"},
        {"return { api = 1, order_queue = function() while true do end end }", "order_queue may use 12 ms"},
        {"return { api = 1, score_expert = function() while true do end end }", "score_expert may use 13 ms"},
        {"return { api = 1, placement_cost = function() while true do end end }", "placement_cost may use 13 ms"},
    };
    gb_lua_budgets_default(&budgets);
    if (strcmp(gb_lua_host_prepare(), "none") == 0) return;    /* no interrupts under this sanitizer */
    budgets.hooks[GB_HOOK_SELECT] = gb_ms(11);
    budgets.hooks[GB_HOOK_ORDER] = gb_ms(12);
    budgets.hooks[GB_HOOK_SCORE] = budgets.hooks[GB_HOOK_COST] = gb_ms(13);
    budgets.load = gb_ms(14);
    start();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t version;
        CHECK_EQ(load(cases[i].source, &version), GB_EPOLICY);
        CHECK_CONTAINS(err.text, cases[i].why);
    }
    stop();
}

/* Time is no object here: memory ends it. */
static void a_script_that_places_experts_may_hold_more(void)
{
    uint32_t version;
    gb_lua_budgets_default(&budgets);
    budgets.load = budgets.hooks[GB_HOOK_SELECT] = budgets.hooks[GB_HOOK_COST] = gb_seconds(100);
    budgets.memory_bytes = 8u << 20;
    budgets.place_memory_bytes = 16u << 20;
    start();
    CHECK_EQ(load("return { api = 1, select_engine = function() local t = {} while true do t = { t } end end }", &version), GB_EPOLICY);
    CHECK_CONTAINS(err.text, "memory budget exceeded: a policy may hold 8 MiB");
    CHECK_EQ(load("return { api = 1, placement_cost = function() local t = {} while true do t = { t } end end }", &version), GB_EPOLICY);
    CHECK_CONTAINS(err.text, "memory budget exceeded: a policy may hold 16 MiB");
    stop();
}

static void the_defaults_are_those_of_the_document(void)
{
    gb_lua_budgets_default(&budgets);
    CHECK_EQ(budgets.hooks[GB_HOOK_SELECT], gb_ms(2));
    CHECK_EQ(budgets.hooks[GB_HOOK_ORDER], gb_ms(5));
    CHECK_EQ(budgets.hooks[GB_HOOK_SCORE], gb_ms(250));
    CHECK_EQ(budgets.hooks[GB_HOOK_COST], gb_ms(250));
    CHECK_EQ(budgets.load, gb_ms(100));
    CHECK_EQ(budgets.carry, gb_ms(20));
    CHECK_EQ(budgets.memory_bytes, 32 << 20);
    CHECK_EQ(budgets.place_memory_bytes, 64 << 20);
}

static const char plain[] = "return { api = 1, select_engine = function() return 0 end }";

/* No decision takes less than a nanosecond. (None is stopped either: it is over before the thread's timer looks twice.) */
static void a_script_that_is_slow_most_of_the_time_is_told_once_a_minute(void)
{
    uint32_t version;
    gb_lua_budgets_default(&budgets);
    start();
    CHECK_EQ(load(plain, &version), 0);
    CHECK_EQ(gb_lua_host_activate(host, NULL, version, &err), 0);
    host->budgets.hooks[GB_HOOK_SELECT] = 10;
    decide(GB_LUA_PACE_BLOCK - 1, gb_seconds(10));
    CHECK_EQ(warnings, 0);
    decide(1, gb_seconds(10));
    CHECK_EQ(warnings, 1);
    CHECK_CONTAINS(last_warning, "policy mine v");
    CHECK_CONTAINS(last_warning, "is slow: 100 of its last 100 decisions in select_engine took more than");
    decide(5 * GB_LUA_PACE_BLOCK, gb_seconds(69));
    CHECK_EQ(warnings, 1);
    decide(GB_LUA_PACE_BLOCK, gb_seconds(70));
    CHECK_EQ(warnings, 2);
    stop();
}

static void a_quick_script_is_not_called_slow(void)
{
    uint32_t version;
    gb_lua_budgets_default(&budgets);
    budgets.hooks[GB_HOOK_SELECT] = gb_seconds(100);
    start();
    CHECK_EQ(load(plain, &version), 0);
    CHECK_EQ(gb_lua_host_activate(host, NULL, version, &err), 0);
    decide(10 * GB_LUA_PACE_BLOCK, gb_seconds(10));
    CHECK_EQ(warnings, 0);
    stop();
}

TESTS(TEST(every_budget_of_time_is_in_the_sentence_that_refuses), TEST(a_script_that_places_experts_may_hold_more),
      TEST(the_defaults_are_those_of_the_document), TEST(a_script_that_is_slow_most_of_the_time_is_told_once_a_minute),
      TEST(a_quick_script_is_not_called_slow))
