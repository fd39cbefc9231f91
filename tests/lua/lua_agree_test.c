/* lua/policies/gimbal.lua and core/serve/builtin.c are two texts of one algorithm. */
#include "bindings/lua/lua_policy.h"

#include "bindings/lua/embedded.h"
#include "core/serve/builtin.h"
#include "tests/check.h"

enum { TABLES = 10000, ENGINES = 64, QUEUE = 200 };

static gb_arena arena;
static gb_tables tables;
static gb_lua_policy *policy;
static gb_lua_counts counts;

static void set_up(double stale_after_ns)
{
    const gb_embedded_file *file = gb_embedded_find("lua/policies/gimbal.lua");
    gb_lua_script script = {.chunk = file->name, .source = file->data, .bytes = file->bytes, .engines = ENGINES};
    gb_error err = {0};
    gb_lua_vm_options_default(&script.vm);
    gb_lua_budgets_default(&script.budgets);
    script.vm.stale_after_ns = stale_after_ns;
    counts = (gb_lua_counts){0};
    CHECK_EQ(gb_lua_policy_new(&policy, &script, &counts, &err), 0);
    CHECK_STR(err.text, "");
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&tables, &arena, ENGINES, QUEUE), 0);
}

static void tear_down(void)
{
    gb_lua_policy_free(policy);
    gb_arena_deinit(&arena);
}

/* One value in four is a round one, so that ties and thresholds are met exactly. */
static double draw(gb_rng *rng, double low, double high, double round)
{
    double value = low + (high - low) * gb_rng_uniform(rng);
    return gb_rng_below(rng, 4) ? value : floor(value / round) * round;
}

/* A quarter of the tables each: all quiet, busy, short of KV memory, with missing or old traces. */
static void draw_engines(gb_rng *rng, gb_engine_table *e)
{
    unsigned shape = (unsigned)gb_rng_below(rng, 4);
    e->n = 1 + (uint32_t)gb_rng_below(rng, gb_rng_below(rng, 4) ? 8 : ENGINES);
    e->next = (uint32_t)gb_rng_below(rng, e->n);
    for (uint32_t i = 0; i < e->n; i++) {
        double most = shape == 0 ? 200 : 8192;
        e->running_prefill_tokens[i] = floor(draw(rng, 0, most, 64));
        e->waiting_prefill_tokens[i] = floor(draw(rng, 0, most, 64));
        e->pending_tokens[i] = floor(draw(rng, 0, most, 64));
        e->kv_used_ratio[i] = shape == 2 ? draw(rng, 0.75, 1, 0.05) : draw(rng, 0, 0.92, 0.05);
        e->moe_pressure[i] = draw(rng, 0.25, 2.5, 0.25);
        e->age_ns[i] = shape == 3 ? floor(draw(rng, 0, 1.1e9, 1e8)) : 0;
        e->valid[i] = shape != 3 || gb_rng_below(rng, 20) != 0;
        e->healthy[i] = gb_rng_below(rng, 10) != 0;
    }
}

static void check_agreement(uint64_t seed, double stale_after_ns)
{
    gb_pressure_params params;
    gb_rng rng;
    gb_rng_init(&rng, seed);
    gb_pressure_params_default(&params);
    params.stale_after_ns = stale_after_ns;
    set_up(stale_after_ns);
    int differ = 0, nils = 0;
    for (int i = 0; i < TABLES; i++) {
        draw_engines(&rng, &tables.engines);
        int in_c = gb_builtin_select(&params, &tables.request, &tables.engines, gb_seconds(1));
        int in_lua = gb_lua_policy_select(policy, &tables.request, &tables.engines, gb_seconds(1));
        if (in_c != in_lua && differ++ < 3) printf("    table %d of seed %d: %d in C, %d in Lua\n", i, (int)seed, in_c, in_lua);
        nils += in_c == GB_POLICY_NIL;
    }
    CHECK_EQ(differ, 0);
    CHECK_EQ(counts.faults, 0);
    CHECK_EQ(counts.calls, TABLES);
    CHECK_EQ(counts.nils, nils);
    CHECK(nils > 0);    /* all engines down was among the tables */
    tear_down();
}

static void gimbal_lua_selects_as_the_built_in_does(void) { check_agreement(1, 1e9); }

static void gimbal_lua_follows_the_servers_stale_after(void) { check_agreement(2, 2e8); }

static void gimbal_lua_orders_as_the_built_in_does(void)
{
    double expected[QUEUE];
    gb_rng rng;
    gb_rng_init(&rng, 3);
    set_up(1e9);
    for (int round = 0; round < 300; round++) {
        gb_queue_table *q = &tables.queue;
        q->n = (uint32_t)gb_rng_below(&rng, QUEUE + 1);
        for (uint32_t i = 0; i < q->n; i++) {
            q->prefill_tokens[i] = (double)gb_rng_below(&rng, 100000);
            q->cached_tokens[i] = gb_rng_below(&rng, 2) ? floor(q->prefill_tokens[i] * gb_rng_uniform(&rng)) : 0;
        }
        CHECK_EQ(gb_builtin_order(NULL, q, 0), 0);
        memcpy(expected, q->key, q->n * sizeof *expected);
        CHECK_EQ(gb_lua_policy_order(policy, q, 0), 0);
        CHECK(memcmp(expected, q->key, q->n * sizeof *expected) == 0);
    }
    tear_down();
}

TESTS(TEST(gimbal_lua_selects_as_the_built_in_does), TEST(gimbal_lua_follows_the_servers_stale_after),
      TEST(gimbal_lua_orders_as_the_built_in_does))
