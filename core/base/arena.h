/* Memory taken at start and given back at once. An arena hands out zeroed pieces of large blocks and never frees one
   alone; pages that nobody touches cost address space only. One owner, one thread. */
#ifndef GB_BASE_ARENA_H
#define GB_BASE_ARENA_H

#include <stddef.h>

typedef struct gb_arena {
    struct gb_arena_block *blocks;
    size_t used_bytes;    /* handed out, rounding included */
} gb_arena;

void gb_arena_init(gb_arena *arena);
void gb_arena_deinit(gb_arena *arena);

/* count * size zeroed bytes, 64-byte aligned; NULL when memory ends or the product overflows. */
void *gb_arena_take(gb_arena *arena, size_t count, size_t size);

#define GB_ARENA_NEW(arena, type, count) ((type *)gb_arena_take((arena), (count), sizeof(type)))

#endif
