/* Errors as clients see them: {code, name, message, data?}. Codes and names never change their meaning. One table makes
   the codes, the names, api_info and docs/rpc.md. */
#ifndef GB_RPC_ERRORS_H
#define GB_RPC_ERRORS_H

#include "bindings/rpc/pack.h"
#include "core/base/status.h"

/* X(name, code, when) */
#define GB_RPC_ERRORS(X) \
    X(PARSE, -32700, "the bytes are not msgpack, or are over a limit of the frame; the connection is closed") \
    X(INVALID_REQUEST, -32600, "neither [0, msgid, method, [params]] nor [2, method, [params]]; or msgid is in use") \
    X(NO_METHOD, -32601, "there is no such method") \
    X(INVALID_PARAMS, -32602, "a parameter is missing, of the wrong type or out of range; data.path names it") \
    X(INTERNAL, -32603, "a fault of the server") \
    X(UNAUTHENTICATED, 1001, "hello has not been called, or its auth is wrong") \
    X(FORBIDDEN, 1002, "an admin method on a connection without admin rights") \
    X(OVERLOADED, 1003, "a queue is full; data.retry_after_ms says when to try again") \
    X(DEADLINE, 1004, "deadline_ms passed before the end") \
    X(ABORTED, 1005, "the request was aborted") \
    X(CONTEXT_LENGTH, 1006, "the prompt does not fit into the context; the message has both figures") \
    X(NOT_FOUND, 1007, "the thing named does not exist") \
    X(ENGINE_DOWN, 1008, "the engine failed while it served the request") \
    X(DRAINING, 1009, "the server finishes what it has and takes nothing new") \
    X(SLOW_READER, 1010, "the client gave no credit or did not read for too long") \
    X(TOO_LARGE, 1011, "a result or an upload is over its size limit") \
    X(POLICY_REJECTED, 1012, "the policy does not compile or fails its probe; the message has file:line") \
    X(POLICY_BUDGET, 1013, "the policy runs out of memory while it is probed") \
    X(VERSION_CONFLICT, 1014, "the version is not the one that the call assumed")

enum {
#define X(name, code, when) GB_RPC_##name = code,
    GB_RPC_ERRORS(X)
#undef X
};

enum { GB_RPC_PATH_BYTES = 256, GB_RPC_RETRY_AFTER_MS = 100 };

/* Why a call failed. Zero-initialise; code 0 = it did not. */
typedef struct gb_rpc_error {
    int code;
    char path[GB_RPC_PATH_BYTES];    /* of the parameter, or "" */
    gb_error sentence;
} gb_rpc_error;

const char *gb_rpc_error_name(int code);        /* "INVALID_PARAMS"; "INTERNAL" when unknown */
int         gb_rpc_error_of_status(int status); /* GB_ECONTEXT -> GB_RPC_CONTEXT_LENGTH ... */
void        gb_rpc_error_pack(gb_pack *out, const gb_rpc_error *error);

/* A client's bytes made fit to print: at most 64, what is not printable ASCII as '?'. out has room for GB_RPC_ECHO_BYTES. */
enum { GB_RPC_ECHO_BYTES = 68 };
const char *gb_rpc_echo(char *out, const char *text, size_t bytes);

#endif
