/* The method table: the one place that says which calls exist, who may make them, what they take and what they return.
   Validation, api_info and docs/rpc.md are made from it, so a method cannot do what it does not say.
   Each theme (methods_*.c) holds its part of the table beside the functions that run it. */
#ifndef GB_RPC_METHOD_H
#define GB_RPC_METHOD_H

#include <msgpack.h>

#include "bindings/rpc/errors.h"
#include "bindings/rpc/service.h"

enum {
    GB_RPC_API_LEVEL = 1,         /* grows when something is added */
    GB_RPC_API_COMPATIBLE = 1,    /* the oldest level whose clients still work */
    GB_RPC_STRING_MAX = 256,      /* bytes of a string that says nothing else */
    GB_RPC_REQUEST_ID_MAX = 128,
};

typedef enum gb_rpc_type {
    GB_RPC_BOOL,
    GB_RPC_INT,       /* low..high */
    GB_RPC_FLOAT,     /* low..high; integers are accepted, NaN and infinities are not */
    GB_RPC_STRING,    /* UTF-8 of low..high bytes (1..256 when both are 0), no control characters */
    GB_RPC_TEXT,      /* any UTF-8 of at most high bytes (0: as the message allows) */
    GB_RPC_BYTES,     /* bin; in results only */
    GB_RPC_MAP,       /* fields */
    GB_RPC_MATRIX,    /* ext type 1; in results only */
    GB_RPC_ANY,       /* in results only */
} gb_rpc_type;

typedef enum gb_rpc_shape { GB_RPC_ONE, GB_RPC_LIST, GB_RPC_ONE_OR_LIST, GB_RPC_BY_NAME } gb_rpc_shape;

/* A parameter or a part of a result. Lists of them end with a nameless one. In parameters nil means absent. */
typedef struct gb_rpc_field {
    const char *name;
    gb_rpc_type type;
    gb_rpc_shape shape;
    bool required;                         /* parameters */
    bool optional;                         /* results: may be missing */
    bool above_low;                        /* FLOAT: low itself is outside */
    int64_t low, high;                     /* INT and FLOAT: 0, 0 = any */
    uint32_t most;                         /* LIST: entries; 0 = as the message allows */
    const struct gb_rpc_field *fields;     /* MAP */
    const char *doc;
} gb_rpc_field;

/* One call on its way. */
typedef struct gb_rpc_call {
    gb_rpc_service *service;
    gb_rpc_conn *conn;
    const struct gb_rpc_method *method;
    bool replies;                       /* a request; false for a notification */
    uint32_t msgid;
    const msgpack_object *params;       /* a map that passed gb_rpc_check */
    gb_time now;
    gb_pack *out;                       /* the handler writes its result here */
    gb_rpc_error error;
} gb_rpc_call;

/* What a handler returns: the result is in call->out; the answer comes later; call->error says why not. */
typedef enum gb_rpc_outcome { GB_RPC_REPLIED, GB_RPC_LATER, GB_RPC_FAILED } gb_rpc_outcome;

typedef enum gb_rpc_right { GB_RPC_NEEDS_NOTHING, GB_RPC_NEEDS_HELLO, GB_RPC_NEEDS_ADMIN } gb_rpc_right;

typedef struct gb_rpc_method {
    const char *name;
    gb_rpc_right right;
    uint32_t since;                     /* api level that brought it */
    gb_rpc_outcome (*run)(gb_rpc_call *call);
    const gb_rpc_field *params, *result;
    const char *doc;
} gb_rpc_method;

/* A notification of the server. */
typedef struct gb_rpc_notification {
    const char *name;
    const gb_rpc_field *fields;
    const char *doc;
} gb_rpc_notification;

typedef struct gb_rpc_theme {
    const char *title;
    const gb_rpc_method *methods;       /* ends with a nameless one */
} gb_rpc_theme;

extern const gb_rpc_theme gb_rpc_themes[];              /* ends with a nameless one */
extern const gb_rpc_notification gb_rpc_notifications[];
extern const gb_rpc_field gb_rpc_no_fields[];

extern const gb_rpc_method gb_rpc_session_methods[];
extern const gb_rpc_method gb_rpc_text_methods[];
extern const gb_rpc_method gb_rpc_generate_methods[];
extern const gb_rpc_method gb_rpc_look_methods[];
extern const gb_rpc_method gb_rpc_policy_methods[];
extern const gb_rpc_method gb_rpc_policy_log_methods[];
extern const gb_rpc_method gb_rpc_policy_change_methods[];
extern const gb_rpc_method gb_rpc_policy_shadow_methods[];
extern const gb_rpc_method gb_rpc_policy_diff_methods[];
extern const gb_rpc_method gb_rpc_policy_check_methods[];
extern const gb_rpc_method gb_rpc_place_methods[];
extern const gb_rpc_method gb_rpc_subscribe_methods[];

const gb_rpc_method *gb_rpc_method_find(const char *name, size_t bytes);    /* NULL */
const gb_rpc_method *gb_rpc_method_nearest(const char *name, size_t bytes); /* what a misspelt name may mean; NULL */

/* Fill call->error and return GB_RPC_FAILED. path may be NULL. The second takes the sentence from call->error.sentence. */
gb_rpc_outcome gb_rpc_fail(gb_rpc_call *call, int code, const char *path, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
gb_rpc_outcome gb_rpc_fail_status(gb_rpc_call *call, int status, const char *path);

#endif
