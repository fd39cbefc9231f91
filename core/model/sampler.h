/* From logits to a token: penalties, bans, temperature, top-k, top-p, min-p and a counter-based draw, so that the same
   (logits, sampling, position) always gives the same token. Pure: no state, no allocation. */
#ifndef GB_MODEL_SAMPLER_H
#define GB_MODEL_SAMPLER_H

#include "core/flow/round.h"

/* Below this temperature the division only makes infinities: greedy. */
#define GB_GREEDY_TEMPERATURE 1e-5f

/* Bytes of scratch that gb_sampler_pick needs for a vocabulary; 64-byte aligned, contents do not matter. */
size_t gb_sampler_scratch_bytes(uint32_t vocab);

/* Chooses a token for the work from logits[vocab]. Order of steps as in vLLM: log-probabilities are reported from the raw
   logits; then bans, repetition / frequency / presence penalties, temperature, min-p, top-k, top-p, and a draw with
   gb_rng_at(seed, position of the new token). Filters keep the lower id among equals and at least one token; a temperature
   below GB_GREEDY_TEMPERATURE is greedy, the lowest id among equals. Logits that are NaN or +inf, or bans of every token: token -1 and
   GB_EINTERNAL. */
int gb_sampler_pick(gb_sampled *out, const float *logits, uint32_t vocab, const gb_work *work, void *scratch);

#endif
