/* Ranks that play together, all on one device: what a layer adds to each row must have the same bits whether one rank does all the work or
   four share it, whichever way tokens travel. The collectives of NCCL are copies here, and the barrier between ranks is the order of the
   only stream. */
#include "tests/cuda/device.h"

#include <stdlib.h>

#include "core/flow/placement.h"

enum { RANKS = 4, EXPERTS = 16, PER_RANK = 5, SLOTS = RANKS * PER_RANK, K = 3, HIDDEN = 72, WIDTH = 40, PROCESSORS = 2, VERSION = 9 };
enum { RANK_ROWS = 40, ROWS = RANKS * RANK_ROWS, ROUTES = ROWS * K, STRIDE = RANK_ROWS * K };
enum { HEADER_WORDS = PER_RANK + GB_K_HEADER_WORDS, PLACE = 3 * WIDTH * HIDDEN };

/* A layer, the rows of all ranks one behind the other (rank i's are first[i] .. first[i + 1] - 1), and what one rank alone makes of them. */
typedef struct world {
    gb_arena arena;
    gb_placement placement;
    uint32_t first[RANKS + 1];
    int32_t tokens[ROWS], positions[ROWS], engines[ROWS], experts[ROUTES];
    float weights[ROUTES], x[ROWS * HIDDEN];
    uint16_t h[ROWS * HIDDEN];
    const int32_t *place_of_slot;      /* device, as all below */
    const uint16_t *pool;
    const uint32_t *version;
    gb_k_map map;
    gb_k_fault *fault;
    float alone[ROWS * HIDDEN];
    uint32_t sent[RANKS * EXPERTS], received[RANKS];
} world;

/* A rank, or whoever computes its rows: what dispatch writes about them. */
typedef struct seat {
    uint32_t row, n;                   /* of the world's rows */
    float *x;
    const uint16_t *h;
    const float *weights;
    int32_t *slot, *grouped_of_route;
    uint32_t *place, *offsets, *sent, *received, *arrived;    /* arrived: [1] tokens that the receiver counted */
} seat;

static void *zeros(size_t words)
{
    static const uint32_t nothing[RANKS * EXPERTS];
    return device_copy(nothing, words, 4);
}

/* --- the world --- */

static void add_copies(gb_placement *p, gb_rng *rng)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        uint32_t slot = rank * PER_RANK + PER_RANK - 1, expert = (rank * 4 + 7) % EXPERTS;    /* of the next rank but one */
        p->expert_of_slot[slot] = (int32_t)expert;
        for (uint32_t source = 0; source < RANKS; source++) {
            size_t at = gb_placement_route_index(p, 0, source, expert);
            p->other[at] = (int32_t)slot;
            p->other_share[at] = (uint16_t)gb_rng_below(rng, GB_SHARES);
        }
    }
}

/* One row in eight is padding with experts that nobody cleared; some routes lead nowhere. Every row asks for the hot expert, if any. */
static void make_rows(world *w, int32_t hot, gb_rng *rng)
{
    for (uint32_t row = 0; row < w->first[RANKS]; row++) {
        w->tokens[row] = gb_rng_below(rng, 8) ? (int32_t)gb_rng_below(rng, 1000) : -1;
        w->positions[row] = (int32_t)gb_rng_below(rng, 5000);
        int32_t expert = (int32_t)gb_rng_below(rng, EXPERTS);
        for (uint32_t k = 0; k < K; k++) {
            w->experts[row * K + k] = gb_rng_below(rng, 20) ? (expert + 5 * (int32_t)k) % EXPERTS : -1;
            if (k == 0 && hot >= 0) w->experts[row * K] = expert = hot;
        }
    }
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (uint32_t row = w->first[rank]; row < w->first[rank + 1]; row++) w->engines[row] = (int32_t)rank;
    fill_f32(w->weights, ROUTES, 0.5f, rng);
    fill_f32(w->x, ROWS * HIDDEN, 1, rng);
    fill_bf16(w->h, ROWS * HIDDEN, 1, rng);
}

static void make_tables(world *w, gb_rng *rng)
{
    gb_placement *p = &w->placement;
    uint16_t *pool = malloc((size_t)EXPERTS * PLACE * 2);
    fill_bf16(pool, (size_t)EXPERTS * PLACE, 0.2f, rng);
    w->pool = device_copy(pool, (size_t)EXPERTS * PLACE, 2);
    free(pool);
    w->place_of_slot = device_copy(p->expert_of_slot, SLOTS, 4);    /* place i holds expert i, whoever computes it */
    w->version = device_copy(&(uint32_t){VERSION}, 1, 4);
    w->fault = fault_new();
    w->map = (gb_k_map){device_copy(p->route, RANKS * EXPERTS, 4), device_copy(p->other, RANKS * EXPERTS, 4),
                        device_copy(p->other_share, RANKS * EXPERTS, 2), RANKS, EXPERTS, RANKS, SLOTS};
}

static seat take_seat(const world *w, uint32_t row, uint32_t n)
{
    return (seat){.row = row, .n = n, .x = device_copy(w->x + row * HIDDEN, n * HIDDEN, 4), .h = device_copy(w->h + row * HIDDEN, n * HIDDEN, 2),
                  .weights = device_copy(w->weights + row * K, n * K, 4), .slot = device_new(n * K, 4), .grouped_of_route = device_new(n * K, 4),
                  .place = device_new(n * K, 4), .offsets = device_new(SLOTS + 1, 4), .sent = zeros(RANKS * EXPERTS), .received = zeros(RANKS),
                  .arrived = zeros(1)};
}

static void take_seats(const world *w, seat seats[RANKS])
{
    for (uint32_t i = 0; i < RANKS; i++) seats[i] = take_seat(w, w->first[i], w->first[i + 1] - w->first[i]);
}

/* --- steps that all ways have --- */

static void dispatch(const world *w, const seat *s)
{
    gb_k_dispatch_args a = {
        .slot_of_route = s->slot, .place_in_slot = s->place, .offsets = s->offsets, .sent = s->sent, .received = s->received,
        .work = zeros(SLOTS + 1), .experts = device_copy(w->experts + s->row * K, s->n * K, 4), .map = w->map,
        .rows = {.n = s->n, .tokens = device_copy(w->tokens + s->row, s->n, 4), .positions = device_copy(w->positions + s->row, s->n, 4),
                 .engines = device_copy(w->engines + s->row, s->n, 4)},
        .fault = w->fault, .K = K,
    };
    CHECK_EQ(gb_k_dispatch(&a, 0), GB_OK);
}

static uint16_t *permute(const uint16_t *h, const int32_t *slot, const uint32_t *place, const uint32_t *offsets, int32_t *grouped_of_route,
                         uint32_t n)
{
    gb_k_permute_args a = {.grouped = device_new(n * K * HIDDEN, 2), .grouped_of_route = grouped_of_route, .h = h, .slot_of_route = slot,
                           .place_in_slot = place, .offsets = offsets, .n = n, .K = K, .hidden = HIDDEN};
    CHECK_EQ(gb_k_permute(&a, 0), GB_OK);
    return a.grouped;
}

static uint16_t *compute(const world *w, const uint16_t *in, const uint32_t *offsets, uint32_t first_slot, uint32_t slots, uint32_t max_rows)
{
    gb_k_experts_args a = {.out = device_new(max_rows * WIDTH, 2), .in = in, .offsets = offsets, .fault = w->fault, .max_rows = max_rows,
                           .processors = PROCESSORS, .pool = {w->pool, w->place_of_slot + first_slot, EXPERTS, slots, HIDDEN, WIDTH}};
    CHECK_EQ(gb_k_experts_gate_up(&a, 0), GB_OK);
    a.in = a.out;
    a.out = device_new(max_rows * HIDDEN, 2);
    CHECK_EQ(gb_k_experts_down(&a, 0), GB_OK);
    return a.out;
}

static void combine(const seat *s, const uint16_t *out, const int32_t *grouped_of_route)
{
    gb_k_combine_args a = {.x = s->x, .out = out, .grouped_of_route = grouped_of_route, .weights = s->weights, .n = s->n, .K = K, .hidden = HIDDEN};
    CHECK_EQ(gb_k_combine(&a, 0), GB_OK);
}

static void run_alone(world *w)
{
    uint32_t n = w->first[RANKS];
    seat s = take_seat(w, 0, n);
    dispatch(w, &s);
    const uint16_t *grouped = permute(s.h, s.slot, s.place, s.offsets, s.grouped_of_route, n);
    combine(&s, compute(w, grouped, s.offsets, 0, SLOTS, n * K), s.grouped_of_route);
    device_read(w->alone, s.x, n * HIDDEN, 4);
    device_read(w->sent, s.sent, RANKS * EXPERTS, 4);
    device_read(w->received, s.received, RANKS, 4);
}

/* --- all-gather, reduce-scatter --- */

/* The sum of the ranks' outs for the routes from `route` on, as a reduce-scatter in bfloat16 adds them. */
static uint16_t *reduce(uint16_t *const *outs, uint32_t route, uint32_t routes)
{
    static uint16_t sum[STRIDE * HIDDEN], part[STRIDE * HIDDEN];
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        device_read(rank ? part : sum, outs[rank] + route * HIDDEN, routes * HIDDEN, 2);
        for (uint32_t i = 0; rank && i < routes * HIDDEN; i++)
            sum[i] = gb_f32_to_bf16(gb_bf16_to_f32(sum[i]) + gb_bf16_to_f32(part[i]));
    }
    return device_copy(sum, routes * HIDDEN, 2);
}

/* Everybody's h and slots lie behind each other, RANK_ROWS of each rank; the rest keeps what device_new filled in: no slot, NaN. */
static uint16_t *agrs_rank(const world *w, const seat *s, uint32_t rank, const uint16_t *all_h, const int32_t *all_slots)
{
    gb_k_arrive_args a = {.own_slot_of_route = device_new(ROUTES, 4), .place_in_slot = device_new(ROUTES, 4), .offsets = device_new(PER_RANK + 1, 4),
                          .received = s->arrived, .work = zeros(PER_RANK + 1), .slot_of_route = all_slots, .n = ROWS, .K = K,
                          .first_slot = rank * PER_RANK, .slots = PER_RANK};
    gb_k_spread_args spread = {.out = device_new(ROUTES * HIDDEN, 2), .grouped_of_route = device_new(ROUTES, 4), .n = ROWS, .K = K, .hidden = HIDDEN};
    CHECK_EQ(gb_k_arrive(&a, 0), GB_OK);
    const uint16_t *grouped = permute(all_h, a.own_slot_of_route, a.place_in_slot, a.offsets, (int32_t *)spread.grouped_of_route, ROWS);
    spread.in = compute(w, grouped, a.offsets, a.first_slot, PER_RANK, ROUTES);
    CHECK_EQ(gb_k_spread(&spread, 0), GB_OK);
    return spread.out;
}

static void travel_by_all_gather(const world *w, const seat seats[RANKS])
{
    uint16_t *all_h = device_new(ROWS * HIDDEN, 2), *outs[RANKS];
    int32_t *all_slots = device_new(ROUTES, 4);
    for (uint32_t i = 0; i < RANKS; i++) {
        const seat *s = &seats[i];
        dispatch(w, s);
        cudaMemcpy(all_h + i * RANK_ROWS * HIDDEN, s->h, s->n * HIDDEN * 2, cudaMemcpyDeviceToDevice);
        cudaMemcpy(all_slots + i * RANK_ROWS * K, s->slot, s->n * K * 4, cudaMemcpyDeviceToDevice);
    }
    for (uint32_t i = 0; i < RANKS; i++) outs[i] = agrs_rank(w, &seats[i], i, all_h, all_slots);
    for (uint32_t i = 0; i < RANKS; i++) combine(&seats[i], reduce(outs, i * STRIDE, seats[i].n * K), NULL);
}

/* --- what the other two share: rows that lie in the order of arrival --- */

typedef struct landing {
    gb_k_land_args land;
    gb_k_regroup_args regroup;
} landing;

static landing lay_tables(const world *w, const seat *s, const uint32_t *headers, uint32_t stride, uint32_t capacity)
{
    landing l = {.land = {.begin = device_new(PER_RANK * RANKS, 4), .from = device_new(PER_RANK * RANKS, 4), .offsets = device_new(PER_RANK + 1, 4),
                          .start = device_new(RANKS + 1, 4), .received = s->arrived, .headers = headers, .version = w->version, .fault = w->fault,
                          .sources = RANKS, .slots = PER_RANK, .stride = stride, .capacity = capacity}};
    CHECK_EQ(gb_k_land(&l.land, 0), GB_OK);
    l.regroup = (gb_k_regroup_args){.grouped = device_new(capacity * HIDDEN, 2), .begin = l.land.begin, .from = l.land.from,
                                    .offsets = l.land.offsets, .start = l.land.start, .headers = headers, .sources = RANKS, .slots = PER_RANK,
                                    .hidden = HIDDEN, .capacity = capacity};
    return l;
}

static void compute_arrived(const world *w, landing *l, uint32_t rank, const uint16_t *arrived)
{
    l->regroup.arrived = arrived;
    CHECK_EQ(gb_k_regroup(&l->regroup, 0), GB_OK);
    l->regroup.out = compute(w, l->regroup.grouped, l->land.offsets, rank * PER_RANK, PER_RANK, l->regroup.capacity);
}

/* --- counts, then send and receive --- */

typedef uint32_t messages[RANKS][HEADER_WORDS];

static uint32_t rows_in(const uint32_t *header)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < PER_RANK; i++) rows += header[i];
    return rows;
}

/* Between rank's buffer in the order of arrival and the grouped rows of all sources: one message after the other. */
static void move_rows(messages *sent, uint32_t rank, uint16_t *arrived, uint16_t *const *grouped, bool back)
{
    uint32_t start = 0;
    for (uint32_t source = 0; source < RANKS; source++) {
        const uint32_t *header = sent[source][rank];
        uint32_t rows = rows_in(header);
        uint16_t *here = arrived + start * HIDDEN, *there = grouped[source] + header[PER_RANK + GB_K_HEADER_BEGIN] * HIDDEN;
        cudaMemcpy(back ? there : here, back ? here : there, rows * HIDDEN * 2, cudaMemcpyDeviceToDevice);
        start += rows;
    }
}

static void sendrecv_rank(const world *w, const seat *s, uint32_t rank, messages *sent, uint16_t *const *grouped, uint16_t *const *outs)
{
    messages mine;
    uint32_t rows = 0;
    for (uint32_t source = 0; source < RANKS; source++) {
        memcpy(mine[source], sent[source][rank], sizeof mine[source]);
        rows += rows_in(mine[source]);
    }
    landing l = lay_tables(w, s, device_copy(mine, RANKS * HEADER_WORDS, 4), 0, rows);
    uint16_t *arrived = device_new(rows * HIDDEN, 2);
    move_rows(sent, rank, arrived, grouped, false);
    compute_arrived(w, &l, rank, arrived);
    l.regroup.returned = device_new(rows * HIDDEN, 2);
    CHECK_EQ(gb_k_bring_back(&l.regroup, 0), GB_OK);
    move_rows(sent, rank, l.regroup.returned, outs, true);
}

static void travel_by_send_and_receive(const world *w, const seat seats[RANKS])
{
    messages sent[RANKS];
    uint16_t *grouped[RANKS], *outs[RANKS];
    for (uint32_t i = 0; i < RANKS; i++) {
        const seat *s = &seats[i];
        dispatch(w, s);
        grouped[i] = permute(s->h, s->slot, s->place, s->offsets, s->grouped_of_route, s->n);
        outs[i] = device_new(s->n * K * HIDDEN, 2);
        gb_k_headers_args a = {.headers = device_new(RANKS * HEADER_WORDS, 4), .offsets = s->offsets, .version = w->version, .ranks = RANKS, .slots = SLOTS};
        CHECK_EQ(gb_k_headers(&a, 0), GB_OK);
        device_read(sent[i], a.headers, RANKS * HEADER_WORDS, 4);
    }
    for (uint32_t i = 0; i < RANKS; i++) sendrecv_rank(w, &seats[i], i, sent, grouped, outs);
    for (uint32_t i = 0; i < RANKS; i++) combine(&seats[i], outs[i], seats[i].grouped_of_route);
}

/* --- windows --- */

static void travel_by_windows(const world *w, const seat seats[RANKS], uint32_t stride, const uint32_t *versions[RANKS])
{
    uint16_t *rows[RANKS], *back[RANKS];
    uint32_t *headers[RANKS];
    for (uint32_t i = 0; i < RANKS; i++) {
        rows[i] = device_new(RANKS * stride * HIDDEN, 2);
        headers[i] = device_new(RANKS * HEADER_WORDS, 4);
        back[i] = device_new(seats[i].n * K * HIDDEN, 2);
    }
    gb_k_push_args push = {.rows = DEVICE_COPY(rows), .headers = DEVICE_COPY(headers), .fault = w->fault, .K = K, .hidden = HIDDEN, .ranks = RANKS,
                           .slots = SLOTS, .stride = stride};
    for (uint32_t i = 0; i < RANKS; i++) {
        const seat *s = &seats[i];
        dispatch(w, s);
        push.grouped_of_route = s->grouped_of_route;
        push.h = s->h;
        push.slot_of_route = s->slot;
        push.place_in_slot = s->place;
        push.offsets = s->offsets;
        push.version = versions ? versions[i] : w->version;
        push.n = s->n;
        push.source = i;
        CHECK_EQ(gb_k_push(&push, 0), GB_OK);
    }
    uint16_t *const *all_back = DEVICE_COPY(back);
    for (uint32_t i = 0; i < RANKS; i++) {
        landing l = lay_tables(w, &seats[i], headers[i], stride, RANKS * stride);
        compute_arrived(w, &l, i, rows[i]);
        l.regroup.back = all_back;
        l.regroup.fault = w->fault;
        l.regroup.back_rows = RANK_ROWS * K;
        CHECK_EQ(gb_k_bring_back(&l.regroup, 0), GB_OK);
    }
    for (uint32_t i = 0; i < RANKS; i++) combine(&seats[i], back[i], seats[i].grouped_of_route);
}

/* --- claims --- */

static void make_world(world *w, const uint32_t n[RANKS], int32_t hot, uint64_t seed)
{
    gb_rng rng;
    fresh_rng(&rng, seed);
    memset(w, 0, sizeof *w);
    gb_arena_init(&w->arena);
    CHECK_EQ(gb_placement_init(&w->placement, &w->arena, 1, RANKS, EXPERTS, RANKS, 1, NULL), GB_OK);
    add_copies(&w->placement, &rng);
    CHECK_EQ(gb_placement_check(&w->placement, NULL), GB_OK);
    for (uint32_t rank = 0; rank < RANKS; rank++) w->first[rank + 1] = w->first[rank] + n[rank];
    make_rows(w, hot, &rng);
    make_tables(w, &rng);
    run_alone(w);
}

static void end_world(world *w)
{
    gb_arena_deinit(&w->arena);
    device_free_all();
}

/* The same bits in x, the same tokens sent by source and expert, and every token that was sent arrived where it should. */
static void check_seats(const world *w, const seat seats[RANKS])
{
    static float x[RANK_ROWS * HIDDEN];
    uint32_t sent[RANKS * EXPERTS], received[RANKS] = {0};
    for (uint32_t i = 0; i < RANKS; i++) {
        uint32_t to[RANKS], arrived;
        device_read(x, seats[i].x, seats[i].n * HIDDEN, 4);
        CHECK(memcmp(x, w->alone + seats[i].row * HIDDEN, seats[i].n * HIDDEN * sizeof *x) == 0);
        device_read(sent, seats[i].sent, RANKS * EXPERTS, 4);
        for (uint32_t e = 0; e < RANKS * EXPERTS; e++) CHECK_EQ(sent[e], e / EXPERTS == i ? w->sent[e] : 0);
        device_read(to, seats[i].received, RANKS, 4);
        for (uint32_t rank = 0; rank < RANKS; rank++) received[rank] += to[rank];
        device_read(&arrived, seats[i].arrived, 1, 4);
        CHECK_EQ(arrived, w->received[i]);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) CHECK_EQ(received[rank], w->received[rank]);
    CHECK_EQ(fault_read(w->fault).kind, GB_K_FAULT_NONE);
}

/* Padding is neither counted nor sent. */
static void check_world(const world *w)
{
    uint32_t routes = 0, sent = 0, received = 0;
    for (uint32_t i = 0; i < w->first[RANKS] * K; i++) routes += w->tokens[i / K] >= 0 && w->experts[i] >= 0;
    for (uint32_t i = 0; i < RANKS * EXPERTS; i++) sent += w->sent[i];
    for (uint32_t i = 0; i < RANKS; i++) received += w->received[i];
    CHECK_EQ(sent, routes);
    CHECK_EQ(received, routes);
    for (uint32_t row = 0; row < w->first[RANKS]; row++)
        if (w->tokens[row] < 0) CHECK(memcmp(w->alone + row * HIDDEN, w->x + row * HIDDEN, HIDDEN * sizeof *w->x) == 0);
}

static void check_all_ways(const uint32_t n[RANKS], int32_t hot, uint64_t seed)
{
    static world w;
    seat seats[RANKS];
    make_world(&w, n, hot, seed);
    check_world(&w);
    take_seats(&w, seats);
    travel_by_all_gather(&w, seats);
    check_seats(&w, seats);
    take_seats(&w, seats);
    travel_by_send_and_receive(&w, seats);
    check_seats(&w, seats);
    take_seats(&w, seats);
    travel_by_windows(&w, seats, STRIDE, NULL);
    check_seats(&w, seats);
    end_world(&w);
}

static void four_ranks_give_the_bits_of_one_whichever_way_tokens_travel(void) { check_all_ways((uint32_t[]){13, 40, 1, 22}, -1, 1); }

static void a_hot_expert_that_two_ranks_share_changes_nothing(void) { check_all_ways((uint32_t[]){30, 30, 30, 30}, 7, 2); }

static void ranks_without_rows_still_compute_for_the_others(void)
{
    check_all_ways((uint32_t[]){0, 9, 0, 0}, -1, 3);
    check_all_ways((uint32_t[]){2, 0, 0, 40}, 3, 4);
}

static gb_k_fault fault_of_windows(uint32_t stride, const uint32_t stale[RANKS])
{
    static world w;
    static const uint32_t n[RANKS] = {20, 20, 20, 20};
    seat seats[RANKS];
    const uint32_t *versions[RANKS];
    make_world(&w, n, 3, 5);
    take_seats(&w, seats);
    for (uint32_t i = 0; i < RANKS; i++) versions[i] = device_copy(&(uint32_t){VERSION + stale[i]}, 1, 4);
    travel_by_windows(&w, seats, stride, versions);
    gb_k_fault fault = fault_read(w.fault);
    end_world(&w);    /* and the windows' ends are as they were */
    return fault;
}

static void rows_that_find_no_room_are_a_fault_and_are_written_nowhere(void)
{
    gb_k_fault fault = fault_of_windows(4, (uint32_t[RANKS]){0});
    CHECK_EQ(fault.kind, GB_K_FAULT_ROOM);
    CHECK(fault.row < 20 && fault.value >= 4);
}

static void a_source_with_another_map_is_a_fault(void)
{
    gb_k_fault fault = fault_of_windows(STRIDE, (uint32_t[RANKS]){0, 0, 1, 0});
    CHECK_EQ(fault.kind, GB_K_FAULT_VERSION);
    CHECK_EQ(fault.row, 2);
    CHECK_EQ(fault.value, VERSION + 1);
}

TESTS(TEST(four_ranks_give_the_bits_of_one_whichever_way_tokens_travel), TEST(a_hot_expert_that_two_ranks_share_changes_nothing),
      TEST(ranks_without_rows_still_compute_for_the_others), TEST(rows_that_find_no_room_are_a_fault_and_are_written_nowhere),
      TEST(a_source_with_another_map_is_a_fault))
