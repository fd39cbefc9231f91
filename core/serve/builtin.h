/* Policies in C: the answer when a script has none, and the oracle that specs compare scripts with. */
#ifndef GB_SERVE_BUILTIN_H
#define GB_SERVE_BUILTIN_H

#include <stdbool.h>

#include "core/flow/policy.h"

typedef struct gb_pressure_params {
    double w_wait, w_pending, kv_soft, w_kv, w_moe;    /* 1, 1, 0.70, 8192 tokens, 2048 tokens */
    double near_tie_tokens, near_tie_ratio;            /* 64, 0.05 of the lowest */
    double kv_high, kv_gap;                            /* 0.90, 0.10 */
    double affinity_lead;                              /* 8 requests */
    double stale_after_ns;                             /* 1e9 */
} gb_pressure_params;

void gb_pressure_params_default(gb_pressure_params *params);

/* Algorithm 1 (self = const gb_pressure_params *) and Algorithm 2 (key = prefill tokens that are not cached; self unused). */
int gb_builtin_select(void *self, const gb_request_row *request, const gb_engine_table *engines, gb_time now);
int gb_builtin_order(void *self, gb_queue_table *queue, gb_time now);

/* Every engine that is up has a trace no older than stale_after_ns. */
bool gb_builtin_traces_fresh(const gb_engine_table *engines, double stale_after_ns);

/* Ordered dispatch: engines->next, skipping engines that are down; GB_POLICY_NIL when all are. */
int gb_builtin_ordered(const gb_engine_table *engines);

#endif
