#include "core/moe/nodes.h"

#include <math.h>
#include <string.h>

#include "core/base/assert.h"

int gb_nodes_init(gb_nodes *n, gb_arena *arena, uint32_t experts, uint32_t ranks, uint32_t groups, uint32_t n_nodes, gb_error *err)
{
    const struct { const char *what, *into; uint32_t n, parts; } divisions[] = {
        {"experts", "ranks", experts, ranks}, {"experts", "groups", experts, groups}, {"groups", "nodes", groups, n_nodes}, {"ranks", "nodes", ranks, n_nodes}};
    for (size_t i = 0; i < sizeof divisions / sizeof *divisions; i++)
        if (divisions[i].parts == 0 || divisions[i].n % divisions[i].parts != 0)
            return gb_fail(err, GB_EINVAL, "hierarchy: %u %s cannot be split evenly over %u %s", divisions[i].n, divisions[i].what, divisions[i].parts,
                           divisions[i].into);
    uint32_t here = experts / n_nodes, ranks_here = ranks / n_nodes;
    *n = (gb_nodes){.experts = experts, .ranks = ranks, .groups = groups, .nodes = n_nodes,
                    .groups_layer = {groups, n_nodes, GB_ARENA_NEW(arena, double, (size_t)groups * n_nodes), GB_ARENA_NEW(arena, double, groups)},
                    .node_layer = {here, ranks_here, GB_ARENA_NEW(arena, double, (size_t)here * ranks_here), GB_ARENA_NEW(arena, double, here)},
                    .node_of = GB_ARENA_NEW(arena, int32_t, groups), .start = GB_ARENA_NEW(arena, int32_t, here),
                    .expert = GB_ARENA_NEW(arena, int32_t, here), .best = GB_ARENA_NEW(arena, int32_t, experts)};
    bool whole = n->groups_layer.cost && n->groups_layer.load && n->node_layer.cost && n->node_layer.load && n->node_of && n->start && n->expert && n->best;
    whole = whole && gb_swap_init(&n->outer, arena, groups, n_nodes, groups / n_nodes) == GB_OK &&
            gb_swap_init(&n->inner, arena, here, ranks_here, experts / ranks) == GB_OK;
    return whole ? GB_OK : gb_fail(err, GB_ENOMEM, "out of memory for a hierarchy of %u groups on %u nodes", groups, n_nodes);
}

static uint32_t group_of(const gb_nodes *n, uint32_t expert) { return expert / (n->experts / n->groups); }
static uint32_t node_of_rank(const gb_nodes *n, int32_t rank) { return (uint32_t)rank / (n->ranks / n->nodes); }

bool gb_nodes_hold(const gb_nodes *n, const int32_t *rank_of)
{
    uint32_t size = n->experts / n->groups;
    for (uint32_t e = 0; e < n->experts; e++)
        if (node_of_rank(n, rank_of[e]) != node_of_rank(n, rank_of[e - e % size])) return false;
    return true;
}

/* --- groups to nodes ----------------------------------------------------------------------------------------------------------- */

/* A group costs on a node what its experts cost on its cheapest ranks there: the inner level will find out. */
static void fill_groups(gb_nodes *n, const gb_layer *layer)
{
    uint32_t ranks_here = n->ranks / n->nodes;
    memset(n->groups_layer.load, 0, n->groups * sizeof(double));
    memset(n->groups_layer.cost, 0, (size_t)n->groups * n->nodes * sizeof(double));
    for (uint32_t e = 0; e < n->experts; e++) {
        uint32_t g = group_of(n, e);
        n->groups_layer.load[g] += layer->load[e];
        for (uint32_t node = 0; node < n->nodes; node++) {
            double least = INFINITY;
            for (uint32_t r = node * ranks_here; r < (node + 1) * ranks_here; r++) least = fmin(least, layer->cost[(size_t)r * n->experts + e]);
            n->groups_layer.cost[(size_t)node * n->groups + g] += least;
        }
    }
}

/* Each group starts on the node where most of it is, while there is room; the rest fill up. */
static void start_groups(gb_nodes *n, const int32_t *home)
{
    uint32_t held[GB_RANKS_MAX] = {0}, room = n->groups / n->nodes, size = n->experts / n->groups;
    for (uint32_t g = 0; g < n->groups; g++) {
        uint32_t here[GB_RANKS_MAX] = {0}, best = UINT32_MAX;
        for (uint32_t e = g * size; e < (g + 1) * size; e++) here[node_of_rank(n, home[e])]++;
        for (uint32_t node = 0; node < n->nodes; node++)
            if (held[node] < room && (best == UINT32_MAX || here[node] > here[best])) best = node;
        n->node_of[g] = (int32_t)best;
        held[best]++;
    }
}

static void place_groups(gb_nodes *n, const gb_layer *layer, const gb_place_weights *weights, const int32_t *home)
{
    gb_place_weights outer = *weights;
    outer.beta = weights->beta * n->nodes / n->ranks;    /* a node's load is spread over its ranks */
    fill_groups(n, layer);
    start_groups(n, home);
    gb_swap_set_layer(&n->outer, &n->groups_layer, &outer, n->node_of);
    gb_swap_load(&n->outer, n->node_of);
    gb_swap_continue(&n->outer);
    memcpy(n->node_of, n->outer.rank_of, n->groups * sizeof *n->node_of);
}

/* --- experts to the ranks of a node ---------------------------------------------------------------------------------------------- */

/* Experts that are on the node keep their rank while it has room. */
static void start_node(gb_nodes *n, const int32_t *home, uint32_t node)
{
    uint32_t ranks_here = n->ranks / n->nodes, room = n->experts / n->ranks, held[GB_RANKS_MAX] = {0};
    for (uint32_t i = 0; i < n->node_layer.experts; i++) {
        int32_t rank = home[n->expert[i]] - (int32_t)(node * ranks_here);
        bool stays = rank >= 0 && rank < (int32_t)ranks_here && held[rank] < room;
        n->start[i] = stays ? rank : -1;
        if (stays) held[rank]++;
    }
    for (uint32_t i = 0, r = 0; i < n->node_layer.experts; i++) {
        if (n->start[i] >= 0) continue;
        while (held[r] == room) r++;
        n->start[i] = (int32_t)r;
        held[r]++;
    }
}

static void place_node(gb_nodes *n, const gb_layer *layer, const gb_place_weights *weights, const int32_t *home, uint32_t node)
{
    uint32_t ranks_here = n->ranks / n->nodes, here = n->node_layer.experts, k = 0;
    for (uint32_t e = 0; e < n->experts; e++)
        if (n->node_of[group_of(n, e)] == (int32_t)node) n->expert[k++] = (int32_t)e;
    GB_ASSERT(k == here);
    for (uint32_t i = 0; i < here; i++) {
        n->node_layer.load[i] = layer->load[n->expert[i]];
        for (uint32_t r = 0; r < ranks_here; r++)
            n->node_layer.cost[(size_t)r * here + i] = layer->cost[(size_t)(node * ranks_here + r) * n->experts + (uint32_t)n->expert[i]];
    }
    start_node(n, home, node);
    gb_swap_set_layer(&n->inner, &n->node_layer, weights, n->start);
    gb_swap_load(&n->inner, n->start);
    gb_swap_continue(&n->inner);
    for (uint32_t i = 0; i < here; i++) n->best[n->expert[i]] = (int32_t)(node * ranks_here) + n->inner.rank_of[i];
}

void gb_nodes_place(gb_nodes *n, int32_t *rank_of, const gb_layer *layer, const gb_place_weights *weights, const int32_t *home)
{
    GB_ASSERT(layer->experts == n->experts && layer->ranks == n->ranks);
    place_groups(n, layer, weights, home);
    for (uint32_t node = 0; node < n->nodes; node++) place_node(n, layer, weights, home, node);
    bool stay = gb_nodes_hold(n, home) && gb_score_objective(layer, weights, home) <= gb_score_objective(layer, weights, n->best);
    memcpy(rank_of, stay ? home : n->best, n->experts * sizeof *rank_of);
}
