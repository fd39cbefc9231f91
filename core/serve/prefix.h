/* Which blocks of a KV cache hold which text: a tree of full blocks. A block is named by its parent and the tokens it holds,
   so a path from the root names a text exactly; the hash chain only finds candidates fast, and tokens are always compared.
   A block enters when its positions are computed and nobody will write them again, and leaves before its parent does.
   Pure accounts; memory from an arena. Owned by gb_kv, which decides when blocks come and go. */
#ifndef GB_SERVE_PREFIX_H
#define GB_SERVE_PREFIX_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "core/flow/ids.h"

enum { GB_PREFIX_ROOT = -1 };    /* the parent of a text's first block */

typedef struct gb_prefix_node {
    uint64_t serial;         /* 0: not in the tree; never the same twice */
    uint64_t hash;           /* of the text up to and with this block */
    int32_t parent, next;    /* next in the same bucket, or -1 */
    uint32_t children;
    int32_t tokens[GB_BLOCK_TOKENS];
} gb_prefix_node;

typedef struct gb_prefix {
    uint32_t n_blocks, mask; /* mask: buckets - 1 */
    int32_t *buckets;        /* first block + 1; 0 = empty */
    gb_prefix_node *nodes;   /* [blocks] */
    uint64_t added;          /* since start */
} gb_prefix;

int  gb_prefix_init(gb_prefix *prefix, gb_arena *arena, uint32_t n_blocks);    /* GB_ENOMEM */
void gb_prefix_clear(gb_prefix *prefix);                                        /* nothing is in the tree; serials go on */

/* The hash of a text that goes on with one more block; 0 is the hash of no text. */
uint64_t gb_prefix_hash(uint64_t before, const int32_t *tokens);

/* The child of `parent` that holds these tokens, or -1. */
int32_t gb_prefix_find(const gb_prefix *prefix, int32_t parent, uint64_t hash, const int32_t *tokens);

void gb_prefix_add(gb_prefix *prefix, int32_t block, int32_t parent, uint64_t hash, const int32_t *tokens);    /* no such child yet */
void gb_prefix_remove(gb_prefix *prefix, int32_t block);                                                       /* it has no children */

static inline bool gb_prefix_has(const gb_prefix *prefix, int32_t block) { return prefix->nodes[block].serial != 0; }

#endif
