/* Places of a fixed ring; the caller keeps the items in an array of `capacity`. A ring that runs empty starts over at place
   0, so that a ring which is drained in time touches the same few pages for ever. */
#ifndef GB_BASE_RING_H
#define GB_BASE_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/assert.h"

typedef struct gb_ring {
    uint32_t capacity, first, count;
} gb_ring;

static inline bool gb_ring_full(const gb_ring *ring) { return ring->count == ring->capacity; }

static inline uint32_t gb_ring_place(const gb_ring *ring, uint32_t i)    /* of the i-th item from the front */
{
    uint32_t place = ring->first + i;
    return place < ring->capacity ? place : place - ring->capacity;
}

static inline uint32_t gb_ring_push(gb_ring *ring)    /* place for a new last item; the ring has room */
{
    GB_ASSERT(!gb_ring_full(ring));
    return gb_ring_place(ring, ring->count++);
}

static inline uint32_t gb_ring_pop(gb_ring *ring)    /* place of the first item, which leaves the ring; it is not empty */
{
    GB_ASSERT(ring->count > 0);
    uint32_t place = ring->first;
    ring->first = ring->count > 1 ? gb_ring_place(ring, 1) : 0;
    ring->count--;
    return place;
}

#endif
