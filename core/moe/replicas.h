/* Copies of hot experts, placed by who uses them. A layer's spare slots are filled where a copy saves most: moving d of a
   source's traffic from rank h to a copy on rank r gains

       dc d + 2 beta d (W_h - W_r - d),   dc = alpha (link[s][h] - link[s][r]),   best at d = (W_h - W_r) / 2 + dc / (4 beta)

   within 0 and what h serves. Then it alternates: swap search over all copies with their traffic, drop copies that serve
   nobody, add again, and even out; the best round wins. A new copy must gain more than gamma. The load term is the one of
   squares; the max form is replaced by squares of like stiffness. Memory from an arena, one thread. */
#ifndef GB_MOE_REPLICAS_H
#define GB_MOE_REPLICAS_H

#include "core/moe/swap.h"

typedef struct gb_replicas {
    uint32_t sources, experts, ranks, slots_per_rank;
    double alpha, beta, gamma;       /* of squares */
    const gb_links *links;
    double *amount, *best_amount, *other_amount;    /* [sources][experts][ranks] traffic that a copy serves, in mean experts */
    uint8_t *held, *best_held;       /* [experts][ranks] */
    uint8_t *before;                 /* [experts][ranks] held when the layer began: no move */
    uint32_t *used;                  /* [ranks] slots */
    double *rank_load;               /* [ranks] */
    double *gain;                    /* [experts][ranks] of adding a copy */
    uint8_t *changed;                /* [ranks] load changed since the gains were computed */
    gb_swap_search search;           /* over all slots */
    gb_layer items;                  /* one item per slot */
    int32_t *item_expert, *item_rank;    /* [slots]; expert -1: an empty slot */
} gb_replicas;

/* GB_ENOMEM. */
int gb_replicas_init(gb_replicas *replicas, gb_arena *arena, uint32_t sources, uint32_t experts, uint32_t ranks, uint32_t slots_per_rank);

/* Slots and routes of one layer of `out`. flow[sources][experts] as counted; home[experts] are good homes to start from;
   `before` (same shape as out) is what stands now, or NULL: copies cost nothing then. */
void gb_replicas_place(gb_replicas *replicas, gb_placement *out, uint32_t layer, const gb_place_weights *weights, const gb_links *links,
                       const double *flow, const int32_t *home, const gb_placement *before);

#endif
