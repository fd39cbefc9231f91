#include "core/flow/table.h"

#include "core/flow/policy.h"
#include "tests/check.h"

static void every_column_has_memory_of_its_own(void)
{
    gb_arena arena;
    gb_tables t;
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&t, &arena, 3, 5), 0);
    CHECK_EQ(t.engines.n, 3);
    CHECK_EQ(t.queue.capacity, 5);
    double stamp = 1;
#define X(name, unit, meaning) for (uint32_t i = 0; i < 3; i++) t.engines.name[i] = stamp++;
    GB_ENGINE_COLUMNS(X)
#undef X
#define X(name, unit, meaning) for (uint32_t i = 0; i < 5; i++) t.queue.name[i] = stamp++;
    GB_QUEUE_COLUMNS(X)
#undef X
    stamp = 1;
#define X(name, unit, meaning) for (uint32_t i = 0; i < 3; i++) CHECK(t.engines.name[i] == stamp++);
    GB_ENGINE_COLUMNS(X)
#undef X
#define X(name, unit, meaning) for (uint32_t i = 0; i < 5; i++) CHECK(t.queue.name[i] == stamp++);
    GB_QUEUE_COLUMNS(X)
#undef X
    gb_arena_deinit(&arena);
}

static bool ends_in_ns(const char *name) { return strlen(name) > 3 && strcmp(name + strlen(name) - 3, "_ns") == 0; }

static void column_names_carry_their_unit(void)
{
#define X(name, unit, meaning) CHECK_EQ(strcmp(unit, "ns") == 0, ends_in_ns(#name));
    GB_ENGINE_COLUMNS(X)
    GB_REQUEST_COLUMNS(X)
    GB_QUEUE_COLUMNS(X)
    GB_WINDOW_SCALARS(X)
    GB_WINDOW_COLUMNS(X)
    GB_WINDOW_EXPERT_COLUMNS(X)
    GB_WINDOW_LINK_COLUMNS(X)
    GB_RANK_SCALARS(X)
    GB_RANK_COLUMNS(X)
    GB_COST_SCALARS(X)
    GB_COST_COLUMNS(X)
    GB_COST_EXPERT_COLUMNS(X)
#undef X
}

static void hooks_are_named_as_in_a_policy_file(void)
{
    CHECK_STR(gb_hook_name(GB_HOOK_SELECT), "select_engine");
    CHECK_STR(gb_hook_name(GB_HOOK_ORDER), "order_queue");
    CHECK_STR(gb_hook_name(GB_HOOK_SCORE), "score_expert");
    CHECK_STR(gb_hook_name(GB_HOOK_COST), "placement_cost");
}

TESTS(TEST(every_column_has_memory_of_its_own), TEST(column_names_carry_their_unit), TEST(hooks_are_named_as_in_a_policy_file))
