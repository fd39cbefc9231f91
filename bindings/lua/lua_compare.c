#include "bindings/lua/lua_compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- costs ---- */

enum { STEPS = 8, EXACT_BITS = 3 };    /* buckets of a doubling; below 1 << EXACT_BITS each number has its own */

static unsigned bucket_of(uint64_t ns)
{
    if (ns < STEPS) return (unsigned)ns;
    unsigned top = 63u - (unsigned)__builtin_clzll(ns);
    unsigned bucket = (top - EXACT_BITS + 1) * STEPS + (unsigned)(ns >> (top - EXACT_BITS)) % STEPS;
    return bucket < GB_LUA_COST_BUCKETS ? bucket : GB_LUA_COST_BUCKETS - 1;
}

/* The first number of the next bucket, less one. */
static double upper_end(unsigned bucket)
{
    if (bucket < STEPS) return bucket;
    unsigned shift = bucket / STEPS - 1;
    return (double)(((uint64_t)(STEPS + bucket % STEPS + 1) << shift) - 1);
}

void gb_lua_costs_add(gb_lua_costs *costs, uint64_t ns)
{
    costs->n++;
    costs->total_ns += ns;
    costs->buckets[bucket_of(ns)]++;
}

double gb_lua_costs_mean_ns(const gb_lua_costs *costs) { return costs->n ? (double)costs->total_ns / (double)costs->n : 0; }

double gb_lua_costs_within_ns(const gb_lua_costs *costs, double part)
{
    double wanted = part * (double)costs->n, seen = 0;
    for (unsigned bucket = 0; costs->n && bucket < GB_LUA_COST_BUCKETS; bucket++) {
        seen += costs->buckets[bucket];
        if (seen >= wanted) return upper_end(bucket);
    }
    return 0;
}

/* ---- decisions ---- */

void gb_lua_compare_answer(gb_lua_side *side, int answer, uint64_t ns, const char *fault)
{
    gb_lua_costs_add(&side->costs, ns);
    side->nils += answer == GB_POLICY_NIL;
    side->faults += answer == GB_POLICY_FAULT;
    if (answer == GB_POLICY_FAULT && fault) snprintf(side->last_fault, sizeof side->last_fault, "%s", fault);
}

static double load_of(const gb_request_row *request, const gb_engine_table *engines, uint32_t e, int chosen)
{
    double own = e == (uint32_t)chosen ? fmax(0, request->prompt_tokens - engines->cached_tokens[e]) : 0;
    return engines->running_prefill_tokens[e] + engines->waiting_prefill_tokens[e] + engines->pending_tokens[e] + own;
}

static double spread(const gb_request_row *request, const gb_engine_table *engines, int chosen)
{
    double low = INFINITY, high = 0, sum = 0, n = 0;
    for (uint32_t e = 0; e < engines->n; e++) {
        if (engines->healthy[e] == 0) continue;
        double load = load_of(request, engines, e, chosen);
        low = fmin(low, load);
        high = fmax(high, load);
        sum += load;
        n++;
    }
    return sum > 0 ? (high - low) / (sum / n) : 0;
}

void gb_lua_compare_engines(gb_lua_comparison *c, const gb_request_row *request, const gb_engine_table *engines, const int decided[2])
{
    c->decisions++;
    c->agreed += decided[0] == decided[1];
    for (int side = 0; side < 2; side++) {
        c->sides[side].spread_sum += spread(request, engines, decided[side]);
        c->sides[side].moe_sum += engines->moe_pressure[decided[side]];
    }
}

static double mean(const gb_lua_comparison *c, double sum) { return c->decisions ? sum / (double)c->decisions : 0; }
double gb_lua_side_spread(const gb_lua_comparison *c, int side) { return mean(c, c->sides[side].spread_sum); }
double gb_lua_side_moe(const gb_lua_comparison *c, int side) { return mean(c, c->sides[side].moe_sum); }

/* As the queue is sorted: by key, then who waited longer. */
static int by_place(const void *a, const void *b)
{
    const gb_lua_place *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    if (x->wait != y->wait) return x->wait > y->wait ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

void gb_lua_compare_orders(gb_lua_comparison *c, const gb_queue_table *queue, const double *const keys[2], gb_lua_place *places)
{
    uint32_t n = 0;
    bool same = true;
    for (uint32_t i = 0; i < queue->n; i++)
        if (queue->promoted[i] == 0) places[n++] = (gb_lua_place){keys[0][i], queue->wait_ns[i], i};    /* nobody's key moves the others */
    qsort(places, n, sizeof *places, by_place);
    for (uint32_t i = 0; i < n; i++) places[i].key = keys[1][places[i].row];
    for (uint32_t i = 1; i < n && same; i++) same = by_place(&places[i - 1], &places[i]) < 0;
    c->decisions++;
    c->agreed += same;
}
