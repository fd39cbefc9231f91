#include "bindings/lua/lua_shadow.h"

#include <stdlib.h>

#include "bindings/lua/lua_host_parts.h"
#include "tests/check.h"
#include "tests/serve/fake.h"

static fake f;
static gb_server *server;
static gb_lua_host *host;
static gb_error err;
static const gb_lua_change operator = {.who = "tester", .now = 1};

#define POLICY(body) "local policy = { api = 1, name = 'mine', params = { engine = 1 } }\n" body "\nreturn policy"
#define ALWAYS_LAST POLICY("function policy.select_engine(request, engines) return engines.n - 1 end " \
                           "function policy.order_queue(q) for i = 0, q.n - 1 do q.key[i] = -i end end")
#define DICE POLICY("function policy.select_engine(request, engines) return gimbal.random(engines.n) end")
#define LATER(bad) POLICY("function policy.select_engine(request, engines) if gimbal.now() >= 1e11 then " bad " end return 1 end")

static void start(void)
{
    gb_server_options options;
    fake_options(&options);
    options.queue_capacity = 256;
    fake_init(&f, &options);
    err.text[0] = 0;
    CHECK_EQ(gb_server_new(&server, &options, &err), 0);
    CHECK_EQ(gb_lua_host_new(&host, server, 1, &err), 0);
}

static void stop(void)
{
    gb_lua_host_free(host);
    gb_server_free(server);
    fake_deinit(&f);
}

static uint32_t load(const char *source)
{
    uint32_t version = 0;
    CHECK_EQ(gb_lua_host_load(host, &version, NULL, NULL, "mine.lua", source, strlen(source), &err), 0);
    if (!version) printf("    %s\n", err.text);
    return version;
}

static void shadow(uint32_t version, double ratio)
{
    CHECK_EQ(gb_lua_host_shadow_start(host, version, ratio, &operator, &err), 0);
    if (!gb_lua_host_shadow(host)) printf("    %s\n", err.text);
}

static const gb_lua_comparison *compared(gb_hook hook) { return &gb_lua_host_shadow(host)->comparisons[hook]; }

static gb_lua_info info_of(uint32_t version)
{
    gb_lua_info info = {0};
    CHECK_EQ(gb_lua_host_find(host, version, &info), 0);
    return info;
}

enum { REQUESTS = 200 };

/* Which engine took each request, and in which order and when they ended. */
typedef struct course {
    uint32_t engines[REQUESTS], ends[REQUESTS], n_ends;
} course;

static uint32_t engine_of(gb_request_id id)
{
    gb_request_info info = {0};
    for (uint32_t cursor = 0; gb_server_request_next(server, &cursor, &info);)
        if (info.id == id) return info.engine;
    return UINT32_MAX;
}

static void drain(course *c, gb_time now)
{
    gb_event event;
    while (gb_server_poll_event(server, &event))
        if (event.kind == GB_EVENT_DONE && c->n_ends < REQUESTS) c->ends[c->n_ends++] = (uint32_t)event.id ^ (uint32_t)(now / gb_ms(1)) << 8;
}

static void serve(course *c, gb_time from)
{
    *c = (course){0};
    gb_time now = from;
    for (int i = 0; i < REQUESTS; i++) {
        gb_request request = fake_request(4 + (uint32_t)(i * 7) % 60, 1 + (uint32_t)i % 5);
        now += gb_ms(1);
        c->engines[i] = engine_of(fake_submit(server, &request, now));
        if (i % 4 == 3) fake_round(&f, server, now, now);
        drain(c, now);
    }
    while (fake_round(&f, server, now, now + gb_ms(1))) now += gb_ms(1), drain(c, now);
    CHECK_EQ(c->n_ends, REQUESTS);
}

/* ---- nothing changes ---- */

static void a_shadow_changes_no_decision_whatever_it_does(void)
{
    static const char *const candidates[] = {
        NULL, ALWAYS_LAST, DICE, LATER("error('no')"), LATER("while true do end"), LATER("local t = {} while true do t[#t + 1] = {} end"),
    };
    static const char *const deciders[] = {NULL, DICE, ALWAYS_LAST};
    for (size_t d = 0; d < sizeof deciders / sizeof *deciders; d++) {
        static course expected, got;
        for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
            gb_server_stats stats;
            start();
            if (deciders[d]) CHECK_EQ(gb_lua_host_switch(host, load(deciders[d]), &operator, &err), 0);
            if (candidates[i]) shadow(load(candidates[i]), 1);
            serve(i == 0 ? &expected : &got, gb_seconds(99) + gb_ms(900));
            gb_server_stats_get(server, &stats);
            CHECK_EQ(stats.hooks[GB_HOOK_SELECT].calls, REQUESTS);
            CHECK_EQ(stats.hooks[GB_HOOK_SELECT].nils + stats.hooks[GB_HOOK_SELECT].faults, 0);
            CHECK_EQ(gb_lua_log_faults(gb_lua_host_log(host)), 0);
            if (i > 0) CHECK_EQ(memcmp(&expected, &got, sizeof got), 0);
            if (i > 0) CHECK(gb_lua_host_shadow(host)->seen > 0);
            stop();
        }
    }
}

/* ---- what it says ---- */

static void a_shadow_of_the_same_script_agrees_always(void)
{
    static course c;
    start();
    uint32_t version = load(DICE);    /* it has the same dice */
    CHECK_EQ(gb_lua_host_switch(host, version, &operator, &err), 0);
    shadow(load(DICE), 1);
    serve(&c, gb_seconds(1));
    const gb_lua_comparison *s = compared(GB_HOOK_SELECT);
    CHECK(s->decisions > 0);
    CHECK_EQ(s->agreed, s->decisions);
    CHECK_EQ(s->decisions + gb_lua_host_shadow(host)->skipped, REQUESTS);
    CHECK_NEAR(gb_lua_side_spread(s, 0), gb_lua_side_spread(s, 1), 1e-9);
    CHECK_EQ(s->sides[0].costs.n, s->decisions);
    CHECK_EQ(s->sides[1].costs.n, s->decisions);
    stop();
}

static void a_shadow_that_piles_everything_up_disagrees_and_spreads_worse(void)
{
    static course c;
    start();
    shadow(load(ALWAYS_LAST), 1);    /* of the built-in */
    serve(&c, gb_seconds(1));
    const gb_lua_comparison *s = compared(GB_HOOK_SELECT), *o = compared(GB_HOOK_ORDER);
    CHECK(s->decisions > 0 && s->agreed > 0 && s->agreed < s->decisions);
    CHECK(gb_lua_side_spread(s, 1) > gb_lua_side_spread(s, 0));
    CHECK(o->decisions > 0 && o->agreed < o->decisions);
    stop();
}

static void a_shadow_without_an_opinion_agrees_with_the_built_in(void)
{
    static course c;
    start();
    shadow(load(POLICY("function policy.select_engine() end function policy.order_queue() end")), 1);
    serve(&c, gb_seconds(1));
    for (int hook = GB_HOOK_SELECT; hook <= GB_HOOK_ORDER; hook++) {
        const gb_lua_comparison *s = compared((gb_hook)hook);
        CHECK(s->decisions > 0);
        CHECK_EQ(s->agreed, s->decisions);
        CHECK_EQ(s->sides[1].nils, s->decisions);
        CHECK_EQ(s->sides[0].nils, 0);
    }
    stop();
}

static void a_shadow_sees_the_part_of_the_decisions_that_was_asked_for(void)
{
    static course c;
    start();
    shadow(load(POLICY("function policy.select_engine() end")), 0.25);
    serve(&c, gb_seconds(1));
    const gb_lua_shadow *s = gb_lua_host_shadow(host);
    CHECK_EQ(s->seen, REQUESTS);
    uint64_t sampled = compared(GB_HOOK_SELECT)->decisions + s->skipped;
    CHECK(sampled > REQUESTS / 8 && sampled < REQUESTS / 2);
    stop();
}

/* ---- its life ---- */

static void a_shadow_that_fails_too_often_ends_and_nobody_else_does(void)
{
    static const struct {
        const char *source;
        uint64_t faults;
    } cases[] = {{LATER("error('no')"), GB_LUA_SHADOW_FAULTS}, {LATER("while true do end"), 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static course c;
        start();
        uint32_t version = load(cases[i].source);
        shadow(version, 1);
        CHECK_EQ(info_of(version).state, GB_LUA_SHADOW);
        serve(&c, gb_seconds(101));
        const gb_lua_shadow *s = gb_lua_host_shadow(host);
        CHECK(!s->running);
        CHECK_EQ(compared(GB_HOOK_SELECT)->sides[1].faults, cases[i].faults);
        CHECK_CONTAINS(s->ended, "it failed in select_engine: mine.lua:2:");
        CHECK_EQ(info_of(version).state, GB_LUA_READY);
        CHECK_EQ(info_of(version).faults, 0);
        CHECK_EQ(gb_lua_host_switch(host, version, &operator, &err), 0);    /* no quarantine */
        stop();
    }
}

static void a_shadow_has_an_allowance_of_time(void)
{
    static course c;
    start();
    shadow(load(POLICY("function policy.select_engine() local x = 0 for i = 1, 200000 do x = x + i % 7 end return x % 2 end")), 1);
    serve(&c, gb_seconds(1));
    const gb_lua_shadow *s = gb_lua_host_shadow(host);
    CHECK(s->skipped > 0);    /* 200 ms allow 4 ms and the 20 that were saved */
    CHECK(compared(GB_HOOK_SELECT)->decisions > 0);
    stop();
}

static void a_shadow_is_promoted_by_activating_its_version(void)
{
    static course c;
    start();
    uint32_t version = load(ALWAYS_LAST);
    shadow(version, 1);
    serve(&c, gb_seconds(1));
    CHECK_EQ(gb_lua_host_switch(host, version, &operator, &err), 0);
    CHECK(!gb_lua_host_shadow(host)->running);
    CHECK_STR(gb_lua_host_shadow(host)->ended, "it decides now");
    CHECK_EQ(info_of(version).state, GB_LUA_ACTIVE);
    serve(&c, gb_seconds(2));
    CHECK_EQ(c.engines[0], 1);
    stop();
}

static void what_cannot_be_a_shadow_is_refused(void)
{
    start();
    uint32_t version = load(DICE);
    CHECK_EQ(gb_lua_host_shadow_start(host, 999, 1, &operator, &err), GB_ENOTFOUND);
    CHECK_EQ(gb_lua_host_shadow_start(host, version, 0, &operator, &err), GB_EINVAL);
    CHECK_EQ(gb_lua_host_shadow_start(host, version, 1.01, &operator, &err), GB_EINVAL);
    CHECK_EQ(gb_lua_host_shadow_start(host, version, 0.0 / 0.0, &operator, &err), GB_EINVAL);
    CHECK_EQ(gb_lua_host_shadow_start(host, version, 1, &(gb_lua_change){.hook = "order_queue"}, &err), GB_EINVAL);
    CHECK_EQ(gb_lua_host_shadow_start(host, version, 1, &(gb_lua_change){.hook = "nonsense"}, &err), GB_EINVAL);
    CHECK_EQ(gb_lua_host_shadow_stop(host, &operator, &err), GB_ENOTFOUND);
    gb_lua_info info;
    for (uint32_t i = 0; gb_lua_host_info(host, i, &info) == GB_OK && strcmp(info.name, "linear") != 0; i++) continue;
    CHECK_EQ(gb_lua_host_shadow_start(host, info.version, 1, &operator, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "gimbal place");
    shadow(version, 1);
    CHECK_EQ(gb_lua_host_shadow_start(host, load(ALWAYS_LAST), 1, &operator, &err), GB_EEXIST);
    CHECK_CONTAINS(err.text, "stop it first");
    CHECK_EQ(gb_lua_host_shadow_stop(host, &operator, &err), 0);
    shadow(version, 1);
    stop();
}

TESTS(TEST(a_shadow_changes_no_decision_whatever_it_does), TEST(a_shadow_of_the_same_script_agrees_always),
      TEST(a_shadow_that_piles_everything_up_disagrees_and_spreads_worse), TEST(a_shadow_without_an_opinion_agrees_with_the_built_in),
      TEST(a_shadow_sees_the_part_of_the_decisions_that_was_asked_for), TEST(a_shadow_that_fails_too_often_ends_and_nobody_else_does),
      TEST(a_shadow_has_an_allowance_of_time), TEST(a_shadow_is_promoted_by_activating_its_version), TEST(what_cannot_be_a_shadow_is_refused))
