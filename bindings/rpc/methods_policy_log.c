/* What policies did: changes, failed decisions, decisions. */
#include "bindings/rpc/methods_policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/rpc/conn.h"
#include "bindings/rpc/params.h"

/* --- policy_log --- */

const gb_rpc_field gb_rpc_event_fields[] = {
    {.name = "seq", .type = GB_RPC_INT, .doc = "1, 2 ...; the latest 256 are kept"},
    {.name = "age_ms", .type = GB_RPC_FLOAT, .optional = true, .doc = "how long ago; missing for what was done before serving began, and in events"},
    {.name = "kind", .type = GB_RPC_STRING, .doc = "load, activate, builtin, rollback, set, quarantine, shadow or refused"},
    {.name = "version", .type = GB_RPC_INT, .doc = "0 = the C built-in"},
    {.name = "sha256", .type = GB_RPC_STRING, .doc = "of its source, or \"\""},
    {.name = "who", .type = GB_RPC_STRING, .doc = "start, unix socket (uid and pid), tcp (address), signal, directory or fault"},
    {.name = "text", .type = GB_RPC_TEXT, .doc = "the line of the server's log"},
    {0},
};

void gb_rpc_pack_events(gb_pack *out, const gb_lua_log *log, uint64_t after, gb_time now)
{
    gb_pack_list list = gb_pack_begin_array(out);
    for (const gb_lua_event *event; (event = gb_lua_log_next_event(log, &after));) {
        gb_pack_list map = gb_pack_begin_map(gb_pack_next(&list));
        gb_pack_key_uint(&map, "seq", event->seq);
        if (event->at && now) gb_pack_key_float(&map, "age_ms", gb_to_ms(gb_time_since(event->at, now)));
        gb_pack_key_str(&map, "kind", gb_lua_event_kind_name(event->kind));
        gb_pack_key_uint(&map, "version", event->version);
        gb_pack_key_str(&map, "sha256", event->sha256);
        gb_pack_key_str(&map, "who", event->who);
        gb_pack_key_str(&map, "text", event->text);
        gb_pack_end(&map);
    }
    gb_pack_end(&list);
}

static void pack_fault(gb_pack *out, const gb_lua_log *log, const gb_lua_fault *fault, bool snapshots, gb_time now)
{
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_key_uint(&map, "seq", fault->seq);
    gb_pack_key_float(&map, "age_ms", gb_to_ms(gb_time_since(fault->at, now)));
    gb_pack_key_str(&map, "hook", gb_hook_name(fault->hook));
    gb_pack_key_str(&map, "kind", gb_lua_fault_kind_name(fault->kind));
    gb_pack_key_uint(&map, "version", fault->version);
    gb_pack_key_str(&map, "name", fault->name);
    gb_pack_key_str(&map, "sha256", fault->sha256);
    gb_pack_key_str(&map, "message", fault->message);
    const gb_lua_snapshot *snapshot = snapshots ? gb_lua_log_snapshot(log, fault->seq) : NULL;
    char *text = snapshot ? gb_lua_snapshot_write(snapshot) : NULL;
    if (text) gb_pack_text(gb_pack_key(&map, "snapshot"), text, strlen(text));
    free(text);
    gb_pack_end(&map);
}

static gb_rpc_outcome run_policy_log(gb_rpc_call *call)
{
    const gb_lua_log *log = gb_lua_host_log(call->service->instance->policies);
    uint64_t fault_seq = (uint64_t)gb_rpc_param_int(call->params, "fault", 0), after = 0;
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_rpc_pack_events(gb_pack_key(&map, "events"), log, (uint64_t)gb_rpc_param_int(call->params, "after", 0), call->now);
    gb_pack_list faults = gb_pack_begin_array(gb_pack_key(&map, "faults"));
    for (const gb_lua_fault *fault; (fault = gb_lua_log_next_fault(log, &after));) {
        if (!fault_seq || fault->seq == fault_seq) pack_fault(gb_pack_next(&faults), log, fault, fault_seq != 0, call->now);
    }
    gb_pack_end(&faults);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field policy_log_params[] = {
    {.name = "after",
     .type = GB_RPC_INT,
     .low = 0,
     .high = INT64_MAX,
     .doc = "only events with a higher seq; default 0: all that are kept"},
    {.name = "fault", .type = GB_RPC_INT, .low = 1, .high = INT64_MAX, .doc = "only the fault with this seq, and its snapshot"},
    {0},
};

static const gb_rpc_field fault_fields[] = {
    {.name = "seq", .type = GB_RPC_INT, .doc = "1, 2 ...; the latest 16 are kept"},
    {.name = "age_ms", .type = GB_RPC_FLOAT, .doc = "how long ago"},
    {.name = "hook", .type = GB_RPC_STRING, .doc = "its name"},
    {.name = "kind", .type = GB_RPC_STRING, .doc = "type, range, down, nan, error, time, memory or stack"},
    {.name = "version", .type = GB_RPC_INT, .doc = "that failed"},
    {.name = "name", .type = GB_RPC_STRING, .doc = "its name"},
    {.name = "sha256", .type = GB_RPC_STRING, .doc = "of its source"},
    {.name = "message", .type = GB_RPC_TEXT, .doc = "file:line, why, and the calls that led there, one a line"},
    {.name = "snapshot",
     .type = GB_RPC_TEXT,
     .optional = true,
     .doc = "what the hook saw, for gimbal policy check --replay; with `fault` only"},
    {0},
};

static const gb_rpc_field policy_log_result[] = {
    {.name = "events", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = gb_rpc_event_fields, .doc = "changes, oldest first"},
    {.name = "faults",
     .type = GB_RPC_MAP,
     .shape = GB_RPC_LIST,
     .fields = fault_fields,
     .doc = "failed decisions, oldest first; the built-in made them"},
    {0},
};

/* --- decision_log --- */

enum { DECISIONS = 256, DECISIONS_MOST = 1024 };

static const char *outcome_of(const gb_lua_decision *decision)
{
    if (decision->answer == GB_POLICY_NIL) return "nil";
    return decision->answer == GB_POLICY_FAULT ? gb_lua_fault_kind_name(decision->fault_kind) : "ok";
}

static void pack_decision(gb_pack *out, const gb_lua_decision *decision, gb_time now)
{
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_key_uint(&map, "seq", decision->seq);
    gb_pack_key_float(&map, "age_ms", gb_to_ms(gb_time_since(decision->at, now)));
    gb_pack_key_str(&map, "hook", gb_hook_name(decision->hook));
    gb_pack_key_uint(&map, "version", decision->version);
    gb_pack_key_uint(&map, "rows", decision->rows);
    gb_pack_key_str(&map, "outcome", outcome_of(decision));
    if (decision->inputs) {
        char digest[20];
        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)decision->inputs);
        gb_pack_key_str(&map, "inputs", digest);
    }
    if (decision->hook == GB_HOOK_SELECT && decision->answer >= 0) gb_pack_key_uint(&map, "engine", (uint64_t)decision->answer);
    gb_pack_key_float(&map, "took_us", (double)decision->ns / 1e3);
    gb_pack_end(&map);
}

static gb_rpc_outcome run_decision_log(gb_rpc_call *call)
{
    const gb_lua_log *log = gb_lua_host_log(call->service->instance->policies);
    uint64_t after = (uint64_t)gb_rpc_param_int(call->params, "after", 0), next = after,
             most = (uint64_t)gb_rpc_param_int(call->params, "most", DECISIONS);
    const gb_lua_decision *decision = gb_lua_log_next_decision(log, &next);
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_key_uint(&map, "lost", decision ? next - after - 1 : 0);
    gb_pack_list list = gb_pack_begin_array(gb_pack_key(&map, "decisions"));
    for (uint64_t n = 0; decision && n < most; n++, decision = gb_lua_log_next_decision(log, &next))
        pack_decision(gb_pack_next(&list), decision, call->now);
    gb_pack_end(&list);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field decision_log_params[] = {
    {.name = "after",
     .type = GB_RPC_INT,
     .low = 0,
     .high = INT64_MAX,
     .doc = "only decisions with a higher seq; default 0: all that are kept"},
    {.name = "most", .type = GB_RPC_INT, .low = 1, .high = DECISIONS_MOST, .doc = "at most so many, oldest first; default 256"},
    {0},
};

static const gb_rpc_field decision_fields[] = {
    {.name = "seq", .type = GB_RPC_INT, .doc = "1, 2 ... without gaps; the latest 4096 are kept"},
    {.name = "age_ms", .type = GB_RPC_FLOAT, .doc = "how long ago"},
    {.name = "hook", .type = GB_RPC_STRING, .doc = "its name"},
    {.name = "version", .type = GB_RPC_INT, .doc = "that was asked"},
    {.name = "rows", .type = GB_RPC_INT, .doc = "engines, waiting requests, or experts of all layers"},
    {.name = "outcome", .type = GB_RPC_STRING, .doc = "ok; nil = no opinion; else the kind of fault: then the built-in decided"},
    {.name = "engine", .type = GB_RPC_INT, .optional = true, .doc = "that select_engine chose"},
    {.name = "inputs",
     .type = GB_RPC_STRING,
     .optional = true,
     .doc = "16 hex digits, the same for the same columns of the first 16 rows; placement hooks have none"},
    {.name = "took_us", .type = GB_RPC_FLOAT, .doc = "how long the script took, waiting for a CPU included"},
    {0},
};

static const gb_rpc_field decision_log_result[] = {
    {.name = "lost", .type = GB_RPC_INT, .doc = "decisions after `after` that are forgotten"},
    {.name = "decisions", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = decision_fields, .doc = "oldest first"},
    {0},
};

const gb_rpc_method gb_rpc_policy_log_methods[] = {
    {"policy_log", GB_RPC_NEEDS_HELLO, 1, run_policy_log, policy_log_params, policy_log_result,
     "Changes of what decides, and failed decisions."},
    {"decision_log", GB_RPC_NEEDS_HELLO, 1, run_decision_log, decision_log_params, decision_log_result,
     "The latest decisions of scripts."},
    {0},
};
