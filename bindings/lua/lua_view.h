/* What a script sees of the live tables. The layout text for LuaJIT's FFI and the lists of names come from the columns of
   core/flow/columns.h and from nowhere else; the prelude makes checked proxies of them. A frame holds the pointers of the
   running hook; outside a hook it points at empty tables, so that a proxy kept by a script reads nothing. */
#ifndef GB_LUA_VIEW_H
#define GB_LUA_VIEW_H

#include <lua.h>

#include "core/base/time.h"
#include "core/flow/table.h"

/* Seen by the prelude through the layout text: change both. */
typedef struct gb_lua_frame {
    const gb_engine_table *engines;
    const gb_request_row *request;    /* NULL outside select_engine */
    gb_queue_table *queue;
    const gb_window_table *window;
    const gb_rank_table *ranks;
    gb_cost_table *out;
    double now_ns;
    double pcalls;                    /* of the running call, one inside the other; the prelude counts them */
} gb_lua_frame;

void gb_lua_frame_clear(gb_lua_frame *frame);

/* Pushes what the prelude builds the views from: {layout = text, sizes = {type = bytes}, views = {engines = {columns = {field...},
   numbers = {field...}}, ...}} with field = {name, unit, meaning, rows, written}; rows counts a column. Made from core/flow/view.h. */
void gb_lua_view_push(lua_State *L);

#endif
