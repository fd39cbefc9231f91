/* A blocking client of gimbal's msgpack-RPC (docs/rpc.md): this header, gimbal_client.c and msgpack-c.

       gimbal_error error;
       gimbal_client *client;
       if (gimbal_open(&client, "/run/gimbal.sock", NULL, &error)) { fprintf(stderr, "%s\n", error.message); exit(1); }

       msgpack_packer *params = gimbal_begin(client);            // the parameter map of the next call
       msgpack_pack_map(params, 1);
       gimbal_pack_text(params, "prompt");
       gimbal_pack_text(params, "The capital of France is");
       const msgpack_object *result;
       if (gimbal_call(client, "generate", &result, &error) == 0) {
           size_t n;
           const char *text = gimbal_text(result, "text", &n);
           printf("%.*s\n", (int)n, text);
       }
       gimbal_close(client);

   Streams: call generate with stream = true, then gimbal_next until its done or failed; token events are acknowledged as they
   are fetched. Several streams may run at once; gimbal_next returns their events as they come. One thread uses a client. */
#ifndef GIMBAL_CLIENT_H
#define GIMBAL_CLIENT_H

#include <msgpack.h>
#include <stdint.h>

typedef struct gimbal_client gimbal_client;

enum { GIMBAL_LOST = -1 };    /* the connection is gone; the client can only be closed */

typedef struct gimbal_error {
    int code;                 /* 0, GIMBAL_LOST or a code of docs/rpc.md (Errors) */
    char name[32];            /* "INVALID_PARAMS" */
    char message[1024];
    char path[256];           /* of the parameter that is wrong, or "" */
} gimbal_error;

/* "/path" or "unix:/path"; "host:port" or "tcp:host:port". auth may be NULL. All functions return 0 or error->code. */
int  gimbal_open(gimbal_client **out, const char *address, const char *auth, gimbal_error *error);
void gimbal_close(gimbal_client *client);    /* aborts what it streams */

/* Starts the parameter map of the next call or notification; pack exactly one map. Without it, parameters are empty. */
msgpack_packer *gimbal_begin(gimbal_client *client);
void            gimbal_pack_text(msgpack_packer *packer, const char *text);

/* Calls and waits. *result (may be NULL) is the client's, until its next call of any kind. */
int gimbal_call(gimbal_client *client, const char *method, const msgpack_object **result, gimbal_error *error);
int gimbal_notify(gimbal_client *client, const char *method, gimbal_error *error);

/* The next notification: name ("token", "done", "failed", "event", "goaway") and its map, the client's until the next call of
   any kind. */
typedef struct gimbal_event {
    char name[16];
    const msgpack_object *map;
} gimbal_event;

int gimbal_next(gimbal_client *client, gimbal_event *event, gimbal_error *error);

/* Reading maps; for keys that are missing or of another type: NULL, `absent`, NULL and *n = 0. */
const msgpack_object *gimbal_get(const msgpack_object *map, const char *key);
int64_t               gimbal_int(const msgpack_object *map, const char *key, int64_t absent);
const char           *gimbal_text(const msgpack_object *map, const char *key, size_t *n);

#endif
