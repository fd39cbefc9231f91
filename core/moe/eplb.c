#include "core/moe/eplb.h"

#include <string.h>

#include "core/moe/greedy.h"
#include "core/moe/route.h"

enum { SLOTS_MAX = 2 * GB_EXPERTS_MAX + GB_RANKS_MAX };

int gb_eplb_check(const gb_eplb_shape *s, gb_error *err)
{
    const struct { const char *what, *into; uint32_t n, parts; } divisions[] = {
        {"experts", "groups", s->experts, s->groups}, {"groups", "nodes", s->groups, s->nodes},
        {"ranks", "nodes", s->ranks, s->nodes}, {"slots", "ranks", s->slots, s->ranks}};
    for (size_t i = 0; i < sizeof divisions / sizeof *divisions; i++)
        if (divisions[i].parts == 0 || divisions[i].n % divisions[i].parts != 0)
            return gb_fail(err, GB_EINVAL, "eplb: %u %s cannot be split evenly over %u %s", divisions[i].n, divisions[i].what,
                           divisions[i].parts, divisions[i].into);
    if (s->experts > GB_EXPERTS_MAX || s->slots < s->experts || s->slots > SLOTS_MAX)
        return gb_fail(err, GB_EINVAL, "eplb: %u slots for %u experts: choose %u to %d", s->slots, s->experts, s->experts, SLOTS_MAX);
    return GB_OK;
}


/* n items to `packs` packs of n / packs each: heaviest first, to the lightest pack with room. */
static void pack(int32_t *pack_of, int32_t *place_in, const double *load, uint32_t n, uint32_t packs)
{
    int32_t order[SLOTS_MAX];
    double weight[SLOTS_MAX] = {0};
    uint32_t held[SLOTS_MAX] = {0}, room = n / packs;
    if (room == 1) {
        for (uint32_t i = 0; i < n; i++) pack_of[i] = (int32_t)i, place_in[i] = 0;
        return;
    }
    gb_greedy_order(order, load, n);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = (uint32_t)order[k], best = UINT32_MAX;
        for (uint32_t p = 0; p < packs; p++)
            if (held[p] < room && (best == UINT32_MAX || weight[p] < weight[best])) best = p;
        pack_of[i] = (int32_t)best;
        place_in[i] = (int32_t)held[best]++;
        weight[best] += load[i];
    }
}

/* One copy each, then again and again one more of the expert with the most load per copy. */
static void replicate(int32_t *expert_of, uint32_t *copies, const double *load, uint32_t experts, uint32_t slots)
{
    for (uint32_t e = 0; e < experts; e++) expert_of[e] = (int32_t)e, copies[e] = 1;
    for (uint32_t i = experts; i < slots; i++) {
        uint32_t hottest = 0;
        for (uint32_t e = 1; e < experts; e++)
            if (load[e] / copies[e] > load[hottest] / copies[hottest]) hottest = e;
        expert_of[i] = (int32_t)hottest;
        copies[hottest]++;
    }
}

/* node_major[i]: the expert that comes i-th when groups stand by node. */
static void order_by_node(int32_t *node_major, const double *load, const gb_eplb_shape *s)
{
    uint32_t size = s->experts / s->groups, groups_per_node = s->groups / s->nodes;
    int32_t node_of[GB_EXPERTS_MAX], place_in[GB_EXPERTS_MAX];
    double group_load[GB_EXPERTS_MAX] = {0};
    for (uint32_t e = 0; e < s->experts; e++) group_load[e / size] += load[e];
    pack(node_of, place_in, group_load, s->groups, s->nodes);
    for (uint32_t e = 0; e < s->experts; e++) {
        uint32_t g = e / size, position = (uint32_t)node_of[g] * groups_per_node + (uint32_t)place_in[g];
        node_major[position * size + e % size] = (int32_t)e;
    }
}

static void place_node(int32_t *expert_of_slot, const int32_t *experts_here, const double *load, uint32_t experts, uint32_t slots, uint32_t ranks)
{
    int32_t expert_of[SLOTS_MAX], rank_of[SLOTS_MAX], place_in[SLOTS_MAX];
    uint32_t copies[GB_EXPERTS_MAX];
    double here[GB_EXPERTS_MAX], share[SLOTS_MAX] = {0};    /* gcc cannot see that slots >= 1 */
    for (uint32_t e = 0; e < experts; e++) here[e] = load[experts_here[e]];
    replicate(expert_of, copies, here, experts, slots);
    for (uint32_t i = 0; i < slots; i++) share[i] = here[expert_of[i]] / copies[expert_of[i]];
    pack(rank_of, place_in, share, slots, ranks);
    for (uint32_t i = 0; i < slots; i++)
        expert_of_slot[(uint32_t)rank_of[i] * (slots / ranks) + (uint32_t)place_in[i]] = experts_here[expert_of[i]];
}

void gb_eplb_layer(int32_t *expert_of_slot, const double *load, const gb_eplb_shape *s)
{
    int32_t node_major[GB_EXPERTS_MAX];
    uint32_t experts = s->experts / s->nodes, slots = s->slots / s->nodes;
    order_by_node(node_major, load, s);
    for (uint32_t n = 0; n < s->nodes; n++)
        place_node(expert_of_slot + n * slots, node_major + n * experts, load, experts, slots, s->ranks / s->nodes);
}

static void drop_second_copies(const gb_placement *p, int32_t *slots)
{
    for (uint32_t i = 0; i < gb_placement_slots(p); i++)
        for (uint32_t j = i - i % p->slots_per_rank; j < i; j++)
            if (slots[j] == slots[i]) slots[i] = -1;
}

int gb_eplb_place(gb_placement *p, const double *traffic, uint32_t groups, uint32_t nodes, gb_error *err)
{
    gb_eplb_shape shape = {p->experts, gb_placement_slots(p), groups, nodes, p->ranks};
    int rc = gb_eplb_check(&shape, err);
    if (rc != GB_OK) return rc;
    for (uint32_t l = 0; l < p->layers; l++) {
        const double *flow = traffic + (size_t)l * p->sources * p->experts;
        double load[GB_EXPERTS_MAX] = {0};
        for (uint32_t s = 0; s < p->sources; s++)
            for (uint32_t e = 0; e < p->experts; e++) load[e] += flow[(size_t)s * p->experts + e];
        int32_t *slots = gb_placement_layer_slots(p, l);
        gb_eplb_layer(slots, load, &shape);
        drop_second_copies(p, slots);
        gb_route_evenly(p, l, flow);
    }
    return GB_OK;
}
