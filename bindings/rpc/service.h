/* The msgpack-RPC surface without I/O: bytes of a connection go in, bytes to send come out. The method table is the only
   source of names, parameters and results; docs/rpc.md and api_info are made from it. One thread (the loop's) owns it.

   The driver: accepts a connection -> gb_rpc_open; bytes -> gb_rpc_input; after each turn drains gb_rpc_output; passes every
   serving event to gb_rpc_event; calls gb_rpc_tick at gb_rpc_deadline. The service calls into the instance's serving core
   itself (submit, cancel, policies); whoever pumps rounds asks the core afterwards. */
#ifndef GB_RPC_SERVICE_H
#define GB_RPC_SERVICE_H

#include "bindings/c/instance.h"
#include "bindings/rpc/checker.h"
#include "core/base/time.h"

typedef struct gb_rpc_service gb_rpc_service;
typedef struct gb_rpc_conn gb_rpc_conn;

enum {
    GB_RPC_MESSAGE_MAX = 8 << 20,        /* bytes of one message */
    GB_RPC_DEPTH_MAX = 16,
    GB_RPC_VALUES_MAX = (1 << 20) + (1 << 12),    /* values in one message: the longest prompt in tokens, and its map */
    GB_RPC_INFLIGHT_MAX = 64,            /* unanswered calls of one connection */
    GB_RPC_CONNECTIONS_MAX = 4096,
    GB_RPC_STREAM_BYTES = 256 << 10,     /* text held for one stream whose reader gives no credit */
    GB_RPC_BACKLOG_BYTES = 1 << 20,      /* output held for one connection */
    GB_RPC_WINDOW = 64,                  /* default credit of a stream */
};

typedef struct gb_rpc_service_options {
    const char *api_key;         /* NULL = none needed */
    const char *admin_token;     /* NULL = admin methods only where the connection is trusted */
    gb_time hello_within;        /* 5 s */
    gb_time slow_reader;         /* 30 s without credit ends a stream */
    const gb_checker_seam *checker;    /* who checks policies away from the loop; NULL = nobody. Outlives the service */
    bool checks_loads;           /* policy_load asks the checker first */
    void (*shutdown)(void *self);    /* the shutdown method was called; its answer is queued next; must not close connections */
    void *self;
} gb_rpc_service_options;

int  gb_rpc_service_new(gb_rpc_service **out, gb_instance *instance, const gb_rpc_service_options *options, gb_error *err);
void gb_rpc_service_free(gb_rpc_service *service);

/* trusted: a Unix socket with mode 0600 (admin allowed, no key). NULL when there are too many connections. */
gb_rpc_conn *gb_rpc_open(gb_rpc_service *service, bool trusted, gb_time now);
void         gb_rpc_close(gb_rpc_conn *conn, gb_time now);    /* aborts its requests */

/* Who is at the other end, as far as the socket knows it: "uid 0, pid 7", "127.0.0.1 port 70". For the record of changes. */
enum { GB_RPC_PEER_BYTES = 64 };
void gb_rpc_set_peer(gb_rpc_conn *conn, const char *peer);

/* Bytes that arrived. Returns 0, or a status when the connection must be closed after its output is sent (malformed
   frame, no hello, slow reader). */
int gb_rpc_input(gb_rpc_conn *conn, const void *bytes, size_t n, gb_time now);

/* False while answers wait for the reader: stop reading from the socket until gb_rpc_sent makes it true. What comes anyway
   is kept up to one message; beyond that the connection closes. */
bool gb_rpc_wants_input(const gb_rpc_conn *conn);

/* Bytes to send: a pointer to what is queued, good until the next call for this connection; gb_rpc_sent takes n of them
   off, and handles calls that waited for that. */
const void *gb_rpc_output(gb_rpc_conn *conn, size_t *n);
void        gb_rpc_sent(gb_rpc_conn *conn, size_t n, gb_time now);
bool        gb_rpc_wants_close(const gb_rpc_conn *conn);    /* close once the output is drained */

/* The next connection that has something new to send or wants to close; NULL when there is none. Each is named once, and
   again only when more is queued for it: what could not be sent at once is the driver's to remember. */
gb_rpc_conn *gb_rpc_next_ready(gb_rpc_service *service);
void        gb_rpc_set_user(gb_rpc_conn *conn, void *user);
void       *gb_rpc_user(const gb_rpc_conn *conn);

void    gb_rpc_event(gb_rpc_service *service, const gb_event *event);
void    gb_rpc_tick(gb_rpc_service *service, gb_time now);
gb_time gb_rpc_deadline(const gb_rpc_service *service);
/* Tells every client that the server takes nothing new; deadline_in GB_NEVER = no deadline. */
void    gb_rpc_goaway(gb_rpc_service *service, const char *reason, gb_time deadline_in);

/* api_info as JSON or Markdown, for `gimbal api-info` and docs/rpc.md; malloc'd. */
char *gb_rpc_api_json(void);
char *gb_rpc_api_markdown(void);

#endif
