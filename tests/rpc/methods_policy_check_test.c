#include "bindings/rpc/methods_policy.h"

#include <stdlib.h>

#include "tests/check.h"
#include "tests/rpc/fixture.h"

/* A checker that answers when the test says so. */
typedef struct waiting {
    gb_check_done *done;
    void *self;
} waiting;

static struct {
    waiting jobs[16];
    uint64_t n, cancelled;
    int refuses;
    char name[64], source[1024], snapshots[8192];
} desk;

static int start(void *self, uint64_t *job, const gb_check_script *script, gb_check_done *done, void *done_self, gb_error *err)
{
    (void)self;
    if (desk.refuses) return gb_fail(err, desk.refuses, "/nowhere/gimbal cannot be started");
    snprintf(desk.name, sizeof desk.name, "%s", script->name);
    snprintf(desk.source, sizeof desk.source, "%.*s", (int)script->source_bytes, script->source);
    snprintf(desk.snapshots, sizeof desk.snapshots, "%.*s", (int)script->snapshot_bytes, script->snapshots);
    *job = desk.n;
    desk.jobs[desk.n++] = (waiting){done, done_self};
    return GB_OK;
}

static void cancel(void *self, uint64_t job)
{
    (void)self;
    desk.cancelled++;
    desk.jobs[job].done = NULL;
}

static const gb_checker_seam seam = {.start = start, .cancel = cancel};

static void finish(const fixture *f, uint64_t job, int status, const char *text)
{
    gb_error err = {{0}};
    if (status) gb_fail(&err, status, "%s", text);
    CHECK(desk.jobs[job].done != NULL);
    if (desk.jobs[job].done) desk.jobs[job].done(desk.jobs[job].self, status, status ? "" : text, status ? 0 : strlen(text), &err, f->now);
}

static void open_checked(fixture *f, peer *p)
{
    memset(&desk, 0, sizeof desk);
    fixture_open(f, &(fixture_options){.checker = &seam});
    peer_hello(p, f);
}

static void close_checked(fixture *f, peer *p)
{
    peer_close(p);
    fixture_close(f);
}

static json_t *take_response(peer *p, uint32_t msgid)
{
    peer_receive(p);
    return peer_take_response(p, msgid);
}

static uint64_t versions_of(const fixture *f) { return gb_lua_host_count(f->instance.policies); }

#define POLICY "local p = {api = 1, name = 'last'}\\nfunction p.select_engine(request, engines) return engines.n - 1 end\\nreturn p"
#define LOAD "{\"name\": \"mine\", \"source\": \"" POLICY "\"}"
#define GOOD \
    "{\"file\": \"mine\", \"ok\": true, \"name\": \"last\", \"sha256\": \"ab\", \"refusal\": \"\", \"hooks\": [\"select_engine\"], \"globals\": [], " \
    "\"tables\": [{\"hook\": \"select_engine\", \"tables\": \"8 engines\", \"calls\": 3, \"p50_us\": 1.5, \"p99_us\": 2.0, \"max_us\": 2.5, \"budget_us\": 2000.0, " \
    "\"shares\": [3, 0, 0, 0, 0, 0], \"allocated_bytes\": 64, \"nils\": 0, \"faults\": 0, \"fault\": \"\"}], \"warnings\": [\"it allocates\"]}"

static void a_check_is_answered_with_its_report_once_it_has_ended(void)
{
    fixture f;
    peer p;
    open_checked(&f, &p);
    peer_post(&p, 7, "policy_check", LOAD);
    CHECK(take_response(&p, 7) == NULL);
    CHECK_STR(desk.name, "mine");
    CHECK_CONTAINS(desk.source, "engines.n - 1");
    json_decref(peer_call(&p, "ping", "{}"));    /* the server goes on meanwhile */
    uint64_t versions = versions_of(&f);
    finish(&f, 0, GB_OK, GOOD);
    json_t *response = take_response(&p, 7), *report = json_array_get(response, 3);
    CHECK(json_is_true(json_object_get(report, "ok")));
    CHECK_EQ(json_array_size(json_object_get(report, "tables")), 1);
    CHECK(json_object_get(report, "file") == NULL && json_object_get(report, "refusal") == NULL);
    CHECK_EQ(versions_of(&f), versions);
    json_decref(response);
    close_checked(&f, &p);
}

static void a_policy_is_loaded_when_its_check_is_content(void)
{
    fixture f;
    peer p;
    open_checked(&f, &p);
    uint64_t versions = versions_of(&f);
    peer_post(&p, 7, "policy_load", LOAD);
    CHECK(take_response(&p, 7) == NULL);
    CHECK_EQ(versions_of(&f), versions);
    finish(&f, 0, GB_OK, GOOD);
    json_t *response = take_response(&p, 7), *loaded = json_array_get(response, 3);
    CHECK_STR(json_text(loaded, "name"), "mine");
    CHECK(json_is_true(json_object_get(loaded, "checked")));
    CHECK_STR(json_string_value(json_array_get(json_object_get(loaded, "warnings"), 0)), "it allocates");
    CHECK_EQ(versions_of(&f), versions + 1);
    json_decref(response);
    close_checked(&f, &p);
}

static void what_the_check_refuses_is_not_loaded(void)
{
    static const struct {
        int status;
        const char *report, *why;
        int code;
    } cases[] = {
        {GB_OK, "{\"file\": \"mine\", \"ok\": false, \"refusal\": \"mine:1: no\", \"globals\": [], \"tables\": [], \"warnings\": []}", "mine:1: no", GB_RPC_POLICY_REJECTED},
        {GB_OK, "{\"file\": \"mine\", \"ok\": false, \"refusal\": \"\", \"globals\": [{\"line\": 3, \"why\": \"pirnt is not defined\"}], \"tables\": [], \"warnings\": []}",
         "mine:3: pirnt is not defined", GB_RPC_POLICY_REJECTED},
        {GB_OK, "{\"file\": \"mine\", \"ok\": false, \"refusal\": \"\", \"globals\": [], \"tables\": [{\"hook\": \"a\", \"tables\": \"b\", \"faults\": 0, \"fault\": \"\"}, "
                "{\"hook\": \"order_queue\", \"tables\": \"1024 waiting\", \"faults\": 2, \"fault\": \"mine:4: long\"}], \"warnings\": []}",
         "order_queue on 1024 waiting: mine:4: long", GB_RPC_POLICY_REJECTED},
        {GB_OK, "no JSON", "without a report", GB_RPC_INTERNAL},
        {GB_OK, "{}", "without a report", GB_RPC_INTERNAL},
        {GB_EDEADLINE, "took more than 30 s", "took more than 30 s", GB_RPC_POLICY_BUDGET},
        {GB_EINTERNAL, "was killed by signal 9", "killed by signal 9", GB_RPC_INTERNAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        peer p;
        open_checked(&f, &p);
        uint64_t versions = versions_of(&f);
        peer_post(&p, 7, "policy_load", LOAD);
        finish(&f, 0, cases[i].status, cases[i].report);
        json_t *response = take_response(&p, 7), *error = json_array_get(response, 2);
        CHECK_EQ(json_int(error, "code"), cases[i].code);
        CHECK_CONTAINS(json_text(error, "message"), cases[i].why);
        CHECK_EQ(versions_of(&f), versions);
        json_decref(response);
        close_checked(&f, &p);
    }
}

static void without_a_checker_policies_are_only_probed(void)
{
    fixture f;
    peer p;
    open_checked(&f, &p);
    desk.refuses = GB_EUNSUPPORTED;
    json_t *loaded = peer_call(&p, "policy_load", LOAD);
    CHECK(json_is_false(json_object_get(loaded, "checked")));
    json_decref(loaded);
    peer_call_fails(&p, "policy_check", LOAD, GB_RPC_INTERNAL, NULL, "cannot be started");
    peer_call_fails(&p, "policy_load", "{\"source\": \"return 5\"}", GB_RPC_POLICY_REJECTED, "source", "table of hooks");
    close_checked(&f, &p);
}

static void a_closed_connection_takes_its_checks_with_it(void)
{
    fixture f;
    peer p, other;
    open_checked(&f, &p);
    uint64_t versions = versions_of(&f);
    peer_hello(&other, &f);
    peer_post(&p, 7, "policy_load", LOAD);
    peer_post(&other, 8, "policy_load", LOAD);
    peer_close(&p);
    CHECK_EQ(desk.cancelled, 1);
    finish(&f, 1, GB_OK, GOOD);
    json_decref(take_response(&other, 8));
    CHECK_EQ(versions_of(&f), versions + 1);
    peer_post(&other, 9, "policy_check", LOAD);
    peer_close(&other);
    CHECK_EQ(desk.cancelled, 2);
    fixture_close(&f);
}

static void more_checks_than_may_run_at_a_time_are_told_to_wait(void)
{
    fixture f;
    peer p;
    open_checked(&f, &p);
    for (uint32_t i = 0; i < GB_CHECKS_MAX; i++) peer_post(&p, 100 + i, "policy_check", LOAD);
    peer_call_fails(&p, "policy_check", LOAD, GB_RPC_OVERLOADED, NULL, "being checked");
    peer_call_fails(&p, "policy_load", LOAD, GB_RPC_OVERLOADED, NULL, "being checked");
    finish(&f, 0, GB_OK, GOOD);
    peer_post(&p, 200, "policy_check", LOAD);
    CHECK_EQ(desk.n, GB_CHECKS_MAX + 1);
    close_checked(&f, &p);
}

static void only_admins_may_have_a_policy_checked(void)
{
    fixture f;
    peer p;
    memset(&desk, 0, sizeof desk);
    fixture_open(&f, &(fixture_options){.checker = &seam});
    peer_open(&p, &f, false);
    json_decref(peer_call(&p, "hello", "{}"));
    peer_call_fails(&p, "policy_check", LOAD, GB_RPC_FORBIDDEN, NULL, "admin");
    CHECK_EQ(desk.n, 0);
    peer_close(&p);
    fixture_close(&f);
}

#define MOODY "local p = {api = 1}\\nfunction p.select_engine(request)\\nif request.max_tokens == 77 then error('no') end\\nreturn 0 end\\nreturn p"

static void what_broke_a_policy_is_tried_on_the_next(void)
{
    fixture f;
    peer p;
    open_checked(&f, &p);
    desk.refuses = GB_EUNSUPPORTED;
    json_t *loaded = peer_call(&p, "policy_load", "{\"source\": \"" MOODY "\"}");
    char params[64];
    snprintf(params, sizeof params, "{\"version\": %d}", (int)json_int(loaded, "version"));
    json_decref(loaded);
    json_decref(peer_call(&p, "policy_activate", params));
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"sampling\": {\"max_tokens\": 77}}"));
    desk.refuses = GB_OK;
    peer_post(&p, 7, "policy_load", LOAD);
    CHECK_CONTAINS(desk.snapshots, "\"max_tokens\":77.0");
    CHECK_CONTAINS(desk.snapshots, "}\n");
    close_checked(&f, &p);
}

TESTS(TEST(a_check_is_answered_with_its_report_once_it_has_ended), TEST(a_policy_is_loaded_when_its_check_is_content),
      TEST(what_the_check_refuses_is_not_loaded), TEST(without_a_checker_policies_are_only_probed),
      TEST(a_closed_connection_takes_its_checks_with_it), TEST(more_checks_than_may_run_at_a_time_are_told_to_wait),
      TEST(only_admins_may_have_a_policy_checked), TEST(what_broke_a_policy_is_tried_on_the_next))
