#include "core/flow/table.h"

#include "core/base/status.h"

int gb_tables_init(gb_tables *tables, gb_arena *arena, uint32_t engines, uint32_t queue_capacity)
{
    *tables = (gb_tables){0};
    gb_engine_table *e = &tables->engines;
    gb_queue_table *q = &tables->queue;
    e->n = engines;
    q->capacity = queue_capacity;
#define X(name, unit, meaning) \
    if (!(e->name = GB_ARENA_NEW(arena, double, engines))) return GB_ENOMEM;
    GB_ENGINE_COLUMNS(X)
#undef X
#define X(name, unit, meaning) \
    if (!(q->name = GB_ARENA_NEW(arena, double, queue_capacity))) return GB_ENOMEM;
    GB_QUEUE_COLUMNS(X)
#undef X
    return GB_OK;
}
