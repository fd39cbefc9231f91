#include "bindings/cli/bench_counting.h"

#include <time.h>

enum { WINDOW_ROUNDS = 64, REPEATS = 64 };    /* a clock costs more than what it looks at: look at many of it */

static gb_bench_counting *watched;

static double cpu_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the layer, all threads together ---- */

static double begin_layer(void) { return cpu_seconds(CLOCK_PROCESS_CPUTIME_ID); }

static void end_layer(double began) { watched->layers += cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - began; }

static int timed_router(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    double began = begin_layer();
    int rc = watched->inner->router(ops, rows, moe_layer);
    end_layer(began);
    return rc;
}

static int timed_experts(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    double began = begin_layer();
    int rc = watched->inner->experts(ops, rows, moe_layer);
    end_layer(began);
    return rc;
}

static int timed_combine(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    double began = begin_layer();
    int rc = watched->inner->combine(ops, rows, moe_layer);
    end_layer(began);
    return rc;
}

/* ---- counting, once more ---- */

static void count_layer(const gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement)
{
    uint32_t K = ops->info.experts_per_token;
    for (uint32_t i = 0; i < rows->n_spans; i++) {
        const gb_span *span = &rows->spans[i];
        uint64_t *sent = gb_matrix_row(&watched->again, moe_layer, span->engine);
        for (size_t a = (size_t)span->row * K; a < (size_t)(span->row + span->count) * K; a++) sent[watched->experts[a]]++;
    }
    for (uint32_t slot = 0; slot < ops->info.slots; slot++)
        watched->rank_tokens[gb_placement_rank_of_slot(placement, (int32_t)slot)] += watched->again.counts[slot];
}

static int timed_dispatch(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement, gb_matrix *counts,
                          uint64_t *rank_tokens)
{
    double began = begin_layer();
    int rc = watched->inner->dispatch(ops, rows, moe_layer, placement, counts, rank_tokens);
    end_layer(began);
    if (rc == GB_OK) rc = gb_ops_read(ops, GB_READ_EXPERTS, 0, rows->n, watched->experts);
    if (rc != GB_OK) return rc;
    began = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < REPEATS; i++) count_layer(ops, rows, moe_layer, placement);
    watched->counting += (cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - began) / REPEATS;
    return GB_OK;
}

void gb_bench_counting_round(gb_bench_counting *c, const gb_result *result)
{
    double began = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < REPEATS; i++) {
        gb_windows_begin(&c->windows, 0);
        bool closed = gb_windows_add(&c->windows, &result->counts, result->counts_pending, 0);
        gb_pressure_add(&c->pressure, result->rank_tokens);
        if (closed) gb_estimate_add(&c->estimate, &c->windows.closed.counts);
    }
    c->counting += (cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - began) / REPEATS;
}

/* ---- set-up ---- */

int gb_bench_counting_watch(gb_bench_counting *c, gb_arena *arena, gb_ops *ops)
{
    const gb_ops_info *info = &ops->info;
    uint32_t sources = info->limits.engines;
    *c = (gb_bench_counting){.table = *ops->table, .inner = ops->table};
    c->experts = GB_ARENA_NEW(arena, int32_t, (size_t)sources * info->limits.max_tokens * info->experts_per_token);
    c->rank_tokens = GB_ARENA_NEW(arena, uint64_t, info->limits.ranks);
    if (!c->experts || !c->rank_tokens || gb_matrix_init(&c->again, arena, info->moe_layers, sources, info->experts) ||
        gb_windows_init(&c->windows, arena, info->moe_layers, sources, info->experts, WINDOW_ROUNDS, GB_NEVER) ||
        gb_pressure_init(&c->pressure, arena, (gb_topology){sources, info->limits.ranks}) ||
        gb_estimate_init(&c->estimate, arena, info->moe_layers, sources, info->experts)) {
        return GB_ENOMEM;
    }
    c->table.router = timed_router;
    c->table.dispatch = timed_dispatch;
    c->table.experts = timed_experts;
    c->table.combine = timed_combine;
    watched = c;
    ops->table = &c->table;
    return GB_OK;
}
