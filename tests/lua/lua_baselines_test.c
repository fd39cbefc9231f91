/* Placement baselines as shipped scripts, against the same rules in C. */
#include "bindings/lua/lua_desk.h"
#include "core/moe/eplb.h"
#include "tests/check.h"

enum { LAYERS = 3, SOURCES = 2, EXPERTS = 24, RANKS = 4, CELLS = LAYERS * SOURCES * EXPERTS };

static gb_arena arena;
static gb_solver solver;
static gb_solve_options options;
static gb_rearrangement r;
static gb_links links;
static gb_placement now, next, expected;
static double traffic[CELLS];
static int32_t home[LAYERS * EXPERTS];
static gb_error err;

static void set_up(uint32_t spare)
{
    gb_arena_init(&arena);
    options = gb_solve_defaults();
    CHECK_EQ(gb_solver_init(&solver, &arena, LAYERS, EXPERTS, RANKS, &err), 0);
    CHECK_EQ(gb_links_init(&links, &arena, SOURCES, RANKS, &err), 0);
    CHECK_EQ(gb_rearrange_init(&r, &arena, &solver, &options, SOURCES, &err), 0);
    CHECK_EQ(gb_rearrange_add_spare(&r, &arena, spare, &err), 0);
    gb_placement *placements[] = {&now, &next, &expected};
    for (int i = 0; i < 3; i++) CHECK_EQ(gb_placement_init(placements[i], &arena, LAYERS, SOURCES, EXPERTS, RANKS, spare, &err), 0);
    for (int i = 0; i < LAYERS * EXPERTS; i++) home[i] = i % EXPERTS / (EXPERTS / RANKS);
}

/* Few different counts, so that ties are met often; one expert far above the rest now and then. */
static void draw_window(gb_rng *rng)
{
    uint64_t most = gb_rng_below(rng, 2) ? 10000 : 5;
    for (int i = 0; i < CELLS; i++) traffic[i] = (double)gb_rng_below(rng, most);
    if (gb_rng_below(rng, 3) == 0) traffic[gb_rng_below(rng, CELLS)] = 1e6;
    gb_rearrange_pose(&r, traffic, &links, home, 1);
}

static void place(const char *name)
{
    gb_lua_desk *desk = NULL;
    CHECK_EQ(gb_lua_desk_open_shipped(&desk, name, SOURCES, &err), 0);
    CHECK_EQ(gb_lua_desk_place(desk, &r), 0);
    CHECK_STR(gb_lua_desk_fault(desk), "");
    gb_lua_desk_close(desk);
    gb_rearrange_settle(&r, &next, &now);
    CHECK_EQ(gb_placement_check(&next, &err), 0);
}

static void check_same(void)
{
    size_t routes = (size_t)LAYERS * SOURCES * EXPERTS;
    CHECK(memcmp(next.expert_of_slot, expected.expert_of_slot, (size_t)LAYERS * gb_placement_slots(&next) * sizeof *next.expert_of_slot) == 0);
    CHECK(memcmp(next.route, expected.route, routes * sizeof *next.route) == 0);
    CHECK(memcmp(next.other_share, expected.other_share, routes * sizeof *next.other_share) == 0);
}

static void eplb_lua_makes_the_copies_that_eplb_in_c_makes(void)
{
    gb_rng rng;
    gb_rng_init(&rng, 11);
    for (uint32_t spare = 1; spare <= 6; spare++) {
        set_up(spare);
        for (int round = 0; round < 20; round++) {
            draw_window(&rng);
            place("eplb");
            CHECK_EQ(gb_eplb_place(&expected, traffic, 1, 1, &err), 0);
            check_same();
        }
        gb_arena_deinit(&arena);
    }
}

static void eplb_lua_without_spare_slots_is_an_assignment_of_the_same_loads(void)
{
    gb_rng rng;
    gb_rng_init(&rng, 12);
    set_up(0);
    for (int round = 0; round < 20; round++) {
        draw_window(&rng);
        place("eplb");
        CHECK_EQ(gb_eplb_place(&expected, traffic, 1, 1, &err), 0);
        for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) {
            uint32_t l = i / EXPERTS, e = i % EXPERTS;
            CHECK_EQ(r.rank_of[i], gb_placement_rank_of_slot(&expected, gb_placement_routes(&expected, l, 0)[e]));
        }
    }
    gb_arena_deinit(&arena);
}

static void linear_lua_is_the_placement_at_start(void)
{
    gb_rng rng;
    gb_rng_init(&rng, 13);
    set_up(0);
    draw_window(&rng);
    for (int i = 0; i < LAYERS * EXPERTS; i++) home[i] = i % RANKS;
    place("linear");
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) CHECK_EQ(r.rank_of[i], i % EXPERTS / (EXPERTS / RANKS));
    gb_arena_deinit(&arena);
}

/* Each source has every second expert of a layer to itself, so its tokens could stay on two ranks. */
static void moetuner_lua_keeps_tokens_on_their_rank_and_ranks_balanced(void)
{
    set_up(0);
    memset(traffic, 0, sizeof traffic);
    for (int l = 0; l < LAYERS; l++)
        for (int s = 0; s < SOURCES; s++)
            for (int k = 0; k < EXPERTS / SOURCES; k++) traffic[(l * SOURCES + s) * EXPERTS + (s + SOURCES * k + 5 * l) % EXPERTS] = 100;
    gb_rearrange_pose(&r, traffic, &links, home, 1);
    place("moetuner");
    for (int l = 1; l < LAYERS; l++) {
        double stays = 0, all = 0, load[RANKS] = {0};
        for (int s = 0; s < SOURCES; s++) {
            const double *before = traffic + ((l - 1) * SOURCES + s) * EXPERTS, *here = traffic + (l * SOURCES + s) * EXPERTS;
            for (int i = 0; i < EXPERTS; i++)
                for (int j = 0; j < EXPERTS; j++) {
                    all += before[i] * here[j];
                    if (r.rank_of[(l - 1) * EXPERTS + i] == r.rank_of[l * EXPERTS + j]) stays += before[i] * here[j];
                }
            for (int e = 0; e < EXPERTS; e++) load[r.rank_of[l * EXPERTS + e]] += here[e];
        }
        for (int k = 0; k < RANKS; k++) CHECK_NEAR(load[k], EXPERTS * 100.0 / RANKS, 1e-9);
        CHECK(stays / all >= (l == 1 ? 0.25 : 0.49));    /* two ranks a source: half is the most */
    }
    gb_arena_deinit(&arena);
}

TESTS(TEST(eplb_lua_makes_the_copies_that_eplb_in_c_makes), TEST(eplb_lua_without_spare_slots_is_an_assignment_of_the_same_loads),
      TEST(linear_lua_is_the_placement_at_start), TEST(moetuner_lua_keeps_tokens_on_their_rank_and_ranks_balanced))
