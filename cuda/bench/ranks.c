/* Four ranks on one device, each with a stream, experts and windows of its own: rows are pushed into the windows of others, computed there and
   brought back. The sum of each row must have the bits that one rank alone gives it, on every step of a loop in which experts move between
   ranks beside the rounds; and what was sent must have arrived. */
#include <stdlib.h>
#include <string.h>

#include "cuda/bench/routes.h"

enum {
    RANKS = GB_BENCH_RANKS,
    EMPTY_SLOTS = 1,           /* of each rank at first: where an expert can move to */
    MOVE_EVERY = 3,            /* steps */
    LIMIT_S = 5,               /* of a barrier */
};

/* An array here has a set for each rank, or one in all. */
typedef struct ranks {
    gb_bench *bench;
    uint32_t T, K, E, hidden, width, slots, per_rank;    /* tokens of a rank; slots of all ranks and of one */
    cudaStream_t streams[RANKS], migrate;
    /* the same rows for one rank alone, and what it makes of them */
    gb_bench_routes all;
    gb_bench_array all_h, all_x, all_weights, all_grouped, all_grouped_of_route, all_gated, all_out, experts_pool;
    float *wanted, *got;       /* [RANKS * T][hidden], [T][hidden] */
    /* of each rank */
    gb_bench_array h, x, x_before, weights, experts, tokens, positions, engines;
    gb_bench_array slot_of_route, place_in_slot, offsets, sent, received, work, grouped_of_route;
    gb_bench_array rows, headers, back, flags, epoch;    /* windows */
    gb_bench_array rows_of, headers_of, back_of, flags_of;    /* [RANKS] pointers to everybody's */
    gb_bench_array begin, from, land_offsets, start, landed, grouped, gated, out, pool;
    gb_bench_array staged, live, fault;
    /* the host's copy of the tables */
    int32_t *table;
    size_t table_words;
    int32_t *expert_of_slot;   /* [slots] -1 = empty */
    gb_rng rng;
} ranks;

/* --- tables: route, other, shares of other, version --- */

static size_t cells_of(const ranks *r) { return (size_t)RANKS * r->E; }
static const int32_t *live_of(const ranks *r, uint32_t rank) { return gb_bench_at(&r->live, rank); }
static const uint32_t *version_of(const ranks *r, uint32_t rank) { return (const uint32_t *)live_of(r, rank) + r->table_words - 1; }

static gb_k_map map_of(const ranks *r, uint32_t rank)
{
    const int32_t *table = live_of(r, rank);
    return (gb_k_map){table, table + cells_of(r), (const uint16_t *)(table + 2 * cells_of(r)), RANKS, r->E, RANKS, r->slots};
}

static void fill_table(ranks *r)
{
    for (uint32_t slot = 0; slot < r->slots; slot++)
        for (uint32_t source = 0; source < RANKS; source++)
            if (r->expert_of_slot[slot] >= 0) r->table[source * r->E + (uint32_t)r->expert_of_slot[slot]] = (int32_t)slot;
    r->table[r->table_words - 1]++;
}

static int stage_table(ranks *r)
{
    fill_table(r);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        GB_CUDA(cudaMemcpy(gb_bench_at(&r->staged, rank), r->table, r->table_words * 4, cudaMemcpyHostToDevice));
    return GB_OK;
}

static int commit(const ranks *r, uint32_t rank)
{
    const gb_k_commit_args a = {.live = gb_bench_at(&r->live, rank), .staged = gb_bench_at(&r->staged, rank), .words = (uint32_t)r->table_words};
    return gb_k_commit(&a, r->streams[rank]);
}

/* --- one step of one rank --- */

static int send(const ranks *r, uint32_t rank)
{
    const gb_k_dispatch_args d = {
        .slot_of_route = gb_bench_at(&r->slot_of_route, rank), .place_in_slot = gb_bench_at(&r->place_in_slot, rank),
        .offsets = gb_bench_at(&r->offsets, rank), .sent = gb_bench_at(&r->sent, rank), .received = gb_bench_at(&r->received, rank),
        .work = gb_bench_at(&r->work, rank), .experts = gb_bench_at(&r->experts, rank), .map = map_of(r, rank),
        .rows = {.n = r->T, .tokens = gb_bench_at(&r->tokens, rank), .positions = gb_bench_at(&r->positions, rank), .engines = gb_bench_at(&r->engines, rank)},
        .fault = gb_bench_at(&r->fault, rank), .K = r->K,
    };
    const gb_k_push_args p = {
        .rows = gb_bench_at(&r->rows_of, 0), .headers = gb_bench_at(&r->headers_of, 0), .grouped_of_route = gb_bench_at(&r->grouped_of_route, rank),
        .h = gb_bench_at(&r->h, rank), .slot_of_route = d.slot_of_route, .place_in_slot = d.place_in_slot, .offsets = d.offsets,
        .version = version_of(r, rank), .fault = d.fault, .n = r->T, .K = r->K, .hidden = r->hidden, .source = rank, .ranks = RANKS, .slots = r->slots,
        .stride = r->T * r->K,
    };
    GB_TRY(gb_k_dispatch(&d, r->streams[rank]));
    return gb_k_push(&p, r->streams[rank]);
}

static int wait_for_all(const ranks *r, uint32_t rank)
{
    const gb_k_barrier_args a = {.flags = gb_bench_at(&r->flags_of, 0), .epoch = gb_bench_at(&r->epoch, rank), .fault = gb_bench_at(&r->fault, rank),
                                 .limit_ns = LIMIT_S * 1000000000ull, .rank = rank, .ranks = RANKS};
    return gb_k_barrier(&a, r->streams[rank]);
}

static int compute(const ranks *r, uint32_t rank)
{
    const uint32_t capacity = RANKS * r->T * r->K;
    const gb_k_land_args l = {
        .begin = gb_bench_at(&r->begin, rank), .from = gb_bench_at(&r->from, rank), .offsets = gb_bench_at(&r->land_offsets, rank),
        .start = gb_bench_at(&r->start, rank), .received = gb_bench_at(&r->landed, rank), .headers = gb_bench_at(&r->headers, rank),
        .version = version_of(r, rank), .fault = gb_bench_at(&r->fault, rank), .sources = RANKS, .slots = r->per_rank, .stride = r->T * r->K,
        .capacity = capacity,
    };
    const gb_k_regroup_args g = {
        .grouped = gb_bench_at(&r->grouped, rank), .arrived = gb_bench_at(&r->rows, rank), .out = gb_bench_at(&r->out, rank),
        .back = gb_bench_at(&r->back_of, 0), .begin = l.begin, .from = l.from, .offsets = l.offsets, .start = l.start, .headers = l.headers,
        .sources = RANKS, .slots = r->per_rank, .hidden = r->hidden, .capacity = capacity, .fault = l.fault, .back_rows = r->T * r->K,
    };
    gb_k_experts_args e = {
        .out = gb_bench_at(&r->gated, rank), .in = g.grouped, .offsets = l.offsets, .fault = l.fault, .max_rows = capacity,
        .processors = r->bench->processors, .pool = {gb_bench_at(&r->pool, rank), NULL, r->per_rank, r->per_rank, r->hidden, r->width},
    };
    GB_TRY(gb_k_land(&l, r->streams[rank]));
    GB_TRY(gb_k_regroup(&g, r->streams[rank]));
    GB_TRY(gb_k_experts_gate_up(&e, r->streams[rank]));
    e.in = e.out;
    e.out = gb_bench_at(&r->out, rank);
    GB_TRY(gb_k_experts_down(&e, r->streams[rank]));
    return gb_k_bring_back(&g, r->streams[rank]);
}

static int combine(const ranks *r, uint32_t rank)
{
    const gb_k_combine_args c = {.x = gb_bench_at(&r->x, rank), .out = gb_bench_at(&r->back, rank), .grouped_of_route = gb_bench_at(&r->grouped_of_route, rank),
                                 .weights = gb_bench_at(&r->weights, rank), .n = r->T, .K = r->K, .hidden = r->hidden};
    return gb_k_combine(&c, r->streams[rank]);
}

/* Behind the second barrier everybody has read what was pushed, so the next step may push again. */
static int step(const ranks *r, bool commits)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (commits) GB_TRY(commit(r, rank));
        GB_CUDA(cudaMemcpyAsync(gb_bench_at(&r->x, rank), gb_bench_at(&r->x_before, rank), r->x.bytes, cudaMemcpyDeviceToDevice, r->streams[rank]));
        GB_TRY(send(r, rank));
        GB_TRY(wait_for_all(r, rank));
        GB_TRY(compute(r, rank));
        GB_TRY(wait_for_all(r, rank));
        GB_TRY(combine(r, rank));
    }
    return GB_OK;
}

static int finish(const ranks *r)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) GB_CUDA(cudaStreamSynchronize(r->streams[rank]));
    GB_CUDA(cudaStreamSynchronize(r->migrate));
    return GB_OK;
}

/* --- one rank alone --- */

static int alone(void *self, uint32_t set, cudaStream_t stream)
{
    const ranks *r = self;
    const gb_k_dispatch_args d = gb_bench_dispatch_args(&r->all, set);
    const uint32_t n = RANKS * r->T;
    const gb_k_permute_args p = {.grouped = gb_bench_at(&r->all_grouped, 0), .grouped_of_route = gb_bench_at(&r->all_grouped_of_route, 0),
                                 .h = gb_bench_at(&r->all_h, 0), .slot_of_route = d.slot_of_route, .place_in_slot = d.place_in_slot, .offsets = d.offsets,
                                 .n = n, .K = r->K, .hidden = r->hidden};
    gb_k_experts_args e = {.out = gb_bench_at(&r->all_gated, 0), .in = p.grouped, .offsets = d.offsets, .fault = d.fault, .max_rows = n * r->K,
                           .processors = r->bench->processors, .pool = {gb_bench_at(&r->experts_pool, 0), NULL, r->E, r->E, r->hidden, r->width}};
    const gb_k_combine_args c = {.x = gb_bench_at(&r->all_x, 0), .out = gb_bench_at(&r->all_out, 0), .grouped_of_route = p.grouped_of_route,
                                 .weights = gb_bench_at(&r->all_weights, 0), .n = n, .K = r->K, .hidden = r->hidden};
    GB_TRY(gb_k_dispatch(&d, stream));
    GB_TRY(gb_k_permute(&p, stream));
    GB_TRY(gb_k_experts_gate_up(&e, stream));
    e.in = e.out;
    e.out = gb_bench_at(&r->all_out, 0);
    GB_TRY(gb_k_experts_down(&e, stream));
    return gb_k_combine(&c, stream);
}

/* --- making --- */

/* Row i of a rank is row i * RANKS + rank of all. */
static int deal(ranks *r, gb_bench_array *to, const gb_bench_array *from, size_t row_bytes)
{
    GB_TRY(gb_bench_take(r->bench, to, RANKS, r->T * row_bytes, 1));
    for (uint32_t rank = 0; rank < RANKS; rank++)
        GB_CUDA(cudaMemcpy2DAsync(gb_bench_at(to, rank), row_bytes, (char *)gb_bench_at(from, 0) + rank * row_bytes, RANKS * row_bytes, row_bytes, r->T,
                                  cudaMemcpyDeviceToDevice, r->bench->stream));
    return GB_OK;
}

static int make_rows(ranks *r)
{
    gb_bench *b = r->bench;
    const size_t n = (size_t)RANKS * r->T, routes = n * r->K;
    GB_TRY(gb_bench_make_routes(b, &r->all, (uint32_t)n, false, 1));
    GB_TRY(gb_bench_random_bf16(b, &r->all_h, 1, n * r->hidden, 1));
    GB_TRY(gb_bench_random_f32(b, &r->all_x, 1, n * r->hidden, 1));
    GB_TRY(gb_bench_random_f32(b, &r->all_weights, 1, routes, 1));
    GB_TRY(gb_bench_take(b, &r->all_grouped, 1, routes * r->hidden, 2));
    GB_TRY(gb_bench_take(b, &r->all_grouped_of_route, 1, routes, 4));
    GB_TRY(gb_bench_take(b, &r->all_gated, 1, routes * r->width, 2));
    GB_TRY(gb_bench_take(b, &r->all_out, 1, routes * r->hidden, 2));
    GB_TRY(deal(r, &r->h, &r->all_h, r->hidden * sizeof(uint16_t)));
    GB_TRY(deal(r, &r->x_before, &r->all_x, r->hidden * sizeof(float)));
    GB_TRY(deal(r, &r->weights, &r->all_weights, r->K * sizeof(float)));
    GB_TRY(deal(r, &r->experts, &r->all.experts, r->K * sizeof(int32_t)));
    GB_TRY(deal(r, &r->tokens, &r->all.tokens, sizeof(int32_t)));
    GB_TRY(deal(r, &r->positions, &r->all.positions, sizeof(int32_t)));
    return deal(r, &r->engines, &r->all.engines, sizeof(int32_t));
}

static int take_outputs(ranks *r)
{
    gb_bench *b = r->bench;
    const size_t routes = (size_t)r->T * r->K, capacity = RANKS * routes, cells = (size_t)r->per_rank * RANKS;
    const struct { gb_bench_array *array; size_t count, size; } arrays[] = {
        {&r->x, (size_t)r->T * r->hidden, 4}, {&r->slot_of_route, routes, 4}, {&r->place_in_slot, routes, 4}, {&r->offsets, r->slots + 1, 4},
        {&r->sent, cells_of(r), 4}, {&r->received, RANKS, 4}, {&r->work, r->slots + 1, 4}, {&r->grouped_of_route, routes, 4},
        {&r->rows, capacity * r->hidden, 2}, {&r->headers, (size_t)RANKS * (r->per_rank + GB_K_HEADER_WORDS), 4}, {&r->back, routes * r->hidden, 2},
        {&r->flags, RANKS, 4}, {&r->epoch, 1, 4}, {&r->begin, cells, 4}, {&r->from, cells, 4}, {&r->land_offsets, r->per_rank + 1, 4},
        {&r->start, RANKS + 1, 4}, {&r->landed, 1, 4}, {&r->grouped, capacity * r->hidden, 2}, {&r->gated, capacity * r->width, 2},
        {&r->out, capacity * r->hidden, 2}, {&r->staged, r->table_words, 4}, {&r->live, r->table_words, 4}, {&r->fault, 1, sizeof(gb_k_fault)},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) GB_TRY(gb_bench_take(b, arrays[i].array, RANKS, arrays[i].count, arrays[i].size));
    return GB_OK;
}

static int put_pointers(ranks *r, gb_bench_array *to, const gb_bench_array *windows)
{
    void *pointers[RANKS];
    for (uint32_t rank = 0; rank < RANKS; rank++) pointers[rank] = gb_bench_at(windows, rank);
    return gb_bench_put(r->bench, to, 1, pointers, RANKS, sizeof *pointers);
}

static size_t place_bytes(const ranks *r) { return (size_t)3 * r->width * r->hidden * sizeof(uint16_t); }

static char *weights_of_slot(const ranks *r, uint32_t slot) { return (char *)gb_bench_at(&r->pool, slot / r->per_rank) + slot % r->per_rank * place_bytes(r); }

static const char *weights_of_expert(const ranks *r, uint32_t expert) { return (const char *)gb_bench_at(&r->experts_pool, 0) + expert * place_bytes(r); }

/* Experts in equal shares, the last slots of each rank empty. */
static int make_experts(ranks *r)
{
    gb_bench *b = r->bench;
    GB_TRY(gb_bench_random_bf16(b, &r->experts_pool, 1, r->E * place_bytes(r) / 2, 0.05f));
    GB_TRY(gb_bench_take(b, &r->pool, RANKS, r->per_rank * place_bytes(r), 1));
    for (uint32_t slot = 0; slot < r->slots; slot++) {
        const uint32_t local = slot % r->per_rank, expert = slot / r->per_rank * (r->E / RANKS) + local;
        const bool empty = local >= r->E / RANKS;
        r->expert_of_slot[slot] = empty ? -1 : (int32_t)expert;
        if (!empty) GB_CUDA(cudaMemcpyAsync(weights_of_slot(r, slot), weights_of_expert(r, expert), place_bytes(r), cudaMemcpyDeviceToDevice, b->stream));
    }
    return GB_OK;
}

static int make(ranks *r)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) GB_CUDA(cudaStreamCreateWithFlags(&r->streams[rank], cudaStreamNonBlocking));
    GB_CUDA(cudaStreamCreateWithFlags(&r->migrate, cudaStreamNonBlocking));
    r->table = calloc(r->table_words, sizeof *r->table);
    r->expert_of_slot = calloc(r->slots, sizeof *r->expert_of_slot);
    r->wanted = malloc((size_t)RANKS * r->T * r->hidden * sizeof *r->wanted);
    r->got = malloc((size_t)r->T * r->hidden * sizeof *r->got);
    if (!r->table || !r->expert_of_slot || !r->wanted || !r->got) return gb_k_fail(GB_ENOMEM, "out of memory for %d ranks", RANKS);
    for (size_t i = 0; i < cells_of(r); i++) r->table[cells_of(r) + i] = -1;
    GB_TRY(make_rows(r));
    GB_TRY(take_outputs(r));
    GB_TRY(put_pointers(r, &r->rows_of, &r->rows));
    GB_TRY(put_pointers(r, &r->headers_of, &r->headers));
    GB_TRY(put_pointers(r, &r->back_of, &r->back));
    GB_TRY(put_pointers(r, &r->flags_of, &r->flags));
    GB_TRY(make_experts(r));
    GB_CUDA(cudaStreamSynchronize(r->bench->stream));
    return stage_table(r);
}

static void unmake(ranks *r)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (r->streams[rank]) cudaStreamDestroy(r->streams[rank]);
    if (r->migrate) cudaStreamDestroy(r->migrate);
    free(r->table);
    free(r->expert_of_slot);
    free(r->wanted);
    free(r->got);
    gb_bench_free_routes(&r->all);
}

/* --- what must hold --- */

/* x of every rank against the rows of one alone, bit by bit. */
static int check_sums(ranks *r, uint32_t number)
{
    const size_t row = r->hidden * sizeof(float);
    unsigned differ = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        GB_CUDA(cudaMemcpy(r->got, gb_bench_at(&r->x, rank), r->x.bytes, cudaMemcpyDeviceToHost));
        for (uint32_t i = 0; i < r->T; i++)
            differ += memcmp(r->got + (size_t)i * r->hidden, r->wanted + ((size_t)i * RANKS + rank) * r->hidden, row) != 0;
    }
    if (differ) gb_bench_wrong(r->bench, "ranks: step %u: %u of %u rows differ from those of one rank alone", number, differ, RANKS * r->T);
    return GB_OK;
}

static int check_faults(ranks *r)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        gb_k_fault f;
        GB_CUDA(cudaMemcpy(&f, gb_bench_at(&r->fault, rank), sizeof f, cudaMemcpyDeviceToHost));
        if (f.kind != GB_K_FAULT_NONE) gb_bench_wrong(r->bench, "ranks: rank %u has fault %u, row %u, value %d", rank, f.kind, f.row, f.value);
    }
    return GB_OK;
}

/* Senders count by expert, receivers what landed. */
static int check_counts(ranks *r, uint32_t steps)
{
    uint64_t sent = 0, landed = 0;
    uint32_t *counts = malloc(cells_of(r) * sizeof *counts), mine = 0;
    if (!counts) return gb_k_fail(GB_ENOMEM, "out of memory for counts");
    int status = GB_OK;
    for (uint32_t rank = 0; rank < RANKS && status == GB_OK; rank++) {
        if (cudaMemcpy(counts, gb_bench_at(&r->sent, rank), r->sent.bytes, cudaMemcpyDeviceToHost) != cudaSuccess ||
            cudaMemcpy(&mine, gb_bench_at(&r->landed, rank), sizeof mine, cudaMemcpyDeviceToHost) != cudaSuccess)
            status = gb_k_fail(GB_EDOWN, "counts of rank %u cannot be read", rank);
        for (size_t i = 0; i < cells_of(r); i++) sent += counts[i];
        landed += mine;
    }
    free(counts);
    const uint64_t want = (uint64_t)steps * RANKS * r->T * r->K;
    if (status == GB_OK && (sent != want || landed != want))
        gb_bench_wrong(r->bench, "ranks: %llu routes were sent and %llu landed, of %llu", (unsigned long long)sent, (unsigned long long)landed,
                       (unsigned long long)want);
    return status;
}

/* The weights in each slot are those of the expert that the table says. */
static int check_tags(ranks *r)
{
    uint64_t tag, want;
    for (uint32_t slot = 0; slot < r->slots; slot++) {
        if (r->expert_of_slot[slot] < 0) continue;
        const size_t last = place_bytes(r) - sizeof tag;
        GB_CUDA(cudaMemcpy(&tag, weights_of_slot(r, slot) + last, sizeof tag, cudaMemcpyDeviceToHost));
        GB_CUDA(cudaMemcpy(&want, weights_of_expert(r, (uint32_t)r->expert_of_slot[slot]) + last, sizeof want, cudaMemcpyDeviceToHost));
        if (tag != want) gb_bench_wrong(r->bench, "ranks: slot %u does not hold expert %d", slot, r->expert_of_slot[slot]);
    }
    return GB_OK;
}

/* --- the loop --- */

static uint32_t pick_slot(ranks *r, bool empty)
{
    for (;;) {
        const uint32_t slot = (uint32_t)gb_rng_below(&r->rng, r->slots);
        if ((r->expert_of_slot[slot] < 0) == empty) return slot;
    }
}

/* Queues the copy of an expert to an empty slot, beside a step that reads the one and not the other. */
static int begin_move(ranks *r, uint32_t *from, uint32_t *to)
{
    *to = pick_slot(r, true);
    do *from = pick_slot(r, false);
    while (*from / r->per_rank == *to / r->per_rank);
    GB_CUDA(cudaMemcpyAsync(weights_of_slot(r, *to), weights_of_slot(r, *from), place_bytes(r), cudaMemcpyDeviceToDevice, r->migrate));
    return GB_OK;
}

static int run_steps(ranks *r, uint32_t steps)
{
    bool commits = true;    /* the first table */
    for (uint32_t i = 0; i < steps; i++) {
        const bool moves = i % MOVE_EVERY == 0;
        uint32_t from = 0, to = 0;
        GB_TRY(step(r, commits));
        if (moves) GB_TRY(begin_move(r, &from, &to));
        GB_TRY(finish(r));
        GB_TRY(check_sums(r, i));
        commits = moves;
        if (!moves) continue;
        r->expert_of_slot[to] = r->expert_of_slot[from];
        r->expert_of_slot[from] = -1;
        GB_TRY(stage_table(r));
    }
    GB_TRY(check_faults(r));
    GB_TRY(check_counts(r, steps));
    return check_tags(r);
}

/* --- times --- */

typedef struct timed {
    const ranks *ranks;
    bool commits;
} timed;

/* All ranks between two points of the bench's stream. */
static int step_between(void *self, uint32_t set, cudaStream_t stream)
{
    const timed *t = self;
    const ranks *r = t->ranks;
    cudaEvent_t event;
    (void)set;
    GB_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    GB_CUDA(cudaEventRecord(event, stream));
    for (uint32_t rank = 0; rank < RANKS; rank++) GB_CUDA(cudaStreamWaitEvent(r->streams[rank], event, 0));
    GB_TRY(step(r, t->commits));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        GB_CUDA(cudaEventRecord(event, r->streams[rank]));
        GB_CUDA(cudaStreamWaitEvent(stream, event, 0));
    }
    GB_CUDA(cudaEventDestroy(event));
    return GB_OK;
}

static int time_ranks(gb_bench *b, ranks *r, gb_bench_time one)
{
    timed t = {r, false};
    gb_bench_row without = {.step = "ranks", .item = "step of 4 ranks"}, with = {.step = "ranks", .item = "stall of a commit"};
    GB_TRY(gb_bench_repeat(b, &without.time, step_between, &t, 1));
    t.commits = true;
    GB_TRY(gb_bench_repeat(b, &with.time, step_between, &t, 1));
    snprintf(without.size, sizeof without.size, "%u tokens", RANKS * r->T);
    snprintf(with.size, sizeof with.size, "%u tokens", RANKS * r->T);
    without.ratio = one.us > 0 ? without.time.us / one.us : 0;
    with.time.us = with.time.us > without.time.us ? with.time.us - without.time.us : 0;
    gb_bench_report(b, &without);
    gb_bench_report(b, &with);
    return GB_OK;
}

static int run_all(gb_bench *b, ranks *r, uint32_t steps)
{
    gb_bench_row one = {.step = "ranks", .item = "the same by one rank"};
    GB_TRY(make(r));
    GB_TRY(alone(r, 0, b->stream));
    GB_CUDA(cudaStreamSynchronize(b->stream));
    GB_CUDA(cudaMemcpy(r->wanted, gb_bench_at(&r->all_x, 0), r->all_x.bytes, cudaMemcpyDeviceToHost));
    GB_TRY(run_steps(r, steps));
    GB_TRY(gb_bench_repeat(b, &one.time, alone, r, 1));
    snprintf(one.size, sizeof one.size, "%u tokens", RANKS * r->T);
    gb_bench_report(b, &one);
    GB_TRY(time_ranks(b, r, one.time));
    GB_TRY(finish(r));
    return check_faults(r);
}

static int run_size(gb_bench *b, uint32_t T, uint32_t steps)
{
    const gb_bench_shape *s = &b->shape;
    ranks r = {.bench = b, .T = T, .K = s->K, .E = s->experts, .hidden = s->hidden, .width = s->width, .per_rank = s->experts / RANKS + EMPTY_SLOTS};
    r.slots = RANKS * r.per_rank;
    r.table_words = 2 * cells_of(&r) + cells_of(&r) / 2 + 1;
    gb_rng_init(&r.rng, b->seed + T);
    int status = run_all(b, &r, steps);
    cudaDeviceSynchronize();
    unmake(&r);
    return status;
}

int gb_bench_ranks_step(gb_bench *b)
{
    GB_TRY(run_size(b, b->emulated ? 3 : 16, b->emulated ? 12 : 200));
    return run_size(b, b->emulated ? 20 : 2048, b->emulated ? 4 : 12);
}
