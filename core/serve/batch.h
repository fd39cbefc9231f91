/* One engine's work in one round: decodes first, then prefill chunks under the token budget. Running requests are served
   best first (gb_live_outranks), then the waiting line in its order.

   KV rules. A request is admitted with blocks for all its known tokens (those that the prefix tree has are held, not computed
   again), so prefill never runs short; a decode that needs a
   block preempts the worst running request behind it (newest of the lowest class), and stalls for this round when there is
   none. A request preempted max_preemptions times is pinned: it comes back only with all the blocks it can ever need, and is
   never a victim again. So the best request progresses every round, and nobody is preempted without bound. */
#ifndef GB_SERVE_BATCH_H
#define GB_SERVE_BATCH_H

#include "core/flow/round.h"
#include "core/serve/engine.h"

typedef struct gb_batch_limits {
    uint32_t max_tokens;         /* of one batch */
    uint32_t max_running;        /* requests; at most max_tokens, so that every decode fits */
    uint32_t max_preemptions;
    uint32_t max_bypass;         /* admissions past a blocked head, then it holds the line */
} gb_batch_limits;

/* Works for the running requests; preempts. True when waiting requests may be admitted afterwards: there is budget and room,
   and nobody was preempted just now. */
bool gb_batch_continue(gb_engine *engine, gb_batch *batch, const gb_batch_limits *limits);

/* Admits from the sorted line while budget, room and blocks last. */
void gb_batch_admit(gb_engine *engine, gb_batch *batch, const gb_batch_limits *limits, gb_time now);

#endif
