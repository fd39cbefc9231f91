#include "bindings/rpc/snapshot.h"

#include <stdlib.h>

#include "tests/check.h"
#include "tests/rpc/fixture.h"

#define LAST_ENGINE "local p = {api = 1, name = 'last'}\\nfunction p.select_engine(request, engines) return engines.n - 1 end\\nreturn p"

static int64_t load(peer *p, const char *params)
{
    json_t *r = peer_call(p, "policy_load", params);
    int64_t version = json_int(r, "version");
    json_decref(r);
    return version;
}

static void activate(peer *p, int64_t version)
{
    char params[64];
    snprintf(params, sizeof params, "{\"version\": %lld}", (long long)version);
    json_decref(peer_call(p, "policy_activate", params));
}

static int64_t engine_of_a_request(peer *p)
{
    json_t *r = peer_call(p, "generate", "{\"prompt\": \"x\", \"stream\": true}");
    int64_t engine = json_int(r, "engine");
    json_decref(r);
    return engine;
}

static void shipped_policies_are_listed(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "policy_list", "{}");
    const json_t *policies = json_object_get(r, "policies");
    bool found = false;
    for (size_t i = 0; i < json_array_size(policies); i++)
        found |= strcmp(json_text(json_array_get(policies, i), "name"), "round_robin") == 0;
    CHECK(found);
    CHECK_EQ(json_int(json_object_get(r, "active"), "select_engine"), 0);
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void a_loaded_policy_decides_once_it_is_active_and_not_before(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    int64_t version = load(&p, "{\"source\": \"" LAST_ENGINE "\"}");
    CHECK_EQ(engine_of_a_request(&p) + engine_of_a_request(&p), 1);    /* ordered dispatch: both engines in turn */
    activate(&p, version);
    CHECK_EQ(engine_of_a_request(&p), 1);
    CHECK_EQ(engine_of_a_request(&p), 1);
    json_t *r = peer_call(&p, "policy_activate", "{\"version\": 0}");    /* the red button */
    CHECK_EQ(json_int(json_object_get(r, "active"), "select_engine"), 0);
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void policy_get_returns_the_source_by_version_or_by_hook(void)
{
    fixture f;
    peer p;
    char params[64];
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    int64_t version = load(&p, "{\"name\": \"mine\", \"source\": \"" LAST_ENGINE "\"}");
    snprintf(params, sizeof params, "{\"version\": %lld}", (long long)version);
    json_t *by_version = peer_call(&p, "policy_get", params);
    CHECK_STR(json_text(by_version, "name"), "mine");
    CHECK_STR(json_text(by_version, "state"), "ready");
    CHECK_CONTAINS(json_text(by_version, "source"), "engines.n - 1");
    CHECK_EQ(strlen(json_text(by_version, "sha256")), 64);
    activate(&p, version);
    json_t *by_hook = peer_call(&p, "policy_get", "{\"hook\": \"select_engine\"}");
    CHECK_EQ(json_int(by_hook, "version"), version);
    CHECK_STR(json_text(by_hook, "state"), "active");
    CHECK_STR(json_text(by_hook, "sha256"), json_text(by_version, "sha256"));
    json_decref(by_version);
    json_decref(by_hook);
    json_t *builtin = peer_call(&p, "policy_get", "{\"hook\": \"order_queue\"}");
    CHECK_EQ(json_int(builtin, "version"), 0);
    json_decref(builtin);
    peer_call_fails(&p, "policy_get", "{}", GB_RPC_INVALID_PARAMS, "version", "give version, or hook");
    peer_call_fails(&p, "policy_get", "{\"version\": 999}", GB_RPC_NOT_FOUND, "version", "no policy version 999");
    peer_call_fails(&p, "policy_get", "{\"hook\": \"select\"}", GB_RPC_INVALID_PARAMS, "hook",
                    "hooks are select_engine, order_queue, score_expert and placement_cost");
    peer_close(&p);
    fixture_close(&f);
}

static void the_same_name_again_is_a_new_version(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    int64_t first = load(&p, "{\"name\": \"mine\", \"source\": \"" LAST_ENGINE "\"}");
    CHECK_EQ(load(&p, "{\"name\": \"mine\", \"source\": \"" LAST_ENGINE "\"}"), first + 1);
    peer_close(&p);
    fixture_close(&f);
}

static void a_policy_that_does_not_compile_is_rejected_with_its_line(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_call_fails(&p, "policy_load", "{\"name\": \"bad\", \"source\": \"return {\\nfoo bar\\n}\"}", GB_RPC_POLICY_REJECTED,
                    "source", ":2:");
    peer_call_fails(&p, "policy_load", "{\"source\": \"return 5\"}", GB_RPC_POLICY_REJECTED, "source", "");
    peer_call_fails(&p, "policy_load", "{\"source\": \"return {}\", \"hook\": \"selct_engine\"}", GB_RPC_INVALID_PARAMS, "hook",
                    "hooks are");
    peer_call_fails(&p, "policy_activate", "{\"version\": 12345}", GB_RPC_NOT_FOUND, "version", "12345");
    peer_close(&p);
    fixture_close(&f);
}

static void a_source_over_256_kib_is_too_large(void)
{
    fixture f;
    peer p;
    size_t room = GB_LUA_SOURCE_MAX + 100;
    char *params = malloc(room);
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    int head = snprintf(params, room, "{\"source\": \"");
    memset(params + head, '-', GB_LUA_SOURCE_MAX + 1);
    strcpy(params + head + GB_LUA_SOURCE_MAX + 1, "\"}");
    peer_call_fails(&p, "policy_load", params, GB_RPC_TOO_LARGE, "source", "262145 bytes");
    free(params);
    peer_close(&p);
    fixture_close(&f);
}

static void replacing_a_policy_mid_stream_loses_no_token(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    int64_t version = load(&p, "{\"source\": \"" LAST_ENGINE "\"}");
    for (int i = 0; i < 8; i++) json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"window\": 0}"));
    for (int i = 0; i < 40; i++) {
        fixture_round(&f);
        activate(&p, i % 2 ? version : 0);
    }
    fixture_run(&f);
    peer_receive(&p);
    json_t *done;
    int ends = 0;
    while ((done = peer_take(&p, "done"))) {
        CHECK_EQ(json_int(json_object_get(done, "usage"), "completion_tokens"), 32);
        json_decref(done);
        ends++;
    }
    CHECK_EQ(ends, 8);
    peer_close(&p);
    fixture_close(&f);
}

#define BAD_LATER \
    "local p = {api = 1, name = 'bad', params = {bad = false, weight = 1}}\\n" \
    "function p.select_engine(request, engines) if p.params.bad then error('turned bad') end return 0 end\\nreturn p"

static json_t *call_of(peer *p, const char *method, const char *format, int64_t number)
{
    char params[160];
    snprintf(params, sizeof params, format, (long long)number);
    return peer_call(p, method, params);
}

static void a_change_that_expects_an_old_generation_conflicts(void)
{
    fixture f;
    peer p;
    char params[128];
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    int64_t version = load(&p, "{\"source\": \"" LAST_ENGINE "\"}");
    snprintf(params, sizeof params, "{\"version\": %lld, \"expected_generation\": 0}", (long long)version);
    json_t *r = peer_call(&p, "policy_activate", params);
    CHECK_EQ(json_int(r, "generation"), 1);
    json_decref(r);
    peer_call_fails(&p, "policy_activate", params, GB_RPC_VERSION_CONFLICT, "expected_generation", "at generation 1, not 0");
    peer_call_fails(&p, "policy_rollback", "{\"expected_generation\": 7}", GB_RPC_VERSION_CONFLICT, "expected_generation", "not 7");
    peer_call_fails(&p, "policy_builtin", "{\"expected_generation\": 7}", GB_RPC_VERSION_CONFLICT, "expected_generation", "not 7");
    r = peer_call(&p, "policy_builtin", "{}");
    CHECK_EQ(json_int(json_object_get(r, "active"), "select_engine"), 0);
    json_decref(r);
    r = peer_call(&p, "policy_rollback", "{\"hook\": \"select_engine\"}");
    CHECK_EQ(json_int(json_object_get(r, "active"), "select_engine"), version);
    json_decref(r);
    peer_call_fails(&p, "policy_rollback", "{\"hook\": \"order_queue\"}", GB_RPC_NOT_FOUND, "hook", "nothing to go back to");
    peer_close(&p);
    fixture_close(&f);
}

static void params_are_set_by_type_and_shown_in_the_status(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    int64_t version = load(&p, "{\"source\": \"" BAD_LATER "\"}");
    activate(&p, version);
    json_decref(call_of(&p, "policy_set", "{\"version\": %lld, \"param\": \"weight\", \"number\": 2.5}", version));
    json_t *r = peer_call(&p, "policy_status", "{}");
    const json_t *seat = json_array_get(json_object_get(r, "hooks"), 0);
    CHECK_EQ(json_int(seat, "version"), version);
    CHECK(json_number_value(json_object_get(json_object_get(seat, "params"), "weight")) == 2.5);
    CHECK(strlen(json_text(r, "interrupts")) > 0);
    json_decref(r);
    char params[128];
    snprintf(params, sizeof params, "{\"version\": %lld, \"param\": \"weight\", \"flag\": true}", (long long)version);
    peer_call_fails(&p, "policy_set", params, GB_RPC_INVALID_PARAMS, "param", "is a number, not a boolean");
    snprintf(params, sizeof params, "{\"version\": %lld, \"param\": \"wieght\", \"number\": 1}", (long long)version);
    peer_call_fails(&p, "policy_set", params, GB_RPC_NOT_FOUND, "param", "did you mean weight?");
    snprintf(params, sizeof params, "{\"version\": %lld, \"param\": \"weight\"}", (long long)version);
    peer_call_fails(&p, "policy_set", params, GB_RPC_INVALID_PARAMS, "number", "give one of number, flag and text");
    peer_close(&p);
    fixture_close(&f);
}

static void a_quarantine_is_told_with_its_faults_and_their_snapshots(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    int64_t version = load(&p, "{\"source\": \"" BAD_LATER "\"}");
    activate(&p, version);
    CHECK_EQ(engine_of_a_request(&p), 0);
    json_decref(call_of(&p, "policy_set", "{\"version\": %lld, \"param\": \"bad\", \"flag\": true}", version));
    for (int i = 0; i < 4; i++) engine_of_a_request(&p);
    json_t *r = peer_call(&p, "policy_status", "{}");
    CHECK_EQ(json_int(r, "faults"), 3);
    CHECK_EQ(json_int(json_array_get(json_object_get(r, "hooks"), 0), "version"), 0);
    json_decref(r);
    r = peer_call(&p, "policy_log", "{\"fault\": 3}");
    const json_t *events = json_object_get(r, "events"), *fault = json_array_get(json_object_get(r, "faults"), 0);
    CHECK_EQ(json_array_size(json_object_get(r, "faults")), 1);
    CHECK_CONTAINS(json_text(fault, "message"), "turned bad");
    CHECK_CONTAINS(json_text(fault, "snapshot"), "\"gimbal_snapshot\":1");
    const json_t *loaded = json_array_get(events, 0), *quarantined = json_array_get(events, json_array_size(events) - 2);
    CHECK_STR(json_text(loaded, "kind"), "load");
    CHECK_STR(json_text(loaded, "who"), "unix socket");
    CHECK_EQ(strlen(json_text(loaded, "sha256")), 64);
    CHECK_STR(json_text(quarantined, "kind"), "quarantine");
    CHECK_STR(json_text(quarantined, "who"), "fault");
    json_decref(r);
    char params[64];
    snprintf(params, sizeof params, "{\"version\": %lld}", (long long)version);
    peer_call_fails(&p, "policy_activate", params, GB_RPC_POLICY_REJECTED, "version", "is quarantined");
    json_decref(call_of(&p, "policy_activate", "{\"version\": %lld, \"force\": true}", version));
    peer_close(&p);
    fixture_close(&f);
}

static void the_decision_log_is_read_in_steps(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    activate(&p, load(&p, "{\"hook\": \"select_engine\", \"source\": \"" LAST_ENGINE "\"}"));
    for (int i = 0; i < 3; i++) engine_of_a_request(&p);
    json_t *r = peer_call(&p, "decision_log", "{\"most\": 2}");
    const json_t *decisions = json_object_get(r, "decisions");
    CHECK_EQ(json_array_size(decisions), 2);
    CHECK_EQ(json_int(json_array_get(decisions, 1), "seq"), 2);
    CHECK_EQ(json_int(json_array_get(decisions, 1), "engine"), 1);
    CHECK_STR(json_text(json_array_get(decisions, 1), "outcome"), "ok");
    CHECK_EQ(strlen(json_text(json_array_get(decisions, 1), "inputs")), 16);
    json_decref(r);
    r = peer_call(&p, "decision_log", "{\"after\": 2}");
    CHECK_EQ(json_array_size(json_object_get(r, "decisions")), 1);
    CHECK_EQ(json_int(r, "lost"), 0);
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

/* Methods about policies that any client may call. Whatever else is added to these themes changes something or runs code. */
static bool only_looks(const char *method)
{
    static const char *const looks[] = {"policy_list", "policy_get", "policy_status", "policy_log", "decision_log"};
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        if (strcmp(looks[i], method) == 0) return true;
    return false;
}

static void every_method_about_policies_but_those_that_look_needs_admin_rights(void)
{
    int changes = 0;
    for (const gb_rpc_theme *t = gb_rpc_themes; t->title; t++)
        for (const gb_rpc_method *m = t->methods; m->name; m++) {
            if (strncmp(m->name, "policy_", 7) != 0 && strcmp(m->name, "decision_log") != 0) continue;
            if (only_looks(m->name) != (m->right == GB_RPC_NEEDS_HELLO))
                check_fail(__FILE__, __LINE__, "%s: only methods that look may be called without admin rights", m->name);
            changes += m->right == GB_RPC_NEEDS_ADMIN;
        }
    CHECK(changes >= 5);
}

static void looking_changes_nothing_and_no_user_reaches_the_rest(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_open(&p, &f, false);
    json_decref(peer_call(&p, "hello", "{\"client\": \"test\"}"));
    json_t *before = peer_call(&p, "policy_list", "{}");
    for (const gb_rpc_theme *t = gb_rpc_themes; t->title; t++)
        for (const gb_rpc_method *m = t->methods; m->name; m++) {
            if (strncmp(m->name, "policy_", 7) != 0) continue;
            const char *params = "{\"version\": 1, \"source\": \"" LAST_ENGINE "\", \"param\": \"w_kv\", \"number\": 1}";
            if (only_looks(m->name)) json_decref(peer_call(&p, m->name, params));
            else peer_call_fails(&p, m->name, params, GB_RPC_FORBIDDEN, NULL, "admin");
        }
    json_t *after = peer_call(&p, "policy_list", "{}");
    CHECK(json_equal(before, after));
    json_decref(before);
    json_decref(after);
    peer_close(&p);
    fixture_close(&f);
}

static void a_change_on_the_wire_says_what_and_who(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    gb_rpc_set_peer(p.conn, "uid 7, pid 8");
    json_decref(peer_call(&p, "subscribe", "{\"topics\": [\"policies\"], \"min_interval_ms\": 10}"));
    fixture_pass(&f, 0);
    peer_receive(&p);
    json_decref(peer_take(&p, "event"));
    int64_t version = load(&p, "{\"source\": \"" BAD_LATER "\"}");
    activate(&p, version);
    json_decref(call_of(&p, "policy_set", "{\"version\": %lld, \"param\": \"weight\", \"number\": 2}", version));
    json_decref(peer_call(&p, "policy_rollback", "{\"hook\": \"select_engine\"}"));
    json_decref(call_of(&p, "policy_activate", "{\"version\": %lld}", version));
    json_decref(peer_call(&p, "policy_builtin", "{}"));
    fixture_pass(&f, gb_ms(20));
    peer_receive(&p);
    json_t *event = peer_take(&p, "event");
    const json_t *changes = json_object_get(json_object_get(event, "data"), "changes");
    static const char *const kinds[] = {"load", "activate", "set", "rollback", "activate", "builtin"};
    CHECK_EQ(json_array_size(changes), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *change = json_array_get(changes, i);
        CHECK_STR(json_text(change, "kind"), kinds[i]);
        CHECK_STR(json_text(change, "who"), "unix socket (uid 7, pid 8)");
        CHECK_EQ(strlen(json_text(change, "sha256")), json_int(change, "version") ? 64 : 0);
    }
    json_decref(event);
    peer_close(&p);
    fixture_close(&f);
}

TESTS(TEST(shipped_policies_are_listed), TEST(a_loaded_policy_decides_once_it_is_active_and_not_before),
      TEST(policy_get_returns_the_source_by_version_or_by_hook), TEST(the_same_name_again_is_a_new_version),
      TEST(a_policy_that_does_not_compile_is_rejected_with_its_line), TEST(a_source_over_256_kib_is_too_large),
      TEST(replacing_a_policy_mid_stream_loses_no_token), TEST(a_change_that_expects_an_old_generation_conflicts),
      TEST(params_are_set_by_type_and_shown_in_the_status), TEST(a_quarantine_is_told_with_its_faults_and_their_snapshots),
      TEST(the_decision_log_is_read_in_steps), TEST(every_method_about_policies_but_those_that_look_needs_admin_rights),
      TEST(looking_changes_nothing_and_no_user_reaches_the_rest), TEST(a_change_on_the_wire_says_what_and_who))
