#include "bindings/lua/lua_carry.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <lauxlib.h>

#include "core/base/assert.h"

/* A value is its tag and: 8 bytes of a double; 4 bytes of length and a string; pairs of values up to END for a table. */
enum tag { FALSE_TAG, TRUE_TAG, NUMBER_TAG, STRING_TAG, TABLE_TAG, END_TAG };

enum { PATH_BYTES = 256 };

typedef struct taking {
    gb_lua_carry *carry;
    lua_State *L;
    gb_error *err;
    char path[PATH_BYTES];
} taking;

static int put(taking *t, const void *data, size_t bytes)
{
    gb_lua_carry *carry = t->carry;
    if (bytes > sizeof carry->data - carry->bytes)
        return gb_fail(t->err, GB_ETOOBIG, "the state has more than %d bytes; export less", GB_LUA_CARRY_BYTES);
    memcpy(carry->data + carry->bytes, data, bytes);
    carry->bytes += bytes;
    return GB_OK;
}

static int put_tag(taking *t, enum tag tag) { return put(t, &(unsigned char){(unsigned char)tag}, 1); }

static int put_number(taking *t, double number)
{
    int status = put_tag(t, NUMBER_TAG);
    return status ? status : put(t, &number, sizeof number);
}

static int put_string(taking *t, int index)
{
    size_t n;
    const char *text = lua_tolstring(t->L, index, &n);
    uint32_t bytes = (uint32_t)n;
    if (n > GB_LUA_CARRY_BYTES) return put(t, text, n); /* too big: says so */
    int status = put_tag(t, STRING_TAG);
    if (!status) status = put(t, &bytes, sizeof bytes);
    return status ? status : put(t, text, n);
}

/* Appends ".key" or "[key]" of the key at index; returns where the path ended before. */
static size_t go_down(taking *t, int index)
{
    size_t n = strlen(t->path);
    switch (lua_type(t->L, index)) {
    case LUA_TSTRING:
        snprintf(t->path + n, PATH_BYTES - n, ".%.40s", lua_tostring(t->L, index));
        break;
    case LUA_TNUMBER:
        snprintf(t->path + n, PATH_BYTES - n, "[%.14g]", lua_tonumber(t->L, index));
        break;
    default:
        snprintf(t->path + n, PATH_BYTES - n, "[%s]", luaL_typename(t->L, index));
    }
    return n;
}

static int put_value(taking *t, int depth);

/* The table on top of the stack. */
static int put_table(taking *t, int depth)
{
    if (depth == GB_LUA_CARRY_DEPTH || !lua_checkstack(t->L, 4))
        return gb_fail(t->err, GB_EPOLICY, "%s: tables lie more than %d deep (or in a circle)", t->path, GB_LUA_CARRY_DEPTH);
    int status = put_tag(t, TABLE_TAG);
    lua_pushnil(t->L);
    while (!status && lua_next(t->L, -2)) {
        size_t end = go_down(t, -2);
        if (lua_type(t->L, -2) == LUA_TTABLE)
            status = gb_fail(t->err, GB_EPOLICY, "%s: a key is a table; keys are numbers, strings or booleans", t->path);
        lua_pushvalue(t->L, -2);
        if (!status) status = put_value(t, depth + 1);
        lua_pop(t->L, 1);
        if (!status) status = put_value(t, depth + 1);
        lua_pop(t->L, status ? 2 : 1);
        t->path[end] = 0;
    }
    return status ? status : put_tag(t, END_TAG);
}

/* The value on top of the stack. */
static int put_value(taking *t, int depth)
{
    switch (lua_type(t->L, -1)) {
    case LUA_TBOOLEAN:
        return put_tag(t, lua_toboolean(t->L, -1) ? TRUE_TAG : FALSE_TAG);
    case LUA_TNUMBER:
        return put_number(t, lua_tonumber(t->L, -1));
    case LUA_TSTRING:
        return put_string(t, -1);
    case LUA_TTABLE:
        return put_table(t, depth);
    default:
        return gb_fail(t->err, GB_EPOLICY, "%s is a %s; state is numbers, strings, booleans and tables of them", t->path,
                       luaL_typename(t->L, -1));
    }
}

int gb_lua_carry_take(gb_lua_carry *carry, lua_State *L, gb_error *err)
{
    taking t = {.carry = carry, .L = L, .err = err, .path = "state"};
    carry->bytes = 0;
    return put_value(&t, 0);
}

/* ---- pushing ---- */

typedef struct pushing {
    const gb_lua_carry *carry;
    size_t at;
} pushing;

static void get(pushing *p, void *out, size_t bytes)
{
    GB_ASSERT(bytes <= p->carry->bytes - p->at);
    memcpy(out, p->carry->data + p->at, bytes);
    p->at += bytes;
}

static unsigned char get_tag(pushing *p)
{
    unsigned char tag;
    get(p, &tag, 1);
    return tag;
}

static void push_value(pushing *p, lua_State *L, unsigned char tag);

static void push_string(pushing *p, lua_State *L)
{
    uint32_t bytes;
    get(p, &bytes, sizeof bytes);
    GB_ASSERT(bytes <= p->carry->bytes - p->at);
    lua_pushlstring(L, (const char *)p->carry->data + p->at, bytes);
    p->at += bytes;
}

static void push_table(pushing *p, lua_State *L)
{
    luaL_checkstack(L, 4, "state");
    lua_newtable(L);
    for (unsigned char tag = get_tag(p); tag != END_TAG; tag = get_tag(p)) {
        push_value(p, L, tag);
        push_value(p, L, get_tag(p));
        lua_rawset(L, -3);
    }
}

static void push_value(pushing *p, lua_State *L, unsigned char tag)
{
    double number;
    switch (tag) {
    case FALSE_TAG:
    case TRUE_TAG:
        lua_pushboolean(L, tag == TRUE_TAG);
        return;
    case NUMBER_TAG:
        get(p, &number, sizeof number);
        lua_pushnumber(L, number);
        return;
    case STRING_TAG:
        push_string(p, L);
        return;
    default:
        push_table(p, L);
    }
}

void gb_lua_carry_push(const gb_lua_carry *carry, lua_State *L)
{
    pushing p = {.carry = carry};
    push_value(&p, L, get_tag(&p));
}
