/* A round: one batch per engine, executed together (the all-to-all is collective, so an idle engine sends an empty
   batch). The serving core fills a gb_round, a driver carries it to an executor, the gb_result carries the answer back.
   A round and its result are handed over whole: nobody else reads or writes them while the executor has them.

   Counts of experts may take their time. An executor can keep those of some rounds and bring them with the result of a later one; once
   a round is counts_due its result has everything, so whoever adds up results from one such round to the next has the counts of all
   rounds between, whether they came one by one or at once. A round that fails loses what was counted since counts were last due, kept
   or brought: both sides begin anew.

   Prefill and decode are one thing here: positions start .. start + count - 1 of a sequence are computed, and if they
   reach the end of what is known, one token is sampled. */
#ifndef GB_FLOW_ROUND_H
#define GB_FLOW_ROUND_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "core/flow/event.h"
#include "core/flow/ids.h"
#include "core/flow/matrix.h"
#include "core/flow/placement.h"
#include "core/flow/sampling.h"

/* One sequence's share of a batch. */
typedef struct gb_work {
    gb_request_id id;
    const int32_t *tokens;       /* [n_tokens] prompt, then what was generated */
    uint32_t n_tokens, n_prompt;
    uint32_t start, count;       /* positions computed now; count >= 1 */
    const int32_t *blocks;       /* [ceil((start + count) / GB_BLOCK_TOKENS)] KV blocks of this engine, in position order */
    bool samples;                /* start + count == n_tokens: one token comes back */
    const gb_sampling *sampling;
    const int32_t *banned;       /* [n_banned] tokens that must not be sampled (min_tokens) */
    uint32_t n_banned;
} gb_work;

typedef struct gb_batch {
    uint32_t n_works, n_tokens;  /* n_tokens = sum of counts */
    gb_work *works;              /* [max_works] */
} gb_batch;

typedef struct gb_round {
    uint64_t seq;
    uint32_t n_engines;
    gb_batch *batches;           /* [n_engines] */
    const gb_placement *placement;
    bool counts_due;             /* its result brings all counts that there are */
} gb_round;

typedef struct gb_sampled {
    int32_t token;               /* -1: the work was cancelled, or samples nothing */
    bool cancelled;              /* its positions were not all computed */
    gb_logprobs logprobs;        /* filled when sampling->logprobs >= 0 */
} gb_sampled;

typedef struct gb_result {
    uint64_t seq;
    int status;                  /* 0, or why no engine has an answer (GB_EDOWN, ...) */
    gb_time elapsed;             /* as the executor's clock saw it */
    gb_sampled **sampled;        /* [n_engines][n_works of that batch] */
    gb_matrix counts;            /* A, counted on the dispatch path: what has not been in a result yet */
    bool counts_pending;         /* and not all of that, which may be none: the rest is still with the executor */
    uint64_t *rank_tokens;       /* [ranks] expert tokens of this round that arrived at each rank, counted there */
} gb_result;

typedef struct gb_round_limits {
    uint32_t engines, ranks;
    uint32_t max_works;          /* sequences in one batch */
    uint32_t max_tokens;         /* positions in one batch */
    uint32_t moe_layers, experts;
} gb_round_limits;

int gb_round_init(gb_round *round, gb_arena *arena, const gb_round_limits *limits);       /* GB_ENOMEM */
int gb_result_init(gb_result *result, gb_arena *arena, const gb_round_limits *limits);    /* GB_ENOMEM */

#endif
