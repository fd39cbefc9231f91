/* Random numbers without state to lose. gb_rng_at is counter-based (Philox4x32-10, Salmon et al. 2011): the value at
   (seed, position) does not depend on what was drawn before, so a request samples the same tokens alone, in a batch
   and after a preemption. gb_rng is a small sequential generator (xoshiro256**) for schedulers and tests. */
#ifndef GB_BASE_RNG_H
#define GB_BASE_RNG_H

#include <stdint.h>

/* Four 32-bit words of Philox4x32-10 for a 128-bit counter and a 64-bit key. */
void gb_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* Uniform in [0, 1), 53 bits. */
double gb_rng_at(uint64_t seed, uint64_t position);

typedef struct gb_rng {
    uint64_t s[4];
} gb_rng;

void     gb_rng_init(gb_rng *rng, uint64_t seed);
uint64_t gb_rng_next(gb_rng *rng);
uint64_t gb_rng_below(gb_rng *rng, uint64_t n);    /* uniform in 0..n-1; n > 0 */
double   gb_rng_uniform(gb_rng *rng);              /* [0, 1) */

uint64_t gb_mix64(uint64_t x);    /* splitmix64's finaliser: a good hash of one word */

#endif
