#include "bindings/rpc/methods_policy.h"

#include <stdio.h>
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

void gb_rpc_pack_policy(gb_pack_list *map, const gb_lua_info *info)
{
    gb_pack_key_uint(map, "version", info->version);
    gb_pack_key_str(map, "name", info->name);
    gb_pack_key_str(map, "sha256", info->sha256);
    pack_hook_names(gb_pack_key(map, "hooks"), info->hooks);
    pack_hook_names(gb_pack_key(map, "active"), info->active);
    gb_pack_key_str(map, "state", gb_lua_state_name(info->state));
    gb_pack_key_bool(map, "builtin", info->builtin);
}

void gb_rpc_pack_active(gb_pack *out, const gb_lua_host *host)
{
    gb_pack_list active = gb_pack_begin_map(out);
    for (int h = 0; h < GB_HOOKS; h++) gb_pack_key_uint(&active, gb_hook_name((gb_hook)h), gb_lua_host_active(host, (gb_hook)h));
    gb_pack_end(&active);
}

static bool read_hook(const char *name, gb_hook *hook)
{
    for (int h = 0; h < GB_HOOKS; h++)
        if (strcmp(name, gb_hook_name((gb_hook)h)) == 0) {
            *hook = (gb_hook)h;
            return true;
        }
    return false;
}

bool gb_rpc_param_hook(gb_rpc_call *call, char name[GB_RPC_STRING_MAX + 1], const char **given)
{
    gb_hook hook;
    char all[GB_HOOK_NAMES_BYTES];
    *given = gb_rpc_param_string(call->params, "hook", name);
    if (!*given || read_hook(*given, &hook)) return true;
    gb_hook_names(all);
    gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "hook", "there is no hook of that name: hooks are %s", all);
    return false;
}

/* --- policy_list --- */

enum { CHANGES_TOLD = 16 };

static void pack_listed(gb_pack *out, const gb_lua_info *info)
{
    gb_pack_list map = gb_pack_begin_map(out);
    gb_rpc_pack_policy(&map, info);
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
    for (uint32_t i = 0; gb_lua_host_info(host, i, &info) == GB_OK; i++) pack_listed(gb_pack_next(&list), &info);
    gb_pack_end(&list);
    gb_rpc_pack_active(gb_pack_key(&map, "active"), host);
    gb_pack_key_uint(&map, "generation", gb_lua_host_generation(host));
    const gb_lua_log *log = gb_lua_host_log(host);
    uint64_t changes = gb_lua_log_events(log);
    gb_rpc_pack_events(gb_pack_key(&map, "changes"), log, changes > CHANGES_TOLD ? changes - CHANGES_TOLD : 0, 0);
    gb_pack_end(&map);
}

static gb_rpc_outcome run_policy_list(gb_rpc_call *call)
{
    gb_rpc_pack_policies(call->service, call->out);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field policy_fields[] = {
    GB_RPC_POLICY_FIELDS,
    {.name = "calls", .type = GB_RPC_INT, .doc = "decisions asked for"},
    {.name = "nils", .type = GB_RPC_INT, .doc = "no opinion: the built-in decided"},
    {.name = "faults", .type = GB_RPC_INT, .doc = "errors and refused answers: the built-in decided"},
    {.name = "last_fault", .type = GB_RPC_TEXT, .optional = true, .doc = "file:line and message"},
    {0},
};

static const gb_rpc_field policy_list_result[] = {
    {.name = "policies", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = policy_fields, .doc = "every version"},
    GB_RPC_ACTIVE_FIELD,
    {.name = "generation", .type = GB_RPC_INT, .doc = "grows with every change of what decides"},
    {.name = "changes",
     .type = GB_RPC_MAP,
     .shape = GB_RPC_LIST,
     .fields = gb_rpc_event_fields,
     .doc = "the latest 16, oldest first: a subscriber to policies that sees a gap in seq asks policy_log"},
    {0},
};

/* --- policy_get --- */

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

static void pack_c_builtin(gb_pack *out, const char *hook)
{
    gb_lua_info info = {.name = "builtin", .state = GB_LUA_ACTIVE, .builtin = true};
    for (int h = 0; h < GB_HOOKS; h++) info.hooks[h] = info.active[h] = strcmp(hook, gb_hook_name((gb_hook)h)) == 0;
    gb_pack_list map = gb_pack_begin_map(out);
    gb_rpc_pack_policy(&map, &info);
    gb_pack_key_str(&map, "source", "");
    gb_pack_end(&map);
}

static gb_rpc_outcome run_policy_get(gb_rpc_call *call)
{
    const gb_lua_host *host = call->service->instance->policies;
    char name[GB_RPC_STRING_MAX + 1];
    const char *hook;
    gb_hook which = GB_HOOK_SELECT;
    if (!gb_rpc_param_hook(call, name, &hook)) return GB_RPC_FAILED;
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
    gb_rpc_pack_policy(&map, &info);
    gb_pack_text(gb_pack_key(&map, "source"), source ? source : "", bytes);
    if (info.state != GB_LUA_RETIRED) pack_params(gb_pack_key(&map, "params"), host, version);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field policy_get_params[] = {
    {.name = "hook", .type = GB_RPC_STRING, .doc = "the version that decides for this hook"},
    {.name = "version", .type = GB_RPC_INT, .low = 1, .high = UINT32_MAX, .doc = "this version"},
    {0},
};

static const gb_rpc_field policy_get_result[] = {
    GB_RPC_POLICY_FIELDS,
    {.name = "source", .type = GB_RPC_TEXT, .doc = "the script; \"\" for the C built-in"},
    {.name = "params", .type = GB_RPC_ANY, .optional = true, .doc = "value by name; missing while the version is retired"},
    {0},
};

/* --- policy_status --- */

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

static void pack_store(gb_pack_list *status, const gb_lua_host *host)
{
    gb_lua_store_info info;
    if (!gb_lua_host_store(host, &info)) return;
    gb_pack_list map = gb_pack_begin_map(gb_pack_key(status, "store"));
    gb_pack_key_str(&map, "directory", info.dir);
    gb_pack_key_uint(&map, "records", info.records);
    gb_pack_key_uint(&map, "unrecorded", info.unrecorded);
    gb_pack_key_bool(&map, "damaged", info.damaged);
    gb_pack_end(&map);
}

static void pack_journal(gb_pack_list *status, const gb_lua_host *host)
{
    gb_lua_journal_info info;
    if (!gb_lua_host_journal(host, &info)) return;
    gb_pack_list map = gb_pack_begin_map(gb_pack_key(status, "journal"));
    gb_pack_key_str(&map, "file", info.path);
    gb_pack_key_uint(&map, "written", info.written);
    gb_pack_key_uint(&map, "dropped", info.dropped);
    gb_pack_key_bool(&map, "failed", info.failed);
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
    pack_store(&map, host);
    pack_journal(&map, host);
    if (gb_lua_host_shadow(host)) gb_rpc_pack_shadow(gb_pack_key(&map, "shadow"), gb_lua_host_shadow(host));
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field seat_fields[] = {
    {.name = "hook", .type = GB_RPC_STRING, .doc = "its name"},
    {.name = "version", .type = GB_RPC_INT, .doc = "that decides; 0 = the C built-in"},
    {.name = "name", .type = GB_RPC_STRING, .doc = "its name"},
    {.name = "sha256", .type = GB_RPC_STRING, .doc = "of its source; \"\" for the C built-in"},
    {.name = "params", .type = GB_RPC_ANY, .doc = "value by name, as policy_set changes them"},
    {.name = "faults",
     .type = GB_RPC_INT,
     .shape = GB_RPC_BY_NAME,
     .doc = "of this version in this hook: type, range, down, nan, error, time, memory, stack"},
    {0},
};

static const gb_rpc_field store_fields[] = {
    {.name = "directory", .type = GB_RPC_TEXT, .doc = "of --policy-store"},
    {.name = "records", .type = GB_RPC_INT, .doc = "in its log"},
    {.name = "unrecorded", .type = GB_RPC_INT, .doc = "changes since start that it could not take; the server's log says why"},
    {.name = "damaged", .type = GB_RPC_BOOL, .doc = "a record cannot be read: the next start restores nobody"},
    {0},
};

static const gb_rpc_field journal_fields[] = {
    {.name = "file", .type = GB_RPC_TEXT, .doc = "of --journal"},
    {.name = "written", .type = GB_RPC_INT, .doc = "decisions since start"},
    {.name = "dropped", .type = GB_RPC_INT, .doc = "that came faster than they could be written"},
    {.name = "failed", .type = GB_RPC_BOOL, .doc = "it cannot be written any more; the server's log says why"},
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
    {.name = "store", .type = GB_RPC_MAP, .optional = true, .fields = store_fields, .doc = "what a restart will know; missing without --policy-store"},
    {.name = "journal", .type = GB_RPC_MAP, .optional = true, .fields = journal_fields, .doc = "missing without --journal"},
    {.name = "shadow", .type = GB_RPC_MAP, .optional = true, .fields = gb_rpc_shadow_fields, .doc = "the latest that was compared with what decides"},
    {0},
};

const gb_rpc_method gb_rpc_policy_methods[] = {
    {"policy_list", GB_RPC_NEEDS_HELLO, 1, run_policy_list, gb_rpc_no_fields, policy_list_result,
     "Every policy version, and which decide."},
    {"policy_get", GB_RPC_NEEDS_HELLO, 1, run_policy_get, policy_get_params, policy_get_result, "One policy version with its source."},
    {"policy_status", GB_RPC_NEEDS_HELLO, 1, run_policy_status, gb_rpc_no_fields, policy_status_result,
     "Who decides, with params and faults, and how runaway scripts are stopped."},
    {0},
};
