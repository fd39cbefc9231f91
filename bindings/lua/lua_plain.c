#include "bindings/lua/lua_plain.h"

#include <stdio.h>
#include <string.h>

#include <lauxlib.h>
#include <lualib.h>

static void stop_a_long_call(lua_State *L, lua_Debug *where)
{
    lua_getinfo(L, "Sl", where);
    lua_pushfstring(L, "%s:%d: more than %d instructions; this file never ends", where->short_src, where->currentline, GB_LUA_PLAIN_INSTRUCTIONS);
    lua_error(L);
}

static void open_library(lua_State *L, const char *name, lua_CFunction open)
{
    lua_pushcfunction(L, open);
    lua_pushstring(L, name);
    lua_call(L, 1, 0);
}

/* luaopen_jit is never called, so that nothing is compiled and the count hook always fires. */
static int open_libraries(lua_State *L)
{
    const gb_lua_plain *plain = lua_touserdata(L, 1);
    open_library(L, "", luaopen_base);
    if (plain->libraries == GB_LUA_NO_LIBRARIES) return 0;
    open_library(L, LUA_STRLIBNAME, luaopen_string);
    open_library(L, LUA_TABLIBNAME, luaopen_table);
    open_library(L, LUA_MATHLIBNAME, luaopen_math);
    return 0;
}

int gb_lua_plain_init(gb_lua_plain *plain, gb_lua_libraries libraries, size_t memory_bytes, gb_error *err)
{
    *plain = (gb_lua_plain){.libraries = libraries};
    if (gb_lua_arena_init(&plain->arena, memory_bytes) || !(plain->L = lua_newstate(gb_lua_arena_allocate, &plain->arena)) ||
        lua_cpcall(plain->L, open_libraries, plain)) {
        gb_lua_plain_deinit(plain);
        return gb_fail(err, GB_ENOMEM, "out of memory for a Lua state of %zu MiB", memory_bytes >> 20);
    }
    return GB_OK;
}

void gb_lua_plain_deinit(gb_lua_plain *plain)
{
    if (plain->L) lua_close(plain->L);
    gb_lua_arena_deinit(&plain->arena);
    plain->L = NULL;
}

int gb_lua_plain_call(gb_lua_plain *plain, int n_args, gb_error *err)
{
    lua_State *L = plain->L;
    lua_sethook(L, stop_a_long_call, LUA_MASKCOUNT, GB_LUA_PLAIN_INSTRUCTIONS);
    int failed = lua_pcall(L, n_args, 1, 0);
    lua_sethook(L, NULL, 0, 0);
    if (!failed) return GB_OK;
    int status = failed == LUA_ERRMEM ? GB_ENOMEM : GB_EINVAL;
    gb_fail(err, status, "%s", lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "an error that is no text");
    lua_pop(L, 1);
    return status;
}

/* Pushes an environment; a name that is not in it is an error rather than nil. */
static int push_environment(lua_State *L)
{
    static const char *const names[] = {
        "assert", "error", "ipairs", "next", "pairs", "select", "tonumber", "tostring", "type", "unpack",
        LUA_STRLIBNAME, LUA_TABLIBNAME, LUA_MATHLIBNAME,
    };
    static const char unknown[] = "return function(_, name) error(tostring(name) .. ' is not defined here', 2) end";
    bool pure = lua_toboolean(L, 1);
    lua_settop(L, 0);
    lua_newtable(L);
    for (size_t i = 0; pure && i < sizeof names / sizeof *names; i++) {
        lua_getglobal(L, names[i]);
        lua_setfield(L, -2, names[i]);
    }
    lua_createtable(L, 0, 1);
    if (luaL_loadbuffer(L, unknown, sizeof unknown - 1, "=environment")) return lua_error(L);
    lua_call(L, 0, 1);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, 1);
    return 1;
}

static int compile_and_run(gb_lua_plain *plain, const char *chunk, const char *source, size_t bytes, gb_error *err)
{
    lua_State *L = plain->L;
    char name[512];
    snprintf(name, sizeof name, "@%s", chunk);
    if (luaL_loadbufferx(L, source, bytes, name, "t")) {
        gb_fail(err, GB_EINVAL, "%s", lua_tostring(L, -1));
        lua_pop(L, 1);
        return GB_EINVAL;
    }
    lua_pushcfunction(L, push_environment);
    lua_pushboolean(L, plain->libraries == GB_LUA_PURE);
    int status = gb_lua_plain_call(plain, 1, err);
    if (status) return status;
    lua_setfenv(L, -2);
    return gb_lua_plain_call(plain, 0, err);
}

/* Some errors (memory, stack) come without a place; the file is known at least. Lua cuts long names to "...end". */
int gb_lua_plain_run(gb_lua_plain *plain, const char *chunk, const char *source, size_t bytes, gb_error *err)
{
    gb_error why = {0};
    int status = compile_and_run(plain, chunk, source, bytes, &why);
    if (!status) return GB_OK;
    bool placed = strncmp(why.text, chunk, strlen(chunk)) == 0 || strncmp(why.text, "...", 3) == 0;
    return gb_fail(err, status, "%s%s%s", placed ? "" : chunk, placed ? "" : ": ", why.text);
}
