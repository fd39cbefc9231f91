/* From logits to a token: penalties, bans, temperature, top-k, top-p, min-p and a counter-based draw, so that the same
   (logits, sampling, position) always gives the same token. Pure: no state, no allocation. */
#ifndef GB_MODEL_SAMPLER_H
#define GB_MODEL_SAMPLER_H

#include "core/flow/round.h"

/* Bytes of scratch that gb_sampler_pick needs for a vocabulary. */
size_t gb_sampler_scratch_bytes(uint32_t vocab);

/* Chooses a token for the work from logits[vocab] (overwritten). Order of steps as in vLLM: log-probabilities are reported
   from the raw logits; then bans, repetition / frequency / presence penalties, temperature, min-p, top-k, top-p, draw with
   gb_rng_at(seed, position of the new token). Greedy takes the lowest id among equals. NaN logits: GB_EINTERNAL. */
int gb_sampler_pick(gb_sampled *out, float *logits, uint32_t vocab, const gb_work *work, void *scratch);

#endif
