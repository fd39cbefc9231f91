/* A policy in shadow of what decides, and the comparison of two policies as policy_shadow, policy_status and policy_diff report it. */
#include "bindings/rpc/methods_policy.h"

#include <string.h>

#include "bindings/lua/lua_compare.h"
#include "bindings/rpc/conn.h"
#include "bindings/rpc/params.h"

/* --- a comparison --- */

static void pack_side(gb_pack *out, const gb_lua_comparison *c, int which, gb_hook hook)
{
    const gb_lua_side *side = &c->sides[which];
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_key_uint(&map, "nils", side->nils);
    gb_pack_key_uint(&map, "faults", side->faults);
    gb_pack_key_float(&map, "mean_us", gb_lua_costs_mean_ns(&side->costs) / 1e3);
    gb_pack_key_float(&map, "p50_us", gb_lua_costs_within_ns(&side->costs, 0.5) / 1e3);
    gb_pack_key_float(&map, "p99_us", gb_lua_costs_within_ns(&side->costs, 0.99) / 1e3);
    if (hook == GB_HOOK_SELECT) gb_pack_key_float(&map, "spread", gb_lua_side_spread(c, which));
    if (hook == GB_HOOK_SELECT) gb_pack_key_float(&map, "moe_pressure", gb_lua_side_moe(c, which));
    if (side->last_fault[0]) gb_pack_key_str(&map, "last_fault", side->last_fault);
    gb_pack_end(&map);
}

void gb_rpc_pack_comparison(gb_pack_list *map, const gb_lua_comparison *c, gb_hook hook, const char *a, const char *b)
{
    gb_pack_key_str(map, "hook", gb_hook_name(hook));
    gb_pack_key_uint(map, "decisions", c->decisions);
    gb_pack_key_uint(map, "agreed", c->agreed);
    if (c->decisions) gb_pack_key_float(map, "agreement_percent", 100.0 * (double)c->agreed / (double)c->decisions);
    pack_side(gb_pack_key(map, a), c, 0, hook);
    pack_side(gb_pack_key(map, b), c, 1, hook);
}

const gb_rpc_field gb_rpc_side_fields[] = {
    {.name = "nils", .type = GB_RPC_INT, .doc = "no opinion: the built-in's decision counts as its own"},
    {.name = "faults", .type = GB_RPC_INT, .doc = "errors and refused answers; the same"},
    {.name = "mean_us", .type = GB_RPC_FLOAT, .doc = "what a decision took"},
    {.name = "p50_us", .type = GB_RPC_FLOAT, .doc = "half of them took at most so long, to an eighth"},
    {.name = "p99_us", .type = GB_RPC_FLOAT, .doc = "99 in 100"},
    {.name = "spread", .type = GB_RPC_FLOAT, .optional = true,
     .doc = "select_engine: predicted pressure spread, the mean over decisions of (most - least) / mean prompt tokens that the engines have to compute "
            "after it"},
    {.name = "moe_pressure", .type = GB_RPC_FLOAT, .optional = true, .doc = "select_engine: mean moe_pressure of the engines it chose"},
    {.name = "last_fault", .type = GB_RPC_TEXT, .optional = true, .doc = "file:line and message"},
    {0},
};

/* --- policy_shadow --- */

void gb_rpc_pack_shadow(gb_pack *out, const gb_lua_shadow *s)
{
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_key_bool(&map, "running", s->running);
    if (!s->running) gb_pack_key_str(&map, "ended", s->ended);
    gb_pack_key_uint(&map, "version", s->version);
    gb_pack_key_str(&map, "name", s->name);
    gb_pack_key_str(&map, "sha256", s->sha256);
    gb_pack_key_float(&map, "ratio", s->ratio);
    gb_pack_key_uint(&map, "seen", s->seen);
    gb_pack_key_uint(&map, "skipped", s->skipped);
    gb_pack_list hooks = gb_pack_begin_array(gb_pack_key(&map, "hooks"));
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        if (!s->hooks[hook]) continue;
        gb_pack_list one = gb_pack_begin_map(gb_pack_next(&hooks));
        gb_rpc_pack_comparison(&one, &s->comparisons[hook], (gb_hook)hook, "active", "candidate");
        gb_pack_end(&one);
    }
    gb_pack_end(&hooks);
    gb_pack_end(&map);
}

static const gb_rpc_field comparison_fields[] = {
    GB_RPC_COMPARISON_FIELDS,
    {.name = "active", .type = GB_RPC_MAP, .fields = gb_rpc_side_fields, .doc = "what decides"},
    {.name = "candidate", .type = GB_RPC_MAP, .fields = gb_rpc_side_fields, .doc = "the version in shadow"},
    {0},
};

const gb_rpc_field gb_rpc_shadow_fields[] = {
    {.name = "running", .type = GB_RPC_BOOL, .doc = "false: it has ended, these are its results"},
    {.name = "ended", .type = GB_RPC_TEXT, .optional = true, .doc = "why"},
    {.name = "version", .type = GB_RPC_INT, .doc = "of the candidate"},
    {.name = "name", .type = GB_RPC_STRING, .doc = "its name"},
    {.name = "sha256", .type = GB_RPC_STRING, .doc = "of its source"},
    {.name = "ratio", .type = GB_RPC_FLOAT, .doc = "of the decisions that it is to see"},
    {.name = "seen", .type = GB_RPC_INT, .doc = "live decisions since it started"},
    {.name = "skipped", .type = GB_RPC_INT, .doc = "sampled, but its time was used up: 2 % of the time, and 20 ms saved up"},
    {.name = "hooks", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = comparison_fields, .doc = "select_engine and order_queue, where it has them"},
    {0},
};

static gb_rpc_outcome start(gb_rpc_call *call, const char *hook)
{
    uint64_t generation;
    if (!gb_rpc_param(call->params, "version")) return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "version", "say which version is to be in shadow");
    gb_lua_change change = gb_rpc_read_change(call, hook, &generation);
    int status = gb_lua_host_shadow_start(call->service->instance->policies, (uint32_t)gb_rpc_param_int(call->params, "version", 0),
                                          gb_rpc_param_float(call->params, "ratio", 1), &change, &call->error.sentence);
    return status ? gb_rpc_fail_status(call, status, "version") : GB_RPC_REPLIED;
}

static gb_rpc_outcome stop(gb_rpc_call *call, const char *hook)
{
    uint64_t generation;
    gb_lua_change change = gb_rpc_read_change(call, hook, &generation);
    int status = gb_lua_host_shadow_stop(call->service->instance->policies, &change, &call->error.sentence);
    return status ? gb_rpc_fail_status(call, status, "action") : GB_RPC_REPLIED;
}

static gb_rpc_outcome promote(gb_rpc_call *call, const char *hook)
{
    uint64_t generation;
    gb_lua_host *host = call->service->instance->policies;
    const gb_lua_shadow *shadow = gb_lua_host_shadow(host);
    if (!shadow || !shadow->running) return gb_rpc_fail(call, GB_RPC_NOT_FOUND, "action", "no policy is in shadow");
    gb_lua_change change = gb_rpc_read_change(call, hook, &generation);
    int status = gb_lua_host_switch(host, shadow->version, &change, &call->error.sentence);
    return status ? gb_rpc_fail_status(call, status, "action") : GB_RPC_REPLIED;
}

static gb_rpc_outcome look(gb_rpc_call *call, const char *hook)
{
    (void)call;
    (void)hook;
    return GB_RPC_REPLIED;
}

static gb_rpc_outcome run_policy_shadow(gb_rpc_call *call)
{
    static const struct {
        const char *name;
        gb_rpc_outcome (*run)(gb_rpc_call *call, const char *hook);
    } actions[] = {{"start", start}, {"stop", stop}, {"promote", promote}, {"status", look}};
    char hook_text[GB_RPC_STRING_MAX + 1], name[GB_RPC_STRING_MAX + 1];
    const char *hook, *action = gb_rpc_param_string(call->params, "action", name);
    size_t i = 0, n = sizeof actions / sizeof *actions;
    if (!gb_rpc_param_hook(call, hook_text, &hook)) return GB_RPC_FAILED;
    while (i < n && action && strcmp(actions[i].name, action) != 0) i++;
    if (i == n) return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "action", "actions are start, stop, promote and status");
    gb_rpc_outcome outcome = actions[action ? i : n - 1].run(call, hook);
    if (outcome != GB_RPC_REPLIED) return outcome;
    const gb_lua_shadow *shadow = gb_lua_host_shadow(call->service->instance->policies);
    gb_pack_list map = gb_pack_begin_map(call->out);
    if (shadow) gb_rpc_pack_shadow(gb_pack_key(&map, "shadow"), shadow);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field policy_shadow_params[] = {
    {.name = "action", .type = GB_RPC_STRING, .doc = "start, stop, promote (activate the version that is in shadow) or status; default status"},
    {.name = "version", .type = GB_RPC_INT, .low = 1, .high = UINT32_MAX, .doc = "start: the candidate, as policy_load returned it"},
    {.name = "hook", .type = GB_RPC_STRING, .doc = "start, promote: only for this hook; default: every one it has"},
    {.name = "ratio", .type = GB_RPC_FLOAT, .low = 0, .high = 1, .above_low = true, .doc = "start: of the decisions, at random; default 1: all that its time allows"},
    GB_RPC_EXPECTED_FIELD,
    {0},
};

static const gb_rpc_field policy_shadow_result[] = {
    {.name = "shadow", .type = GB_RPC_MAP, .optional = true, .fields = gb_rpc_shadow_fields, .doc = "the latest; missing when there was none"},
    {0},
};

const gb_rpc_method gb_rpc_policy_shadow_methods[] = {
    {"policy_shadow", GB_RPC_NEEDS_ADMIN, 1, run_policy_shadow, policy_shadow_params, policy_shadow_result,
     "Lets a version see live decisions beside what decides and compares them; nothing that is decided changes. Its time is its own: it is asked after "
     "the decision, within 2 % of the time, and ends when it fails 3 times or once runs too long."},
    {0},
};
