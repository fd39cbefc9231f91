/* Watches the directory of policies, for whoever writes them: a changed file is loaded, and decides at once where a policy of its name
   decides. Editors write in steps, or replace the file by another: a file is read only when it has looked the same at two looks, the
   first of them GB_WATCH_SETTLE_MS after the last event. Events can be lost (a full queue, a network file system), so the directory is
   also looked at every GB_WATCH_RESCAN_MS. A file that is deleted changes nothing. Loop thread only. */
#ifndef GB_UV_WATCH_H
#define GB_UV_WATCH_H

#include <uv.h>

#include "bindings/lua/lua_host.h"

enum {
    GB_WATCH_SETTLE_MS = 100,
    GB_WATCH_RESCAN_MS = 2000,
    GB_WATCH_FILES_MAX = 128,    /* policies of one directory that are watched; more are named in the log and left out */
};

typedef struct gb_watch gb_watch;

/* The host is borrowed, the directory's name is copied. clock tells the time of a change. */
int  gb_watch_new(gb_watch **out, uv_loop_t *loop, gb_lua_host *host, const char *dir, gb_time (*clock)(void *self), void *self, gb_error *err);
void gb_watch_close(gb_watch *watch);    /* NULL is nothing; frees itself in a later turn of the loop */

#endif
