/* What counting costs (the paper's Figure 13): the map alone; with a kernel of its own that counts; with an addition in device memory for each
   route; and our dispatch, which counts in shared memory on the way and finds places and offsets besides. All that count must count the same. */
#include <string.h>

#include "cuda/bench/rivals.h"
#include "cuda/bench/routes.h"

typedef struct contestant {
    const char *name;
    int (*launch)(const gb_k_dispatch_args *a, cudaStream_t stream);
    bool counts;
} contestant;

static int map_then_count(const gb_k_dispatch_args *a, cudaStream_t stream)
{
    GB_TRY(gb_b_map_only(a, stream));
    return gb_b_count_apart(a, stream);
}

static const contestant contestants[] = {
    {"map only", gb_b_map_only, false},
    {"map, then count", map_then_count, true},
    {"global additions", gb_b_map_and_count_globally, true},
    {"fused dispatch", gb_k_dispatch, true},
};
enum { CONTESTANTS = sizeof contestants / sizeof *contestants };

typedef struct race {
    const gb_bench_routes *routes;
    const contestant *contestant;
} race;

static int launch(void *self, uint32_t set, cudaStream_t stream)
{
    const race *r = self;
    const gb_k_dispatch_args a = gb_bench_dispatch_args(r->routes, set);
    return r->contestant->launch(&a, stream);
}

/* One launch: counts as expected, slots as the map says. */
static int check(gb_bench *b, const gb_bench_routes *r, const contestant *c, const char *size)
{
    static uint32_t sent[GB_BENCH_SOURCES * GB_K_EXPERTS_MAX];
    const gb_k_dispatch_args a = gb_bench_dispatch_args(r, 0);
    const size_t cells = (size_t)GB_BENCH_SOURCES * r->E;
    unsigned differ = 0;
    GB_CUDA(cudaMemsetAsync(a.sent, 0, cells * sizeof *sent, b->stream));
    GB_TRY(c->launch(&a, b->stream));
    GB_CUDA(cudaMemcpyAsync(sent, a.sent, cells * sizeof *sent, cudaMemcpyDeviceToHost, b->stream));
    GB_CUDA(cudaStreamSynchronize(b->stream));
    for (size_t i = 0; i < cells; i++) differ += sent[i] != (c->counts ? r->expected[i] : 0);
    if (differ) gb_bench_wrong(b, "counting, %s, %s: %u of %zu counts differ from the host's", c->name, size, differ, cells);
    int32_t slots[1024];
    const size_t routes = (size_t)r->n * r->K, seen = routes < 1024 ? routes : 1024;
    GB_CUDA(cudaMemcpy(slots, a.slot_of_route, seen * sizeof *slots, cudaMemcpyDeviceToHost));
    if (memcmp(slots, r->host_experts, seen * sizeof *slots) != 0) gb_bench_wrong(b, "counting, %s, %s: slots differ from the map", c->name, size);
    return GB_OK;
}

static int run_size(gb_bench *b, uint32_t n, bool zipf, double *uniform_us)
{
    gb_bench_routes routes;
    double map_us = 0;
    const uint32_t sets = gb_bench_sets(b, gb_bench_routes_bytes(n, b->shape.K));
    int status = gb_bench_make_routes(b, &routes, n, zipf, sets);
    for (size_t i = 0; i < CONTESTANTS && status == GB_OK; i++) {
        gb_bench_row row = {.step = "counting", .item = contestants[i].name};
        race r = {&routes, &contestants[i]};
        snprintf(row.size, sizeof row.size, "%u tokens, %s", n, zipf ? "zipf" : "uniform");
        status = check(b, &routes, &contestants[i], row.size);
        if (status == GB_OK) status = gb_bench_replay(b, &row.time, launch, &r, sets);
        if (status != GB_OK) break;
        if (i == 0) map_us = row.time.us;
        /* uniform ids: times the map alone; Zipf's: times uniform ones */
        if (i > 0 && !zipf && map_us > 0) row.ratio = row.time.us / map_us;
        if (zipf && uniform_us[i] > 0) row.ratio = row.time.us / uniform_us[i];
        if (!zipf) uniform_us[i] = row.time.us;
        gb_bench_report(b, &row);
    }
    gb_bench_free_routes(&routes);
    return status;
}

int gb_bench_counting_step(gb_bench *b)
{
    static const uint32_t sizes[] = {64, 1024, 8192, 1048576}, tiny_sizes[] = {1, 64, 700};
    const uint32_t *n = b->emulated ? tiny_sizes : sizes;
    for (size_t i = 0; i < (b->emulated ? 3 : 4); i++) {
        double uniform_us[CONTESTANTS] = {0};
        GB_TRY(run_size(b, n[i], false, uniform_us));
        GB_TRY(run_size(b, n[i], true, uniform_us));
    }
    return GB_OK;
}
