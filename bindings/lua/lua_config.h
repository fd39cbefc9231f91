/* Config files in Lua (lua/config/NAME.lua): a chunk that returns a table of option keys. Trusted, but run in an empty
   environment with a time limit; unknown keys are refused with the nearest name. */
#ifndef GB_LUA_CONFIG_H
#define GB_LUA_CONFIG_H

#include "bindings/c/options.h"

int gb_lua_config_load(gb_options *options, const char *path, gb_error *err);

#endif
