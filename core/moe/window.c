#include "core/moe/window.h"

#include "core/base/assert.h"
#include "core/base/status.h"

int gb_windows_init(gb_windows *w, gb_arena *arena, uint32_t layers, uint32_t sources, uint32_t experts, uint32_t rounds_per_window,
                    gb_time longest)
{
    GB_ASSERT(rounds_per_window >= 1);
    *w = (gb_windows){.running = {.id = 1}, .rounds_per_window = rounds_per_window, .longest = longest};
    int rc = gb_matrix_init(&w->running.counts, arena, layers, sources, experts);
    return rc ? rc : gb_matrix_init(&w->closed.counts, arena, layers, sources, experts);
}

static void open_window(gb_windows *w, uint64_t id, gb_matrix counts)
{
    w->running = (gb_window){.id = id, .counts = counts};
    gb_matrix_clear(&w->running.counts);
}

static void close_window(gb_windows *w)
{
    gb_matrix next = w->closed.counts;
    w->closed = w->running;
    open_window(w, w->closed.id + 1, next);
}

bool gb_windows_begin(gb_windows *w, gb_time now)
{
    gb_time from = w->running.rounds ? w->running.from : now;
    w->round_from = now;
    w->round_is_last = w->running.rounds + 1 >= w->rounds_per_window || gb_time_since(from, now) >= w->longest;
    return w->round_is_last;
}

bool gb_windows_add(gb_windows *w, const gb_matrix *counts, bool pending, gb_time now)
{
    gb_window *running = &w->running;
    GB_ASSERT(!(pending && w->round_is_last));
    if (running->rounds++ == 0) running->from = w->round_from;
    running->to = now;
    gb_matrix_add(&running->counts, counts);
    if (!pending) running->counted = running->rounds;
    if (w->round_is_last) close_window(w);
    return w->round_is_last;
}

void gb_windows_fail(gb_windows *w) { open_window(w, w->running.id, w->running.counts); }
