#include "bindings/lua/lua_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <lauxlib.h>

#include "bindings/lua/lua_file.h"
#include "bindings/lua/lua_plain.h"

enum { CONFIG_MEMORY = 8 * 1024 * 1024, VALUE_BYTES = 4096, SOURCE_BYTES = 4200 };

/* The value on top of the stack as the text that gb_options_set takes; NULL for anything but a text, a number, a boolean. */
static const char *value_text(lua_State *L, char number[VALUE_BYTES])
{
    switch (lua_type(L, -1)) {
    case LUA_TSTRING: return strlen(lua_tostring(L, -1)) == lua_objlen(L, -1) ? lua_tostring(L, -1) : NULL;
    case LUA_TBOOLEAN: return lua_toboolean(L, -1) ? "true" : "false";
    case LUA_TNUMBER: break;
    default: return NULL;
    }
    double value = lua_tonumber(L, -1);
    snprintf(number, VALUE_BYTES, value == floor(value) && fabs(value) < 0x1p63 ? "%.0f" : "%.17g", value);
    return number;
}

static int set_option(gb_options *options, lua_State *L, const char *key, const char *path, gb_error *err)
{
    char number[VALUE_BYTES], source[SOURCE_BYTES];
    const char *value = value_text(L, number);
    if (!value)
        return gb_fail(err, GB_EINVAL, "%s: %s is a %s; an option is a text, a number or a boolean", path, key, luaL_typename(L, -1));
    snprintf(source, sizeof source, "config %s", path);
    return gb_options_set(options, key, value, source, err);
}

/* In table order, so that of several mistakes the same one is reported each time. */
static int set_known(gb_options *options, lua_State *L, const char *path, gb_error *err)
{
    for (uint32_t i = 0; i < gb_option_count; i++) {
        lua_getfield(L, 1, gb_option_rows[i].key);
        int status = lua_isnil(L, -1) ? GB_OK : set_option(options, L, gb_option_rows[i].key, path, err);
        lua_settop(L, 1);
        if (status) return status;
    }
    return GB_OK;
}

static bool is_known(const char *key)
{
    for (uint32_t i = 0; i < gb_option_count; i++) {
        if (strcmp(gb_option_rows[i].key, key) == 0) return true;
    }
    return false;
}

/* Keys that are no options: gb_options_set knows what to say about a name it does not know. */
static int refuse_unknown(gb_options *options, lua_State *L, const char *path, gb_error *err)
{
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            return gb_fail(err, GB_EINVAL, "%s: a value without a name; write key = value for every option", path);
        const char *key = lua_tostring(L, -2);
        int status = is_known(key) ? GB_OK : set_option(options, L, key, path, err);
        if (status) return status;
    }
    return GB_OK;
}

static int remember_file(gb_options *options, const char *path, gb_error *err)
{
    char *copy = gb_arena_take(&options->arena, strlen(path) + 1, 1);
    if (!copy) return gb_fail(err, GB_ENOMEM, "out of memory for options");
    options->config = strcpy(copy, path);
    return GB_OK;
}

static int set_all(gb_options *options, gb_lua_plain *plain, const gb_lua_text *text, const char *path, gb_error *err)
{
    lua_State *L = plain->L;
    int status = gb_lua_plain_run(plain, path, text->data, text->bytes, err);
    if (status) return status;
    if (!lua_istable(L, 1)) return gb_fail(err, GB_EINVAL, "%s returned a %s; a config file returns a table of options", path, luaL_typename(L, 1));
    status = set_known(options, L, path, err);
    if (!status) status = refuse_unknown(options, L, path, err);
    return status ? status : remember_file(options, path, err);
}

int gb_lua_config_load(gb_options *options, const char *path, gb_error *err)
{
    gb_lua_text text;
    int status = gb_lua_file_read(&text, path, "a config file", GB_LUA_PLAIN_SOURCE_MAX, err);
    if (status) return status;
    gb_lua_plain plain;
    status = gb_lua_plain_init(&plain, GB_LUA_NO_LIBRARIES, CONFIG_MEMORY, err);
    if (!status) status = set_all(options, &plain, &text, path, err);
    gb_lua_plain_deinit(&plain);
    gb_lua_text_free(&text);
    return status;
}
