/* The round seam: something that runs a round, real (forward over a backend's ops) or simulated. Callers use the
   wrappers, never the table. gb_executor_run and gb_executor_copy block, each with one call at a time; a copy and gb_executor_cancel
   may be called from other threads while a round runs. */
#ifndef GB_FORWARD_EXECUTOR_H
#define GB_FORWARD_EXECUTOR_H

#include "core/flow/copy.h"
#include "core/flow/round.h"

typedef struct gb_executor_info {
    const char *backend;          /* "cpu" */
    char kernels[64];             /* which variant runs, for the start-up log: "avx2+fma" */
    uint32_t engines, ranks;
    uint32_t moe_layers, experts, experts_per_token;
    uint32_t vocab, max_positions;    /* positions a sequence can have */
    uint32_t blocks_per_engine;       /* KV blocks of GB_BLOCK_TOKENS positions */
    uint32_t max_works, max_tokens;   /* per batch */
    uint64_t weight_bytes, kv_bytes;  /* resident, packed */
    bool private_ranks;               /* ranks have experts in memory of their own: moving one takes a copy ... */
    uint64_t expert_bytes;            /* ... of so many bytes */
    uint32_t threads;
} gb_executor_info;

typedef struct gb_executor gb_executor;

typedef struct gb_executor_table {
    int  (*run)(gb_executor *executor, const gb_round *round, gb_result *result);
    void (*cancel)(gb_executor *executor, uint64_t round_seq, uint32_t engine, uint32_t work);    /* optional */
    int  (*copy)(gb_executor *executor, const gb_copy_list *list);                                        /* optional */
    uint64_t (*checksum)(gb_executor *executor, uint32_t moe_layer, uint32_t place);                      /* optional */
    void (*free)(gb_executor *executor);
} gb_executor_table;

/* An executor begins with this; the rest belongs to whoever made it. */
struct gb_executor {
    const gb_executor_table *table;
    gb_executor_info info;
    uint64_t sent, arrived;           /* expert tokens since all counts were here; gb_executor_run's own */
};

/* Runs every batch of the round to its end and fills the result. Returns result->status: 0, or GB_EDOWN and the like when
   the round could not be computed (then no sampled token is valid). Asserts the limits of info on the way in, and on the way out that
   counts are there when due and that what was sent has arrived. */
int gb_executor_run(gb_executor *executor, const gb_round *round, gb_result *result);

/* Asks that a work of the running round be dropped; its rows stop at the next layer at the latest, its batch mates are
   not affected. A stale round_seq is ignored. */
void gb_executor_cancel(gb_executor *executor, uint64_t round_seq, uint32_t engine, uint32_t work);

/* Copies bytes of experts between places that no round writes or, where they are written, reads. GB_EUNSUPPORTED where ranks
   share memory. */
int gb_executor_copy(gb_executor *executor, const gb_copy_list *list);

/* Of the weights in a place, for tests: equal for equal experts. 0 where that is not supported. */
uint64_t gb_executor_checksum(gb_executor *executor, uint32_t moe_layer, uint32_t place);

void gb_executor_free(gb_executor *executor);

#endif
