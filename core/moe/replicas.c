#include "core/moe/replicas.h"

#include <math.h>
#include <string.h>

#include "core/base/assert.h"
#include "core/moe/route.h"

static const double ENOUGH = 1e-4;    /* gains and traffic below this are nothing, in mean experts */

int gb_replicas_init(gb_replicas *x, gb_arena *arena, uint32_t sources, uint32_t experts, uint32_t ranks, uint32_t slots_per_rank)
{
    size_t pairs = (size_t)experts * ranks, slots = (size_t)ranks * slots_per_rank;
    GB_ASSERT(slots >= experts && slots_per_rank <= experts);
    *x = (gb_replicas){.sources = sources, .experts = experts, .ranks = ranks, .slots_per_rank = slots_per_rank,
                       .amount = GB_ARENA_NEW(arena, double, sources * pairs), .best_amount = GB_ARENA_NEW(arena, double, sources * pairs),
                       .other_amount = GB_ARENA_NEW(arena, double, sources * pairs),
                       .held = GB_ARENA_NEW(arena, uint8_t, pairs), .best_held = GB_ARENA_NEW(arena, uint8_t, pairs),
                       .before = GB_ARENA_NEW(arena, uint8_t, pairs), .used = GB_ARENA_NEW(arena, uint32_t, ranks),
                       .rank_load = GB_ARENA_NEW(arena, double, ranks), .gain = GB_ARENA_NEW(arena, double, pairs),
                       .changed = GB_ARENA_NEW(arena, uint8_t, ranks),
                       .items = {(uint32_t)slots, ranks, GB_ARENA_NEW(arena, double, ranks * slots), GB_ARENA_NEW(arena, double, slots)},
                       .item_expert = GB_ARENA_NEW(arena, int32_t, slots), .item_rank = GB_ARENA_NEW(arena, int32_t, slots)};
    bool whole = x->amount && x->best_amount && x->other_amount && x->held && x->best_held && x->before && x->used && x->rank_load && x->gain && x->changed &&
                 x->items.cost && x->items.load && x->item_expert && x->item_rank;
    return whole ? gb_swap_init(&x->search, arena, (uint32_t)slots, ranks, slots_per_rank) : GB_ENOMEM;
}

static double *amounts_of(const gb_replicas *x, uint32_t source, uint32_t expert)
{
    return x->amount + ((size_t)source * x->experts + expert) * x->ranks;
}

static double link(const gb_replicas *x, uint32_t source, uint32_t rank) { return x->links->cost[(size_t)source * x->ranks + rank]; }

/* What should go from rank h to rank r of one source's traffic; none when that does not pay. */
static double best_shift(const gb_replicas *x, double saved_link, double load_h, double load_r, double there)
{
    double wish = x->beta > 0 ? (load_h - load_r) / 2 + saved_link / (4 * x->beta) : saved_link > 0 ? there : 0;
    return fmin(fmax(wish, 0), there);
}

/* --- state -------------------------------------------------------------------------------------------------------------- */

static double objective(const gb_replicas *x)
{
    double comm = 0, squares = 0, mean = 0, copies = 0;
    for (uint32_t r = 0; r < x->ranks; r++) mean += x->rank_load[r] / x->ranks;
    for (uint32_t r = 0; r < x->ranks; r++) squares += (x->rank_load[r] - mean) * (x->rank_load[r] - mean);
    for (uint32_t s = 0; s < x->sources; s++)
        for (uint32_t e = 0; e < x->experts; e++)
            for (uint32_t r = 0; r < x->ranks; r++) comm += amounts_of(x, s, e)[r] * link(x, s, r);
    for (size_t i = 0; i < (size_t)x->experts * x->ranks; i++) copies += x->held[i] && !x->before[i];
    return x->alpha * comm + x->beta * squares + x->gamma * copies;
}

static void keep_best(gb_replicas *x, double *best)
{
    size_t pairs = (size_t)x->experts * x->ranks;
    double now = objective(x);
    if (!(now < *best)) return;
    *best = now;
    memcpy(x->best_amount, x->amount, x->sources * pairs * sizeof *x->amount);
    memcpy(x->best_held, x->held, pairs);
}

static void start_at_home(gb_replicas *x, const double *flow, const int32_t *home)
{
    double total = 0;
    size_t pairs = (size_t)x->experts * x->ranks;
    for (size_t i = 0; i < (size_t)x->sources * x->experts; i++) total += flow[i];
    double per_mean = total > 0 ? x->experts / total : 0;
    memset(x->amount, 0, x->sources * pairs * sizeof *x->amount);
    memset(x->held, 0, pairs);
    memset(x->used, 0, x->ranks * sizeof *x->used);
    memset(x->rank_load, 0, x->ranks * sizeof *x->rank_load);
    for (uint32_t e = 0; e < x->experts; e++) {
        uint32_t r = (uint32_t)home[e];
        x->held[(size_t)e * x->ranks + r] = 1;
        x->used[r]++;
        for (uint32_t s = 0; s < x->sources; s++) {
            double amount = flow[(size_t)s * x->experts + e] * per_mean;
            amounts_of(x, s, e)[r] = amount;
            x->rank_load[r] += amount;
        }
    }
}

/* --- adding copies ------------------------------------------------------------------------------------------------------- */

/* Gain of a copy of e on r, or (take) its traffic. Rank loads go along while holders are asked in turn. */
static double add_copy(gb_replicas *x, uint32_t e, uint32_t r, bool take)
{
    double gain = 0, load_r = x->rank_load[r];
    for (uint32_t h = 0; h < x->ranks; h++) {
        if (h == r || !x->held[(size_t)e * x->ranks + h]) continue;
        double load_h = x->rank_load[h];
        for (uint32_t s = 0; s < x->sources; s++) {
            double *amount = amounts_of(x, s, e), saved = x->alpha * (link(x, s, h) - link(x, s, r));
            double d = best_shift(x, saved, load_h, load_r, amount[h]);
            gain += saved * d + 2 * x->beta * d * (load_h - load_r - d);
            load_h -= d;
            load_r += d;
            if (take) amount[h] -= d, amount[r] += d;
        }
        if (take && load_h != x->rank_load[h]) x->rank_load[h] = load_h, x->changed[h] = 1;
    }
    if (take) x->rank_load[r] = load_r, x->changed[r] = 1;
    return gain - (x->before[(size_t)e * x->ranks + r] ? 0 : x->gamma);
}

static bool served_by_changed(const gb_replicas *x, uint32_t e)
{
    for (uint32_t r = 0; r < x->ranks; r++)
        if (x->changed[r] && x->held[(size_t)e * x->ranks + r]) return true;
    return false;
}

/* Only what the last change touched; everything when all ranks are marked. */
static void refresh_gains(gb_replicas *x)
{
    for (uint32_t e = 0; e < x->experts; e++) {
        bool all = served_by_changed(x, e);
        for (uint32_t r = 0; r < x->ranks; r++)
            if (all || x->changed[r]) x->gain[(size_t)e * x->ranks + r] = x->held[(size_t)e * x->ranks + r] ? 0 : add_copy(x, e, r, false);
    }
    memset(x->changed, 0, x->ranks);
}

static bool best_copy(const gb_replicas *x, uint32_t *expert, uint32_t *rank)
{
    double most = ENOUGH;
    for (uint32_t e = 0; e < x->experts; e++)
        for (uint32_t r = 0; r < x->ranks; r++) {
            size_t i = (size_t)e * x->ranks + r;
            if (x->used[r] < x->slots_per_rank && !x->held[i] && x->gain[i] > most) most = x->gain[i], *expert = e, *rank = r;
        }
    return most > ENOUGH;
}

/* --- evening out --------------------------------------------------------------------------------------------------------- */

static uint32_t copies_of(const gb_replicas *x, uint32_t e)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < x->ranks; r++) n += x->held[(size_t)e * x->ranks + r];
    return n;
}

static double shift_between(gb_replicas *x, uint32_t e, uint32_t s, uint32_t a, uint32_t b)
{
    double *amount = amounts_of(x, s, e), saved = x->alpha * (link(x, s, a) - link(x, s, b));
    double d = best_shift(x, saved, x->rank_load[a], x->rank_load[b], amount[a]);
    amount[a] -= d;
    amount[b] += d;
    x->rank_load[a] -= d;
    x->rank_load[b] += d;
    return d;
}

/* Exact line searches between pairs of copies until nothing flows. */
static void even_out(gb_replicas *x, uint32_t sweeps)
{
    double moved = INFINITY;
    for (uint32_t i = 0; i < sweeps && moved > ENOUGH; i++) {
        moved = 0;
        for (uint32_t e = 0; e < x->experts; e++) {
            const uint8_t *held = x->held + (size_t)e * x->ranks;
            if (copies_of(x, e) < 2) continue;
            for (uint32_t s = 0; s < x->sources; s++)
                for (uint32_t a = 0; a < x->ranks; a++)
                    for (uint32_t b = 0; b < x->ranks && held[a]; b++)
                        if (b != a && held[b]) moved += shift_between(x, e, s, a, b);
        }
    }
    memset(x->changed, 1, x->ranks);
}

static void add_copies(gb_replicas *x)
{
    uint32_t e = 0, r = 0, added = 0;
    memset(x->changed, 1, x->ranks);
    for (refresh_gains(x); best_copy(x, &e, &r); refresh_gains(x)) {
        add_copy(x, e, r, true);
        x->held[(size_t)e * x->ranks + r] = 1;
        x->used[r]++;
        if (++added % 4 == 0) even_out(x, 2);
    }
    even_out(x, 30);
}

static void drop_idle_copies(gb_replicas *x)
{
    for (uint32_t e = 0; e < x->experts; e++)
        for (uint32_t r = 0; r < x->ranks; r++) {
            uint8_t *held = &x->held[(size_t)e * x->ranks + r];
            double served = 0;
            for (uint32_t s = 0; s < x->sources; s++) served += amounts_of(x, s, e)[r];
            if (*held && served < ENOUGH && copies_of(x, e) > 1) {
                for (uint32_t s = 0; s < x->sources; s++) amounts_of(x, s, e)[r] = 0;
                *held = 0;
                x->used[r]--;
            }
        }
}

/* --- moving copies --------------------------------------------------------------------------------------------------------- */

static void list_items(gb_replicas *x)
{
    uint32_t n = 0, slots = x->items.experts;
    memset(x->items.cost, 0, (size_t)x->ranks * slots * sizeof *x->items.cost);
    memset(x->items.load, 0, slots * sizeof *x->items.load);
    for (uint32_t h = 0; h < x->ranks; h++) {
        for (uint32_t e = 0; e < x->experts; e++) {
            if (!x->held[(size_t)e * x->ranks + h]) continue;
            for (uint32_t s = 0; s < x->sources; s++) {
                double amount = amounts_of(x, s, e)[h];
                x->items.load[n] += amount;
                for (uint32_t r = 0; r < x->ranks; r++) x->items.cost[(size_t)r * slots + n] += x->alpha * amount * link(x, s, r);
            }
            for (uint32_t r = 0; r < x->ranks; r++)
                if (!x->before[(size_t)e * x->ranks + r]) x->items.cost[(size_t)r * slots + n] += x->gamma;
            x->item_expert[n] = (int32_t)e;
            x->item_rank[n++] = (int32_t)h;
        }
        for (uint32_t i = x->used[h]; i < x->slots_per_rank; i++) {
            x->item_expert[n] = -1;
            x->item_rank[n++] = (int32_t)h;
        }
    }
}

/* Copies of one expert that meet on a rank become one. */
static void carry_over(gb_replicas *x, const int32_t *rank_of)
{
    size_t pairs = (size_t)x->experts * x->ranks;
    double *old = x->amount;
    x->amount = x->other_amount;
    x->other_amount = old;
    memset(x->amount, 0, x->sources * pairs * sizeof *x->amount);
    memset(x->held, 0, pairs);
    memset(x->used, 0, x->ranks * sizeof *x->used);
    memset(x->rank_load, 0, x->ranks * sizeof *x->rank_load);
    for (uint32_t i = 0; i < x->items.experts; i++) {
        if (x->item_expert[i] < 0) continue;
        uint32_t e = (uint32_t)x->item_expert[i], from = (uint32_t)x->item_rank[i], to = (uint32_t)rank_of[i];
        for (uint32_t s = 0; s < x->sources; s++) {
            double moved = old[((size_t)s * x->experts + e) * x->ranks + from];
            amounts_of(x, s, e)[to] += moved;
            x->rank_load[to] += moved;
        }
        x->used[to] += !x->held[(size_t)e * x->ranks + to];
        x->held[(size_t)e * x->ranks + to] = 1;
    }
}

static void move_copies(gb_replicas *x)
{
    gb_place_weights squares = {x->alpha, x->beta, x->gamma, GB_IMBALANCE_SQUARES};
    list_items(x);
    gb_swap_set_layer(&x->search, &x->items, &squares, x->item_rank);
    gb_swap_load(&x->search, x->item_rank);
    gb_swap_descend(&x->search);
    carry_over(x, x->search.rank_of);
}

/* --- the layer ------------------------------------------------------------------------------------------------------------- */

static void note_before(gb_replicas *x, const gb_placement *before, uint32_t layer)
{
    size_t pairs = (size_t)x->experts * x->ranks;
    memset(x->before, before ? 0 : 1, pairs);
    if (!before) return;
    const int32_t *slots = gb_placement_layer_slots(before, layer);
    for (uint32_t i = 0; i < gb_placement_slots(before); i++)
        if (slots[i] >= 0) x->before[(size_t)slots[i] * x->ranks + i / before->slots_per_rank] = 1;
}

static void fill_slots(const gb_replicas *x, gb_placement *out, uint32_t layer)
{
    int32_t *slots = gb_placement_layer_slots(out, layer);
    for (uint32_t r = 0; r < x->ranks; r++) {
        uint32_t n = 0;
        for (uint32_t e = 0; e < x->experts; e++)
            if (x->best_held[(size_t)e * x->ranks + r]) slots[r * x->slots_per_rank + n++] = (int32_t)e;
        while (n < x->slots_per_rank) slots[r * x->slots_per_rank + n++] = -1;
    }
}

void gb_replicas_place(gb_replicas *x, gb_placement *out, uint32_t layer, const gb_place_weights *weights, const gb_links *links,
                       const double *flow, const int32_t *home, const gb_placement *before)
{
    enum { ROUNDS = 3 };
    double best = INFINITY, mean = (double)x->experts / x->ranks;
    x->links = links;
    x->alpha = weights->alpha;
    x->beta = weights->imbalance == GB_IMBALANCE_SQUARES ? weights->beta : 1.5 * weights->beta / mean;
    x->gamma = weights->gamma;
    note_before(x, before, layer);
    start_at_home(x, flow, home);
    add_copies(x);
    keep_best(x, &best);
    for (int i = 0; i < ROUNDS; i++) {
        double last = best;
        move_copies(x);
        even_out(x, 30);
        drop_idle_copies(x);
        add_copies(x);
        keep_best(x, &best);
        if (!(best < last)) break;
    }
    fill_slots(x, out, layer);
    gb_route_amounts(out, layer, links, x->best_amount);
}
