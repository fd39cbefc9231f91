#include "core/serve/engine.h"

#include <string.h>

#include "core/base/assert.h"
#include "core/base/status.h"

int gb_engine_init(gb_engine *engine, gb_arena *arena, uint32_t index, uint32_t n_blocks, bool sharing, uint32_t max_running,
                   uint32_t queue_capacity)
{
    *engine = (gb_engine){.index = index, .healthy = true};
    engine->running = GB_ARENA_NEW(arena, gb_live *, max_running);
    engine->flight = GB_ARENA_NEW(arena, gb_live *, max_running);
    engine->flight_counts = GB_ARENA_NEW(arena, uint32_t, max_running);
    if (!engine->running || !engine->flight || !engine->flight_counts) return GB_ENOMEM;
    int rc = gb_kv_init(&engine->kv, arena, n_blocks, sharing);
    return rc ? rc : gb_queue_init(&engine->queue, arena, queue_capacity);
}

void gb_engine_add_running(gb_engine *engine, gb_live *live)
{
    uint32_t place = engine->n_running++;
    while (place > 0 && gb_live_outranks(live, engine->running[place - 1])) {
        engine->running[place] = engine->running[place - 1];
        place--;
    }
    engine->running[place] = live;
    live->phase = GB_PHASE_RUNNING;
}

void gb_engine_remove_running(gb_engine *engine, const gb_live *live)
{
    uint32_t place = 0;
    while (place < engine->n_running && engine->running[place] != live) place++;
    GB_ASSERT(place < engine->n_running);
    engine->n_running--;
    memmove(engine->running + place, engine->running + place + 1, (engine->n_running - place) * sizeof *engine->running);
}
