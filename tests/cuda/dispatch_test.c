/* dispatch, permute, combine, commit: where rows go and how they come back. The map is a gb_placement. */
#include "tests/cuda/device.h"

#include <stdlib.h>

#include "core/flow/placement.h"

enum { ROWS_MAX = 700, HIDDEN = 2056 };    /* a block goes over 2048 at once */

/* A round of rows over one layer of a random placement with copies, and what the kernel made of it. */
typedef struct scene {
    gb_arena arena;
    gb_placement placement;
    uint32_t n, K, slots;
    int32_t *tokens, *positions, *engines, *experts;
    int32_t *slot, *grouped;            /* [n * K] */
    uint32_t *place, *offsets;
    uint32_t *sent, *received;
    gb_k_fault fault;
    gb_k_dispatch_args args;
} scene;

/* Some experts get a second slot in the spare ones, and sources that split their tokens between both. */
static void add_copies(gb_placement *p, gb_rng *rng)
{
    int32_t *slots = gb_placement_layer_slots(p, 0);
    for (uint32_t i = 0; i < gb_placement_slots(p); i++) {
        if (slots[i] >= 0) continue;
        uint32_t expert = (i / p->slots_per_rank * 3 + 5) % p->experts;
        if (gb_placement_rank_of_slot(p, p->route[expert]) == i / p->slots_per_rank) continue;
        slots[i] = (int32_t)expert;
        for (uint32_t s = 0; s < p->sources; s++) {
            size_t at = gb_placement_route_index(p, 0, s, expert);
            p->other[at] = (int32_t)i;
            p->other_share[at] = (uint16_t)gb_rng_below(rng, GB_SHARES);
        }
    }
}

static void make_scene(scene *s, uint32_t n, uint32_t K, uint32_t sources, uint32_t experts, uint32_t ranks, uint64_t seed)
{
    gb_rng rng;
    fresh_rng(&rng, seed);
    *s = (scene){.n = n, .K = K};
    gb_arena_init(&s->arena);
    CHECK_EQ(gb_placement_init(&s->placement, &s->arena, 1, sources, experts, ranks, 1, NULL), GB_OK);
    add_copies(&s->placement, &rng);
    CHECK_EQ(gb_placement_check(&s->placement, NULL), GB_OK);
    s->slots = gb_placement_slots(&s->placement);
    s->tokens = GB_ARENA_NEW(&s->arena, int32_t, n);
    s->positions = GB_ARENA_NEW(&s->arena, int32_t, n);
    s->engines = GB_ARENA_NEW(&s->arena, int32_t, n);
    s->experts = GB_ARENA_NEW(&s->arena, int32_t, n * K);
    s->slot = GB_ARENA_NEW(&s->arena, int32_t, n * K);
    s->grouped = GB_ARENA_NEW(&s->arena, int32_t, n * K);
    s->place = GB_ARENA_NEW(&s->arena, uint32_t, n * K);
    s->offsets = GB_ARENA_NEW(&s->arena, uint32_t, s->slots + 1);
    s->sent = GB_ARENA_NEW(&s->arena, uint32_t, sources * experts);
    s->received = GB_ARENA_NEW(&s->arena, uint32_t, ranks);
    for (uint32_t r = 0; r < n; r++) {
        s->tokens[r] = gb_rng_below(&rng, 9) ? (int32_t)gb_rng_below(&rng, 1000) : -1;
        s->positions[r] = (int32_t)gb_rng_below(&rng, 5000);
        s->engines[r] = (int32_t)gb_rng_below(&rng, sources);
        for (uint32_t k = 0; k < K; k++) {
            int32_t expert = (int32_t)(gb_rng_uniform(&rng) * gb_rng_uniform(&rng) * experts);    /* skewed */
            s->experts[r * K + k] = s->tokens[r] < 0 || gb_rng_below(&rng, 30) == 0 ? -1 : expert;
        }
    }
}

static void run(scene *s, uint32_t times)
{
    const gb_placement *p = &s->placement;
    size_t routes = (size_t)p->sources * p->experts;
    uint32_t *zeros = GB_ARENA_NEW(&s->arena, uint32_t, routes + s->slots + 1);
    s->args = (gb_k_dispatch_args){
        .slot_of_route = device_new(s->n * s->K, 4), .place_in_slot = device_new(s->n * s->K, 4), .offsets = device_new(s->slots + 1, 4),
        .sent = device_copy(zeros, routes, 4), .received = device_copy(zeros, p->ranks, 4), .work = device_copy(zeros, s->slots + 1, 4),
        .experts = device_copy(s->experts, s->n * s->K, 4),
        .map = {device_copy(p->route, routes, 4), device_copy(p->other, routes, 4), device_copy(p->other_share, routes, 2), p->sources, p->experts,
                p->ranks, s->slots},
        .rows = {.n = s->n, .tokens = device_copy(s->tokens, s->n, 4), .positions = device_copy(s->positions, s->n, 4),
                 .engines = device_copy(s->engines, s->n, 4)},
        .fault = fault_new(), .K = s->K,
    };
    for (uint32_t i = 0; i < times; i++) CHECK_EQ(gb_k_dispatch(&s->args, 0), GB_OK);
    device_read(s->slot, s->args.slot_of_route, s->n * s->K, 4);
    device_read(s->place, s->args.place_in_slot, s->n * s->K, 4);
    device_read(s->offsets, s->args.offsets, s->slots + 1, 4);
    device_read(s->sent, s->args.sent, routes, 4);
    device_read(s->received, s->args.received, p->ranks, 4);
    s->fault = fault_read(s->args.fault);
}

static void end_scene(scene *s)
{
    gb_arena_deinit(&s->arena);
    device_free_all();
}

/* Against the placement's own rule; groups are dense, disjoint and in the order of slots; sent and received are `times` rounds. */
static void check_scene(scene *s, uint32_t times)
{
    const gb_placement *p = &s->placement;
    uint32_t *sent = GB_ARENA_NEW(&s->arena, uint32_t, p->sources * p->experts), *fill = GB_ARENA_NEW(&s->arena, uint32_t, s->slots);
    bool *seen = GB_ARENA_NEW(&s->arena, bool, s->n * s->K);
    for (uint32_t a = 0; a < s->n * s->K; a++) {
        uint32_t row = a / s->K, source = (uint32_t)s->engines[row];
        int32_t expert = s->experts[a], slot = -1;
        if (expert >= 0) {
            uint64_t name = gb_mix64((uint64_t)s->positions[row] << 32 | (uint32_t)s->tokens[row]);
            slot = gb_placement_slot(p, 0, source, (uint32_t)expert, name);
            sent[source * p->experts + (uint32_t)expert]++;
            fill[slot]++;
        }
        CHECK_EQ(s->slot[a], slot);
        if (slot < 0) continue;
        uint32_t at = s->offsets[slot] + s->place[a];
        CHECK(at < s->offsets[slot + 1] && !seen[at]);
        seen[at] = true;
    }
    CHECK_EQ(s->offsets[0], 0);
    for (uint32_t slot = 0; slot < s->slots; slot++) CHECK_EQ(s->offsets[slot + 1] - s->offsets[slot], fill[slot]);
    for (uint32_t i = 0; i < p->sources * p->experts; i++) CHECK_EQ(s->sent[i], times * sent[i]);
    for (uint32_t rank = 0; rank < p->ranks; rank++) {
        uint32_t tokens = 0;
        for (uint32_t i = 0; i < p->slots_per_rank; i++) tokens += fill[rank * p->slots_per_rank + i];
        CHECK_EQ(s->received[rank], times * tokens);
    }
    CHECK_EQ(s->fault.kind, GB_K_FAULT_NONE);
}

static void routes_go_where_the_placement_says_and_are_counted_on_both_sides(void)
{
    scene s;
    make_scene(&s, 200, 8, 2, 128, 4, 1);
    run(&s, 1);
    check_scene(&s, 1);
    end_scene(&s);
}

static void several_blocks_share_the_slots_and_the_next_call_starts_clean(void)
{
    scene s;
    make_scene(&s, ROWS_MAX, 5, 3, 60, 2, 2);
    run(&s, 3);
    check_scene(&s, 3);
    end_scene(&s);
}

static void one_row_only_padding_and_no_rows_are_fine(void)
{
    scene s;
    make_scene(&s, 1, 2, 1, 8, 1, 3);
    run(&s, 1);
    check_scene(&s, 1);
    end_scene(&s);
    make_scene(&s, 4, 2, 1, 8, 2, 4);
    for (uint32_t r = 0; r < 4; r++) s.tokens[r] = -1;    /* experts that routers of padding rows did not clear */
    run(&s, 1);
    for (uint32_t a = 0; a < 8; a++) CHECK_EQ(s.slot[a], -1);
    for (uint32_t i = 0; i < 8; i++) CHECK_EQ(s.sent[i], 0);
    CHECK_EQ(s.offsets[s.slots], 0);
    end_scene(&s);
    make_scene(&s, 0, 2, 1, 8, 2, 5);
    run(&s, 1);
    check_scene(&s, 1);    /* no rows: groups are empty, and the offsets say so */
    end_scene(&s);
}

static void more_counters_than_shared_memory_go_to_global_memory(void)
{
    scene s;
    make_scene(&s, 150, 4, 13, 1000, 4, 5);
    run(&s, 1);
    check_scene(&s, 1);
    end_scene(&s);
}

static void experts_and_slots_that_do_not_exist_are_faults_and_go_nowhere(void)
{
    scene s;
    make_scene(&s, 6, 2, 1, 8, 2, 6);
    for (uint32_t r = 0; r < 6; r++) s.tokens[r] = 1;
    s.experts[5] = 8;
    run(&s, 1);
    CHECK_EQ(s.fault.kind, GB_K_FAULT_EXPERT);
    CHECK_EQ(s.fault.row, 2);
    CHECK_EQ(s.fault.value, 8);
    CHECK_EQ(s.slot[5], -1);
    s.experts[5] = -2;
    run(&s, 1);
    CHECK_EQ(s.fault.kind, GB_K_FAULT_EXPERT);
    CHECK_EQ(s.fault.value, -2);
    s.experts[5] = 3;
    s.placement.route[3] = 99;
    run(&s, 1);
    CHECK_EQ(s.fault.kind, GB_K_FAULT_SLOT);
    CHECK_EQ(s.fault.value, 99);
    end_scene(&s);
}

/* --- there and back --- */

static void there_and_back(uint32_t n, uint32_t K)
{
    scene s;
    make_scene(&s, n, K, 2, 12, 3, 7);
    run(&s, 1);
    uint16_t *h = GB_ARENA_NEW(&s.arena, uint16_t, s.n * HIDDEN), *grouped = GB_ARENA_NEW(&s.arena, uint16_t, s.n * s.K * HIDDEN);
    float *x = GB_ARENA_NEW(&s.arena, float, s.n * HIDDEN), *got = GB_ARENA_NEW(&s.arena, float, s.n * HIDDEN);
    float *weights = GB_ARENA_NEW(&s.arena, float, s.n * s.K);
    gb_rng rng;
    fresh_rng(&rng, 8);
    fill_bf16(h, s.n * HIDDEN, 1, &rng);
    fill_f32(x, s.n * HIDDEN, 1, &rng);
    fill_f32(weights, s.n * s.K, 1, &rng);
    gb_k_permute_args p = {.grouped = device_new(s.n * s.K * HIDDEN, 2), .grouped_of_route = device_new(s.n * s.K, 4),
                           .h = device_copy(h, s.n * HIDDEN, 2), .slot_of_route = s.args.slot_of_route, .place_in_slot = s.args.place_in_slot,
                           .offsets = s.args.offsets, .n = s.n, .K = s.K, .hidden = HIDDEN};
    gb_k_combine_args c = {.x = device_copy(x, s.n * HIDDEN, 4), .out = p.grouped, .grouped_of_route = p.grouped_of_route,
                           .weights = device_copy(weights, s.n * s.K, 4), .n = s.n, .K = s.K, .hidden = HIDDEN};
    CHECK_EQ(gb_k_permute(&p, 0), GB_OK);
    CHECK_EQ(gb_k_combine(&c, 0), GB_OK);
    device_read(grouped, p.grouped, s.n * s.K * HIDDEN, 2);
    device_read(s.grouped, p.grouped_of_route, s.n * s.K, 4);
    device_read(got, c.x, s.n * HIDDEN, 4);
    for (uint32_t r = 0; r < s.n; r++)
        for (uint32_t i = 0; i < HIDDEN; i++) {
            float want = x[r * HIDDEN + i];
            for (uint32_t k = 0; k < s.K; k++) {
                uint32_t a = r * s.K + k;
                if (s.grouped[a] < 0) continue;
                CHECK_EQ(grouped[(uint32_t)s.grouped[a] * HIDDEN + i], h[r * HIDDEN + i]);
                want = fmaf(weights[a], gb_bf16_to_f32(h[r * HIDDEN + i]), want);
            }
            CHECK_EQ(got[r * HIDDEN + i] == want, 1);
        }
    end_scene(&s);
}

static void permutation_and_combination_are_inverse_and_sums_keep_the_order_of_routes(void)
{
    there_and_back(12, 3);
    there_and_back(5, 11);    /* combine takes 8 routes at once */
}

static void a_dense_layer_combines_row_by_row(void)
{
    uint16_t out[2 * 8];
    float x[2 * 8], got[2 * 8];
    for (int i = 0; i < 16; i++) {
        x[i] = (float)i;
        out[i] = gb_f32_to_bf16((float)(8 * i));
    }
    gb_k_combine_args c = {.x = DEVICE_COPY(x), .out = DEVICE_COPY(out), .n = 2, .K = 1, .hidden = 8};
    CHECK_EQ(gb_k_combine(&c, 0), GB_OK);
    device_read(got, c.x, 16, 4);
    for (int i = 0; i < 16; i++) CHECK_NEAR(got[i], 9 * i, 0);
    device_free_all();
}

static void a_commit_copies_every_word_and_no_more(void)
{
    int32_t staged[300], live[300];
    for (int i = 0; i < 300; i++) staged[i] = i;
    gb_k_commit_args a = {.live = device_new(300, 4), .staged = DEVICE_COPY(staged), .words = 299};
    CHECK_EQ(gb_k_commit(&a, 0), GB_OK);
    device_read(live, a.live, 300, 4);
    for (int i = 0; i < 300; i++) CHECK_EQ(live[i], i < 299 ? i : -1);
    device_free_all();
}

static void shapes_that_do_not_fit_are_refused_and_no_rows_move_nothing(void)
{
    gb_k_dispatch_args d = {.map = {.sources = 1, .E = 8, .ranks = 3, .slots = 8}, .K = 2, .rows = {.n = 1}};
    CHECK_EQ(gb_k_dispatch(&d, 0), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "8 slots on 3 ranks");
    d.map.ranks = 2;
    d.map.E = GB_K_EXPERTS_MAX + 1;
    CHECK_EQ(gb_k_dispatch(&d, 0), GB_EINVAL);
    d.map.E = 8;
    d.rows.n = 0x7fffffff;
    CHECK_EQ(gb_k_dispatch(&d, 0), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "too many");
    gb_k_permute_args p = {.n = 1, .K = 1, .hidden = 12};
    CHECK_EQ(gb_k_permute(&p, 0), GB_EINVAL);
    p = (gb_k_permute_args){.n = 1, .K = GB_K_TOP_MAX + 1, .hidden = 8};
    CHECK_EQ(gb_k_permute(&p, 0), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "33 routes");
    p = (gb_k_permute_args){.K = 1, .hidden = 8};
    CHECK_EQ(gb_k_permute(&p, 0), GB_OK);
    gb_k_combine_args c = {.n = 1, .K = 1, .hidden = 7};
    CHECK_EQ(gb_k_combine(&c, 0), GB_EINVAL);
    c = (gb_k_combine_args){.K = 1, .hidden = 8};
    CHECK_EQ(gb_k_combine(&c, 0), GB_OK);
    gb_k_commit_args m = {.words = 1};
    CHECK_EQ(gb_k_commit(&m, 0), GB_EINVAL);
}

TESTS(TEST(routes_go_where_the_placement_says_and_are_counted_on_both_sides), TEST(several_blocks_share_the_slots_and_the_next_call_starts_clean),
      TEST(one_row_only_padding_and_no_rows_are_fine), TEST(more_counters_than_shared_memory_go_to_global_memory),
      TEST(experts_and_slots_that_do_not_exist_are_faults_and_go_nowhere),
      TEST(permutation_and_combination_are_inverse_and_sums_keep_the_order_of_routes), TEST(a_dense_layer_combines_row_by_row),
      TEST(a_commit_copies_every_word_and_no_more), TEST(shapes_that_do_not_fit_are_refused_and_no_rows_move_nothing))
