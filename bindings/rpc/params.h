/* Parameters of a call: checked whole against the method table first, so that handlers only read what is right. */
#ifndef GB_RPC_PARAMS_H
#define GB_RPC_PARAMS_H

#include "bindings/rpc/method.h"

enum { GB_RPC_NAMES_MAX = 64 };    /* entries of one parameter map */

/* Types, ranges, required and misspelt names. False: error is filled (INVALID_PARAMS, path, sentence).
   Names that nobody knows are ignored, so that newer clients work; names one or two letters beside a known one, and known
   names in the wrong map, are refused, because whoever wrote them did not mean to be ignored. */
bool gb_rpc_check(const msgpack_object *map, const gb_rpc_field *fields, gb_rpc_error *error);

/* Readers of checked parameters; absent and nil are the same. */
const msgpack_object *gb_rpc_param(const msgpack_object *map, const char *name);    /* NULL when absent */
bool        gb_rpc_param_bool(const msgpack_object *map, const char *name, bool absent);
int64_t     gb_rpc_param_int(const msgpack_object *map, const char *name, int64_t absent);
double      gb_rpc_param_float(const msgpack_object *map, const char *name, double absent);
/* NULL when absent; not terminated. */
const char *gb_rpc_param_text(const msgpack_object *map, const char *name, size_t *bytes);
/* A STRING, terminated in out (room for GB_RPC_STRING_MAX + 1 bytes); NULL when absent. */
const char *gb_rpc_param_string(const msgpack_object *map, const char *name, char *out);

/* Whether a name is a slip of another: one letter off, two in long names. */
bool gb_rpc_is_near(const char *name, size_t bytes, const char *known);

#endif
