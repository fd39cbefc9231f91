/* Changing where experts live: admin acts, each logged with who did it. */
#include "bindings/rpc/method.h"

#include <stdlib.h>

#include "bindings/rpc/conn.h"
#include "bindings/rpc/params.h"
#include "core/base/log.h"
#include "core/serve/server.h"

/* --- placement_set --- */

static gb_rpc_outcome check_shape(gb_rpc_call *call, const msgpack_object *slots)
{
    const gb_placement *p = gb_server_placement(call->service->instance->server);
    uint32_t all = p->layers * gb_placement_slots(p);
    if (slots->via.array.size == all) return GB_RPC_REPLIED;
    return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "slots",
                       "slots has %u entries, but %u layers x %u ranks x %u slots of a rank are %u here: take the shape from placement_get",
                       slots->via.array.size, p->layers, p->ranks, p->slots_per_rank, all);
}

static void reply_moves(gb_rpc_call *call)
{
    gb_server_stats stats;
    gb_server_stats_get(call->service->instance->server, &stats);
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_key_uint(&map, "moves", stats.moves_left);
    gb_pack_end(&map);
}

static gb_rpc_outcome run_placement_set(gb_rpc_call *call)
{
    const msgpack_object *slots = gb_rpc_param(call->params, "slots");
    if (check_shape(call, slots) == GB_RPC_FAILED) return GB_RPC_FAILED;
    uint32_t n = slots->via.array.size;
    int32_t *experts = malloc((n + 1) * sizeof *experts);
    if (!experts) return gb_rpc_fail_status(call, GB_ENOMEM, NULL);
    for (uint32_t i = 0; i < n; i++) experts[i] = (int32_t)slots->via.array.ptr[i].via.i64;
    int status = gb_server_set_placement(call->service->instance->server, experts, call->now, &call->error.sentence);
    free(experts);
    if (status) return gb_rpc_fail_status(call, status, status == GB_EINVAL ? "slots" : NULL);
    gb_log(GB_LOG_INFO, "placement_set by %s: experts begin to move", call->conn->who);
    reply_moves(call);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field placement_set_params[] = {
    {.name = "slots", .type = GB_RPC_INT, .shape = GB_RPC_LIST, .required = true, .low = -1, .high = GB_EXPERTS_MAX - 1,
     .doc = "expert of each slot, -1 for an empty one: layer by layer, rank by rank. Sources are served by the nearest copy"},
    {0},
};

static const gb_rpc_field moves_result[] = {
    {.name = "moves", .type = GB_RPC_INT, .doc = "slots that change; server_stats.moves_left says how far it is"},
    {0},
};

/* --- migration_cancel --- */

static gb_rpc_outcome run_migration_cancel(gb_rpc_call *call)
{
    gb_server_stats stats;
    gb_server_stats_get(call->service->instance->server, &stats);
    gb_log(GB_LOG_INFO, "migration_cancel by %s with %u moves left", call->conn->who, stats.moves_left);
    reply_moves(call);
    gb_server_cancel_migration(call->service->instance->server);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field cancelled_result[] = {
    {.name = "moves", .type = GB_RPC_INT, .doc = "that are not made any more; 0: nothing was on the move"},
    {0},
};

const gb_rpc_method gb_rpc_place_methods[] = {
    {"placement_set", GB_RPC_NEEDS_ADMIN, 1, run_placement_set, placement_set_params, moves_result,
     "Begins to move experts until they live there. Refused, with nothing changed, unless every expert lives, no rank has one twice "
     "and no other migration is running."},
    {"migration_cancel", GB_RPC_NEEDS_ADMIN, 1, run_migration_cancel, gb_rpc_no_fields, cancelled_result,
     "Ends the running migration where it is: what has moved stays."},
    {0},
};
