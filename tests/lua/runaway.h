/* Random scripts that never end, each valid and different: loops of several kinds around statements that compute, allocate, read columns,
   sort, catch errors and call. The same seed gives the same script. */
#ifndef GB_TESTS_LUA_RUNAWAY_H
#define GB_TESTS_LUA_RUNAWAY_H

#include <stddef.h>

#include "core/base/rng.h"
#include "core/flow/policy.h"

enum { RUNAWAY_BYTES = 16 * 1024 };

typedef struct runaway {
    gb_hook hook;                /* that runs away at 7 s and later, and does nothing before */
    char source[RUNAWAY_BYTES];
    unsigned lines;
} runaway;

void runaway_make(runaway *program, gb_rng *rng);

#endif
