/* The KV cache of one engine as accounts: who holds which block. Every block is in one of three states:

     free     nobody holds it, it means nothing
     held     by one request, or by several that begin with the same text
     idle     nobody holds it, but the prefix tree knows its text: a later request may hold it again,
              or it is given away, the one that has been idle longest first

   A block is shared only once it is full and computed: a request writes only into blocks that it alone holds and that are not
   in the tree. A request holds blocks as a path of the tree and then its own, and lets them go from the end: so a child becomes
   idle before its parent, and what is given away first is always a leaf.
   Free blocks come back in the reverse order they went out, so that few are touched while load is low. */
#ifndef GB_SERVE_KV_H
#define GB_SERVE_KV_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "core/flow/ids.h"
#include "core/serve/prefix.h"

typedef struct gb_kv {
    uint32_t n_blocks, n_free, n_idle;
    bool sharing;             /* false: full blocks are forgotten like others */
    int32_t *free_blocks;     /* [n_free] stack */
    uint32_t *holders;        /* [n_blocks] */
    int32_t oldest, newest;   /* idle blocks, a list by when they became idle; -1 = none */
    int32_t *older, *newer;   /* [n_blocks] */
    gb_prefix prefix;
} gb_kv;

/* The blocks of one request, in position order. */
typedef struct gb_kv_share {
    int32_t *blocks;
    uint64_t *hashes;         /* [n_hashes] of its text up to and with each full block */
    uint32_t n_blocks, n_hashes, capacity;
    uint32_t n_shared;        /* leading blocks that are in the tree */
    uint32_t n_match;         /* leading blocks of its text found in the tree by the latest look, ... */
    int32_t match;            /* ... the last of them ... */
    uint64_t match_serial;    /* ... and its serial: while that is unchanged, the whole path is there */
} gb_kv_share;

static inline uint32_t gb_kv_blocks_for(uint32_t positions)
{
    return positions / GB_BLOCK_TOKENS + (positions % GB_BLOCK_TOKENS != 0);
}

/* Blocks that can be had: free ones and idle ones. */
static inline uint32_t gb_kv_available(const gb_kv *kv) { return kv->n_free + kv->n_idle; }
static inline uint32_t gb_kv_held(const gb_kv *kv) { return kv->n_blocks - gb_kv_available(kv); }

int gb_kv_init(gb_kv *kv, gb_arena *arena, uint32_t n_blocks, bool sharing);    /* GB_ENOMEM */

/* A request's first blocks, for a text of n_tokens: those the tree has (n_shared afterwards), then enough for positions
   0 .. positions-1 (>= n_tokens). All of them, or none and false. The last token's block is never shared, so that it is
   computed and gives logits. */
bool gb_kv_take(gb_kv *kv, gb_kv_share *share, const int32_t *tokens, uint32_t n_tokens, uint32_t positions);

/* Makes room for positions 0 .. positions-1: all the blocks that are missing, or none and false. */
bool gb_kv_grow(gb_kv *kv, gb_kv_share *share, uint32_t positions);

/* Positions 0 .. computed-1 of the text are in the request's blocks for good: full ones enter the tree. One whose text is there
   already is exchanged for it; both hold the same numbers, since a position's never depend on the batch. */
void gb_kv_publish(gb_kv *kv, gb_kv_share *share, const int32_t *tokens, uint32_t computed);

void gb_kv_release(gb_kv *kv, gb_kv_share *share);

/* How many leading tokens of a text gb_kv_take would find, for a request that may hold nothing yet. */
uint32_t gb_kv_cached_tokens(const gb_kv *kv, gb_kv_share *share, const int32_t *tokens, uint32_t n_tokens);

/* The cache's contents are lost: no block is shared any more; held ones stay held. */
void gb_kv_forget(gb_kv *kv);

#endif
