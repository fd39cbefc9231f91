#include "core/moe/bound.h"

#include <float.h>
#include <math.h>
#include <string.h>

int gb_bound_init(gb_prices *b, gb_arena *arena, const gb_swap_search *shape)
{
    uint32_t R = shape->ranks;
    *b = (gb_prices){.load_price = GB_ARENA_NEW(arena, float, R), .slot_price = GB_ARENA_NEW(arena, float, R),
                    .choice = GB_ARENA_NEW(arena, int32_t, shape->padded_items),
                    .try_load = GB_ARENA_NEW(arena, float, R), .try_slot = GB_ARENA_NEW(arena, float, R),
                    .step_load = GB_ARENA_NEW(arena, float, R), .step_slot = GB_ARENA_NEW(arena, float, R),
                    .rank_load = GB_ARENA_NEW(arena, float, R), .rank_items = GB_ARENA_NEW(arena, float, R),
                    .try_choice = GB_ARENA_NEW(arena, int32_t, shape->padded_items),
                    .least = GB_ARENA_NEW(arena, float, shape->padded_items),
                    .regret = GB_ARENA_NEW(arena, float, (size_t)R * R)};
    bool whole = b->load_price && b->slot_price && b->choice && b->try_load && b->try_slot && b->step_load && b->step_slot &&
                 b->rank_load && b->rank_items && b->try_choice && b->least && b->regret;
    return whole ? GB_OK : GB_ENOMEM;
}

/* --- evaluating g --------------------------------------------------------------------------------------------------- */

/* What the prices were worth: everything of g but the sum over items. Load prices count `scale` times. */
static double worth(const gb_swap_search *s, const float *load_price, const float *slot_price, double scale, double beta, double mean,
                    double floor)
{
    double g = 0, prices = 0;
    for (uint32_t r = 0; r < s->ranks; r++) {
        double lambda = scale * load_price[r];
        g -= s->capacity * (double)slot_price[r];
        if (s->imbalance == GB_IMBALANCE_SQUARES) g -= (beta > 0 ? lambda * lambda / (4 * beta) : 0) + lambda * mean;
        prices += lambda;
    }
    return s->imbalance == GB_IMBALANCE_SQUARES ? g : g + (beta - prices) * floor - beta * mean;
}

static double evaluate(gb_prices *b, const gb_swap_search *s)
{
    gb_dual_point point = {.n = s->items, .padded = s->padded_items, .ranks = s->ranks, .cost = s->cost, .load = s->load, .one = s->one,
                           .load_price = b->try_load, .slot_price = b->try_slot, .rank_load = b->rank_load, .rank_items = b->rank_items,
                           .choice = b->try_choice, .least = b->least};
    float items = s->kernels->dual(&point);
    return items + worth(s, b->try_load, b->try_slot, 1, s->beta, s->mean, b->floor);
}

static void keep(gb_prices *b, const gb_swap_search *s, double value)
{
    b->value = value;
    memcpy(b->load_price, b->try_load, s->ranks * sizeof *b->load_price);
    memcpy(b->slot_price, b->try_slot, s->ranks * sizeof *b->slot_price);
    memcpy(b->choice, b->try_choice, s->padded_items * sizeof *b->choice);
}

static void return_to_best(gb_prices *b, const gb_swap_search *s)
{
    memcpy(b->try_load, b->load_price, s->ranks * sizeof *b->load_price);
    memcpy(b->try_slot, b->slot_price, s->ranks * sizeof *b->slot_price);
    memset(b->step_load, 0, s->ranks * sizeof *b->step_load);
    memset(b->step_slot, 0, s->ranks * sizeof *b->step_slot);
}

/* --- the start ------------------------------------------------------------------------------------------------------ */

/* Shell's sort with Ciura's gaps: a layer has a few hundred experts. */
static void sort_ascending(float *x, uint32_t n)
{
    static const uint32_t gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++)
        for (uint32_t gap = gaps[g], i = gap; i < n; i++) {
            float value = x[i];
            uint32_t j = i;
            for (; j >= gap && x[j - gap] > value; j -= gap) x[j] = x[j - gap];
            x[j] = value;
        }
}

/* Some rank holds the hottest item and, at the least, the capacity - 1 coldest ones; and some rank has the mean. A hair
   lower, so that rounding cannot lift it above the truth. */
static float least_top(gb_prices *b, const gb_swap_search *s)
{
    memcpy(b->least, s->load, s->items * sizeof *b->least);
    sort_ascending(b->least, s->items);
    float with_coldest = b->least[s->items - 1];
    for (uint32_t i = 0; i + 1 < s->capacity; i++) with_coldest += b->least[i];
    return fmaxf(with_coldest, s->mean) * (1 - 2e-6f);
}

/* regret[a][b]: what the cheapest item of a would pay more on b, load prices included. */
static void find_regrets(gb_prices *b, const gb_swap_search *s)
{
    for (uint32_t x = 0; x < s->ranks; x++)
        for (uint32_t y = 0; y < s->ranks; y++) {
            const float *load = s->slot_load + (size_t)x * s->padded;
            const float *stay = s->slot_cost + ((size_t)x * s->ranks + x) * s->padded;
            const float *go = s->slot_cost + ((size_t)x * s->ranks + y) * s->padded;
            float dearer = b->try_load[y] - b->try_load[x], least = FLT_MAX;
            for (uint32_t i = 0; i < s->capacity; i++) {
                float value = go[i] - stay[i] + dearer * load[i];
                least = value < least ? value : least;
            }
            b->regret[(size_t)x * s->ranks + y] = least;
        }
}

/* Slot prices under which nobody wants to leave: mu_a <= mu_b + regret[a][b] for all a, b, by relaxation. They exist where
   the incumbent is optimal for the load prices; otherwise a cycle drives them down, and the caller compares. */
static void settle_slot_prices(gb_prices *b, const gb_swap_search *s)
{
    bool changed = true;
    for (uint32_t pass = 0; changed && pass < s->ranks; pass++) {
        changed = false;
        for (uint32_t x = 0; x < s->ranks; x++)
            for (uint32_t y = 0; y < s->ranks; y++) {
                float price = b->try_slot[y] + b->regret[(size_t)x * s->ranks + y];
                if (x != y && price < b->try_slot[x]) b->try_slot[x] = price, changed = true;
            }
    }
}

/* Onto {v >= 0, sum v <= total}. */
static void project(float *v, uint32_t n, float total)
{
    float sum = 0, sorted[GB_RANKS_MAX], running = 0, shift = 0;
    for (uint32_t i = 0; i < n; i++) sum += fmaxf(v[i], 0);
    if (sum > total) {
        memcpy(sorted, v, n * sizeof *v);
        for (uint32_t i = 1; i < n; i++) {
            float x = sorted[i];
            uint32_t j = i;
            for (; j > 0 && sorted[j - 1] < x; j--) sorted[j] = sorted[j - 1];
            sorted[j] = x;
        }
        for (uint32_t i = 0; i < n; i++) {
            running += sorted[i];
            float t = (running - total) / (float)(i + 1);
            if (sorted[i] > t) shift = t;
        }
    }
    for (uint32_t i = 0; i < n; i++) v[i] = fmaxf(v[i] - shift, 0);
}

void gb_bound_start(gb_prices *b, const gb_swap_search *s)
{
    b->floor = s->imbalance == GB_IMBALANCE_MAX ? least_top(b, s) : 0;
    for (uint32_t r = 0; r < s->ranks; r++)
        b->try_load[r] = s->imbalance == GB_IMBALANCE_MAX ? s->beta / (float)s->ranks + s->price_hint[r]
                                                          : 2 * s->beta * (s->rank_load[r] - s->mean);
    if (s->imbalance == GB_IMBALANCE_MAX) project(b->try_load, s->ranks, s->beta);
    memset(b->try_slot, 0, s->ranks * sizeof *b->try_slot);
    keep(b, s, evaluate(b, s));
    find_regrets(b, s);
    settle_slot_prices(b, s);
    double settled = evaluate(b, s);
    if (settled > b->value) keep(b, s, settled);
}

/* --- improving ------------------------------------------------------------------------------------------------------ */

static const float MEMORY = 0.7f;    /* of the old direction in the new one: damps the zigzag */

/* Adds the subgradient at the point just evaluated; returns the squared length of the direction. */
static double turn(gb_prices *b, const gb_swap_search *s)
{
    double length = 0;
    for (uint32_t r = 0; r < s->ranks; r++) {
        float over_load = b->rank_load[r] - b->floor, over_slots = b->rank_items[r] - (float)s->capacity;
        if (s->imbalance == GB_IMBALANCE_SQUARES)
            over_load = b->rank_load[r] - s->mean - (s->beta > 0 ? b->try_load[r] / (2 * s->beta) : 0);
        b->step_load[r] = MEMORY * b->step_load[r] + over_load;
        b->step_slot[r] = MEMORY * b->step_slot[r] + over_slots;
        length += (double)b->step_load[r] * b->step_load[r] + (double)b->step_slot[r] * b->step_slot[r];
    }
    return length;
}

static void step(gb_prices *b, const gb_swap_search *s, float size)
{
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (s->beta > 0) b->try_load[r] += size * b->step_load[r];
        b->try_slot[r] += size * b->step_slot[r];
    }
    if (s->imbalance == GB_IMBALANCE_MAX) project(b->try_load, s->ranks, s->beta);
}

void gb_bound_improve(gb_prices *b, const gb_swap_search *s, double incumbent, double tolerance, uint32_t steps)
{
    enum { PATIENCE = 8 };
    double size = 1;
    int stalled = 0;
    return_to_best(b, s);
    for (uint32_t i = 0; i < steps && size > 1e-3; i++) {
        double value = evaluate(b, s);
        bool better = value > b->value + 1e-7 * fabs(b->value);
        bool clearly = better && value - b->value > 1e-5 * fabs(value);
        stalled = clearly ? 0 : stalled + 1;
        if (better) keep(b, s, value);
        if (incumbent - b->value <= tolerance * fabs(incumbent)) return;
        if (stalled >= PATIENCE) {
            size *= 0.5;
            stalled = 0;
            return_to_best(b, s);
            value = evaluate(b, s);
        }
        double length = turn(b, s);
        if (length < 1e-12) return;
        step(b, s, (float)(size * fmax(incumbent - value, 0) / length));
    }
}

/* --- proof and rounding --------------------------------------------------------------------------------------------- */

/* Rounding may have left the load prices of the max form a hair above beta in sum, where g would not be a bound. */
static double legal_scale(const gb_prices *b, const gb_swap_search *s, double beta)
{
    double prices = 0;
    if (s->imbalance == GB_IMBALANCE_SQUARES) return 1;
    for (uint32_t r = 0; r < s->ranks; r++) prices += b->load_price[r];
    return prices > beta ? beta / prices : 1;
}

double gb_bound_proof(const gb_prices *b, const gb_swap_search *s, const gb_layer *layer, const gb_place_weights *weights)
{
    double sum = 0, total = 0, empty = DBL_MAX, scale = legal_scale(b, s, weights->beta);
    for (uint32_t e = 0; e < layer->experts; e++) {
        double least = DBL_MAX;
        for (uint32_t r = 0; r < layer->ranks; r++) {
            double value = layer->cost[(size_t)r * layer->experts + e] + scale * b->load_price[r] * layer->load[e] + b->slot_price[r];
            least = value < least ? value : least;
        }
        sum += least;
        total += layer->load[e];
    }
    for (uint32_t r = 0; r < layer->ranks; r++) empty = fmin(empty, b->slot_price[r]);
    if (s->items > s->experts) sum += (s->items - s->experts) * empty;
    return sum + worth(s, b->load_price, b->slot_price, scale, weights->beta, total / layer->ranks, b->floor);
}

static float priced(const gb_prices *b, const gb_swap_search *s, uint32_t item, uint32_t rank)
{
    return s->cost[(size_t)rank * s->padded_items + item] + b->load_price[rank] * s->load[item] + b->slot_price[rank];
}

/* The cheapest rank with room for an item, and what going there loses. */
static float cheapest_with_room(const gb_prices *b, const gb_swap_search *s, uint32_t item, int32_t here, const uint32_t *used, int32_t *rank)
{
    float least = FLT_MAX;
    *rank = -1;
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (used[r] >= s->capacity) continue;
        float price = priced(b, s, item, r);
        if (*rank < 0 || price < least) least = price, *rank = (int32_t)r;
    }
    return least - priced(b, s, item, (uint32_t)here);
}

void gb_bound_round(gb_prices *b, const gb_swap_search *s, int32_t *rank_of)
{
    uint32_t used[GB_RANKS_MAX] = {0};
    float *loss = b->least;
    int32_t *target = b->try_choice;
    for (uint32_t e = 0; e < s->experts; e++) {
        rank_of[e] = b->choice[e];
        used[rank_of[e]]++;
    }
    for (uint32_t e = 0; e < s->experts; e++)
        if (used[rank_of[e]] > s->capacity) loss[e] = cheapest_with_room(b, s, e, rank_of[e], used, &target[e]);
    for (;;) {
        uint32_t item = UINT32_MAX;
        for (uint32_t e = 0; e < s->experts; e++)
            if (used[rank_of[e]] > s->capacity && (item == UINT32_MAX || loss[e] < loss[item])) item = e;
        if (item == UINT32_MAX) return;
        uint32_t filled = (uint32_t)target[item];
        used[rank_of[item]]--;
        rank_of[item] = (int32_t)filled;
        if (++used[filled] < s->capacity) continue;
        for (uint32_t e = 0; e < s->experts; e++)
            if (used[rank_of[e]] > s->capacity && target[e] == (int32_t)filled)
                loss[e] = cheapest_with_room(b, s, e, rank_of[e], used, &target[e]);
    }
}
