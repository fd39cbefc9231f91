#define _GNU_SOURCE
#include "bindings/cli/remote.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bindings/c/version.h"
#include "bindings/rpc/frame.h"
#include "bindings/rpc/json.h"
#include "bindings/uv/socket_path.h"

enum { READ_BYTES = 64 << 10, OUT_LIMIT = GB_RPC_MESSAGE_MAX + (64 << 10), KEY_BYTES = 1024 };

struct gb_remote {
    int fd;
    uint32_t last_msgid;
    char address[256];        /* for sentences */
    gb_pack out;
    gb_frame frame;           /* of the message that begins at in */
    char *in;
    size_t n, capacity;
};

/* ---- connecting ---- */

static int connect_unix(gb_remote *r, const char *path, gb_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(r->address, sizeof r->address, "socket %s", path);
    if (strlen(path) > GB_SOCKET_PATH_MAX)
        return gb_fail(err, GB_EINVAL, "socket %s: a Unix socket's path has at most %d bytes", path, GB_SOCKET_PATH_MAX);
    memcpy(address.sun_path, path, strlen(path));
    r->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->fd >= 0 && connect(r->fd, (struct sockaddr *)&address, sizeof address) == 0) return GB_OK;
    return gb_fail(err, GB_EIO, "socket %s: %s; is gimbal serve running there?", path, strerror(errno));
}

static int connect_tcp(gb_remote *r, const char *host, int port, gb_error *err)
{
    char service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
    snprintf(r->address, sizeof r->address, "%s port %d", host, port);
    snprintf(service, sizeof service, "%d", port);
    int failed = getaddrinfo(host, service, &hints, &list);
    if (failed) return gb_fail(err, GB_EINVAL, "host %s: %s", host, gai_strerror(failed));
    for (const struct addrinfo *a = list; a && r->fd < 0; a = a->ai_next) {
        r->fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (r->fd < 0 || connect(r->fd, a->ai_addr, a->ai_addrlen) == 0) continue;
        failed = errno;
        close(r->fd);
        r->fd = -1;
    }
    freeaddrinfo(list);
    if (r->fd >= 0) return GB_OK;
    return gb_fail(err, GB_EIO, "%s: %s; is gimbal serve --rpc-port running there?", r->address, strerror(failed ? failed : errno));
}

static int connect_by_flags(gb_remote *r, const gb_remote_flags *flags, gb_error *err)
{
    char path[512];
    const char *environment = getenv("GIMBAL_SOCKET");
    if (flags->port) return connect_tcp(r, flags->host, (int)flags->port, err);
    if (*flags->socket) return connect_unix(r, flags->socket, err);
    if (environment && *environment) return connect_unix(r, environment, err);
    if (gb_socket_path_default(path, sizeof path)) return gb_fail(err, GB_EINVAL, "no server: give --socket PATH or --port PORT");
    return connect_unix(r, path, err);
}

static int read_key(const char *path, char *key, gb_error *err)
{
    FILE *file = fopen(path, "re");
    if (!file) return gb_fail(err, GB_EINVAL, "key file %s cannot be opened: %s; write the key of the server into it", path, strerror(errno));
    if (!fgets(key, KEY_BYTES, file)) key[0] = '\0';
    fclose(file);
    key[strcspn(key, "\r\n")] = '\0';
    return GB_OK;
}

static int say_hello(gb_remote *r, const gb_remote_flags *flags, gb_error *err)
{
    char key[KEY_BYTES] = "";
    json_t *result = NULL;
    int status = *flags->key_file ? read_key(flags->key_file, key, err) : GB_OK;
    if (status) return status;
    json_t *params = json_pack("{s:s, s:s}", "client", "gimbal", "version", gb_version());
    if (params && *key) json_object_set_new(params, "auth", json_string(key));
    status = gb_remote_call(r, "hello", params, &result, err);
    json_decref(result);
    return status;
}

int gb_remote_open(gb_remote **out, const gb_remote_flags *flags, gb_error *err)
{
    gb_remote *r = calloc(1, sizeof *r);
    if (!r) return gb_fail(err, GB_ENOMEM, "out of memory for a connection");
    r->fd = -1;
    gb_pack_init(&r->out, OUT_LIMIT);
    gb_frame_init(&r->frame);
    int status = connect_by_flags(r, flags, err);
    if (!status) status = say_hello(r, flags, err);
    if (status) gb_remote_close(r);
    else *out = r;
    return status;
}

void gb_remote_close(gb_remote *r)
{
    if (!r) return;
    if (r->fd >= 0) close(r->fd);
    gb_pack_deinit(&r->out);
    free(r->in);
    free(r);
}

/* ---- out ---- */

int gb_remote_send(gb_remote *r, const char *method, const json_t *params, uint32_t *msgid, gb_error *err)
{
    *msgid = ++r->last_msgid;
    gb_pack_clear(&r->out);
    gb_pack_array(&r->out, 4);
    gb_pack_int(&r->out, 0);
    gb_pack_uint(&r->out, *msgid);
    gb_pack_str(&r->out, method);
    gb_pack_array(&r->out, 1);
    gb_rpc_json_pack(&r->out, params);
    if (r->out.overflow) return gb_fail(err, GB_ETOOBIG, "%s: a message has at most %d bytes", method, GB_RPC_MESSAGE_MAX);
    for (size_t sent = 0; sent < r->out.n;) {
        ssize_t n = send(r->fd, r->out.data + sent, r->out.n - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gb_fail(err, GB_EIO, "%s: %s", r->address, strerror(errno));
        sent += (size_t)n;
    }
    return GB_OK;
}

/* ---- in ---- */

static int read_more(gb_remote *r, gb_error *err)
{
    if (r->capacity - r->n < READ_BYTES) {
        size_t capacity = 2 * r->capacity + READ_BYTES;
        char *in = realloc(r->in, capacity);
        if (!in) return gb_fail(err, GB_ENOMEM, "out of memory for an answer");
        r->in = in;
        r->capacity = capacity;
    }
    ssize_t n;
    do n = recv(r->fd, r->in + r->n, r->capacity - r->n, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0) return gb_fail(err, GB_EIO, "%s: %s", r->address, strerror(errno));
    if (n == 0) return gb_fail(err, GB_EIO, "%s: the server closed the connection", r->address);
    r->n += (size_t)n;
    return GB_OK;
}

/* Sorts the parts of [1, msgid, error, result] or [2, method, [params]] into the message, which owns whole. */
static int sort_parts(gb_remote_message *m, json_t *whole)
{
    json_int_t kind = json_integer_value(json_array_get(whole, 0));
    *m = (gb_remote_message){.whole = whole};
    if (kind == 1 && json_array_size(whole) == 4) {
        m->msgid = (uint32_t)json_integer_value(json_array_get(whole, 1));
        m->error = json_array_get(whole, 2);
        if (json_is_null(m->error)) m->error = NULL;
        m->result = json_array_get(whole, 3);
        return GB_OK;
    }
    m->method = json_string_value(json_array_get(whole, 1));
    m->params = json_array_get(json_array_get(whole, 2), 0);
    return kind == 2 && m->method && m->params ? GB_OK : GB_EFORMAT;
}

int gb_remote_receive(gb_remote *r, gb_remote_message *m, gb_error *err)
{
    gb_frame_state state;
    *m = (gb_remote_message){0};
    while ((state = gb_frame_scan(&r->frame, r->in, r->n, err)) == GB_FRAME_PART) {
        int status = read_more(r, err);
        if (status) return status;
    }
    if (state == GB_FRAME_BAD) return GB_EFORMAT;
    json_t *whole = gb_rpc_json_parse(r->in, r->frame.at);
    r->n -= r->frame.at;
    memmove(r->in, r->in + r->frame.at, r->n);
    gb_frame_init(&r->frame);
    if (!whole) return gb_fail(err, GB_ENOMEM, "out of memory for an answer");
    if (sort_parts(m, whole) == GB_OK) return GB_OK;
    gb_remote_message_clear(m);
    return gb_fail(err, GB_EFORMAT, "%s: whatever answers there does not speak msgpack-RPC", r->address);
}

void gb_remote_message_clear(gb_remote_message *m)
{
    json_decref(m->whole);
    *m = (gb_remote_message){0};
}

/* ---- calls ---- */

int gb_remote_refused(const json_t *error, gb_error *err)
{
    const char *name = json_string_value(json_object_get(error, "name")), *message = json_string_value(json_object_get(error, "message"));
    return gb_fail(err, GB_EABORTED, "%s (%s %lld)", message ? message : "the server refused", name ? name : "?",
                   (long long)json_integer_value(json_object_get(error, "code")));
}

int gb_remote_call(gb_remote *r, const char *method, json_t *params, json_t **result, gb_error *err)
{
    uint32_t msgid;
    int status = params ? gb_remote_send(r, method, params, &msgid, err) : gb_fail(err, GB_ENOMEM, "out of memory for a call");
    json_decref(params);
    while (!status) {
        gb_remote_message m;
        status = gb_remote_receive(r, &m, err);
        if (status) break;
        bool ours = !m.method && m.msgid == msgid;
        if (ours && m.error) status = gb_remote_refused(m.error, err);
        else if (ours) *result = json_incref(m.result);
        gb_remote_message_clear(&m);
        if (ours) break;
    }
    return status;
}

int gb_remote_failed(int status, const gb_error *err)
{
    gb_command_failed(status, err);
    switch (status) {
    case GB_EINVAL: return GB_EXIT_USAGE;
    case GB_EIO: return GB_EXIT_UNAVAILABLE;
    default: return GB_EXIT_FAILED;
    }
}
