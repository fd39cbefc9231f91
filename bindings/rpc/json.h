/* Between JSON and msgpack: for `gimbal rpc METHOD JSON` and for api_info, which is one JSON tree in either form. */
#ifndef GB_RPC_JSON_H
#define GB_RPC_JSON_H

#include <jansson.h>
#include <msgpack.h>

#include "bindings/rpc/pack.h"

void gb_rpc_json_pack(gb_pack *out, const json_t *json);

/* A new tree; NULL without memory. What JSON lacks: binary data becomes hexadecimal text, a matrix nested arrays, numbers
   that are not finite and other extension values null. */
json_t *gb_rpc_json_of(const msgpack_object *object);
json_t *gb_rpc_json_parse(const void *bytes, size_t n);    /* of one whole message that gb_frame_scan let pass */

#endif
