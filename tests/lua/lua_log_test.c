#include "bindings/lua/lua_log.h"

#include "tests/check.h"

static void a_reader_sees_each_record_once_and_what_it_lost_as_a_gap(void)
{
    gb_lua_log *log = gb_lua_log_new();
    uint64_t seq = 0;
    CHECK(gb_lua_log_next_decision(log, &seq) == NULL);
    for (uint32_t i = 1; i <= 3; i++) gb_lua_log_decision(log, &(gb_lua_decision){.version = i});
    for (uint32_t i = 1; i <= 3; i++) CHECK_EQ(gb_lua_log_next_decision(log, &seq)->version, i);
    CHECK(gb_lua_log_next_decision(log, &seq) == NULL);
    CHECK_EQ(seq, 3);
    for (uint32_t i = 4; i <= 10 + GB_LUA_DECISIONS_KEPT; i++) gb_lua_log_decision(log, &(gb_lua_decision){.version = i});
    const gb_lua_decision *decision = gb_lua_log_next_decision(log, &seq);
    CHECK_EQ(seq, 11); /* 4 to 10 are lost */
    CHECK_EQ(decision->seq, 11);
    CHECK_EQ(decision->version, 11);
    CHECK_EQ(gb_lua_log_decisions(log), 10 + GB_LUA_DECISIONS_KEPT);
    seq = UINT64_MAX;
    CHECK(gb_lua_log_next_decision(log, &seq) == NULL);
    gb_lua_log_free(log);
}

static void a_forgotten_fault_takes_its_snapshot_along(void)
{
    gb_lua_log *log = gb_lua_log_new();
    gb_request_row request = {0};
    gb_tables tables;
    gb_arena arena;
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&tables, &arena, 2, 1), 0);
    for (uint64_t i = 1; i <= GB_LUA_FAULTS_KEPT + 1; i++) {
        gb_lua_snapshot *snapshot = NULL;
        CHECK_EQ(gb_lua_snapshot_take(&snapshot, GB_HOOK_SELECT, &request, &tables.engines, NULL, i), 0);
        gb_lua_log_fault(log, &(gb_lua_fault){.at = i}, snapshot);
    }
    CHECK(gb_lua_log_snapshot(log, 0) == NULL);
    CHECK(gb_lua_log_snapshot(log, 1) == NULL);
    CHECK_EQ(gb_lua_log_snapshot(log, 2)->now, 2);
    CHECK(gb_lua_log_snapshot(log, GB_LUA_FAULTS_KEPT + 2) == NULL);
    uint64_t seq = 0;
    CHECK_EQ(gb_lua_log_next_fault(log, &seq)->at, 2);
    gb_arena_deinit(&arena);
    gb_lua_log_free(log);
}

TESTS(TEST(a_reader_sees_each_record_once_and_what_it_lost_as_a_gap), TEST(a_forgotten_fault_takes_its_snapshot_along))
