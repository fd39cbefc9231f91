/* Config files in Lua (lua/config/NAME.lua): a chunk that returns a table of option keys. Trusted, but run in an empty
   environment with a time limit; unknown keys are refused with the nearest name. */
#ifndef GB_LUA_CONFIG_H
#define GB_LUA_CONFIG_H

#include "bindings/c/options.h"

/* Values are texts, numbers and booleans. Each remembers "config PATH" as its source, and options->config the path. On an error
   (GB_ENOTFOUND, GB_EINVAL, GB_ETOOBIG: file:line and remedy) options before the mistake may have been set. */
int gb_lua_config_load(gb_options *options, const char *path, gb_error *err);

#endif
