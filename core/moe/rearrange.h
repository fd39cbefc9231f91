/* One placement decision: from the traffic to expect and the homes of today to better homes. It holds everything that such a decision
   reads, as numbers for C and as the window table that a policy sees, and can be answered by the built-in rules or by a policy that
   fills in scores, costs or slots. Layers come one by one: their numbers are in the solver's layers. One thread; memory from an
   arena, taken once. */
#ifndef GB_MOE_REARRANGE_H
#define GB_MOE_REARRANGE_H

#include "core/moe/greedy.h"
#include "core/moe/solve.h"

typedef struct gb_rearrangement {
    gb_solver *solver;                    /* borrowed */
    const gb_solve_options *options;      /* borrowed */
    gb_links links;                       /* cost is borrowed */
    const double *traffic;                /* [layers][sources][experts] borrowed */
    const int32_t *home;                  /* [layers][experts] borrowed; experts / ranks of each layer on every rank */
    gb_window_table window;               /* the three above, for policies */
    double *rank_traffic;                 /* [experts][ranks] of the layer that is being placed: Comm of each choice */
    int32_t *rank_of;                     /* [layers][experts] the answer; where has_slots and there are spare ones, still the homes */
    uint32_t slots_per_rank;
    double *slots;                        /* [ranks * slots_per_rank] of one layer, for a policy to fill */
    int32_t *expert_of_slot;              /* [layers][ranks * slots_per_rank] the answer of the layers in has_slots */
    bool *has_slots;                      /* [layers] a policy gave this layer's slots themselves: the search has no say */
    gb_solve_report report;               /* of the last search; zeros after the greedy */
} gb_rearrangement;

/* For problems of the solver's shape with so many sources. GB_ENOMEM. */
int gb_rearrange_init(gb_rearrangement *r, gb_arena *arena, gb_solver *solver, const gb_solve_options *options, uint32_t sources, gb_error *err);

/* Room for `spare` more slots on each rank, for policies that place copies. GB_ENOMEM. */
int gb_rearrange_add_spare(gb_rearrangement *r, gb_arena *arena, uint32_t spare, gb_error *err);

/* The next problem; id is the window's. The three arrays are read until the answer is taken. */
void gb_rearrange_pose(gb_rearrangement *r, const double *traffic, const gb_links *links, const int32_t *home, uint64_t id);

/* The built-in numbers of a layer, into the solver's. */
void gb_rearrange_score(gb_rearrangement *r, uint32_t layer);

/* Places one layer by the greedy rule, on the layer's numbers. Fills rank_traffic first when the rule has a score. */
void gb_rearrange_greedy(gb_rearrangement *r, gb_greedy *rule, uint32_t layer);

/* A policy gave the slots of every layer, spare ones included. */
bool gb_rearrange_is_by_slots(const gb_rearrangement *r);

/* The layer's answer is r->slots: whole numbers, -1 for an empty slot. GB_EINVAL when a slot holds no expert of the layer, a rank
   holds one twice or an expert lives nowhere, with a sentence. */
int gb_rearrange_take_slots(gb_rearrangement *r, uint32_t layer, gb_error *err);

/* Places the layers without slots by the swap search, on the solver's numbers. */
void gb_rearrange_search(gb_rearrangement *r);

/* The slots that a policy gave a layer, spare ones included, into `next`; its copies share their expert's traffic evenly. */
void gb_rearrange_put_slots(const gb_rearrangement *r, gb_placement *next, uint32_t layer);

/* The answer as a placement after `now`, both of the solver's shape with slots_per_rank; copies share their expert's traffic evenly.
   `now` may hold copies only if a policy gave the slots of all layers. */
void gb_rearrange_settle(const gb_rearrangement *r, gb_placement *next, const gb_placement *now);

/* The built-in answer: built-in numbers, swap search. */
void gb_rearrange_built_in(gb_rearrangement *r);

#endif
