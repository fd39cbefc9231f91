#include "bindings/lua/lua_host_parts.h"

#include <stdlib.h>

#include "tests/check.h"
#include "tests/serve/fake.h"

static fake f;
static gb_server *server;
static gb_lua_host *host;
static gb_error err;

static uint32_t start(const char *source)
{
    gb_server_options options;
    uint32_t version = 0;
    fake_options(&options);
    options.window_rounds = 2;
    fake_init(&f, &options);
    CHECK_EQ(gb_server_new(&server, &options, &err), 0);
    CHECK_EQ(gb_lua_host_new(&host, server, 1, &err), 0);
    if (!host) exit(1);    /* there is nothing to test then */
    CHECK_EQ(gb_lua_host_load(host, &version, NULL, "mine", "mine.lua", source, strlen(source), &err), 0);
    CHECK_EQ(gb_lua_host_activate(host, NULL, version, &err), 0);
    return version;
}

static void stop(void)
{
    gb_lua_host_free(host);
    host = NULL;
    gb_server_free(server);
    fake_deinit(&f);
}

static void rounds(int n, gb_time now)
{
    gb_event event;
    for (int i = 0; i < n; i++) {
        gb_request request = fake_request(8, 1);
        fake_submit(server, &request, now + (gb_time)i);
        fake_round(&f, server, now + (gb_time)i, now + (gb_time)i + 1);
        while (gb_server_poll_event(server, &event)) {
        }
    }
    gb_lua_host_idle(host, now + 5);
}

#define POLICY(body) \
    "local policy, seen, tokens = { api = 1, params = { seen = 0, tokens = 0 } }, 0, 0\n" \
    "function policy.select_engine() return 0 end\n" \
    "function policy.on_window(window)\n" body "\nend\nreturn policy"

static double param(uint32_t version, uint32_t index)
{
    char name[GB_LUA_NAME_MAX + 1];
    gb_lua_value value = {0};
    CHECK(gb_lua_host_param(host, version, index, name, &value));
    return value.number;
}

static void each_closed_window_is_shown_once(void)
{
    uint32_t version = start(POLICY("policy.params.seen = policy.params.seen + 1\n"
                                    "local sum = 0 for i = 0, window.n - 1 do sum = sum + window.tokens[i] end\n"
                                    "assert(window.n == window.layers * window.sources * window.experts and window.id > 0)\n"
                                    "local routed = 0 for i = 0, window.expert_rows - 1 do\n"
                                    "  routed = routed + window.expert_tokens[i]\n"
                                    "  assert(window.home[i] == math.floor(i % window.experts / window.capacity))\n"
                                    "end\n"
                                    "assert(routed == sum and window.link_cost[0] == 0 and window.link_rows == window.sources * window.ranks)\n"
                                    "policy.params.tokens = policy.params.tokens + sum"));
    rounds(1, 10);
    CHECK_EQ(param(version, 0), 0);
    rounds(1, 20);
    gb_lua_host_idle(host, 30);
    CHECK_EQ(param(version, 0), 1);
    uint64_t id, all = 0;
    gb_time from, to;
    const gb_matrix *counts = gb_server_window(server, false, &id, &from, &to);
    for (size_t i = 0; i < gb_matrix_cells(counts); i++) all += counts->counts[i];
    CHECK(all > 0);
    CHECK_EQ(param(version, 1), all);
    rounds(2, 40);
    CHECK_EQ(param(version, 0), 2);
    stop();
}

static void a_script_that_fails_in_on_window_goes_on_deciding_and_sees_no_more(void)
{
    uint32_t version = start(POLICY("policy.params.seen = policy.params.seen + 1 error('no')"));
    for (gb_time i = 1; i <= 5; i++) rounds(2, 10 * i);
    CHECK_EQ(param(version, 0), 3);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), version);
    uint64_t seq = 2; /* after load and activate */
    const gb_lua_event *event = gb_lua_log_next_event(gb_lua_host_log(host), &seq);
    CHECK(event && event->kind == GB_LUA_EVENT_REFUSED);
    if (event) CHECK_CONTAINS(event->text, "failed in on_window: mine.lua:4: no");
    stop();
}

static void a_window_cannot_be_written_nor_read_afterwards(void)
{
    uint32_t version =
        start("local policy, kept = { api = 1, params = { before = 0, later = 0, write = 0 } }\n"
              "local function read() return kept.tokens[0] end\n"
              "local function write() kept.tokens[0] = 1 end\n"
              "function policy.on_window(window)\n"
              "kept = window\n"
              "policy.params.before, policy.params.write = pcall(read) and 1 or 2, pcall(write) and 1 or 2 end\n"
              "function policy.select_engine() policy.params.later = kept and (pcall(read) and 1 or 2) or 0 return 0 end\n"
              "return policy");
    rounds(3, 10);
    rounds(1, 20);
    CHECK_EQ(param(version, 0), 1);
    CHECK_EQ(param(version, 1), 2);
    CHECK_EQ(param(version, 2), 2);
    stop();
}

TESTS(TEST(each_closed_window_is_shown_once), TEST(a_script_that_fails_in_on_window_goes_on_deciding_and_sees_no_more),
      TEST(a_window_cannot_be_written_nor_read_afterwards))
