#include "bindings/lua/lua_view.h"

#include <lauxlib.h>

#include "core/flow/view.h"

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

/* ---- the layout ---- */

static const char *const c_types[] = {[GB_FIELD_COUNT] = "int32_t ", [GB_FIELD_NUMBER] = "double ", [GB_FIELD_COLUMN] = "double *"};

static void add_struct(luaL_Buffer *text, const gb_view *view)
{
    luaL_addstring(text, "typedef struct { ");
    for (uint32_t i = 0; i < view->n_fields; i++) {
        luaL_addstring(text, c_types[view->fields[i].type]);
        luaL_addstring(text, view->fields[i].name);
        luaL_addstring(text, "; ");
    }
    luaL_addstring(text, "} ");
    luaL_addstring(text, view->type);
    luaL_addstring(text, ";\n");
}

/* table.h and gb_lua_frame, as FFI declarations; the prelude compares their sizes with C's. */
static void push_layout(lua_State *L)
{
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    for (int v = 0; v < GB_VIEWS; v++) add_struct(&text, &gb_views[v]);
    luaL_addstring(&text, "typedef struct { const gb_engine_table *engines; const gb_request_row *request; gb_queue_table *queue;\n"
                          "                 const gb_window_table *window; const gb_rank_table *ranks; gb_cost_table *out; double now_ns, pcalls; } "
                          "gb_lua_frame;\n");
    luaL_pushresult(&text);
}

/* ---- names ---- */

static void set_text(lua_State *L, const char *key, const char *value)
{
    lua_pushstring(L, value);
    lua_setfield(L, -2, key);
}

static void push_field(lua_State *L, const gb_field *field)
{
    lua_createtable(L, 0, 5);
    set_text(L, "name", field->name);
    set_text(L, "unit", field->unit);
    set_text(L, "meaning", field->meaning);
    set_text(L, "rows", field->rows);
    lua_pushboolean(L, field->written);
    lua_setfield(L, -2, "written");
}

/* The columns of a view, or its numbers. */
static void push_fields(lua_State *L, const gb_view *view, bool columns)
{
    int n = 0;
    lua_createtable(L, (int)view->n_fields, 0);
    for (uint32_t i = 0; i < view->n_fields; i++) {
        if (view->fields[i].hidden || (view->fields[i].type == GB_FIELD_COLUMN) != columns) continue;
        push_field(L, &view->fields[i]);
        lua_rawseti(L, -2, ++n);
    }
}

static void push_size(lua_State *L, const char *type, size_t bytes)
{
    lua_pushnumber(L, (lua_Number)bytes);
    lua_setfield(L, -2, type);
}

void gb_lua_view_push(lua_State *L)
{
    lua_createtable(L, 0, 16);
    push_layout(L);
    lua_setfield(L, -2, "layout");
    lua_createtable(L, 0, GB_VIEWS + 1);
    for (int v = 0; v < GB_VIEWS; v++) push_size(L, gb_views[v].type, gb_views[v].bytes);
    push_size(L, "gb_lua_frame", sizeof(gb_lua_frame));
    lua_setfield(L, -2, "sizes");
    lua_createtable(L, 0, GB_VIEWS);
    for (int v = 0; v < GB_VIEWS; v++) {
        lua_createtable(L, 0, 2);
        push_fields(L, &gb_views[v], true);
        lua_setfield(L, -2, "columns");
        push_fields(L, &gb_views[v], false);
        lua_setfield(L, -2, "numbers");
        lua_setfield(L, -2, gb_views[v].name);
    }
    lua_setfield(L, -2, "views");
}
