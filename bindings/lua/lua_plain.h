/* A plain interpreter for trusted files (config, templates): capped memory, no JIT, and a limit of instructions for each
   call, so that a loop ends with an error. Internal to bindings/lua. */
#ifndef GB_LUA_PLAIN_H
#define GB_LUA_PLAIN_H

#include <stdbool.h>

#include <lua.h>

#include "bindings/lua/lua_arena.h"
#include "core/base/status.h"

enum {
    GB_LUA_PLAIN_INSTRUCTIONS = 20 * 1000 * 1000,    /* of one call */
    GB_LUA_PLAIN_SOURCE_MAX = 256 * 1024,
};

typedef enum gb_lua_libraries {
    GB_LUA_NO_LIBRARIES,    /* an empty environment */
    GB_LUA_PURE,            /* what computes: string, table, math, assert, error, ipairs, pairs, select, tostring, tonumber, type */
} gb_lua_libraries;

typedef struct gb_lua_plain {
    gb_lua_arena arena;
    lua_State *L;
    gb_lua_libraries libraries;
} gb_lua_plain;

int  gb_lua_plain_init(gb_lua_plain *plain, gb_lua_libraries libraries, size_t memory_bytes, gb_error *err);    /* GB_ENOMEM */
void gb_lua_plain_deinit(gb_lua_plain *plain);

/* Compiles and runs a file's text in a fresh environment and leaves its one result on the stack. GB_EINVAL with file:line. */
int gb_lua_plain_run(gb_lua_plain *plain, const char *chunk, const char *source, size_t bytes, gb_error *err);

/* Calls the function below n_args arguments for one result. GB_EINVAL, with the error's own text. */
int gb_lua_plain_call(gb_lua_plain *plain, int n_args, gb_error *err);

#endif
