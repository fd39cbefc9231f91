/* Checking policies: in a process of their own, so that the loop serves meanwhile. policy_check answers with the report; policy_load
   is refused what the check refuses. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/rpc/conn.h"
#include "bindings/rpc/json.h"
#include "bindings/rpc/methods_policy.h"
#include "bindings/rpc/params.h"
#include "core/base/log.h"

enum {
    SNAPSHOTS = 8,                  /* of the latest faults: a mended policy is tried on what broke the old one */
    SNAPSHOT_ROWS_MAX = 256,        /* of a longer queue nothing is passed on: writing it would take the loop's time */
};

/* A call that waits for its check. Belongs to the service's list; goes with its connection. */
struct gb_rpc_check {
    struct gb_rpc_check *next;
    gb_rpc_conn *conn;
    const gb_rpc_method *method;
    bool replies, loads;
    uint32_t msgid;
    uint64_t job;
    bool has_hook, has_name;
    char hook[GB_RPC_STRING_MAX + 1], name[GB_RPC_STRING_MAX + 1];
    size_t bytes;
    char source[];
};

static void remove_check(gb_rpc_service *service, struct gb_rpc_check *check)
{
    struct gb_rpc_check **at = &service->checks;
    while (*at != check) at = &(*at)->next;
    *at = check->next;
    service->n_checks--;
    free(check);
}

void gb_rpc_checks_drop(gb_rpc_conn *conn)
{
    gb_rpc_service *service = conn->service;
    for (struct gb_rpc_check *check = service->checks, *next; check; check = next) {
        next = check->next;
        if (check->conn != conn) continue;
        service->options.checker->cancel(service->options.checker->self, check->job);
        remove_check(service, check);
    }
}

/* ---- the end ---- */

/* What documentation calls optional is left out when it is empty. */
static void drop_empty(json_t *object, const char *key)
{
    if (!*json_string_value(json_object_get(object, key))) json_object_del(object, key);
}

static bool is_report(const json_t *report)
{
    return json_is_boolean(json_object_get(report, "ok")) && json_is_string(json_object_get(report, "refusal")) &&
           json_is_array(json_object_get(report, "globals")) && json_is_array(json_object_get(report, "tables")) &&
           json_is_array(json_object_get(report, "warnings"));
}

/* The first thing that is wrong, in a sentence with its line. */
static void why_not(gb_error *err, const json_t *report)
{
    size_t i;
    json_t *global = json_array_get(json_object_get(report, "globals"), 0), *row;
    const char *file = json_string_value(json_object_get(report, "file")), *refusal = json_string_value(json_object_get(report, "refusal"));
    gb_fail(err, GB_EPOLICY, "%s", *refusal ? refusal : "the check found the policy unfit");
    if (*refusal) return;
    if (global) {
        gb_fail(err, GB_EPOLICY, "%s:%lld: %s", file ? file : "policy", (long long)json_integer_value(json_object_get(global, "line")),
                json_string_value(json_object_get(global, "why")));
        return;
    }
    json_array_foreach(json_object_get(report, "tables"), i, row) {
        if (json_integer_value(json_object_get(row, "faults")) == 0) continue;
        gb_fail(err, GB_EPOLICY, "%s on %s: %s", json_string_value(json_object_get(row, "hook")), json_string_value(json_object_get(row, "tables")),
                json_string_value(json_object_get(row, "fault")));
        return;
    }
}

static gb_rpc_outcome reply_report(gb_rpc_call *call, json_t *report)
{
    size_t i;
    json_t *row;
    json_object_del(report, "file");
    drop_empty(report, "refusal");
    json_array_foreach(json_object_get(report, "tables"), i, row) drop_empty(row, "fault");
    gb_rpc_json_pack(call->out, report);
    return GB_RPC_REPLIED;
}

static gb_rpc_outcome reply_load(gb_rpc_call *call, const struct gb_rpc_check *check, const json_t *report)
{
    if (!json_is_true(json_object_get(report, "ok"))) {
        why_not(&call->error.sentence, report);
        return gb_rpc_fail_status(call, GB_EPOLICY, "source");
    }
    gb_rpc_load load = {check->has_hook ? check->hook : NULL, check->has_name ? check->name : NULL, check->source, check->bytes};
    return gb_rpc_load_policy(call, &load, json_object_get(report, "warnings"));
}

static gb_rpc_outcome answer(gb_rpc_call *call, const struct gb_rpc_check *check, int status, const char *text, size_t bytes, const gb_error *err)
{
    if (status == GB_EDEADLINE || status == GB_ETOOBIG) return gb_rpc_fail(call, GB_RPC_POLICY_BUDGET, "source", "%s", err->text);
    if (status) return gb_rpc_fail(call, GB_RPC_INTERNAL, NULL, "%s", err->text);
    json_t *report = json_loadb(text, bytes, 0, NULL);
    gb_rpc_outcome outcome;
    if (!is_report(report)) outcome = gb_rpc_fail(call, GB_RPC_INTERNAL, NULL, "the check of the policy ended without a report");
    else outcome = check->loads ? reply_load(call, check, report) : reply_report(call, report);
    json_decref(report);
    return outcome;
}

static void on_checked(void *self, int status, const char *report, size_t bytes, const gb_error *err, gb_time now)
{
    struct gb_rpc_check *check = self;
    gb_rpc_service *service = check->conn->service;
    gb_rpc_call call = gb_rpc_call_resume(check->conn, check->method, check->replies, check->msgid, now);
    gb_rpc_call_finish(&call, answer(&call, check, status, report, bytes, err));
    remove_check(service, check);
}

/* ---- the beginning ---- */

static bool is_short(const gb_lua_snapshot *s)
{
    return s->hook == GB_HOOK_SELECT || (s->hook == GB_HOOK_ORDER && s->tables.queue.n <= SNAPSHOT_ROWS_MAX);
}

/* The snapshots of the latest faults, one a line; malloc'd. */
static char *latest_snapshots(const gb_lua_log *log, size_t *bytes)
{
    char *text = NULL;
    uint64_t newest = gb_lua_log_faults(log), first = newest > SNAPSHOTS ? newest - SNAPSHOTS + 1 : 1;
    FILE *out = open_memstream(&text, bytes);
    if (!out) return NULL;
    for (uint64_t seq = first; seq <= newest; seq++) {
        const gb_lua_snapshot *snapshot = gb_lua_log_snapshot(log, seq);
        char *line = snapshot && is_short(snapshot) ? gb_lua_snapshot_write(snapshot) : NULL;
        if (line) fprintf(out, "%s\n", line);
        free(line);
    }
    fclose(out);
    return text;
}

static struct gb_rpc_check *new_check(const gb_rpc_call *call, const gb_rpc_load *load, bool loads)
{
    struct gb_rpc_check *check = calloc(1, sizeof *check + load->bytes + 1);
    if (!check) return NULL;
    check->conn = call->conn;
    check->method = call->method;
    check->replies = call->replies;
    check->msgid = call->msgid;
    check->loads = loads;
    check->bytes = load->bytes;
    memcpy(check->source, load->source, load->bytes);
    check->has_hook = load->hook != NULL;
    check->has_name = load->name != NULL;
    snprintf(check->hook, sizeof check->hook, "%s", load->hook ? load->hook : "");
    snprintf(check->name, sizeof check->name, "%s", load->name ? load->name : "");
    return check;
}

static int start_check(const gb_rpc_call *call, struct gb_rpc_check *check, gb_error *err)
{
    const gb_checker_seam *checker = call->service->options.checker;
    gb_check_script script = {.name = check->has_name ? check->name : "rpc", .source = check->source, .source_bytes = check->bytes,
                              .engines = gb_server_options_get(call->service->instance->server)->engines};
    char *snapshots = latest_snapshots(gb_lua_host_log(call->service->instance->policies), &script.snapshot_bytes);
    script.snapshots = snapshots ? snapshots : "";
    int status = checker->start(checker->self, &check->job, &script, on_checked, check, err);
    free(snapshots);
    return status;
}

int gb_rpc_check_begin(gb_rpc_call *call, const gb_rpc_load *load, bool loads, gb_error *err)
{
    gb_rpc_service *service = call->service;
    if (!service->options.checker) return gb_fail(err, GB_EUNSUPPORTED, "this server has nobody to check policies; gimbal policy check FILE does");
    if (service->n_checks == GB_CHECKS_MAX) return gb_fail(err, GB_EFULL, "%d policies are being checked; wait for one", GB_CHECKS_MAX);
    struct gb_rpc_check *check = new_check(call, load, loads);
    int status = check ? start_check(call, check, err) : gb_fail(err, GB_ENOMEM, "out of memory for a check of the policy");
    if (status) {
        free(check);
        return status;
    }
    check->next = service->checks;
    service->checks = check;
    service->n_checks++;
    return GB_OK;
}

bool gb_rpc_read_load(gb_rpc_call *call, gb_rpc_load *load, char name_text[GB_RPC_STRING_MAX + 1])
{
    load->name = gb_rpc_param_string(call->params, "name", name_text);
    load->source = gb_rpc_param_text(call->params, "source", &load->bytes);
    if (load->bytes <= GB_LUA_SOURCE_MAX) return true;
    gb_rpc_fail(call, GB_RPC_TOO_LARGE, "source", "source has %zu bytes, but a policy may have %d", load->bytes, GB_LUA_SOURCE_MAX);
    return false;
}

static gb_rpc_outcome run_policy_check(gb_rpc_call *call)
{
    char name[GB_RPC_STRING_MAX + 1];
    gb_rpc_load load = {0};
    if (!gb_rpc_read_load(call, &load, name)) return GB_RPC_FAILED;
    int status = gb_rpc_check_begin(call, &load, false, &call->error.sentence);
    if (status == GB_OK) return GB_RPC_LATER;
    if (status == GB_EFULL) return gb_rpc_fail_status(call, status, NULL);
    call->error.code = GB_RPC_INTERNAL;
    return GB_RPC_FAILED;
}

/* ---- the method ---- */

static const gb_rpc_field policy_check_params[] = {
    {.name = "source", .type = GB_RPC_TEXT, .required = true, .doc = "Lua text, at most 256 KiB"},
    {.name = "name", .type = GB_RPC_STRING, .low = 1, .high = GB_LUA_NAME_MAX, .doc = "how errors call it; default: rpc"},
    {0},
};

static const gb_rpc_field global_fields[] = {
    {.name = "line", .type = GB_RPC_INT, .doc = "where it is used"},
    {.name = "why", .type = GB_RPC_TEXT, .doc = "what is wrong with the name"},
    {0},
};

static const gb_rpc_field table_fields[] = {
    {.name = "hook", .type = GB_RPC_STRING, .doc = "or on_window, export, import"},
    {.name = "tables", .type = GB_RPC_STRING, .doc = "what it was called with"},
    {.name = "calls", .type = GB_RPC_INT, .doc = "that were timed, and faults"},
    {.name = "p50_us", .type = GB_RPC_FLOAT, .doc = "CPU time of a middling call"},
    {.name = "p99_us", .type = GB_RPC_FLOAT, .doc = "of one in a hundred"},
    {.name = "max_us", .type = GB_RPC_FLOAT, .doc = "of the longest"},
    {.name = "budget_us", .type = GB_RPC_FLOAT, .doc = "that a server allows"},
    {.name = "shares", .type = GB_RPC_INT, .shape = GB_RPC_LIST, .doc = "calls that used up to 0.1, 1, 10, 50, 100 % of the budget, and more"},
    {.name = "allocated_bytes", .type = GB_RPC_INT, .doc = "memory that a middling decision makes"},
    {.name = "nils", .type = GB_RPC_INT, .doc = "calls without an opinion"},
    {.name = "faults", .type = GB_RPC_INT, .doc = "calls that failed"},
    {.name = "fault", .type = GB_RPC_TEXT, .optional = true, .doc = "file:line and message of the first"},
    {0},
};

static const gb_rpc_field policy_check_result[] = {
    {.name = "ok", .type = GB_RPC_BOOL, .doc = "whether policy_load would take it"},
    {.name = "name", .type = GB_RPC_STRING, .doc = "the script's own, or \"\""},
    {.name = "sha256", .type = GB_RPC_STRING, .doc = "of the source"},
    {.name = "refusal", .type = GB_RPC_TEXT, .optional = true, .doc = "why a server would not build it: file:line and remedy"},
    {.name = "hooks", .type = GB_RPC_STRING, .shape = GB_RPC_LIST, .doc = "that the script has"},
    {.name = "globals", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = global_fields, .doc = "names that policies do not have"},
    {.name = "tables", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = table_fields, .doc = "what calls on each kind of table came to"},
    {.name = "warnings", .type = GB_RPC_TEXT, .shape = GB_RPC_LIST, .doc = "what is allowed and should be better"},
    {0},
};

const gb_rpc_method gb_rpc_policy_check_methods[] = {
    {"policy_check", GB_RPC_NEEDS_ADMIN, 1, run_policy_check, policy_check_params, policy_check_result,
     "Checks a policy script in a process of its own, on made-up, shipped and recorded decisions (those of the latest faults), while the "
     "server goes on. Nothing is loaded."},
    {0},
};
