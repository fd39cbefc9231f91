/* A one-layer placement problem with a known answer, from tests/moe/fixtures (README.md there says what the fields mean). */
#ifndef GB_TESTS_MOE_FIXTURE_H
#define GB_TESTS_MOE_FIXTURE_H

#include "core/moe/score.h"

typedef struct moe_fixture {
    const char *file;
    gb_place_weights weights;
    gb_links links;
    uint32_t sources, experts, ranks;
    double *flow;                /* [sources][experts] */
    int32_t *home, *optimal;     /* [experts] */
    int32_t *greedy;             /* [experts] what the paper's rule answers */
    double best, lower_bound;    /* J of `optimal`, and what was proved; equal for t* */
    double stay, greedy_objective;
} moe_fixture;

enum { MOE_FIXTURES = 11 };
extern const char *const moe_fixture_files[MOE_FIXTURES];    /* t* first */

/* Stops the test program when the file cannot be read: there is nothing to test then. */
moe_fixture moe_fixture_read(const char *file, gb_arena *arena);

#endif
