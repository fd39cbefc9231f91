/* gimbal place VERB: one file a group of verbs, their flags in one table (place.c). */
#ifndef GB_CLI_PLACE_VERBS_H
#define GB_CLI_PLACE_VERBS_H

#include "bindings/cli/command.h"
#include "bindings/cli/place_script.h"
#include "bindings/cli/placer.h"
#include "bindings/cli/remote.h"

typedef struct gb_place_flags {
    /* what to decide by */
    const char *policy, *weights, *imbalance;
    double alpha, beta, gamma, tolerance, min_gain;
    int64_t max_moves, max_bytes, groups, nodes, window, layer;
    bool raw, even_if_worse, exact, moves, json;
    int64_t exact_seconds;
    const char *output;
    double compute_weight, move_weight;
    /* what to generate */
    int64_t layers, sources, experts, ranks, spare, top_k, windows, pairs, ranks_per_node, expert_bytes, seed;
    double sigma, block, drift, near;
    gb_remote_flags remote;    /* dump, load */
} gb_place_flags;

/* A dump, opened, with a placer set up by the flags. */
typedef struct gb_place_session {
    const gb_args *args;
    const gb_place_flags *flags;
    gb_arena arena;
    gb_dump dump;
    gb_placer placer;
    const gb_placer_policy *policy;
    gb_place_script script;             /* opened when the policy is one */
    gb_placement now, next;
} gb_place_session;

/* Each verb returns a status; what it has to say goes to standard output. */
int gb_place_gen(gb_place_session *session, gb_error *err);
int gb_place_show(gb_place_session *session, gb_error *err);
int gb_place_solve(gb_place_session *session, gb_error *err);
int gb_place_compare(gb_place_session *session, gb_error *err);
int gb_place_calibrate(gb_place_session *session, gb_error *err);
int gb_place_dump(gb_place_session *session, gb_error *err);
int gb_place_load(gb_place_session *session, gb_error *err);
int gb_place_picture(gb_place_session *session, gb_error *err);

/* Runs a policy through all windows of the dump, from the dump's placement: decide on one window, look at the next. */
typedef struct gb_place_run {
    uint32_t rearrangements;         /* windows decided on */
    uint64_t first_moves, moves;     /* of the first decision, and of all */
    gb_place_report next;            /* means over the windows looked at; moves and migration are not part of it */
    double worst;                    /* worst layer of any of these windows, load of the fullest rank over the mean */
    double cpu_ms, gap;              /* mean per decision; gap NAN without a bound */
    double agreement, comm_excess;   /* against the certified search: same rank, Comm above the reference's; NAN unless asked */
} gb_place_run;

/* scored: the next window where there is one; a dump of one window is scored on that one. */
int gb_place_run_policy(gb_place_session *session, const gb_placer_policy *policy, bool prove, bool against_reference, gb_place_run *run,
                        gb_error *err);

#endif
