/* A binary heap of small integers (slots of a pool) by a 64-bit key, lowest first; equal keys come in order of the item. Each
   item is in the heap at most once and can be moved or taken out by name. All memory is taken at start. */
#ifndef GB_BASE_HEAP_H
#define GB_BASE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"

typedef struct gb_heap {
    uint32_t n, capacity;
    uint32_t *items;     /* [capacity] heap order */
    uint32_t *places;    /* [capacity] by item: its place + 1, 0 = not in the heap */
    uint64_t *keys;      /* [capacity] by item */
} gb_heap;

int  gb_heap_init(gb_heap *heap, gb_arena *arena, uint32_t capacity);    /* items are 0..capacity-1; GB_ENOMEM */
void gb_heap_set(gb_heap *heap, uint32_t item, uint64_t key);            /* adds the item or changes its key */
void gb_heap_remove(gb_heap *heap, uint32_t item);                       /* harmless when it is not there */
bool gb_heap_first(const gb_heap *heap, uint32_t *item, uint64_t *key);  /* false when empty */

#endif
