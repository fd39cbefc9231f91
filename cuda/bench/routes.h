/* Tokens and the experts that a router chose for them: the input of everything between router and combine. */
#ifndef GB_CUDA_BENCH_ROUTES_H
#define GB_CUDA_BENCH_ROUTES_H

#include "cuda/bench/bench.h"

enum { GB_BENCH_SOURCES = 4, GB_BENCH_RANKS = 4 };

typedef struct gb_bench_routes {
    uint32_t n, K, E;
    uint32_t *expected;        /* [sources][E] what one launch sends */
    int32_t *host_experts;     /* [n][K] */
    gb_bench_array experts, tokens, positions, engines, route, other, share;
    gb_bench_array slot_of_route, place_in_slot, offsets, sent, received, work, fault;
} gb_bench_routes;

/* K different experts for each of n tokens, all alike or by Zipf's law; expert e has slot e. */
int  gb_bench_make_routes(gb_bench *b, gb_bench_routes *r, uint32_t n, bool zipf, uint32_t sets);
void gb_bench_free_routes(gb_bench_routes *r);
gb_k_dispatch_args gb_bench_dispatch_args(const gb_bench_routes *r, uint32_t set);
/* Bytes that a pass over the routes moves at least: ids in, slot and place out, three words a token. */
double gb_bench_routes_bytes(uint32_t n, uint32_t K);

#endif
