#include "core/base/heap.h"

#include "core/base/assert.h"
#include "core/base/status.h"

int gb_heap_init(gb_heap *heap, gb_arena *arena, uint32_t capacity)
{
    *heap = (gb_heap){.capacity = capacity};
    heap->items = GB_ARENA_NEW(arena, uint32_t, capacity);
    heap->places = GB_ARENA_NEW(arena, uint32_t, capacity);
    heap->keys = GB_ARENA_NEW(arena, uint64_t, capacity);
    return heap->items && heap->places && heap->keys ? GB_OK : GB_ENOMEM;
}

static bool before(const gb_heap *heap, uint32_t a, uint32_t b)
{
    return heap->keys[a] != heap->keys[b] ? heap->keys[a] < heap->keys[b] : a < b;
}

static void put(gb_heap *heap, uint32_t place, uint32_t item)
{
    heap->items[place] = item;
    heap->places[item] = place + 1;
}

static void sift_up(gb_heap *heap, uint32_t place)
{
    uint32_t item = heap->items[place];
    while (place > 0 && before(heap, item, heap->items[(place - 1) / 2])) {
        put(heap, place, heap->items[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(heap, place, item);
}

static void sift_down(gb_heap *heap, uint32_t place)
{
    uint32_t item = heap->items[place];
    for (uint32_t child; (child = 2 * place + 1) < heap->n; place = child) {
        if (child + 1 < heap->n && before(heap, heap->items[child + 1], heap->items[child])) child++;
        if (!before(heap, heap->items[child], item)) break;
        put(heap, place, heap->items[child]);
    }
    put(heap, place, item);
}

void gb_heap_set(gb_heap *heap, uint32_t item, uint64_t key)
{
    GB_ASSERT(item < heap->capacity);
    heap->keys[item] = key;
    if (heap->places[item] == 0) put(heap, heap->n++, item);
    sift_up(heap, heap->places[item] - 1);
    sift_down(heap, heap->places[item] - 1);
}

void gb_heap_remove(gb_heap *heap, uint32_t item)
{
    GB_ASSERT(item < heap->capacity);
    if (heap->places[item] == 0) return;
    uint32_t place = heap->places[item] - 1, last = heap->items[--heap->n];
    heap->places[item] = 0;
    if (last == item) return;
    put(heap, place, last);
    sift_up(heap, place);
    sift_down(heap, heap->places[last] - 1);
}

bool gb_heap_first(const gb_heap *heap, uint32_t *item, uint64_t *key)
{
    if (heap->n == 0) return false;
    *item = heap->items[0];
    *key = heap->keys[*item];
    return true;
}
