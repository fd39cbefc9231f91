/* A seeded generator of routing windows, for benches, tests and the simulator: Zipf-like expert popularity per layer,
   sources that differ by `sigma` expert by expert and by `block` over blocks of experts, gamma over-dispersion (tokens of
   a request choose alike), Poisson counts, and a slow drift from window to window. Layers have streams of their own: the
   same seed gives the same layer whatever the number of layers. */
#ifndef GB_MOE_GENERATE_H
#define GB_MOE_GENERATE_H

#include "core/base/rng.h"
#include "core/base/status.h"
#include "core/flow/matrix.h"

typedef struct gb_generator_options {
    uint32_t layers, sources, experts, top_k;
    double pairs_per_source;         /* mean assignments of a source to a layer's experts in one window */
    double sigma, block;             /* spread of a source's log preferences: per expert, per block of experts */
    double zipf_low, zipf_high;      /* exponent, uniform per layer */
    double dispersion;               /* an expert with share q of the tokens has gamma noise of shape 8 top_k q dispersion; larger is calmer */
    double drift;                    /* correlation of two windows; 1 stands still */
    uint64_t seed;
} gb_generator_options;

/* 48 layers, 2 sources, 128 experts, top 8, 160 000 pairs, sigma 0.5, block 0, Zipf 0.45 to 0.70, drift 0.95, seed 1. */
gb_generator_options gb_generator_defaults(void);

typedef struct gb_generator {
    gb_generator_options options;
    gb_rng *rng;            /* [layers] */
    double *base;           /* [layers][experts] log popularity */
    double *common;         /* [layers][experts] drift shared by all sources */
    double *taste;          /* [layers][sources][experts] */
    double *block_taste;    /* [layers][sources][sources] */
    double *scratch;        /* [experts] */
} gb_generator;

/* GB_EINVAL with a sentence for options out of range. */
int gb_generator_init(gb_generator *generator, gb_arena *arena, const gb_generator_options *options, gb_error *err);

/* Fills `window` (the generator's shape) and drifts on. */
void gb_generator_next(gb_generator *generator, gb_matrix *window);

#endif
