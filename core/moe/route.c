#include "core/moe/route.h"

#include <math.h>

#include "core/base/assert.h"

/* Two best of a list of (slot, amount), by amount; ties keep the earlier one. */
typedef struct two_best {
    int32_t slot[2];
    double amount[2];
} two_best;

static void offer(two_best *t, int32_t slot, double amount)
{
    int at = t->slot[0] < 0 || amount > t->amount[0] ? 0 : t->slot[1] < 0 || amount > t->amount[1] ? 1 : 2;
    if (at == 2) return;
    if (at == 0) t->slot[1] = t->slot[0], t->amount[1] = t->amount[0];
    t->slot[at] = slot;
    t->amount[at] = amount;
}

static void set_route(gb_placement *p, uint32_t layer, uint32_t source, uint32_t expert, const two_best *t)
{
    size_t i = gb_placement_route_index(p, layer, source, expert);
    GB_ASSERT(t->slot[0] >= 0);
    double total = t->amount[0] + t->amount[1];
    double share = t->slot[1] >= 0 && total > 0 ? round(GB_SHARES * t->amount[1] / total) : 0;
    p->route[i] = t->slot[0];
    p->other[i] = share > 0 ? t->slot[1] : -1;
    p->other_share[i] = (uint16_t)share;    /* at most half */
}

static uint32_t count_copies(const gb_placement *p, const int32_t *slots, uint32_t expert)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < gb_placement_slots(p); i++) n += slots[i] == (int32_t)expert;
    return n;
}

/* --- nearest --------------------------------------------------------------------------------------------------------- */

static double link_of(const gb_links *links, const gb_placement *p, uint32_t source, uint32_t slot)
{
    return links->cost[(size_t)source * links->ranks + slot / p->slots_per_rank];
}

static int32_t nearest_copy(const gb_placement *p, const int32_t *slots, const gb_links *links, uint32_t source, uint32_t expert)
{
    double least = INFINITY;
    uint32_t equals = 0, turn;
    for (uint32_t i = 0; i < gb_placement_slots(p); i++) {
        if (slots[i] != (int32_t)expert) continue;
        double cost = link_of(links, p, source, i);
        equals = cost < least ? 1 : equals + (cost == least);
        least = fmin(least, cost);
    }
    turn = equals ? source % equals : 0;
    for (uint32_t i = 0; i < gb_placement_slots(p); i++)
        if (slots[i] == (int32_t)expert && link_of(links, p, source, i) == least && turn-- == 0) return (int32_t)i;
    return -1;
}

void gb_route_nearest(gb_placement *p, uint32_t layer, const gb_links *links)
{
    const int32_t *slots = gb_placement_layer_slots(p, layer);
    for (uint32_t s = 0; s < p->sources; s++)
        for (uint32_t e = 0; e < p->experts; e++) {
            two_best t = {{nearest_copy(p, slots, links, s, e), -1}, {1, 0}};
            set_route(p, layer, s, e, &t);
        }
}

/* --- evenly ---------------------------------------------------------------------------------------------------------- */

static void cut_evenly(gb_placement *p, uint32_t layer, const double *flow, uint32_t expert)
{
    const int32_t *slots = gb_placement_layer_slots(p, layer);
    uint32_t copies = count_copies(p, slots, expert);
    double total = 0, from = 0;
    for (uint32_t s = 0; s < p->sources; s++) total += flow[(size_t)s * p->experts + expert];
    for (uint32_t s = 0; s < p->sources; s++) {
        double width = total > 0 ? flow[(size_t)s * p->experts + expert] / total : 1.0 / p->sources, to = from + width;
        two_best t = {{-1, -1}, {0, 0}};
        uint32_t k = 0;
        for (uint32_t i = 0; i < gb_placement_slots(p); i++) {
            if (slots[i] != (int32_t)expert) continue;
            double low = fmax(from, (double)k / copies), high = fmin(to, (double)(k + 1) / copies);
            offer(&t, (int32_t)i, fmax(high - low, 0));
            k++;
        }
        set_route(p, layer, s, expert, &t);
        from = to;
    }
}

void gb_route_evenly(gb_placement *p, uint32_t layer, const double *flow)
{
    for (uint32_t e = 0; e < p->experts; e++) cut_evenly(p, layer, flow, e);
}

/* --- by amounts ------------------------------------------------------------------------------------------------------ */

void gb_route_amounts(gb_placement *p, uint32_t layer, const gb_links *links, const double *amounts)
{
    const int32_t *slots = gb_placement_layer_slots(p, layer);
    gb_route_nearest(p, layer, links);
    for (uint32_t s = 0; s < p->sources; s++)
        for (uint32_t e = 0; e < p->experts; e++) {
            const double *amount = amounts + ((size_t)s * p->experts + e) * p->ranks;
            two_best t = {{-1, -1}, {0, 0}};
            for (uint32_t i = 0; i < gb_placement_slots(p); i++)
                if (slots[i] == (int32_t)e && amount[i / p->slots_per_rank] > 0) offer(&t, (int32_t)i, amount[i / p->slots_per_rank]);
            if (t.slot[0] >= 0) set_route(p, layer, s, e, &t);
        }
}
