/* The method table as a document: one JSON tree for api_info and `gimbal api-info`, one Markdown text for docs/rpc.md. */
#ifndef GB_RPC_DESCRIBE_H
#define GB_RPC_DESCRIBE_H

#include <jansson.h>

#include "bindings/rpc/method.h"

enum { GB_RPC_TYPE_BYTES = 128 };

json_t *gb_rpc_describe(void);    /* a new tree; NULL without memory */

/* "int 0..20", "[string]", "map"; out has room for GB_RPC_TYPE_BYTES. */
void gb_rpc_describe_type(const gb_rpc_field *field, char *out);

#endif
