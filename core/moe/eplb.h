/* DeepSeek's EPLB (github.com/deepseek-ai/EPLB), rewritten from its published rules; a baseline. It sees loads only: hot
   experts get replicas, then slots are packed by descending load into the lightest rank with room. With groups that divide
   over the nodes it first packs groups of experts to nodes. Where the original leaves ties open, the lower index wins. */
#ifndef GB_MOE_EPLB_H
#define GB_MOE_EPLB_H

#include "core/flow/placement.h"

typedef struct gb_eplb_shape {
    uint32_t experts, slots;         /* of a layer; slots >= experts */
    uint32_t groups, nodes, ranks;   /* 1, 1, R without a hierarchy */
} gb_eplb_shape;

/* experts % groups, groups % nodes, ranks % nodes, slots % ranks must be 0; GB_EINVAL names the pair. Groups that do not divide
   over the nodes mean the global policy there; here the caller asks for it (groups = nodes = 1). */
int gb_eplb_check(const gb_eplb_shape *shape, gb_error *err);

/* expert_of_slot[slots], rank-major, from load[experts]. Slots of one rank may hold an expert twice. */
void gb_eplb_layer(int32_t *expert_of_slot, const double *load, const gb_eplb_shape *shape);

/* All layers into a placement, routes cut evenly over the copies. A second copy on one rank serves nobody, so its slot stays
   empty. traffic [layers][sources][experts]. */
int gb_eplb_place(gb_placement *placement, const double *traffic, uint32_t groups, uint32_t nodes, gb_error *err);

#endif
