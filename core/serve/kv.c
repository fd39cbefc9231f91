#include "core/serve/kv.h"

#include "core/base/assert.h"
#include "core/base/status.h"

int gb_kv_init(gb_kv *kv, gb_arena *arena, uint32_t n_blocks)
{
    *kv = (gb_kv){.n_blocks = n_blocks, .n_free = n_blocks, .free_blocks = GB_ARENA_NEW(arena, int32_t, n_blocks)};
    if (!kv->free_blocks) return GB_ENOMEM;
    for (uint32_t i = 0; i < n_blocks; i++) kv->free_blocks[i] = (int32_t)(n_blocks - 1 - i);
    return GB_OK;
}

bool gb_kv_grow(gb_kv *kv, gb_kv_share *share, uint32_t positions)
{
    uint32_t need = gb_kv_blocks_for(positions);
    GB_ASSERT(need <= share->capacity);
    if (need > share->n_blocks && need - share->n_blocks > kv->n_free) return false;
    while (share->n_blocks < need) share->blocks[share->n_blocks++] = kv->free_blocks[--kv->n_free];
    return true;
}

void gb_kv_release(gb_kv *kv, gb_kv_share *share)
{
    GB_ASSERT(kv->n_free + share->n_blocks <= kv->n_blocks);
    while (share->n_blocks > 0) kv->free_blocks[kv->n_free++] = share->blocks[--share->n_blocks];
}
