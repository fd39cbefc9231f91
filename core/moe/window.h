/* Profiling windows: A[layer][source][expert] counted over a fixed number of rounds, or until so much time has gone by. One is running, the latest full
   one is kept closed until the next takes its place. Window ids count from 1; the closed one has id 0 until there is one.
   Whether a round is the window's last is decided when it begins, so that an executor can keep its counts until then (round.h).
   A round that failed takes what was counted with it: the running window begins anew. */
#ifndef GB_MOE_WINDOW_H
#define GB_MOE_WINDOW_H

#include <stdbool.h>

#include "core/base/time.h"
#include "core/flow/matrix.h"

typedef struct gb_window {
    uint64_t id;
    uint32_t rounds;       /* so far */
    uint32_t counted;      /* of them, whose counts are here: all in a closed window */
    gb_time from, to;      /* first round handed out .. last round back */
    gb_matrix counts;
} gb_window;

typedef struct gb_windows {
    gb_window running, closed;
    uint32_t rounds_per_window;
    gb_time longest;
    gb_time round_from;    /* the round under way */
    bool round_is_last;
} gb_windows;

/* GB_ENOMEM. rounds_per_window >= 1; longest: a round that begins so long after the first began is the window's last, GB_NEVER: only
   their number counts. */
int gb_windows_init(gb_windows *w, gb_arena *arena, uint32_t layers, uint32_t sources, uint32_t experts, uint32_t rounds_per_window,
                    gb_time longest);

/* A round begins; true: it is the window's last, and all counts are due with its result. */
bool gb_windows_begin(gb_windows *w, gb_time now);

/* That round is back, with these counts; pending: more of this or earlier rounds will come, no later than with the window's last. True when
   it closed the window. */
bool gb_windows_add(gb_windows *w, const gb_matrix *counts, bool pending, gb_time now);

/* That round has failed. */
void gb_windows_fail(gb_windows *w);

#endif
