/* Lua files from disk, read whole and refused in one sentence when they are no text of a sensible size. */
#ifndef GB_LUA_FILE_H
#define GB_LUA_FILE_H

#include <stddef.h>

#include "core/base/status.h"

typedef struct gb_lua_text {
    char *data;       /* terminated; gb_lua_text_free */
    size_t bytes;
} gb_lua_text;

/* what: "a policy", "a config file". GB_ENOTFOUND, GB_EIO, GB_EINVAL (not a regular file), GB_ETOOBIG, and what
   gb_lua_text_check finds. */
int  gb_lua_file_read(gb_lua_text *text, const char *path, const char *what, size_t most_bytes, gb_error *err);
/* The same from an open file or pipe to its end; name is how errors call it. The descriptor stays the caller's. */
int  gb_lua_stream_read(gb_lua_text *text, int fd, const char *name, const char *what, size_t most_bytes, gb_error *err);
void gb_lua_text_free(gb_lua_text *text);

/* Text, and nothing but text: NUL bytes, bytecode, a byte order mark and CR LF are refused with their place and the remedy, so
   that one script has one digest on every machine. GB_EINVAL. */
int gb_lua_text_check(const char *name, const char *data, size_t bytes, gb_error *err);

#endif
