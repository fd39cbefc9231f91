#include "core/serve/kv.h"

#include "core/base/assert.h"
#include "core/base/status.h"

int gb_kv_init(gb_kv *kv, gb_arena *arena, uint32_t n_blocks, bool sharing)
{
    *kv = (gb_kv){.n_blocks = n_blocks, .n_free = n_blocks, .sharing = sharing, .oldest = -1, .newest = -1,
                  .free_blocks = GB_ARENA_NEW(arena, int32_t, n_blocks), .holders = GB_ARENA_NEW(arena, uint32_t, n_blocks),
                  .older = GB_ARENA_NEW(arena, int32_t, n_blocks), .newer = GB_ARENA_NEW(arena, int32_t, n_blocks)};
    if (!kv->free_blocks || !kv->holders || !kv->older || !kv->newer) return GB_ENOMEM;
    for (uint32_t i = 0; i < n_blocks; i++) kv->free_blocks[i] = (int32_t)(n_blocks - 1 - i);
    return gb_prefix_init(&kv->prefix, arena, n_blocks);
}

/* --- states of a block --- */

static void push_idle(gb_kv *kv, int32_t block)
{
    kv->older[block] = kv->newest;
    kv->newer[block] = -1;
    if (kv->newest >= 0) kv->newer[kv->newest] = block;
    else kv->oldest = block;
    kv->newest = block;
    kv->n_idle++;
}

static void remove_idle(gb_kv *kv, int32_t block)
{
    int32_t older = kv->older[block], newer = kv->newer[block];
    if (older >= 0) kv->newer[older] = newer;
    else kv->oldest = newer;
    if (newer >= 0) kv->older[newer] = older;
    else kv->newest = older;
    kv->n_idle--;
}

static void hold(gb_kv *kv, int32_t block)
{
    if (kv->holders[block]++ == 0) remove_idle(kv, block);
}

static void let_go(gb_kv *kv, int32_t block)
{
    GB_ASSERT(kv->holders[block] > 0);
    if (--kv->holders[block] > 0) return;
    if (gb_prefix_has(&kv->prefix, block)) push_idle(kv, block);
    else kv->free_blocks[kv->n_free++] = block;
}

/* A block for one request alone; there is one. */
static int32_t take_fresh(gb_kv *kv)
{
    int32_t block = kv->n_free > 0 ? kv->free_blocks[--kv->n_free] : kv->oldest;
    if (gb_prefix_has(&kv->prefix, block)) {
        remove_idle(kv, block);
        gb_prefix_remove(&kv->prefix, block);
    }
    kv->holders[block] = 1;
    return block;
}

/* --- texts --- */

static uint64_t hash_of_block(gb_kv_share *share, const int32_t *tokens, uint32_t i)
{
    for (; share->n_hashes <= i; share->n_hashes++)
        share->hashes[share->n_hashes] = gb_prefix_hash(share->n_hashes > 0 ? share->hashes[share->n_hashes - 1] : 0,
                                                        tokens + (size_t)share->n_hashes * GB_BLOCK_TOKENS);
    return share->hashes[i];
}

/* Goes on from where the latest look ended, if that is still there. */
static void look(const gb_kv *kv, gb_kv_share *share, const int32_t *tokens, uint32_t n_tokens)
{
    uint32_t most = kv->sharing ? (n_tokens - 1) / GB_BLOCK_TOKENS : 0;
    if (share->n_match > 0 && kv->prefix.nodes[share->match].serial != share->match_serial) share->n_match = 0;
    while (share->n_match < most) {
        uint64_t hash = hash_of_block(share, tokens, share->n_match);
        int32_t parent = share->n_match > 0 ? share->match : GB_PREFIX_ROOT;
        int32_t block = gb_prefix_find(&kv->prefix, parent, hash, tokens + (size_t)share->n_match * GB_BLOCK_TOKENS);
        if (block < 0) return;
        share->n_match++;
        share->match = block;
        share->match_serial = kv->prefix.nodes[block].serial;
    }
}

uint32_t gb_kv_cached_tokens(const gb_kv *kv, gb_kv_share *share, const int32_t *tokens, uint32_t n_tokens)
{
    look(kv, share, tokens, n_tokens);
    return share->n_match * GB_BLOCK_TOKENS;
}

/* --- blocks of a request --- */

static uint32_t idle_on_path(const gb_kv *kv, int32_t block, uint32_t n)
{
    uint32_t idle = 0;
    for (; n > 0; n--, block = kv->prefix.nodes[block].parent) idle += kv->holders[block] == 0;
    return idle;
}

static void take_path(gb_kv *kv, gb_kv_share *share)
{
    int32_t block = share->match;
    share->n_blocks = share->n_shared = share->n_match;
    for (uint32_t i = share->n_match; i-- > 0; block = kv->prefix.nodes[block].parent) {
        hold(kv, block);
        share->blocks[i] = block;
    }
}

bool gb_kv_take(gb_kv *kv, gb_kv_share *share, const int32_t *tokens, uint32_t n_tokens, uint32_t positions)
{
    GB_ASSERT(share->n_blocks == 0 && share->n_shared == 0 && positions >= n_tokens);
    look(kv, share, tokens, n_tokens);
    uint32_t fresh = gb_kv_blocks_for(positions) - share->n_match;
    if (fresh > gb_kv_available(kv) - idle_on_path(kv, share->match, share->n_match)) return false;
    take_path(kv, share);
    return gb_kv_grow(kv, share, positions);
}

bool gb_kv_grow(gb_kv *kv, gb_kv_share *share, uint32_t positions)
{
    uint32_t need = gb_kv_blocks_for(positions);
    GB_ASSERT(need <= share->capacity);
    if (need > share->n_blocks && need - share->n_blocks > gb_kv_available(kv)) return false;
    while (share->n_blocks < need) share->blocks[share->n_blocks++] = take_fresh(kv);
    return true;
}

/* The block becomes the child of the one before it, or gives way to the twin that is there. */
static void publish_block(gb_kv *kv, gb_kv_share *share, const int32_t *tokens, uint32_t i)
{
    int32_t own = share->blocks[i], parent = i > 0 ? share->blocks[i - 1] : GB_PREFIX_ROOT;
    uint64_t hash = hash_of_block(share, tokens, i);
    int32_t twin = gb_prefix_find(&kv->prefix, parent, hash, tokens + (size_t)i * GB_BLOCK_TOKENS);
    if (twin < 0) {
        gb_prefix_add(&kv->prefix, own, parent, hash, tokens + (size_t)i * GB_BLOCK_TOKENS);
        return;
    }
    hold(kv, twin);
    let_go(kv, own);
    share->blocks[i] = twin;
}

void gb_kv_publish(gb_kv *kv, gb_kv_share *share, const int32_t *tokens, uint32_t computed)
{
    GB_ASSERT(gb_kv_blocks_for(computed) <= share->n_blocks);
    if (!kv->sharing) return;
    for (; share->n_shared < computed / GB_BLOCK_TOKENS; share->n_shared++) publish_block(kv, share, tokens, share->n_shared);
}

void gb_kv_release(gb_kv *kv, gb_kv_share *share)
{
    while (share->n_blocks > 0) let_go(kv, share->blocks[--share->n_blocks]);
    share->n_shared = 0;
}

void gb_kv_forget(gb_kv *kv)
{
    gb_prefix_clear(&kv->prefix);
    while (kv->oldest >= 0) {
        int32_t block = kv->oldest;
        remove_idle(kv, block);
        kv->free_blocks[kv->n_free++] = block;
    }
}
