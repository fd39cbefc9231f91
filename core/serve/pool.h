/* The live requests: a bounded pool of slots, all memory taken at start. A slot is taken by submit and given back when the
   request has ended, its end was polled and no round holds it. The slot given back last is taken first, so that memory
   touched stays flat under steady load. Ids carry the slot's generation and are never reused. */
#ifndef GB_SERVE_POOL_H
#define GB_SERVE_POOL_H

#include "core/base/arena.h"
#include "core/base/time.h"
#include "core/flow/ids.h"
#include "core/serve/kv.h"
#include "core/serve/stream.h"

typedef enum gb_phase {
    GB_PHASE_FREE,         /* the slot is nobody's */
    GB_PHASE_WAITING,      /* in its engine's queue */
    GB_PHASE_RUNNING,      /* among its engine's running requests; owns KV blocks */
    GB_PHASE_PREEMPTED,    /* in the queue again; owns no blocks, keeps its tokens */
    GB_PHASE_ENDED,        /* its end is in the outbox or was polled; a round may still hold its blocks */
} gb_phase;

typedef struct gb_live {
    gb_request_id id;
    uint64_t tag;
    uint32_t index, engine;
    gb_phase phase;
    bool promoted;         /* has waited longer than the aging threshold since it arrived */
    bool in_round;         /* the running round holds its tokens and blocks ... */
    uint32_t work;         /* ... as this work of its engine's batch */
    bool end_polled;
    int32_t priority;
    uint32_t session;
    uint32_t n_prompt, n_tokens;    /* n_tokens = prompt + generated */
    uint32_t n_computed;            /* positions in KV */
    uint32_t cached_tokens;         /* of the prompt that were there when it was first scheduled */
    uint32_t preemptions;
    uint32_t bypassed;              /* admissions past it while it was the blocked head */
    uint64_t dispatch;              /* its number among its engine's dispatches */
    gb_time arrived, deadline;
    gb_time scheduled, first_token, last_token;    /* GB_NEVER until then */
    int32_t *tokens;                /* [max_model_len] */
    gb_kv_share kv;
    gb_stream *stream;
} gb_live;

typedef struct gb_pool {
    uint32_t capacity, n_free;
    gb_live *slots;
    uint32_t *free_slots;    /* [n_free] stack */
} gb_pool;

/* GB_ENOMEM. Token arrays have room for max_positions each; untouched ones cost address space only. */
int gb_pool_init(gb_pool *pool, gb_arena *arena, uint32_t capacity, uint32_t max_positions);

gb_live *gb_pool_take(gb_pool *pool);                              /* a fresh slot with a new id; NULL when full */
void     gb_pool_give_back(gb_pool *pool, gb_live *live);
gb_live *gb_pool_find(const gb_pool *pool, gb_request_id id);      /* NULL when the id's slot moved on */

static inline bool gb_live_has_ended(const gb_live *live)
{
    return live->phase == GB_PHASE_ENDED || live->phase == GB_PHASE_FREE;
}

static inline bool gb_live_is_waiting(const gb_live *live)
{
    return live->phase == GB_PHASE_WAITING || live->phase == GB_PHASE_PREEMPTED;
}

static inline uint32_t gb_live_generated(const gb_live *live) { return live->n_tokens - live->n_prompt; }
static inline uint32_t gb_live_left(const gb_live *live) { return live->n_tokens - live->n_computed; }

/* One known token left to compute, and it was generated: a decode step. */
static inline bool gb_live_decodes(const gb_live *live) { return gb_live_left(live) == 1 && live->n_tokens > live->n_prompt; }

/* Positions it can ever have in KV: the last token is never computed. */
static inline uint32_t gb_live_positions_max(const gb_live *live)
{
    return live->n_prompt + live->stream->sampling.max_tokens - 1;
}

/* The order of importance on an engine: better class, then older. The best progresses first, the worst is preempted first. */
static inline bool gb_live_outranks(const gb_live *a, const gb_live *b)
{
    if (a->priority != b->priority) return a->priority < b->priority;
    if (a->arrived != b->arrived) return a->arrived < b->arrived;
    return a->id < b->id;
}

#endif
