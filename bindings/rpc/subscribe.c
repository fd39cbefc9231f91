#include "bindings/rpc/subscribe.h"

#include <stdlib.h>
#include <string.h>

#include "bindings/rpc/conn.h"
#include "bindings/rpc/params.h"
#include "bindings/rpc/snapshot.h"

/* --- topics: what is sent, and a number that changes when it does --- */

static uint64_t stats_mark(gb_rpc_service *service)
{
    gb_server_stats s;
    gb_server_stats_get(service->instance->server, &s);
    return s.rounds + s.accepted + s.refused + s.finished + s.failed + s.aborted;
}

static uint64_t experts_mark(gb_rpc_service *service)
{
    uint64_t window_id = 0;
    gb_time from, to;
    gb_server_window(service->instance->server, true, &window_id, &from, &to);
    return window_id;
}

static uint64_t placement_mark(gb_rpc_service *service) { return gb_server_placement(service->instance->server)->version; }

static uint64_t policies_mark(gb_rpc_service *service)
{
    const gb_lua_host *host = service->instance->policies;
    gb_lua_info info;
    uint64_t mark = gb_lua_log_events(gb_lua_host_log(host)) + 4099 * gb_lua_host_generation(host);
    for (int h = 0; h < GB_HOOKS; h++) mark = mark * 1000003 + gb_lua_host_active(host, (gb_hook)h);
    for (uint32_t i = 0; gb_lua_host_info(host, i, &info) == GB_OK; i++) mark += info.faults << 32;
    return mark;
}

static const struct topic {
    const char *name;
    uint64_t (*mark)(gb_rpc_service *service);
    void (*pack)(gb_rpc_service *service, gb_pack *out);
} topics[] = {
    {"stats", stats_mark, gb_rpc_pack_stats},       {"engines", stats_mark, gb_rpc_pack_engines},
    {"experts", experts_mark, gb_rpc_pack_experts}, {"placement", placement_mark, gb_rpc_pack_placement},
    {"policies", policies_mark, gb_rpc_pack_policies},
};
enum { TOPICS = sizeof topics / sizeof *topics };

#define TOPIC_NAMES "stats, engines, experts, placement, policies"

/* --- subscriptions --- */

typedef struct topic_state {
    bool wanted, was_sent;
    uint64_t mark;       /* of the value that was sent, or skipped, last */
    uint64_t skipped;
} topic_state;

struct gb_rpc_subscription {
    gb_rpc_subscription *next;
    uint64_t id, seq;
    gb_time interval, next_at;
    bool acks, unacked;
    topic_state states[TOPICS];
};

static gb_rpc_subscription **find(gb_rpc_conn *conn, uint64_t id)
{
    gb_rpc_subscription **at = &conn->subscriptions;
    while (*at && (*at)->id != id) at = &(*at)->next;
    return at;
}

static void remove_at(gb_rpc_conn *conn, gb_rpc_subscription **at)
{
    gb_rpc_subscription *subscription = *at;
    *at = subscription->next;
    conn->n_subscriptions--;
    free(subscription);
}

void gb_rpc_subscription_free_all(gb_rpc_conn *conn)
{
    while (conn->subscriptions) remove_at(conn, &conn->subscriptions);
}

bool gb_rpc_subscription_ack(gb_rpc_conn *conn, uint64_t id, gb_time now)
{
    gb_rpc_subscription *subscription = *find(conn, id);
    if (!subscription) return false;
    subscription->unacked = false;
    gb_rpc_service_wake(conn->service, subscription->next_at > now ? subscription->next_at : now);
    return true;
}

static bool may_send(const gb_rpc_conn *conn, const gb_rpc_subscription *subscription)
{
    return !subscription->unacked && gb_rpc_conn_unread_events(conn) <= GB_RPC_BACKLOG_BYTES / 2;
}

static void send_snapshot(gb_rpc_conn *conn, gb_rpc_subscription *subscription, int topic)
{
    topic_state *state = &subscription->states[topic];
    gb_pack_list map = gb_pack_begin_map(gb_rpc_conn_notify(conn, "event"));
    gb_pack_key_uint(&map, "sub_id", subscription->id);
    gb_pack_key_str(&map, "topic", topics[topic].name);
    gb_pack_key_uint(&map, "seq", subscription->seq++);
    gb_pack_key_uint(&map, "skipped", state->skipped);
    topics[topic].pack(conn->service, gb_pack_key(&map, "data"));
    gb_pack_end(&map);
    gb_rpc_conn_ready(conn);
    state->was_sent = true;
    state->skipped = 0;
}

/* What changed since the last look is sent, or counted as skipped when it may not be. A value that was skipped is owed. */
static void look(gb_rpc_conn *conn, gb_rpc_subscription *subscription)
{
    bool sends = may_send(conn, subscription);
    for (int t = 0; t < TOPICS; t++) {
        topic_state *state = &subscription->states[t];
        if (!state->wanted) continue;
        uint64_t mark = topics[t].mark(conn->service);
        bool changed = !state->was_sent || mark != state->mark;
        if (!changed && !(sends && state->skipped)) continue;
        state->mark = mark;
        if (!sends) {
            state->skipped += state->was_sent;
            continue;
        }
        if (!changed) state->skipped--;    /* the newest of those that were skipped goes out now */
        send_snapshot(conn, subscription, t);
        subscription->unacked = subscription->acks;
    }
}

void gb_rpc_subscription_tick(gb_rpc_conn *conn, gb_time now)
{
    for (gb_rpc_subscription *s = conn->subscriptions; s; s = s->next) {
        if (now >= s->next_at) {
            look(conn, s);
            s->next_at = now + s->interval;
        }
        gb_rpc_service_wake(conn->service, s->next_at);
    }
}

/* --- subscribe, unsubscribe --- */

static gb_rpc_outcome read_topics(gb_rpc_call *call, gb_rpc_subscription *subscription)
{
    const msgpack_object *list = gb_rpc_param(call->params, "topics");
    for (uint32_t i = 0; i < list->via.array.size; i++) {
        const msgpack_object_str *name = &list->via.array.ptr[i].via.str;
        int t = 0;
        while (t < TOPICS && (strlen(topics[t].name) != name->size || memcmp(topics[t].name, name->ptr, name->size) != 0)) t++;
        char echo[GB_RPC_ECHO_BYTES];
        if (t == TOPICS)
            return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "topics", "there is no topic %s: topics are " TOPIC_NAMES,
                               gb_rpc_echo(echo, name->ptr, name->size));
        subscription->states[t].wanted = true;
    }
    if (list->via.array.size == 0)
        return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "topics", "topics is empty: topics are " TOPIC_NAMES);
    return GB_RPC_REPLIED;
}

static gb_rpc_outcome run_subscribe(gb_rpc_call *call)
{
    gb_rpc_conn *conn = call->conn;
    if (conn->n_subscriptions == GB_RPC_SUBSCRIPTIONS_MAX)
        return gb_rpc_fail(call, GB_RPC_OVERLOADED, NULL, "this connection has %d subscriptions: unsubscribe from one",
                           GB_RPC_SUBSCRIPTIONS_MAX);
    gb_rpc_subscription wanted = {
        .acks = gb_rpc_param_bool(call->params, "ack", false), .next_at = call->now,
        .interval = gb_ms((uint64_t)gb_rpc_param_int(call->params, "min_interval_ms", GB_RPC_INTERVAL_MS)),
    };
    if (read_topics(call, &wanted) == GB_RPC_FAILED) return GB_RPC_FAILED;
    gb_rpc_subscription *subscription = malloc(sizeof *subscription);
    if (!subscription) return gb_rpc_fail_status(call, GB_ENOMEM, NULL);
    *subscription = wanted;
    subscription->id = ++call->service->last_subscription;
    subscription->next = conn->subscriptions;
    conn->subscriptions = subscription;
    conn->n_subscriptions++;
    gb_rpc_service_wake(call->service, call->now);    /* the first snapshot goes out at the next tick, after this answer */
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_key_uint(&map, "sub_id", subscription->id);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static gb_rpc_outcome run_unsubscribe(gb_rpc_call *call)
{
    gb_rpc_subscription **at = find(call->conn, (uint64_t)gb_rpc_param_int(call->params, "sub_id", 0));
    bool found = *at != NULL;
    if (found) remove_at(call->conn, at);
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_key_bool(&map, "removed", found);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field subscribe_params[] = {
    {.name = "topics", .type = GB_RPC_STRING, .shape = GB_RPC_LIST, .required = true, .most = 16, .doc = "of " TOPIC_NAMES},
    {.name = "min_interval_ms", .type = GB_RPC_INT, .low = GB_RPC_INTERVAL_MIN_MS, .high = 86400000,
     .doc = "at most one snapshot of a topic in so long; default 1000"},
    {.name = "ack", .type = GB_RPC_BOOL, .doc = "true: the next snapshot waits for ack {sub_id}; default false"},
    {0},
};

static const gb_rpc_field subscribe_result[] = {
    {.name = "sub_id", .type = GB_RPC_INT, .doc = "for ack and unsubscribe"},
    {0},
};

static const gb_rpc_field unsubscribe_params[] = {
    {.name = "sub_id", .type = GB_RPC_INT, .required = true, .low = 1, .high = INT64_MAX, .doc = "of this connection"},
    {0},
};

static const gb_rpc_field unsubscribe_result[] = {
    {.name = "removed", .type = GB_RPC_BOOL, .doc = "false: there was no such subscription"},
    {0},
};

const gb_rpc_method gb_rpc_subscribe_methods[] = {
    {"subscribe", GB_RPC_NEEDS_HELLO, 1, run_subscribe, subscribe_params, subscribe_result,
     "Sends `event` with a snapshot now, and whenever it has changed, not more often than asked. A slow subscriber gets the "
     "newest value and `skipped`."},
    {"unsubscribe", GB_RPC_NEEDS_HELLO, 1, run_unsubscribe, unsubscribe_params, unsubscribe_result, "Ends a subscription."},
    {0},
};
