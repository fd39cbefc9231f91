/* The numbers that follow from options and model: ranks of engines, KV blocks, the longest sequence. Pure; a wrong wish gets
   a sentence with every figure and what to change. */
#ifndef GB_C_PLAN_H
#define GB_C_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/flow/ids.h"

/* dp engines, ep ranks, tp ranks of an engine; 0 = not given: tp is ep / dp when ep is given, else 1; ep is dp * tp.
   GB_EINVAL when ep is not dp * tp, or the experts do not divide into ep ranks. */
int gb_plan_ranks(gb_topology *topology, uint32_t dp, uint32_t tp, uint32_t ep, uint32_t experts, gb_error *err);

typedef struct gb_kv_wish {
    uint64_t memory;             /* for the KV caches of all engines */
    uint64_t machine;            /* memory of the machine; the caches take at most a quarter of it */
    uint64_t block_bytes;        /* one block, all layers */
    uint32_t engines, max_num_seqs;
    uint32_t max_model_len;      /* 0 = not given */
    uint32_t model_len;          /* the model's own longest sequence */
} gb_kv_wish;

typedef struct gb_kv_plan {
    uint64_t memory;             /* at most what was wished, what the machine allows and what the sequences can use */
    uint32_t blocks_per_engine, max_model_len;
    bool memory_cut;             /* by the machine */
    bool len_cut;                /* max_model_len was not given and the model's own does not fit */
} gb_kv_plan;

/* GB_EINVAL when an engine's blocks are fewer than its sequences, or cannot hold one sequence of max_model_len. */
int gb_plan_kv(gb_kv_plan *plan, const gb_kv_wish *wish, gb_error *err);

/* Memory of this machine or of the control group we run in, whichever is less. */
uint64_t gb_plan_machine_memory(void);

#endif
