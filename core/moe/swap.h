/* Swap search on one layer: experts sit in slots, a step exchanges two experts of two ranks, the steepest step is taken until
   none improves. Every rank keeps its number of slots, so every state on the way is a valid placement. An item is an expert
   or an empty slot (no load, no cost); items fill ranks * capacity slots exactly. One thread; memory from an arena, taken once. */
#ifndef GB_MOE_SWAP_H
#define GB_MOE_SWAP_H

#include "core/base/rng.h"
#include "core/moe/score.h"
#include "core/moe/swap_kernels.h"

typedef struct gb_swap_search {
    const gb_swap_kernels *kernels;
    uint32_t items, padded_items;           /* ranks * capacity, and rounded up */
    uint32_t experts;                       /* the first items; the rest are empty slots */
    uint32_t ranks, capacity, padded;       /* slots of a rank, and rounded up */
    float beta, mean;                       /* mean load of a rank */
    gb_imbalance imbalance;
    float enough;                           /* negative; smaller gains are noise */
    float *cost, *load, *one;               /* [ranks][padded_items], [padded_items], [padded_items] */
    int32_t *rank_of;                       /* [items] */
    int32_t *item_of_slot;                  /* [ranks][padded] */
    float *slot_load, *slot_cost;           /* [ranks][padded]; [ranks on][ranks at][padded] cost at `at` of the items on `on` */
    float *rank_load;                       /* [ranks] */
    float *price_hint;                      /* [ranks] what load seemed worth above the mean, when gb_swap_continue passed by */
    float *p, *q;                           /* [padded] */
    gb_swap *best;                          /* [ranks][ranks], a < b */
} gb_swap_search;

/* ranks * capacity >= experts; GB_ENOMEM. */
int gb_swap_init(gb_swap_search *search, gb_arena *arena, uint32_t experts, uint32_t ranks, uint32_t capacity);

/* Copies the layer's numbers. rank_of gives the scale of J, below which gains are noise. */
void gb_swap_set_layer(gb_swap_search *search, const gb_layer *layer, const gb_place_weights *weights, const int32_t *rank_of);

/* Puts every expert on its rank (at most capacity each) and fills the rest with empty slots. */
void gb_swap_load(gb_swap_search *search, const int32_t *rank_of);

/* Fills the table of best swaps; best_swap then finds the steepest step, take applies it and refreshes the table. */
void gb_swap_survey(gb_swap_search *search);
bool gb_swap_best(const gb_swap_search *search, gb_swap *swap, uint32_t *a, uint32_t *b);
void gb_swap_take(gb_swap_search *search, const gb_swap *swap, uint32_t a, uint32_t b);

/* Down to a local optimum; returns the steps taken. */
uint32_t gb_swap_descend(gb_swap_search *search);

/* Descent under softer imbalance first, then the real one: from the same start it ends in a better valley when beta is
   stiff. Returns the steps taken. */
uint32_t gb_swap_continue(gb_swap_search *search);

/* Random exchanges between ranks, to leave a valley. */
void gb_swap_shake(gb_swap_search *search, gb_rng *rng, uint32_t exchanges);

#endif
