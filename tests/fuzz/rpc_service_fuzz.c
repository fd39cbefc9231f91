/* Any bytes of a client against the served script, and what the server promises in return: every byte it sends is a well-formed
   message, token events are gapless and within the window, nothing follows an end, no more is held than the limits allow, and
   when the connection goes every KV block is free again.

   The input is a little program: a byte below 0xf8 says how many of the bytes after it arrive at once; 0xf8.. lets rounds run,
   time pass or the client read. The connection is trusted and greeted, so that every method is reachable. */
#include <string.h>

#include "bindings/rpc/conn.h"
#include "core/base/assert.h"
#include "tests/rpc/fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RUN = 0xf8, ROUND, PASS_MS, PASS_PATIENCE, STOP_READING, READ };

static void check_limits(const gb_rpc_conn *conn)
{
    GB_ASSERT(conn->n_calls <= GB_RPC_INFLIGHT_MAX && conn->n_streams <= GB_RPC_STREAMS_MAX &&
              conn->n_subscriptions <= GB_RPC_SUBSCRIPTIONS_MAX);
    GB_ASSERT(gb_rpc_conn_backlog(conn) <= GB_RPC_BACKLOG_BYTES + 2 * GB_RPC_MESSAGE_MAX &&
              conn->held_bytes <= 2 * GB_RPC_BACKLOG_BYTES);
    size_t held = 0, whole = 0;
    for (const gb_rpc_stream *s = conn->streams; s; s = s->next) {
        *(s->whole ? &whole : &held) += s->text.n + s->tokens.n + s->logprobs.n;
        GB_ASSERT(s->conn == conn && (s->window == 0 || s->unacked <= s->window));
    }
    GB_ASSERT(held == conn->held_bytes && whole == conn->whole_bytes);
}

/* One of [1, msgid, error, result] and [2, name, [map]]. */
static void check_message(const json_t *message)
{
    bool is_answer = json_array_size(message) == 4 && json_integer_value(json_array_get(message, 0)) == 1;
    bool is_notification = json_array_size(message) == 3 && json_integer_value(json_array_get(message, 0)) == 2;
    GB_ASSERT(is_answer || is_notification);
    const json_t *error_or_params = json_array_get(message, 2);
    if (is_answer) GB_ASSERT(json_is_null(error_or_params) || json_is_string(json_object_get(error_or_params, "message")));
    else GB_ASSERT(json_is_string(json_array_get(message, 1)) && json_is_object(json_array_get(error_or_params, 0)));
}

/* seqs: request_id -> the seq expected next. A name is used again only after its end. */
static void follow_stream(json_t *seqs, const json_t *message)
{
    const char *name = json_string_value(json_array_get(message, 1));
    const json_t *map = json_array_get(json_array_get(message, 2), 0);
    const char *id = name ? json_string_value(json_object_get(map, "request_id")) : NULL;
    if (!id) return;
    json_int_t expected = json_integer_value(json_object_get(seqs, id));
    if (strcmp(name, "token") == 0) {
        GB_ASSERT(json_integer_value(json_object_get(map, "seq")) == expected);
        json_object_set_new(seqs, id, json_integer(expected + 1));
    } else json_object_del(seqs, id);
}

static void check_messages(peer *p, json_t *seqs)
{
    size_t i;
    json_t *message;
    json_array_foreach(p->messages, i, message)
    {
        check_message(message);
        follow_stream(seqs, message);
    }
    json_array_clear(p->messages);
    GB_ASSERT(!p->reads || p->n == 0);    /* no message is left half */
}

static void act(fixture *f, peer *p, uint8_t action)
{
    switch (action) {
    case RUN: fixture_run(f); break;
    case ROUND: fixture_round(f); break;
    case PASS_MS: fixture_pass(f, gb_ms(20)); break;
    case PASS_PATIENCE: fixture_pass(f, gb_seconds(31)); break;
    case STOP_READING: p->reads = false; break;
    default: p->reads = true; break;
    }
    peer_receive(p);
}

static uint32_t used_blocks(const fixture *f)
{
    gb_server_stats stats;
    gb_server_stats_get(f->instance.server, &stats);
    return stats.blocks_used + stats.live;
}

/* One server for many inputs, until one of them drains it or loads a policy. */
static void open_or_reuse(fixture *f)
{
    static bool is_open;
    static uint32_t policies;
    bool is_fresh = is_open && !gb_server_draining(f->instance.server) && gb_lua_host_count(f->instance.policies) == policies;
    if (is_fresh) return;
    if (is_open) fixture_close(f);
    fixture_open(f, NULL);
    is_open = true;
    policies = gb_lua_host_count(f->instance.policies);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fixture f;
    peer p;
    json_t *seqs = json_object();
    open_or_reuse(&f);
    peer_hello(&p, &f);
    for (size_t at = 0; at < size && p.status == 0;) {
        size_t n = data[at++];
        if (n < RUN) {
            if (n > size - at) n = size - at;
            peer_send(&p, data + at, n);
            at += n;
        } else act(&f, &p, (uint8_t)n);
        check_limits(p.conn);
        check_messages(&p, seqs);
    }
    p.reads = true;
    peer_receive(&p);
    check_messages(&p, seqs);
    peer_close(&p);
    fixture_run(&f);
    GB_ASSERT(used_blocks(&f) == 0);
    json_decref(seqs);
    return 0;
}
