/* Changing which policies there are and which decide: admin acts, each logged with who and what. */
#include "bindings/rpc/methods_policy.h"

#include <string.h>

#include "bindings/rpc/conn.h"
#include "bindings/rpc/json.h"
#include "bindings/rpc/params.h"
#include "core/base/log.h"

gb_lua_change gb_rpc_read_change(const gb_rpc_call *call, const char *hook, uint64_t *generation)
{
    gb_lua_change change = {
        .hook = hook,
        .force = gb_rpc_param_bool(call->params, "force", false),
        .who = call->conn->who,
        .now = call->now,
    };
    if (!gb_rpc_param(call->params, "expected_generation")) return change;
    *generation = (uint64_t)gb_rpc_param_int(call->params, "expected_generation", 0);
    change.expected_generation = generation;
    return change;
}

gb_rpc_outcome gb_rpc_reply_change(gb_rpc_call *call, int status, const char *path)
{
    if (status) return gb_rpc_fail_status(call, status, status == GB_EVERSION ? "expected_generation" : path);
    const gb_lua_host *host = call->service->instance->policies;
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_rpc_pack_active(gb_pack_key(&map, "active"), host);
    gb_pack_key_uint(&map, "generation", gb_lua_host_generation(host));
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

const gb_rpc_field gb_rpc_change_result[] = {
    GB_RPC_ACTIVE_FIELD,
    {.name = "generation", .type = GB_RPC_INT, .doc = "grows with every change: activations, rollbacks, quarantines, params"},
    {0},
};

/* --- policy_load --- */

static void pack_loaded(gb_rpc_call *call, uint32_t version, const json_t *warnings)
{
    gb_lua_info info;
    gb_lua_host_find(call->service->instance->policies, version, &info);
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_rpc_pack_policy(&map, &info);
    gb_pack_key_bool(&map, "checked", warnings != NULL);
    gb_pack_list list = gb_pack_begin_array(gb_pack_key(&map, "warnings"));
    for (size_t i = 0; i < json_array_size(warnings); i++) gb_rpc_json_pack(gb_pack_next(&list), json_array_get(warnings, i));
    gb_pack_end(&list);
    gb_pack_end(&map);
}

gb_rpc_outcome gb_rpc_load_policy(gb_rpc_call *call, const gb_rpc_load *load, const json_t *warnings)
{
    uint32_t version;
    gb_lua_change change = {.hook = load->hook, .who = call->conn->who, .now = call->now};
    int status = gb_lua_host_put(call->service->instance->policies, &version, load->name, load->name ? load->name : "rpc", load->source, load->bytes,
                                 &change, &call->error.sentence);
    if (status == GB_ENOMEM)
        return gb_rpc_fail(call, GB_RPC_POLICY_BUDGET, "source", "the policy runs out of memory while it is probed");
    if (status != GB_OK) return gb_rpc_fail_status(call, status, "source");
    pack_loaded(call, version, warnings);
    return GB_RPC_REPLIED;
}

static gb_rpc_outcome run_policy_load(gb_rpc_call *call)
{
    char hook_text[GB_RPC_STRING_MAX + 1], name_text[GB_RPC_STRING_MAX + 1];
    gb_rpc_load load = {0};
    if (!gb_rpc_param_hook(call, hook_text, &load.hook) || !gb_rpc_read_load(call, &load, name_text)) return GB_RPC_FAILED;
    if (!call->service->options.checks_loads) return gb_rpc_load_policy(call, &load, NULL);
    int status = gb_rpc_check_begin(call, &load, true, &call->error.sentence);
    if (status == GB_OK) return GB_RPC_LATER;
    if (status != GB_EUNSUPPORTED) return gb_rpc_fail_status(call, status, NULL);
    gb_log(GB_LOG_WARN, "a policy is loaded without a check before: %s", call->error.sentence.text);
    return gb_rpc_load_policy(call, &load, NULL);
}

static const gb_rpc_field policy_load_params[] = {
    {.name = "source", .type = GB_RPC_TEXT, .required = true, .doc = "Lua text, at most 256 KiB"},
    {.name = "name", .type = GB_RPC_STRING, .low = 1, .high = GB_LUA_NAME_MAX,
     .doc = "wins over the script's own; an old name makes a new version"},
    {.name = "hook", .type = GB_RPC_STRING, .doc = "keep only this hook; default: all that the script has"},
    {0},
};

static const gb_rpc_field policy_load_result[] = {
    GB_RPC_POLICY_FIELDS,
    {.name = "checked", .type = GB_RPC_BOOL, .doc = "it passed a check first; false where checks are off or cannot be run"},
    {.name = "warnings", .type = GB_RPC_TEXT, .shape = GB_RPC_LIST, .doc = "of that check"},
    {0},
};

/* --- policy_activate, policy_builtin, policy_rollback --- */

static gb_rpc_outcome run_policy_activate(gb_rpc_call *call)
{
    char hook_text[GB_RPC_STRING_MAX + 1];
    const char *hook;
    uint64_t generation;
    if (!gb_rpc_param_hook(call, hook_text, &hook)) return GB_RPC_FAILED;
    uint32_t version = (uint32_t)gb_rpc_param_int(call->params, "version", 0);
    gb_lua_change change = gb_rpc_read_change(call, hook, &generation);
    return gb_rpc_reply_change(call, gb_lua_host_switch(call->service->instance->policies, version, &change, &call->error.sentence),
                        "version");
}

static gb_rpc_outcome run_policy_builtin(gb_rpc_call *call)
{
    char hook_text[GB_RPC_STRING_MAX + 1];
    const char *hook;
    uint64_t generation;
    if (!gb_rpc_param_hook(call, hook_text, &hook)) return GB_RPC_FAILED;
    gb_lua_change change = gb_rpc_read_change(call, hook, &generation);
    return gb_rpc_reply_change(call, gb_lua_host_switch(call->service->instance->policies, 0, &change, &call->error.sentence), NULL);
}

static gb_rpc_outcome run_policy_rollback(gb_rpc_call *call)
{
    char hook_text[GB_RPC_STRING_MAX + 1];
    const char *hook;
    uint64_t generation;
    if (!gb_rpc_param_hook(call, hook_text, &hook)) return GB_RPC_FAILED;
    gb_lua_change change = gb_rpc_read_change(call, hook, &generation);
    return gb_rpc_reply_change(call, gb_lua_host_rollback(call->service->instance->policies, &change, &call->error.sentence), "hook");
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
    GB_RPC_EXPECTED_FIELD,
    {0},
};

static const gb_rpc_field policy_back_params[] = {
    {.name = "hook", .type = GB_RPC_STRING, .doc = "only for this hook; default: every hook"},
    GB_RPC_EXPECTED_FIELD,
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
    gb_lua_change change = gb_rpc_read_change(call, NULL, &generation);
    const char *param = gb_rpc_param_string(call->params, "param", name);
    return gb_rpc_reply_change(
        call, gb_lua_host_set(call->service->instance->policies, version, param, &value, &change, &call->error.sentence), "param");
}

static const gb_rpc_field policy_set_params[] = {
    {.name = "version", .type = GB_RPC_INT, .required = true, .low = 1, .high = UINT32_MAX, .doc = "whose params"},
    {.name = "param", .type = GB_RPC_STRING, .required = true, .low = 1, .high = GB_LUA_NAME_MAX, .doc = "its name"},
    {.name = "number", .type = GB_RPC_FLOAT, .doc = "the new value of a number"},
    {.name = "flag", .type = GB_RPC_BOOL, .doc = "the new value of a boolean"},
    {.name = "text", .type = GB_RPC_TEXT, .high = GB_LUA_VALUE_BYTES - 1, .doc = "the new value of a string"},
    GB_RPC_EXPECTED_FIELD,
    {0},
};

const gb_rpc_method gb_rpc_policy_change_methods[] = {
    {"policy_load", GB_RPC_NEEDS_ADMIN, 1, run_policy_load, policy_load_params, policy_load_result,
     "Checks (as policy_check does), compiles and probes a policy script; nothing decides differently until policy_activate. Scripts run inside the server: an admin "
     "act."},
    {"policy_activate", GB_RPC_NEEDS_ADMIN, 1, run_policy_activate, policy_activate_params, gb_rpc_change_result,
     "Makes a version decide, between two decisions; requests go on. State goes over when both scripts have export and import."},
    {"policy_rollback", GB_RPC_NEEDS_ADMIN, 1, run_policy_rollback, policy_back_params, gb_rpc_change_result,
     "Back to what decided before, at once and with the state it had; again = forward."},
    {"policy_builtin", GB_RPC_NEEDS_ADMIN, 1, run_policy_builtin, policy_back_params, gb_rpc_change_result,
     "The red button: the C built-in decides. SIGUSR2 does the same."},
    {"policy_set", GB_RPC_NEEDS_ADMIN, 1, run_policy_set, policy_set_params, gb_rpc_change_result,
     "Changes one param of a version while it runs."},
    {0},
};
