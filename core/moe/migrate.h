/* Moving experts while serving. A migration carries the live placement to another one by a plan (plan.h), step by step:

       copying     the experts of the next steps go, piece by piece, to the spare place of the rank that receives them
       ready       every copy of a step is there
       flipped     at a round border (no round is in flight) the live placement names the new places; its version grows
       released    the places that were left are spare from then on: no round that read them is in flight

   Until its flip a step changes nothing that a round reads, and it flips whole or not at all. So whatever is cancelled, fails or
   stalls: each expert lives, the map in use stays valid, and only spare places hold unfinished bytes. Steps of different layers
   are copied together; the next step of a layer waits for the flip, which gives it the spare places.

   Where ranks share memory nothing is copied and a step is ready at once. One thread; memory from an arena, taken once. */
#ifndef GB_MOE_MIGRATE_H
#define GB_MOE_MIGRATE_H

#include <stdbool.h>

#include "core/base/time.h"
#include "core/flow/copy.h"
#include "core/moe/plan.h"

typedef struct gb_migrate_options {
    bool private_ranks;        /* each rank keeps its experts in memory of its own, with one spare place a layer */
    uint64_t expert_bytes;     /* weights of one expert of one layer */
    uint64_t list_bytes;       /* most bytes in one list of copies */
    gb_time stalled_after;     /* without progress: cancel it */
} gb_migrate_options;

typedef enum gb_migrate_state { GB_MIGRATE_IDLE, GB_MIGRATE_COPYING, GB_MIGRATE_READY } gb_migrate_state;

typedef struct gb_migrate_stats {
    uint64_t done, cancelled, failed, stalled;    /* how migrations ended; stalled: by the watchdog */
    uint64_t experts_moved, bytes_moved;          /* flipped */
    uint32_t moves_left;                          /* of the running migration */
} gb_migrate_stats;

typedef struct gb_migrate {
    gb_migrate_options options;
    gb_placement *live;         /* the caller's; changed by flips only */
    gb_placement from, to;      /* of the running migration */
    gb_plan plan;
    int32_t *spare;             /* [layers][ranks] the place of the rank that holds nothing */
    uint32_t *busy;             /* [layers] 1 + the step of the layer that has begun, 0 = none */
    int32_t *slots;             /* [slots] scratch */
    uint32_t flipped, copied;   /* moves 0 .. flipped-1 are live, moves .. copied-1 have arrived, */
    uint64_t offset;            /* and so many bytes of the next one */
    uint32_t next_copied;       /* the same once the list that is out is back */
    uint64_t next_offset;
    bool running, out;
    gb_time progressed;
    gb_migrate_stats stats;
} gb_migrate;

/* Takes over the places of `live`, which the caller keeps at its address. GB_ENOMEM. */
int gb_migrate_init(gb_migrate *m, gb_arena *arena, gb_placement *live, const gb_migrate_options *options, gb_error *err);

/* Begins a migration to `to` (copied). plan leads there from the live placement, best steps first; NULL: it is made here, layer
   after layer. GB_EFULL while another one is running, GB_EINVAL for what is not valid or does not lead there; nothing has
   changed then. */
int gb_migrate_start(gb_migrate *m, const gb_placement *to, const gb_plan *plan, gb_time now, gb_error *err);

/* The next pieces to copy; false when there are none now or the last list is not back (which is left alone then). */
bool gb_migrate_poll(gb_migrate *m, gb_copy_list *list);

/* The list that was polled is copied, or failed (status): that ends the migration where it is. */
void gb_migrate_copied(gb_migrate *m, int status, gb_time now);

/* At a round border: flips every step that is ready. True when the placement changed. */
bool gb_migrate_flip(gb_migrate *m, gb_time now);

/* Ends the migration after the steps that are live. A list that is out is waited for before the next migration. */
void gb_migrate_cancel(gb_migrate *m);

/* The watchdog: a migration that has made no progress for stalled_after ends as if cancelled; true then. */
bool    gb_migrate_tick(gb_migrate *m, gb_time now);
gb_time gb_migrate_deadline(const gb_migrate *m);    /* when tick wants to be called, or GB_NEVER */

gb_migrate_state gb_migrate_state_of(const gb_migrate *m);
gb_migrate_stats gb_migrate_stats_of(const gb_migrate *m);

/* Every place of every rank belongs to one slot or is the spare one, and the live placement is valid. For tests. */
bool gb_migrate_is_sound(const gb_migrate *m);

#endif
