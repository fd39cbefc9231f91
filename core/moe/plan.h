/* From one placement to another, copy by copy. A plan is a list of steps; a step is a few copies that become valid together
   at one round border: one copy into a free slot, or experts that trade slots in a circle. After every whole step each expert
   lives and no rank holds one twice, so migration may stop anywhere. Dropping a spare copy is a move without bytes.
   Functions are pure over the caller's memory; a plan's memory comes from an arena. */
#ifndef GB_MOE_PLAN_H
#define GB_MOE_PLAN_H

#include "core/flow/placement.h"

typedef struct gb_move {
    uint32_t step;       /* moves of one step are neighbours and flip together; steps count from 0 */
    uint32_t layer;
    int32_t expert;      /* -1: the slot is emptied */
    int32_t from, to;    /* slots; from is -1 when the slot is emptied */
} gb_move;

typedef struct gb_plan {
    uint32_t n, steps;
    uint32_t capacity;
    gb_move *moves;      /* [n] */
    gb_move *scratch;    /* [capacity] */
    uint32_t *next;      /* [layers] */
} gb_plan;

/* Room for any plan between placements of this shape. GB_ENOMEM. */
int gb_plan_init(gb_plan *plan, gb_arena *arena, const gb_placement *shape);

/* Slots for home[layers][experts] (experts / ranks each): experts that stay keep their slot, those that trade ranks trade
   slots, spare slots are emptied. Every source is served from the one home. */
void gb_plan_settle(gb_placement *to, const gb_placement *from, const int32_t *home);

/* Reorders the slots of each rank of `to` so that experts which were on that rank keep their slot. Routes follow. */
void gb_plan_align(gb_placement *to, const gb_placement *from);

/* The steps from `from` to `to`; both valid, of one shape, and aligned. Layer after layer. In one step a rank receives at most
   one expert; slots of a rank may exchange what they are to hold for that, and routes follow. */
void gb_plan_build(gb_plan *plan, const gb_placement *from, gb_placement *to);

/* Best first: merges the layers' steps by worth[step] per copied expert. Steps of one layer keep their order. */
void gb_plan_sort(gb_plan *plan, const double *worth);

/* Keeps whole steps while copies fit into max_moves and their bytes into max_bytes; returns the steps dropped. */
uint32_t gb_plan_limit(gb_plan *plan, uint32_t max_moves, uint64_t max_bytes, uint64_t expert_bytes);

/* `now` becomes `from` after the first `steps` steps: `to`'s routes where their slots are there already, else the old ones,
   else any copy. */
void gb_plan_apply(gb_placement *now, const gb_placement *from, const gb_placement *to, const gb_plan *plan, uint32_t steps);

/* The same for moves[begin..end) on top of what `now` is already; one layer's whole steps. */
void gb_plan_take(gb_placement *now, const gb_placement *from, const gb_placement *to, const gb_plan *plan, uint32_t begin, uint32_t end);

uint32_t gb_plan_copies(const gb_plan *plan);    /* moves that carry bytes */

#endif
