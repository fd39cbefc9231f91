#include "bindings/lua/lua_carry.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

static gb_error err;

static int take(gb_lua_carry *carry, lua_State *L, const char *expression)
{
    char chunk[512];
    snprintf(chunk, sizeof chunk, "return %s", expression);
    CHECK_EQ(luaL_loadstring(L, chunk), 0);
    CHECK_EQ(lua_pcall(L, 0, 1, 0), 0);
    int top = lua_gettop(L), status = gb_lua_carry_take(carry, L, &err);
    CHECK_EQ(lua_gettop(L), top);
    lua_settop(L, 0);
    return status;
}

static void plain_data_arrives_in_another_state_as_it_was(void)
{
    gb_lua_carry *carry = malloc(sizeof *carry);
    lua_State *from = luaL_newstate(), *to = luaL_newstate();
    CHECK_EQ(take(carry, from, "{ 1, 2.5, -1/0, 'a\\0b', true, false, { x = { y = 'deep' } }, [true] = 0, [0.5] = 'half' }"), 0);
    gb_lua_carry_push(carry, to);
    lua_setglobal(to, "state");
    CHECK_EQ(luaL_loadstring(
                 to, "return state[1] == 1 and state[2] == 2.5 and state[3] == -1/0 and state[4] == 'a\\0b' and state[5] == true and "
                     "state[6] == false and state[7].x.y == 'deep' and state[true] == 0 and state[0.5] == 'half' and #state == 7"),
             0);
    CHECK_EQ(lua_pcall(to, 0, 1, 0), 0);
    CHECK(lua_toboolean(to, -1));
    lua_close(from);
    lua_close(to);
    free(carry);
}

static void what_is_no_plain_data_is_refused_with_its_place(void)
{
    gb_lua_carry *carry = malloc(sizeof *carry);
    lua_State *L = luaL_newstate();
    CHECK_EQ(take(carry, L, "function() end"), GB_EPOLICY);
    CHECK_STR(err.text, "state is a function; state is numbers, strings, booleans and tables of them");
    CHECK_EQ(take(carry, L, "{ a = { [3] = function() end } }"), GB_EPOLICY);
    CHECK_CONTAINS(err.text, "state.a[3] is a function");
    CHECK_EQ(take(carry, L, "{ [{}] = 1 }"), GB_EPOLICY);
    CHECK_EQ(take(carry, L, "{{{{{{{{{{{{{{{{ 1 }}}}}}}}}}}}}}}}"), 0); /* 16 */
    CHECK_EQ(take(carry, L, "{{{{{{{{{{{{{{{{{ 1 }}}}}}}}}}}}}}}}}"), GB_EPOLICY);
    CHECK_CONTAINS(err.text, "more than 16 deep");
    lua_close(L);
    free(carry);
}

static void more_than_the_cap_is_refused_to_the_byte(void)
{
    gb_lua_carry *carry = malloc(sizeof *carry);
    lua_State *L = luaL_newstate();
    char *text = calloc(1, GB_LUA_CARRY_BYTES);
    lua_pushlstring(L, text, GB_LUA_CARRY_BYTES - 5); /* a tag and a length */
    CHECK_EQ(gb_lua_carry_take(carry, L, &err), 0);
    CHECK_EQ(carry->bytes, GB_LUA_CARRY_BYTES);
    lua_pushlstring(L, text, GB_LUA_CARRY_BYTES - 4);
    CHECK_EQ(gb_lua_carry_take(carry, L, &err), GB_ETOOBIG);
    CHECK_STR(err.text, "the state has more than 262144 bytes; export less");
    free(text);
    lua_close(L);
    free(carry);
}

TESTS(TEST(plain_data_arrives_in_another_state_as_it_was), TEST(what_is_no_plain_data_is_refused_with_its_place),
      TEST(more_than_the_cap_is_refused_to_the_byte))
