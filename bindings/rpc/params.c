#include "bindings/rpc/params.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/nearest.h"
#include "core/model/utf8.h"

typedef struct checker {
    gb_rpc_error *error;
    size_t path_bytes;
} checker;

static bool check_map(checker *c, const msgpack_object *map, const gb_rpc_field *fields);

/* --- the path of the value in hand: "messages[2].content" --- */

static size_t enter_name(checker *c, const char *name)
{
    size_t before = c->path_bytes, room = sizeof c->error->path - before;
    int n = snprintf(c->error->path + before, room, "%s%s", before ? "." : "", name);
    c->path_bytes = (size_t)n < room ? before + (size_t)n : sizeof c->error->path - 1;
    return before;
}

static size_t enter_index(checker *c, uint32_t index)
{
    size_t before = c->path_bytes, room = sizeof c->error->path - before;
    int n = snprintf(c->error->path + before, room, "[%u]", index);
    c->path_bytes = (size_t)n < room ? before + (size_t)n : sizeof c->error->path - 1;
    return before;
}

static void leave(checker *c, size_t before)
{
    c->path_bytes = before;
    c->error->path[before] = '\0';
}

#define FAIL(c, ...) ((c)->error->code = GB_RPC_INVALID_PARAMS, gb_fail(&(c)->error->sentence, GB_EINVAL, __VA_ARGS__), false)
#define PATH(c) ((c)->error->path)

/* --- values --- */

static const char *type_of(const msgpack_object *o)
{
    switch (o->type) {
    case MSGPACK_OBJECT_NIL: return "nil";
    case MSGPACK_OBJECT_BOOLEAN: return "a boolean";
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
    case MSGPACK_OBJECT_NEGATIVE_INTEGER: return "an integer";
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64: return "a float";
    case MSGPACK_OBJECT_STR: return "a string";
    case MSGPACK_OBJECT_BIN: return "binary data";
    case MSGPACK_OBJECT_ARRAY: return "an array";
    case MSGPACK_OBJECT_MAP: return "a map";
    default: return "an extension value";
    }
}

static bool wrong_type(checker *c, const char *wanted, const msgpack_object *o)
{
    return FAIL(c, "%s must be %s, not %s", PATH(c), wanted, type_of(o));
}

static bool check_bool(checker *c, const msgpack_object *o)
{
    return o->type == MSGPACK_OBJECT_BOOLEAN || wrong_type(c, "a boolean", o);
}

static bool check_int(checker *c, const gb_rpc_field *f, const msgpack_object *o)
{
    bool any = f->low == 0 && f->high == 0;
    long long low = any ? INT64_MIN : f->low, high = any ? INT64_MAX : f->high;
    if (o->type == MSGPACK_OBJECT_POSITIVE_INTEGER) {
        if (o->via.u64 <= INT64_MAX && (int64_t)o->via.u64 >= low && (int64_t)o->via.u64 <= high) return true;
        return FAIL(c, "%s is %llu, but must be %lld..%lld", PATH(c), (unsigned long long)o->via.u64, low, high);
    }
    if (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) {
        if (o->via.i64 >= low && o->via.i64 <= high) return true;
        return FAIL(c, "%s is %lld, but must be %lld..%lld", PATH(c), (long long)o->via.i64, low, high);
    }
    return wrong_type(c, "an integer", o);
}

static bool number_of(const msgpack_object *o, double *value)
{
    switch (o->type) {
    case MSGPACK_OBJECT_POSITIVE_INTEGER: *value = (double)o->via.u64; return true;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER: *value = (double)o->via.i64; return true;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64: *value = o->via.f64; return true;
    default: return false;
    }
}

static bool check_float(checker *c, const gb_rpc_field *f, const msgpack_object *o)
{
    double value;
    if (!number_of(o, &value)) return wrong_type(c, "a number", o);
    if (!isfinite(value)) return FAIL(c, "%s is %g, but must be finite", PATH(c), value);
    if (f->low == 0 && f->high == 0) return true;
    bool inside = value <= (double)f->high && (f->above_low ? value > (double)f->low : value >= (double)f->low);
    if (inside) return true;
    return FAIL(c, "%s is %g, but must be in %c%lld, %lld]", PATH(c), value, f->above_low ? '(' : '[', (long long)f->low,
                (long long)f->high);
}

static bool check_string(checker *c, const gb_rpc_field *f, const msgpack_object *o)
{
    if (o->type != MSGPACK_OBJECT_STR) return wrong_type(c, "a string", o);
    bool plain = f->low == 0 && f->high == 0;
    uint32_t low = f->type == GB_RPC_TEXT || !plain ? (uint32_t)f->low : 1;
    uint32_t high = !plain ? (uint32_t)f->high : f->type == GB_RPC_TEXT ? GB_RPC_MESSAGE_MAX : GB_RPC_STRING_MAX;
    if (o->via.str.size < low || o->via.str.size > high)
        return FAIL(c, "%s has %u bytes, but must have %u..%u", PATH(c), o->via.str.size, low, high);
    size_t bad_at = gb_utf8_check(o->via.str.ptr, o->via.str.size);
    if (bad_at < o->via.str.size) return FAIL(c, "%s is not UTF-8 at byte %zu", PATH(c), bad_at);
    if (f->type == GB_RPC_TEXT) return true;
    for (uint32_t i = 0; i < o->via.str.size; i++)
        if ((unsigned char)o->via.str.ptr[i] < 0x20 || o->via.str.ptr[i] == 0x7f)
            return FAIL(c, "%s has a control character at byte %u", PATH(c), i);
    return true;
}

static bool check_one(checker *c, const gb_rpc_field *f, const msgpack_object *o)
{
    switch (f->type) {
    case GB_RPC_BOOL: return check_bool(c, o);
    case GB_RPC_INT: return check_int(c, f, o);
    case GB_RPC_FLOAT: return check_float(c, f, o);
    case GB_RPC_STRING:
    case GB_RPC_TEXT: return check_string(c, f, o);
    case GB_RPC_MAP: return o->type == MSGPACK_OBJECT_MAP ? check_map(c, o, f->fields) : wrong_type(c, "a map", o);
    default: return wrong_type(c, "absent", o);
    }
}

static bool check_list(checker *c, const gb_rpc_field *f, const msgpack_object *o)
{
    if (f->most && o->via.array.size > f->most)
        return FAIL(c, "%s has %u entries, but at most %u are allowed", PATH(c), o->via.array.size, f->most);
    for (uint32_t i = 0; i < o->via.array.size; i++) {
        size_t before = enter_index(c, i);
        if (!check_one(c, f, &o->via.array.ptr[i])) return false;
        leave(c, before);
    }
    return true;
}

static bool check_value(checker *c, const gb_rpc_field *f, const msgpack_object *o)
{
    if (f->shape == GB_RPC_ONE) return check_one(c, f, o);
    if (o->type == MSGPACK_OBJECT_ARRAY) return check_list(c, f, o);
    return f->shape == GB_RPC_ONE_OR_LIST ? check_one(c, f, o) : wrong_type(c, "an array", o);
}

/* --- names --- */

static bool is_named(const msgpack_object *key, const char *name)
{
    return key->type == MSGPACK_OBJECT_STR && key->via.str.size == strlen(name) &&
           memcmp(key->via.str.ptr, name, key->via.str.size) == 0;
}

static const gb_rpc_field *find_field(const gb_rpc_field *fields, const msgpack_object *key)
{
    for (const gb_rpc_field *f = fields; f->name; f++)
        if (is_named(key, f->name)) return f;
    return NULL;
}

static bool check_unknown(checker *c, const gb_rpc_field *fields, const msgpack_object *key)
{
    char name[GB_RPC_ECHO_BYTES];
    gb_rpc_echo(name, key->via.str.ptr, key->via.str.size);
    for (const gb_rpc_field *f = fields; f->name; f++) {
        if (gb_rpc_is_near(key->via.str.ptr, key->via.str.size, f->name)) {
            enter_name(c, name);
            return FAIL(c, "%s is unknown: did you mean %s?", PATH(c), f->name);
        }
        if (f->type == GB_RPC_MAP && f->shape == GB_RPC_ONE && find_field(f->fields, key)) {
            enter_name(c, name);
            return FAIL(c, "%s belongs into the map %s", PATH(c), f->name);
        }
    }
    return true;
}

static bool check_map(checker *c, const msgpack_object *map, const gb_rpc_field *fields)
{
    uint64_t seen = 0;
    if (map->via.map.size > GB_RPC_NAMES_MAX)
        return FAIL(c, "%s%shas %u entries, but at most %d are allowed", PATH(c), c->path_bytes ? " " : "the parameter map ",
                    map->via.map.size, GB_RPC_NAMES_MAX);
    for (uint32_t i = 0; i < map->via.map.size; i++) {
        const msgpack_object_kv *kv = &map->via.map.ptr[i];
        if (kv->key.type != MSGPACK_OBJECT_STR) return FAIL(c, "names of parameters are strings, not %s", type_of(&kv->key));
        const gb_rpc_field *f = find_field(fields, &kv->key);
        if (!f && !check_unknown(c, fields, &kv->key)) return false;
        if (!f) continue;
        size_t before = enter_name(c, f->name);
        if (seen & UINT64_C(1) << (f - fields)) return FAIL(c, "%s is given twice", PATH(c));
        if (kv->val.type != MSGPACK_OBJECT_NIL && !check_value(c, f, &kv->val)) return false;
        seen |= UINT64_C(1) << (f - fields);
        leave(c, before);
    }
    for (const gb_rpc_field *f = fields; f->name; f++)
        if (f->required && !gb_rpc_param(map, f->name)) {
            enter_name(c, f->name);
            return FAIL(c, "%s is required", PATH(c));
        }
    return true;
}

bool gb_rpc_check(const msgpack_object *map, const gb_rpc_field *fields, gb_rpc_error *error)
{
    checker c = {.error = error};
    error->path[0] = '\0';
    return check_map(&c, map, fields);
}

/* --- readers --- */

const msgpack_object *gb_rpc_param(const msgpack_object *map, const char *name)
{
    for (uint32_t i = 0; i < map->via.map.size; i++) {
        const msgpack_object_kv *kv = &map->via.map.ptr[i];
        if (is_named(&kv->key, name)) return kv->val.type == MSGPACK_OBJECT_NIL ? NULL : &kv->val;
    }
    return NULL;
}

bool gb_rpc_param_bool(const msgpack_object *map, const char *name, bool absent)
{
    const msgpack_object *o = gb_rpc_param(map, name);
    return o ? o->via.boolean : absent;
}

int64_t gb_rpc_param_int(const msgpack_object *map, const char *name, int64_t absent)
{
    const msgpack_object *o = gb_rpc_param(map, name);
    return o ? o->via.i64 : absent;    /* a checked integer fits, so both members of the union agree */
}

double gb_rpc_param_float(const msgpack_object *map, const char *name, double absent)
{
    const msgpack_object *o = gb_rpc_param(map, name);
    double value = absent;
    if (o) number_of(o, &value);
    return value;
}

const char *gb_rpc_param_text(const msgpack_object *map, const char *name, size_t *bytes)
{
    const msgpack_object *o = gb_rpc_param(map, name);
    *bytes = o ? o->via.str.size : 0;
    if (!o) return NULL;
    return *bytes ? o->via.str.ptr : "";    /* msgpack-c points nowhere for empty strings */
}

const char *gb_rpc_param_string(const msgpack_object *map, const char *name, char *out)
{
    size_t bytes;
    const char *text = gb_rpc_param_text(map, name, &bytes);
    if (!text) return NULL;
    memcpy(out, text, bytes);
    out[bytes] = '\0';
    return out;
}

/* --- slips --- */

bool gb_rpc_is_near(const char *name, size_t bytes, const char *known)
{
    char word[GB_NEAREST_BYTES + 1];
    if (bytes == 0 || bytes > GB_NEAREST_BYTES) return false;
    memcpy(word, name, bytes);
    word[bytes] = '\0';
    size_t letters = strlen(known);
    return gb_edit_distance(word, known) <= (letters >= 6 ? 2 : letters >= 4 ? 1 : 0);
}
