/* What a placement of experts is worth. One layer, in units that do not depend on the length of a window or on the model:
   with b = N / E (mean assignments per expert), u_e = B_e / b and W_r the sum of u over the experts of rank r,

       J = alpha * Comm + beta * Imb + gamma * Mig
       Comm = (1/b) sum_s,e A[s][e] * link[s][rank of e]                 traffic, in mean experts' traffic
       Imb  = sum_r (W_r - E/R)^2   or   max_r W_r - E/R                 load, in mean experts' load
       Mig  = sum_e m_e * [rank of e is not its rank now]                moves, in mean experts' bytes

   Everything linear becomes one table, cost[rank][expert]; the search adds the imbalance from load[]. A policy may fill
   the two arrays by itself. Pure functions; memory is the caller's. */
#ifndef GB_MOE_SCORE_H
#define GB_MOE_SCORE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/flow/ids.h"
#include "core/flow/matrix.h"
#include "core/flow/placement.h"

/* Largest weight and link cost: the search adds in float, and sums of products must stay far from its end. */
#define GB_PLACE_NUMBER_MAX 1e9

typedef enum gb_imbalance {
    GB_IMBALANCE_SQUARES,    /* sum of squared deviations from the mean load */
    GB_IMBALANCE_MAX,        /* the fullest rank above the mean */
} gb_imbalance;

typedef struct gb_place_weights {
    double alpha, beta, gamma;
    gb_imbalance imbalance;
} gb_place_weights;

gb_place_weights gb_place_weights_paper(void);       /* squares, (1, 0.0025, 1) */
gb_place_weights gb_place_weights_balanced(void);    /* squares, (1, 0.1, 0.1) */
gb_place_weights gb_place_weights_latency(void);     /* max,     (1, 4, 0.1) */

/* 0 to GB_PLACE_NUMBER_MAX; GB_EINVAL names the weight. */
int gb_place_weights_check(const gb_place_weights *weights, gb_error *err);

/* Who pays what: link[source][rank] is the cost of one assignment from a source to a rank. */
typedef struct gb_links {
    uint32_t sources, ranks;
    double *cost;    /* [sources][ranks] */
} gb_links;

int  gb_links_init(gb_links *links, gb_arena *arena, uint32_t sources, uint32_t ranks, gb_error *err);
/* 0 on the source's own ranks (rank * sources / ranks), 1 elsewhere. */
void gb_links_groups(gb_links *links);
/* 0 on the source's own ranks, `near` inside its node, 1 across nodes; a node is `ranks_per_node` consecutive ranks. */
void gb_links_tiers(gb_links *links, uint32_t ranks_per_node, double near);
/* 0 to GB_PLACE_NUMBER_MAX; GB_EINVAL names the pair. */
int  gb_links_check(const gb_links *links, gb_error *err);

static inline uint32_t gb_links_owner(const gb_links *links, uint32_t rank)
{
    return (uint32_t)((uint64_t)rank * links->sources / links->ranks);
}

/* One layer as the search sees it. */
typedef struct gb_layer {
    uint32_t experts, ranks;
    double *cost;    /* [ranks][experts] alpha * Comm + gamma * Mig of expert e on rank r */
    double *load;    /* [experts] u_e */
} gb_layer;

/* Fills cost and load from traffic flow[sources][experts]. home[e] is the expert's rank now; NULL: no migration term.
   move_weight[e] is m_e; NULL: 1 for all. A layer without traffic costs nothing but its moves. */
void gb_score_layer(gb_layer *layer, const gb_place_weights *weights, const gb_links *links, const double *flow,
                    const int32_t *home, const double *move_weight);

/* J of rank_of[e], from the two arrays. */
double gb_score_objective(const gb_layer *layer, const gb_place_weights *weights, const int32_t *rank_of);

/* What the operator wants to know about a placement on a window, whatever made it. */
typedef struct gb_place_report {
    double objective, comm, imbalance, migration;    /* J and its three terms before weighting, summed over layers */
    double max_over_mean, worst_max_over_mean;       /* load of the fullest rank over the mean: mean over layers, worst layer */
    double remote_ratio;                             /* assignments served outside their source's own ranks */
    double cost_ratio;                               /* mean link cost of an assignment */
    uint64_t moves, bytes;                           /* copies against the placement before */
} gb_place_report;

/* J of one layer as placed and routed; moves against `before` (NULL: none). 0 for a layer without traffic and moves. */
double gb_score_placement_layer(const gb_place_weights *weights, const gb_links *links, const double *flow, const gb_placement *placement,
                                uint32_t layer, const gb_placement *before);

/* Routes as they are in `placement`, replicas and splits included. `before` may be NULL (no moves); the same shape otherwise. */
void gb_score_placement(gb_place_report *report, const gb_place_weights *weights, const gb_links *links,
                        const double *traffic, const gb_placement *placement, const gb_placement *before,
                        uint64_t expert_bytes);

#endif
