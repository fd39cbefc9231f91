/* Two policies on the same decisions: how often they agree, what each costs, what each would do to the engines. Counted one
   decision at a time; plain data, no thread of its own. Internal to bindings/lua, but for the results. */
#ifndef GB_LUA_COMPARE_H
#define GB_LUA_COMPARE_H

#include "bindings/lua/lua_fault.h"

enum { GB_LUA_COST_BUCKETS = 280 };    /* eight to a doubling, up to a minute */

typedef struct gb_lua_costs {
    uint64_t n, total_ns;
    uint32_t buckets[GB_LUA_COST_BUCKETS];
} gb_lua_costs;

void   gb_lua_costs_add(gb_lua_costs *costs, uint64_t ns);
double gb_lua_costs_mean_ns(const gb_lua_costs *costs);
/* What a part (0.5, 0.99) of the decisions stayed within, up to an eighth more than the truth; 0 without any. */
double gb_lua_costs_within_ns(const gb_lua_costs *costs, double part);

/* One policy. Where it had no opinion or failed, the built-in's decision counts as its own. */
typedef struct gb_lua_side {
    gb_lua_costs costs;
    uint64_t nils, faults;
    double spread_sum, moe_sum;            /* of select_engine, over the decisions */
    char last_fault[GB_LUA_FAULT_BYTES];   /* or "" */
} gb_lua_side;

typedef struct gb_lua_comparison {
    uint64_t decisions, agreed;
    gb_lua_side sides[2];
} gb_lua_comparison;

/* Mean over the decisions, of select_engine: after the decision, the prompt tokens that the engine with most of them has to compute,
   less those of the engine with fewest, over the mean engine's. Prompt tokens: running, waiting, dispatched, and the request's own
   that are not cached. And the moe_pressure of the chosen engines. */
double gb_lua_side_spread(const gb_lua_comparison *c, int side);
double gb_lua_side_moe(const gb_lua_comparison *c, int side);

/* Costs, nils and faults of a side's answer. fault may be NULL. */
void gb_lua_compare_answer(gb_lua_side *side, int answer, uint64_t ns, const char *fault);

/* Counts a decision between two engines, as decided; both are valid. */
void gb_lua_compare_engines(gb_lua_comparison *c, const gb_request_row *request, const gb_engine_table *engines, const int decided[2]);

typedef struct gb_lua_place {
    double key, wait;
    uint32_t row;
} gb_lua_place;    /* in a line */

/* Counts a decision between two orders of the same queue: they agree when nobody would be served at another place. places is scratch
   for queue->n. */
void gb_lua_compare_orders(gb_lua_comparison *c, const gb_queue_table *queue, const double *const keys[2], gb_lua_place *places);

#endif
