#include "core/flow/placement.h"

#include <string.h>

#include "core/base/assert.h"

int gb_placement_init(gb_placement *p, gb_arena *arena, uint32_t layers, uint32_t sources, uint32_t experts,
                      uint32_t ranks, uint32_t spare, gb_error *err)
{
    if (ranks == 0 || experts % ranks != 0)
        return gb_fail(err, GB_EINVAL, "%u experts cannot be split evenly over %u ranks: choose --expert-parallel-size among the divisors of %u",
                       experts, ranks, experts);
    *p = (gb_placement){.layers = layers, .sources = sources, .experts = experts, .ranks = ranks,
                        .slots_per_rank = experts / ranks + spare};
    p->expert_of_slot = GB_ARENA_NEW(arena, int32_t, (size_t)layers * gb_placement_slots(p));
    p->place = GB_ARENA_NEW(arena, int32_t, (size_t)layers * gb_placement_slots(p));
    size_t routes = (size_t)layers * sources * experts;
    p->route = GB_ARENA_NEW(arena, int32_t, routes);
    p->other = GB_ARENA_NEW(arena, int32_t, routes);
    p->other_share = GB_ARENA_NEW(arena, uint16_t, routes);
    if (!p->expert_of_slot || !p->place || !p->route || !p->other || !p->other_share)
        return gb_fail(err, GB_ENOMEM, "out of memory for the placement table");
    gb_placement_linear(p);
    return GB_OK;
}

void gb_placement_linear(gb_placement *p)
{
    uint32_t per_rank = p->experts / p->ranks;
    p->version = 1;
    for (uint32_t l = 0; l < p->layers; l++) {
        int32_t *slots = gb_placement_layer_slots(p, l);
        for (uint32_t i = 0; i < gb_placement_slots(p); i++) {
            slots[i] = -1;
            gb_placement_layer_places(p, l)[i] = (int32_t)i;
        }
        for (uint32_t e = 0; e < p->experts; e++) {
            uint32_t slot = e / per_rank * p->slots_per_rank + e % per_rank;
            slots[slot] = (int32_t)e;
            for (uint32_t s = 0; s < p->sources; s++) {
                size_t i = gb_placement_route_index(p, l, s, e);
                p->route[i] = (int32_t)slot;
                p->other[i] = -1;
                p->other_share[i] = 0;
            }
        }
    }
}

void gb_placement_share_memory(gb_placement *p)
{
    size_t slots = (size_t)p->layers * gb_placement_slots(p);
    for (size_t i = 0; i < slots; i++) p->place[i] = p->expert_of_slot[i] >= 0 ? p->expert_of_slot[i] : 0;
}

void gb_placement_copy(gb_placement *to, const gb_placement *from)
{
    GB_ASSERT(to->layers == from->layers && to->sources == from->sources && to->experts == from->experts &&
              to->ranks == from->ranks && to->slots_per_rank == from->slots_per_rank);
    to->version = from->version;
    memcpy(to->expert_of_slot, from->expert_of_slot, (size_t)from->layers * gb_placement_slots(from) * sizeof *to->expert_of_slot);
    size_t routes = (size_t)from->layers * from->sources * from->experts;
    memcpy(to->route, from->route, routes * sizeof *to->route);
    memcpy(to->other, from->other, routes * sizeof *to->other);
    memcpy(to->other_share, from->other_share, routes * sizeof *to->other_share);
}

static int check_slots(const gb_placement *p, uint32_t layer, gb_error *err)
{
    const int32_t *slots = gb_placement_layer_slots(p, layer);
    for (uint32_t i = 0; i < gb_placement_slots(p); i++) {
        if (slots[i] < -1 || slots[i] >= (int32_t)p->experts)
            return gb_fail(err, GB_EINVAL, "placement: layer %u slot %u holds expert %d, but experts are 0..%u", layer, i, slots[i], p->experts - 1);
        for (uint32_t j = i - i % p->slots_per_rank; j < i; j++)
            if (slots[i] >= 0 && slots[j] == slots[i])
                return gb_fail(err, GB_EINVAL, "placement: layer %u rank %u holds expert %d twice", layer, i / p->slots_per_rank, slots[i]);
    }
    return GB_OK;
}

static bool holds(const gb_placement *p, const int32_t *slots, int32_t slot, uint32_t expert)
{
    return slot >= 0 && slot < (int32_t)gb_placement_slots(p) && slots[slot] == (int32_t)expert;
}

static int check_routes(const gb_placement *p, uint32_t layer, gb_error *err)
{
    const int32_t *slots = gb_placement_layer_slots(p, layer);
    for (uint32_t s = 0; s < p->sources; s++) {
        const int32_t *route = gb_placement_routes(p, layer, s);
        for (uint32_t e = 0; e < p->experts; e++) {
            size_t i = gb_placement_route_index(p, layer, s, e);
            if (!holds(p, slots, route[e], e))
                return gb_fail(err, GB_EINVAL, "placement: layer %u source %u sends expert %u to slot %d, which does not hold it", layer, s, e, route[e]);
            if (p->other[i] < 0 && p->other_share[i] != 0)
                return gb_fail(err, GB_EINVAL, "placement: layer %u source %u splits expert %u without a second slot", layer, s, e);
            if (p->other[i] >= 0 && !holds(p, slots, p->other[i], e))
                return gb_fail(err, GB_EINVAL, "placement: layer %u source %u splits expert %u to slot %d, which does not hold it", layer, s, e, p->other[i]);
        }
    }
    return GB_OK;
}

int gb_placement_check(const gb_placement *p, gb_error *err)
{
    for (uint32_t l = 0; l < p->layers; l++) {
        int rc = check_slots(p, l, err);
        if (rc == GB_OK) rc = check_routes(p, l, err);
        if (rc != GB_OK) return rc;
    }
    return GB_OK;
}
