#include "core/moe/greedy.h"

#include <math.h>

#include "core/base/assert.h"

void gb_greedy_order(int32_t *order, const double *load, uint32_t experts)
{
    static const uint32_t gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};
    for (uint32_t i = 0; i < experts; i++) order[i] = (int32_t)i;
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++)
        for (uint32_t gap = gaps[g], i = gap; i < experts; i++) {
            int32_t e = order[i];
            uint32_t j = i;
            for (; j >= gap; j -= gap) {
                int32_t f = order[j - gap];
                if (load[f] > load[e] || (load[f] == load[e] && f < e)) break;
                order[j] = f;
            }
            order[j] = e;
        }
}

static void built_in_score(const gb_rank_table *t, const gb_layer *layer, const gb_place_weights *weights, uint32_t expert)
{
    double u = layer->load[expert], beta = weights->beta, most = 0;
    for (uint32_t r = 0; r < t->n; r++) most = t->load[r] > most ? t->load[r] : most;
    for (uint32_t r = 0; r < t->n; r++) {
        double cost = layer->cost[(size_t)r * layer->experts + expert];
        if (weights->imbalance == GB_IMBALANCE_SQUARES) t->score[r] = cost + beta * u * (2 * t->load[r] + u);
        else t->score[r] = cost + beta * (fmax(most, t->load[r] + u) - most);
    }
}

static bool finite_scores(const gb_rank_table *t)
{
    for (uint32_t r = 0; r < t->n; r++)
        if (!isfinite(t->score[r])) return false;
    return true;
}

static void score_ranks(gb_greedy *greedy, const gb_rank_table *t, const gb_layer *layer, const gb_place_weights *weights, uint32_t layer_index,
                        uint32_t expert)
{
    int rc = greedy->score ? greedy->score(greedy->self, layer_index, expert, t) : GB_POLICY_NIL;
    if (rc == 0 && finite_scores(t)) return;
    if (rc != GB_POLICY_NIL) greedy->refused++;
    built_in_score(t, layer, weights, expert);
}

static bool preferred(const gb_rank_table *t, uint32_t r, uint32_t best, int32_t home)
{
    if (t->score[r] != t->score[best]) return t->score[r] < t->score[best];
    if ((home == (int32_t)r) != (home == (int32_t)best)) return home == (int32_t)r;
    return t->free[r] > t->free[best];
}

void gb_greedy_place(gb_greedy *greedy, int32_t *rank_of, const gb_layer *layer, const gb_place_weights *weights, const int32_t *home,
                     uint32_t capacity, uint32_t layer_index)
{
    int32_t order[GB_EXPERTS_MAX];
    double load[GB_RANKS_MAX], free_slots[GB_RANKS_MAX], score[GB_RANKS_MAX];
    gb_rank_table t = {.n = layer->ranks, .load = load, .free = free_slots, .score = score};
    GB_ASSERT(layer->experts <= GB_EXPERTS_MAX && layer->ranks <= GB_RANKS_MAX && (uint64_t)capacity * layer->ranks >= layer->experts);
    for (uint32_t r = 0; r < t.n; r++) load[r] = 0, free_slots[r] = capacity;
    gb_greedy_order(order, layer->load, layer->experts);
    for (uint32_t i = 0; i < layer->experts; i++) {
        uint32_t e = (uint32_t)order[i], best = UINT32_MAX;
        t.expert_load = layer->load[e];
        t.home = home[e];
        if (greedy->traffic) t.traffic = greedy->traffic + (size_t)e * t.n;
        score_ranks(greedy, &t, layer, weights, layer_index, e);
        for (uint32_t r = 0; r < t.n; r++)
            if (free_slots[r] > 0 && (best == UINT32_MAX || preferred(&t, r, best, home[e]))) best = r;
        rank_of[e] = (int32_t)best;
        load[best] += layer->load[e];
        free_slots[best]--;
    }
}
