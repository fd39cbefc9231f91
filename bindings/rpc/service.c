#include "bindings/rpc/service.h"

#include <stdlib.h>
#include <string.h>

#include "bindings/rpc/auth.h"
#include "bindings/rpc/conn.h"
#include "bindings/rpc/params.h"
#include "core/base/assert.h"

enum {
    OUT_LIMIT = GB_RPC_BACKLOG_BYTES + 2 * GB_RPC_MESSAGE_MAX + GB_RPC_WHOLE_BYTES,    /* backlog, a reply, all whole results */
    READ_BYTES = 1 << 20,    /* taken in before messages are handled */
    IN_LIMIT = GB_RPC_MESSAGE_MAX + READ_BYTES,
};

/* --- the service --- */

int gb_rpc_service_new(gb_rpc_service **out, gb_instance *instance, const gb_rpc_service_options *options, gb_error *err)
{
    uint32_t slots = gb_server_options_get(instance->server)->queue_capacity;
    gb_rpc_service *service = calloc(1, sizeof *service);
    gb_rpc_stream **by_slot = calloc(slots, sizeof *by_slot);
    if (!service || !by_slot) {
        free(service);
        free(by_slot);
        return gb_fail(err, GB_ENOMEM, "out of memory for the RPC service");
    }
    *service = (gb_rpc_service){.instance = instance, .options = *options, .streams_by_slot = by_slot, .deadline = GB_NEVER};
    service->ready_tail = &service->ready;
    service->has_key = options->api_key != NULL;
    service->has_admin = options->admin_token != NULL;
    if (service->has_key) gb_sha256(service->key_sha256, options->api_key, strlen(options->api_key));
    if (service->has_admin) gb_sha256(service->admin_sha256, options->admin_token, strlen(options->admin_token));
    gb_pack_init(&service->reply, GB_RPC_MESSAGE_MAX);
    *out = service;
    return GB_OK;
}

static void free_detached(gb_rpc_service *service)
{
    for (uint32_t b = 0; b < GB_RPC_BUCKETS; b++)
        while (service->buckets[b]) gb_rpc_stream_free(service->buckets[b]);
}

void gb_rpc_service_free(gb_rpc_service *service)
{
    if (!service) return;
    while (service->conns) gb_rpc_close(service->conns, 0);
    free_detached(service);
    gb_pack_deinit(&service->reply);
    free(service->streams_by_slot);
    free(service->tokens);
    free(service);
}

void gb_rpc_service_wake(gb_rpc_service *service, gb_time at) { service->deadline = gb_time_min(service->deadline, at); }

int32_t *gb_rpc_service_tokens(gb_rpc_service *service, size_t n)
{
    if (n > service->tokens_capacity) {
        int32_t *tokens = realloc(service->tokens, n * sizeof *tokens);
        if (!tokens) return NULL;
        service->tokens = tokens;
        service->tokens_capacity = n;
    }
    return service->tokens;
}

/* --- connections --- */

static const char *kind_of(const gb_rpc_conn *conn) { return conn->trusted ? "unix socket" : "tcp"; }

void gb_rpc_set_peer(gb_rpc_conn *conn, const char *peer)
{
    _Static_assert(GB_RPC_PEER_BYTES + sizeof "unix socket ()" <= GB_LUA_WHO_BYTES, "a record has room for kind and peer");
    snprintf(conn->who, sizeof conn->who, "%s (%.*s)", kind_of(conn), GB_RPC_PEER_BYTES - 1, peer);
}

gb_rpc_conn *gb_rpc_open(gb_rpc_service *service, bool trusted, gb_time now)
{
    if (service->n_conns == GB_RPC_CONNECTIONS_MAX) return NULL;
    gb_rpc_conn *conn = calloc(1, sizeof *conn);
    if (!conn) return NULL;
    *conn = (gb_rpc_conn){.service = service, .next = service->conns, .trusted = trusted, .opened_at = now, .heard_at = now};
    snprintf(conn->who, sizeof conn->who, "%s", kind_of(conn));
    gb_frame_init(&conn->frame);
    gb_pack_init(&conn->in, IN_LIMIT);
    gb_pack_init(&conn->out, OUT_LIMIT);
    if (conn->next) conn->next->previous = conn;
    service->conns = conn;
    service->n_conns++;
    gb_rpc_service_wake(service, now + service->options.hello_within);
    return conn;
}

static void unlink_ready(gb_rpc_service *service, const gb_rpc_conn *conn)
{
    gb_rpc_conn **at = &service->ready;
    while (*at != conn) at = &(*at)->next_ready;
    *at = conn->next_ready;
    if (!*at) service->ready_tail = at;
}

static void end_requests(gb_rpc_conn *conn, gb_time now)
{
    while (conn->streams) gb_rpc_stream_orphan(conn->streams, now);
    gb_rpc_subscription_free_all(conn);
    gb_rpc_checks_drop(conn);
}

void gb_rpc_close(gb_rpc_conn *conn, gb_time now)
{
    gb_rpc_service *service = conn->service;
    end_requests(conn, now);
    if (conn->is_ready) unlink_ready(service, conn);
    if (conn->next) conn->next->previous = conn->previous;
    if (conn->previous) conn->previous->next = conn->next;
    else service->conns = conn->next;
    service->n_conns--;
    gb_pack_deinit(&conn->in);
    gb_pack_deinit(&conn->out);
    free(conn);
}

void gb_rpc_set_user(gb_rpc_conn *conn, void *user) { conn->user = user; }
void *gb_rpc_user(const gb_rpc_conn *conn) { return conn->user; }
bool gb_rpc_wants_close(const gb_rpc_conn *conn) { return conn->status != GB_OK; }

void gb_rpc_conn_ready(gb_rpc_conn *conn)
{
    if (conn->out.overflow && conn->status == GB_OK) conn->status = GB_ETOOBIG;
    if (conn->is_ready) return;
    conn->is_ready = true;
    conn->next_ready = NULL;
    *conn->service->ready_tail = conn;
    conn->service->ready_tail = &conn->next_ready;
}

gb_rpc_conn *gb_rpc_next_ready(gb_rpc_service *service)
{
    gb_rpc_conn *conn = service->ready;
    if (!conn) return NULL;
    unlink_ready(service, conn);
    conn->is_ready = false;
    return conn;
}

void gb_rpc_conn_shut(gb_rpc_conn *conn, int status)
{
    if (conn->status == GB_OK) conn->status = status;
    gb_rpc_conn_ready(conn);
}

/* --- out --- */

const void *gb_rpc_output(gb_rpc_conn *conn, size_t *n)
{
    *n = gb_rpc_conn_backlog(conn);
    return *n ? conn->out.data + conn->sent : NULL;
}

gb_pack *gb_rpc_conn_notify(gb_rpc_conn *conn, const char *name)
{
    gb_pack_array(&conn->out, 3);
    gb_pack_int(&conn->out, 2);
    gb_pack_str(&conn->out, name);
    gb_pack_array(&conn->out, 1);
    return &conn->out;
}

void gb_rpc_conn_error_event(gb_rpc_conn *conn, const char *method, const gb_rpc_error *error)
{
    gb_pack_list map = gb_pack_begin_map(gb_rpc_conn_notify(conn, "error_event"));
    if (method) gb_pack_key_str(&map, "method", method);
    gb_pack_key_int(&map, "code", error->code);
    gb_pack_key_str(&map, "name", gb_rpc_error_name(error->code));
    gb_pack_key_str(&map, "message", error->sentence.text);
    if (error->path[0]) gb_pack_key_str(&map, "path", error->path);
    gb_pack_end(&map);
    gb_rpc_conn_ready(conn);
}

static bool is_in_flight(const gb_rpc_conn *conn, uint32_t msgid)
{
    for (uint32_t i = 0; i < conn->n_calls; i++)
        if (conn->calls[i] == msgid) return true;
    return false;
}

static void land_call(gb_rpc_conn *conn, uint32_t msgid)
{
    for (uint32_t i = 0; i < conn->n_calls; i++)
        if (conn->calls[i] == msgid) {
            conn->calls[i] = conn->calls[--conn->n_calls];
            return;
        }
}

static void begin_answer(gb_rpc_conn *conn, uint32_t msgid)
{
    land_call(conn, msgid);
    gb_pack_array(&conn->out, 4);
    gb_pack_int(&conn->out, 1);
    gb_pack_uint(&conn->out, msgid);
}

void gb_rpc_conn_answer(gb_rpc_conn *conn, uint32_t msgid, const gb_pack *result)
{
    begin_answer(conn, msgid);
    gb_pack_nil(&conn->out);
    gb_pack_raw(&conn->out, result->data, result->n);
    conn->answered = conn->out.n;
    gb_rpc_conn_ready(conn);
}

void gb_rpc_conn_reject(gb_rpc_conn *conn, uint32_t msgid, const gb_rpc_error *error)
{
    begin_answer(conn, msgid);
    gb_rpc_error_pack(&conn->out, error);
    gb_pack_nil(&conn->out);
    gb_rpc_conn_ready(conn);
}

/* --- calls --- */

static bool may_call(gb_rpc_call *call)
{
    gb_rpc_right right = call->method->right;
    if (right == GB_RPC_NEEDS_NOTHING) return true;
    if (!call->conn->greeted) {
        gb_rpc_fail(call, GB_RPC_UNAUTHENTICATED, NULL, "%s needs a hello first", call->method->name);
        return false;
    }
    if (right == GB_RPC_NEEDS_ADMIN && !call->conn->admin) {
        gb_rpc_fail(call, GB_RPC_FORBIDDEN, NULL,
                    "%s is for admins: connect over the Unix socket, or give hello the admin token as auth", call->method->name);
        return false;
    }
    return true;
}

static bool find_method(gb_rpc_call *call, const msgpack_object *name)
{
    call->method = gb_rpc_method_find(name->via.str.ptr, name->via.str.size);
    if (call->method) return true;
    char echo[GB_RPC_ECHO_BYTES];
    gb_rpc_echo(echo, name->via.str.ptr, name->via.str.size);
    const gb_rpc_method *nearest = gb_rpc_method_nearest(name->via.str.ptr, name->via.str.size);
    if (nearest) gb_rpc_fail(call, GB_RPC_NO_METHOD, NULL, "there is no method %s: did you mean %s?", echo, nearest->name);
    else gb_rpc_fail(call, GB_RPC_NO_METHOD, NULL, "there is no method %s: api_info lists them", echo);
    return false;
}

/* Params are [map]; [] and [nil] mean an empty map. */
static bool unwrap_params(gb_rpc_call *call, const msgpack_object *params)
{
    static const msgpack_object empty = {.type = MSGPACK_OBJECT_MAP};
    uint32_t n = params->type == MSGPACK_OBJECT_ARRAY ? params->via.array.size : UINT32_MAX;
    const msgpack_object *first = n == 1 ? params->via.array.ptr : NULL;
    if (n == 0 || (first && first->type == MSGPACK_OBJECT_NIL)) call->params = &empty;
    else if (first && first->type == MSGPACK_OBJECT_MAP) call->params = first;
    else {
        gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, NULL, "params must be an array of one map");
        return false;
    }
    return gb_rpc_check(call->params, call->method->params, &call->error);
}

static gb_rpc_outcome run_call(gb_rpc_call *call, const msgpack_object *name, const msgpack_object *params)
{
    if (!find_method(call, name) || !may_call(call) || !unwrap_params(call, params)) return GB_RPC_FAILED;
    gb_rpc_outcome outcome = call->method->run(call);
    if (outcome == GB_RPC_REPLIED && call->out->overflow)
        return gb_rpc_fail(call, GB_RPC_TOO_LARGE, NULL, "the result of %s is larger than %d bytes: ask for less",
                           call->method->name, GB_RPC_MESSAGE_MAX);
    return outcome;
}

static gb_rpc_call new_call(gb_rpc_conn *conn, gb_time now)
{
    gb_pack_clear(&conn->service->reply);
    return (gb_rpc_call){.service = conn->service, .conn = conn, .now = now, .out = &conn->service->reply};
}

gb_rpc_call gb_rpc_call_resume(gb_rpc_conn *conn, const gb_rpc_method *method, bool replies, uint32_t msgid, gb_time now)
{
    gb_rpc_call call = new_call(conn, now);
    call.method = method;
    call.replies = replies;
    call.msgid = msgid;
    return call;
}

void gb_rpc_call_finish(gb_rpc_call *call, gb_rpc_outcome outcome)
{
    if (outcome == GB_RPC_REPLIED && call->replies) gb_rpc_conn_answer(call->conn, call->msgid, call->out);
    if (outcome == GB_RPC_FAILED && call->replies) gb_rpc_conn_reject(call->conn, call->msgid, &call->error);
    if (outcome == GB_RPC_FAILED && !call->replies) gb_rpc_conn_error_event(call->conn, call->method->name, &call->error);
}

static void handle_request(gb_rpc_conn *conn, uint32_t msgid, const msgpack_object *name, const msgpack_object *params,
                           gb_time now)
{
    gb_rpc_call call = new_call(conn, now);
    call.replies = true;
    call.msgid = msgid;
    gb_rpc_outcome outcome;
    if (conn->n_calls == GB_RPC_INFLIGHT_MAX) {
        outcome = gb_rpc_fail(&call, GB_RPC_OVERLOADED, NULL, "%d calls of this connection have no answer yet: wait for one",
                              GB_RPC_INFLIGHT_MAX);
    } else {
        conn->calls[conn->n_calls++] = msgid;
        outcome = run_call(&call, name, params);
    }
    gb_rpc_call_finish(&call, outcome);
}

static void handle_notification(gb_rpc_conn *conn, const msgpack_object *name, const msgpack_object *params, gb_time now)
{
    gb_rpc_call call = new_call(conn, now);
    char echo[GB_RPC_ECHO_BYTES];
    if (run_call(&call, name, params) != GB_RPC_FAILED) return;
    gb_rpc_conn_error_event(conn, gb_rpc_echo(echo, name->via.str.ptr, name->via.str.size), &call.error);
}

/* --- in --- */

/* What came cannot be answered: say why, as the last thing, and close. */
static void refuse(gb_rpc_conn *conn, int status, int code, const char *sentence, gb_time now)
{
    gb_rpc_error error = {.code = code};
    gb_fail(&error.sentence, status, "%s", sentence);
    end_requests(conn, now);
    gb_rpc_conn_error_event(conn, NULL, &error);
    gb_rpc_conn_shut(conn, status);
}

static bool is_unsigned(const msgpack_object *o, uint64_t most)
{
    return o->type == MSGPACK_OBJECT_POSITIVE_INTEGER && o->via.u64 <= most;
}

static void handle_message(gb_rpc_conn *conn, const msgpack_object *message, gb_time now)
{
    const msgpack_object *part = message->via.array.ptr;
    uint32_t n = message->type == MSGPACK_OBJECT_ARRAY ? message->via.array.size : 0;
    bool is_request =
        n == 4 && is_unsigned(&part[0], 0) && is_unsigned(&part[1], UINT32_MAX) && part[2].type == MSGPACK_OBJECT_STR;
    bool is_notification = n == 3 && is_unsigned(&part[0], 2) && part[0].via.u64 == 2 && part[1].type == MSGPACK_OBJECT_STR;
    if (is_request && is_in_flight(conn, (uint32_t)part[1].via.u64))
        refuse(conn, GB_EFORMAT, GB_RPC_INVALID_REQUEST, "the msgid of a call is in use by one that has no answer yet", now);
    else if (is_request) handle_request(conn, (uint32_t)part[1].via.u64, &part[2], &part[3], now);
    else if (is_notification) handle_notification(conn, &part[1], &part[2], now);
    else
        refuse(conn, GB_EFORMAT, GB_RPC_INVALID_REQUEST,
               "a message must be [0, msgid, method, [params]] or [2, method, [params]]", now);
}

/* Only whole frames within the limits get here. */
static void handle_frame(gb_rpc_conn *conn, const void *bytes, size_t n, gb_time now)
{
    msgpack_unpacked unpacked;
    msgpack_unpacked_init(&unpacked);
    size_t at = 0;
    if (msgpack_unpack_next(&unpacked, bytes, n, &at) == MSGPACK_UNPACK_SUCCESS && at == n)
        handle_message(conn, &unpacked.data, now);
    else refuse(conn, GB_EFORMAT, GB_RPC_PARSE, "the message could not be unpacked", now);
    msgpack_unpacked_destroy(&unpacked);
}

static bool may_read(const gb_rpc_conn *conn)
{
    return conn->status == GB_OK && gb_rpc_conn_backlog(conn) <= GB_RPC_BACKLOG_BYTES;
}

static void keep_last(gb_pack *p, size_t n)
{
    if (n > 0) memmove(p->data, p->data + (p->n - n), n);
    if (n > 0) p->n = n;
    else gb_pack_clear(p);
}

/* Handles the whole messages that have arrived, as long as their answers are read. */
static void read_messages(gb_rpc_conn *conn, gb_time now)
{
    gb_error err = {0};
    size_t at = 0;
    while (may_read(conn)) {
        gb_frame_state state = gb_frame_scan(&conn->frame, conn->in.data + at, conn->in.n - at, &err);
        if (state == GB_FRAME_BAD) refuse(conn, GB_EFORMAT, GB_RPC_PARSE, err.text, now);
        if (state != GB_FRAME_WHOLE) break;
        handle_frame(conn, conn->in.data + at, conn->frame.at, now);
        at += conn->frame.at;
        gb_frame_init(&conn->frame);
    }
    if (at > 0) keep_last(&conn->in, conn->in.n - at);
}

bool gb_rpc_wants_input(const gb_rpc_conn *conn) { return may_read(conn); }

int gb_rpc_input(gb_rpc_conn *conn, const void *bytes, size_t n, gb_time now)
{
    conn->heard_at = now;
    for (size_t at = 0; at < n && conn->status == GB_OK; at += READ_BYTES) {
        gb_pack_raw(&conn->in, (const char *)bytes + at, n - at < READ_BYTES ? n - at : READ_BYTES);
        if (conn->in.overflow)
            refuse(conn, GB_ESLOW, GB_RPC_SLOW_READER, "calls are not read while their answers are not: read, then call", now);
        read_messages(conn, now);
    }
    if (conn->in.n > 0) gb_rpc_service_wake(conn->service, now + conn->service->options.slow_reader);
    return conn->status;
}

void gb_rpc_sent(gb_rpc_conn *conn, size_t n, gb_time now)
{
    GB_ASSERT(n <= gb_rpc_conn_backlog(conn));
    conn->sent += n;
    if (conn->sent > conn->out.n / 2) {
        size_t rest = gb_rpc_conn_backlog(conn);
        conn->answered -= conn->answered < conn->sent ? conn->answered : conn->sent;
        conn->sent = 0;
        keep_last(&conn->out, rest);
    }
    if (conn->in.n > 0) read_messages(conn, now);
}

/* --- events and time --- */

void gb_rpc_event(gb_rpc_service *service, const gb_event *event)
{
    gb_rpc_stream *stream = gb_rpc_stream_of(service, event->id);
    if (stream) gb_rpc_stream_event(stream, event);
}

static void check_patience(gb_rpc_conn *conn, gb_time now)
{
    const gb_rpc_service_options *options = &conn->service->options;
    gb_time hello_by = conn->opened_at + options->hello_within, rest_by = conn->heard_at + options->slow_reader;
    if (conn->status != GB_OK) return;
    if (!conn->greeted) {
        if (now >= hello_by) refuse(conn, GB_EDEADLINE, GB_RPC_UNAUTHENTICATED, "no hello came in time", now);
        else gb_rpc_service_wake(conn->service, hello_by);
    }
    if (conn->in.n > 0 && may_read(conn)) {
        if (now >= rest_by) refuse(conn, GB_EDEADLINE, GB_RPC_PARSE, "the rest of a message did not come in time", now);
        else gb_rpc_service_wake(conn->service, rest_by);
    }
}

void gb_rpc_tick(gb_rpc_service *service, gb_time now)
{
    if (now < service->deadline) return;
    service->deadline = GB_NEVER;
    for (gb_rpc_conn *conn = service->conns; conn; conn = conn->next) {
        check_patience(conn, now);
        for (gb_rpc_stream *s = conn->streams, *next; s; s = next) {
            next = s->next;
            gb_rpc_stream_tick(s, now);
        }
        gb_rpc_subscription_tick(conn, now);
    }
}

gb_time gb_rpc_deadline(const gb_rpc_service *service) { return service->deadline; }

void gb_rpc_goaway(gb_rpc_service *service, const char *reason, gb_time deadline_in)
{
    for (gb_rpc_conn *conn = service->conns; conn; conn = conn->next) {
        if (!conn->greeted || conn->status != GB_OK) continue;
        gb_pack_list map = gb_pack_begin_map(gb_rpc_conn_notify(conn, "goaway"));
        gb_pack_key_str(&map, "reason", reason);
        if (deadline_in != GB_NEVER) gb_pack_key_float(&map, "deadline_ms", gb_to_ms(deadline_in));
        gb_pack_end(&map);
        gb_rpc_conn_ready(conn);
    }
}
