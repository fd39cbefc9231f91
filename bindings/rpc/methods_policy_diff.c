/* Two versions on the decisions of the server's journal. */
#include "bindings/rpc/methods_policy.h"

#include <stdio.h>
#include <stdlib.h>

#include "bindings/rpc/conn.h"
#include "bindings/rpc/params.h"

enum { DECISIONS = 1000, DECISIONS_MOST = 100000, BUDGET_MS = 250 };    /* the loop waits for the answer */

static void pack_difference(gb_pack *out, const gb_lua_difference *d)
{
    char inputs[17];
    snprintf(inputs, sizeof inputs, "%016llx", (unsigned long long)d->inputs);
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_key_uint(&map, "decision", d->decision);
    gb_pack_key_str(&map, "hook", gb_hook_name(d->hook));
    gb_pack_key_str(&map, "inputs", inputs);
    gb_pack_key_int(&map, "a", d->answers[0]);
    gb_pack_key_int(&map, "b", d->answers[1]);
    gb_pack_key_int(&map, "live", d->live);
    gb_pack_end(&map);
}

static void pack_diff(gb_pack *out, const gb_lua_diff *diff)
{
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_key_uint(&map, "decisions", diff->decisions);
    gb_pack_key_uint(&map, "left_out", diff->left_out);
    gb_pack_key_bool(&map, "out_of_time", diff->out_of_time);
    gb_pack_list hooks = gb_pack_begin_array(gb_pack_key(&map, "hooks"));
    for (int hook = GB_HOOK_SELECT; hook <= GB_HOOK_ORDER; hook++) {
        if (!diff->comparisons[hook].decisions) continue;
        gb_pack_list one = gb_pack_begin_map(gb_pack_next(&hooks));
        gb_rpc_pack_comparison(&one, &diff->comparisons[hook], (gb_hook)hook, "a", "b");
        gb_pack_end(&one);
    }
    gb_pack_end(&hooks);
    gb_pack_list differences = gb_pack_begin_array(gb_pack_key(&map, "differences"));
    for (uint64_t i = 0; i < diff->n_differences && i < GB_LUA_DIFFERENCES_KEPT; i++) pack_difference(gb_pack_next(&differences), &diff->differences[i]);
    gb_pack_end(&differences);
    gb_pack_end(&map);
}

static int open_desk(gb_rpc_call *call, gb_lua_desk **desk, const char *param)
{
    uint32_t version = (uint32_t)gb_rpc_param_int(call->params, param, 0);
    return version ? gb_lua_host_desk(call->service->instance->policies, version, desk, &call->error.sentence) : GB_OK;
}

static gb_rpc_outcome run_policy_diff(gb_rpc_call *call)
{
    gb_lua_desk *desks[2] = {NULL, NULL};
    gb_lua_diff *diff = malloc(sizeof *diff);
    const char *blamed = "a";
    int status = diff ? open_desk(call, &desks[0], "a") : GB_ENOMEM;
    if (!status) status = open_desk(call, &desks[1], blamed = "b");
    if (!status) {
        blamed = NULL;
        status = gb_lua_host_diff(call->service->instance->policies, diff, desks, (uint64_t)gb_rpc_param_int(call->params, "most", DECISIONS),
                                  gb_ms(BUDGET_MS), &call->error.sentence);
    }
    if (!status) pack_diff(call->out, diff);
    gb_lua_desk_close(desks[0]);
    gb_lua_desk_close(desks[1]);
    free(diff);
    return status ? gb_rpc_fail_status(call, status, blamed) : GB_RPC_REPLIED;
}

static const gb_rpc_field policy_diff_params[] = {
    {.name = "a", .type = GB_RPC_INT, .required = true, .low = 0, .high = UINT32_MAX, .doc = "a version; 0 = the C built-in"},
    {.name = "b", .type = GB_RPC_INT, .required = true, .low = 0, .high = UINT32_MAX, .doc = "the other"},
    {.name = "most", .type = GB_RPC_INT, .low = 1, .high = DECISIONS_MOST, .doc = "at most so many of the newest decisions in the journal's running file; default 1000"},
    {0},
};

static const gb_rpc_field comparison_fields[] = {
    GB_RPC_COMPARISON_FIELDS,
    {.name = "a", .type = GB_RPC_MAP, .fields = gb_rpc_side_fields, .doc = "the first; times are CPU time, and 0 for the built-in"},
    {.name = "b", .type = GB_RPC_MAP, .fields = gb_rpc_side_fields, .doc = "the second"},
    {0},
};

static const gb_rpc_field difference_fields[] = {
    {.name = "decision", .type = GB_RPC_INT, .doc = "1, 2 ... of those looked at"},
    {.name = "hook", .type = GB_RPC_STRING, .doc = "its name"},
    {.name = "inputs", .type = GB_RPC_STRING, .doc = "digest of what the hook saw, as in decision_log"},
    {.name = "a", .type = GB_RPC_INT, .doc = "the engine; or the row of the queue that would be served first"},
    {.name = "b", .type = GB_RPC_INT, .doc = "the same of the second"},
    {.name = "live", .type = GB_RPC_INT, .doc = "what was answered then: an engine, 0 for an order, -1 no opinion, -2 a fault"},
    {0},
};

static const gb_rpc_field policy_diff_result[] = {
    {.name = "decisions", .type = GB_RPC_INT, .doc = "looked at"},
    {.name = "left_out", .type = GB_RPC_INT, .doc = "of hooks that neither version has"},
    {.name = "out_of_time", .type = GB_RPC_BOOL, .doc = "250 ms of CPU time were used up before the end; gimbal policy diff --on has no limit"},
    {.name = "hooks", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = comparison_fields, .doc = "with decisions that were compared"},
    {.name = "differences", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = difference_fields, .doc = "the first 32"},
    {0},
};

const gb_rpc_method gb_rpc_policy_diff_methods[] = {
    {"policy_diff", GB_RPC_NEEDS_ADMIN, 1, run_policy_diff, policy_diff_params, policy_diff_result,
     "Two versions on recorded decisions of the server's journal, each in a fresh VM with its version's params: agreement, costs, and where they differ."},
    {0},
};
