/* The last word on any placement, whoever made it: it must be valid, gain enough, and fit into the caps on moves and bytes of
   one window. What is accepted comes back as a plan, best steps first, and as the placement the plan leads to. Nothing is
   applied here; a refusal leaves everything as it was. One thread; memory from an arena, taken once. */
#ifndef GB_MOE_DECIDE_H
#define GB_MOE_DECIDE_H

#include "core/moe/plan.h"
#include "core/moe/score.h"

typedef enum gb_verdict {
    GB_VERDICT_ACCEPTED,
    GB_VERDICT_CUT,          /* accepted up to the caps */
    GB_VERDICT_SAME,         /* nothing to move */
    GB_VERDICT_INVALID,      /* an expert is missing or twice on a rank, a route leads astray */
    GB_VERDICT_NO_GAIN,      /* not better than staying, or by less than the threshold */
    GB_VERDICT_TOO_DEAR,     /* not even its first step fits into the caps */
} gb_verdict;

const char *gb_verdict_name(gb_verdict verdict);    /* "accepted", "cut", ... */

typedef struct gb_decision_limits {
    double min_gain_ratio;       /* J must fall by at least this share of |J| of staying; 0: by anything */
    uint32_t max_moves;          /* copies in all layers together */
    uint64_t max_bytes, expert_bytes;
    bool even_if_worse;          /* for comparisons only: J may rise */
} gb_decision_limits;

typedef struct gb_decider {
    gb_plan plan;
    gb_placement cut, prefix;    /* scratch */
    double *worth;               /* [steps of a plan] */
} gb_decider;

int gb_decider_init(gb_decider *decider, gb_arena *arena, const gb_placement *shape, gb_error *err);

/* Judges `next` against `now` on traffic[layers][sources][experts]. When accepted or cut, decider->plan leads from `now` to
   `next`, which is aligned (and cut) to it. Otherwise `next` becomes `now`. err says why a placement is invalid. */
gb_verdict gb_decide(gb_decider *decider, gb_placement *next, const gb_placement *now, const double *traffic, const gb_links *links,
                     const gb_place_weights *weights, const gb_decision_limits *limits, gb_error *err);

#endif
