/* Lua files compiled into the binary (cmake/embed.cmake): prelude, shipped policies, templates and config. */
#ifndef GB_LUA_EMBEDDED_H
#define GB_LUA_EMBEDDED_H

#include <stddef.h>

typedef struct gb_embedded_file {
    const char *name;    /* path from the source root: "lua/policies/gimbal.lua" */
    const char *data;    /* terminated */
    size_t bytes;
} gb_embedded_file;

extern const gb_embedded_file gb_embedded_files[];
extern const unsigned gb_embedded_count;

const gb_embedded_file *gb_embedded_find(const char *name);    /* NULL when there is none */

#endif
