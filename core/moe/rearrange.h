/* One placement decision: from the traffic to expect and the homes of today to better homes. It holds everything that such a decision
   reads, as numbers for C and as the window table that a policy sees, and can be answered by the built-in rules or by a policy that
   fills in scores or costs. Layers come one by one: their numbers are in the solver's layers. One thread; memory from an arena,
   taken once. */
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
    int32_t *rank_of;                     /* [layers][experts] the answer */
    gb_solve_report report;               /* of the last search; zeros after the greedy */
} gb_rearrangement;

/* For problems of the solver's shape with so many sources. GB_ENOMEM. */
int gb_rearrange_init(gb_rearrangement *r, gb_arena *arena, gb_solver *solver, const gb_solve_options *options, uint32_t sources, gb_error *err);

/* The next problem; id is the window's. The three arrays are read until the answer is taken. */
void gb_rearrange_pose(gb_rearrangement *r, const double *traffic, const gb_links *links, const int32_t *home, uint64_t id);

/* The built-in numbers of a layer, into the solver's. */
void gb_rearrange_score(gb_rearrangement *r, uint32_t layer);

/* Places one layer by the greedy rule, on the layer's numbers. Fills rank_traffic first when the rule has a score. */
void gb_rearrange_greedy(gb_rearrangement *r, gb_greedy *rule, uint32_t layer);

/* Places all layers by the swap search, on the solver's numbers. */
void gb_rearrange_search(gb_rearrangement *r);

/* The built-in answer: built-in numbers, swap search. */
void gb_rearrange_built_in(gb_rearrangement *r);

#endif
