/* The paper's placement rule, exact to the bit: experts in descending load (ties: lower index first); each goes to the rank of
   lowest score that has a free slot; equal scores prefer the rank it is on now, then the emptier rank, then the lower index.

       score(e, r) = cost[r][e] + beta * u_e * (2 W_r + u_e)                squares: the marginal of sum W^2
       score(e, r) = cost[r][e] + beta * (max(M, W_r + u_e) - M)            max: M is the fullest rank so far

   in double, in this order of operations; W_r is the load placed on r so far. It starts from empty ranks, so it may end up
   worse than staying: the caller compares. */
#ifndef GB_MOE_GREEDY_H
#define GB_MOE_GREEDY_H

#include "core/flow/policy.h"
#include "core/moe/score.h"

/* Scores one expert on all ranks (ranks->score) and returns 0 (lower is better), or GB_POLICY_NIL or GB_POLICY_FAULT: the built-in score
   decides about this expert. So it does when a score is not a finite number. */
typedef int gb_score_expert(void *self, uint32_t layer, uint32_t expert, const gb_rank_table *ranks);

typedef struct gb_greedy {
    gb_score_expert *score;    /* NULL: built in */
    void *self;
    uint64_t refused;          /* answers that were not finite numbers or were faults */
    double *traffic;           /* [experts][ranks] of the layer, shown to score; may be NULL */
} gb_greedy;

/* Every rank gets at most `capacity` experts; capacity * ranks >= experts. */
void gb_greedy_place(gb_greedy *greedy, int32_t *rank_of, const gb_layer *layer, const gb_place_weights *weights,
                     const int32_t *home, uint32_t capacity, uint32_t layer_index);

/* order[i]: experts by descending load, ties by index. */
void gb_greedy_order(int32_t *order, const double *load, uint32_t experts);

#endif
