/* Listening sockets and their connections: bytes between libuv's streams and the RPC service. Nothing here knows what the
   bytes mean. A connection reads while the service takes it, writes what the service has queued, and holds at most one
   chunk beyond that when the peer does not read. Loop thread only. */
#ifndef GB_UV_LISTEN_H
#define GB_UV_LISTEN_H

#include <uv.h>

#include "bindings/rpc/service.h"

enum {
    GB_LISTEN_READ_BYTES = 64 << 10,     /* taken from a socket at once */
    GB_LISTEN_CHUNK_BYTES = 16 << 10,    /* copied for a write that has to wait */
    GB_LISTEN_LINGER_S = 5,              /* how long a connection that is to close may take to drain its output */
};

typedef struct gb_listen gb_listen;

/* now() is the driver's time of the running turn. Service and loop are borrowed. */
int gb_listen_new(gb_listen **out, uv_loop_t *loop, gb_rpc_service *service, gb_time (*now)(void *self), void *self, gb_error *err);

/* A Unix socket with mode 0600 (trusted); GB_EEXIST when a live server has it, else as gb_socket_path_bind. */
int gb_listen_unix(gb_listen *listen, const char *path, gb_error *err);
/* TCP; port 0 takes a free one, *bound says which. GB_EEXIST when the port is in use. */
int gb_listen_tcp(gb_listen *listen, const char *host, uint16_t port, uint16_t *bound, gb_error *err);

void     gb_listen_flush(gb_listen *listen, gb_time now);      /* writes what the service has for its connections */
void     gb_listen_tick(gb_listen *listen, gb_time now);       /* closes connections that linger too long */
gb_time  gb_listen_deadline(const gb_listen *listen);
uint32_t gb_listen_connections(const gb_listen *listen);

void gb_listen_stop(gb_listen *listen);                        /* no new connections; a Unix socket's file goes */
void gb_listen_finish(gb_listen *listen, gb_time now, gb_time linger);    /* every connection closes once its output is sent */

/* Closes everything; the memory goes when the loop has run the close callbacks. */
void gb_listen_close(gb_listen *listen, gb_time now);

#endif
