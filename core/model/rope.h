/* Rotary positions: which rule a config asks for. The frequencies themselves are gb_rope_frequencies of config.h. */
#ifndef GB_MODEL_ROPE_H
#define GB_MODEL_ROPE_H

#include "core/model/config.h"
#include "core/model/json.h"

/* Reads rope_theta and rope_scaling or rope_parameters of a config whose max_positions is known. */
void gb_rope_parse(gb_rope *rope, gb_fields *config, uint32_t max_positions);

#endif
