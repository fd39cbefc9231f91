/* Random moves, to try migration out: it must change no token. */
#ifndef GB_MOE_TRADE_H
#define GB_MOE_TRADE_H

#include "core/base/rng.h"
#include "core/flow/placement.h"

/* Two slots of a layer trade experts; routes follow. Neither expert may have a copy on the other's rank. */
void gb_trade_slots(gb_placement *placement, uint32_t layer, int32_t a, int32_t b);

/* In every layer two random experts of two random ranks trade slots. With one rank nothing happens; a layer whose ranks hold
   copies of each other's experts may stay as it is. */
void gb_trade_at_random(gb_placement *placement, gb_rng *rng);

#endif
