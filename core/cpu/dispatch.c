/* Sends each row to the slots of its experts: a counting sort of (row, k) by the slot that the placement's route names for
   (source, expert, token). Counts on both sides: A[source][expert] where a token is sent, tokens of a rank where they arrive; checked
   builds count A on both sides. */
#include "core/cpu/context.h"

#include <string.h>

#include "core/base/assert.h"

/* A token that two copies of an expert share: its name decides, not its row. */
static int32_t shared_slot(const gb_placement *placement, uint32_t moe_layer, const gb_span *span, uint32_t row, int32_t expert)
{
    uint32_t offset = row - span->row;
    uint64_t hash = gb_placement_token_hash(span->start + offset, span->tokens[offset]);
    return gb_placement_slot(placement, moe_layer, span->engine, (uint32_t)expert, hash);
}

/* slot of every route, into grouped_of_route for now; how many each slot gets, into slot_fill */
static void send(gb_cpu *cpu, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement, gb_matrix *counts)
{
    const int32_t *expert_of_slot = gb_placement_layer_slots(placement, moe_layer);
    uint32_t K = cpu->config.experts_per_token, slots = cpu->base.info.slots;
    memset(cpu->slot_fill, 0, slots * sizeof *cpu->slot_fill);
    for (uint32_t i = 0; i < rows->n_spans; i++) {
        const gb_span *span = &rows->spans[i];
        const int32_t *route = gb_placement_routes(placement, moe_layer, span->engine);
        const int32_t *other = placement->other + gb_placement_route_index(placement, moe_layer, span->engine, 0);
        uint64_t *sent = gb_matrix_row(counts, moe_layer, span->engine);
        for (size_t a = (size_t)span->row * K; a < (size_t)(span->row + span->count) * K; a++) {
            int32_t expert = cpu->experts[a], slot = route[expert];
            if (other[expert] >= 0) slot = shared_slot(placement, moe_layer, span, (uint32_t)(a / K), expert);
            GB_ASSERT(slot >= 0 && (uint32_t)slot < slots && expert_of_slot[slot] == expert);
            sent[expert]++;
            cpu->slot_fill[slot]++;
            cpu->grouped_of_route[a] = (uint32_t)slot;
        }
    }
}

static void add_pieces(gb_cpu *cpu, uint32_t place, uint32_t first, uint32_t n)
{
    for (; n; first += cpu->pieces[cpu->n_pieces++].n) {
        uint32_t take = n < GB_CPU_BLOCK_ROWS ? n : GB_CPU_BLOCK_ROWS;
        cpu->pieces[cpu->n_pieces] = (gb_cpu_piece){place, first, take};
        n -= take;
    }
}

static void receive(gb_cpu *cpu, const gb_placement *placement, uint32_t moe_layer, uint64_t *rank_tokens)
{
    const int32_t *places = gb_placement_layer_places(placement, moe_layer);
    uint32_t next = 0;
    cpu->n_pieces = 0;
    for (uint32_t slot = 0; slot < cpu->base.info.slots; slot++) {
        uint32_t n = cpu->slot_fill[slot];
        rank_tokens[gb_placement_rank_of_slot(placement, (int32_t)slot)] += n;
        GB_ASSERT(places[slot] >= 0 && (uint32_t)places[slot] < cpu->base.info.places);
        add_pieces(cpu, (uint32_t)places[slot], next, n);
        cpu->slot_fill[slot] = next;    /* from here on: where its next row goes */
        next += n;
    }
}

#ifdef GB_CHECKED
static uint32_t source_of(const gb_row_set *rows, uint32_t row)
{
    uint32_t low = 0, high = rows->n_spans;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (rows->spans[middle].row <= row) low = middle;
        else high = middle;
    }
    return rows->spans[low].engine;
}

/* Counts once more where tokens arrived, slot by slot; it must be what the engines said that they sent. slot_fill ends each slot's rows. */
static void check_counts(gb_cpu *cpu, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement, const gb_matrix *counts)
{
    const int32_t *expert_of_slot = gb_placement_layer_slots(placement, moe_layer);
    for (uint32_t source = 0; source < counts->sources; source++) {
        uint64_t arrived[GB_EXPERTS_MAX] = {0};
        uint32_t at = 0;
        for (uint32_t slot = 0; slot < cpu->base.info.slots; slot++)
            for (; at < cpu->slot_fill[slot]; at++) arrived[expert_of_slot[slot]] += source_of(rows, cpu->row_of_grouped[at]) == source;
        gb_counts_must_agree(moe_layer, source, gb_matrix_row(counts, moe_layer, source), arrived, counts->experts);
    }
}
#else
#define check_counts(...) ((void)0)
#endif

int gb_cpu_dispatch(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement, gb_matrix *counts,
                    uint64_t *rank_tokens)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    uint32_t K = cpu->config.experts_per_token;
    send(cpu, rows, moe_layer, placement, counts);
    receive(cpu, placement, moe_layer, rank_tokens);
    for (size_t a = 0; a < (size_t)rows->n * K; a++) {
        uint32_t grouped = cpu->slot_fill[cpu->grouped_of_route[a]]++;
        cpu->row_of_grouped[grouped] = (uint32_t)(a / K);
        cpu->grouped_of_route[a] = grouped;
    }
    check_counts(cpu, rows, moe_layer, placement, counts);
    return GB_OK;
}
