/* Inside the room: the service and its connections. service.c moves bytes and calls, stream.c turns serving events into
   notifications, subscribe.c sends snapshots. All on the loop's thread. */
#ifndef GB_RPC_CONN_H
#define GB_RPC_CONN_H

#include "bindings/rpc/frame.h"
#include "bindings/rpc/method.h"
#include "bindings/rpc/stream.h"
#include "bindings/rpc/subscribe.h"

enum { GB_RPC_BUCKETS = 1024 };    /* of the table request_id -> stream */

struct gb_rpc_conn {
    gb_rpc_service *service;
    gb_rpc_conn *next, *previous;              /* all connections */
    gb_rpc_conn *next_ready;
    bool is_ready;
    void *user;
    bool trusted, greeted, admin;
    char who[GB_LUA_WHO_BYTES];                /* "unix socket (uid 0, pid 7)" */
    int status;                                /* why it closes; 0 = it does not */
    gb_time opened_at, heard_at;
    gb_frame frame;
    gb_pack in;                                /* from the first byte of the message that is not whole yet */
    gb_pack out;
    size_t sent;                               /* bytes of out that are gone */
    size_t answered;                           /* where the latest answer ends in out */
    uint32_t n_calls;
    uint32_t calls[GB_RPC_INFLIGHT_MAX];       /* msgids without an answer */
    gb_rpc_stream *streams;
    uint32_t n_streams;
    size_t held_bytes;                         /* text and tokens that its streams hold back for want of credit */
    size_t whole_bytes;                        /* collected for whole results */
    gb_rpc_subscription *subscriptions;
    uint32_t n_subscriptions;
};

struct gb_rpc_service {
    gb_instance *instance;
    gb_rpc_service_options options;
    bool has_key, has_admin;
    uint8_t key_sha256[32], admin_sha256[32];
    gb_rpc_conn *conns, *ready, **ready_tail;
    uint32_t n_conns;
    gb_rpc_stream **streams_by_slot;           /* [queue capacity of the server] */
    gb_rpc_stream *buckets[GB_RPC_BUCKETS];
    struct gb_rpc_check *checks;               /* calls that wait for the check of a policy */
    uint32_t n_checks;
    uint64_t last_request, last_subscription;
    gb_pack reply;                             /* scratch: the result that a handler writes */
    int32_t *tokens;                           /* scratch: [tokens_capacity] prompts */
    size_t tokens_capacity;
    gb_time deadline;                          /* no later than the earliest thing that tick must do */
};

/* Bytes that wait for the reader. */
static inline size_t gb_rpc_conn_backlog(const gb_rpc_conn *conn) { return conn->out.n - conn->sent; }

/* The same without the latest answer and what came before it: one large answer does not make its reader slow. */
static inline size_t gb_rpc_conn_unread_events(const gb_rpc_conn *conn)
{
    return conn->out.n - (conn->answered > conn->sent ? conn->answered : conn->sent);
}

/* Puts the connection among those that have something to send. */
void gb_rpc_conn_ready(gb_rpc_conn *conn);
void gb_rpc_conn_shut(gb_rpc_conn *conn, int status);    /* close it once its output is sent */

/* A notification: the caller writes one map into the pack that this returns, then calls gb_rpc_conn_ready. */
gb_pack *gb_rpc_conn_notify(gb_rpc_conn *conn, const char *name);
void     gb_rpc_conn_error_event(gb_rpc_conn *conn, const char *method, const gb_rpc_error *error);

/* The answer to a call; it is no longer in flight. result holds msgpack. */
void gb_rpc_conn_answer(gb_rpc_conn *conn, uint32_t msgid, const gb_pack *result);
void gb_rpc_conn_reject(gb_rpc_conn *conn, uint32_t msgid, const gb_rpc_error *error);

/* A call whose handler returned GB_RPC_LATER, taken up again; call.out is empty. finish answers it. */
gb_rpc_call gb_rpc_call_resume(gb_rpc_conn *conn, const gb_rpc_method *method, bool replies, uint32_t msgid, gb_time now);
void        gb_rpc_call_finish(gb_rpc_call *call, gb_rpc_outcome outcome);

void gb_rpc_checks_drop(gb_rpc_conn *conn);    /* methods_policy_check.c: its calls want no answer any more */

void gb_rpc_service_wake(gb_rpc_service *service, gb_time at);    /* tick is needed by then */
/* Room for n prompt tokens; NULL without memory. */
int32_t *gb_rpc_service_tokens(gb_rpc_service *service, size_t n);

#endif
