#include <stdlib.h>

#include "bindings/rpc/errors.h"

#include "tests/check.h"
#include "tests/rpc/fixture.h"

#define LAST_ENGINE "local p = {api = 1, name = 'last'}\\nfunction p.select_engine(request, engines) return engines.n - 1 end\\nreturn p"

static fixture f;
static peer p;
static int64_t version;

static void start(void)
{
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "policy_load", "{\"source\": \"" LAST_ENGINE "\"}");
    version = json_int(r, "version");
    json_decref(r);
}

static void stop(void)
{
    peer_close(&p);
    fixture_close(&f);
}

static json_t *act(const char *action)
{
    char params[96];
    snprintf(params, sizeof params, "{\"action\": \"%s\", \"version\": %lld}", action, (long long)version);
    return peer_call(&p, "policy_shadow", params);
}

static void decide(int times)
{
    for (int i = 0; i < times; i++) json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true}"));
    fixture_run(&f);
}

static const json_t *select_of(const json_t *shadow) { return json_array_get(json_object_get(shadow, "hooks"), 0); }

static void a_shadow_is_started_looked_at_promoted_and_shown_in_policy_status(void)
{
    start();
    json_t *r = peer_call(&p, "policy_shadow", "{}");
    CHECK(!json_object_get(r, "shadow"));
    json_decref(r);
    json_decref(act("start"));
    decide(4);
    r = peer_call(&p, "policy_status", "{}");
    const json_t *shadow = json_object_get(r, "shadow");
    CHECK(json_is_true(json_object_get(shadow, "running")));
    CHECK_EQ(json_int(shadow, "version"), version);
    CHECK_STR(json_text(select_of(shadow), "hook"), "select_engine");
    CHECK_EQ(json_int(select_of(shadow), "decisions") + json_int(shadow, "skipped"), 4);
    CHECK_EQ(json_int(select_of(shadow), "agreed"), 2);    /* ordered dispatch takes the last engine every other time */
    CHECK(json_number_value(json_object_get(json_object_get(select_of(shadow), "candidate"), "mean_us")) > 0);
    json_decref(r);
    json_decref(act("promote"));
    r = peer_call(&p, "policy_shadow", "{\"action\": \"status\"}");
    CHECK(json_is_false(json_object_get(json_object_get(r, "shadow"), "running")));
    CHECK_STR(json_text(json_object_get(r, "shadow"), "ended"), "it decides now");
    json_decref(r);
    r = peer_call(&p, "policy_list", "{}");
    CHECK_EQ(json_int(json_object_get(r, "active"), "select_engine"), version);
    json_decref(r);
    stop();
}

static void a_shadow_that_cannot_be_is_refused_with_the_reason(void)
{
    start();
    peer_call_fails(&p, "policy_shadow", "{\"action\": \"start\"}", GB_RPC_INVALID_PARAMS, "version", "which version");
    peer_call_fails(&p, "policy_shadow", "{\"action\": \"begin\"}", GB_RPC_INVALID_PARAMS, "action", "start, stop, promote and status");
    peer_call_fails(&p, "policy_shadow", "{\"action\": \"stop\"}", GB_RPC_NOT_FOUND, "action", "no policy is in shadow");
    peer_call_fails(&p, "policy_shadow", "{\"action\": \"promote\"}", GB_RPC_NOT_FOUND, "action", "no policy is in shadow");
    peer_call_fails(&p, "policy_shadow", "{\"action\": \"start\", \"version\": 999}", GB_RPC_NOT_FOUND, "version", "no policy version 999");
    peer_call_fails(&p, "policy_shadow", "{\"action\": \"start\", \"version\": 1, \"ratio\": 0}", GB_RPC_INVALID_PARAMS, "ratio", "0");
    json_decref(act("start"));
    json_t *r = act("stop");
    CHECK_STR(json_text(json_object_get(r, "shadow"), "ended"), "it was stopped");
    json_decref(r);
    stop();
}

TESTS(TEST(a_shadow_is_started_looked_at_promoted_and_shown_in_policy_status), TEST(a_shadow_that_cannot_be_is_refused_with_the_reason))
