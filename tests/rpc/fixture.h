/* A served model without a model: the real service, serving core, policy host and tokenizer over an executor that answers
   with a script. No socket, no thread, no clock: tests say what arrives and what time it is.

   A token is a byte (ids 0..255), 256 is the special end token "<|end|>". Every request is answered with the bytes of
   `script`, then the end token. Parameters and answers are JSON text, as in docs/rpc.md; every answer and notification that a
   test looks at is held against the method table: documented fields only, and all that are not optional. */
#ifndef GB_TESTS_RPC_FIXTURE_H
#define GB_TESTS_RPC_FIXTURE_H

#include <jansson.h>

#include "bindings/rpc/service.h"

enum { FIXTURE_VOCAB = 257, FIXTURE_END = 256, FIXTURE_ENGINES = 2, FIXTURE_RANKS = 4, FIXTURE_LAYERS = 2, FIXTURE_EXPERTS = 8 };

typedef struct fixture_options {
    const char *script;               /* default: "The capital of France is Paris." */
    const char *api_key, *admin_token;
    uint32_t max_model_len;           /* 256 */
    uint32_t queue_capacity;          /* 64 */
    bool no_tokenizer, no_template;
    const gb_checker_seam *checker;   /* asked before policy_load, too */
} fixture_options;

typedef struct fixture {
    gb_options options;
    gb_instance instance;
    gb_executor executor;
    gb_rpc_service *service;
    gb_time now;
    const char *script;
    bool shutdown_called;
} fixture;

void fixture_open(fixture *f, const fixture_options *options);    /* options may be NULL */
void fixture_close(fixture *f);

bool fixture_round(fixture *f);                    /* one round and its events, 1 ms later; false when there was nothing to do */
void fixture_run(fixture *f);                      /* rounds until there is nothing to do */
void fixture_pass(fixture *f, gb_time time);       /* time passes; tick where a deadline says so */

/* The client's end of one connection. */
typedef struct peer {
    fixture *f;
    gb_rpc_conn *conn;
    int status;                /* what gb_rpc_input said last */
    bool reads;                /* false: output is left where it is */
    uint32_t last_msgid;
    char *bytes;               /* received, not yet a whole message */
    size_t n, capacity;
    json_t *messages;          /* received, oldest first */
} peer;

void peer_open(peer *p, fixture *f, bool trusted);       /* without hello */
void peer_hello(peer *p, fixture *f);                    /* trusted, greeted */
void peer_close(peer *p);

void peer_send(peer *p, const void *bytes, size_t n);    /* and receive */
void peer_receive(peer *p);                              /* takes what the service has for it */

/* Bytes of [0, msgid, method, [params]]; malloc'd. */
char *peer_pack_call(uint32_t msgid, const char *method, const char *params, size_t *n);
char *peer_pack(const char *json, size_t *n);

void peer_post(peer *p, uint32_t msgid, const char *method, const char *params);    /* a call, without waiting */
void peer_notify(peer *p, const char *method, const char *params);

/* The next message that is a response to msgid, a notification of that name, or NULL; the caller owns it. Others stay. */
json_t *peer_take_response(peer *p, uint32_t msgid);     /* [1, msgid, error, result] */
json_t *peer_take(peer *p, const char *notification);    /* its map */
size_t  peer_waiting(const peer *p);

/* Calls and runs the server until the answer is there. Returns the result (the caller owns it), or NULL after a failed check. */
json_t *peer_call(peer *p, const char *method, const char *params);
/* The same for a call that must fail: checks the code and that data.path is path (NULL = none) and the sentence contains part. */
void peer_call_fails(peer *p, const char *method, const char *params, int code, const char *path, const char *part);

/* Fields of maps, with a failed check (and 0 or "") when they are missing or of another type. */
int64_t     json_int(const json_t *map, const char *key);
const char *json_text(const json_t *map, const char *key);

#endif
