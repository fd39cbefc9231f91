#include "core/moe/plan.h"

#include <string.h>

#include "core/base/assert.h"
#include "core/flow/ids.h"

static bool same_shape(const gb_placement *a, const gb_placement *b)
{
    return a->layers == b->layers && a->sources == b->sources && a->experts == b->experts && a->ranks == b->ranks &&
           a->slots_per_rank == b->slots_per_rank;
}

/* A slot is filled and emptied at most once, and may pass through one step more when copies rotate. */
int gb_plan_init(gb_plan *plan, gb_arena *arena, const gb_placement *shape)
{
    uint32_t capacity = 2 * shape->layers * gb_placement_slots(shape);
    *plan = (gb_plan){.capacity = capacity, .moves = GB_ARENA_NEW(arena, gb_move, capacity), .scratch = GB_ARENA_NEW(arena, gb_move, capacity),
                      .next = GB_ARENA_NEW(arena, uint32_t, shape->layers)};
    return plan->moves && plan->scratch && plan->next ? GB_OK : GB_ENOMEM;
}

static int32_t find_in(const int32_t *slots, uint32_t from, uint32_t to, int32_t expert)
{
    for (uint32_t i = from; i < to; i++)
        if (slots[i] == expert) return (int32_t)i;
    return -1;
}

/* --- slots for homes -------------------------------------------------------------------------------------------------- */

static void route_all_to(gb_placement *p, uint32_t layer, uint32_t expert, int32_t slot)
{
    for (uint32_t s = 0; s < p->sources; s++) {
        size_t i = gb_placement_route_index(p, layer, s, expert);
        p->route[i] = slot;
        p->other[i] = -1;
        p->other_share[i] = 0;
    }
}

/* Where expert e lives now: the slot that serves source 0, so that an expert with copies has one home. */
static uint32_t rank_now(const gb_placement *from, uint32_t layer, uint32_t expert)
{
    return gb_placement_rank_of_slot(from, gb_placement_routes(from, layer, 0)[expert]);
}

/* An expert of rank a that goes to b and one of b that goes to a, if there is such a pair, trade slots. */
static void trade_pairs(int32_t *slots, int32_t *slot_of, const gb_placement *from, uint32_t layer, const int32_t *home)
{
    for (uint32_t e = 0; e < from->experts; e++) {
        uint32_t a = rank_now(from, layer, e), b = (uint32_t)home[e];
        if (a == b || slot_of[e] >= 0) continue;
        for (uint32_t f = e + 1; f < from->experts; f++) {
            if (slot_of[f] >= 0 || rank_now(from, layer, f) != b || home[f] != (int32_t)a) continue;
            slot_of[e] = gb_placement_routes(from, layer, 0)[f];
            slot_of[f] = gb_placement_routes(from, layer, 0)[e];
            slots[slot_of[e]] = (int32_t)e;
            slots[slot_of[f]] = (int32_t)f;
            break;
        }
    }
}

/* The rest move in longer circles: each takes a slot that a mover of its new rank leaves. */
static void fill_left_slots(int32_t *slots, int32_t *slot_of, const gb_placement *from, uint32_t layer, const int32_t *home)
{
    for (uint32_t e = 0; e < from->experts; e++) {
        if (slot_of[e] >= 0) continue;
        uint32_t first = (uint32_t)home[e] * from->slots_per_rank;
        int32_t slot = -1;
        for (uint32_t f = 0; f < from->experts && slot < 0; f++) {
            int32_t left = gb_placement_routes(from, layer, 0)[f];
            if (rank_now(from, layer, f) == (uint32_t)home[e] && home[f] != home[e] && slots[left] < 0) slot = left;
        }
        if (slot < 0) slot = find_in(slots, first, first + from->slots_per_rank, -1);
        GB_ASSERT(slot >= 0);
        slots[slot] = (int32_t)e;
        slot_of[e] = slot;
    }
}

void gb_plan_settle(gb_placement *to, const gb_placement *from, const int32_t *home)
{
    GB_ASSERT(same_shape(to, from));
    for (uint32_t l = 0; l < from->layers; l++, home += from->experts) {
        int32_t *slots = gb_placement_layer_slots(to, l), slot_of[GB_EXPERTS_MAX];
        for (uint32_t i = 0; i < gb_placement_slots(to); i++) slots[i] = -1;
        for (uint32_t e = 0; e < from->experts; e++) {
            bool stays = rank_now(from, l, e) == (uint32_t)home[e];
            slot_of[e] = stays ? gb_placement_routes(from, l, 0)[e] : -1;
            if (stays) slots[slot_of[e]] = (int32_t)e;
        }
        trade_pairs(slots, slot_of, from, l, home);
        fill_left_slots(slots, slot_of, from, l, home);
        for (uint32_t e = 0; e < from->experts; e++) route_all_to(to, l, e, slot_of[e]);
    }
    to->version = from->version + 1;
}

/* --- alignment -------------------------------------------------------------------------------------------------------- */

static void align_rank(int32_t *slots, int32_t *moved_to, const int32_t *before, uint32_t n)
{
    int32_t aligned[GB_EXPERTS_MAX];
    for (uint32_t i = 0; i < n; i++) aligned[i] = -1;
    for (uint32_t i = 0; i < n; i++) {
        int32_t at = slots[i] >= 0 ? find_in(before, 0, n, slots[i]) : -1;
        moved_to[i] = at;
        if (at >= 0) aligned[at] = slots[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        if (slots[i] < 0 || moved_to[i] >= 0) continue;
        moved_to[i] = find_in(aligned, 0, n, -1);
        aligned[moved_to[i]] = slots[i];
    }
    memcpy(slots, aligned, n * sizeof *slots);
}

void gb_plan_align(gb_placement *to, const gb_placement *from)
{
    GB_ASSERT(same_shape(to, from) && to->slots_per_rank <= GB_EXPERTS_MAX);
    uint32_t n = to->slots_per_rank;
    for (uint32_t l = 0; l < to->layers; l++)
        for (uint32_t r = 0; r < to->ranks; r++) {
            int32_t moved_to[GB_EXPERTS_MAX], first = (int32_t)(r * n);
            align_rank(gb_placement_layer_slots(to, l) + first, moved_to, gb_placement_layer_slots(from, l) + first, n);
            size_t begin = gb_placement_route_index(to, l, 0, 0), end = begin + (size_t)to->sources * to->experts;
            for (size_t i = begin; i < end; i++) {
                if (to->route[i] >= first && to->route[i] < first + (int32_t)n) to->route[i] = first + moved_to[to->route[i] - first];
                if (to->other[i] >= first && to->other[i] < first + (int32_t)n) to->other[i] = first + moved_to[to->other[i] - first];
            }
        }
}

/* --- steps ------------------------------------------------------------------------------------------------------------ */

typedef struct layer_state {
    gb_plan *plan;
    gb_placement *to;
    uint32_t layer, slots;
    int32_t *now;            /* [slots] */
    int32_t *want;           /* [slots] of `to` */
    uint16_t copies[GB_EXPERTS_MAX];
} layer_state;

static void emit(layer_state *s, int32_t expert, int32_t from, int32_t to)
{
    gb_plan *p = s->plan;
    GB_ASSERT(p->n < p->capacity);
    p->moves[p->n++] = (gb_move){p->steps, s->layer, expert, from, to};
}

/* Slots whose content may go, because it is nothing or has another copy. */
static bool fill_free_slots(layer_state *s)
{
    bool progress = false;
    for (uint32_t t = 0; t < s->slots; t++) {
        int32_t held = s->now[t], wanted = s->want[t];
        if (held == wanted || (held >= 0 && s->copies[held] == 1)) continue;
        int32_t source = wanted >= 0 ? find_in(s->now, 0, s->slots, wanted) : -1;
        emit(s, wanted, source, (int32_t)t);
        s->plan->steps++;
        if (held >= 0) s->copies[held]--;
        if (wanted >= 0) s->copies[wanted]++;
        s->now[t] = wanted;
        progress = true;
    }
    return progress;
}

static void follow_exchange(gb_placement *to, uint32_t layer, int32_t expert, int32_t left, int32_t taken)
{
    for (uint32_t s = 0; s < to->sources; s++) {
        size_t i = gb_placement_route_index(to, layer, s, (uint32_t)expert);
        if (to->route[i] == left) to->route[i] = taken;
        if (to->other[i] == left) to->other[i] = taken;
    }
}

/* Two slots of one rank trade what they are to hold. */
static void exchange(layer_state *s, uint32_t a, uint32_t b)
{
    int32_t of_a = s->want[a], of_b = s->want[b];
    s->want[a] = of_b, s->want[b] = of_a;
    follow_exchange(s->to, s->layer, of_a, (int32_t)a, (int32_t)b);
    follow_exchange(s->to, s->layer, of_b, (int32_t)b, (int32_t)a);
}

static uint32_t slot_that_wants(const layer_state *s, int32_t expert)
{
    uint32_t t = 0;
    while (t < s->slots && (s->want[t] != expert || s->now[t] == expert)) t++;
    GB_ASSERT(t < s->slots);
    return t;
}

/* The content of each slot of the path goes to the next one, that of the last to the first. */
static void turn(layer_state *s, const uint32_t *path, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) emit(s, s->now[path[i]], (int32_t)path[i], (int32_t)path[(i + 1) % n]);
    for (uint32_t i = s->plan->n - n; i < s->plan->n; i++) s->now[s->plan->moves[i].to] = s->plan->moves[i].expert;
    s->plan->steps++;
}

/* Every changed slot holds an only copy: they form circles, and one circle is one step. It passes a rank once: where it comes to
   one again, the two slots there exchange what they are to hold, and the inner circle that this closes turns first. */
static void turn_circle(layer_state *s, uint32_t start)
{
    uint32_t path[GB_RANKS_MAX], n = 0, next = start;
    do {
        path[n++] = next;
        next = slot_that_wants(s, s->now[next]);
        uint32_t first = 0, rank = gb_placement_rank_of_slot(s->to, (int32_t)next);
        while (first < n && gb_placement_rank_of_slot(s->to, (int32_t)path[first]) != rank) first++;
        if (first == n) continue;
        if (path[first] != next) exchange(s, path[first], next);
        turn(s, path + first, n - first);
        n = first;
    } while (n > 0);
}

static void build_layer(layer_state *s)
{
    for (;;) {
        while (fill_free_slots(s)) continue;
        uint32_t t = 0;
        while (t < s->slots && s->now[t] == s->want[t]) t++;
        if (t == s->slots) return;
        turn_circle(s, t);
    }
}

void gb_plan_build(gb_plan *plan, const gb_placement *from, gb_placement *to)
{
    GB_ASSERT(same_shape(from, to));
    int32_t now[2 * GB_EXPERTS_MAX + GB_RANKS_MAX];
    plan->n = plan->steps = 0;
    GB_ASSERT(gb_placement_slots(from) <= sizeof now / sizeof *now);
    for (uint32_t l = 0; l < from->layers; l++) {
        layer_state s = {.plan = plan, .to = to, .layer = l, .slots = gb_placement_slots(from), .now = now,
                         .want = gb_placement_layer_slots(to, l)};
        memcpy(now, gb_placement_layer_slots(from, l), s.slots * sizeof *now);
        for (uint32_t t = 0; t < s.slots; t++)
            if (now[t] >= 0) s.copies[now[t]]++;
        build_layer(&s);
    }
}

/* --- order and limits -------------------------------------------------------------------------------------------------- */

static uint32_t step_end(const gb_plan *plan, uint32_t begin)
{
    uint32_t end = begin;
    while (end < plan->n && plan->moves[end].step == plan->moves[begin].step) end++;
    return end;
}

static uint32_t copies_in(const gb_plan *plan, uint32_t begin, uint32_t end)
{
    uint32_t copies = 0;
    for (uint32_t i = begin; i < end; i++) copies += plan->moves[i].expert >= 0;
    return copies;
}

uint32_t gb_plan_copies(const gb_plan *plan) { return copies_in(plan, 0, plan->n); }

/* Steps that copy nothing are free and come at once. */
static double density(const gb_plan *plan, uint32_t begin, const double *worth)
{
    uint32_t copies = copies_in(plan, begin, step_end(plan, begin));
    return copies ? worth[plan->moves[begin].step] / copies : 1e300;
}

void gb_plan_sort(gb_plan *plan, const double *worth)
{
    uint32_t layers = 0, n = 0, step = 0;
    for (uint32_t i = 0; i < plan->n; i++) {
        uint32_t layer = plan->moves[i].layer;
        while (layers <= layer) plan->next[layers++] = UINT32_MAX;
        if (plan->next[layer] == UINT32_MAX) plan->next[layer] = i;
    }
    while (n < plan->n) {
        uint32_t best = UINT32_MAX;
        double most = 0;
        for (uint32_t l = 0; l < layers; l++) {
            if (plan->next[l] == UINT32_MAX) continue;
            double d = density(plan, plan->next[l], worth);
            if (best == UINT32_MAX || d > most) best = l, most = d;
        }
        uint32_t begin = plan->next[best], end = step_end(plan, begin);
        for (uint32_t i = begin; i < end; i++, n++) {
            plan->scratch[n] = plan->moves[i];
            plan->scratch[n].step = step;
        }
        step++;
        plan->next[best] = end < plan->n && plan->moves[end].layer == best ? end : UINT32_MAX;
    }
    gb_move *sorted = plan->scratch;
    plan->scratch = plan->moves;
    plan->moves = sorted;
}

uint32_t gb_plan_limit(gb_plan *plan, uint32_t max_moves, uint64_t max_bytes, uint64_t expert_bytes)
{
    uint32_t copies = 0, steps = plan->steps;
    uint64_t fitting = expert_bytes ? max_bytes / expert_bytes : UINT32_MAX;
    if (fitting < max_moves) max_moves = (uint32_t)fitting;
    for (uint32_t begin = 0; begin < plan->n;) {
        uint32_t end = step_end(plan, begin), here = copies_in(plan, begin, end);
        if (here > max_moves - copies) {
            plan->steps = plan->moves[begin].step;
            plan->n = begin;
            break;
        }
        copies += here;
        begin = end;
    }
    return steps - plan->steps;
}

/* --- prefixes ----------------------------------------------------------------------------------------------------------- */

static bool holds(const int32_t *slots, int32_t slot, uint32_t expert) { return slot >= 0 && slots[slot] == (int32_t)expert; }

static void mend_route(gb_placement *now, const gb_placement *from, const gb_placement *to, uint32_t layer, uint32_t source, uint32_t expert)
{
    const int32_t *slots = gb_placement_layer_slots(now, layer);
    size_t i = gb_placement_route_index(now, layer, source, expert);
    const gb_placement *best = holds(slots, to->route[i], expert) ? to : holds(slots, from->route[i], expert) ? from : NULL;
    now->route[i] = best ? best->route[i] : find_in(slots, 0, gb_placement_slots(now), (int32_t)expert);
    bool split = best && holds(slots, best->other[i], expert);
    now->other[i] = split ? best->other[i] : -1;
    now->other_share[i] = split ? best->other_share[i] : 0;
}

static void mend_layer(gb_placement *now, const gb_placement *from, const gb_placement *to, uint32_t layer)
{
    for (uint32_t s = 0; s < now->sources; s++)
        for (uint32_t e = 0; e < now->experts; e++) mend_route(now, from, to, layer, s, e);
}

void gb_plan_take(gb_placement *now, const gb_placement *from, const gb_placement *to, const gb_plan *plan, uint32_t begin, uint32_t end)
{
    for (uint32_t i = begin; i < end; i++) gb_placement_layer_slots(now, plan->moves[i].layer)[plan->moves[i].to] = plan->moves[i].expert;
    if (begin < end) mend_layer(now, from, to, plan->moves[begin].layer);
}

void gb_plan_apply(gb_placement *now, const gb_placement *from, const gb_placement *to, const gb_plan *plan, uint32_t steps)
{
    gb_placement_copy(now, from);
    for (uint32_t i = 0; i < plan->n && plan->moves[i].step < steps; i++)
        gb_placement_layer_slots(now, plan->moves[i].layer)[plan->moves[i].to] = plan->moves[i].expert;
    for (uint32_t l = 0; l < now->layers; l++) mend_layer(now, from, to, l);
    now->version = from->version + 1;
}
