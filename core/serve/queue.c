#include "core/serve/queue.h"

#include <string.h>

#include "core/base/assert.h"
#include "core/base/status.h"

int gb_queue_init(gb_queue *queue, gb_arena *arena, uint32_t capacity)
{
    *queue = (gb_queue){.capacity = capacity};
    queue->entries = GB_ARENA_NEW(arena, gb_queue_entry, capacity);
    queue->scratch = GB_ARENA_NEW(arena, gb_queue_entry, capacity);
    return queue->entries && queue->scratch ? GB_OK : GB_ENOMEM;
}

void gb_queue_push(gb_queue *queue, gb_live *live)
{
    GB_ASSERT(queue->n < queue->capacity);
    queue->entries[queue->n++] = (gb_queue_entry){.arrived = live->arrived, .id = live->id, .live = live, .promoted = live->promoted};
    queue->prefill_tokens += live->n_tokens;
    queue->dirty = true;
}

gb_live *gb_queue_take(gb_queue *queue, uint32_t i)
{
    GB_ASSERT(i < queue->n);
    gb_live *live = queue->entries[i].live;
    queue->n--;
    memmove(queue->entries + i, queue->entries + i + 1, (queue->n - i) * sizeof *queue->entries);
    queue->prefill_tokens -= live->n_tokens;
    queue->dirty = true;
    return live;
}

void gb_queue_remove(gb_queue *queue, const gb_live *live)
{
    uint32_t i = 0;
    while (i < queue->n && queue->entries[i].live != live) i++;
    gb_queue_take(queue, i);
}

static bool before(const gb_queue_entry *a, const gb_queue_entry *b)
{
    if (a->promoted != b->promoted) return a->promoted;
    if (!a->promoted && a->key != b->key) return a->key < b->key;
    if (a->arrived != b->arrived) return a->arrived < b->arrived;
    return a->id < b->id;
}

/* Where the ascending run that starts at i ends. */
static uint32_t run_end(const gb_queue_entry *entries, uint32_t i, uint32_t n)
{
    while (i + 1 < n && !before(&entries[i + 1], &entries[i])) i++;
    return i + 1;
}

static void merge(gb_queue_entry *to, const gb_queue_entry *from, uint32_t begin, uint32_t middle, uint32_t end)
{
    uint32_t a = begin, b = middle;
    for (uint32_t i = begin; i < end; i++)
        to[i] = a < middle && (b == end || !before(&from[b], &from[a])) ? from[a++] : from[b++];
}

/* Natural merge sort: neighbouring runs are merged until one is left. */
void gb_queue_sort(gb_queue *queue)
{
    queue->dirty = false;
    while (queue->n > 1) {
        uint32_t begin = 0, middle = run_end(queue->entries, 0, queue->n);
        if (middle == queue->n) return;
        while (begin < queue->n) {
            middle = run_end(queue->entries, begin, queue->n);
            uint32_t end = middle < queue->n ? run_end(queue->entries, middle, queue->n) : middle;
            merge(queue->scratch, queue->entries, begin, middle, end);
            begin = end;
        }
        gb_queue_entry *sorted = queue->scratch;
        queue->scratch = queue->entries;
        queue->entries = sorted;
    }
}

gb_time gb_queue_oldest(const gb_queue *queue)
{
    gb_time oldest = GB_NEVER;
    for (uint32_t i = 0; i < queue->n; i++) oldest = gb_time_min(oldest, queue->entries[i].arrived);
    return oldest;
}
