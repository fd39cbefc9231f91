#include "core/moe/swap.h"

#include <math.h>
#include <string.h>

#include "core/base/assert.h"

enum { MAX_STEPS = 4096 };    /* far above any descent seen; ends a cycle made of rounding */

static const float HUGE_COST = 1e30f;

static uint32_t pad(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }

int gb_swap_init(gb_swap_search *s, gb_arena *arena, uint32_t experts, uint32_t ranks, uint32_t capacity)
{
    GB_ASSERT(ranks > 0 && ranks <= GB_RANKS_MAX && (uint64_t)ranks * capacity >= experts);
    uint32_t items = ranks * capacity, padded_items = pad(items, GB_PAD_ITEMS), padded = pad(capacity, GB_PAD_SLOTS);
    *s = (gb_swap_search){.kernels = gb_swap_kernels_best(), .items = items, .padded_items = padded_items, .experts = experts,
                          .ranks = ranks, .capacity = capacity, .padded = padded,
                          .cost = GB_ARENA_NEW(arena, float, (size_t)ranks * padded_items),
                          .load = GB_ARENA_NEW(arena, float, padded_items),
                          .one = GB_ARENA_NEW(arena, float, padded_items),
                          .rank_of = GB_ARENA_NEW(arena, int32_t, items),
                          .item_of_slot = GB_ARENA_NEW(arena, int32_t, (size_t)ranks * padded),
                          .slot_load = GB_ARENA_NEW(arena, float, (size_t)ranks * padded),
                          .slot_cost = GB_ARENA_NEW(arena, float, (size_t)ranks * ranks * padded),
                          .rank_load = GB_ARENA_NEW(arena, float, ranks),
                          .price_hint = GB_ARENA_NEW(arena, float, ranks),
                          .p = GB_ARENA_NEW(arena, float, padded),
                          .q = GB_ARENA_NEW(arena, float, padded),
                          .best = GB_ARENA_NEW(arena, gb_swap, (size_t)ranks * ranks)};
    if (!s->cost || !s->load || !s->one || !s->rank_of || !s->item_of_slot || !s->slot_load || !s->slot_cost || !s->rank_load ||
        !s->price_hint || !s->p || !s->q || !s->best)
        return GB_ENOMEM;
    for (uint32_t i = 0; i < items; i++) s->one[i] = 1;
    return GB_OK;
}

void gb_swap_set_layer(gb_swap_search *s, const gb_layer *layer, const gb_place_weights *weights, const int32_t *rank_of)
{
    GB_ASSERT(layer->experts == s->experts && layer->ranks == s->ranks);
    double total = 0, scale = 0;
    for (uint32_t e = 0; e < s->experts; e++) {
        s->load[e] = (float)layer->load[e];
        total += layer->load[e];
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        const double *from = layer->cost + (size_t)r * s->experts;
        float *to = s->cost + (size_t)r * s->padded_items;
        for (uint32_t e = 0; e < s->experts; e++) to[e] = (float)from[e];
    }
    for (uint32_t e = 0; e < s->experts; e++) scale += fabs(layer->cost[(size_t)rank_of[e] * s->experts + e]);
    s->mean = (float)(total / s->ranks);
    s->beta = (float)weights->beta;
    s->imbalance = weights->imbalance;
    memset(s->price_hint, 0, s->ranks * sizeof *s->price_hint);
    s->enough = (float)(-1e-7 * (scale + weights->beta * s->mean) - 1e-30);
}

static void put(gb_swap_search *s, uint32_t rank, uint32_t slot, int32_t item)
{
    size_t at = (size_t)rank * s->padded + slot;
    s->item_of_slot[at] = item;
    s->rank_of[item] = (int32_t)rank;
    s->slot_load[at] = s->load[item];
    for (uint32_t r = 0; r < s->ranks; r++)
        s->slot_cost[((size_t)rank * s->ranks + r) * s->padded + slot] = s->cost[(size_t)r * s->padded_items + (uint32_t)item];
}

/* Slots beyond the capacity never win: leaving them costs too much. */
static void put_padding(gb_swap_search *s, uint32_t rank, uint32_t slot)
{
    s->slot_load[(size_t)rank * s->padded + slot] = 0;
    for (uint32_t r = 0; r < s->ranks; r++)
        s->slot_cost[((size_t)rank * s->ranks + r) * s->padded + slot] = r == rank ? 0 : HUGE_COST;
}

void gb_swap_load(gb_swap_search *s, const int32_t *rank_of)
{
    uint32_t used[GB_RANKS_MAX] = {0};
    int32_t empty = (int32_t)s->experts;
    memset(s->rank_load, 0, s->ranks * sizeof *s->rank_load);
    for (uint32_t e = 0; e < s->experts; e++) {
        uint32_t r = (uint32_t)rank_of[e];
        GB_ASSERT(r < s->ranks && used[r] < s->capacity);
        put(s, r, used[r]++, (int32_t)e);
        s->rank_load[r] += s->load[e];
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        while (used[r] < s->capacity) put(s, r, used[r]++, empty++);
        for (uint32_t i = s->capacity; i < s->padded; i++) put_padding(s, r, i);
    }
}

/* --- the table of best swaps ---------------------------------------------------------------------------------------- */

/* The three fullest ranks: enough to know the fullest of all but two. */
typedef struct top_three {
    float load[3];
    uint32_t rank[3];
} top_three;

static top_three find_top(const gb_swap_search *s)
{
    top_three t = {{-1e30f, -1e30f, -1e30f}, {UINT32_MAX, UINT32_MAX, UINT32_MAX}};
    for (uint32_t r = 0; r < s->ranks; r++) {
        int at = 3;
        while (at > 0 && s->rank_load[r] > t.load[at - 1]) at--;
        if (at == 3) continue;
        for (int k = 2; k > at; k--) t.load[k] = t.load[k - 1], t.rank[k] = t.rank[k - 1];
        t.load[at] = s->rank_load[r];
        t.rank[at] = r;
    }
    return t;
}

static float fullest_other(const top_three *t, uint32_t a, uint32_t b)
{
    int k = 0;
    while (k < 2 && (t->rank[k] == a || t->rank[k] == b)) k++;
    return t->load[k];
}

static gb_swap look_at(const gb_swap_search *s, const top_three *top, uint32_t a, uint32_t b)
{
    size_t row_a = (size_t)a * s->ranks, row_b = (size_t)b * s->ranks;
    gb_pair pair = {.n = s->capacity, .padded = s->padded,
                    .load_a = s->slot_load + (size_t)a * s->padded, .load_b = s->slot_load + (size_t)b * s->padded,
                    .stay_a = s->slot_cost + (row_a + a) * s->padded, .go_a = s->slot_cost + (row_a + b) * s->padded,
                    .stay_b = s->slot_cost + (row_b + b) * s->padded, .go_b = s->slot_cost + (row_b + a) * s->padded,
                    .p = s->p, .q = s->q, .enough = s->enough};
    if (s->imbalance == GB_IMBALANCE_SQUARES) return s->kernels->squares(&pair, s->beta, s->rank_load[a], s->rank_load[b]);
    return s->kernels->most(&pair, s->beta, s->rank_load[a], s->rank_load[b], fullest_other(top, a, b), top->load[0]);
}

static bool same_top(const top_three *x, const top_three *y)
{
    return memcmp(x->load, y->load, sizeof x->load) == 0 && memcmp(x->rank, y->rank, sizeof x->rank) == 0;
}

/* Looks again at the pairs that involve a or b, or at all of them. */
static void refresh(gb_swap_search *s, const top_three *top, uint32_t a, uint32_t b, bool all)
{
    for (uint32_t x = 0; x < s->ranks; x++)
        for (uint32_t y = x + 1; y < s->ranks; y++)
            if (all || x == a || x == b || y == a || y == b) s->best[(size_t)x * s->ranks + y] = look_at(s, top, x, y);
}

void gb_swap_survey(gb_swap_search *s)
{
    top_three top = find_top(s);
    refresh(s, &top, 0, 0, true);
}

bool gb_swap_best(const gb_swap_search *s, gb_swap *swap, uint32_t *a, uint32_t *b)
{
    swap->i = -1;
    for (uint32_t x = 0; x < s->ranks; x++)
        for (uint32_t y = x + 1; y < s->ranks; y++) {
            const gb_swap *c = &s->best[(size_t)x * s->ranks + y];
            if (c->i >= 0 && (swap->i < 0 || c->delta < swap->delta)) *swap = *c, *a = x, *b = y;
        }
    return swap->i >= 0;
}

static void exchange(gb_swap_search *s, const gb_swap *swap, uint32_t a, uint32_t b)
{
    int32_t from_a = s->item_of_slot[(size_t)a * s->padded + (uint32_t)swap->i];
    int32_t from_b = s->item_of_slot[(size_t)b * s->padded + (uint32_t)swap->j];
    float difference = s->load[from_a] - s->load[from_b];
    put(s, a, (uint32_t)swap->i, from_b);
    put(s, b, (uint32_t)swap->j, from_a);
    s->rank_load[a] -= difference;
    s->rank_load[b] += difference;
}

void gb_swap_take(gb_swap_search *s, const gb_swap *swap, uint32_t a, uint32_t b)
{
    top_three before = find_top(s);
    exchange(s, swap, a, b);
    top_three top = find_top(s);
    refresh(s, &top, a, b, s->imbalance == GB_IMBALANCE_MAX && !same_top(&before, &top));
}

/* Exhausts one pair of ranks after the other, until a whole round finds nothing: far fewer looks than the steepest path. */
static uint32_t sweep(gb_swap_search *s)
{
    uint32_t steps = 0, clean = 0, pairs = s->ranks * (s->ranks - 1) / 2;
    top_three top = find_top(s);
    while (clean < pairs)
        for (uint32_t x = 0; x < s->ranks && clean < pairs; x++)
            for (uint32_t y = x + 1; y < s->ranks && clean < pairs; y++, clean++)
                for (;;) {
                    gb_swap swap = look_at(s, &top, x, y);
                    if (swap.i < 0 || steps == MAX_STEPS) break;
                    exchange(s, &swap, x, y);
                    if (s->imbalance == GB_IMBALANCE_MAX) top = find_top(s);
                    steps++;
                    clean = 0;
                }
    return steps;
}

/* At most `most` steps, each the best of all pairs. */
static uint32_t steepest(gb_swap_search *s, uint32_t most)
{
    gb_swap swap;
    uint32_t a, b, steps = 0;
    gb_swap_survey(s);
    for (; steps < most && gb_swap_best(s, &swap, &a, &b); steps++) gb_swap_take(s, &swap, a, b);
    return steps;
}

/* A few steps settle most layers, and the steepest ones move the fewest experts. A layer that wants many more is a long way
   from home anyhow. */
uint32_t gb_swap_descend(gb_swap_search *s)
{
    uint32_t few = s->items / 16, steps = steepest(s, few);
    return steps < few ? steps : steps + sweep(s);
}

/* --- continuation --------------------------------------------------------------------------------------------------- */

static void set_imbalance(gb_swap_search *s, gb_imbalance imbalance, float beta)
{
    s->imbalance = imbalance;
    s->beta = beta;
}

/* A soft optimum is only a start: with many pairs of ranks, sweeping gets there for a third of the looks. */
static uint32_t descend_softly(gb_swap_search *s, float beta)
{
    enum { MANY_RANKS = 8 };
    set_imbalance(s, GB_IMBALANCE_SQUARES, beta);
    return s->ranks < MANY_RANKS ? steepest(s, MAX_STEPS) : sweep(s);
}

/* At a soft optimum the marginal squares tell what load is worth on each rank; stiffer ones drown it in rounding to whole
   experts. */
static void note_load_prices(gb_swap_search *s, float beta)
{
    for (uint32_t r = 0; r < s->ranks; r++) s->price_hint[r] = 2 * beta * (s->rank_load[r] - s->mean);
}

uint32_t gb_swap_continue(gb_swap_search *s)
{
    gb_imbalance imbalance = s->imbalance;
    float beta = s->beta;
    uint32_t steps = 0;
    if (imbalance == GB_IMBALANCE_SQUARES) {
        steps += descend_softly(s, beta / 16);
        steps += descend_softly(s, beta / 4);
    } else if (s->mean > 0) {
        float soft = beta * 0.25f / s->mean;
        for (int i = 0; i < 4; i++, soft *= 6) {
            steps += descend_softly(s, soft);
            if (i == 1) note_load_prices(s, soft);
        }
    }
    set_imbalance(s, imbalance, beta);
    return steps + (imbalance == GB_IMBALANCE_SQUARES ? steepest(s, MAX_STEPS) : sweep(s));
}

void gb_swap_shake(gb_swap_search *s, gb_rng *rng, uint32_t exchanges)
{
    for (uint32_t k = 0; k < exchanges && s->ranks > 1; k++) {
        uint32_t a = (uint32_t)gb_rng_below(rng, s->ranks), b = (uint32_t)gb_rng_below(rng, s->ranks - 1);
        gb_swap swap = {0, (int32_t)gb_rng_below(rng, s->capacity), (int32_t)gb_rng_below(rng, s->capacity)};
        exchange(s, &swap, a, b + (b >= a));
    }
}
