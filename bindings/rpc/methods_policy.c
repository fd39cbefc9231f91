/* policy_list, policy_get, policy_load, policy_activate. */
#include <string.h>

#include "bindings/rpc/conn.h"
#include "bindings/rpc/params.h"
#include "bindings/rpc/snapshot.h"
#include "core/base/log.h"

static void pack_hook_names(gb_pack *out, const bool *flags)
{
    gb_pack_list list = gb_pack_begin_array(out);
    for (int h = 0; h < GB_HOOKS; h++)
        if (flags[h]) gb_pack_str(gb_pack_next(&list), gb_hook_name((gb_hook)h));
    gb_pack_end(&list);
}

static void pack_identity(gb_pack_list *map, const gb_lua_info *info)
{
    static const char *const states[] = {"ready", "active", "retired"};
    gb_pack_key_uint(map, "version", info->version);
    gb_pack_key_str(map, "name", info->name);
    gb_pack_key_str(map, "sha256", info->sha256);
    pack_hook_names(gb_pack_key(map, "hooks"), info->hooks);
    pack_hook_names(gb_pack_key(map, "active"), info->active);
    gb_pack_key_str(map, "state", states[info->state]);
    gb_pack_key_bool(map, "builtin", info->builtin);
}

#define IDENTITY_FIELDS \
    {.name = "version", .type = GB_RPC_INT, .doc = "1, 2 ... in order of loading; 0 = the C built-in"}, \
    {.name = "name", .type = GB_RPC_STRING, .doc = "several versions may have one name"}, \
    {.name = "sha256", .type = GB_RPC_STRING, .doc = "of the source"}, \
    {.name = "hooks", .type = GB_RPC_STRING, .shape = GB_RPC_LIST, .doc = "that the script has"}, \
    {.name = "active", .type = GB_RPC_STRING, .shape = GB_RPC_LIST, .doc = "for which it decides now"}, \
    {.name = "state", .type = GB_RPC_STRING, .doc = "\"ready\", \"active\" or \"retired\""}, \
    {.name = "builtin", .type = GB_RPC_BOOL, .doc = "shipped with gimbal"}

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

/* --- policy_load --- */

static gb_rpc_outcome run_policy_load(gb_rpc_call *call)
{
    gb_lua_host *host = call->service->instance->policies;
    char hook_text[GB_RPC_STRING_MAX + 1], name_text[GB_RPC_STRING_MAX + 1];
    const char *hook, *name = gb_rpc_param_string(call->params, "name", name_text);
    size_t bytes;
    const char *source = gb_rpc_param_text(call->params, "source", &bytes);
    uint32_t version;
    if (!read_hook_name(call, hook_text, &hook)) return GB_RPC_FAILED;
    if (bytes > GB_LUA_SOURCE_MAX)
        return gb_rpc_fail(call, GB_RPC_TOO_LARGE, "source", "source has %zu bytes, but a policy may have %d", bytes,
                           GB_LUA_SOURCE_MAX);
    int status = gb_lua_host_load(host, &version, hook, name, name ? name : "rpc", source, bytes, &call->error.sentence);
    if (status == GB_ENOMEM)
        return gb_rpc_fail(call, GB_RPC_POLICY_BUDGET, "source", "the policy runs out of memory while it is probed");
    if (status != GB_OK) return gb_rpc_fail_status(call, status, "source");
    gb_lua_info info;
    gb_lua_host_find(host, version, &info);
    gb_log(GB_LOG_INFO, "policy %s version %u loaded by RPC, sha256 %s", info.name, version, info.sha256);
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

/* --- policy_activate --- */

static gb_rpc_outcome run_policy_activate(gb_rpc_call *call)
{
    gb_lua_host *host = call->service->instance->policies;
    char hook_text[GB_RPC_STRING_MAX + 1];
    const char *hook;
    uint32_t version = (uint32_t)gb_rpc_param_int(call->params, "version", 0);
    if (!read_hook_name(call, hook_text, &hook)) return GB_RPC_FAILED;
    int status = version ? gb_lua_host_activate(host, hook, version, &call->error.sentence)
                         : gb_lua_host_builtin(host, hook, &call->error.sentence);
    if (status != GB_OK) return gb_rpc_fail_status(call, status, "version");
    gb_log(GB_LOG_INFO, "policy version %u activated by RPC for %s", version, hook ? hook : "all its hooks");
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_list active = gb_pack_begin_map(gb_pack_key(&map, "active"));
    for (int h = 0; h < GB_HOOKS; h++) gb_pack_key_uint(&active, gb_hook_name((gb_hook)h), gb_lua_host_active(host, (gb_hook)h));
    gb_pack_end(&active);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field policy_activate_params[] = {
    {.name = "version", .type = GB_RPC_INT, .required = true, .low = 0, .high = UINT32_MAX,
     .doc = "as policy_load returned it; 0 = the C built-in, the red button"},
    {.name = "hook", .type = GB_RPC_STRING, .doc = "only for this hook; default: every hook it has"},
    {0},
};

static const gb_rpc_field policy_activate_result[] = {
    {.name = "active", .type = GB_RPC_INT, .shape = GB_RPC_BY_NAME, .doc = "version that decides for each hook from now on"},
    {0},
};

const gb_rpc_method gb_rpc_policy_methods[] = {
    {"policy_list", GB_RPC_NEEDS_HELLO, 1, run_policy_list, gb_rpc_no_fields, policy_list_result,
     "Every policy version, and which decide."},
    {"policy_get", GB_RPC_NEEDS_HELLO, 1, run_policy_get, policy_get_params, policy_get_result,
     "One policy version with its source."},
    {"policy_load", GB_RPC_NEEDS_ADMIN, 1, run_policy_load, policy_load_params, identity_result,
     "Compiles and probes a policy script; nothing decides differently until policy_activate. Scripts run inside the server: "
     "an admin act."},
    {"policy_activate", GB_RPC_NEEDS_ADMIN, 1, run_policy_activate, policy_activate_params, policy_activate_result,
     "Makes a version decide, between two decisions; requests go on."},
    {0},
};
