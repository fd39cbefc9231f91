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

static void close_window(gb_windows *w)
{
    gb_window full = w->running;
    w->running = (gb_window){.id = full.id + 1, .counts = w->closed.counts};
    w->closed = full;
    gb_matrix_clear(&w->running.counts);
}

bool gb_windows_add(gb_windows *w, const gb_matrix *counts, gb_time started, gb_time now)
{
    gb_window *running = &w->running;
    if (running->rounds == 0) running->from = started;
    running->to = now;
    gb_matrix_add(&running->counts, counts);
    if (++running->rounds < w->rounds_per_window && gb_time_since(running->from, now) < w->longest) return false;
    close_window(w);
    return true;
}
