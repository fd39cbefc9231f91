#include "core/moe/trade.h"

enum { TRIES = 16 };    /* to find two experts that may trade, where ranks hold copies */

/* --- one trade --- */

static void exchange(int32_t *slot, int32_t a, int32_t b)
{
    if (*slot == a) *slot = b;
    else if (*slot == b) *slot = a;
}

static void follow(gb_placement *p, uint32_t layer, int32_t expert, int32_t a, int32_t b)
{
    for (uint32_t s = 0; s < p->sources; s++) {
        size_t i = gb_placement_route_index(p, layer, s, (uint32_t)expert);
        exchange(&p->route[i], a, b);
        exchange(&p->other[i], a, b);
    }
}

void gb_trade_slots(gb_placement *p, uint32_t layer, int32_t a, int32_t b)
{
    int32_t *slots = gb_placement_layer_slots(p, layer), of_a = slots[a], of_b = slots[b];
    slots[a] = of_b, slots[b] = of_a;
    follow(p, layer, of_a, a, b);
    follow(p, layer, of_b, a, b);
}

/* --- at random --- */

static int32_t random_slot(const gb_placement *p, gb_rng *rng, uint32_t rank)
{
    return (int32_t)(rank * p->slots_per_rank + gb_rng_below(rng, p->slots_per_rank));
}

static bool rank_holds(const gb_placement *p, uint32_t layer, int32_t slot_of_rank, int32_t expert)
{
    const int32_t *slots = gb_placement_layer_slots(p, layer);
    uint32_t first = gb_placement_rank_of_slot(p, slot_of_rank) * p->slots_per_rank;
    for (uint32_t i = first; i < first + p->slots_per_rank; i++)
        if (slots[i] == expert) return true;
    return false;
}

static bool may_trade(const gb_placement *p, uint32_t layer, int32_t a, int32_t b)
{
    const int32_t *slots = gb_placement_layer_slots(p, layer);
    return slots[a] >= 0 && slots[b] >= 0 && !rank_holds(p, layer, b, slots[a]) && !rank_holds(p, layer, a, slots[b]);
}

void gb_trade_at_random(gb_placement *p, gb_rng *rng)
{
    for (uint32_t l = 0; p->ranks > 1 && l < p->layers; l++)
        for (int i = 0; i < TRIES; i++) {
            uint32_t rank = (uint32_t)gb_rng_below(rng, p->ranks), other = (uint32_t)gb_rng_below(rng, p->ranks - 1);
            int32_t a = random_slot(p, rng, rank), b = random_slot(p, rng, other + (other >= rank));
            if (!may_trade(p, l, a, b)) continue;
            gb_trade_slots(p, l, a, b);
            break;
        }
}
