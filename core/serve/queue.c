#include "core/serve/queue.h"

#include <math.h>
#include <string.h>

#include "core/base/assert.h"
#include "core/base/status.h"

int gb_queue_init(gb_queue *queue, gb_arena *arena, uint32_t capacity)
{
    *queue = (gb_queue){.capacity = capacity};
    queue->entries = GB_ARENA_NEW(arena, gb_queue_entry, capacity);
    queue->scratch = GB_ARENA_NEW(arena, gb_queue_entry, capacity);
    queue->ranks = GB_ARENA_NEW(arena, gb_queue_rank, capacity);
    queue->merged = GB_ARENA_NEW(arena, gb_queue_rank, capacity);
    return queue->entries && queue->scratch && queue->ranks && queue->merged ? GB_OK : GB_ENOMEM;
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

static bool arrived_before(const gb_queue_entry *a, const gb_queue_entry *b)
{
    return a->arrived != b->arrived ? a->arrived < b->arrived : a->id < b->id;
}

/* Of two keys in a line of strangers a processor guesses every other one wrong, so they decide without a branch; ties are rare. */
static bool before(const gb_queue_entry *entries, const gb_queue_rank *a, const gb_queue_rank *b)
{
    bool first = a->key < b->key;
    if (a->key == b->key) first = arrived_before(&entries[a->entry], &entries[b->entry]);
    return first;
}

static void merge(const gb_queue_entry *entries, gb_queue_rank *to, const gb_queue_rank *from, uint32_t middle, uint32_t end)
{
    uint32_t a = 0, b = middle, i = 0;
    while (a < middle && b < end) {
        uint32_t right = before(entries, &from[b], &from[a]);
        to[i++] = from[right ? b : a];
        b += right, a += 1 - right;
    }
    memcpy(to + i, from + a, (middle - a) * sizeof *to);
    memcpy(to + i + (middle - a), from + b, (end - b) * sizeof *to);
}

/* By pairs, fours, eights and so on. */
static void merge_all(gb_queue *queue, uint32_t first, uint32_t n)
{
    for (uint32_t width = 1; width < n; width *= 2) {
        for (uint32_t at = 0; at < n; at += 2 * width) {
            uint32_t left = n - at, middle = left < width ? left : width, end = left < 2 * width ? left : 2 * width;
            merge(queue->entries, queue->merged + first + at, queue->ranks + first + at, middle, end);
        }
        memcpy(queue->ranks + first, queue->merged + first, n * sizeof *queue->ranks);
    }
}

/* How many stand in order from the front. */
static uint32_t in_order(const gb_queue *queue)
{
    uint32_t n = 1;
    while (n < queue->n && !before(queue->entries, &queue->ranks[n], &queue->ranks[n - 1])) n++;
    return n;
}

/* Those behind the part that is in order (most often few newcomers) are sorted, and the two merged. */
void gb_queue_sort(gb_queue *queue)
{
    queue->dirty = false;
    if (queue->n < 2) return;
    for (uint32_t i = 0; i < queue->n; i++)
        queue->ranks[i] = (gb_queue_rank){queue->entries[i].promoted ? -INFINITY : queue->entries[i].key, i};
    uint32_t ordered = in_order(queue);
    if (ordered == queue->n) return;
    merge_all(queue, ordered, queue->n - ordered);
    merge(queue->entries, queue->merged, queue->ranks, ordered, queue->n);
    for (uint32_t i = 0; i < queue->n; i++) queue->scratch[i] = queue->entries[queue->merged[i].entry];
    gb_queue_entry *sorted = queue->scratch;
    queue->scratch = queue->entries;
    queue->entries = sorted;
}

gb_time gb_queue_oldest(const gb_queue *queue)
{
    gb_time oldest = GB_NEVER;
    for (uint32_t i = 0; i < queue->n; i++) oldest = gb_time_min(oldest, queue->entries[i].arrived);
    return oldest;
}
