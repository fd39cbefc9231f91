#include "core/serve/pool.h"

#include "core/base/assert.h"
#include "core/base/status.h"

static int init_slot(gb_live *live, gb_arena *arena, uint32_t index, uint32_t max_positions)
{
    uint32_t max_blocks = gb_kv_blocks_for(max_positions);
    live->index = index;
    live->id = index;
    live->tokens = GB_ARENA_NEW(arena, int32_t, max_positions);
    live->kv = (gb_kv_share){.blocks = GB_ARENA_NEW(arena, int32_t, max_blocks), .capacity = max_blocks};
    live->stream = GB_ARENA_NEW(arena, gb_stream, 1);
    return live->tokens && live->kv.blocks && live->stream ? GB_OK : GB_ENOMEM;
}

int gb_pool_init(gb_pool *pool, gb_arena *arena, uint32_t capacity, uint32_t max_positions)
{
    *pool = (gb_pool){.capacity = capacity};
    pool->slots = GB_ARENA_NEW(arena, gb_live, capacity);
    pool->free_slots = GB_ARENA_NEW(arena, uint32_t, capacity);
    if (!pool->slots || !pool->free_slots) return GB_ENOMEM;
    for (uint32_t i = 0; i < capacity; i++)
        if (init_slot(&pool->slots[i], arena, i, max_positions)) return GB_ENOMEM;
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
                      .tokens = live->tokens, .kv = live->kv, .stream = live->stream};
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
