/* The kernels between ranks one by one, against plain C: arrive, spread, headers, land, regroup and its way back, push, sum. ranks_test.c
   lets ranks play together. */
#include "tests/cuda/device.h"

#include <stdlib.h>

enum { VERSION = 41, WORDS_MAX = 1 << 16 };

static void *zeros(size_t n)
{
    static const uint32_t nothing[WORDS_MAX];
    return device_copy(nothing, n, 4);
}

static void *version_new(void) { return device_copy(&(uint32_t){VERSION}, 1, 4); }

static void check_words(const uint32_t *device, const uint32_t *want, size_t n)
{
    static uint32_t got[WORDS_MAX];
    device_read(got, device, n, 4);
    for (size_t i = 0; i < n; i++) CHECK_EQ(got[i], want[i]);
}

/* --- all-gather: arrive, spread --- */

static void check_arrival(const gb_k_arrive_args *a, const int32_t *slot, uint32_t times)
{
    static int32_t own[WORDS_MAX];
    static uint32_t place[WORDS_MAX], offsets[WORDS_MAX];
    static bool seen[WORDS_MAX];
    uint32_t ours = 0, fill[64] = {0};
    device_read(own, a->own_slot_of_route, a->n * a->K, 4);
    device_read(place, a->place_in_slot, a->n * a->K, 4);
    device_read(offsets, a->offsets, a->slots + 1, 4);
    memset(seen, 0, sizeof seen);
    for (uint32_t i = 0; i < a->n * a->K; i++) {
        bool is_ours = slot[i] >= (int32_t)a->first_slot && slot[i] < (int32_t)(a->first_slot + a->slots);
        CHECK_EQ(own[i], is_ours ? slot[i] - (int32_t)a->first_slot : -1);
        if (!is_ours) continue;
        uint32_t at = offsets[own[i]] + place[i];
        CHECK(at < offsets[own[i] + 1] && !seen[at]);
        seen[at] = true;
        fill[own[i]]++;
        ours++;
    }
    CHECK_EQ(offsets[0], 0);
    for (uint32_t i = 0; i < a->slots; i++) CHECK_EQ(offsets[i + 1] - offsets[i], fill[i]);
    check_words(a->received, (uint32_t[]){times * ours}, 1);
    check_words(a->work, (uint32_t[64]){0}, a->slots + 1);
}

static void arrive(uint32_t n, uint32_t K, uint32_t first_slot, uint32_t slots, uint32_t all_slots, uint32_t times)
{
    static int32_t slot[WORDS_MAX];
    gb_rng rng;
    fresh_rng(&rng, n + K);
    for (uint32_t i = 0; i < n * K; i++) slot[i] = gb_rng_below(&rng, 7) ? (int32_t)gb_rng_below(&rng, all_slots) : -1;
    gb_k_arrive_args a = {.own_slot_of_route = device_new(n * K, 4), .place_in_slot = device_new(n * K, 4), .offsets = device_new(slots + 1, 4),
                          .received = zeros(1), .work = zeros(slots + 1), .slot_of_route = device_copy(slot, n * K, 4), .n = n, .K = K,
                          .first_slot = first_slot, .slots = slots};
    for (uint32_t i = 0; i < times; i++) CHECK_EQ(gb_k_arrive(&a, 0), GB_OK);
    check_arrival(&a, slot, times);
    device_free_all();
}

static void arrive_groups_our_routes_and_the_next_call_starts_clean(void)
{
    arrive(700, 5, 7, 6, 24, 3);    /* several blocks, routes that are no multiple of 4 */
    arrive(33, 8, 0, 8, 8, 1);      /* all are ours */
    arrive(3, 1, 12, 4, 9, 2);      /* none is */
}

static void arrive_says_that_nothing_came_when_there_are_no_rows(void) { arrive(0, 4, 4, 4, 8, 2); }

static void spread_lays_outputs_by_route_and_fills_with_what_changes_no_sum(void)
{
    enum { N = 5, K = 3, HIDDEN = 1304, ROWS = 6 };    /* more than one turn of a warp's loads */
    static uint16_t in[ROWS * HIDDEN], out[N * K * HIDDEN];
    const int32_t from[N * K] = {-1, 5, -1, 0, 3, -1, -1, -1, -1, 1, -1, 2, 4, -1, -1};
    gb_rng rng;
    fresh_rng(&rng, 2);
    fill_bf16(in, ROWS * HIDDEN, 1, &rng);
    gb_k_spread_args a = {.out = device_new(N * K * HIDDEN, 2), .in = DEVICE_COPY(in), .grouped_of_route = DEVICE_COPY(from), .n = N, .K = K,
                          .hidden = HIDDEN};
    CHECK_EQ(gb_k_spread(&a, 0), GB_OK);
    device_read(out, a.out, N * K * HIDDEN, 2);
    for (uint32_t i = 0; i < N * K * HIDDEN; i++) {
        int32_t row = from[i / HIDDEN];
        CHECK_EQ(out[i], row < 0 ? 0x8000 : in[row * HIDDEN + (int32_t)(i % HIDDEN)]);
    }
    CHECK(gb_f32_to_bf16(-0.0f + gb_bf16_to_f32(0x8000)) == 0x8000 && gb_f32_to_bf16(0.0f + gb_bf16_to_f32(0x8000)) == 0);
    device_free_all();
}

/* --- headers and what they say together --- */

static void headers_tell_each_rank_counts_beginnings_and_version(void)
{
    enum { RANKS = 3, PER_RANK = 4 };
    const uint32_t offsets[RANKS * PER_RANK + 1] = {0, 2, 2, 7, 8, 8, 8, 8, 8, 100, 100, 103, 104};
    const uint32_t want[] = {2, 0, 5, 1, 0, VERSION, 0, 0, 0, 0, 8, VERSION, 92, 0, 3, 1, 8, VERSION};
    gb_k_headers_args a = {.headers = device_new(RANKS * (PER_RANK + GB_K_HEADER_WORDS), 4), .offsets = DEVICE_COPY(offsets), .version = version_new(),
                           .ranks = RANKS, .slots = RANKS * PER_RANK};
    CHECK_EQ(gb_k_headers(&a, 0), GB_OK);
    check_words(a.headers, want, RANKS * (PER_RANK + GB_K_HEADER_WORDS));
    device_free_all();
}

static uint32_t abandoned;    /* what the barrier before says */

enum { SOURCES_MAX = 6, SLOTS_MAX = 70, CELLS_MAX = SOURCES_MAX * SLOTS_MAX };

/* Headers of all sources at one rank, what they mean, and land's tables. */
typedef struct meeting {
    uint32_t sources, slots, rows;
    uint32_t headers[SOURCES_MAX][SLOTS_MAX + GB_K_HEADER_WORDS];
    uint32_t begin[CELLS_MAX], from[CELLS_MAX], offsets[SLOTS_MAX + 1], start[SOURCES_MAX + 1];
    gb_k_land_args args;
} meeting;

static uint32_t rows_of(const meeting *m, uint32_t source)
{
    uint32_t rows = 0;
    for (uint32_t slot = 0; slot < m->slots; slot++) rows += m->headers[source][slot];
    return rows;
}

/* Some slots get nothing, and the second of several sources sends nothing. Rows begin anywhere among a source's own. */
static void make_meeting(meeting *m, uint32_t sources, uint32_t slots, uint32_t most, uint64_t seed)
{
    gb_rng rng;
    fresh_rng(&rng, seed);
    *m = (meeting){.sources = sources, .slots = slots};
    for (uint32_t source = 0; source < sources; source++) {
        for (uint32_t slot = 0; slot < slots; slot++)
            m->headers[source][slot] = source == 1 || gb_rng_below(&rng, 3) == 0 ? 0 : gb_rng_below(&rng, most + 1);
        m->headers[source][slots + GB_K_HEADER_BEGIN] = gb_rng_below(&rng, 20);
        m->headers[source][slots + GB_K_HEADER_VERSION] = VERSION;
        m->rows += rows_of(m, source);
    }
}

static void expect_tables(meeting *m, uint32_t stride)
{
    uint32_t next = 0;
    for (uint32_t slot = 0; slot < m->slots; slot++) {
        m->offsets[slot] = next;
        for (uint32_t source = 0; source < m->sources; source++) {
            m->begin[slot * m->sources + source] = next;
            next += m->headers[source][slot];
        }
    }
    m->offsets[m->slots] = next;
    for (uint32_t source = 0; source < m->sources; source++) {
        if (stride) m->start[source] = source * stride;
        uint32_t at = m->start[source];
        for (uint32_t slot = 0; slot < m->slots; at += m->headers[source][slot++]) m->from[slot * m->sources + source] = at;
        m->start[source + 1] = stride ? (source + 1) * stride : at;
    }
}

static void land(meeting *m, uint32_t stride, uint32_t capacity)
{
    uint32_t words = m->slots + GB_K_HEADER_WORDS, cells = m->sources * m->slots;
    uint32_t *headers = device_new(m->sources * words, 4);
    for (uint32_t source = 0; source < m->sources; source++)
        cudaMemcpy(headers + source * words, m->headers[source], words * 4, cudaMemcpyHostToDevice);
    m->args = (gb_k_land_args){.begin = device_new(cells, 4), .from = device_new(cells, 4), .offsets = device_new(m->slots + 1, 4),
                               .start = device_new(m->sources + 1, 4), .received = device_copy(&(uint32_t){5}, 1, 4), .headers = headers,
                               .version = version_new(), .abandoned = device_copy(&abandoned, 1, 4), .fault = fault_new(), .sources = m->sources, .slots = m->slots, .stride = stride,
                               .capacity = capacity};
    CHECK_EQ(gb_k_land(&m->args, 0), GB_OK);
}

static void check_landing(meeting *m, uint32_t stride)
{
    expect_tables(m, stride);
    check_words(m->args.begin, m->begin, m->sources * m->slots);
    check_words(m->args.from, m->from, m->sources * m->slots);
    check_words(m->args.offsets, m->offsets, m->slots + 1);
    check_words(m->args.start, m->start, m->sources + 1);
    check_words(m->args.received, (uint32_t[]){5 + m->rows}, 1);
    CHECK_EQ(fault_read(m->args.fault).kind, GB_K_FAULT_NONE);
}

static void land_finds_each_slot_and_source_in_both_orders(void)
{
    static const struct { uint32_t sources, slots, most; } sizes[] = {{4, 8, 9}, {6, 70, 5}, {1, 1, 3}, {2, 33, 2}, {5, 3, 40}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        meeting m;
        make_meeting(&m, sizes[i].sources, sizes[i].slots, sizes[i].most, i);
        land(&m, 0, m.rows);    /* exactly as much room as it takes */
        check_landing(&m, 0);
        land(&m, 500, m.rows);
        check_landing(&m, 500);
        device_free_all();
    }
}

static void check_refusal(meeting *m, uint32_t stride, uint32_t capacity, gb_k_fault_kind kind, uint32_t row, int32_t value)
{
    static const uint32_t none[CELLS_MAX];
    land(m, stride, capacity);
    gb_k_fault fault = fault_read(m->args.fault);
    CHECK_EQ(fault.kind, kind);
    CHECK_EQ(fault.row, row);
    CHECK_EQ(fault.value, value);
    check_words(m->args.begin, none, m->sources * m->slots);
    check_words(m->args.offsets, none, m->slots + 1);
    check_words(m->args.received, (uint32_t[]){5}, 1);
    device_free_all();
}

static void land_takes_nothing_when_one_header_may_not_be_taken(void)
{
    meeting m;
    make_meeting(&m, 4, 8, 9, 11);
    check_refusal(&m, 0, m.rows - 1, GB_K_FAULT_ROOM, 4, (int32_t)m.rows);
    m.headers[1][3] = 73;
    check_refusal(&m, 72, 1000, GB_K_FAULT_ROOM, 1, 73);
    m.headers[2][8 + GB_K_HEADER_VERSION] = VERSION + 1;
    m.headers[2][0] = m.headers[2][1] = UINT32_MAX;    /* of another version: anything */
    check_refusal(&m, 0, 1000, GB_K_FAULT_VERSION, 2, VERSION + 1);
    m.headers[2][8 + GB_K_HEADER_VERSION] = VERSION;
    check_refusal(&m, 0, 1000, GB_K_FAULT_ROOM, 4, INT32_MAX);    /* and does not wrap around */
}

/* Where a barrier was abandoned, headers may be anything: nobody's fault. */
static void land_takes_nothing_behind_an_abandoned_barrier(void)
{
    meeting m;
    make_meeting(&m, 4, 8, 9, 12);
    abandoned = 1;
    check_refusal(&m, 500, m.rows, GB_K_FAULT_NONE, 0, 0);
    m.headers[2][0] = UINT32_MAX;
    m.headers[3][8 + GB_K_HEADER_VERSION] = VERSION + 1;
    check_refusal(&m, 500, m.rows, GB_K_FAULT_NONE, 0, 0);
    abandoned = 0;
}

/* --- regroup and back --- */

enum { HIDDEN = 1304, BACK_ROWS = 160 };

static uint16_t element(uint32_t source, uint32_t slot, uint32_t number, uint32_t i)
{
    return (uint16_t)(gb_mix64(((uint64_t)source << 40) + ((uint64_t)slot << 28) + (number << 14) + i) & 0x7eff);
}

/* Rows of (source, slot, number), where on the device they stand at. */
static void check_row(const uint16_t *device, uint32_t at, uint32_t source, uint32_t slot, uint32_t number)
{
    uint16_t row[HIDDEN];
    uint32_t wrong = 0;
    device_read(row, device + (size_t)at * HIDDEN, HIDDEN, 2);
    for (uint32_t i = 0; i < HIDDEN; i++) wrong += row[i] != element(source, slot, number, i);
    CHECK_EQ(wrong, 0);
}

static void *make_arrived(const meeting *m, uint32_t rows)
{
    uint16_t *host = malloc((size_t)(rows + 1) * HIDDEN * 2);
    memset(host, 0xff, (size_t)(rows + 1) * HIDDEN * 2);
    for (uint32_t source = 0; source < m->sources; source++)
        for (uint32_t slot = 0; slot < m->slots; slot++)
            for (uint32_t number = 0; number < m->headers[source][slot]; number++)
                for (uint32_t i = 0; i < HIDDEN; i++)
                    host[(size_t)(m->from[slot * m->sources + source] + number) * HIDDEN + i] = element(source, slot, number, i);
    void *device = device_copy(host, (size_t)rows * HIDDEN, 2);
    free(host);
    return device;
}

static uint32_t count_set(const uint16_t *device, size_t elements)
{
    uint16_t *host = malloc(elements * 2);
    uint32_t set = 0;
    device_read(host, device, elements, 2);
    for (size_t i = 0; i < elements; i++) set += host[i] != 0xffff;
    free(host);
    return set;
}

static gb_k_regroup_args regroup(meeting *m, uint32_t stride)
{
    land(m, stride, m->rows);
    expect_tables(m, stride);
    gb_k_regroup_args a = {.grouped = device_new((size_t)m->rows * HIDDEN, 2), .arrived = make_arrived(m, m->start[m->sources]),
                           .begin = m->args.begin, .from = m->args.from, .offsets = m->args.offsets, .start = m->args.start,
                           .headers = m->args.headers, .sources = m->sources, .slots = m->slots, .hidden = HIDDEN, .capacity = m->rows};
    CHECK_EQ(gb_k_regroup(&a, 0), GB_OK);
    a.out = a.grouped;
    return a;
}

#define EACH_ROW(m) \
    for (uint32_t source = 0; source < (m)->sources; source++) \
        for (uint32_t slot = 0; slot < (m)->slots; slot++) \
            for (uint32_t number = 0; number < (m)->headers[source][slot]; number++)

static void rows_are_grouped_and_return_in_the_order_of_arrival(void)
{
    static const struct { uint32_t sources, slots, most; } sizes[] = {{4, 8, 4}, {6, 70, 1}, {1, 1, 3}, {3, 40, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        meeting m;
        make_meeting(&m, sizes[i].sources, sizes[i].slots, sizes[i].most, 20 + i);
        gb_k_regroup_args a = regroup(&m, 0);
        a.returned = device_new((size_t)m.rows * HIDDEN, 2);
        CHECK_EQ(gb_k_bring_back(&a, 0), GB_OK);
        EACH_ROW(&m)
        {
            check_row(a.grouped, m.begin[slot * m.sources + source] + number, source, slot, number);
            check_row(a.returned, m.from[slot * m.sources + source] + number, source, slot, number);
        }
        device_free_all();
    }
}

static void outputs_are_written_where_the_source_wants_them_and_nowhere_else(void)
{
    meeting m;
    uint16_t *back[SOURCES_MAX];
    make_meeting(&m, 4, 8, 4, 30);
    gb_k_regroup_args a = regroup(&m, 40);
    for (uint32_t source = 0; source < 4; source++) back[source] = device_new(BACK_ROWS * HIDDEN, 2);
    a.back = device_copy(back, 4, sizeof *back);
    a.fault = m.args.fault;
    a.back_rows = BACK_ROWS;
    CHECK_EQ(gb_k_bring_back(&a, 0), GB_OK);
    EACH_ROW(&m)
    {
        uint32_t at = m.headers[source][8 + GB_K_HEADER_BEGIN] + m.from[slot * 4 + source] + number - m.start[source];
        check_row(a.grouped, m.begin[slot * 4 + source] + number, source, slot, number);
        check_row(back[source], at, source, slot, number);
    }
    for (uint32_t source = 0; source < 4; source++) CHECK_EQ(count_set(back[source], BACK_ROWS * HIDDEN), rows_of(&m, source) * HIDDEN);
    device_free_all();
}

static void outputs_beyond_the_rows_of_a_source_go_nowhere_and_are_a_fault(void)
{
    meeting m;
    uint16_t *back;
    make_meeting(&m, 1, 8, 4, 32);
    m.headers[0][8 + GB_K_HEADER_BEGIN] = BACK_ROWS - 2;
    CHECK(m.rows > 2);
    gb_k_regroup_args a = regroup(&m, 40);
    back = device_new(BACK_ROWS * HIDDEN, 2);
    a.back = device_copy(&back, 1, sizeof back);
    a.fault = m.args.fault;
    a.back_rows = BACK_ROWS;
    CHECK_EQ(gb_k_bring_back(&a, 0), GB_OK);
    CHECK_EQ(count_set(back, BACK_ROWS * HIDDEN), 2 * HIDDEN);
    gb_k_fault fault = fault_read(a.fault);
    CHECK_EQ(fault.kind, GB_K_FAULT_ROOM);
    CHECK_EQ(fault.row, 0);
    CHECK(fault.value >= BACK_ROWS);
    device_free_all();
}

static void more_rows_than_a_grid_has_warps_are_walked_over(void)
{
    enum { MANY = 17000, NARROW = 8 };    /* a grid is 2048 blocks of 8 rows at most */
    static uint16_t rows[MANY * NARROW], got[MANY * NARROW];
    meeting m;
    make_meeting(&m, 1, 1, 1, 31);
    m.headers[0][0] = m.rows = MANY;
    land(&m, 0, MANY);
    for (uint32_t i = 0; i < MANY * NARROW; i++) rows[i] = (uint16_t)(i * 7);
    gb_k_regroup_args a = {.grouped = device_new(MANY * NARROW, 2), .arrived = DEVICE_COPY(rows), .returned = device_new(MANY * NARROW, 2),
                           .begin = m.args.begin, .from = m.args.from, .offsets = m.args.offsets, .start = m.args.start,
                           .headers = m.args.headers, .sources = 1, .slots = 1, .hidden = NARROW, .capacity = MANY};
    CHECK_EQ(gb_k_regroup(&a, 0), GB_OK);
    a.out = a.grouped;
    CHECK_EQ(gb_k_bring_back(&a, 0), GB_OK);
    device_read(got, a.returned, MANY * NARROW, 2);
    CHECK(memcmp(got, rows, sizeof rows) == 0);
    device_free_all();
}

/* --- push --- */

enum { RANKS = 3, PER_RANK = 2, SLOTS = RANKS * PER_RANK, ROWS = 9, TOP = 2, WIDE = 264, SOURCE = 1 };

/* One source of three pushes; slots are given, groups laid out as dispatch would. */
typedef struct pushing {
    int32_t slot[ROWS * TOP], grouped[ROWS * TOP];
    uint32_t place[ROWS * TOP], offsets[SLOTS + 1];
    uint16_t h[ROWS * WIDE], *rows[RANKS];
    uint32_t *headers[RANKS];
    gb_k_push_args args;
} pushing;

static void push(pushing *p, uint32_t n, uint32_t stride)
{
    gb_rng rng;
    fresh_rng(&rng, n);
    memset(p->offsets, 0, sizeof p->offsets);
    fill_bf16(p->h, ROWS * WIDE, 1, &rng);
    for (uint32_t i = 0; i < n * TOP; i++) {
        p->slot[i] = i % 5 == 4 ? -1 : (int32_t)(i * i % (SLOTS - 1));    /* the last slot gets nothing */
        p->place[i] = p->slot[i] < 0 ? 0 : p->offsets[p->slot[i] + 1]++;
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++) p->offsets[slot + 1] += p->offsets[slot];
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        p->rows[rank] = device_new(RANKS * stride * WIDE, 2);
        p->headers[rank] = device_new(RANKS * (PER_RANK + GB_K_HEADER_WORDS), 4);
    }
    p->args = (gb_k_push_args){.rows = DEVICE_COPY(p->rows), .headers = DEVICE_COPY(p->headers), .grouped_of_route = device_new(n * TOP, 4),
                               .h = device_copy(p->h, n * WIDE, 2), .slot_of_route = device_copy(p->slot, n * TOP, 4),
                               .place_in_slot = device_copy(p->place, n * TOP, 4), .offsets = DEVICE_COPY(p->offsets), .version = version_new(),
                               .abandoned = device_copy(&abandoned, 1, 4), .fault = fault_new(), .n = n, .K = TOP, .hidden = WIDE, .source = SOURCE, .ranks = RANKS, .slots = SLOTS,
                               .stride = stride};
    CHECK_EQ(gb_k_push(&p->args, 0), GB_OK);
    device_read(p->grouped, p->args.grouped_of_route, n * TOP, 4);
}

static void check_headers(const pushing *p)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const uint32_t *own = p->offsets + rank * PER_RANK, words = PER_RANK + GB_K_HEADER_WORDS;
        const uint32_t want[] = {own[1] - own[0], own[2] - own[1], own[0], VERSION}, poison[] = {~0u, ~0u, ~0u, ~0u};
        for (uint32_t source = 0; source < RANKS; source++)
            check_words(p->headers[rank] + source * words, source == SOURCE ? want : poison, words);
    }
}

/* The windows hold the rows that fit, and nothing else; how many did not fit. */
static uint32_t check_windows(const pushing *p)
{
    uint32_t beyond = 0, set[RANKS] = {0};
    for (uint32_t i = 0; i < p->args.n * TOP; i++) {
        uint16_t row[WIDE];
        if (p->slot[i] < 0) CHECK_EQ(p->grouped[i], -1);
        if (p->slot[i] < 0) continue;
        uint32_t rank = (uint32_t)p->slot[i] / PER_RANK, to = p->offsets[p->slot[i]] + p->place[i], number = to - p->offsets[rank * PER_RANK];
        CHECK_EQ(p->grouped[i], number < p->args.stride ? (int32_t)to : -1);
        beyond += number >= p->args.stride;
        if (number >= p->args.stride) continue;
        device_read(row, p->rows[rank] + (SOURCE * p->args.stride + number) * WIDE, WIDE, 2);
        CHECK(memcmp(row, p->h + i / TOP * WIDE, sizeof row) == 0);
        set[rank] += WIDE;
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) CHECK_EQ(count_set(p->rows[rank], RANKS * p->args.stride * WIDE), set[rank]);
    return beyond;
}

static void push_puts_rows_and_headers_into_the_windows_of_their_ranks(void)
{
    pushing p;
    push(&p, ROWS, ROWS * TOP);
    CHECK_EQ(check_windows(&p), 0);
    check_headers(&p);
    CHECK_EQ(fault_read(p.args.fault).kind, GB_K_FAULT_NONE);
    device_free_all();
}

static void push_writes_nothing_behind_an_abandoned_barrier(void)
{
    pushing p;
    abandoned = 1;
    push(&p, ROWS, ROWS * TOP);
    abandoned = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        CHECK_EQ(count_set(p.rows[rank], RANKS * ROWS * TOP * WIDE), 0);
        CHECK_EQ(count_set((uint16_t *)p.headers[rank], RANKS * (PER_RANK + GB_K_HEADER_WORDS) * 2), 0);
    }
    for (uint32_t i = 0; i < ROWS * TOP; i++) CHECK_EQ(p.grouped[i], -1);    /* nothing comes back */
    CHECK_EQ(fault_read(p.args.fault).kind, GB_K_FAULT_NONE);
    device_free_all();
}

static void rows_beyond_the_stride_stay_and_are_a_fault(void)
{
    pushing p;
    push(&p, ROWS, 3);
    CHECK(check_windows(&p) > 0);
    check_headers(&p);
    gb_k_fault fault = fault_read(p.args.fault);
    CHECK_EQ(fault.kind, GB_K_FAULT_ROOM);
    CHECK(fault.row < ROWS && fault.value >= 3);
    device_free_all();
}

static void a_source_without_rows_says_so_to_all(void)
{
    pushing p;
    push(&p, 0, 4);
    check_headers(&p);
    CHECK_EQ(check_windows(&p), 0);
    device_free_all();
}

/* --- sum --- */

static void parts_are_added_in_the_order_of_ranks(void)
{
    enum { N = 3, STRIDE = 5, WIDTH = 524 };
    static float x[STRIDE * WIDTH], parts[RANKS * STRIDE * WIDTH], bias[WIDTH], got[STRIDE * WIDTH];
    gb_rng rng;
    fresh_rng(&rng, 40);
    fill_f32(x, STRIDE * WIDTH, 1, &rng);
    fill_f32(parts, RANKS * STRIDE * WIDTH, 100, &rng);
    fill_f32(bias, WIDTH, 1, &rng);
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        gb_k_sum_args a = {.x = DEVICE_COPY(x), .parts = DEVICE_COPY(parts), .bias = with_bias ? DEVICE_COPY(bias) : NULL, .n = N, .hidden = WIDTH,
                           .ranks = RANKS, .stride = STRIDE};
        CHECK_EQ(gb_k_sum(&a, 0), GB_OK);
        device_read(got, a.x, STRIDE * WIDTH, 4);
        for (uint32_t i = 0; i < STRIDE * WIDTH; i++) {
            float sum = parts[i];
            for (uint32_t rank = 1; rank < RANKS; rank++) sum += parts[rank * STRIDE * WIDTH + i];
            if (with_bias) sum += bias[i % WIDTH];
            CHECK(got[i] == (i < N * WIDTH ? x[i] + sum : x[i]));    /* rows beyond are nobody's */
        }
    }
    device_free_all();
}

/* --- refusals --- */

#define REFUSED(call, words) \
    do { \
        CHECK_EQ(call, GB_EINVAL); \
        CHECK_CONTAINS(gb_k_message(), words); \
    } while (0)

static void shapes_that_do_not_fit_are_refused(void)
{
    REFUSED(gb_k_arrive(&(gb_k_arrive_args){.K = 1, .slots = GB_K_SLOTS_MAX + 1}, 0), "4097 slots");
    REFUSED(gb_k_arrive(&(gb_k_arrive_args){.n = 0x7fffffff, .K = 2, .slots = 1}, 0), "too many");
    REFUSED(gb_k_spread(&(gb_k_spread_args){.n = 1, .K = 1, .hidden = 12}, 0), "12 is no multiple of 8");
    REFUSED(gb_k_spread(&(gb_k_spread_args){.n = 0x7fffffff, .K = 2, .hidden = 8}, 0), "too many");
    REFUSED(gb_k_headers(&(gb_k_headers_args){.ranks = 3, .slots = 8}, 0), "8 slots on 3 ranks");
    REFUSED(gb_k_headers(&(gb_k_headers_args){.ranks = GB_K_PEERS_MAX + 1, .slots = 65}, 0), "65 ranks");
    REFUSED(gb_k_land(&(gb_k_land_args){.sources = GB_K_PEERS_MAX + 1, .slots = 1}, 0), "65 sources");
    REFUSED(gb_k_land(&(gb_k_land_args){.sources = 4, .slots = 1, .stride = 0x20000000}, 0), "too many");
    REFUSED(gb_k_regroup(&(gb_k_regroup_args){.sources = 1, .slots = 1, .hidden = 4}, 0), "regroup: a hidden size of 4");
    REFUSED(gb_k_bring_back(&(gb_k_regroup_args){.sources = 1, .hidden = 8}, 0), "bring_back: 0 slots");
    REFUSED(gb_k_bring_back(&(gb_k_regroup_args){.sources = 1, .slots = 1, .hidden = 8, .capacity = 0x80000000}, 0), "too many");
    REFUSED(gb_k_push(&(gb_k_push_args){.K = 1, .hidden = 20}, 0), "20 is no multiple");
    REFUSED(gb_k_push(&(gb_k_push_args){.K = 1, .hidden = 8, .ranks = 3, .slots = 4}, 0), "4 slots on 3 ranks");
    REFUSED(gb_k_push(&(gb_k_push_args){.K = 1, .hidden = 8, .ranks = 2, .slots = 4, .source = 2}, 0), "rank 2 of 2");
    REFUSED(gb_k_push(&(gb_k_push_args){.n = 0x7fffffff, .K = 2, .hidden = 8, .ranks = 2, .slots = 4}, 0), "too many");
    REFUSED(gb_k_sum(&(gb_k_sum_args){.n = 1, .hidden = 6, .ranks = 1, .stride = 1}, 0), "multiple of 4");
    REFUSED(gb_k_sum(&(gb_k_sum_args){.n = 2, .hidden = 4, .ranks = 1, .stride = 1}, 0), "2 rows of 4 elements, 1 from each");
}

static void no_rows_are_no_work(void)
{
    CHECK_EQ(gb_k_spread(&(gb_k_spread_args){.K = 1, .hidden = 8}, 0), GB_OK);
    CHECK_EQ(gb_k_regroup(&(gb_k_regroup_args){.sources = 1, .slots = 1, .hidden = 8}, 0), GB_OK);
    CHECK_EQ(gb_k_sum(&(gb_k_sum_args){.hidden = 4, .ranks = 1}, 0), GB_OK);
}

TESTS(TEST(arrive_groups_our_routes_and_the_next_call_starts_clean), TEST(arrive_says_that_nothing_came_when_there_are_no_rows),
      TEST(spread_lays_outputs_by_route_and_fills_with_what_changes_no_sum), TEST(headers_tell_each_rank_counts_beginnings_and_version),
      TEST(land_finds_each_slot_and_source_in_both_orders), TEST(land_takes_nothing_when_one_header_may_not_be_taken),
      TEST(land_takes_nothing_behind_an_abandoned_barrier), TEST(push_writes_nothing_behind_an_abandoned_barrier),
      TEST(outputs_beyond_the_rows_of_a_source_go_nowhere_and_are_a_fault),
      TEST(rows_are_grouped_and_return_in_the_order_of_arrival), TEST(outputs_are_written_where_the_source_wants_them_and_nowhere_else),
      TEST(more_rows_than_a_grid_has_warps_are_walked_over),
      TEST(push_puts_rows_and_headers_into_the_windows_of_their_ranks), TEST(rows_beyond_the_stride_stay_and_are_a_fault),
      TEST(a_source_without_rows_says_so_to_all), TEST(parts_are_added_in_the_order_of_ranks), TEST(shapes_that_do_not_fit_are_refused),
      TEST(no_rows_are_no_work))
