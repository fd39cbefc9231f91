/* hello, api_info, ping, drain, shutdown. */
#include <string.h>

#include "bindings/c/version.h"
#include "bindings/rpc/auth.h"
#include "bindings/rpc/conn.h"
#include "bindings/rpc/describe.h"
#include "bindings/rpc/json.h"
#include "bindings/rpc/params.h"

/* --- hello --- */

/* Over TCP: the admin token or, where one is configured, the API key. Where neither is configured anything is right. */
static bool authenticate(gb_rpc_call *call)
{
    gb_rpc_service *service = call->service;
    size_t bytes;
    const char *auth = gb_rpc_param_text(call->params, "auth", &bytes);
    bool is_admin = auth && service->has_admin && gb_auth_matches(service->admin_sha256, auth, bytes);
    bool is_user = auth && service->has_key && gb_auth_matches(service->key_sha256, auth, bytes);
    bool is_welcome = is_admin || is_user || (!service->has_key && (!auth || !service->has_admin));
    if (!call->conn->trusted && !is_welcome) return false;
    call->conn->admin = call->conn->trusted || is_admin;
    call->conn->greeted = true;
    return true;
}

static gb_rpc_outcome run_hello(gb_rpc_call *call)
{
    if (!authenticate(call)) {
        gb_rpc_conn_shut(call->conn, GB_EINVAL);    /* who guesses pays a connection for each guess */
        return gb_rpc_fail(call, GB_RPC_UNAUTHENTICATED, "auth", "%s", gb_rpc_param(call->params, "auth") ?
                           "auth is neither the API key nor the admin token of this server" : "this server needs its API key as auth in hello");
    }
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_key_str(&map, "server", "gimbal");
    gb_pack_key_str(&map, "version", gb_version());
    gb_pack_key_str(&map, "git", gb_git_revision());
    gb_pack_key_int(&map, "api_level", GB_RPC_API_LEVEL);
    gb_pack_key_int(&map, "api_compatible", GB_RPC_API_COMPATIBLE);
    gb_pack_key_bool(&map, "admin", call->conn->admin);
    static const char *const features[] = {"credit", "detach", "matrix", "subscribe"};
    gb_pack_list list = gb_pack_begin_array(gb_pack_key(&map, "features"));
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) gb_pack_str(gb_pack_next(&list), features[i]);
    gb_pack_end(&list);
    gb_pack_list limits = gb_pack_begin_map(gb_pack_key(&map, "limits"));
    gb_pack_key_int(&limits, "max_message", GB_RPC_MESSAGE_MAX);
    gb_pack_key_int(&limits, "max_depth", GB_RPC_DEPTH_MAX);
    gb_pack_key_int(&limits, "max_calls", GB_RPC_INFLIGHT_MAX);
    gb_pack_key_int(&limits, "window", GB_RPC_WINDOW);
    gb_pack_end(&limits);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field hello_params[] = {
    {.name = "client", .type = GB_RPC_STRING, .doc = "the client's name, for logs"},
    {.name = "version", .type = GB_RPC_STRING, .doc = "the client's version"},
    {.name = "features", .type = GB_RPC_STRING, .shape = GB_RPC_LIST, .most = 64,
     .doc = "what the client would use; unknown ones are ignored"},
    {.name = "auth", .type = GB_RPC_TEXT, .low = 1, .high = 4096, .doc = "API key or admin token; only over TCP"},
    {0},
};

static const gb_rpc_field hello_limits[] = {
    {.name = "max_message", .type = GB_RPC_INT, .doc = "bytes of one message"},
    {.name = "max_depth", .type = GB_RPC_INT, .doc = "nested arrays and maps"},
    {.name = "max_calls", .type = GB_RPC_INT, .doc = "unanswered calls of a connection"},
    {.name = "window", .type = GB_RPC_INT, .doc = "default credit of a stream"},
    {0},
};

static const gb_rpc_field hello_result[] = {
    {.name = "server", .type = GB_RPC_STRING, .doc = "\"gimbal\""},
    {.name = "version", .type = GB_RPC_STRING, .doc = "of the server"},
    {.name = "git", .type = GB_RPC_STRING, .doc = "revision of the build; \"\" outside a checkout"},
    {.name = "api_level", .type = GB_RPC_INT, .doc = "grows when something is added"},
    {.name = "api_compatible", .type = GB_RPC_INT, .doc = "the oldest level whose clients still work"},
    {.name = "admin", .type = GB_RPC_BOOL, .doc = "whether admin methods are open to this connection"},
    {.name = "features", .type = GB_RPC_STRING, .shape = GB_RPC_LIST, .doc = "what this server has beyond calls and answers"},
    {.name = "limits", .type = GB_RPC_MAP, .fields = hello_limits, .doc = "what a client must keep to"},
    {0},
};

/* --- api_info, ping --- */

static gb_rpc_outcome run_api_info(gb_rpc_call *call)
{
    json_t *tree = gb_rpc_describe();
    if (!tree) return gb_rpc_fail_status(call, GB_ENOMEM, NULL);
    gb_rpc_json_pack(call->out, tree);
    json_decref(tree);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field api_info_result[] = {
    {.name = "api_level", .type = GB_RPC_INT, .doc = "as in hello"},
    {.name = "api_compatible", .type = GB_RPC_INT, .doc = "as in hello"},
    {.name = "methods", .type = GB_RPC_MAP, .shape = GB_RPC_BY_NAME,
     .doc = "{doc, since, hello, admin, params, result} of each method"},
    {.name = "events", .type = GB_RPC_MAP, .shape = GB_RPC_BY_NAME, .doc = "{doc, params} of each notification"},
    {.name = "errors", .type = GB_RPC_MAP, .shape = GB_RPC_BY_NAME, .doc = "{code, doc} of each error"},
    {.name = "limits", .type = GB_RPC_INT, .shape = GB_RPC_BY_NAME, .doc = "every limit"},
    {.name = "policy_views", .type = GB_RPC_MAP, .shape = GB_RPC_BY_NAME,
     .doc = "{doc, fields} of each table that policies see; a field is {type, unit, doc, read_only, rows?, index?}"},
    {.name = "ext_types", .type = GB_RPC_STRING, .shape = GB_RPC_BY_NAME, .doc = "layout of each extension type"},
    {0},
};

static gb_rpc_outcome run_ping(gb_rpc_call *call)
{
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_key_uint(&map, "t_mono_ns", call->now);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field ping_result[] = {
    {.name = "t_mono_ns", .type = GB_RPC_INT, .doc = "the server's monotonic clock"},
    {0},
};

/* --- drain, shutdown --- */

static uint32_t live_requests(const gb_rpc_service *service)
{
    gb_server_stats stats;
    gb_server_stats_get(service->instance->server, &stats);
    return stats.live;
}

static gb_rpc_outcome run_drain(gb_rpc_call *call)
{
    gb_server_drain(call->service->instance->server);
    gb_rpc_goaway(call->service, "drain", GB_NEVER);
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_key_uint(&map, "live", live_requests(call->service));
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static gb_rpc_outcome run_shutdown(gb_rpc_call *call)
{
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_key_uint(&map, "live", live_requests(call->service));
    gb_pack_end(&map);
    if (call->service->options.shutdown) call->service->options.shutdown(call->service->options.self);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field live_result[] = {
    {.name = "live", .type = GB_RPC_INT, .doc = "requests that are not finished yet"},
    {0},
};

const gb_rpc_method gb_rpc_session_methods[] = {
    {"hello", GB_RPC_NEEDS_NOTHING, 1, run_hello, hello_params, hello_result,
     "Introduces the client and says who it is. The first call of a connection, within 5 s."},
    {"api_info", GB_RPC_NEEDS_NOTHING, 1, run_api_info, gb_rpc_no_fields, api_info_result,
     "Describes this interface; `gimbal api-info` prints the same."},
    {"ping", GB_RPC_NEEDS_NOTHING, 1, run_ping, gb_rpc_no_fields, ping_result, "Answers at once."},
    {"drain", GB_RPC_NEEDS_ADMIN, 1, run_drain, gb_rpc_no_fields, live_result,
     "Finishes what is there and refuses new requests from now on; every client gets `goaway`."},
    {"shutdown", GB_RPC_NEEDS_ADMIN, 1, run_shutdown, gb_rpc_no_fields, live_result,
     "Drains, then ends the process, as SIGTERM does."},
    {0},
};
