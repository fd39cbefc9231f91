#define _GNU_SOURCE
#include "bindings/uv/listen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bindings/uv/socket_path.h"
#include "core/base/assert.h"

enum { LISTENERS_MAX = 2, BACKLOG = 512, KEEPALIVE_S = 60 };

typedef union stream {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_pipe_t pipe;
    uv_tcp_t tcp;
} stream;

typedef struct listener {
    stream socket;
    gb_listen *owner;
    bool trusted, open;
    char path[GB_SOCKET_PATH_MAX + 1];    /* "" for TCP */
} listener;

typedef struct connection {
    stream socket;
    uv_write_t write;
    gb_listen *owner;
    gb_rpc_conn *rpc;
    struct connection *previous, *next;
    gb_time close_by;       /* GB_NEVER until it is to close */
    bool reading, writing, closing;
    char *chunk;            /* [GB_LISTEN_CHUNK_BYTES] of the write that waits; taken when first needed */
} connection;

struct gb_listen {
    uv_loop_t *loop;
    gb_rpc_service *service;
    gb_time (*now)(void *self);
    void *self;
    listener listeners[LISTENERS_MAX];
    uint32_t n_listeners;
    uint32_t open_handles;      /* listeners and connections whose close callback has not run */
    uint32_t n_connections;     /* not closing */
    uint32_t n_lingering;       /* of those, how many have a close_by */
    connection *connections;
    bool closing;
    char bytes[GB_LISTEN_READ_BYTES];    /* read into; handled before the next read */
};

static gb_time now_of(const gb_listen *l) { return l->now(l->self); }

static void free_when_done(gb_listen *l)
{
    if (l->closing && l->open_handles == 0) free(l);
}

/* ---- connections ---- */

static void on_connection_closed(uv_handle_t *handle)
{
    connection *c = handle->data;
    gb_listen *l = c->owner;
    free(c->chunk);
    free(c);
    l->open_handles--;
    free_when_done(l);
}

static void unlink_connection(connection *c)
{
    if (c->previous) c->previous->next = c->next;
    else c->owner->connections = c->next;
    if (c->next) c->next->previous = c->previous;
    c->owner->n_connections--;
    c->owner->n_lingering -= c->close_by != GB_NEVER;
}

static void close_connection(connection *c, gb_time now)
{
    if (c->closing) return;
    c->closing = true;
    unlink_connection(c);
    gb_rpc_close(c->rpc, now);
    uv_close(&c->socket.handle, on_connection_closed);
}

/* It is to close: at once when nothing waits to be sent, else when that is sent or the time is over. */
static void linger_until(connection *c, gb_time close_by)
{
    c->owner->n_lingering += c->close_by == GB_NEVER;
    c->close_by = gb_time_min(c->close_by, close_by);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer);
static void on_read(uv_stream_t *socket, ssize_t n, const uv_buf_t *buffer);
static void flush(connection *c, gb_time now);

/* Reads while the service wants it: a peer that does not fetch its answers is not asked for more calls. */
static void set_reading(connection *c, gb_time now)
{
    bool wanted = !c->closing && c->close_by == GB_NEVER && gb_rpc_wants_input(c->rpc);
    if (wanted == c->reading) return;
    c->reading = wanted;
    if (!wanted) uv_read_stop(&c->socket.stream);
    else if (uv_read_start(&c->socket.stream, on_alloc, on_read)) close_connection(c, now);
}

static void on_written(uv_write_t *write, int status)
{
    connection *c = write->data;
    c->writing = false;
    if (c->closing) return;
    if (status) close_connection(c, now_of(c->owner));
    else flush(c, now_of(c->owner));
}

/* The peer does not read as fast as we write: one chunk waits in the loop, the rest stays with the service, which counts it. */
static void write_later(connection *c, const void *bytes, size_t n, gb_time now)
{
    if (!c->chunk) c->chunk = malloc(GB_LISTEN_CHUNK_BYTES);
    if (!c->chunk) {
        close_connection(c, now);
        return;
    }
    size_t taken = n < GB_LISTEN_CHUNK_BYTES ? n : GB_LISTEN_CHUNK_BYTES;
    memcpy(c->chunk, bytes, taken);
    gb_rpc_sent(c->rpc, taken, now);
    uv_buf_t buffer = uv_buf_init(c->chunk, (unsigned)taken);
    c->writing = true;
    if (uv_write(&c->write, &c->socket.stream, &buffer, 1, on_written)) {
        c->writing = false;
        close_connection(c, now);
    }
}

/* Sends what the service has for a connection as far as the socket takes it, then closes it if that was the wish. */
static void flush(connection *c, gb_time now)
{
    if (!c->closing && gb_rpc_wants_close(c->rpc)) linger_until(c, now + gb_seconds(GB_LISTEN_LINGER_S));
    while (!c->writing && !c->closing) {
        size_t n = 0;
        const void *bytes = gb_rpc_output(c->rpc, &n);
        if (n == 0) {
            if (c->close_by != GB_NEVER) close_connection(c, now);
            break;
        }
        uv_buf_t buffer = uv_buf_init((char *)bytes, (unsigned)(n < INT32_MAX ? n : INT32_MAX));
        int sent = uv_try_write(&c->socket.stream, &buffer, 1);
        if (sent > 0) gb_rpc_sent(c->rpc, (size_t)sent, now);
        else if (sent == UV_EAGAIN) write_later(c, bytes, n, now);
        else close_connection(c, now);
    }
    if (!c->closing) set_reading(c, now);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    connection *c = handle->data;
    (void)suggested;
    *buffer = uv_buf_init(c->owner->bytes, sizeof c->owner->bytes);
}

static void on_read(uv_stream_t *socket, ssize_t n, const uv_buf_t *buffer)
{
    connection *c = socket->data;
    gb_time now = now_of(c->owner);
    if (n < 0) {
        close_connection(c, now);
        return;
    }
    if (n > 0 && gb_rpc_input(c->rpc, buffer->base, (size_t)n, now)) {
        linger_until(c, now + gb_seconds(GB_LISTEN_LINGER_S));    /* it closes when what is queued for it has been sent */
        flush(c, now);
    }
    if (!c->closing) set_reading(c, now);
}

static void link_connection(gb_listen *l, connection *c)
{
    c->next = l->connections;
    if (c->next) c->next->previous = c;
    l->connections = c;
    l->n_connections++;
}

static int init_stream(gb_listen *l, stream *socket, bool local)
{
    int failed = local ? uv_pipe_init(l->loop, &socket->pipe, 0) : uv_tcp_init(l->loop, &socket->tcp);
    if (!failed) l->open_handles++;
    return failed;
}

/* Who connects, as the kernel says it; a peer that it does not know stays nameless. */
static void name_local_peer(connection *c)
{
    char name[GB_RPC_PEER_BYTES];
    struct ucred who;
    socklen_t bytes = sizeof who;
    uv_os_fd_t fd;
    if (uv_fileno(&c->socket.handle, &fd) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes)) return;
    snprintf(name, sizeof name, "uid %lu, pid %ld", (unsigned long)who.uid, (long)who.pid);
    gb_rpc_set_peer(c->rpc, name);
}

static void name_tcp_peer(connection *c)
{
    char name[GB_RPC_PEER_BYTES], host[INET6_ADDRSTRLEN];
    struct sockaddr_storage address;
    int bytes = sizeof address;
    if (uv_tcp_getpeername(&c->socket.tcp, (struct sockaddr *)&address, &bytes)) return;
    bool six = address.ss_family == AF_INET6;
    int failed = six ? uv_ip6_name((struct sockaddr_in6 *)&address, host, sizeof host) : uv_ip4_name((struct sockaddr_in *)&address, host, sizeof host);
    if (failed) return;
    snprintf(name, sizeof name, "%s port %u", host,
             ntohs(six ? ((struct sockaddr_in6 *)&address)->sin6_port : ((struct sockaddr_in *)&address)->sin_port));
    gb_rpc_set_peer(c->rpc, name);
}

static void on_connect(uv_stream_t *server, int status)
{
    listener *from = server->data;
    gb_listen *l = from->owner;
    if (status) return;    /* out of descriptors: libuv answers with its reserve one, by closing */
    connection *c = calloc(1, sizeof *c);
    if (!c) return;
    bool local = from->path[0] != '\0';
    if (init_stream(l, &c->socket, local)) {
        free(c);
        return;
    }
    c->owner = l;
    c->close_by = GB_NEVER;
    c->socket.handle.data = c->write.data = c;
    gb_time now = now_of(l);
    if (uv_accept(server, &c->socket.stream) || !(c->rpc = gb_rpc_open(l->service, from->trusted, now))) {
        uv_close(&c->socket.handle, on_connection_closed);
        return;
    }
    gb_rpc_set_user(c->rpc, c);
    link_connection(l, c);
    if (local) name_local_peer(c);
    else {
        name_tcp_peer(c);
        uv_tcp_nodelay(&c->socket.tcp, 1);
        uv_tcp_keepalive(&c->socket.tcp, 1, KEEPALIVE_S);
    }
    set_reading(c, now);
}

/* ---- listeners ---- */

static void on_listener_closed(uv_handle_t *handle)
{
    gb_listen *l = ((listener *)handle->data)->owner;
    l->open_handles--;
    free_when_done(l);
}

static void close_listener(listener *from)
{
    if (!from->open) return;
    from->open = false;
    if (from->path[0]) unlink(from->path);
    uv_close(&from->socket.handle, on_listener_closed);
}

/* A fresh listener whose handle is initialised; the caller binds it. */
static listener *add_listener(gb_listen *l, bool local)
{
    GB_ASSERT(l->n_listeners < LISTENERS_MAX);
    listener *from = &l->listeners[l->n_listeners];
    if (init_stream(l, &from->socket, local)) return NULL;
    l->n_listeners++;
    from->owner = l;
    from->trusted = local;
    from->open = true;
    from->socket.handle.data = from;
    return from;
}

int gb_listen_unix(gb_listen *l, const char *path, gb_error *err)
{
    int fd;
    int status = gb_socket_path_bind(&fd, path, err);
    if (status) return status;
    listener *from = add_listener(l, true);
    if (from) snprintf(from->path, sizeof from->path, "%s", path);
    int failed = from ? uv_pipe_open(&from->socket.pipe, fd) : UV_ENOMEM;
    if (failed) close(fd);
    else failed = uv_listen(&from->socket.stream, BACKLOG, on_connect);
    if (!failed) return GB_OK;
    if (from) close_listener(from);
    else unlink(path);
    return gb_fail(err, GB_EIO, "socket %s: %s", path, uv_strerror(failed));
}

static int resolve(gb_listen *l, struct sockaddr_storage *address, const char *host, uint16_t port, gb_error *err)
{
    char service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    uv_getaddrinfo_t request;
    snprintf(service, sizeof service, "%u", port);
    int failed = uv_getaddrinfo(l->loop, &request, NULL, host, service, &hints);
    if (failed) return gb_fail(err, GB_EINVAL, "rpc_host %s: %s; give an address of this machine", host, uv_strerror(failed));
    memcpy(address, request.addrinfo->ai_addr, request.addrinfo->ai_addrlen);
    uv_freeaddrinfo(request.addrinfo);
    return GB_OK;
}

static uint16_t port_of(const uv_tcp_t *tcp)
{
    struct sockaddr_storage address;
    int bytes = sizeof address;
    if (uv_tcp_getsockname(tcp, (struct sockaddr *)&address, &bytes)) return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port : ((struct sockaddr_in *)&address)->sin_port);
}

int gb_listen_tcp(gb_listen *l, const char *host, uint16_t port, uint16_t *bound, gb_error *err)
{
    struct sockaddr_storage address;
    int status = resolve(l, &address, host, port, err);
    if (status) return status;
    listener *from = add_listener(l, false);
    if (!from) return gb_fail(err, GB_ENOMEM, "out of memory for a listening socket");
    int failed = uv_tcp_bind(&from->socket.tcp, (struct sockaddr *)&address, 0);
    if (!failed) failed = uv_listen(&from->socket.stream, BACKLOG, on_connect);
    if (!failed) {
        *bound = port_of(&from->socket.tcp);
        return GB_OK;
    }
    close_listener(from);
    if (failed == UV_EADDRINUSE)
        return gb_fail(err, GB_EEXIST, "%s port %u is in use; choose another --rpc-port (0 takes a free one)", host, port);
    return gb_fail(err, GB_EIO, "%s port %u: %s", host, port, uv_strerror(failed));
}

/* ---- the whole ---- */

int gb_listen_new(gb_listen **out, uv_loop_t *loop, gb_rpc_service *service, gb_time (*now)(void *self), void *self, gb_error *err)
{
    gb_listen *l = calloc(1, sizeof *l);
    if (!l) return gb_fail(err, GB_ENOMEM, "out of memory for connections");
    l->loop = loop;
    l->service = service;
    l->now = now;
    l->self = self;
    *out = l;
    return GB_OK;
}

void gb_listen_flush(gb_listen *l, gb_time now)
{
    for (gb_rpc_conn *rpc; (rpc = gb_rpc_next_ready(l->service));) flush(gb_rpc_user(rpc), now);
}

void gb_listen_tick(gb_listen *l, gb_time now)
{
    for (connection *c = l->connections, *next; c; c = next) {
        next = c->next;
        if (c->close_by <= now) close_connection(c, now);
    }
}

gb_time gb_listen_deadline(const gb_listen *l)
{
    gb_time deadline = GB_NEVER;
    if (l->n_lingering == 0) return deadline;
    for (const connection *c = l->connections; c; c = c->next) deadline = gb_time_min(deadline, c->close_by);
    return deadline;
}

uint32_t gb_listen_connections(const gb_listen *l) { return l->n_connections; }

void gb_listen_stop(gb_listen *l)
{
    for (uint32_t i = 0; i < l->n_listeners; i++) close_listener(&l->listeners[i]);
}

void gb_listen_finish(gb_listen *l, gb_time now, gb_time linger)
{
    for (connection *c = l->connections, *next; c; c = next) {
        next = c->next;
        linger_until(c, now + linger);
        set_reading(c, now);
        flush(c, now);
    }
    gb_listen_tick(l, now);
}

void gb_listen_close(gb_listen *l, gb_time now)
{
    gb_listen_stop(l);
    while (l->connections) close_connection(l->connections, now);
    l->closing = true;
    free_when_done(l);
}
