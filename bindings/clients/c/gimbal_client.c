#include "gimbal_client.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Notifications that came while an answer was waited for. */
typedef struct kept {
    struct kept *next;
    msgpack_unpacked message;
} kept;

struct gimbal_client {
    int fd;
    uint32_t msgid;
    msgpack_sbuffer params, message;
    msgpack_sbuffer acks;              /* not sent yet: they go together, before the next wait or call */
    msgpack_packer packer;
    msgpack_unpacker in;
    msgpack_unpacked answer, event;    /* what the caller looks at */
    kept *first, **last;
};

/* --- errors --- */

static int fail(gimbal_error *error, int code, const char *name, const char *message)
{
    *error = (gimbal_error){.code = code};
    snprintf(error->name, sizeof error->name, "%s", name);
    snprintf(error->message, sizeof error->message, "%s", message);
    return code;
}

static int lost(gimbal_error *error, const char *why) { return fail(error, GIMBAL_LOST, "LOST", why); }

static void copy_text(char *out, size_t room, const msgpack_object *map, const char *key)
{
    size_t n;
    const char *text = gimbal_text(map, key, &n);
    snprintf(out, room, "%.*s", (int)n, text ? text : "");
}

static int refused(gimbal_error *error, const msgpack_object *map)
{
    const msgpack_object *data = gimbal_get(map, "data");
    *error = (gimbal_error){.code = (int)gimbal_int(map, "code", GIMBAL_LOST)};
    copy_text(error->name, sizeof error->name, map, "name");
    copy_text(error->message, sizeof error->message, map, "message");
    if (data) copy_text(error->path, sizeof error->path, data, "path");
    return error->code;
}

/* --- connecting --- */

static int connect_unix(const char *path, gimbal_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return lost(error, "the socket path is too long");
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    lost(error, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

static int connect_tcp(const char *address, gimbal_error *error)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    if (!colon || (size_t)(colon - address) >= sizeof host) return lost(error, "the address must be a path or host:port");
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    int failed = getaddrinfo(host, colon + 1, &hints, &list), fd = -1;
    if (failed) return lost(error, gai_strerror(failed));
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0) break;
        lost(error, strerror(errno));
        if (fd >= 0) close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

static int open_socket(const char *address, gimbal_error *error)
{
    if (strncmp(address, "unix:", 5) == 0) return connect_unix(address + 5, error);
    if (strchr(address, '/')) return connect_unix(address, error);
    return connect_tcp(strncmp(address, "tcp:", 4) == 0 ? address + 4 : address, error);
}

static int say_hello(gimbal_client *client, const char *auth, gimbal_error *error)
{
    msgpack_packer *params = gimbal_begin(client);
    msgpack_pack_map(params, auth ? 2 : 1);
    gimbal_pack_text(params, "client");
    gimbal_pack_text(params, "gimbal_client.c");
    if (auth) {
        gimbal_pack_text(params, "auth");
        gimbal_pack_text(params, auth);
    }
    return gimbal_call(client, "hello", NULL, error);
}

int gimbal_open(gimbal_client **out, const char *address, const char *auth, gimbal_error *error)
{
    int fd = open_socket(address, error);
    if (fd < 0) return GIMBAL_LOST;
    gimbal_client *client = calloc(1, sizeof *client);
    if (!client || !msgpack_unpacker_init(&client->in, 1 << 16)) {
        free(client);
        close(fd);
        return lost(error, "out of memory");
    }
    client->fd = fd;
    client->last = &client->first;
    msgpack_sbuffer_init(&client->params);
    msgpack_sbuffer_init(&client->message);
    msgpack_sbuffer_init(&client->acks);
    msgpack_packer_init(&client->packer, &client->params, msgpack_sbuffer_write);
    msgpack_unpacked_init(&client->answer);
    msgpack_unpacked_init(&client->event);
    int code = say_hello(client, auth, error);
    if (code) gimbal_close(client);
    else *out = client;
    return code;
}

void gimbal_close(gimbal_client *client)
{
    while (client->first) {
        kept *k = client->first;
        client->first = k->next;
        msgpack_unpacked_destroy(&k->message);
        free(k);
    }
    close(client->fd);
    msgpack_sbuffer_destroy(&client->params);
    msgpack_sbuffer_destroy(&client->message);
    msgpack_sbuffer_destroy(&client->acks);
    msgpack_unpacker_destroy(&client->in);
    msgpack_unpacked_destroy(&client->answer);
    msgpack_unpacked_destroy(&client->event);
    free(client);
}

/* --- sending --- */

msgpack_packer *gimbal_begin(gimbal_client *client)
{
    msgpack_sbuffer_clear(&client->params);
    return &client->packer;
}

void gimbal_pack_text(msgpack_packer *packer, const char *text) { msgpack_pack_str_with_body(packer, text, strlen(text)); }

/* Sends a buffer and empties it. */
static int send_all(gimbal_client *client, msgpack_sbuffer *buffer, gimbal_error *error)
{
    for (size_t sent = 0; sent < buffer->size;) {
        ssize_t n = send(client->fd, buffer->data + sent, buffer->size - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) return lost(error, strerror(errno));
        if (n > 0) sent += (size_t)n;
    }
    msgpack_sbuffer_clear(buffer);
    return 0;
}

/* Appends [0, msgid, method, [params]], or without msgid (NULL) [2, method, [params]]. */
static void write_message(gimbal_client *client, msgpack_sbuffer *to, const uint32_t *msgid, const char *method)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, to, msgpack_sbuffer_write);
    msgpack_pack_array(&packer, msgid ? 4 : 3);
    msgpack_pack_int(&packer, msgid ? 0 : 2);
    if (msgid) msgpack_pack_uint32(&packer, *msgid);
    gimbal_pack_text(&packer, method);
    msgpack_pack_array(&packer, client->params.size ? 1 : 0);
    if (client->params.size) msgpack_sbuffer_write(to, client->params.data, client->params.size);
    msgpack_sbuffer_clear(&client->params);
}

static int send_message(gimbal_client *client, const uint32_t *msgid, const char *method, gimbal_error *error)
{
    write_message(client, &client->message, msgid, method);
    int code = send_all(client, &client->acks, error);
    return code ? code : send_all(client, &client->message, error);
}

int gimbal_notify(gimbal_client *client, const char *method, gimbal_error *error)
{
    return send_message(client, NULL, method, error);
}

/* --- receiving --- */

static int receive(gimbal_client *client, msgpack_unpacked *out, gimbal_error *error)
{
    msgpack_unpack_return state;
    while ((state = msgpack_unpacker_next(&client->in, out)) == MSGPACK_UNPACK_CONTINUE) {
        if (send_all(client, &client->acks, error)) return error->code;
        if (!msgpack_unpacker_reserve_buffer(&client->in, 1 << 16)) return lost(error, "out of memory");
        ssize_t n = recv(client->fd, msgpack_unpacker_buffer(&client->in), msgpack_unpacker_buffer_capacity(&client->in), 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return lost(error, n ? strerror(errno) : "the server closed the connection");
        msgpack_unpacker_buffer_consumed(&client->in, (size_t)n);
    }
    bool is_message = state == MSGPACK_UNPACK_SUCCESS && out->data.type == MSGPACK_OBJECT_ARRAY && out->data.via.array.size >= 3;
    return is_message ? 0 : lost(error, "the server sent something that is no message");
}

static bool is_answer_to(const msgpack_object *message, uint32_t msgid)
{
    const msgpack_object *part = message->via.array.ptr;
    return message->via.array.size == 4 && part[0].via.u64 == 1 && part[1].via.u64 == msgid;
}

/* Moves a message to the end of those that wait for gimbal_next. */
static int keep(gimbal_client *client, msgpack_unpacked *message, gimbal_error *error)
{
    kept *k = calloc(1, sizeof *k);
    if (!k) return lost(error, "out of memory");
    k->message = *message;
    msgpack_unpacked_init(message);
    *client->last = k;
    client->last = &k->next;
    return 0;
}

int gimbal_call(gimbal_client *client, const char *method, const msgpack_object **result, gimbal_error *error)
{
    uint32_t msgid = ++client->msgid;
    int code = send_message(client, &msgid, method, error);
    while (!code && !(code = receive(client, &client->answer, error))) {
        if (is_answer_to(&client->answer.data, msgid)) break;
        code = keep(client, &client->answer, error);
    }
    if (code) return code;
    const msgpack_object *part = client->answer.data.via.array.ptr;
    if (part[2].type != MSGPACK_OBJECT_NIL) return refused(error, &part[2]);
    if (result) *result = &part[3];
    return 0;
}

static int fetch(gimbal_client *client, gimbal_error *error)
{
    kept *k = client->first;
    if (!k) return receive(client, &client->event, error);
    client->first = k->next;
    if (!client->first) client->last = &client->first;
    msgpack_unpacked_destroy(&client->event);
    client->event = k->message;
    free(k);
    return 0;
}

static void acknowledge(gimbal_client *client, const msgpack_object *map)
{
    const msgpack_object *id = gimbal_get(map, "request_id"), *sub_id = gimbal_get(map, "sub_id");
    msgpack_packer *params = gimbal_begin(client);
    msgpack_pack_map(params, 1);
    gimbal_pack_text(params, id ? "request_id" : "sub_id");
    msgpack_pack_object(params, id ? *id : *sub_id);
    write_message(client, &client->acks, NULL, "ack");
}

int gimbal_next(gimbal_client *client, gimbal_event *event, gimbal_error *error)
{
    int code = fetch(client, error);
    if (code) return code;
    const msgpack_object *part = client->event.data.via.array.ptr;
    if (client->event.data.via.array.size != 3 || part[1].type != MSGPACK_OBJECT_STR || part[2].type != MSGPACK_OBJECT_ARRAY ||
        !part[2].via.array.size)
        return lost(error, "the server sent something that is no notification");
    snprintf(event->name, sizeof event->name, "%.*s", (int)part[1].via.str.size, part[1].via.str.ptr);
    event->map = part[2].via.array.ptr;
    if (strcmp(event->name, "error_event") == 0) return refused(error, event->map);
    if (strcmp(event->name, "token") == 0 || strcmp(event->name, "event") == 0) acknowledge(client, event->map);
    return 0;
}

/* --- reading maps --- */

const msgpack_object *gimbal_get(const msgpack_object *map, const char *key)
{
    size_t n = strlen(key);
    for (uint32_t i = 0; map->type == MSGPACK_OBJECT_MAP && i < map->via.map.size; i++) {
        const msgpack_object_kv *kv = &map->via.map.ptr[i];
        if (kv->key.type == MSGPACK_OBJECT_STR && kv->key.via.str.size == n && memcmp(kv->key.via.str.ptr, key, n) == 0)
            return &kv->val;
    }
    return NULL;
}

int64_t gimbal_int(const msgpack_object *map, const char *key, int64_t absent)
{
    const msgpack_object *o = gimbal_get(map, key);
    bool is_int = o && (o->type == MSGPACK_OBJECT_POSITIVE_INTEGER || o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER);
    return is_int ? o->via.i64 : absent;
}

const char *gimbal_text(const msgpack_object *map, const char *key, size_t *n)
{
    const msgpack_object *o = gimbal_get(map, key);
    bool is_text = o && o->type == MSGPACK_OBJECT_STR;
    *n = is_text ? o->via.str.size : 0;
    if (!is_text) return NULL;
    return *n ? o->via.str.ptr : "";
}
