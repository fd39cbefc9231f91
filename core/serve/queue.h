/* The waiting line of one engine. Promoted requests come first, among themselves by arrival; the others by (key, arrival,
   id). Whoever changes the line leaves it unsorted (dirty) until keys are written and gb_queue_sort is called. */
#ifndef GB_SERVE_QUEUE_H
#define GB_SERVE_QUEUE_H

#include "core/serve/pool.h"

typedef struct gb_queue_entry {
    double key;
    gb_time arrived;
    gb_request_id id;
    gb_live *live;
    bool promoted;
} gb_queue_entry;

/* What a sort moves about in place of an entry. */
typedef struct gb_queue_rank {
    double key;        /* the promoted come before every key */
    uint32_t entry;
} gb_queue_rank;

typedef struct gb_queue {
    uint32_t n, capacity;
    bool dirty;                  /* changed or aged since it was sorted */
    uint64_t prefill_tokens;     /* of all who wait: prompt and what was generated before a preemption */
    gb_queue_entry *entries;     /* [capacity] */
    gb_queue_entry *scratch;     /* [capacity] of the sort, */
    gb_queue_rank *ranks, *merged;    /* [capacity] too */
} gb_queue;

int      gb_queue_init(gb_queue *queue, gb_arena *arena, uint32_t capacity);    /* GB_ENOMEM */
void     gb_queue_push(gb_queue *queue, gb_live *live);
gb_live *gb_queue_take(gb_queue *queue, uint32_t i);             /* removes the i-th */
void     gb_queue_remove(gb_queue *queue, const gb_live *live);  /* it is in the line */
void     gb_queue_sort(gb_queue *queue);                          /* no allocation; linear when already in order */
gb_time  gb_queue_oldest(const gb_queue *queue);                  /* earliest arrival; GB_NEVER when empty */

#endif
