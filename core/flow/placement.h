/* Where experts live. A slot is rank * slots_per_rank + i; every expert of every layer has at least one home slot, no
   rank holds an expert twice, and route says which home serves which source. Dispatch consults route for every token.
   Where an expert has several homes, a source may split its tokens between two of them: `other` is the second slot and
   other_share the part of 65536 token hashes that go there.
   A slot is a rank's share of the map; its place is where the backend keeps the weights. Where each rank has memory of its own, places
   are numbered like slots, then one spare place for each rank; where ranks share memory, the place of an expert is its number. */
#ifndef GB_FLOW_PLACEMENT_H
#define GB_FLOW_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/base/status.h"

enum { GB_SHARES = 65536 };    /* the parts that other_share counts */

typedef struct gb_placement {
    uint32_t version;
    uint32_t layers, sources, experts, ranks, slots_per_rank;
    int32_t *expert_of_slot;    /* [layers][ranks * slots_per_rank] expert, or -1 for an empty slot */
    int32_t *place;             /* [layers][ranks * slots_per_rank] */
    int32_t *route;             /* [layers][sources][experts] slot */
    int32_t *other;             /* [layers][sources][experts] second slot, or -1 */
    uint16_t *other_share;      /* [layers][sources][experts] of GB_SHARES; 0 where other is -1 */
} gb_placement;

/* Memory from the arena; slots_per_rank = experts / ranks + spare (experts must divide: GB_EINVAL). */
int gb_placement_init(gb_placement *p, gb_arena *arena, uint32_t layers, uint32_t sources, uint32_t experts,
                      uint32_t ranks, uint32_t spare, gb_error *err);
void gb_placement_linear(gb_placement *p);    /* expert e on rank e / (experts / ranks), version 1, ranks with memory of their own */
void gb_placement_share_memory(gb_placement *p);    /* places as where all ranks read one memory */
void gb_placement_copy(gb_placement *to, const gb_placement *from);    /* the map; same shape. Places are not the map's: they stay */

/* Every invariant above; GB_EINVAL and a sentence naming the layer, expert and rank that break it. */
int gb_placement_check(const gb_placement *p, gb_error *err);

static inline uint32_t gb_placement_slots(const gb_placement *p) { return p->ranks * p->slots_per_rank; }
static inline int32_t *gb_placement_layer_slots(const gb_placement *p, uint32_t layer)
{
    return p->expert_of_slot + (size_t)layer * gb_placement_slots(p);
}
static inline int32_t *gb_placement_layer_places(const gb_placement *p, uint32_t layer)
{
    return p->place + (size_t)layer * gb_placement_slots(p);
}
static inline int32_t *gb_placement_routes(const gb_placement *p, uint32_t layer, uint32_t source)
{
    return p->route + ((size_t)layer * p->sources + source) * p->experts;
}
static inline size_t gb_placement_route_index(const gb_placement *p, uint32_t layer, uint32_t source, uint32_t expert)
{
    return ((size_t)layer * p->sources + source) * p->experts + expert;
}
static inline uint64_t gb_placement_token_hash(uint32_t position, int32_t token)
{
    return gb_mix64((uint64_t)position << 32 | (uint32_t)token);
}
/* The slot that serves one token. The hash names the token itself (its text position and id, not its row in the batch),
   so that neither padding nor arrival chooses a replica. */
static inline int32_t gb_placement_slot(const gb_placement *p, uint32_t layer, uint32_t source, uint32_t expert, uint64_t token_hash)
{
    size_t i = gb_placement_route_index(p, layer, source, expert);
    if (p->other[i] < 0 || gb_mix64(token_hash + expert) >> 48 >= p->other_share[i]) return p->route[i];
    return p->other[i];
}
static inline uint32_t gb_placement_rank_of_slot(const gb_placement *p, int32_t slot)
{
    return (uint32_t)slot / p->slots_per_rank;
}

#endif
