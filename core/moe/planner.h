/* From closed windows to a migration: every window goes into the estimate, every so many of them experts are placed anew. Whoever
   places (the built-in search, or a policy through the one seam below) says for each expert on which rank it should live; the rest
   is the same for all: copies into spare slots (where the policy has not filled them itself), validity, the gain threshold, the caps
   on moves and bytes, and the order of moves (decide.h). Nothing is applied here. One thread; memory from an arena, taken once; deciding allocates nothing. */
#ifndef GB_MOE_PLANNER_H
#define GB_MOE_PLANNER_H

#include "core/base/time.h"
#include "core/moe/decide.h"
#include "core/moe/estimate.h"
#include "core/moe/rearrange.h"
#include "core/moe/replicas.h"
#include "core/moe/window.h"

typedef struct gb_planner_options {
    uint32_t every;             /* windows between two decisions; 0: windows are only estimated */
    gb_solve_options solve;     /* weights, gain threshold, caps; expert_bytes > 0 */
} gb_planner_options;

/* The seam. Fills r->rank_of (experts / ranks of each layer on every rank), or the slots of layers, and returns 0; after GB_POLICY_NIL
   and GB_POLICY_FAULT it has been filled by gb_rearrange_built_in all the same. */
typedef int gb_planner_place(void *self, gb_rearrangement *r, gb_time now);

typedef struct gb_planner_stats {
    uint64_t decisions, accepted;    /* accepted: whole or cut to the caps */
    gb_verdict verdict;              /* of the latest */
    gb_solve_report report;          /* of the latest; zeros where no search was made */
} gb_planner_stats;

typedef struct gb_planner {
    gb_planner_options options;
    gb_planner_place *place;         /* NULL: gb_rearrange_built_in */
    void *self;
    gb_estimate estimate;
    gb_links links;
    gb_solver solver;
    gb_rearrangement rearrangement;
    gb_replicas replicas;            /* where ranks have spare slots */
    gb_decider decider;              /* its plan is the latest accepted one */
    gb_placement next;               /* ... and leads here */
    int32_t *home;                   /* [layers][experts] */
    uint64_t window_id;              /* the latest one seen */
    uint32_t waiting;                /* windows since the last decision */
    gb_planner_stats stats;
} gb_planner;

/* For placements of this shape (at least one layer); links by group. GB_EINVAL for options out of range, GB_ENOMEM. */
int gb_planner_init(gb_planner *planner, gb_arena *arena, const gb_placement *shape, const gb_planner_options *options, gb_error *err);

void gb_planner_observe(gb_planner *planner, const gb_window *closed);

/* Enough windows have closed since the last decision. */
bool gb_planner_due(const gb_planner *planner);

/* Decides from what stands now. GB_VERDICT_ACCEPTED or _CUT: decider.plan leads to next. */
gb_verdict gb_planner_decide(gb_planner *planner, const gb_placement *live, gb_time now);

#endif
