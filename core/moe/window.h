/* Profiling windows: A[layer][source][expert] counted over a fixed number of rounds, or until so much time has gone by. One is running, the latest full
   one is kept closed until the next takes its place. Window ids count from 1; the closed one has id 0 until there is one.
   A round that failed counts nothing and does not advance the window. */
#ifndef GB_MOE_WINDOW_H
#define GB_MOE_WINDOW_H

#include <stdbool.h>

#include "core/base/time.h"
#include "core/flow/matrix.h"

typedef struct gb_window {
    uint64_t id;
    uint32_t rounds;       /* counted so far */
    gb_time from, to;      /* first round handed out .. last round back */
    gb_matrix counts;
} gb_window;

typedef struct gb_windows {
    gb_window running, closed;
    uint32_t rounds_per_window;
    gb_time longest;
} gb_windows;

/* GB_ENOMEM. rounds_per_window >= 1; longest: a round that is back so long after the first began closes the window, GB_NEVER: only
   their number does. */
int gb_windows_init(gb_windows *w, gb_arena *arena, uint32_t layers, uint32_t sources, uint32_t experts, uint32_t rounds_per_window,
                    gb_time longest);

/* Adds one round's counts; true when that closed a window. */
bool gb_windows_add(gb_windows *w, const gb_matrix *counts, gb_time started, gb_time now);

#endif
