/* The placement solver: from traffic and the current homes to better homes, with a proof of how good they are. Layers are
   independent problems that share a migration budget. Every answer is a valid assignment (capacity exact on every rank) and
   never worth less than staying. The workspace is taken at start; nothing below allocates afterwards. One thread at a time.

   A caller fills each layer's cost and load (gb_solver_score, or a policy by itself) and asks for one of the searches. */
#ifndef GB_MOE_SOLVE_H
#define GB_MOE_SOLVE_H

#include "core/moe/bound.h"
#include "core/moe/score.h"
#include "core/moe/swap.h"

enum { GB_MOVES_ANY = UINT32_MAX };

#define GB_SOLVE_LOAD_MAX 1e6
#define GB_SOLVE_COST_MAX 1e24

typedef struct gb_solve_options {
    gb_place_weights weights;
    double tolerance;            /* a layer is done once its gap is proved below this share of |J|; 0: do all there is */
    uint32_t bound_steps;        /* most evaluations of the dual per layer */
    uint32_t kicks;              /* restarts near the best answer of a small layer (at most 64 experts) that is not proved */
    double min_gain_ratio;       /* a layer stays unless J falls by at least this share of |J| */
    uint32_t max_moves;          /* in all layers together; GB_MOVES_ANY: no limit */
    uint64_t max_bytes;          /* of moved experts; UINT64_MAX: no limit */
    uint64_t expert_bytes;       /* weights of one expert of one layer */
} gb_solve_options;

/* Paper weights, tolerance 0.001, 120 steps, 48 kicks, no gain threshold, no limits, 9 437 184 bytes (Qwen3-30B-A3B in bf16). */
gb_solve_options gb_solve_defaults(void);
int gb_solve_options_check(const gb_solve_options *options, gb_error *err);    /* GB_EINVAL names the option */

/* Summed over layers. */
typedef struct gb_solve_report {
    double stay, objective;      /* J before and after */
    double bound;                /* proved: no assignment has a smaller J (without the budget); -infinity when not asked for */
    uint32_t moves;
    uint32_t steps;              /* swaps tried */
} gb_solve_report;

/* (objective - bound) / |bound|; infinity without a bound. */
double gb_solve_gap(const gb_solve_report *report);

typedef struct gb_solver {
    uint32_t layers, experts, ranks, capacity;
    gb_layer *layer;             /* [layers] cost and load, filled by the caller */
    gb_swap_search *search;      /* [layers] */
    gb_prices bound;
    double *objective;           /* [layers] J of the last answer */
    double *proof;               /* [layers] its bound */
    struct gb_solve_offer *offers;    /* [layers] */
    int32_t *candidate;          /* [experts] */
} gb_solver;

/* GB_EINVAL when experts do not divide over the ranks, with both numbers. */
int gb_solver_init(gb_solver *solver, gb_arena *arena, uint32_t layers, uint32_t experts, uint32_t ranks, gb_error *err);

/* gb_score_layer for every layer; traffic [layers][sources][experts], home [layers][experts]. */
void gb_solver_score(gb_solver *solver, const gb_place_weights *weights, const gb_links *links, const double *traffic,
                     const int32_t *home);

/* Loads from 0 to GB_SOLVE_LOAD_MAX and costs of at most GB_SOLVE_COST_MAX either way, in every layer: for tables that a policy
   filled. GB_EINVAL names layer, expert and rank. */
int gb_solver_check(const gb_solver *solver, gb_error *err);

/* Swap search from the current homes, a proved bound, continuation where the proof is not tight enough. With a limit on moves
   or bytes below "everything", the steps of most gain are taken over all layers until it is spent; no bound then. */
void gb_solver_swap(gb_solver *solver, int32_t *out, const int32_t *home, const gb_solve_options *options, gb_solve_report *report);

#endif
