/* One engine's private state: who waits, who runs, whose work the running round holds, and what it last reported. */
#ifndef GB_SERVE_ENGINE_H
#define GB_SERVE_ENGINE_H

#include "core/serve/kv.h"
#include "core/serve/queue.h"

typedef struct gb_trace {
    uint64_t seq;                       /* 0 = none yet */
    gb_time at;
    uint64_t seen_dispatch;             /* the last dispatch it knows of */
    double running_prefill_tokens, waiting_prefill_tokens, kv_used_ratio, kv_used_tokens, kv_free_tokens, moe_pressure;
    double running, waiting, oldest_wait_ns, preemptions, round_time_ns;
} gb_trace;

typedef struct gb_engine {
    uint32_t index;
    bool healthy;
    gb_kv kv;
    gb_queue queue;
    uint32_t n_running;
    gb_live **running;                  /* [max_num_seqs] best first (gb_live_outranks) */
    uint32_t n_flight;
    gb_live **flight;                   /* [max_num_seqs] of the running round's works, in batch order */
    uint32_t *flight_counts;            /* positions each of them computes */
    uint64_t preemptions, dispatches;
    gb_trace trace;                     /* the latest published */
    uint64_t pending, pending_tokens;   /* dispatches the trace has not seen, and their prompt tokens */
} gb_engine;

/* GB_ENOMEM. */
int gb_engine_init(gb_engine *engine, gb_arena *arena, uint32_t index, uint32_t n_blocks, bool sharing, uint32_t max_running,
                   uint32_t queue_capacity);

void gb_engine_add_running(gb_engine *engine, gb_live *live);
void gb_engine_remove_running(gb_engine *engine, const gb_live *live);    /* it is there */

#endif
