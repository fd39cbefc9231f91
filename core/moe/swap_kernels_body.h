/* The body of swap_kernels.c and swap_kernels_avx2.c; the compiler options of the including file choose the instructions. */
#include "core/moe/swap_simd.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Index of the first x[i] equal to value; value is one of them. */
static int32_t index_of(const float *x, float value)
{
    int32_t i = 0;
    while (x[i] != value) i++;
    return i;
}

/* --- squares ------------------------------------------------------------------------------------------------------ */

/* least over j of q[j] - 4 beta u_j u_i, for `vectors` * 8 slots i at once, kept in registers. */
static ALWAYS_INLINE void squares_chunk(const gb_pair *pair, float four_beta, uint32_t at, const int vectors)
{
    gb_f8 least[4], load[4];
    for (int v = 0; v < vectors; v++) {
        least[v] = f8_all(3e38f);
        load[v] = f8_mul(f8_all(four_beta), f8_load(pair->load_a + at + GB_LANES * v));
    }
    for (uint32_t j = 0; j < pair->n; j++) {
        gb_f8 q = f8_all(pair->q[j]), u = f8_all(pair->load_b[j]);
        for (int v = 0; v < vectors; v++) least[v] = f8_min(f8_sub(q, f8_mul(load[v], u)), least[v]);
    }
    for (int v = 0; v < vectors; v++) {
        float *p = pair->p + at + GB_LANES * v;
        f8_store(p, f8_add(least[v], f8_load(p)));
    }
}

static ALWAYS_INLINE float least_of(const float *x, uint32_t padded)
{
    gb_f8 least = f8_load(x);
    for (uint32_t i = GB_LANES; i < padded; i += GB_LANES) least = f8_min(f8_load(x + i), least);
    return f8_least(least);
}

/* go - stay + 2 beta u (u + difference) */
static ALWAYS_INLINE void squares_ends(float *out, const float *stay, const float *go, const float *load, float two_beta,
                                       float difference, uint32_t padded)
{
    for (uint32_t i = 0; i < padded; i += GB_LANES) {
        gb_f8 u = f8_load(load + i);
        gb_f8 bend = f8_mul(f8_mul(f8_all(two_beta), u), f8_add(u, f8_all(difference)));
        f8_store(out + i, f8_add(f8_sub(f8_load(go + i), f8_load(stay + i)), bend));
    }
}

static gb_swap squares(const gb_pair *pair, float beta, float load_a, float load_b)
{
    float difference = load_b - load_a, four_beta = 4 * beta;
    squares_ends(pair->p, pair->stay_a, pair->go_a, pair->load_a, 2 * beta, difference, pair->padded);
    squares_ends(pair->q, pair->stay_b, pair->go_b, pair->load_b, 2 * beta, -difference, pair->padded);
    uint32_t at = 0;
    for (; at + 4 * GB_LANES <= pair->padded; at += 4 * GB_LANES) squares_chunk(pair, four_beta, at, 4);
    for (; at < pair->padded; at += GB_LANES) squares_chunk(pair, four_beta, at, 1);

    float delta = least_of(pair->p, pair->padded);
    if (delta > pair->enough) return (gb_swap){0, -1, -1};
    int32_t i = index_of(pair->p, delta), best = 0;
    float u = four_beta * pair->load_a[i], least = 3e38f;
    for (uint32_t j = 0; j < pair->n; j++) {
        float value = pair->q[j] - u * pair->load_b[j];
        if (value < least) least = value, best = (int32_t)j;
    }
    return (gb_swap){delta, i, best};
}

/* --- max ---------------------------------------------------------------------------------------------------------- */

/* least over j of q[j] + max(W_a + u_j - u_i, W_b - u_j + u_i, others), everything already times beta. */
static ALWAYS_INLINE void most_chunk(const gb_pair *pair, float beta, float a, float b, float others, uint32_t at, const int vectors)
{
    gb_f8 least[4], load[4];
    for (int v = 0; v < vectors; v++) {
        least[v] = f8_all(3e38f);
        load[v] = f8_mul(f8_all(beta), f8_load(pair->load_a + at + GB_LANES * v));
    }
    for (uint32_t j = 0; j < pair->n; j++) {
        float q = pair->q[j], u = beta * pair->load_b[j];
        gb_f8 on_a = f8_all(q + (a + u)), on_b = f8_all(q + (b - u)), floor = f8_all(q + others);
        for (int v = 0; v < vectors; v++) {
            gb_f8 most = f8_max(f8_sub(on_a, load[v]), f8_add(on_b, load[v]));
            least[v] = f8_min(f8_max(most, floor), least[v]);
        }
    }
    for (int v = 0; v < vectors; v++) {
        float *p = pair->p + at + GB_LANES * v;
        f8_store(p, f8_add(least[v], f8_load(p)));
    }
}

static ALWAYS_INLINE void most_ends(float *out, const float *stay, const float *go, uint32_t padded)
{
    for (uint32_t i = 0; i < padded; i += GB_LANES) f8_store(out + i, f8_sub(f8_load(go + i), f8_load(stay + i)));
}

static gb_swap most(const gb_pair *pair, float beta, float load_a, float load_b, float others, float top)
{
    float a = beta * load_a, b = beta * load_b, floor = beta * others;
    most_ends(pair->p, pair->stay_a, pair->go_a, pair->padded);
    most_ends(pair->q, pair->stay_b, pair->go_b, pair->padded);
    uint32_t at = 0;
    for (; at + 4 * GB_LANES <= pair->padded; at += 4 * GB_LANES) most_chunk(pair, beta, a, b, floor, at, 4);
    for (; at < pair->padded; at += GB_LANES) most_chunk(pair, beta, a, b, floor, at, 1);

    float total = least_of(pair->p, pair->padded), delta = total - beta * top;
    if (delta > pair->enough) return (gb_swap){0, -1, -1};
    int32_t i = index_of(pair->p, total), best = 0;
    float ui = beta * pair->load_a[i], least = 3e38f;
    for (uint32_t j = 0; j < pair->n; j++) {
        float q = pair->q[j], u = beta * pair->load_b[j];
        float on_a = q + (a + u) - ui, on_b = q + (b - u) + ui, value = on_a > on_b ? on_a : on_b;
        if (value < q + floor) value = q + floor;
        if (value < least) least = value, best = (int32_t)j;
    }
    return (gb_swap){delta, i, best};
}

/* --- dual --------------------------------------------------------------------------------------------------------- */

/* Two vectors at a time, so that one's compare and blend overlap the other's. */
static ALWAYS_INLINE void cheapest_ranks(const gb_dual_point *d)
{
    for (uint32_t e = 0; e < d->padded; e += 2 * GB_LANES) {
        gb_f8 load[2], least[2];
        gb_i8 choice[2];
        for (int v = 0; v < 2; v++) {
            load[v] = f8_load(d->load + e + GB_LANES * v);
            least[v] = f8_all(3e38f);
            choice[v] = i8_all(0);
        }
        for (uint32_t r = 0; r < d->ranks; r++) {
            const float *cost = d->cost + (uint64_t)r * d->padded + e;
            gb_f8 load_price = f8_all(d->load_price[r]), slot_price = f8_all(d->slot_price[r]);
            gb_i8 rank = i8_all((int32_t)r);
            for (int v = 0; v < 2; v++) {
                gb_f8 price = f8_add(f8_mul(load_price, load[v]), slot_price);
                gb_f8 value = f8_add(f8_load(cost + GB_LANES * v), price);
                choice[v] = i8_choose(f8_less(value, least[v]), rank, choice[v]);
                least[v] = f8_min(value, least[v]);
            }
        }
        for (int v = 0; v < 2; v++) {
            f8_store(d->least + e + GB_LANES * v, least[v]);
            i8_store(d->choice + e + GB_LANES * v, choice[v]);
        }
    }
}

static ALWAYS_INLINE void tally_by_rank(const gb_dual_point *d)
{
    for (uint32_t r = 0; r < d->ranks; r++) {
        gb_f8 load[2] = {f8_all(0), f8_all(0)}, items[2] = {f8_all(0), f8_all(0)};
        gb_i8 rank = i8_all((int32_t)r);
        for (uint32_t e = 0; e < d->padded; e += 2 * GB_LANES)
            for (int v = 0; v < 2; v++) {
                uint32_t at = e + GB_LANES * (uint32_t)v;
                gb_i8 here = i8_equal(i8_load(d->choice + at), rank);
                load[v] = f8_add(load[v], f8_keep(f8_load(d->load + at), here));
                items[v] = f8_add(items[v], f8_keep(f8_load(d->one + at), here));
            }
        d->rank_load[r] = f8_sum(f8_add(load[0], load[1]));
        d->rank_items[r] = f8_sum(f8_add(items[0], items[1]));
    }
}

static void tally_by_item(const gb_dual_point *d)
{
    for (uint32_t r = 0; r < d->ranks; r++) d->rank_load[r] = d->rank_items[r] = 0;
    for (uint32_t e = 0; e < d->n; e++) {
        d->rank_load[d->choice[e]] += d->load[e];
        d->rank_items[d->choice[e]] += 1;
    }
}

static float dual(const gb_dual_point *d)
{
    enum { FEW_RANKS = 8 };    /* up to here, a pass per rank is cheaper than scattered additions */
    cheapest_ranks(d);
    if (d->ranks <= FEW_RANKS) tally_by_rank(d);
    else tally_by_item(d);
    gb_f8 sum = f8_all(0);
    for (uint32_t e = 0; e < d->padded; e += GB_LANES) sum = f8_add(sum, f8_mul(f8_load(d->least + e), f8_load(d->one + e)));
    return f8_sum(sum);
}
