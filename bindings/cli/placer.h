/* Placement policies by name, run on dumped windows as a server would run them: estimate, decide, check, cap. What
   `gimbal place` and `gimbal bench place` share. One thread; memory from an arena, taken once for a dump's shape. */
#ifndef GB_CLI_PLACER_H
#define GB_CLI_PLACER_H

#include "core/moe/decide.h"
#include "core/moe/dump.h"
#include "core/moe/estimate.h"
#include "core/moe/nodes.h"
#include "core/moe/replicas.h"
#include "core/moe/solve.h"

typedef struct gb_placer {
    gb_arena *arena;
    gb_solve_options options;        /* weights, tolerance, caps and threshold of every policy */
    gb_links links;
    uint32_t groups, nodes;          /* for eplb and grouped; 1, 1 without a hierarchy */
    bool raw;                        /* decide on the window itself, not on the estimate */
    gb_solver solver;
    gb_replicas replicas;
    gb_nodes nodes_solver;           /* made when the policy first runs: only then must the shape divide */
    gb_decider decider;
    gb_estimate estimate;
    int32_t *home, *out;             /* [layers][experts] */
    double *share, *window;          /* [sources][ranks]; [layers][sources][experts] a window as numbers */
    gb_solve_report solved;          /* of the last swap search */
    struct gb_place_script *script;  /* place_script.h; NULL without one */
} gb_placer;

int gb_placer_init(gb_placer *placer, gb_arena *arena, const gb_dump *dump, gb_error *err);
void gb_placer_forget(gb_placer *placer);    /* the windows estimated so far */

typedef struct gb_placer_policy {
    const char *name, *summary;
    bool even_if_worse;    /* as published: nothing keeps it from moving for nothing */
    int (*decide)(gb_placer *placer, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err);
} gb_placer_policy;

extern const gb_placer_policy gb_placer_policies[];
extern const uint32_t gb_placer_policy_count;

/* GB_ENOTFOUND with the nearest name. */
int gb_placer_find(const gb_placer_policy **policy, const char *name, gb_error *err);

typedef struct gb_placer_outcome {
    gb_verdict verdict;
    double stay, objective;      /* J on what it decided by, before and after */
    double bound;                /* no placement without replicas has a smaller J; NAN when it was not asked for */
    double cpu_ms;               /* of the decision, checks and plan included */
} gb_placer_outcome;

/* Takes a window into account, then decides: `next` and placer->decider.plan. prove: also compute the bound (not timed). */
int gb_placer_step(gb_placer *placer, const gb_placer_policy *policy, gb_placement *next, const gb_placement *now, const gb_matrix *window,
                   bool prove, gb_placer_outcome *outcome, gb_error *err);

/* Where experts live now, into placer->home: the rank that serves source 0, copies aside. GB_EUNSUPPORTED when a rank holds more homes
   than experts / ranks; then gb_placer_assume_homes takes those at start. */
int gb_placer_find_homes(gb_placer *placer, const gb_placement *now, gb_error *err);

void gb_placer_assume_homes(gb_placer *placer);

/* A window as numbers, in placer->window. */
const double *gb_placer_numbers(gb_placer *placer, const gb_matrix *window);

/* Milliseconds of CPU time of this thread. */
double gb_placer_cpu_ms(void);

#endif
