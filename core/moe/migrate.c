#include "core/moe/migrate.h"

#include <string.h>

#include "core/base/assert.h"
#include "core/flow/ids.h"

/* --- places --- */

static int32_t *spare_of(const gb_migrate *m, uint32_t layer, int32_t slot)
{
    return m->spare + (size_t)layer * m->live->ranks + gb_placement_rank_of_slot(m->live, slot);
}

static void take_places(gb_migrate *m)
{
    uint32_t slots = gb_placement_slots(m->live);
    if (!m->options.private_ranks) gb_placement_share_memory(m->live);
    for (uint32_t l = 0; l < m->live->layers; l++)
        for (uint32_t r = 0; r < m->live->ranks; r++) m->spare[(size_t)l * m->live->ranks + r] = (int32_t)(slots + r);
}

int gb_migrate_init(gb_migrate *m, gb_arena *arena, gb_placement *live, const gb_migrate_options *options, gb_error *err)
{
    uint32_t spare = live->slots_per_rank - live->experts / live->ranks;
    *m = (gb_migrate){.options = *options, .live = live};
    int rc = gb_placement_init(&m->from, arena, live->layers, live->sources, live->experts, live->ranks, spare, err);
    if (!rc) rc = gb_placement_init(&m->to, arena, live->layers, live->sources, live->experts, live->ranks, spare, err);
    if (!rc) rc = gb_plan_init(&m->plan, arena, live);
    if (rc) return rc;
    m->spare = GB_ARENA_NEW(arena, int32_t, (size_t)live->layers * live->ranks);
    m->busy = GB_ARENA_NEW(arena, uint32_t, live->layers);
    m->slots = GB_ARENA_NEW(arena, int32_t, gb_placement_slots(live));
    if (!m->spare || !m->busy || !m->slots) return GB_ENOMEM;
    take_places(m);
    return GB_OK;
}

/* --- start --- */

static uint32_t step_end(const gb_plan *plan, uint32_t begin)
{
    uint32_t end = begin;
    while (end < plan->n && plan->moves[end].step == plan->moves[begin].step) end++;
    return end;
}

static bool is_in_range(const gb_migrate *m, const gb_move *move)
{
    int32_t slots = (int32_t)gb_placement_slots(m->live);
    return move->layer < m->live->layers && move->expert < (int32_t)m->live->experts && move->to >= 0 && move->to < slots &&
           (move->expert < 0 || (move->from >= 0 && move->from < slots));
}

static bool same_rank(const gb_migrate *m, int32_t a, int32_t b)
{
    return gb_placement_rank_of_slot(m->live, a) == gb_placement_rank_of_slot(m->live, b);
}

/* One layer, each expert from where it is, and no rank receives two: there is one spare place for it. */
static bool is_one_step(const gb_migrate *m, const int32_t *slots, uint32_t begin, uint32_t end)
{
    for (uint32_t i = begin; i < end; i++) {
        const gb_move *move = &m->plan.moves[i];
        if (!is_in_range(m, move) || move->layer != m->plan.moves[begin].layer) return false;
        if (move->expert >= 0 && slots[move->from] != move->expert) return false;
        for (uint32_t j = begin; j < i; j++)
            if (m->plan.moves[j].expert >= 0 && move->expert >= 0 && same_rank(m, m->plan.moves[j].to, move->to)) return false;
    }
    return true;
}

static bool layer_leads_there(const gb_migrate *m, uint32_t layer)
{
    size_t bytes = gb_placement_slots(m->live) * sizeof *m->slots;
    memcpy(m->slots, gb_placement_layer_slots(&m->from, layer), bytes);
    for (uint32_t i = 0; i < m->plan.n;) {
        uint32_t end = step_end(&m->plan, i);
        bool ours = m->plan.moves[i].layer == layer;
        if (ours && !is_one_step(m, m->slots, i, end)) return false;
        for (; i < end; i++)
            if (ours) m->slots[m->plan.moves[i].to] = m->plan.moves[i].expert;
    }
    return memcmp(m->slots, gb_placement_layer_slots(&m->to, layer), bytes) == 0;
}

static bool leads_there(const gb_migrate *m)
{
    for (uint32_t i = 0; i < m->plan.n; i++)
        if (m->plan.moves[i].layer >= m->live->layers) return false;
    for (uint32_t l = 0; l < m->live->layers; l++)
        if (!layer_leads_there(m, l)) return false;
    return true;
}

static bool same_shape(const gb_placement *a, const gb_placement *b)
{
    return a->layers == b->layers && a->sources == b->sources && a->experts == b->experts && a->ranks == b->ranks &&
           a->slots_per_rank == b->slots_per_rank;
}

static int take_plan(gb_migrate *m, const gb_plan *plan, gb_error *err)
{
    if (!plan) {
        gb_plan_align(&m->to, &m->from);
        gb_plan_build(&m->plan, &m->from, &m->to);
        return GB_OK;
    }
    if (plan->n > m->plan.capacity) return gb_fail(err, GB_EINVAL, "the plan has %u moves; at most %u are possible", plan->n, m->plan.capacity);
    memcpy(m->plan.moves, plan->moves, plan->n * sizeof *plan->moves);
    m->plan.n = plan->n;
    m->plan.steps = plan->steps;
    return leads_there(m) ? GB_OK : gb_fail(err, GB_EINVAL, "the plan does not lead from the placement in use to the one it should");
}

int gb_migrate_start(gb_migrate *m, const gb_placement *to, const gb_plan *plan, gb_time now, gb_error *err)
{
    if (m->running || m->out) return gb_fail(err, GB_EFULL, "a migration is running; wait for its end or cancel it");
    if (!same_shape(to, m->live)) return gb_fail(err, GB_EINVAL, "the placement has another shape than the one in use");
    int rc = gb_placement_check(to, err);
    if (rc) return rc;
    gb_placement_copy(&m->from, m->live);
    gb_placement_copy(&m->to, to);
    rc = take_plan(m, plan, err);
    if (rc) return rc;
    m->flipped = m->copied = 0;
    m->offset = 0;
    m->running = true;
    m->progressed = now;
    memset(m->busy, 0, m->live->layers * sizeof *m->busy);
    return GB_OK;
}

static void stop(gb_migrate *m)
{
    m->running = false;
    m->plan.n = 0;
}

void gb_migrate_cancel(gb_migrate *m)
{
    if (!m->running) return;
    m->stats.cancelled++;
    stop(m);
}

/* --- copying --- */

static bool carries_bytes(const gb_migrate *m, const gb_move *move) { return m->options.private_ranks && move->expert >= 0; }

/* The layer is free, or this step of it has begun. */
static bool may_begin(const gb_migrate *m, const gb_move *move)
{
    return m->busy[move->layer] == 0 || m->busy[move->layer] == move->step + 1;
}

/* Moves without bytes have arrived as soon as their step may begin. */
static void pass_light_moves(gb_migrate *m, uint32_t *copied)
{
    while (*copied < m->plan.n && !carries_bytes(m, &m->plan.moves[*copied]) && may_begin(m, &m->plan.moves[*copied])) {
        m->busy[m->plan.moves[*copied].layer] = m->plan.moves[*copied].step + 1;
        ++*copied;
    }
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void add_piece(gb_migrate *m, gb_copy_list *list, const gb_move *move, uint64_t bytes)
{
    int32_t from = gb_placement_layer_places(m->live, move->layer)[move->from];
    m->busy[move->layer] = move->step + 1;
    list->copies[list->n++] = (gb_copy){.layer = move->layer, .from = from, .to = *spare_of(m, move->layer, move->to),
                                        .offset = m->next_offset, .bytes = bytes};
}

static void fill_list(gb_migrate *m, gb_copy_list *list)
{
    uint64_t left = m->options.list_bytes;
    m->next_copied = m->copied;
    m->next_offset = m->offset;
    for (pass_light_moves(m, &m->next_copied); m->next_copied < m->plan.n && left > 0 && list->n < GB_COPIES_MAX;) {
        const gb_move *move = &m->plan.moves[m->next_copied];
        if (!may_begin(m, move)) return;
        uint64_t bytes = least(m->options.expert_bytes - m->next_offset, left);
        add_piece(m, list, move, bytes);
        left -= bytes;
        m->next_offset += bytes;
        if (m->next_offset < m->options.expert_bytes) return;
        m->next_offset = 0;
        m->next_copied++;
        pass_light_moves(m, &m->next_copied);
    }
}

bool gb_migrate_poll(gb_migrate *m, gb_copy_list *list)
{
    if (!m->running || m->out) return false;
    list->n = 0;
    fill_list(m, list);
    m->out = list->n > 0;
    return m->out;
}

void gb_migrate_copied(gb_migrate *m, int status, gb_time now)
{
    GB_ASSERT(m->out);
    m->out = false;
    if (!m->running) return;
    if (status) {
        m->stats.failed++;
        stop(m);
        return;
    }
    m->copied = m->next_copied;
    m->offset = m->next_offset;
    m->progressed = now;
}

/* --- flips --- */

/* Where the expert of a move is once its step is live: in the spare place, or where it always was. */
static int32_t arrival(const gb_migrate *m, const gb_move *move)
{
    const int32_t *places = gb_placement_layer_places(m->live, move->layer);
    if (move->expert < 0) return places[move->to];
    return m->options.private_ranks ? *spare_of(m, move->layer, move->to) : places[move->from];
}

static void flip_step(gb_migrate *m, uint32_t begin, uint32_t end)
{
    int32_t arrivals[GB_RANKS_MAX], *places = gb_placement_layer_places(m->live, m->plan.moves[begin].layer);
    GB_ASSERT(end - begin <= GB_RANKS_MAX);
    for (uint32_t i = begin; i < end; i++) arrivals[i - begin] = arrival(m, &m->plan.moves[i]);
    gb_plan_take(m->live, &m->from, &m->to, &m->plan, begin, end);
    for (uint32_t i = begin; i < end; i++) {
        const gb_move *move = &m->plan.moves[i];
        if (carries_bytes(m, move)) {
            *spare_of(m, move->layer, move->to) = places[move->to];
            m->stats.bytes_moved += m->options.expert_bytes;
        }
        places[move->to] = arrivals[i - begin];
        m->stats.experts_moved += move->expert >= 0;
    }
    m->busy[m->plan.moves[begin].layer] = 0;
    m->flipped = end;
}

static bool flip_ready_steps(gb_migrate *m)
{
    uint32_t before = m->flipped;
    while (m->flipped < m->plan.n) {
        uint32_t end = step_end(&m->plan, m->flipped);
        if (end > m->copied) break;
        flip_step(m, m->flipped, end);
    }
    return m->flipped > before;
}

static void finish(gb_migrate *m)
{
    uint32_t version = m->live->version;
    gb_placement_copy(m->live, &m->to);    /* the routes: slots are the same by now */
    m->live->version = version;
    m->stats.done++;
    stop(m);
}

bool gb_migrate_flip(gb_migrate *m, gb_time now)
{
    if (!m->running) return false;
    bool flipped = false, more = true;
    while (more) {
        if (!m->out) pass_light_moves(m, &m->copied);
        more = flip_ready_steps(m);
        flipped |= more;
    }
    bool ends = m->flipped == m->plan.n;
    if (!flipped && !ends) return false;
    m->live->version++;
    m->progressed = now;
    if (ends) finish(m);
    return true;
}

/* --- looking --- */

bool gb_migrate_tick(gb_migrate *m, gb_time now)
{
    if (now < gb_migrate_deadline(m)) return false;
    m->stats.stalled++;
    stop(m);
    return true;
}

gb_time gb_migrate_deadline(const gb_migrate *m)
{
    return m->running ? m->progressed + m->options.stalled_after : GB_NEVER;
}

gb_migrate_state gb_migrate_state_of(const gb_migrate *m)
{
    if (!m->running) return GB_MIGRATE_IDLE;
    return m->copied == m->plan.n ? GB_MIGRATE_READY : GB_MIGRATE_COPYING;
}

gb_migrate_stats gb_migrate_stats_of(const gb_migrate *m)
{
    gb_migrate_stats stats = m->stats;
    stats.moves_left = m->running ? m->plan.n - m->flipped : 0;
    return stats;
}

static bool rank_is_sound(const gb_migrate *m, uint32_t layer, uint32_t rank)
{
    const int32_t *places = gb_placement_layer_places(m->live, layer) + (size_t)rank * m->live->slots_per_rank;
    int32_t spare = m->spare[(size_t)layer * m->live->ranks + rank], extra = (int32_t)(gb_placement_slots(m->live) + rank);
    int32_t first = (int32_t)(rank * m->live->slots_per_rank), n = (int32_t)m->live->slots_per_rank;
    for (int32_t p = first; p <= first + n; p++) {
        int32_t place = p < first + n ? p : extra, holders = spare == place;
        for (int32_t i = 0; i < n; i++) holders += places[i] == place;
        if (holders != 1) return false;
    }
    return true;
}

bool gb_migrate_is_sound(const gb_migrate *m)
{
    for (uint32_t l = 0; m->options.private_ranks && l < m->live->layers; l++)
        for (uint32_t r = 0; r < m->live->ranks; r++)
            if (!rank_is_sound(m, l, r)) return false;
    return gb_placement_check(m->live, NULL) == GB_OK;
}
