#include "bindings/lua/lua_compare.h"

#include "core/flow/table.h"
#include "tests/check.h"

static void a_quantile_is_at_most_an_eighth_above_the_truth(void)
{
    for (uint64_t ns = 0; ns < 1000000; ns = ns < 20 ? ns + 1 : ns * 9 / 8) {
        gb_lua_costs costs = {0};
        gb_lua_costs_add(&costs, ns);
        double within = gb_lua_costs_within_ns(&costs, 0.5);
        CHECK(within >= (double)ns && within <= (double)ns * 1.125 + 1e-9);
    }
    gb_lua_costs costs = {0};
    CHECK_NEAR(gb_lua_costs_within_ns(&costs, 0.5), 0, 0);
    gb_lua_costs_add(&costs, UINT64_MAX);    /* beyond the last bucket */
    for (int i = 0; i < 99; i++) gb_lua_costs_add(&costs, 5);
    CHECK_NEAR(gb_lua_costs_within_ns(&costs, 0.99), 5, 0);
    CHECK(gb_lua_costs_within_ns(&costs, 1) > 1e9);
}

static void the_spread_counts_prompt_tokens_and_where_the_request_would_go(void)
{
    gb_arena arena;
    gb_tables t;
    gb_lua_comparison c = {0};
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&t, &arena, 3, 1), 0);
    for (int e = 0; e < 3; e++) t.engines.healthy[e] = 1;
    t.engines.healthy[2] = 0;    /* does not count */
    t.engines.running_prefill_tokens[0] = 60, t.engines.waiting_prefill_tokens[0] = 30, t.engines.pending_tokens[0] = 10;
    t.engines.running_prefill_tokens[2] = 1e9;
    t.engines.moe_pressure[0] = 1.5, t.engines.moe_pressure[1] = 0.5;
    t.engines.cached_tokens[1] = 50;
    t.request.prompt_tokens = 150;
    gb_lua_compare_engines(&c, &t.request, &t.engines, (const int[]){0, 1});
    CHECK_NEAR(gb_lua_side_spread(&c, 0), 250 / 125.0, 1e-12);    /* 250 and 0 */
    CHECK_NEAR(gb_lua_side_spread(&c, 1), 0, 1e-12);              /* 100 and 100 */
    CHECK_NEAR(gb_lua_side_moe(&c, 0), 1.5, 0);
    CHECK_NEAR(gb_lua_side_moe(&c, 1), 0.5, 0);
    gb_lua_compare_engines(&c, &t.request, &t.engines, (const int[]){1, 1});
    CHECK_EQ(c.decisions, 2);
    CHECK_EQ(c.agreed, 1);
    gb_arena_deinit(&arena);
}

static void orders_agree_when_everyone_keeps_the_place(void)
{
    gb_arena arena;
    gb_tables t;
    gb_lua_place places[4];
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&t, &arena, 1, 4), 0);
    t.queue.n = 4;
    for (int i = 0; i < 4; i++) t.queue.wait_ns[i] = 40 - i;
    t.queue.promoted[3] = 1;    /* first in any case */
    static const struct {
        double a[4], b[4];
        uint64_t agreed;
    } cases[] = {
        {{1, 2, 3, 0}, {10, 20, 30, 0}, 1}, {{1, 2, 3, 0}, {1, 3, 2, 0}, 0}, {{1, 1, 1, 0}, {5, 5, 5, 9}, 1},
        {{1, 1, 1, 0}, {3, 2, 1, 0}, 0}, {{1, 2, 3, 0}, {1, 2, 3, -7}, 1}, {{2, 2, 1, 0}, {3, 4, -1, 0}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gb_lua_comparison c = {0};
        gb_lua_compare_orders(&c, &t.queue, (const double *const[]){cases[i].a, cases[i].b}, places);
        CHECK_EQ(c.agreed, cases[i].agreed);
        CHECK_EQ(c.decisions, 1);
    }
    gb_arena_deinit(&arena);
}

TESTS(TEST(a_quantile_is_at_most_an_eighth_above_the_truth), TEST(the_spread_counts_prompt_tokens_and_where_the_request_would_go),
      TEST(orders_agree_when_everyone_keeps_the_place))
