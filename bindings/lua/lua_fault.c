#include "bindings/lua/lua_fault.h"

const char *gb_lua_fault_kind_name(gb_lua_fault_kind kind)
{
    static const char *const names[] = {"type", "range", "down", "nan", "error", "time", "memory", "stack"};
    return names[kind];
}
