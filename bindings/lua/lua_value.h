/* A param of a policy: a number, a boolean or a short text under a name. */
#ifndef GB_LUA_VALUE_H
#define GB_LUA_VALUE_H

#include <stdbool.h>

enum { GB_LUA_NAME_MAX = 64, GB_LUA_VALUE_BYTES = 256 };

typedef enum gb_lua_value_type { GB_LUA_NUMBER, GB_LUA_BOOLEAN, GB_LUA_TEXT } gb_lua_value_type;

typedef struct gb_lua_value {
    gb_lua_value_type type;
    double number;
    bool boolean;
    char text[GB_LUA_VALUE_BYTES];    /* terminated */
} gb_lua_value;

typedef struct gb_lua_setting {
    char name[GB_LUA_NAME_MAX + 1];
    gb_lua_value value;
} gb_lua_setting;

#endif
