/* The feedback edge: how busy an engine's ranks are with experts. Tokens that arrived at each rank are averaged over recent
   rounds (exponentially); an engine's pressure is the sum over its ranks divided by the mean over engines. 1 = average,
   also while nothing was counted. */
#ifndef GB_MOE_PRESSURE_H
#define GB_MOE_PRESSURE_H

#include "core/base/arena.h"
#include "core/flow/ids.h"

enum { GB_PRESSURE_ROUNDS = 16 };    /* a round's weight falls to 1/e after as many rounds */

typedef struct gb_pressure {
    gb_topology topology;
    double *rank_load;    /* [ranks] expert tokens a round */
} gb_pressure;

int    gb_pressure_init(gb_pressure *p, gb_arena *arena, gb_topology topology);    /* GB_ENOMEM */
void   gb_pressure_add(gb_pressure *p, const uint64_t *rank_tokens);               /* [ranks] of one round */
double gb_pressure_of(const gb_pressure *p, uint32_t engine);

#endif
