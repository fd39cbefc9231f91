#include "bindings/rpc/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void pack_object(gb_pack *out, const json_t *json)
{
    const char *key;
    json_t *value;
    gb_pack_map(out, json_object_size(json));
    json_object_foreach((json_t *)json, key, value)
    {
        gb_pack_str(out, key);
        gb_rpc_json_pack(out, value);
    }
}

static void pack_array(gb_pack *out, const json_t *json)
{
    gb_pack_array(out, json_array_size(json));
    for (size_t i = 0; i < json_array_size(json); i++) gb_rpc_json_pack(out, json_array_get(json, i));
}

void gb_rpc_json_pack(gb_pack *out, const json_t *json)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT: pack_object(out, json); break;
    case JSON_ARRAY: pack_array(out, json); break;
    case JSON_STRING: gb_pack_text(out, json_string_value(json), json_string_length(json)); break;
    case JSON_INTEGER: gb_pack_int(out, json_integer_value(json)); break;
    case JSON_REAL: gb_pack_float(out, json_real_value(json)); break;
    case JSON_TRUE: gb_pack_bool(out, true); break;
    case JSON_FALSE: gb_pack_bool(out, false); break;
    default: gb_pack_nil(out); break;
    }
}

static json_t *json_of_map(const msgpack_object_map *map)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < map->size; i++) {
        const msgpack_object *key = &map->ptr[i].key;
        char name[256] = "?";
        bool is_name = key->type == MSGPACK_OBJECT_STR && key->via.str.size < sizeof name;
        if (is_name) snprintf(name, sizeof name, "%.*s", (int)key->via.str.size, key->via.str.ptr);
        json_object_set_new(object, name, gb_rpc_json_of(&map->ptr[i].val));
    }
    return object;
}

static json_t *json_of_array(const msgpack_object_array *array)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < array->size; i++) json_array_append_new(list, gb_rpc_json_of(&array->ptr[i]));
    return list;
}

/* msgpack-c points nowhere for empty strings, and what is not UTF-8 is no JSON. */
static json_t *json_of_text(const char *text, uint32_t n)
{
    json_t *json = json_stringn(n ? text : "", n);
    return json ? json : json_null();
}

static json_t *json_of_bytes(const char *bytes, uint32_t n)
{
    static const char digits[] = "0123456789abcdef";
    char *hex = malloc(2 * (size_t)n + 1);
    if (!hex) return NULL;
    for (uint32_t i = 0; i < n; i++) {
        hex[2 * i] = digits[(unsigned char)bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    json_t *text = json_stringn(hex, 2 * (size_t)n);
    free(hex);
    return text;
}

static json_t *json_of_real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

/* --- matrices --- */

static const uint32_t element_bytes[] = {4, 8, 4, 8};    /* by gb_matrix_type */

static json_t *json_of_element(gb_matrix_type type, const char *at)
{
    union { uint32_t u32; uint64_t u64; float f32; double f64; } v;
    memcpy(&v, at, element_bytes[type]);
    switch (type) {
    case GB_MATRIX_U32: return json_integer(v.u32);
    case GB_MATRIX_U64: return v.u64 <= INT64_MAX ? json_integer((json_int_t)v.u64) : json_real((double)v.u64);
    case GB_MATRIX_F32: return json_of_real((double)v.f32);
    default: return json_of_real(v.f64);
    }
}

static json_t *json_of_dims(gb_matrix_type type, uint32_t n_dims, const uint32_t *dims, const char **at)
{
    if (n_dims == 0) {
        json_t *element = json_of_element(type, *at);
        *at += element_bytes[type];
        return element;
    }
    json_t *list = json_array();
    for (uint32_t i = 0; i < dims[0]; i++) json_array_append_new(list, json_of_dims(type, n_dims - 1, dims + 1, at));
    return list;
}

static json_t *json_of_matrix(const char *bytes, uint32_t n)
{
    uint32_t dims[GB_MATRIX_DIMS_MAX], head = 4;
    if (n < head || (uint8_t)bytes[0] > GB_MATRIX_F64 || (uint8_t)bytes[1] > GB_MATRIX_DIMS_MAX) return json_null();
    gb_matrix_type type = (gb_matrix_type)bytes[0];
    uint32_t n_dims = (uint8_t)bytes[1];
    if (n < head + n_dims * sizeof *dims) return json_null();
    memcpy(dims, bytes + head, n_dims * sizeof *dims);
    uint64_t expected = element_bytes[type];
    for (uint32_t i = 0; i < n_dims && expected <= n; i++) expected *= dims[i];
    if (expected + head + n_dims * sizeof *dims != n || (n_dims > 1 && expected == 0)) return json_null();
    const char *at = bytes + head + n_dims * sizeof *dims;
    return json_of_dims(type, n_dims, dims, &at);
}

json_t *gb_rpc_json_of(const msgpack_object *o)
{
    switch (o->type) {
    case MSGPACK_OBJECT_BOOLEAN: return json_boolean(o->via.boolean);
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        return o->via.u64 <= INT64_MAX ? json_integer((json_int_t)o->via.u64) : json_real((double)o->via.u64);
    case MSGPACK_OBJECT_NEGATIVE_INTEGER: return json_integer(o->via.i64);
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64: return json_of_real(o->via.f64);
    case MSGPACK_OBJECT_STR: return json_of_text(o->via.str.ptr, o->via.str.size);
    case MSGPACK_OBJECT_BIN: return json_of_bytes(o->via.bin.ptr, o->via.bin.size);
    case MSGPACK_OBJECT_ARRAY: return json_of_array(&o->via.array);
    case MSGPACK_OBJECT_MAP: return json_of_map(&o->via.map);
    case MSGPACK_OBJECT_EXT:
        return o->via.ext.type == GB_MATRIX_EXT ? json_of_matrix(o->via.ext.ptr, o->via.ext.size) : json_null();
    default: return json_null();
    }
}

json_t *gb_rpc_json_parse(const void *bytes, size_t n)
{
    msgpack_unpacked whole;
    msgpack_unpacked_init(&whole);
    msgpack_unpack_return parsed = msgpack_unpack_next(&whole, bytes, n, NULL);
    json_t *tree = parsed == MSGPACK_UNPACK_SUCCESS ? gb_rpc_json_of(&whole.data) : NULL;
    msgpack_unpacked_destroy(&whole);
    return tree;
}
