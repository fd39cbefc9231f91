#include "bindings/lua/lua_globals.h"

#include <stdio.h>

#include <lauxlib.h>
#include <lualib.h>

#include "bindings/lua/lua_vm.h"

/* Calls use(name, line, written) for each global of a function and of those inside it. The numbers of the two instructions are
   asked from the compiler at hand, for they differ between versions of LuaJIT. */
static const char scanner[] =
    "local f, use = ...\n"
    "local util = require('jit.util')\n"
    "local function opcode(text, pc) return util.funcbc(assert(loadstring(text)), pc) % 256 end\n"
    "local GGET, GSET = opcode('return probe', 1), opcode('probe = 1', 2)\n"
    "local function scan(f)\n"
    "  local pc, ins = 1, util.funcbc(f, 1)\n"
    "  while ins do\n"
    "    local op = ins % 256\n"
    "    if op == GGET or op == GSET then\n"
    "      use(util.funck(f, -math.floor(ins % 4294967296 / 65536) - 1), util.funcinfo(f, pc).currentline, op == GSET)\n"
    "    end\n"
    "    pc = pc + 1\n"
    "    ins = util.funcbc(f, pc)\n"
    "  end\n"
    "  local k, constant = -1, util.funck(f, -1)\n"
    "  local inner = {}\n"
    "  while constant ~= nil do\n"
    "    if type(constant) == 'proto' then inner[#inner + 1] = constant end\n"
    "    k = k - 1\n"
    "    constant = util.funck(f, k)\n"
    "  end\n"
    "  for i = 1, #inner do scan(inner[i]) end\n"
    "end\n"
    "scan(f)\n";

typedef struct finding {
    gb_lua_vm *vm;    /* its environment knows what policies have */
    gb_lua_global *found;
    uint32_t n;
} finding;

/* lua_CFunction: a look at (environment, name). */
static int look(lua_State *L)
{
    lua_gettable(L, 1);
    return 0;
}

static int assign(lua_State *L)
{
    lua_pushboolean(L, 1);
    lua_settable(L, 1);
    return 0;
}

/* What the environment of policies says to a name: NULL is nothing to complain about. Leaves the sentence on the stack. */
static const char *complaint_about(lua_State *L, const char *name, bool written)
{
    lua_pushcfunction(L, written ? assign : look);
    lua_pushvalue(L, GB_LUA_ENVIRONMENT);
    if (lua_pcall(L, 0, 1, 0) != 0) return lua_tostring(L, -1);
    lua_pushstring(L, name);
    return lua_pcall(L, 2, 0, 0) != 0 ? lua_tostring(L, -1) : NULL;
}

static int use(lua_State *L)
{
    finding *f = lua_touserdata(L, lua_upvalueindex(1));
    lua_State *policies = f->vm->L;
    int top = lua_gettop(policies);
    const char *why = complaint_about(policies, luaL_checkstring(L, 1), lua_toboolean(L, 3));
    if (why && f->n < GB_LUA_GLOBALS_MAX) {
        gb_lua_global *global = &f->found[f->n++];
        global->line = (uint32_t)lua_tointeger(L, 2);
        snprintf(global->why, sizeof global->why, "%s", why);
    }
    lua_settop(policies, top);
    return 0;
}

static int scan(lua_State *L, finding *f, const char *chunk, const char *text, size_t bytes, gb_error *err)
{
    char name[300];
    luaL_openlibs(L);
    snprintf(name, sizeof name, "@%s", chunk);
    int failed = luaL_loadbuffer(L, scanner, sizeof scanner - 1, "=scanner");
    if (!failed) failed = luaL_loadbuffer(L, text, bytes, name);
    if (!failed) {
        lua_pushlightuserdata(L, f);
        lua_pushcclosure(L, use, 1);
        failed = lua_pcall(L, 2, 0, 0);
    }
    return failed ? gb_fail(err, GB_EPOLICY, "%s", lua_tostring(L, -1)) : GB_OK;
}

int gb_lua_globals_find(gb_lua_global *found, uint32_t *n, const char *chunk, const char *text, size_t bytes, gb_error *err)
{
    gb_lua_vm_options options;
    finding f = {.found = found};
    gb_lua_vm_options_default(&options);
    int status = gb_lua_vm_new(&f.vm, &options, err);
    if (status) return status;
    lua_State *L = luaL_newstate();
    status = L ? scan(L, &f, chunk, text, bytes, err) : gb_fail(err, GB_ENOMEM, "out of memory for policy %s", chunk);
    if (L) lua_close(L);
    gb_lua_vm_free(f.vm);
    *n = f.n;
    return status;
}
