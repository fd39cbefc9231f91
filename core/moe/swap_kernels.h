/* The inner loops of the search, built once per instruction set (swap_kernels.c, swap_kernels_avx2.c): the best swap between
   two ranks, and one evaluation of the Lagrangian dual. Reductions are explicit, eight lanes wide, so that no compiler
   option may reorder them. Pure functions over padded arrays. */
#ifndef GB_MOE_SWAP_KERNELS_H
#define GB_MOE_SWAP_KERNELS_H

#include <stdint.h>

enum { GB_PAD_SLOTS = 8, GB_PAD_ITEMS = 16 };    /* arrays of a rank's slots and of all items are padded to multiples of these */

/* Exchange slot i of rank a with slot j of rank b; delta is J after minus J before. */
typedef struct gb_swap {
    float delta;
    int32_t i, j;    /* -1: no swap is better than `enough` */
} gb_swap;

/* Two ranks' slots: load[n], cost of staying, cost on the other rank. Beyond n: load and stay 0, go huge. */
typedef struct gb_pair {
    uint32_t n, padded;
    const float *load_a, *stay_a, *go_a;
    const float *load_b, *stay_b, *go_b;
    float *p, *q;    /* scratch [padded] */
    float enough;    /* negative: swaps that gain less are no swaps */
} gb_pair;

typedef struct gb_dual_point {
    uint32_t n, padded, ranks;       /* items */
    const float *cost;               /* [ranks][padded] */
    const float *load, *one;         /* [padded]; one is 1 for items and 0 beyond n */
    const float *load_price, *slot_price;    /* [ranks] */
    float *rank_load, *rank_items;   /* [ranks] out: what the priced choice puts on each rank */
    int32_t *choice;                 /* [padded] out */
    float *least;                    /* [padded] out: the priced cost of that choice */
} gb_dual_point;

typedef struct gb_swap_kernels {
    const char *name;
    /* Squares: J changes by P_i + Q_j - 4 beta u_i u_j. */
    gb_swap (*squares)(const gb_pair *pair, float beta, float load_a, float load_b);
    /* Max: J changes by P_i + Q_j + beta (max(W_a', W_b', others) - most). */
    gb_swap (*most)(const gb_pair *pair, float beta, float load_a, float load_b, float others, float most);
    /* Sum over items of min over ranks of cost + load_price * load + slot_price. */
    float (*dual)(const gb_dual_point *point);
} gb_swap_kernels;

extern const gb_swap_kernels gb_swap_kernels_portable;
#if defined(__x86_64__)
extern const gb_swap_kernels gb_swap_kernels_avx2;
#endif

/* The best set that this processor runs. */
const gb_swap_kernels *gb_swap_kernels_best(void);

#endif
