#include "bindings/lua/lua_desk.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"

/* Opens a script from a file that is gone again afterwards. */
static int open_script(gb_lua_desk **desk, const char *source, gb_error *err)
{
    char path[] = "/tmp/gimbal-desk-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, source, strlen(source)), strlen(source));
    close(fd);
    int status = gb_lua_desk_open_file(desk, path, 2, err);
    unlink(path);
    return status;
}

static void a_script_decides_tables_of_the_caller(void)
{
    gb_lua_desk *desk;
    gb_error err = {{0}};
    gb_arena arena;
    gb_tables tables;
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&tables, &arena, 2, 4), GB_OK);
    tables.engines.healthy[0] = tables.engines.healthy[1] = 1;
    CHECK_EQ(open_script(&desk, "local policy = {api = 1, name = 'last'}\n"
                                "function policy.select_engine(_, engines) return engines.n - 1 end\nreturn policy\n", &err), GB_OK);
    const gb_policy *policy = gb_lua_desk_policy(desk);
    CHECK_STR(gb_lua_desk_name(desk), "last");
    CHECK(policy->order_queue == NULL);
    CHECK_EQ(policy->select_engine(policy->self, &tables.request, &tables.engines, 0), 1);
    gb_lua_desk_close(desk);
    gb_arena_deinit(&arena);
}

static void a_fault_is_kept_with_its_line(void)
{
    gb_lua_desk *desk;
    gb_error err = {{0}};
    gb_arena arena;
    gb_tables tables;
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&tables, &arena, 2, 4), GB_OK);
    CHECK_EQ(open_script(&desk, "local policy = {api = 1}\nfunction policy.select_engine(request)\n"
                                "if request.priority == 77 then error('no') end\nreturn 0\nend\nreturn policy\n", &err), GB_OK);
    const gb_policy *policy = gb_lua_desk_policy(desk);
    tables.request.priority = 77;
    CHECK_EQ(policy->select_engine(policy->self, &tables.request, &tables.engines, 0), GB_POLICY_FAULT);
    CHECK(strstr(gb_lua_desk_fault(desk), ":3: no") != NULL);
    gb_lua_desk_close(desk);
    gb_arena_deinit(&arena);
}

static void a_script_gets_the_params_of_a_snapshot(void)
{
    static const char text[] = "{\"gimbal_snapshot\": 1, \"now_ns\": 5, \"hook\": \"select_engine\", \"request\": {}, "
                               "\"engines\": {\"n\": 2, \"next\": 0, \"healthy\": [1, 1]}, \"params\": {\"engine\": 1, \"gone\": 3, \"on\": true}}";
    gb_lua_desk *desk;
    gb_lua_snapshot *snapshot;
    gb_lua_trial trial;
    gb_error err = {{0}};
    CHECK_EQ(open_script(&desk, "local policy = {api = 1, params = {engine = 0, on = false}}\n"
                                "function policy.select_engine() return policy.params.on and policy.params.engine or nil end\nreturn policy\n", &err), GB_OK);
    CHECK_EQ(gb_lua_snapshot_read(&snapshot, "snap", text, sizeof text - 1, &err), GB_OK);
    gb_lua_desk_try(desk, snapshot, &trial);
    CHECK_EQ(trial.answer, GB_POLICY_NIL);
    CHECK_EQ(gb_lua_desk_restore(desk, snapshot, &err), GB_ENOTFOUND);
    CHECK_CONTAINS(err.text, "no param \"gone\"");
    gb_lua_desk_try(desk, snapshot, &trial);
    CHECK_EQ(trial.answer, 1);
    gb_lua_snapshot_free(snapshot);
    gb_lua_desk_close(desk);
}

static void what_a_server_would_refuse_is_not_opened(void)
{
    gb_lua_desk *desk;
    gb_error err = {{0}};
    CHECK_EQ(open_script(&desk, "return {api = 1, select_engine = function() return nothing_like_it end}\n", &err), GB_EPOLICY);
    CHECK(strstr(err.text, ":1: ") != NULL);
    CHECK_EQ(gb_lua_desk_open_file(&desk, "/nowhere/x.lua", 2, &err), GB_ENOTFOUND);
    CHECK_EQ(gb_lua_desk_open_shipped(&desk, "gymbal", 2, &err), GB_ENOTFOUND);
}

static void shipped_policies_open_for_any_number_of_engines(void)
{
    gb_lua_desk *desk;
    gb_error err = {{0}};
    static const uint32_t engines[] = {1, 8, 512};
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        CHECK_EQ(gb_lua_desk_open_shipped(&desk, "gimbal", engines[i], &err), GB_OK);
        CHECK(gb_lua_desk_policy(desk)->select_engine && gb_lua_desk_policy(desk)->order_queue);
        gb_lua_desk_close(desk);
    }
}

TESTS(TEST(a_script_decides_tables_of_the_caller),
      TEST(a_fault_is_kept_with_its_line),
      TEST(a_script_gets_the_params_of_a_snapshot),
      TEST(what_a_server_would_refuse_is_not_opened),
      TEST(shipped_policies_open_for_any_number_of_engines))
