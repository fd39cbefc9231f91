/* Hooks that place experts: what they see, what they may answer, and what follows from faults. */
#include "bindings/lua/lua_host_parts.h"

#include <stdlib.h>

#include "tests/check.h"
#include "tests/serve/fake.h"

enum { LAYERS = 3, SOURCES = 2, EXPERTS = 8, RANKS = 4 };

static gb_arena arena;
static gb_solver solver;
static gb_solve_options options;
static gb_rearrangement r;
static gb_links links;
static double traffic[LAYERS * SOURCES * EXPERTS];
static int32_t home[LAYERS * EXPERTS];
static gb_error err;

static void pose(uint64_t seed)
{
    gb_rng rng;
    gb_rng_init(&rng, seed);
    for (int i = 0; i < LAYERS * SOURCES * EXPERTS; i++) traffic[i] = (double)gb_rng_below(&rng, 1000);
    for (int i = 0; i < LAYERS * EXPERTS; i++) home[i] = i % EXPERTS / (EXPERTS / RANKS);
    gb_rearrange_pose(&r, traffic, &links, home, 7);
}

static void set_up(void)
{
    gb_arena_init(&arena);
    options = gb_solve_defaults();
    options.weights = gb_place_weights_balanced();
    CHECK_EQ(gb_solver_init(&solver, &arena, LAYERS, EXPERTS, RANKS, &err), 0);
    CHECK_EQ(gb_links_init(&links, &arena, SOURCES, RANKS, &err), 0);
    CHECK_EQ(gb_rearrange_init(&r, &arena, &solver, &options, SOURCES, &err), 0);
    pose(1);
}

static void tear_down(void) { gb_arena_deinit(&arena); }

/* ---- one script ---- */

static gb_lua_counts counts;

static gb_lua_policy *load(const char *source)
{
    gb_lua_policy *policy = NULL;
    gb_lua_script script = {.chunk = "mine.lua", .source = source, .bytes = strlen(source), .engines = SOURCES};
    gb_lua_vm_options_default(&script.vm);
    gb_lua_budgets_default(&script.budgets);
    counts = (gb_lua_counts){0};
    err.text[0] = 0;
    CHECK_EQ(gb_lua_policy_new(&policy, &script, &counts, &err), 0);
    CHECK_STR(err.text, "");
    return policy;
}

#define SCORE(body) "return { api = 1, score_expert = function(layer, expert, ranks)\n" body "\nend }"
#define COST(body) "return { api = 1, placement_cost = function(layer, window, out)\n" body "\nend }"
/* The probe's time is below a second. */
#define LATE "if gimbal.now() < 1e9 then return end\n"
#define FILL_SCORES "for i = 0, ranks.n - 1 do ranks.score[i] = 0 end\n"
#define FILL_COSTS "for i = 0, out.n - 1 do out.cost[i] = 0 end for e = 0, out.experts - 1 do out.load[e] = 1 end\n"

static int place(gb_lua_policy *policy, gb_hook hook) { return gb_lua_policy_place(policy, hook, &r, gb_seconds(2)); }

static void a_script_that_says_what_the_paper_says_places_as_the_built_in_greedy(void)
{
    set_up();
    gb_lua_policy *policy = load(SCORE("local u = ranks.expert_load\n"
                                       "for i = 0, ranks.n - 1 do\n"
                                       "  local cost = ranks.traffic[i] + (i == ranks.home and 0 or 0.1)\n"
                                       "  ranks.score[i] = cost + 0.1 * u * (2 * ranks.load[i] + u)\n"
                                       "end"));
    for (uint64_t seed = 1; seed <= 100; seed++) {
        pose(seed);
        CHECK_EQ(place(policy, GB_HOOK_SCORE), 0);
        for (uint32_t l = 0; l < LAYERS; l++) {
            int32_t expected[EXPERTS];
            gb_greedy built_in = {0};
            gb_rearrange_score(&r, l);
            gb_greedy_place(&built_in, expected, &solver.layer[l], &options.weights, home, EXPERTS / RANKS, l);
            CHECK(memcmp(expected, r.rank_of + l * EXPERTS, sizeof expected) == 0);
        }
    }
    CHECK_EQ(counts.calls, 100);    /* one decision for a whole rearrangement */
    CHECK_EQ(counts.faults + counts.nils, 0);
    gb_lua_policy_free(policy);
    tear_down();
}

static void score_expert_sees_the_ranks_as_they_fill(void)
{
    set_up();
    gb_lua_policy *policy = load(SCORE(LATE "local free, load = 0, 0\n"
                                       "for i = 0, ranks.n - 1 do free, load = free + ranks.free[i], load + ranks.load[i] end\n"
                                       "assert(free > 0 and free <= 8 and (load > 0) == (free < 8))\n"
                                       "local w = ranks.window\n"
                                       "assert(w.layers == 3 and w.sources == 2 and w.experts == 8 and w.ranks == 4 and w.capacity == 2)\n"
                                       "assert(w.id == 7 and ranks.home == w.home[layer * w.experts + expert])\n"
                                       "local b, cost = 0, 0\n"
                                       "for s = 0, w.sources - 1 do\n"
                                       "  local tokens = w.tokens[(layer * w.sources + s) * w.experts + expert]\n"
                                       "  b, cost = b + tokens, cost + tokens * w.link_cost[s * w.ranks + 1]\n"
                                       "end\n"
                                       "assert(b == w.expert_tokens[layer * w.experts + expert])\n"
                                       "assert(math.abs(cost * ranks.expert_load - b * ranks.traffic[1]) < 1e-9)\n"
                                       "assert(layer < 3 and expert < 8)\n" FILL_SCORES));
    CHECK_EQ(place(policy, GB_HOOK_SCORE), 0);
    CHECK_STR(counts.last_fault, "");
    gb_lua_policy_free(policy);
    tear_down();
}

static void full_ranks_need_no_score_and_no_score_at_all_is_no_opinion(void)
{
    set_up();
    gb_lua_policy *policy = load(SCORE("for i = 0, ranks.n - 1 do if ranks.free[i] > 0 then ranks.score[i] = i end end"));
    CHECK_EQ(place(policy, GB_HOOK_SCORE), 0);
    for (uint32_t l = 0; l < LAYERS; l++) {
        int32_t held[RANKS] = {0};
        for (uint32_t e = 0; e < EXPERTS; e++) held[r.rank_of[l * EXPERTS + e]]++;
        for (uint32_t k = 0; k < RANKS; k++) CHECK_EQ(held[k], EXPERTS / RANKS);
    }
    gb_lua_policy_free(policy);
    policy = load(SCORE(""));
    CHECK_EQ(place(policy, GB_HOOK_SCORE), GB_POLICY_NIL);
    CHECK_EQ(counts.nils, 1);
    gb_lua_policy_free(policy);
    policy = load(SCORE("if layer == 1 and expert == 3 then " FILL_SCORES "end"));    /* an opinion about one expert */
    CHECK_EQ(place(policy, GB_HOOK_SCORE), 0);
    gb_lua_policy_free(policy);
    tear_down();
}

static void placement_cost_gives_the_numbers_that_the_search_works_on(void)
{
    set_up();
    gb_lua_policy *policy = load(COST("local total, S, E = 0, window.sources, window.experts\n"
                                      "for e = 0, E - 1 do total = total + window.expert_tokens[layer * E + e] end\n"
                                      "local scale = total > 0 and E / total or 0\n"
                                      "for e = 0, E - 1 do\n"
                                      "  out.load[e] = window.expert_tokens[layer * E + e] * scale\n"
                                      "  for k = 0, out.ranks - 1 do\n"
                                      "    local cost = 0\n"
                                      "    for s = 0, S - 1 do\n"
                                      "      cost = cost + scale * window.link_cost[s * out.ranks + k] * window.tokens[(layer * S + s) * E + e]\n"
                                      "    end\n"
                                      "    out.cost[k * E + e] = cost + (window.home[layer * E + e] == k and 0 or 0.1)\n"
                                      "  end\n"
                                      "end"));
    for (uint64_t seed = 1; seed <= 20; seed++) {
        int32_t ours[LAYERS * EXPERTS];
        pose(seed);
        CHECK_EQ(place(policy, GB_HOOK_COST), 0);
        gb_rearrange_search(&r);
        double objective = r.report.objective;
        memcpy(ours, r.rank_of, sizeof ours);
        gb_rearrange_built_in(&r);
        CHECK(objective == r.report.objective);
        CHECK(memcmp(ours, r.rank_of, sizeof ours) == 0);
    }
    CHECK_EQ(counts.calls, 20);
    gb_lua_policy_free(policy);
    tear_down();
}

static void a_layer_without_an_opinion_gets_the_built_in_numbers(void)
{
    set_up();
    gb_lua_policy *policy = load(COST("if layer ~= 1 then return end " FILL_COSTS));
    CHECK_EQ(place(policy, GB_HOOK_COST), 0);
    CHECK(solver.layer[1].cost[5] == 0 && solver.layer[1].load[5] == 1);
    double cost = solver.layer[0].cost[5], load_5 = solver.layer[0].load[5];
    gb_rearrange_score(&r, 0);
    CHECK(cost == solver.layer[0].cost[5] && load_5 == solver.layer[0].load[5]);
    gb_lua_policy_free(policy);
    policy = load(COST(""));
    CHECK_EQ(place(policy, GB_HOOK_COST), GB_POLICY_NIL);
    gb_lua_policy_free(policy);
    tear_down();
}

static void placement_cost_may_give_the_slots_themselves(void)
{
    set_up();
    gb_lua_policy *policy = load(COST("if layer ~= 1 then return end\nfor i = 0, out.slots - 1 do out.expert_of_slot[i] = out.slots - 1 - i end"));
    CHECK_EQ(place(policy, GB_HOOK_COST), 0);
    gb_rearrange_search(&r);
    int32_t ours[LAYERS * EXPERTS];
    memcpy(ours, r.rank_of, sizeof ours);
    for (int e = 0; e < EXPERTS; e++) CHECK_EQ(ours[EXPERTS + e], (EXPERTS - 1 - e) / (EXPERTS / RANKS));
    pose(1);
    gb_rearrange_built_in(&r);    /* the other layers as if nobody had said anything */
    CHECK(memcmp(ours, r.rank_of, EXPERTS * sizeof *ours) == 0);
    CHECK(memcmp(ours + 2 * EXPERTS, r.rank_of + 2 * EXPERTS, EXPERTS * sizeof *ours) == 0);
    gb_lua_policy_free(policy);
    tear_down();
}

static void every_bad_answer_is_a_fault_with_its_sentence(void)
{
    static const struct {
        gb_hook hook;
        const char *source, *why;
        gb_lua_fault_kind kind;
    } cases[] = {
        {GB_HOOK_SCORE, SCORE(LATE FILL_SCORES "return 1"), "score_expert returned a number; it must fill ranks.score[r] and return nothing", GB_LUA_FAULT_TYPE},
        {GB_HOOK_SCORE, SCORE(LATE "ranks.score[1] = 3"), "score_expert left 3 of 4 scores of expert", GB_LUA_FAULT_NAN},
        {GB_HOOK_SCORE, SCORE(LATE "ranks.score[1] = 0/0"), "mine.lua:3: ranks.score[1] = nan: a score must be a finite number", GB_LUA_FAULT_NAN},
        {GB_HOOK_SCORE, SCORE(LATE "ranks.score[1] = math.huge"), "ranks.score[1] = inf: a score must be a finite number", GB_LUA_FAULT_NAN},
        {GB_HOOK_SCORE, SCORE(LATE "ranks.score[1] = {}"), "ranks.score[1] = a table: a score must be a finite number", GB_LUA_FAULT_NAN},
        {GB_HOOK_SCORE, SCORE(LATE "ranks.score[4] = 1"), "mine.lua:3: ranks.score[4]: index out of range 0..3", GB_LUA_FAULT_ERROR},
        {GB_HOOK_SCORE, SCORE(LATE "ranks.load[0] = 1"), "mine.lua:3: ranks.load is read-only", GB_LUA_FAULT_ERROR},
        {GB_HOOK_SCORE, SCORE(LATE "ranks.window.tokens[0] = 1"), "window.tokens is read-only", GB_LUA_FAULT_ERROR},
        {GB_HOOK_SCORE, SCORE(LATE "return ranks.laod[0]"), "ranks has no column \"laod\"; did you mean load?", GB_LUA_FAULT_ERROR},
        {GB_HOOK_SCORE, SCORE(LATE "while true do end"), "time budget exceeded: score_expert may use 20 ms of CPU time", GB_LUA_FAULT_TIME},
        {GB_HOOK_SCORE, SCORE(LATE FILL_SCORES "for i = 1, 1e7 do local x = i end"), "time budget exceeded", GB_LUA_FAULT_TIME},
        {GB_HOOK_COST, COST(LATE FILL_COSTS "return out"), "placement_cost returned a userdata; it must fill out.cost[i] and out.load[e], or out.expert_of_slot[i], and return nothing", GB_LUA_FAULT_TYPE},
        {GB_HOOK_COST, COST(LATE "for i = 0, out.n - 2 do out.cost[i] = 1 end"), "placement_cost left 1 of 32 costs of layer 0 unset, the first of them out.cost[31]", GB_LUA_FAULT_NAN},
        {GB_HOOK_COST, COST(LATE "for i = 0, out.n - 1 do out.cost[i] = 1 end"), "placement_cost left 8 of 8 loads of layer 0 unset, the first of them out.load[0]", GB_LUA_FAULT_NAN},
        {GB_HOOK_COST, COST(LATE FILL_COSTS "out.load[2] = -1"), "placement_cost: out.load[2] = -1 in layer 0; loads are 0 to 1e+06", GB_LUA_FAULT_RANGE},
        {GB_HOOK_COST, COST(LATE FILL_COSTS "out.cost[9] = 1e25"), "placement_cost: out.cost[9] = 1e+25 in layer 0; costs are numbers up to 1e+24", GB_LUA_FAULT_RANGE},
        {GB_HOOK_COST, COST(LATE "out.load[1] = 0/0"), "mine.lua:3: out.load[1] = nan: a load must be a finite number", GB_LUA_FAULT_NAN},
        {GB_HOOK_COST, COST(LATE "return window.link_cost[8]"), "window.link_cost[8]: index out of range 0..7", GB_LUA_FAULT_ERROR},
        {GB_HOOK_COST, COST(LATE "return window.home[24]"), "window.home[24]: index out of range 0..23", GB_LUA_FAULT_ERROR},
        {GB_HOOK_COST, COST(LATE "for i = 0, out.slots - 1 do out.expert_of_slot[i] = 7 - i end out.expert_of_slot[3] = 8"),
         "placement_cost: out.expert_of_slot: slot 3 of layer 0 holds 8; experts are 0..7, and -1 is none", GB_LUA_FAULT_RANGE},
        {GB_HOOK_COST, COST(LATE "out.expert_of_slot[0] = 5"), "expert_of_slot: expert 0 of layer 0 lives nowhere", GB_LUA_FAULT_RANGE},
        {GB_HOOK_COST, COST(LATE "out.expert_of_slot[8] = 0"), "out.expert_of_slot[8]: index out of range 0..7", GB_LUA_FAULT_ERROR},
        {GB_HOOK_COST, COST(LATE "out.n = 3"), "out is read-only", GB_LUA_FAULT_ERROR},
    };
    set_up();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gb_lua_policy *policy = NULL;
        if (cases[i].kind == GB_LUA_FAULT_TIME && strcmp(gb_lua_host_prepare(), "none") == 0) continue;    /* under this sanitizer */
        gb_lua_script script = {.chunk = "mine.lua", .source = cases[i].source, .bytes = strlen(cases[i].source), .engines = SOURCES};
        gb_lua_vm_options_default(&script.vm);
        gb_lua_budgets_default(&script.budgets);
        script.budgets.hooks[GB_HOOK_SCORE] = gb_ms(20);
        counts = (gb_lua_counts){0};
        CHECK_EQ(gb_lua_policy_new(&policy, &script, &counts, &err), 0);
        CHECK_EQ(place(policy, cases[i].hook), GB_POLICY_FAULT);
        CHECK_CONTAINS(counts.last_fault, cases[i].why);
        CHECK_EQ(counts.faults, 1);    /* the first ends the decision */
        CHECK_EQ(counts.faults_by[cases[i].hook][cases[i].kind], 1);
        gb_lua_policy_free(policy);
    }
    tear_down();
}

static void views_show_nothing_after_the_decision(void)
{
    set_up();
    gb_lua_policy *policy = load("local kept\nreturn { api = 1, score_expert = function(layer, expert, ranks) kept = ranks end,\n"
                                 "select_engine = function() if kept then return kept.window.tokens[0] end end }");
    gb_tables tables;
    CHECK_EQ(gb_tables_init(&tables, &arena, SOURCES, 1), 0);
    CHECK_EQ(place(policy, GB_HOOK_SCORE), GB_POLICY_NIL);
    CHECK_EQ(gb_lua_policy_select(policy, &tables.request, &tables.engines, gb_seconds(3)), GB_POLICY_FAULT);
    CHECK_CONTAINS(counts.last_fault, "window.tokens[0]: there is nothing to index here");
    gb_lua_policy_free(policy);
    tear_down();
}

/* ---- in a host ---- */

static fake f;
static gb_server *server;
static gb_lua_host *host;

static void start(void)
{
    gb_server_options server_options;
    fake_options(&server_options);
    fake_init(&f, &server_options);
    CHECK_EQ(gb_server_new(&server, &server_options, &err), 0);
    CHECK_EQ(gb_lua_host_new(&host, server, 1, &err), 0);
    if (!host) exit(1);    /* there is nothing to test then */
    set_up();
}

static void stop(void)
{
    tear_down();
    gb_lua_host_free(host);
    host = NULL;
    gb_server_free(server);
    fake_deinit(&f);
}

static uint32_t activate(const char *source)
{
    uint32_t version = 0;
    CHECK_EQ(gb_lua_host_load(host, &version, NULL, "mine", "mine.lua", source, strlen(source), &err), 0);
    CHECK_EQ(gb_lua_host_switch(host, version, &(gb_lua_change){.now = gb_seconds(1)}, &err), 0);
    return version;
}

static void check_built_in_answer(void)
{
    int32_t answer[LAYERS * EXPERTS];
    memcpy(answer, r.rank_of, sizeof answer);
    gb_rearrange_built_in(&r);
    CHECK(memcmp(answer, r.rank_of, sizeof answer) == 0);
}

static void without_a_script_the_built_in_places(void)
{
    start();
    CHECK_EQ(gb_lua_host_place(host, &r, gb_seconds(1)), GB_POLICY_NIL);
    check_built_in_answer();
    stop();
}

static void a_fault_is_answered_by_the_built_in_and_three_of_them_are_a_quarantine(void)
{
    start();
    uint32_t version = activate(SCORE(FILL_SCORES "if gimbal.now() >= 1e11 and layer == 2 then error('no') end"));
    CHECK_EQ(gb_lua_host_place(host, &r, gb_seconds(99)), 0);
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SCORE), version);
        CHECK_EQ(gb_lua_host_place(host, &r, gb_seconds(100 + i)), GB_POLICY_FAULT);
        check_built_in_answer();
    }
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SCORE), 0);
    gb_server_stats stats;
    gb_server_stats_get(server, &stats);
    CHECK_EQ(stats.hooks[GB_HOOK_SCORE].calls, 4);
    CHECK_EQ(stats.hooks[GB_HOOK_SCORE].faults, 3);
    gb_lua_info info;
    CHECK_EQ(gb_lua_host_find(host, version, &info), 0);
    CHECK_EQ(info.state, GB_LUA_QUARANTINED);
    CHECK_CONTAINS(info.last_fault, "mine.lua:3: no");
    stop();
}

static void a_script_out_of_time_is_quarantined_at_once(void)
{
    if (strcmp(gb_lua_host_prepare(), "none") == 0) return;    /* no interrupts under this sanitizer */
    start();
    activate(COST("while gimbal.now() >= 1e11 do end " FILL_COSTS));
    CHECK_EQ(gb_lua_host_place(host, &r, gb_seconds(1)), 0);
    CHECK_EQ(gb_lua_host_place(host, &r, gb_seconds(100)), GB_POLICY_FAULT);
    check_built_in_answer();
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_COST), 0);
    CHECK_EQ(gb_lua_host_place(host, &r, gb_seconds(101)), GB_POLICY_NIL);
    stop();
}

static void a_fault_leaves_a_snapshot_that_fails_again_elsewhere(void)
{
    start();
    uint32_t version = activate(COST(FILL_COSTS "if gimbal.now() >= 1e11 and window.tokens[0] > 0 and layer == 2 then out.load[3] = -5 end"));
    traffic[0] = 17;
    CHECK_EQ(gb_rearrange_add_spare(&r, &arena, 3, &err), 0);
    CHECK_EQ(gb_lua_host_place(host, &r, gb_seconds(100)), GB_POLICY_FAULT);
    const gb_lua_snapshot *kept = gb_lua_log_snapshot(gb_lua_host_log(host), gb_lua_log_faults(gb_lua_host_log(host)));
    CHECK(kept != NULL);
    char *text = gb_lua_snapshot_write(kept);
    gb_lua_snapshot *copy = NULL;
    CHECK_EQ(gb_lua_snapshot_read(&copy, "snap.json", text, strlen(text), &err), 0);
    free(text);
    CHECK(copy->rearrangement.window.tokens[0] == 17);
    CHECK_EQ(copy->rearrangement.slots_per_rank, EXPERTS / RANKS + 3);
    CHECK(memcmp(copy->rearrangement.home, home, sizeof home) == 0);
    CHECK(copy->options.weights.beta == options.weights.beta);
    gb_lua_trial trial;
    CHECK_EQ(gb_lua_host_try(host, version, copy, &trial, &err), 0);
    CHECK_EQ(trial.answer, GB_POLICY_FAULT);
    CHECK_EQ(trial.fault_kind, GB_LUA_FAULT_RANGE);
    CHECK_CONTAINS(trial.fault, "out.load[3] = -5 in layer 2");
    gb_lua_snapshot_free(copy);
    stop();
}

static void snapshots_of_windows_that_make_no_sense_are_refused(void)
{
#define SNAP(window) "{\"gimbal_snapshot\": 1, \"now_ns\": 5, \"hook\": \"placement_cost\", \"window\": {\"id\": 1, " window "}, \
    \"weights\": {\"alpha\": 1, \"beta\": 1, \"gamma\": 1, \"imbalance\": \"max\"}}"
#define SIZES "\"layers\": 1, \"sources\": 1, \"experts\": 4, \"ranks\": 2"
    static const struct {
        const char *text, *why;
    } cases[] = {
        {SNAP("\"layers\": 0"), "window.layers must be a whole number of 1 to"},
        {SNAP("\"layers\": 4096, \"sources\": 512, \"experts\": 1024, \"ranks\": 2"), "too big for a snapshot"},
        {SNAP("\"layers\": 1, \"sources\": 1, \"experts\": 4, \"ranks\": 3"), "4 experts cannot be split evenly over 3 ranks"},
        {SNAP(SIZES ", \"tokens\": [1, 2]"), "window.tokens must be a list of 4 numbers"},
        {SNAP(SIZES ", \"tokens\": [1, 2, 3, -1]"), "window.tokens[3] is -1"},
        {SNAP(SIZES ", \"tokens\": [1, 2, 3, \"nan\"]"), "window.tokens[3] is nan"},
        {SNAP(SIZES ", \"tokens\": [1, 2, 3, 4], \"link_cost\": [0, -1]"), "cost of source 0 to rank 1 is -1"},
        {SNAP(SIZES ", \"tokens\": [1, 2, 3, 4], \"link_cost\": [0, 1], \"home\": [0, 0, 0, 1]"), "does not put 2 experts on each of 2 ranks"},
        {SNAP(SIZES ", \"tokens\": [1, 2, 3, 4], \"link_cost\": [0, 1], \"home\": [0, 0, 1, 2]"), "does not put 2 experts on each of 2 ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gb_lua_snapshot *s = NULL;
        CHECK(gb_lua_snapshot_read(&s, "snap.json", cases[i].text, strlen(cases[i].text), &err) != 0);
        CHECK_CONTAINS(err.text, cases[i].why);
        CHECK(s == NULL);
    }
}

static void one_script_places_at_a_time_and_a_rollback_brings_the_other_back(void)
{
    start();
    uint32_t costs = activate(COST(FILL_COSTS)), scores = activate(SCORE(FILL_SCORES));
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_COST), 0);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SCORE), scores);
    CHECK_EQ(gb_lua_host_rollback(host, &(gb_lua_change){0}, &err), 0);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_COST), costs);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SCORE), 0);
    CHECK_EQ(gb_lua_host_use_placement(host, "builtin", &err), 0);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_COST), 0);
    CHECK_EQ(gb_lua_host_use_placement(host, "mine", &err), 0);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SCORE), scores);
    CHECK(gb_lua_host_use_placement(host, "fcfs", &err) != 0);
    CHECK_CONTAINS(err.text, "it has neither score_expert nor placement_cost");
    stop();
}

TESTS(TEST(a_script_that_says_what_the_paper_says_places_as_the_built_in_greedy), TEST(score_expert_sees_the_ranks_as_they_fill),
      TEST(full_ranks_need_no_score_and_no_score_at_all_is_no_opinion), TEST(placement_cost_gives_the_numbers_that_the_search_works_on),
      TEST(a_layer_without_an_opinion_gets_the_built_in_numbers), TEST(placement_cost_may_give_the_slots_themselves),
      TEST(every_bad_answer_is_a_fault_with_its_sentence),
      TEST(views_show_nothing_after_the_decision), TEST(without_a_script_the_built_in_places),
      TEST(a_fault_is_answered_by_the_built_in_and_three_of_them_are_a_quarantine), TEST(a_script_out_of_time_is_quarantined_at_once),
      TEST(a_fault_leaves_a_snapshot_that_fails_again_elsewhere), TEST(snapshots_of_windows_that_make_no_sense_are_refused),
      TEST(one_script_places_at_a_time_and_a_rollback_brings_the_other_back))
