#include "bindings/lua/lua_view.h"

#include "core/flow/columns.h"

typedef struct column {
    const char *name, *unit, *meaning;
} column;

#define COLUMN(name, unit, meaning) {#name, unit, meaning},
static const column engine_columns[] = {GB_ENGINE_COLUMNS(COLUMN)};
static const column request_columns[] = {GB_REQUEST_COLUMNS(COLUMN)};
static const column queue_columns[] = {GB_QUEUE_COLUMNS(COLUMN)};
static const column window_columns[] = {GB_WINDOW_COLUMNS(COLUMN)};
static const column window_scalars[] = {GB_WINDOW_SCALARS(COLUMN)};

#define POINTER_TEXT(name, unit, meaning) "double *" #name "; "
#define SCALAR_TEXT(name, unit, meaning) "double " #name "; "

/* table.h and gb_lua_frame, as FFI declarations; the prelude compares their sizes with C's. */
static const char layout[] = "typedef struct { int32_t n, next; " GB_ENGINE_COLUMNS(
    POINTER_TEXT) "} gb_engine_table;\n"
                  "typedef struct { " GB_REQUEST_COLUMNS(
                      SCALAR_TEXT) "} gb_request_row;\n"
                                   "typedef struct { int32_t n, capacity, engine; " GB_QUEUE_COLUMNS(
                                       POINTER_TEXT) "} gb_queue_table;\n"
                                                     "typedef struct { " GB_WINDOW_SCALARS(SCALAR_TEXT) GB_WINDOW_COLUMNS(
                                                         POINTER_TEXT) "} gb_window_table;\n"
                                                                       "typedef struct { const gb_engine_table *engines; const "
                                                                       "gb_request_row *request; gb_queue_table *queue;\n"
                                                                       "                 const gb_window_table *window; double "
                                                                       "now_ns; } gb_lua_frame;\n";

void gb_lua_frame_clear(gb_lua_frame *frame)
{
    static const gb_engine_table no_engines;
    static gb_queue_table no_queue;
    static const gb_window_table no_window;
    *frame = (gb_lua_frame){.engines = &no_engines, .queue = &no_queue, .window = &no_window, .now_ns = frame->now_ns};
}

static void push_columns(lua_State *L, const char *table, const column *columns, size_t n)
{
    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, columns[i].name);
        lua_setfield(L, -2, "name");
        lua_pushstring(L, columns[i].unit);
        lua_setfield(L, -2, "unit");
        lua_pushstring(L, columns[i].meaning);
        lua_setfield(L, -2, "meaning");
        lua_rawseti(L, -2, (int)i + 1);
    }
    lua_setfield(L, -2, table);
}

static void push_size(lua_State *L, const char *type, size_t bytes)
{
    lua_pushnumber(L, (lua_Number)bytes);
    lua_setfield(L, -2, type);
}

void gb_lua_view_push(lua_State *L)
{
    lua_createtable(L, 0, 10);
    lua_pushlstring(L, layout, sizeof layout - 1);
    lua_setfield(L, -2, "layout");
    lua_createtable(L, 0, 5);
    push_size(L, "gb_engine_table", sizeof(gb_engine_table));
    push_size(L, "gb_request_row", sizeof(gb_request_row));
    push_size(L, "gb_queue_table", sizeof(gb_queue_table));
    push_size(L, "gb_window_table", sizeof(gb_window_table));
    push_size(L, "gb_lua_frame", sizeof(gb_lua_frame));
    lua_setfield(L, -2, "sizes");
    push_columns(L, "engines", engine_columns, sizeof engine_columns / sizeof *engine_columns);
    push_columns(L, "request", request_columns, sizeof request_columns / sizeof *request_columns);
    push_columns(L, "queue", queue_columns, sizeof queue_columns / sizeof *queue_columns);
    push_columns(L, "window", window_columns, sizeof window_columns / sizeof *window_columns);
    push_columns(L, "window_scalars", window_scalars, sizeof window_scalars / sizeof *window_scalars);
}
