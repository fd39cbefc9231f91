/* lua/policies/gimbal.lua and core/serve/builtin.c are two texts of one algorithm, and so are its placement score and
   core/moe/greedy.c. */
#include "bindings/lua/lua_policy.h"

#include "bindings/lua/embedded.h"
#include "core/serve/builtin.h"
#include "tests/check.h"
#include "tests/moe/fixture.h"

enum { TABLES = 10000, ENGINES = 64, QUEUES = 10000, QUEUE = 64 };

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
        e->running[i] = (double)gb_rng_below(rng, 24);
        e->waiting[i] = (double)gb_rng_below(rng, 4);
        e->cached_tokens[i] = gb_rng_below(rng, 3) ? 0 : 16 * (double)gb_rng_below(rng, 4);
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
        tables.request.session = gb_rng_below(&rng, 2) ? (double)(uint32_t)gb_rng_next(&rng) : 0;
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
    for (int round = 0; round < QUEUES; round++) {
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

/* ---- placement ---- */

enum { LAYERS = 3, EXPERTS_MAX = 64, SOURCES_MAX = 4 };

static gb_solver solver;
static gb_solve_options options;
static gb_rearrangement rearrangement;
static gb_links links;
static double traffic[LAYERS * SOURCES_MAX * EXPERTS_MAX];
static int32_t home[LAYERS * EXPERTS_MAX];

/* Round counts and few of them, so that equal scores are met often; now and then a layer without traffic. */
static void draw_window(gb_rng *rng, uint32_t sources, uint32_t experts, uint32_t ranks)
{
    uint64_t most = gb_rng_below(rng, 3) ? 5000 : 4;
    for (uint32_t i = 0; i < LAYERS * sources * experts; i++) traffic[i] = gb_rng_below(rng, 8) ? (double)gb_rng_below(rng, most) : 0;
    if (gb_rng_below(rng, 10) == 0) memset(traffic, 0, sources * experts * sizeof *traffic);
    for (uint32_t l = 0; l < LAYERS; l++) {
        int32_t *h = home + l * experts;
        for (uint32_t e = 0; e < experts; e++) h[e] = (int32_t)(e % ranks);
        for (uint32_t e = experts; e-- > 1;) {
            uint32_t other = (uint32_t)gb_rng_below(rng, e + 1);
            int32_t kept = h[e];
            h[e] = h[other];
            h[other] = kept;
        }
    }
}

static void make_problem(gb_rng *rng, uint32_t sources, uint32_t experts, uint32_t ranks)
{
    gb_error err = {{0}};
    options = gb_solve_defaults();
    CHECK_EQ(gb_solver_init(&solver, &arena, LAYERS, experts, ranks, &err), 0);
    CHECK_EQ(gb_links_init(&links, &arena, sources, ranks, &err), 0);
    CHECK_EQ(gb_rearrange_init(&rearrangement, &arena, &solver, &options, sources, &err), 0);
    if (ranks % 4 == 0 && gb_rng_below(rng, 2)) gb_links_tiers(&links, ranks / 4, 0.2);
    draw_window(rng, sources, experts, ranks);
    gb_rearrange_pose(&rearrangement, traffic, &links, home, 1);
}

/* Experts on other ranks than the greedy rule in C puts them. */
static int differences(uint32_t experts)
{
    static int32_t in_lua[LAYERS * EXPERTS_MAX];
    int differ = 0;
    CHECK_EQ(gb_lua_policy_place(policy, GB_HOOK_SCORE, &rearrangement, 0), 0);
    memcpy(in_lua, rearrangement.rank_of, LAYERS * experts * sizeof *in_lua);
    gb_greedy built_in = {0};
    for (uint32_t l = 0; l < LAYERS; l++) {
        gb_rearrange_score(&rearrangement, l);
        gb_rearrange_greedy(&rearrangement, &built_in, l);
    }
    for (uint32_t i = 0; i < LAYERS * experts; i++) differ += in_lua[i] != rearrangement.rank_of[i];
    return differ;
}

static void gimbal_lua_places_as_the_greedy_rule_does(void)
{
    enum { WINDOWS = 3000 };
    static const struct {
        uint32_t sources, experts, ranks;
    } shapes[] = {{1, 4, 2}, {2, 8, 4}, {2, 12, 3}, {2, 16, 4}, {4, 64, 16}, {3, 64, 64}, {2, 32, 4}};
    gb_rng rng;
    gb_rng_init(&rng, 4);
    set_up(1e9);
    for (int i = 0; i < WINDOWS; i++) {
        size_t s = (size_t)i % (sizeof shapes / sizeof *shapes);
        gb_arena_deinit(&arena);
        gb_arena_init(&arena);
        make_problem(&rng, shapes[s].sources, shapes[s].experts, shapes[s].ranks);
        int differ = differences(shapes[s].experts);
        if (differ) printf("    window %d of seed 4: %d experts differ\n", i, differ);
        CHECK_EQ(differ, 0);
    }
    CHECK_EQ(counts.faults + counts.nils, 0);
    CHECK_EQ(counts.calls, WINDOWS);
    tear_down();
}

static void set_number(const char *name, double number)
{
    gb_error err = {{0}};
    CHECK_EQ(gb_lua_policy_set_param(policy, name, &(gb_lua_value){.type = GB_LUA_NUMBER, .number = number}, &err), 0);
}

/* With the fixture's weights, for the answer that an independent program gave. */
static void gimbal_lua_places_the_fixtures_as_the_papers_rule_does(void)
{
    for (int i = 0; i < MOE_FIXTURES; i++) {
        gb_error err = {{0}};
        set_up(1e9);
        moe_fixture f = moe_fixture_read(moe_fixture_files[i], &arena);
        options = gb_solve_defaults();
        options.weights = f.weights;
        CHECK_EQ(gb_solver_init(&solver, &arena, 1, f.experts, f.ranks, &err), 0);
        CHECK_EQ(gb_rearrange_init(&rearrangement, &arena, &solver, &options, f.sources, &err), 0);
        gb_rearrange_pose(&rearrangement, f.flow, &f.links, f.home, 1);
        set_number("alpha", f.weights.alpha);
        set_number("beta", f.weights.beta);
        set_number("gamma", f.weights.gamma);
        CHECK_EQ(gb_lua_policy_place(policy, GB_HOOK_SCORE, &rearrangement, 0), 0);
        for (uint32_t e = 0; e < f.experts; e++) CHECK_EQ(rearrangement.rank_of[e], f.greedy[e]);
        tear_down();
    }
}

TESTS(TEST(gimbal_lua_selects_as_the_built_in_does), TEST(gimbal_lua_follows_the_servers_stale_after),
      TEST(gimbal_lua_orders_as_the_built_in_does), TEST(gimbal_lua_places_as_the_greedy_rule_does),
      TEST(gimbal_lua_places_the_fixtures_as_the_papers_rule_does))
