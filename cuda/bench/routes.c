#include "cuda/bench/routes.h"

#include <math.h>
#include <stdlib.h>

double gb_bench_routes_bytes(uint32_t n, uint32_t K) { return (double)n * K * 12 + (double)n * 12; }

/* shares[e] = probability of experts 0 .. e. */
static void cumulate(double *shares, uint32_t E, bool zipf)
{
    double sum = 0;
    for (uint32_t e = 0; e < E; e++) shares[e] = sum += zipf ? 1.0 / (e + 1) : 1;
    for (uint32_t e = 0; e < E; e++) shares[e] /= sum;
}

static int32_t draw(const double *shares, uint32_t E, gb_rng *rng)
{
    const double x = gb_rng_uniform(rng);
    uint32_t low = 0, high = E - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (shares[middle] > x) high = middle;
        else low = middle + 1;
    }
    return (int32_t)low;
}

static void choose_experts(gb_bench_routes *r, bool zipf, gb_rng *rng)
{
    double shares[GB_K_EXPERTS_MAX];
    cumulate(shares, r->E, zipf);
    for (uint32_t row = 0; row < r->n; row++)
        for (uint32_t k = 0; k < r->K;) {
            int32_t *mine = r->host_experts + (size_t)row * r->K;
            mine[k] = draw(shares, r->E, rng);
            uint32_t same = 0;
            while (mine[same] != mine[k]) same++;
            if (same < k) continue;
            r->expected[row % GB_BENCH_SOURCES * r->E + (uint32_t)mine[k++]]++;
        }
}

static int put_tokens(gb_bench *b, gb_bench_routes *r, uint32_t sets, gb_rng *rng)
{
    int32_t *words = malloc((size_t)r->n * 3 * sizeof *words);
    if (!words) return gb_k_fail(GB_ENOMEM, "out of memory for %u tokens", r->n);
    for (uint32_t row = 0; row < r->n; row++) {
        words[row] = (int32_t)gb_rng_below(rng, b->shape.vocab);
        words[r->n + row] = (int32_t)(row / 64);
        words[2 * r->n + row] = (int32_t)(row % GB_BENCH_SOURCES);
    }
    int status = gb_bench_put(b, &r->tokens, sets, words, r->n, 4);
    if (status == GB_OK) status = gb_bench_put(b, &r->positions, sets, words + r->n, r->n, 4);
    if (status == GB_OK) status = gb_bench_put(b, &r->engines, sets, words + 2 * r->n, r->n, 4);
    free(words);
    return status;
}

static int put_map(gb_bench *b, gb_bench_routes *r)
{
    int32_t route[GB_BENCH_SOURCES * GB_K_EXPERTS_MAX], other[GB_BENCH_SOURCES * GB_K_EXPERTS_MAX];
    const uint32_t cells = GB_BENCH_SOURCES * r->E;
    for (uint32_t i = 0; i < cells; i++) {
        route[i] = (int32_t)(i % r->E);
        other[i] = -1;
    }
    GB_TRY(gb_bench_put(b, &r->route, 1, route, cells, 4));
    GB_TRY(gb_bench_put(b, &r->other, 1, other, cells, 4));
    return gb_bench_take(b, &r->share, 1, cells, 2);
}

static int take_outputs(gb_bench *b, gb_bench_routes *r, uint32_t sets)
{
    const size_t routes = (size_t)r->n * r->K;
    GB_TRY(gb_bench_take(b, &r->slot_of_route, sets, routes, 4));
    GB_TRY(gb_bench_take(b, &r->place_in_slot, sets, routes, 4));
    GB_TRY(gb_bench_take(b, &r->offsets, sets, r->E + 1, 4));
    GB_TRY(gb_bench_take(b, &r->sent, 1, (size_t)GB_BENCH_SOURCES * r->E, 4));
    GB_TRY(gb_bench_take(b, &r->received, 1, GB_BENCH_RANKS, 4));
    GB_TRY(gb_bench_take(b, &r->work, 1, r->E + 1, 4));
    return gb_bench_take(b, &r->fault, 1, 1, sizeof(gb_k_fault));
}

int gb_bench_make_routes(gb_bench *b, gb_bench_routes *r, uint32_t n, bool zipf, uint32_t sets)
{
    gb_rng rng;
    gb_rng_init(&rng, b->seed + n + zipf);
    *r = (gb_bench_routes){.n = n, .K = b->shape.K, .E = b->shape.experts};
    r->expected = calloc((size_t)GB_BENCH_SOURCES * r->E, sizeof *r->expected);
    r->host_experts = malloc((size_t)n * r->K * sizeof *r->host_experts);
    if (!r->expected || !r->host_experts) return gb_k_fail(GB_ENOMEM, "out of memory for the experts of %u tokens", n);
    choose_experts(r, zipf, &rng);
    GB_TRY(gb_bench_put(b, &r->experts, sets, r->host_experts, (size_t)n * r->K, 4));
    GB_TRY(put_tokens(b, r, sets, &rng));
    GB_TRY(put_map(b, r));
    return take_outputs(b, r, sets);
}

void gb_bench_free_routes(gb_bench_routes *r)
{
    free(r->expected);
    free(r->host_experts);
    gb_bench_give_back();
}

gb_k_dispatch_args gb_bench_dispatch_args(const gb_bench_routes *r, uint32_t set)
{
    return (gb_k_dispatch_args){
        .slot_of_route = gb_bench_at(&r->slot_of_route, set), .place_in_slot = gb_bench_at(&r->place_in_slot, set),
        .offsets = gb_bench_at(&r->offsets, set), .sent = gb_bench_at(&r->sent, 0), .received = gb_bench_at(&r->received, 0),
        .work = gb_bench_at(&r->work, 0), .experts = gb_bench_at(&r->experts, set),
        .map = {gb_bench_at(&r->route, 0), gb_bench_at(&r->other, 0), gb_bench_at(&r->share, 0), GB_BENCH_SOURCES, r->E, GB_BENCH_RANKS, r->E},
        .rows = {.n = r->n, .tokens = gb_bench_at(&r->tokens, set), .positions = gb_bench_at(&r->positions, set),
                 .engines = gb_bench_at(&r->engines, set)},
        .fault = gb_bench_at(&r->fault, 0), .K = r->K,
    };
}
