/* Placement with a hierarchy: experts come in groups of neighbours (group-limited routing sends a token to few groups), and a
   group must stay on one node. Two levels: groups go to nodes by swap search over group totals, then the experts of each node
   go to its ranks. The bound of the free problem holds for this one, too. One thread; memory from an arena. */
#ifndef GB_MOE_NODES_H
#define GB_MOE_NODES_H

#include "core/moe/swap.h"

typedef struct gb_nodes {
    uint32_t experts, ranks, groups, nodes;
    gb_swap_search outer, inner;     /* groups on nodes; experts of a node on its ranks */
    gb_layer groups_layer, node_layer;
    int32_t *node_of, *start;        /* [groups]; [experts / nodes] */
    int32_t *expert;                 /* [experts / nodes] of the node at hand */
    int32_t *best;                   /* [experts] */
} gb_nodes;

/* experts % groups, groups % nodes, ranks % nodes and experts % ranks must be 0: GB_EINVAL names the pair. */
int gb_nodes_init(gb_nodes *nodes, gb_arena *arena, uint32_t experts, uint32_t ranks, uint32_t groups, uint32_t n_nodes, gb_error *err);

/* Whether every group sits on one node. */
bool gb_nodes_hold(const gb_nodes *nodes, const int32_t *rank_of);

/* Homes that hold; no worse than `home` when that holds, too. */
void gb_nodes_place(gb_nodes *nodes, int32_t *rank_of, const gb_layer *layer, const gb_place_weights *weights, const int32_t *home);

#endif
