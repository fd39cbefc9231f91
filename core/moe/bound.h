/* A proved lower bound of J on one layer: give each unit of load on rank r the price lambda_r and each slot the price mu_r,
   let every item take its cheapest rank, and correct for what the prices were worth:

       g = sum_e min_r (cost[r][e] + lambda_r u_e + mu_r) - capacity sum_r mu_r
             - sum_r (lambda_r^2 / (4 beta) + lambda_r mean)            squares
             + (beta - sum_r lambda_r) z - beta mean                    max; lambda >= 0, sum lambda <= beta, z <= fullest rank

   For any prices g <= J of every placement, so a placement with J - g small is nearly optimal, and provably so. Prices come
   from the incumbent (shadow prices of its loads; differences of its cheapest exchanges), then from Polyak steps in float;
   the bound that is published is computed once more in double. One thread; memory from an arena. */
#ifndef GB_MOE_BOUND_H
#define GB_MOE_BOUND_H

#include "core/moe/swap.h"

typedef struct gb_prices {
    float *load_price, *slot_price;         /* [ranks] the best prices so far */
    int32_t *choice;                        /* [padded_items] what they choose */
    double value;                           /* g at the best prices, in float arithmetic */
    float *try_load, *try_slot;             /* [ranks] where the next step stands */
    float *step_load, *step_slot;           /* [ranks] its direction */
    float *rank_load, *rank_items;          /* [ranks] */
    int32_t *try_choice;                    /* [padded_items] */
    float *least, *regret;                  /* [padded_items]; [ranks][ranks] */
    float floor;                            /* z: no placement's fullest rank is below it */
} gb_prices;

int gb_bound_init(gb_prices *bound, gb_arena *arena, const gb_swap_search *shape);    /* GB_ENOMEM */

/* Prices from the placement loaded in `search`, and the bound they prove. */
void gb_bound_start(gb_prices *bound, const gb_swap_search *search);

/* Up to `steps` improvements towards `incumbent` (J of the best placement); stops when incumbent - value <= tolerance * |incumbent|. */
void gb_bound_improve(gb_prices *bound, const gb_swap_search *search, double incumbent, double tolerance, uint32_t steps);

/* g at the best prices, in double, from the layer's own numbers. */
double gb_bound_proof(const gb_prices *bound, const gb_swap_search *search, const gb_layer *layer, const gb_place_weights *weights);

/* A placement near the prices' choice: overfull ranks give the items that lose least to ranks with room. Uses the scratch. */
void gb_bound_round(gb_prices *bound, const gb_swap_search *search, int32_t *rank_of);

#endif
