/* The kernels between ranks, as one of four sees them on one device: a source pushes its rows into everybody's windows, and a rank takes what
   four sources sent. Where all windows lie in one memory a push runs at its bandwidth; nothing is said about NVLink. */
#include "cuda/bench/routes.h"

enum { RANKS = GB_BENCH_RANKS };

typedef struct between_case {
    gb_bench_shape shape;
    uint32_t n, stride, per_rank;    /* stride: rows of a source in a window */
    gb_bench_routes routes;
    gb_bench_array h, rows, headers, rows_of, headers_of, back, back_of, grouped_of_route, version;
    gb_bench_array begin, from, offsets, start, received, grouped, out, own_slot, own_place, own_offsets, own_received, work, x, parts, sums, gated;
} between_case;

static gb_k_push_args push_args(const between_case *c, uint32_t source, uint32_t set)
{
    const gb_k_dispatch_args d = gb_bench_dispatch_args(&c->routes, set);
    return (gb_k_push_args){
        .rows = gb_bench_at(&c->rows_of, 0), .headers = gb_bench_at(&c->headers_of, 0), .grouped_of_route = gb_bench_at(&c->grouped_of_route, 0),
        .h = gb_bench_at(&c->h, set), .slot_of_route = d.slot_of_route, .place_in_slot = d.place_in_slot, .offsets = d.offsets,
        .version = gb_bench_at(&c->version, 0), .fault = d.fault, .n = c->n, .K = c->shape.K, .hidden = c->shape.hidden, .source = source, .ranks = RANKS,
        .slots = c->shape.experts, .stride = c->stride,
    };
}

static int dispatch(void *self, uint32_t set, cudaStream_t stream)
{
    const between_case *c = self;
    const gb_k_dispatch_args a = gb_bench_dispatch_args(&c->routes, set);
    return gb_k_dispatch(&a, stream);
}

static int headers(void *self, uint32_t set, cudaStream_t stream)
{
    const between_case *c = self;
    const gb_k_headers_args a = {.headers = gb_bench_at(&c->headers, RANKS), .offsets = gb_bench_dispatch_args(&c->routes, set).offsets,
                                 .version = gb_bench_at(&c->version, 0), .ranks = RANKS, .slots = c->shape.experts};
    return gb_k_headers(&a, stream);
}

static int push(void *self, uint32_t set, cudaStream_t stream)
{
    const gb_k_push_args a = push_args(self, 0, set);
    return gb_k_push(&a, stream);
}

static int land(void *self, uint32_t set, cudaStream_t stream)
{
    const between_case *c = self;
    (void)set;
    const gb_k_land_args a = {
        .begin = gb_bench_at(&c->begin, 0), .from = gb_bench_at(&c->from, 0), .offsets = gb_bench_at(&c->offsets, 0), .start = gb_bench_at(&c->start, 0),
        .received = gb_bench_at(&c->received, 0), .headers = gb_bench_at(&c->headers, 0), .version = gb_bench_at(&c->version, 0),
        .fault = gb_bench_at(&c->routes.fault, 0), .sources = RANKS, .slots = c->per_rank, .stride = c->stride, .capacity = RANKS * c->stride,
    };
    return gb_k_land(&a, stream);
}

static gb_k_regroup_args regroup_args(const between_case *c)
{
    return (gb_k_regroup_args){
        .grouped = gb_bench_at(&c->grouped, 0), .arrived = gb_bench_at(&c->rows, 0), .out = gb_bench_at(&c->out, 0), .back = gb_bench_at(&c->back_of, 0),
        .begin = gb_bench_at(&c->begin, 0), .from = gb_bench_at(&c->from, 0), .offsets = gb_bench_at(&c->offsets, 0), .start = gb_bench_at(&c->start, 0),
        .headers = gb_bench_at(&c->headers, 0), .sources = RANKS, .slots = c->per_rank, .hidden = c->shape.hidden, .capacity = RANKS * c->stride,
        .fault = gb_bench_at(&c->routes.fault, 0), .back_rows = c->n * c->shape.K,
    };
}

static int regroup(void *self, uint32_t set, cudaStream_t stream)
{
    const gb_k_regroup_args a = regroup_args(self);
    (void)set;
    return gb_k_regroup(&a, stream);
}

static int bring_back(void *self, uint32_t set, cudaStream_t stream)
{
    const gb_k_regroup_args a = regroup_args(self);
    (void)set;
    return gb_k_bring_back(&a, stream);
}

static int arrive(void *self, uint32_t set, cudaStream_t stream)
{
    const between_case *c = self;
    const gb_k_arrive_args a = {
        .own_slot_of_route = gb_bench_at(&c->own_slot, 0), .place_in_slot = gb_bench_at(&c->own_place, 0), .offsets = gb_bench_at(&c->own_offsets, 0),
        .received = gb_bench_at(&c->own_received, 0), .work = gb_bench_at(&c->work, 0),
        .slot_of_route = gb_bench_dispatch_args(&c->routes, set).slot_of_route, .n = c->n, .K = c->shape.K, .first_slot = 0, .slots = c->per_rank,
    };
    return gb_k_arrive(&a, stream);
}

static int spread(void *self, uint32_t set, cudaStream_t stream)
{
    const between_case *c = self;
    (void)set;
    const gb_k_spread_args a = {.out = gb_bench_at(&c->grouped, 0), .in = gb_bench_at(&c->back, 0), .grouped_of_route = gb_bench_at(&c->grouped_of_route, 0),
                                .n = c->n, .K = c->shape.K, .hidden = c->shape.hidden};
    return gb_k_spread(&a, stream);
}

static int sum(void *self, uint32_t set, cudaStream_t stream)
{
    const between_case *c = self;
    const gb_k_sum_args a = {.x = gb_bench_at(&c->x, set), .parts = gb_bench_at(&c->parts, set), .n = c->n, .hidden = c->shape.hidden, .ranks = RANKS,
                             .stride = c->n};
    return gb_k_sum(&a, stream);
}

static int silu(void *self, uint32_t set, cudaStream_t stream)
{
    const between_case *c = self;
    const gb_k_silu_args a = {.out = gb_bench_at(&c->gated, set), .sums = gb_bench_at(&c->sums, set), .n = c->n, .width = c->shape.width};
    return gb_k_silu(&a, stream);
}

/* Windows that everybody reaches: pointers to those of each rank. */
static int put_pointers(gb_bench *b, gb_bench_array *to, const gb_bench_array *windows)
{
    void *pointers[RANKS];
    for (uint32_t rank = 0; rank < RANKS; rank++) pointers[rank] = gb_bench_at(windows, rank);
    return gb_bench_put(b, to, 1, pointers, RANKS, sizeof *pointers);
}

static int make_windows(gb_bench *b, between_case *c)
{
    const size_t hidden = c->shape.hidden, routes = (size_t)c->n * c->shape.K, cells = (size_t)c->per_rank * RANKS;
    GB_TRY(gb_bench_take(b, &c->rows, RANKS, RANKS * (size_t)c->stride * hidden, 2));
    GB_TRY(gb_bench_take(b, &c->headers, RANKS + 1, RANKS * (c->per_rank + (size_t)GB_K_HEADER_WORDS), 4));    /* the last: for headers.cu */
    GB_TRY(gb_bench_take(b, &c->back, RANKS, routes * hidden, 2));
    GB_TRY(put_pointers(b, &c->rows_of, &c->rows));
    GB_TRY(put_pointers(b, &c->headers_of, &c->headers));
    GB_TRY(put_pointers(b, &c->back_of, &c->back));
    GB_TRY(gb_bench_take(b, &c->version, 1, 1, 4));
    GB_TRY(gb_bench_take(b, &c->begin, 1, cells, 4));
    GB_TRY(gb_bench_take(b, &c->from, 1, cells, 4));
    GB_TRY(gb_bench_take(b, &c->offsets, 1, c->per_rank + 1, 4));
    GB_TRY(gb_bench_take(b, &c->start, 1, RANKS + 1, 4));
    GB_TRY(gb_bench_take(b, &c->received, 1, 1, 4));
    GB_TRY(gb_bench_take(b, &c->grouped, 1, RANKS * (size_t)c->stride * hidden, 2));
    return gb_bench_take(b, &c->out, 1, RANKS * (size_t)c->stride * hidden, 2);
}

static int make_rest(gb_bench *b, between_case *c, uint32_t sets)
{
    const size_t hidden = c->shape.hidden, routes = (size_t)c->n * c->shape.K;
    GB_TRY(gb_bench_random_bf16(b, &c->h, sets, c->n * hidden, 1));
    GB_TRY(gb_bench_take(b, &c->grouped_of_route, 1, routes, 4));
    GB_TRY(gb_bench_take(b, &c->own_slot, 1, routes, 4));
    GB_TRY(gb_bench_take(b, &c->own_place, 1, routes, 4));
    GB_TRY(gb_bench_take(b, &c->own_offsets, 1, c->per_rank + 1, 4));
    GB_TRY(gb_bench_take(b, &c->own_received, 1, 1, 4));
    GB_TRY(gb_bench_take(b, &c->work, 1, c->per_rank + 1, 4));
    GB_TRY(gb_bench_random_f32(b, &c->x, sets, c->n * hidden, 1));
    GB_TRY(gb_bench_random_f32(b, &c->parts, sets, RANKS * c->n * hidden, 1));
    GB_TRY(gb_bench_random_f32(b, &c->sums, sets, (size_t)c->n * 2 * c->shape.width, 1));
    return gb_bench_take(b, &c->gated, sets, (size_t)c->n * c->shape.width, 2);
}

/* In the order of a round, for what takes rows needs what sent them. */
static int time_all(gb_bench *b, between_case *c, uint32_t sets)
{
    const double row = 2.0 * c->shape.hidden, routes = (double)c->n * c->shape.K, elements = (double)c->n * c->shape.hidden;
    const struct { const char *name; gb_bench_work *work; double bytes; } works[] = {
        {"headers", headers, 0}, {"push", push, c->n * row + routes * row}, {"land", land, 0}, {"regroup", regroup, 2 * routes * row},
        {"bring back", bring_back, 2 * routes * row}, {"arrive", arrive, 12 * routes}, {"spread", spread, 2 * routes * row},
        {"sum of 4 ranks", sum, 24 * elements}, {"silu", silu, 10.0 * c->n * c->shape.width},
    };
    for (uint32_t set = 0; set < sets; set++) GB_TRY(dispatch(c, set, b->stream));
    for (uint32_t source = 0; source < RANKS; source++) {
        const gb_k_push_args a = push_args(c, source, 0);
        GB_TRY(gb_k_push(&a, b->stream));
    }
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        gb_bench_row line = {.step = "kernels", .item = works[i].name, .bytes = works[i].bytes};
        snprintf(line.size, sizeof line.size, "%u tokens", c->n);
        GB_TRY(gb_bench_replay(b, &line.time, works[i].work, c, sets));
        gb_bench_report(b, &line);
    }
    return GB_OK;
}

static int check(gb_bench *b, const between_case *c)
{
    gb_k_fault f;
    GB_CUDA(cudaStreamSynchronize(b->stream));
    GB_CUDA(cudaMemcpy(&f, gb_bench_at(&c->routes.fault, 0), sizeof f, cudaMemcpyDeviceToHost));
    if (f.kind != GB_K_FAULT_NONE) gb_bench_wrong(b, "between ranks, %u tokens: fault %u in row %u, value %d", c->n, f.kind, f.row, f.value);
    return GB_OK;
}

/* Routes are spread evenly, so no rank gets more than half of a source's. */
int gb_bench_time_between(gb_bench *b, uint32_t n)
{
    between_case c = {.shape = b->shape, .n = n, .per_rank = b->shape.experts / RANKS};
    const uint32_t sets = gb_bench_sets(b, (double)n * b->shape.hidden * 24);
    c.stride = b->emulated ? n * b->shape.K : n * b->shape.K / 2;
    int status = gb_bench_make_routes(b, &c.routes, n, false, sets);
    if (status == GB_OK) status = make_windows(b, &c);
    if (status == GB_OK) status = make_rest(b, &c, sets);
    if (status == GB_OK) status = time_all(b, &c, sets);
    if (status == GB_OK) status = check(b, &c);
    gb_bench_free_routes(&c.routes);
    return status;
}
