/* Plain data that travels between VMs: what a policy exports when another takes over. Numbers, strings, booleans and tables of
   them, to a depth and a size; anything else is refused with its place. Internal to bindings/lua. */
#ifndef GB_LUA_CARRY_H
#define GB_LUA_CARRY_H

#include <lua.h>

#include "core/base/status.h"

enum {
    GB_LUA_CARRY_BYTES = 256 * 1024,
    GB_LUA_CARRY_DEPTH = 16,            /* tables in tables */
};

typedef struct gb_lua_carry {
    size_t bytes;
    unsigned char data[GB_LUA_CARRY_BYTES];
} gb_lua_carry;

/* Reads the value on top of the stack, raising no Lua error and leaving the stack as it was. GB_EPOLICY with the place
   ("state.seen[3] is a function"), GB_ETOOBIG. */
int gb_lua_carry_take(gb_lua_carry *carry, lua_State *L, gb_error *err);

/* Pushes a copy. May raise Lua's out of memory: call it protected. */
void gb_lua_carry_push(const gb_lua_carry *carry, lua_State *L);

#endif
