/* One layer solved by CBC (coin-or.org, Debian's coinor-cbc), an outside program that gimbal can do without. */
#ifndef GB_CLI_PLACE_EXACT_H
#define GB_CLI_PLACE_EXACT_H

#include "core/moe/exact.h"

typedef struct gb_place_exact {
    int32_t *rank_of;         /* [experts] out */
    bool optimal;             /* proved within the gap; else the best found in time */
    double seconds;           /* wall time */
} gb_place_exact;

/* GB_EUNSUPPORTED with what to install when there is no cbc; GB_ENOTFOUND when the time ended before any placement. */
int gb_place_exact_solve(gb_place_exact *exact, const gb_layer *layer, const gb_place_weights *weights, uint32_t capacity, double gap_ratio,
                         uint32_t seconds, gb_error *err);

#endif
