/* Migrations over a memory of bytes: every place holds the name of its expert, byte by byte, so that half a copy is seen. */
#include "core/moe/migrate.h"

#include "core/base/rng.h"
#include "core/moe/route.h"
#include "core/moe/trade.h"
#include "tests/check.h"

enum { LAYERS = 3, SOURCES = 2, EXPERTS = 12, RANKS = 4, SPARE_MAX = 2, BYTES = 10, PLACES_MAX = EXPERTS + RANKS * (SPARE_MAX + 1) };

typedef struct bed {
    gb_arena arena;
    gb_placement live, to;
    gb_migrate migrate;
    gb_migrate_options options;
    gb_rng rng;
    gb_copy_list list;
    unsigned char memory[LAYERS][PLACES_MAX][BYTES];
} bed;

static bed b;

static unsigned char byte_of(uint32_t layer, uint32_t expert, uint32_t i) { return (unsigned char)(1 + layer * 50 + expert * 3 + i); }

static void start(bool private_ranks, uint32_t spare)
{
    memset(&b, 0, sizeof b);
    gb_arena_init(&b.arena);
    gb_rng_init(&b.rng, 11);
    CHECK_EQ(gb_placement_init(&b.live, &b.arena, LAYERS, SOURCES, EXPERTS, RANKS, spare, NULL), GB_OK);
    CHECK_EQ(gb_placement_init(&b.to, &b.arena, LAYERS, SOURCES, EXPERTS, RANKS, spare, NULL), GB_OK);
    b.options = (gb_migrate_options){.private_ranks = private_ranks, .expert_bytes = BYTES, .list_bytes = 4, .stalled_after = gb_ms(100)};
    CHECK_EQ(gb_migrate_init(&b.migrate, &b.arena, &b.live, &b.options, NULL), GB_OK);
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t s = 0; s < gb_placement_slots(&b.live); s++) {
            int32_t e = gb_placement_layer_slots(&b.live, l)[s], place = gb_placement_layer_places(&b.live, l)[s];
            for (uint32_t i = 0; e >= 0 && i < BYTES; i++) b.memory[l][place][i] = byte_of(l, (uint32_t)e, i);
        }
    gb_placement_copy(&b.to, &b.live);
}

static void stop(void) { gb_arena_deinit(&b.arena); }

static void copy(void)
{
    CHECK(b.options.private_ranks);
    for (uint32_t i = 0; i < b.list.n; i++) {
        const gb_copy *c = &b.list.copies[i];
        CHECK(c->bytes >= 1 && c->offset + c->bytes <= BYTES && c->from != c->to);
        memcpy(b.memory[c->layer][c->to] + c->offset, b.memory[c->layer][c->from] + c->offset, c->bytes);
    }
}

static bool holds(uint32_t layer, int32_t slot, uint32_t expert)
{
    const unsigned char *bytes = b.memory[layer][gb_placement_layer_places(&b.live, layer)[slot]];
    for (uint32_t i = 0; i < BYTES; i++)
        if (bytes[i] != byte_of(layer, expert, i)) return false;
    return true;
}

/* Every source finds every expert, whole, at both of its slots. */
static void check_all_live(void)
{
    CHECK(gb_migrate_is_sound(&b.migrate));
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t s = 0; s < SOURCES; s++)
            for (uint32_t e = 0; e < EXPERTS; e++) {
                size_t i = gb_placement_route_index(&b.live, l, s, e);
                CHECK(holds(l, b.live.route[i], e));
                if (b.live.other[i] >= 0) CHECK(holds(l, b.live.other[i], e));
            }
}

static bool same_map(const gb_placement *a, const gb_placement *c)
{
    size_t routes = (size_t)LAYERS * SOURCES * EXPERTS, slots = (size_t)LAYERS * gb_placement_slots(a);
    return memcmp(a->expert_of_slot, c->expert_of_slot, slots * sizeof *a->expert_of_slot) == 0 &&
           memcmp(a->route, c->route, routes * sizeof *a->route) == 0 && memcmp(a->other, c->other, routes * sizeof *a->other) == 0;
}

/* One event of a migration: copies go out, come back, or a border comes. False when there was none. */
static bool advance(gb_time now)
{
    if (gb_migrate_poll(&b.migrate, &b.list)) return true;
    if (b.migrate.out) {
        copy();
        gb_migrate_copied(&b.migrate, GB_OK, now);
        return true;
    }
    return gb_migrate_flip(&b.migrate, now);
}

static uint32_t run_to_the_end(void)
{
    uint32_t events = 0;
    while (advance(0)) {
        check_all_live();
        events++;
    }
    return events;
}

static void trade_some(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) gb_trade_at_random(&b.to, &b.rng);
}

/* Random homes, copies and shares of them: everything that a solver may ask for. */
static void deal(void)
{
    for (uint32_t l = 0; l < LAYERS; l++) {
        int32_t *slots = gb_placement_layer_slots(&b.to, l), order[EXPERTS];
        uint32_t per = EXPERTS / RANKS;
        for (uint32_t e = 0; e < EXPERTS; e++) order[e] = (int32_t)e;
        for (uint32_t e = EXPERTS - 1; e > 0; e--) {
            uint32_t j = (uint32_t)gb_rng_below(&b.rng, e + 1);
            int32_t t = order[e];
            order[e] = order[j], order[j] = t;
        }
        for (uint32_t i = 0; i < gb_placement_slots(&b.to); i++) slots[i] = -1;
        for (uint32_t e = 0; e < EXPERTS; e++) slots[e / per * b.to.slots_per_rank + e % per] = order[e];
        for (uint32_t i = 0; i < gb_placement_slots(&b.to); i++) {
            int32_t extra = (int32_t)gb_rng_below(&b.rng, EXPERTS);
            uint32_t first = i - i % b.to.slots_per_rank;
            bool there = false;
            for (uint32_t k = first; k < first + b.to.slots_per_rank; k++) there |= slots[k] == extra;
            if (slots[i] < 0 && !there) slots[i] = extra;
        }
        double flow[SOURCES * EXPERTS];
        for (uint32_t i = 0; i < SOURCES * EXPERTS; i++) flow[i] = (double)gb_rng_below(&b.rng, 100);
        gb_route_evenly(&b.to, l, flow);
    }
    CHECK_EQ(gb_placement_check(&b.to, NULL), GB_OK);
}

/* --- the way through --- */

static void two_experts_trade_ranks_by_way_of_the_spare_places(void)
{
    start(true, 0);
    int32_t place_0 = gb_placement_layer_places(&b.live, 1)[0], place_11 = gb_placement_layer_places(&b.live, 1)[11];
    gb_trade_slots(&b.to, 1, 0, 11);
    b.options.list_bytes = BYTES;
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, NULL), GB_OK);
    CHECK_EQ(gb_migrate_state_of(&b.migrate), GB_MIGRATE_COPYING);
    CHECK_EQ(gb_migrate_stats_of(&b.migrate).moves_left, 2);
    while (gb_migrate_state_of(&b.migrate) != GB_MIGRATE_READY) {
        CHECK(!gb_migrate_flip(&b.migrate, 0));
        CHECK(gb_migrate_poll(&b.migrate, &b.list));
        for (uint32_t i = 0; i < b.list.n; i++) {
            CHECK_EQ(b.list.copies[i].layer, 1);
            CHECK(b.list.copies[i].to == EXPERTS || b.list.copies[i].to == EXPERTS + 3);    /* the spare places of ranks 0 and 3 */
        }
        copy();
        gb_migrate_copied(&b.migrate, GB_OK, 0);
    }
    CHECK_EQ(b.live.version, 1);
    CHECK(gb_migrate_flip(&b.migrate, 0));
    CHECK_EQ(gb_migrate_state_of(&b.migrate), GB_MIGRATE_IDLE);
    CHECK_EQ(b.live.version, 2);
    CHECK_EQ(gb_placement_layer_places(&b.live, 1)[0], EXPERTS);
    CHECK_EQ(b.migrate.spare[RANKS], place_0);
    CHECK_EQ(b.migrate.spare[RANKS + 3], place_11);
    check_all_live();
    gb_migrate_stats stats = gb_migrate_stats_of(&b.migrate);
    CHECK_EQ(stats.done, 1);
    CHECK_EQ(stats.experts_moved, 2);
    CHECK_EQ(stats.bytes_moved, 2 * BYTES);
    CHECK_EQ(stats.moves_left, 0);
    stop();
}

static void a_list_carries_no_more_bytes_than_allowed_and_one_is_out_at_a_time(void)
{
    start(true, 0);
    trade_some(3);
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, NULL), GB_OK);
    gb_copy_list second;
    while (gb_migrate_state_of(&b.migrate) != GB_MIGRATE_IDLE) {
        if (gb_migrate_poll(&b.migrate, &b.list)) {
            uint64_t bytes = 0;
            for (uint32_t i = 0; i < b.list.n; i++) bytes += b.list.copies[i].bytes;
            CHECK(bytes <= b.options.list_bytes);
            CHECK(!gb_migrate_poll(&b.migrate, &second));
            copy();
            gb_migrate_copied(&b.migrate, GB_OK, 0);
        }
        gb_migrate_flip(&b.migrate, 0);
    }
    CHECK(same_map(&b.live, &b.migrate.to));
    stop();
}

static void any_placement_is_reached_and_every_expert_lives_all_the_way(void)
{
    for (uint32_t spare = 0; spare <= SPARE_MAX; spare++)
        for (int shared = 0; shared < 2; shared++) {
            start(!shared, spare);
            for (int i = 0; i < 20 && check_failures == 0; i++) {
                deal();
                CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, NULL), GB_OK);
                run_to_the_end();
                CHECK(same_map(&b.live, &b.migrate.to));
                for (uint32_t l = 0; l < LAYERS; l++)    /* slots of a rank may have changed places, experts not their rank */
                    for (uint32_t s = 0; s < gb_placement_slots(&b.to); s++) {
                        int32_t e = gb_placement_layer_slots(&b.to, l)[s], found = 0;
                        uint32_t first = s - s % b.to.slots_per_rank;
                        for (uint32_t k = first; k < first + b.to.slots_per_rank; k++) found += gb_placement_layer_slots(&b.live, l)[k] == e;
                        CHECK(found > 0);
                    }
            }
            CHECK_EQ(gb_migrate_stats_of(&b.migrate).done, 20);
            CHECK(shared == (gb_migrate_stats_of(&b.migrate).bytes_moved == 0));
            stop();
        }
}

static void ranks_that_share_memory_flip_at_the_first_border(void)
{
    start(false, 0);
    trade_some(4);
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, NULL), GB_OK);
    CHECK(!gb_migrate_poll(&b.migrate, &b.list));
    CHECK(gb_migrate_flip(&b.migrate, 0));
    CHECK_EQ(gb_migrate_state_of(&b.migrate), GB_MIGRATE_IDLE);
    CHECK(same_map(&b.live, &b.migrate.to));
    check_all_live();
    stop();
}

static void routes_alone_change_at_the_first_border(void)
{
    start(true, 1);
    gb_placement_layer_slots(&b.to, 0)[7] = 0;    /* a copy of expert 0 on rank 1 */
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, NULL), GB_OK);
    run_to_the_end();
    gb_placement_routes(&b.to, 0, 1)[0] = 7;
    uint64_t moved = gb_migrate_stats_of(&b.migrate).experts_moved;
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, NULL), GB_OK);
    CHECK_EQ(gb_migrate_state_of(&b.migrate), GB_MIGRATE_READY);
    CHECK(gb_migrate_flip(&b.migrate, 0));
    CHECK_EQ(gb_placement_routes(&b.live, 0, 1)[0], 7);
    CHECK_EQ(gb_migrate_stats_of(&b.migrate).experts_moved, moved);
    check_all_live();
    stop();
}

static void steps_of_a_plan_become_live_in_its_order(void)
{
    start(true, 0);
    gb_plan plan;
    CHECK_EQ(gb_plan_init(&plan, &b.arena, &b.live), GB_OK);
    trade_some(1);
    gb_plan_align(&b.to, &b.live);
    gb_plan_build(&plan, &b.live, &b.to);
    CHECK_EQ(plan.steps, LAYERS);
    gb_plan_sort(&plan, (double[]){1, 2, 3});    /* the last layer first */
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, &plan, 0, NULL), GB_OK);
    while (!gb_migrate_flip(&b.migrate, 0)) advance(0);
    CHECK_EQ(gb_migrate_stats_of(&b.migrate).experts_moved, 2);
    CHECK(memcmp(gb_placement_layer_slots(&b.live, 2), gb_placement_layer_slots(&b.to, 2), EXPERTS * sizeof(int32_t)) == 0);
    CHECK(memcmp(gb_placement_layer_slots(&b.live, 0), gb_placement_layer_slots(&b.to, 0), EXPERTS * sizeof(int32_t)) != 0);
    run_to_the_end();
    CHECK(same_map(&b.live, &b.migrate.to));
    stop();
}

/* --- what goes wrong --- */

typedef enum mishap { CANCEL, STALL, FAILED_COPY, LOST_COPY, MISHAPS } mishap;

/* Events of a migration until something happens to it; then another one goes all the way. */
static void break_after(uint32_t events, mishap what, uint32_t spare)
{
    start(true, spare);
    deal();
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, NULL), GB_OK);
    for (uint32_t i = 0; i < events; i++) CHECK(advance(0));
    if (what == CANCEL) gb_migrate_cancel(&b.migrate);
    if (what == STALL) CHECK(gb_migrate_tick(&b.migrate, gb_ms(100)));
    if (what > STALL && !b.migrate.out && !gb_migrate_poll(&b.migrate, &b.list)) what = CANCEL;
    if (what == FAILED_COPY) b.list.n = b.list.n / 2;    /* some pieces arrive, some do not */
    if (what == FAILED_COPY) copy();
    check_all_live();
    uint32_t version = b.live.version;
    if (b.migrate.out) gb_migrate_copied(&b.migrate, what > STALL ? GB_EIO : GB_OK, 0);
    if (what > STALL) CHECK_EQ(gb_migrate_stats_of(&b.migrate).failed, 1);
    gb_migrate_cancel(&b.migrate);
    CHECK_EQ(gb_migrate_state_of(&b.migrate), GB_MIGRATE_IDLE);
    CHECK(!gb_migrate_flip(&b.migrate, 0));
    CHECK_EQ(b.live.version, version);
    check_all_live();
    deal();
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, NULL), GB_OK);
    run_to_the_end();
    CHECK(same_map(&b.live, &b.migrate.to));
    stop();
}

static void a_migration_that_breaks_between_any_two_events_leaves_every_expert_alive(void)
{
    for (uint32_t spare = 0; spare <= 1; spare++) {
        start(true, spare);
        deal();
        CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, NULL), GB_OK);
        uint32_t events = run_to_the_end();
        stop();
        CHECK(events > 20);
        for (uint32_t i = 0; i < events; i++)
            for (int what = 0; what < MISHAPS && check_failures == 0; what++) break_after(i, (mishap)what, spare);
    }
}

static void a_cancelled_migration_waits_for_its_copies_before_another_begins(void)
{
    gb_error err = {{0}};
    start(true, 0);
    trade_some(1);
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, NULL), GB_OK);
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, &err), GB_EFULL);
    CHECK_CONTAINS(err.text, "a migration is running");
    CHECK(gb_migrate_poll(&b.migrate, &b.list));
    gb_migrate_cancel(&b.migrate);
    gb_migrate_cancel(&b.migrate);
    CHECK_EQ(gb_migrate_stats_of(&b.migrate).cancelled, 1);
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, NULL), GB_EFULL);
    gb_migrate_copied(&b.migrate, GB_OK, 0);
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, NULL), GB_OK);
    stop();
}

static void a_migration_that_stalls_is_cancelled_and_counted(void)
{
    start(true, 0);
    trade_some(1);
    CHECK_EQ(gb_migrate_deadline(&b.migrate), GB_NEVER);
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, gb_ms(10), NULL), GB_OK);
    CHECK_EQ(gb_migrate_deadline(&b.migrate), gb_ms(110));
    CHECK(gb_migrate_poll(&b.migrate, &b.list));
    copy();
    gb_migrate_copied(&b.migrate, GB_OK, gb_ms(60));    /* progress */
    CHECK_EQ(gb_migrate_deadline(&b.migrate), gb_ms(160));
    CHECK(gb_migrate_poll(&b.migrate, &b.list));
    CHECK(!gb_migrate_tick(&b.migrate, gb_ms(159)));
    CHECK(gb_migrate_tick(&b.migrate, gb_ms(160)));
    CHECK_EQ(gb_migrate_state_of(&b.migrate), GB_MIGRATE_IDLE);
    CHECK_EQ(gb_migrate_deadline(&b.migrate), GB_NEVER);
    CHECK(!gb_migrate_tick(&b.migrate, gb_ms(500)));
    gb_migrate_stats stats = gb_migrate_stats_of(&b.migrate);
    CHECK_EQ(stats.stalled, 1);
    CHECK_EQ(stats.cancelled, 0);
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, gb_ms(510), NULL), GB_EFULL);    /* its copies are still out */
    copy();
    gb_migrate_copied(&b.migrate, GB_OK, gb_ms(600));
    check_all_live();
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, gb_ms(610), NULL), GB_OK);
    run_to_the_end();
    CHECK(same_map(&b.live, &b.migrate.to));
    stop();
}

static void what_is_not_valid_or_leads_elsewhere_is_refused_and_nothing_changes(void)
{
    gb_error err = {{0}};
    gb_placement other;
    gb_plan plan;
    start(true, 0);
    CHECK_EQ(gb_placement_init(&other, &b.arena, LAYERS, SOURCES, EXPERTS, 2, 0, NULL), GB_OK);
    CHECK_EQ(gb_migrate_start(&b.migrate, &other, NULL, 0, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "another shape");
    gb_placement_layer_slots(&b.to, 1)[3] = 0;
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, NULL, 0, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "layer 1");
    gb_placement_copy(&b.to, &b.live);
    CHECK_EQ(gb_plan_init(&plan, &b.arena, &b.live), GB_OK);
    gb_trade_slots(&b.to, 0, 0, 11);
    gb_plan_build(&plan, &b.live, &b.to);
    const gb_move good[2] = {plan.moves[0], plan.moves[1]};
    const gb_move bad[][2] = {
        {good[0], {0, 0, good[1].expert, 5, good[1].to}},              /* from where the expert is not */
        {good[0], {0, 0, good[1].expert, good[1].from, 4}},            /* to another slot */
        {good[0], {0, 1, good[1].expert, good[1].from, good[1].to}},   /* another layer in the same step */
        {good[0], {0, LAYERS, 0, 0, 1}}, {good[0], {0, 0, EXPERTS, 0, 1}}, {good[0], {0, 0, 0, 0, EXPERTS}},
        {good[0], {1, 0, good[1].expert, good[1].from, good[1].to}},   /* two steps: the first overwrites the second's expert */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memcpy(plan.moves, bad[i], sizeof bad[i]);
        plan.n = 2;
        CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, &plan, 0, &err), GB_EINVAL);
        CHECK_CONTAINS(err.text, "does not lead");
        CHECK_EQ(gb_migrate_state_of(&b.migrate), GB_MIGRATE_IDLE);
    }
    memcpy(plan.moves, good, sizeof good);
    CHECK_EQ(gb_migrate_start(&b.migrate, &b.to, &plan, 0, NULL), GB_OK);
    run_to_the_end();
    stop();
}

TESTS(TEST(two_experts_trade_ranks_by_way_of_the_spare_places),
      TEST(a_list_carries_no_more_bytes_than_allowed_and_one_is_out_at_a_time),
      TEST(any_placement_is_reached_and_every_expert_lives_all_the_way), TEST(ranks_that_share_memory_flip_at_the_first_border),
      TEST(routes_alone_change_at_the_first_border), TEST(steps_of_a_plan_become_live_in_its_order),
      TEST(a_migration_that_breaks_between_any_two_events_leaves_every_expert_alive),
      TEST(a_cancelled_migration_waits_for_its_copies_before_another_begins),
      TEST(a_migration_that_stalls_is_cancelled_and_counted),
      TEST(what_is_not_valid_or_leads_elsewhere_is_refused_and_nothing_changes))
