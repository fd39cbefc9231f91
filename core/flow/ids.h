/* Names of things that travel. All indices are 0-based; a layer index counts MoE layers unless it says otherwise. */
#ifndef GB_FLOW_IDS_H
#define GB_FLOW_IDS_H

#include <stdint.h>

/* A request's handle in one server: slot in the low 32 bits, generation above; never 0, never reused. */
typedef uint64_t gb_request_id;

enum {
    GB_BLOCK_TOKENS = 16,      /* positions in one KV block */
    GB_ENGINES_MAX = 512,
    GB_RANKS_MAX = 512,
    GB_EXPERTS_MAX = 1024,
};

/* How engines and ranks relate: rank r belongs to engine r / (ranks / engines). */
typedef struct gb_topology {
    uint32_t engines, ranks;    /* ranks is a multiple of engines */
} gb_topology;

static inline uint32_t gb_topology_engine_of_rank(gb_topology t, uint32_t rank) { return rank / (t.ranks / t.engines); }

#endif
