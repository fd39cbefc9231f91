/* What the policies are, what they did, and changing them. */
#include <stdlib.h>
#include <string.h>

#include "bindings/rpc/conn.h"
#include "bindings/rpc/params.h"
#include "bindings/rpc/snapshot.h"

static void pack_hook_names(gb_pack *out, const bool *flags)
{
    gb_pack_list list = gb_pack_begin_array(out);
    for (int h = 0; h < GB_HOOKS; h++)
        if (flags[h]) gb_pack_str(gb_pack_next(&list), gb_hook_name((gb_hook)h));
    gb_pack_end(&list);
}

static void pack_identity(gb_pack_list *map, const gb_lua_info *info)
{
    gb_pack_key_uint(map, "version", info->version);
    gb_pack_key_str(map, "name", info->name);
    gb_pack_key_str(map, "sha256", info->sha256);
    pack_hook_names(gb_pack_key(map, "hooks"), info->hooks);
    pack_hook_names(gb_pack_key(map, "active"), info->active);
    gb_pack_key_str(map, "state", gb_lua_state_name(info->state));
    gb_pack_key_bool(map, "builtin", info->builtin);
}

#define IDENTITY_FIELDS \
    {.name = "version", .type = GB_RPC_INT, .doc = "1, 2 ... in order of loading; 0 = the C built-in"}, \
        {.name = "name", .type = GB_RPC_STRING, .doc = "several versions may have one name"}, \
        {.name = "sha256", .type = GB_RPC_STRING, .doc = "of the source"}, \
        {.name = "hooks", .type = GB_RPC_STRING, .shape = GB_RPC_LIST, .doc = "that the script has"}, \
        {.name = "active", .type = GB_RPC_STRING, .shape = GB_RPC_LIST, .doc = "for which it decides now"}, \
        {.name = "state", .type = GB_RPC_STRING, .doc = "\"ready\", \"active\", \"standby\", \"retired\" or \"quarantined\""}, \
    { \
        .name = "builtin", .type = GB_RPC_BOOL, .doc = "shipped with gimbal" \
    }

/* --- policy_list --- */

static void pack_policy(gb_pack *out, const gb_lua_info *info)
{
    gb_pack_list map = gb_pack_begin_map(out);
    pack_identity(&map, info);
    gb_pack_key_uint(&map, "calls", info->calls);
    gb_pack_key_uint(&map, "nils", info->nils);
    gb_pack_key_uint(&map, "faults", info->faults);
    if (info->last_fault[0]) gb_pack_key_str(&map, "last_fault", info->last_fault);
    gb_pack_end(&map);
}

void gb_rpc_pack_policies(gb_rpc_service *service, gb_pack *out)
{
    const gb_lua_host *host = service->instance->policies;
    gb_lua_info info;
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_list list = gb_pack_begin_array(gb_pack_key(&map, "policies"));
    for (uint32_t i = 0; gb_lua_host_info(host, i, &info) == GB_OK; i++) pack_policy(gb_pack_next(&list), &info);
    gb_pack_end(&list);
    gb_pack_list active = gb_pack_begin_map(gb_pack_key(&map, "active"));
    for (int h = 0; h < GB_HOOKS; h++) gb_pack_key_uint(&active, gb_hook_name((gb_hook)h), gb_lua_host_active(host, (gb_hook)h));
    gb_pack_end(&active);
    gb_pack_end(&map);
}

static gb_rpc_outcome run_policy_list(gb_rpc_call *call)
{
    gb_rpc_pack_policies(call->service, call->out);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field policy_fields[] = {
    IDENTITY_FIELDS,
    {.name = "calls", .type = GB_RPC_INT, .doc = "decisions asked for"},
    {.name = "nils", .type = GB_RPC_INT, .doc = "no opinion: the built-in decided"},
    {.name = "faults", .type = GB_RPC_INT, .doc = "errors and refused answers: the built-in decided"},
    {.name = "last_fault", .type = GB_RPC_TEXT, .optional = true, .doc = "file:line and message"},
    {0},
};

static const gb_rpc_field policy_list_result[] = {
    {.name = "policies", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = policy_fields, .doc = "every version"},
    {.name = "active", .type = GB_RPC_INT, .shape = GB_RPC_BY_NAME,
     .doc = "version that decides for each hook; 0 = the C built-in"},
    {0},
};

/* --- policy_get --- */

static bool read_hook(const char *name, gb_hook *hook)
{
    for (int h = 0; h < GB_HOOKS; h++)
        if (strcmp(name, gb_hook_name((gb_hook)h)) == 0) {
            *hook = (gb_hook)h;
            return true;
        }
    return false;
}

/* Fills name with the parameter `hook` or returns false for a wrong one; *given = NULL when it is absent. */
static bool read_hook_name(gb_rpc_call *call, char *name, const char **given)
{
    gb_hook hook;
    *given = gb_rpc_param_string(call->params, "hook", name);
    if (!*given || read_hook(*given, &hook)) return true;
    gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "hook", "there is no hook of that name: hooks are %s and %s",
                gb_hook_name(GB_HOOK_SELECT), gb_hook_name(GB_HOOK_ORDER));
    return false;
}

static void pack_c_builtin(gb_pack *out, const char *hook)
{
    gb_lua_info info = {.name = "builtin", .state = GB_LUA_ACTIVE, .builtin = true};
    for (int h = 0; h < GB_HOOKS; h++) info.hooks[h] = info.active[h] = strcmp(hook, gb_hook_name((gb_hook)h)) == 0;
    gb_pack_list map = gb_pack_begin_map(out);
    pack_identity(&map, &info);
    gb_pack_key_str(&map, "source", "");
    gb_pack_end(&map);
}

static gb_rpc_outcome run_policy_get(gb_rpc_call *call)
{
    const gb_lua_host *host = call->service->instance->policies;
    char name[GB_RPC_STRING_MAX + 1];
    const char *hook;
    gb_hook which = GB_HOOK_SELECT;
    if (!read_hook_name(call, name, &hook)) return GB_RPC_FAILED;
    uint32_t version = (uint32_t)gb_rpc_param_int(call->params, "version", 0);
    if (!hook && !version)
        return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "version", "give version, or hook for the version that decides for it");
    if (!version && read_hook(hook, &which)) version = gb_lua_host_active(host, which);
    if (!version) {
        pack_c_builtin(call->out, hook);
        return GB_RPC_REPLIED;
    }
    gb_lua_info info;
    if (gb_lua_host_find(host, version, &info) || (hook && read_hook(hook, &which) && !info.hooks[which]))
        return gb_rpc_fail(call, GB_RPC_NOT_FOUND, "version", "there is no policy version %u%s%s: policy_list has them", version,
                           hook ? " with hook " : "", hook ? hook : "");
    size_t bytes = 0;
    const char *source = gb_lua_host_source(host, version, &bytes);
    gb_pack_list map = gb_pack_begin_map(call->out);
    pack_identity(&map, &info);
    gb_pack_text(gb_pack_key(&map, "source"), source ? source : "", bytes);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field policy_get_params[] = {
    {.name = "hook", .type = GB_RPC_STRING, .doc = "select_engine or order_queue: the version that decides for it"},
    {.name = "version", .type = GB_RPC_INT, .low = 1, .high = UINT32_MAX, .doc = "this version"},
    {0},
};

static const gb_rpc_field policy_get_result[] = {
    IDENTITY_FIELDS,
    {.name = "source", .type = GB_RPC_TEXT, .doc = "the script; \"\" for the C built-in"},
    {0},
};

/* --- changes --- */

/* Who changes something, what is expected, and when. The generation is stored where change points at. */
static gb_lua_change read_change(const gb_rpc_call *call, const char *hook, uint64_t *generation)
{
    gb_lua_change change = {
        .hook = hook,
        .force = gb_rpc_param_bool(call->params, "force", false),
        .who = call->conn->trusted ? "unix socket" : "tcp",
        .now = call->now,
    };
    if (!gb_rpc_param(call->params, "expected_generation")) return change;
    *generation = (uint64_t)gb_rpc_param_int(call->params, "expected_generation", 0);
    change.expected_generation = generation;
    return change;
}

static void pack_active(gb_pack_list *map, const gb_lua_host *host)
{
    gb_pack_list active = gb_pack_begin_map(gb_pack_key(map, "active"));
    for (int h = 0; h < GB_HOOKS; h++) gb_pack_key_uint(&active, gb_hook_name((gb_hook)h), gb_lua_host_active(host, (gb_hook)h));
    gb_pack_end(&active);
    gb_pack_key_uint(map, "generation", gb_lua_host_generation(host));
}

/* The answer to every change. */
static gb_rpc_outcome reply_change(gb_rpc_call *call, int status, const char *path)
{
    if (status) return gb_rpc_fail_status(call, status, status == GB_EVERSION ? "expected_generation" : path);
    gb_pack_list map = gb_pack_begin_map(call->out);
    pack_active(&map, call->service->instance->policies);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

#define ACTIVE_FIELDS \
    {.name = "active", .type = GB_RPC_INT, .shape = GB_RPC_BY_NAME, .doc = "version that decides for each hook; 0 = the C built-in"}, \
    { \
        .name = "generation", .type = GB_RPC_INT, .doc = "grows with every change: activations, rollbacks, quarantines, params" \
    }
#define EXPECTED_FIELD \
    { \
        .name = "expected_generation", .type = GB_RPC_INT, .low = 0, .high = INT64_MAX, \
        .doc = "refuse with VERSION_CONFLICT when it is another by now" \
    }

static const gb_rpc_field change_result[] = {ACTIVE_FIELDS, {0}};

/* --- policy_load --- */

static gb_rpc_outcome run_policy_load(gb_rpc_call *call)
{
    gb_lua_host *host = call->service->instance->policies;
    char hook_text[GB_RPC_STRING_MAX + 1], name_text[GB_RPC_STRING_MAX + 1];
    const char *hook, *name = gb_rpc_param_string(call->params, "name", name_text);
    size_t bytes;
    const char *source = gb_rpc_param_text(call->params, "source", &bytes);
    uint32_t version;
    uint64_t generation;
    if (!read_hook_name(call, hook_text, &hook)) return GB_RPC_FAILED;
    if (bytes > GB_LUA_SOURCE_MAX)
        return gb_rpc_fail(call, GB_RPC_TOO_LARGE, "source", "source has %zu bytes, but a policy may have %d", bytes,
                           GB_LUA_SOURCE_MAX);
    gb_lua_change change = read_change(call, hook, &generation);
    int status = gb_lua_host_put(host, &version, name, name ? name : "rpc", source, bytes, &change, &call->error.sentence);
    if (status == GB_ENOMEM)
        return gb_rpc_fail(call, GB_RPC_POLICY_BUDGET, "source", "the policy runs out of memory while it is probed");
    if (status != GB_OK) return gb_rpc_fail_status(call, status, "source");
    gb_lua_info info;
    gb_lua_host_find(host, version, &info);
    gb_pack_list map = gb_pack_begin_map(call->out);
    pack_identity(&map, &info);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field policy_load_params[] = {
    {.name = "source", .type = GB_RPC_TEXT, .required = true, .doc = "Lua text, at most 256 KiB"},
    {.name = "name", .type = GB_RPC_STRING, .low = 1, .high = GB_LUA_NAME_MAX,
     .doc = "wins over the script's own; an old name makes a new version"},
    {.name = "hook", .type = GB_RPC_STRING, .doc = "keep only this hook; default: all that the script has"},
    {0},
};

static const gb_rpc_field identity_result[] = {IDENTITY_FIELDS, {0}};

/* --- policy_activate, policy_builtin, policy_rollback --- */

static gb_rpc_outcome run_policy_activate(gb_rpc_call *call)
{
    char hook_text[GB_RPC_STRING_MAX + 1];
    const char *hook;
    uint64_t generation;
    if (!read_hook_name(call, hook_text, &hook)) return GB_RPC_FAILED;
    uint32_t version = (uint32_t)gb_rpc_param_int(call->params, "version", 0);
    gb_lua_change change = read_change(call, hook, &generation);
    return reply_change(call, gb_lua_host_switch(call->service->instance->policies, version, &change, &call->error.sentence),
                        "version");
}

static gb_rpc_outcome run_policy_builtin(gb_rpc_call *call)
{
    char hook_text[GB_RPC_STRING_MAX + 1];
    const char *hook;
    uint64_t generation;
    if (!read_hook_name(call, hook_text, &hook)) return GB_RPC_FAILED;
    gb_lua_change change = read_change(call, hook, &generation);
    return reply_change(call, gb_lua_host_switch(call->service->instance->policies, 0, &change, &call->error.sentence), NULL);
}

static gb_rpc_outcome run_policy_rollback(gb_rpc_call *call)
{
    char hook_text[GB_RPC_STRING_MAX + 1];
    const char *hook;
    uint64_t generation;
    if (!read_hook_name(call, hook_text, &hook)) return GB_RPC_FAILED;
    gb_lua_change change = read_change(call, hook, &generation);
    return reply_change(call, gb_lua_host_rollback(call->service->instance->policies, &change, &call->error.sentence), "hook");
}

static const gb_rpc_field policy_activate_params[] = {
    {.name = "version",
     .type = GB_RPC_INT,
     .required = true,
     .low = 0,
     .high = UINT32_MAX,
     .doc = "as policy_load returned it; 0 = the C built-in"},
    {.name = "hook", .type = GB_RPC_STRING, .doc = "only for this hook; default: every hook it has"},
    {.name = "force",
     .type = GB_RPC_BOOL,
     .doc = "a quarantined script too, and without the state that the old one exports; default false"},
    EXPECTED_FIELD,
    {0},
};

static const gb_rpc_field policy_back_params[] = {
    {.name = "hook", .type = GB_RPC_STRING, .doc = "only for this hook; default: every hook"},
    EXPECTED_FIELD,
    {0},
};

/* --- policy_set --- */

/* One of number, flag and text. */
static bool read_value(gb_rpc_call *call, gb_lua_value *value)
{
    size_t bytes;
    const char *text = gb_rpc_param_text(call->params, "text", &bytes);
    bool number = gb_rpc_param(call->params, "number") != NULL, flag = gb_rpc_param(call->params, "flag") != NULL;
    *value = (gb_lua_value){0};
    if (number + flag + (text != NULL) != 1) {
        gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "number", "give one of number, flag and text, as the param's type is");
        return false;
    }
    if (number) value->number = gb_rpc_param_float(call->params, "number", 0);
    if (flag) value->type = GB_LUA_BOOLEAN, value->boolean = gb_rpc_param_bool(call->params, "flag", false);
    if (text) value->type = GB_LUA_TEXT, memcpy(value->text, text, bytes);
    return true;
}

static gb_rpc_outcome run_policy_set(gb_rpc_call *call)
{
    char name[GB_RPC_STRING_MAX + 1];
    gb_lua_value value;
    uint64_t generation;
    uint32_t version = (uint32_t)gb_rpc_param_int(call->params, "version", 0);
    if (!read_value(call, &value)) return GB_RPC_FAILED;
    gb_lua_change change = read_change(call, NULL, &generation);
    const char *param = gb_rpc_param_string(call->params, "param", name);
    return reply_change(
        call, gb_lua_host_set(call->service->instance->policies, version, param, &value, &change, &call->error.sentence), "param");
}

static const gb_rpc_field policy_set_params[] = {
    {.name = "version", .type = GB_RPC_INT, .required = true, .low = 1, .high = UINT32_MAX, .doc = "whose params"},
    {.name = "param", .type = GB_RPC_STRING, .required = true, .low = 1, .high = GB_LUA_NAME_MAX, .doc = "its name"},
    {.name = "number", .type = GB_RPC_FLOAT, .doc = "the new value of a number"},
    {.name = "flag", .type = GB_RPC_BOOL, .doc = "the new value of a boolean"},
    {.name = "text", .type = GB_RPC_TEXT, .high = GB_LUA_VALUE_BYTES - 1, .doc = "the new value of a string"},
    EXPECTED_FIELD,
    {0},
};

/* --- policy_status --- */

static void pack_params(gb_pack *out, const gb_lua_host *host, uint32_t version)
{
    char name[GB_LUA_NAME_MAX + 1];
    gb_lua_value value;
    gb_pack_list map = gb_pack_begin_map(out);
    for (uint32_t i = 0; gb_lua_host_param(host, version, i, name, &value); i++) {
        switch (value.type) {
        case GB_LUA_NUMBER:
            gb_pack_key_float(&map, name, value.number);
            break;
        case GB_LUA_BOOLEAN:
            gb_pack_key_bool(&map, name, value.boolean);
            break;
        case GB_LUA_TEXT:
            gb_pack_key_str(&map, name, value.text);
            break;
        }
    }
    gb_pack_end(&map);
}

static void pack_fault_counts(gb_pack *out, const uint64_t counts[GB_LUA_FAULT_KINDS])
{
    gb_pack_list map = gb_pack_begin_map(out);
    for (int kind = 0; kind < GB_LUA_FAULT_KINDS; kind++)
        gb_pack_key_uint(&map, gb_lua_fault_kind_name((gb_lua_fault_kind)kind), counts[kind]);
    gb_pack_end(&map);
}

static void pack_seat(gb_pack *out, const gb_lua_host *host, gb_hook hook)
{
    gb_lua_info info = {.name = "builtin"};
    uint32_t version = gb_lua_host_active(host, hook);
    if (version) gb_lua_host_find(host, version, &info);
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_key_str(&map, "hook", gb_hook_name(hook));
    gb_pack_key_uint(&map, "version", version);
    gb_pack_key_str(&map, "name", info.name);
    gb_pack_key_str(&map, "sha256", info.sha256);
    pack_params(gb_pack_key(&map, "params"), host, version);
    pack_fault_counts(gb_pack_key(&map, "faults"), info.faults_by[hook]);
    gb_pack_end(&map);
}

static gb_rpc_outcome run_policy_status(gb_rpc_call *call)
{
    const gb_lua_host *host = call->service->instance->policies;
    const gb_lua_log *log = gb_lua_host_log(host);
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_key_str(&map, "interrupts", gb_lua_host_prepare());
    gb_pack_key_uint(&map, "generation", gb_lua_host_generation(host));
    gb_pack_list hooks = gb_pack_begin_array(gb_pack_key(&map, "hooks"));
    for (int h = 0; h < GB_HOOKS; h++) pack_seat(gb_pack_next(&hooks), host, (gb_hook)h);
    gb_pack_end(&hooks);
    gb_pack_key_uint(&map, "decisions", gb_lua_log_decisions(log));
    gb_pack_key_uint(&map, "events", gb_lua_log_events(log));
    gb_pack_key_uint(&map, "faults", gb_lua_log_faults(log));
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field seat_fields[] = {
    {.name = "hook", .type = GB_RPC_STRING, .doc = "select_engine or order_queue"},
    {.name = "version", .type = GB_RPC_INT, .doc = "that decides; 0 = the C built-in"},
    {.name = "name", .type = GB_RPC_STRING, .doc = "its name"},
    {.name = "sha256", .type = GB_RPC_STRING, .doc = "of its source; \"\" for the C built-in"},
    {.name = "params", .type = GB_RPC_ANY, .doc = "value by name, as policy_set changes them"},
    {.name = "faults",
     .type = GB_RPC_INT,
     .shape = GB_RPC_BY_NAME,
     .doc = "of this version in this hook: type, range, nan, error, time, memory, stack"},
    {0},
};

static const gb_rpc_field policy_status_result[] = {
    {.name = "interrupts",
     .type = GB_RPC_STRING,
     .doc = "how scripts that run too long are stopped: irprof, checkhook, interp; none = they are not"},
    {.name = "generation", .type = GB_RPC_INT, .doc = "grows with every change"},
    {.name = "hooks", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = seat_fields, .doc = "who decides"},
    {.name = "decisions", .type = GB_RPC_INT, .doc = "that scripts were asked for: the newest seq of decision_log"},
    {.name = "events", .type = GB_RPC_INT, .doc = "changes so far: the newest seq of policy_log"},
    {.name = "faults", .type = GB_RPC_INT, .doc = "of all scripts"},
    {0},
};

/* --- policy_log --- */

static void pack_events(gb_pack *out, const gb_lua_log *log, uint64_t after)
{
    gb_pack_list list = gb_pack_begin_array(out);
    for (const gb_lua_event *event; (event = gb_lua_log_next_event(log, &after));) {
        gb_pack_list map = gb_pack_begin_map(gb_pack_next(&list));
        gb_pack_key_uint(&map, "seq", event->seq);
        gb_pack_key_str(&map, "kind", gb_lua_event_kind_name(event->kind));
        gb_pack_key_uint(&map, "version", event->version);
        gb_pack_key_str(&map, "sha256", event->sha256);
        gb_pack_key_str(&map, "who", event->who);
        gb_pack_key_str(&map, "text", event->text);
        gb_pack_end(&map);
    }
    gb_pack_end(&list);
}

static void pack_fault(gb_pack *out, const gb_lua_log *log, const gb_lua_fault *fault, bool snapshots)
{
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_key_uint(&map, "seq", fault->seq);
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
    pack_events(gb_pack_key(&map, "events"), log, (uint64_t)gb_rpc_param_int(call->params, "after", 0));
    gb_pack_list faults = gb_pack_begin_array(gb_pack_key(&map, "faults"));
    for (const gb_lua_fault *fault; (fault = gb_lua_log_next_fault(log, &after));) {
        if (!fault_seq || fault->seq == fault_seq) pack_fault(gb_pack_next(&faults), log, fault, fault_seq != 0);
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

static const gb_rpc_field event_fields[] = {
    {.name = "seq", .type = GB_RPC_INT, .doc = "1, 2 ...; the latest 256 are kept"},
    {.name = "kind", .type = GB_RPC_STRING, .doc = "load, activate, builtin, rollback, set, quarantine, shadow or refused"},
    {.name = "version", .type = GB_RPC_INT, .doc = "0 = the C built-in"},
    {.name = "sha256", .type = GB_RPC_STRING, .doc = "of its source, or \"\""},
    {.name = "who", .type = GB_RPC_STRING, .doc = "start, unix socket, tcp, signal, directory or fault"},
    {.name = "text", .type = GB_RPC_TEXT, .doc = "the line of the server's log"},
    {0},
};

static const gb_rpc_field fault_fields[] = {
    {.name = "seq", .type = GB_RPC_INT, .doc = "1, 2 ...; the latest 16 are kept"},
    {.name = "hook", .type = GB_RPC_STRING, .doc = "select_engine or order_queue"},
    {.name = "kind", .type = GB_RPC_STRING, .doc = "type, range, nan, error, time, memory or stack"},
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
    {.name = "events", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = event_fields, .doc = "changes, oldest first"},
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

static void pack_decision(gb_pack *out, const gb_lua_decision *decision)
{
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_key_uint(&map, "seq", decision->seq);
    gb_pack_key_str(&map, "hook", gb_hook_name(decision->hook));
    gb_pack_key_uint(&map, "version", decision->version);
    gb_pack_key_uint(&map, "rows", decision->rows);
    gb_pack_key_str(&map, "outcome", outcome_of(decision));
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
        pack_decision(gb_pack_next(&list), decision);
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
    {.name = "hook", .type = GB_RPC_STRING, .doc = "select_engine or order_queue"},
    {.name = "version", .type = GB_RPC_INT, .doc = "that was asked"},
    {.name = "rows", .type = GB_RPC_INT, .doc = "engines, or waiting requests"},
    {.name = "outcome", .type = GB_RPC_STRING, .doc = "ok; nil = no opinion; else the kind of fault: then the built-in decided"},
    {.name = "engine", .type = GB_RPC_INT, .optional = true, .doc = "that select_engine chose"},
    {.name = "took_us", .type = GB_RPC_FLOAT, .doc = "how long the script took, waiting for a CPU included"},
    {0},
};

static const gb_rpc_field decision_log_result[] = {
    {.name = "lost", .type = GB_RPC_INT, .doc = "decisions after `after` that are forgotten"},
    {.name = "decisions", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = decision_fields, .doc = "oldest first"},
    {0},
};

const gb_rpc_method gb_rpc_policy_methods[] = {
    {"policy_list", GB_RPC_NEEDS_HELLO, 1, run_policy_list, gb_rpc_no_fields, policy_list_result,
     "Every policy version, and which decide."},
    {"policy_get", GB_RPC_NEEDS_HELLO, 1, run_policy_get, policy_get_params, policy_get_result, "One policy version with its source."},
    {"policy_status", GB_RPC_NEEDS_HELLO, 1, run_policy_status, gb_rpc_no_fields, policy_status_result,
     "Who decides, with params and faults, and how runaway scripts are stopped."},
    {"policy_log", GB_RPC_NEEDS_HELLO, 1, run_policy_log, policy_log_params, policy_log_result,
     "Changes of what decides, and failed decisions."},
    {"decision_log", GB_RPC_NEEDS_HELLO, 1, run_decision_log, decision_log_params, decision_log_result,
     "The latest decisions of scripts."},
    {"policy_load", GB_RPC_NEEDS_ADMIN, 1, run_policy_load, policy_load_params, identity_result,
     "Compiles and probes a policy script; nothing decides differently until policy_activate. Scripts run inside the server: an admin "
     "act."},
    {"policy_activate", GB_RPC_NEEDS_ADMIN, 1, run_policy_activate, policy_activate_params, change_result,
     "Makes a version decide, between two decisions; requests go on. State goes over when both scripts have export and import."},
    {"policy_rollback", GB_RPC_NEEDS_ADMIN, 1, run_policy_rollback, policy_back_params, change_result,
     "Back to what decided before, at once and with the state it had; again = forward."},
    {"policy_builtin", GB_RPC_NEEDS_ADMIN, 1, run_policy_builtin, policy_back_params, change_result,
     "The red button: the C built-in decides. SIGUSR2 does the same."},
    {"policy_set", GB_RPC_NEEDS_ADMIN, 1, run_policy_set, policy_set_params, change_result,
     "Changes one param of a version while it runs."},
    {0},
};
