#include "core/serve/pool.h"

#include "core/base/assert.h"
#include "core/base/status.h"

/* One array for all slots each, not one a slot: a kernel refuses tens of thousands of mappings sooner than one large one. */
int gb_pool_init(gb_pool *pool, gb_arena *arena, uint32_t capacity, uint32_t max_positions)
{
    uint32_t max_blocks = gb_kv_blocks_for(max_positions);
    int32_t *tokens = gb_arena_take(arena, capacity, max_positions * sizeof *tokens);
    int32_t *blocks = gb_arena_take(arena, capacity, max_blocks * sizeof *blocks);
    uint64_t *hashes = gb_arena_take(arena, capacity, max_blocks * sizeof *hashes);
    gb_stream *streams = GB_ARENA_NEW(arena, gb_stream, capacity);
    *pool = (gb_pool){.capacity = capacity};
    pool->slots = GB_ARENA_NEW(arena, gb_live, capacity);
    pool->free_slots = GB_ARENA_NEW(arena, uint32_t, capacity);
    if (!tokens || !blocks || !hashes || !streams || !pool->slots || !pool->free_slots) return GB_ENOMEM;
    for (uint32_t i = 0; i < capacity; i++)
        pool->slots[i] = (gb_live){.id = i, .index = i, .tokens = tokens + (size_t)i * max_positions, .stream = &streams[i],
                                   .kv = {.blocks = blocks + (size_t)i * max_blocks, .hashes = hashes + (size_t)i * max_blocks,
                                          .capacity = max_blocks}};
    for (uint32_t i = capacity; i > 0; i--) pool->free_slots[pool->n_free++] = i - 1;
    return GB_OK;
}

gb_live *gb_pool_take(gb_pool *pool)
{
    if (pool->n_free == 0) return NULL;
    gb_live *live = &pool->slots[pool->free_slots[--pool->n_free]];
    GB_ASSERT(live->phase == GB_PHASE_FREE && live->kv.n_blocks == 0);
    *live = (gb_live){.id = live->id + ((gb_request_id)1 << 32), .index = live->index, .phase = GB_PHASE_WAITING,
                      .deadline = GB_NEVER, .scheduled = GB_NEVER, .first_token = GB_NEVER, .last_token = GB_NEVER,
                      .tokens = live->tokens, .stream = live->stream,
                      .kv = {.blocks = live->kv.blocks, .hashes = live->kv.hashes, .capacity = live->kv.capacity}};
    return live;
}

void gb_pool_give_back(gb_pool *pool, gb_live *live)
{
    GB_ASSERT(live->phase == GB_PHASE_ENDED && !live->in_round && live->kv.n_blocks == 0);
    live->phase = GB_PHASE_FREE;
    pool->free_slots[pool->n_free++] = live->index;
}

gb_live *gb_pool_find(const gb_pool *pool, gb_request_id id)
{
    uint32_t index = (uint32_t)id;
    if (index >= pool->capacity || pool->slots[index].id != id || pool->slots[index].phase == GB_PHASE_FREE) return NULL;
    return &pool->slots[index];
}
