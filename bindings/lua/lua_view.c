#include "bindings/lua/lua_view.h"

#include "core/flow/columns.h"

typedef struct column {
    const char *name, *unit, *meaning;
    const char *rows;    /* the field of its table that counts its rows; "" for scalars */
} column;

#define SCALAR(name, unit, meaning) {#name, unit, meaning, ""},
#define COLUMN(name, unit, meaning) {#name, unit, meaning, "n"},
#define EXPERT_COLUMN(name, unit, meaning) {#name, unit, meaning, "expert_rows"},
#define LINK_COLUMN(name, unit, meaning) {#name, unit, meaning, "link_rows"},
#define COST_EXPERT_COLUMN(name, unit, meaning) {#name, unit, meaning, "experts"},
#define COST_SLOT_COLUMN(name, unit, meaning) {#name, unit, meaning, "slots"},
static const column engine_columns[] = {GB_ENGINE_COLUMNS(COLUMN)};
static const column request_columns[] = {GB_REQUEST_COLUMNS(SCALAR)};
static const column queue_columns[] = {GB_QUEUE_COLUMNS(COLUMN)};
static const column window_scalars[] = {GB_WINDOW_SCALARS(SCALAR)};
static const column window_columns[] = {
    GB_WINDOW_COLUMNS(COLUMN) GB_WINDOW_EXPERT_COLUMNS(EXPERT_COLUMN) GB_WINDOW_LINK_COLUMNS(LINK_COLUMN)};
static const column rank_scalars[] = {GB_RANK_SCALARS(SCALAR)};
static const column rank_columns[] = {GB_RANK_COLUMNS(COLUMN)};
static const column cost_scalars[] = {GB_COST_SCALARS(SCALAR)};
static const column cost_columns[] = {
    GB_COST_COLUMNS(COLUMN) GB_COST_EXPERT_COLUMNS(COST_EXPERT_COLUMN) GB_COST_SLOT_COLUMNS(COST_SLOT_COLUMN)};

#define POINTER_TEXT(name, unit, meaning) "double *" #name "; "
#define SCALAR_TEXT(name, unit, meaning) "double " #name "; "
#define WINDOW_TEXT \
    GB_WINDOW_SCALARS(SCALAR_TEXT) GB_WINDOW_COLUMNS(POINTER_TEXT) GB_WINDOW_EXPERT_COLUMNS(POINTER_TEXT) GB_WINDOW_LINK_COLUMNS(POINTER_TEXT)
#define RANK_TEXT GB_RANK_SCALARS(SCALAR_TEXT) GB_RANK_COLUMNS(POINTER_TEXT)
#define COST_TEXT \
    GB_COST_SCALARS(SCALAR_TEXT) GB_COST_COLUMNS(POINTER_TEXT) GB_COST_EXPERT_COLUMNS(POINTER_TEXT) GB_COST_SLOT_COLUMNS(POINTER_TEXT)

/* table.h and gb_lua_frame, as FFI declarations; the prelude compares their sizes with C's. */
static const char layout[] =
    "typedef struct { int32_t n, next; " GB_ENGINE_COLUMNS(POINTER_TEXT) "} gb_engine_table;\n"
    "typedef struct { " GB_REQUEST_COLUMNS(SCALAR_TEXT) "} gb_request_row;\n"
    "typedef struct { int32_t n, capacity, engine; " GB_QUEUE_COLUMNS(POINTER_TEXT) "} gb_queue_table;\n"
    "typedef struct { " WINDOW_TEXT "} gb_window_table;\n"
    "typedef struct { int32_t n; " RANK_TEXT "} gb_rank_table;\n"
    "typedef struct { " COST_TEXT "} gb_cost_table;\n"
    "typedef struct { const gb_engine_table *engines; const gb_request_row *request; gb_queue_table *queue;\n"
    "                 const gb_window_table *window; const gb_rank_table *ranks; gb_cost_table *out; double now_ns, pcalls; } gb_lua_frame;\n";

void gb_lua_frame_clear(gb_lua_frame *frame)
{
    static const gb_engine_table no_engines;
    static gb_queue_table no_queue;
    static const gb_window_table no_window;
    static const gb_rank_table no_ranks;
    static gb_cost_table no_costs;
    *frame = (gb_lua_frame){.engines = &no_engines, .queue = &no_queue, .window = &no_window, .ranks = &no_ranks, .out = &no_costs,
                            .now_ns = frame->now_ns};
}

static void push_columns(lua_State *L, const char *table, const column *columns, size_t n)
{
    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_createtable(L, 0, 4);
        lua_pushstring(L, columns[i].name);
        lua_setfield(L, -2, "name");
        lua_pushstring(L, columns[i].unit);
        lua_setfield(L, -2, "unit");
        lua_pushstring(L, columns[i].meaning);
        lua_setfield(L, -2, "meaning");
        lua_pushstring(L, columns[i].rows);
        lua_setfield(L, -2, "rows");
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
    lua_createtable(L, 0, 16);
    lua_pushlstring(L, layout, sizeof layout - 1);
    lua_setfield(L, -2, "layout");
    lua_createtable(L, 0, 7);
    push_size(L, "gb_engine_table", sizeof(gb_engine_table));
    push_size(L, "gb_request_row", sizeof(gb_request_row));
    push_size(L, "gb_queue_table", sizeof(gb_queue_table));
    push_size(L, "gb_window_table", sizeof(gb_window_table));
    push_size(L, "gb_rank_table", sizeof(gb_rank_table));
    push_size(L, "gb_cost_table", sizeof(gb_cost_table));
    push_size(L, "gb_lua_frame", sizeof(gb_lua_frame));
    lua_setfield(L, -2, "sizes");
    push_columns(L, "engines", engine_columns, sizeof engine_columns / sizeof *engine_columns);
    push_columns(L, "request", request_columns, sizeof request_columns / sizeof *request_columns);
    push_columns(L, "queue", queue_columns, sizeof queue_columns / sizeof *queue_columns);
    push_columns(L, "window", window_columns, sizeof window_columns / sizeof *window_columns);
    push_columns(L, "window_scalars", window_scalars, sizeof window_scalars / sizeof *window_scalars);
    push_columns(L, "ranks", rank_columns, sizeof rank_columns / sizeof *rank_columns);
    push_columns(L, "ranks_scalars", rank_scalars, sizeof rank_scalars / sizeof *rank_scalars);
    push_columns(L, "out", cost_columns, sizeof cost_columns / sizeof *cost_columns);
    push_columns(L, "out_scalars", cost_scalars, sizeof cost_scalars / sizeof *cost_scalars);
}
