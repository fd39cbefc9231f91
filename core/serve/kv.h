/* The KV cache of one engine as accounts: which blocks are free. A block is owned by at most one request; free + owned = all.
   Blocks come back in the reverse order they went out, so that few are touched while load is low. */
#ifndef GB_SERVE_KV_H
#define GB_SERVE_KV_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "core/flow/ids.h"

typedef struct gb_kv {
    uint32_t n_blocks, n_free;
    int32_t *free_blocks;    /* [n_free] stack */
} gb_kv;

/* The blocks of one request, in position order. */
typedef struct gb_kv_share {
    int32_t *blocks;
    uint32_t n_blocks, capacity;
} gb_kv_share;

static inline uint32_t gb_kv_blocks_for(uint32_t positions)
{
    return positions / GB_BLOCK_TOKENS + (positions % GB_BLOCK_TOKENS != 0);
}

int gb_kv_init(gb_kv *kv, gb_arena *arena, uint32_t n_blocks);    /* GB_ENOMEM */

/* Makes room for positions 0 .. positions-1: all the blocks that are missing, or none and false. */
bool gb_kv_grow(gb_kv *kv, gb_kv_share *share, uint32_t positions);
void gb_kv_release(gb_kv *kv, gb_kv_share *share);

#endif
