#include "bindings/lua/lua_globals.h"

#include <string.h>

#include "tests/check.h"

static gb_lua_global found[GB_LUA_GLOBALS_MAX];
static uint32_t n;

static int find(const char *source, gb_error *err) { return gb_lua_globals_find(found, &n, "mine.lua", source, strlen(source), err); }

static void a_wrong_name_is_found_in_a_branch_that_never_runs(void)
{
    gb_error err = {{0}};
    CHECK_EQ(find("local policy = {api = 1}\nfunction policy.select_engine(request)\nif request.priority == 77 then\n"
                  "return tonumbre('3')\nend\nend\nreturn policy\n", &err), GB_OK);
    CHECK_EQ(n, 1);
    CHECK_EQ(found[0].line, 4);
    CHECK_CONTAINS(found[0].why, "tonumbre is not defined");
    CHECK_CONTAINS(found[0].why, "tonumber");
}

static void writing_a_global_is_found(void)
{
    gb_error err = {{0}};
    CHECK_EQ(find("local function f()\n  count = 1\nend\nreturn {api = 1, select_engine = f}\n", &err), GB_OK);
    CHECK_EQ(n, 1);
    CHECK_EQ(found[0].line, 2);
    CHECK_CONTAINS(found[0].why, "write local count");
}

static void what_policies_have_is_no_finding(void)
{
    gb_error err = {{0}};
    CHECK_EQ(find("local max, floor = math.max, math.floor\nlocal t = {}\nfor k, v in pairs(t) do t[k] = type(v) end\n"
                  "gimbal.log(string.format('%d', bit.bor(1, 2)))\nreturn {api = 1}\n", &err), GB_OK);
    CHECK_EQ(n, 0);
}

static void a_long_list_is_cut(void)
{
    gb_error err = {{0}};
    char source[64 * GB_LUA_GLOBALS_MAX] = "";
    for (int i = 0; i < 2 * GB_LUA_GLOBALS_MAX; i++) strcat(source, "do local a = nowhere end\n");
    strcat(source, "return {}\n");
    CHECK_EQ(find(source, &err), GB_OK);
    CHECK_EQ(n, GB_LUA_GLOBALS_MAX);
}

static void a_file_that_does_not_compile_says_where(void)
{
    gb_error err = {{0}};
    CHECK_EQ(find("local policy =\nreturn policy\n", &err), GB_EPOLICY);
    CHECK_CONTAINS(err.text, ":2: ");
    CHECK_CONTAINS(err.text, "mine.lua:2: ");
}

TESTS(TEST(a_wrong_name_is_found_in_a_branch_that_never_runs),
      TEST(writing_a_global_is_found),
      TEST(what_policies_have_is_no_finding),
      TEST(a_long_list_is_cut),
      TEST(a_file_that_does_not_compile_says_where))
