/* Names that a script uses and policies do not have, found in its bytecode without running it: also in branches that no trial
   takes. */
#ifndef GB_LUA_GLOBALS_H
#define GB_LUA_GLOBALS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

enum { GB_LUA_GLOBALS_MAX = 64 };    /* that are listed; one wrong name is enough to refuse a file */

typedef struct gb_lua_global {
    uint32_t line;
    char why[192];    /* "pirnt is not defined; did you mean ...?" */
} gb_lua_global;

/* Fills found[0 .. *n - 1], at most GB_LUA_GLOBALS_MAX, function by function in order of lines. GB_EPOLICY when the file does not
   compile, GB_ENOMEM. chunk is how errors name the text. */
int gb_lua_globals_find(gb_lua_global *found, uint32_t *n, const char *chunk, const char *text, size_t bytes, gb_error *err);

#endif
