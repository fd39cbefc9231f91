/* Looking into a server; nothing here changes it. */
#include "core/serve/server.h"

#include "core/serve/internal.h"

const gb_tables *gb_server_tables(const gb_server *s) { return &s->tables; }

const gb_placement *gb_server_placement(const gb_server *s) { return &s->placement; }

const gb_server_options *gb_server_options_get(const gb_server *s) { return &s->options; }

uint64_t gb_server_trace_seq(const gb_server *s, uint32_t engine) { return s->engines[engine].trace.seq; }

const gb_matrix *gb_server_window(const gb_server *s, bool running, uint64_t *window_id, gb_time *from, gb_time *to)
{
    const gb_window *window = running ? &s->windows.running : &s->windows.closed;
    *window_id = window->id;
    *from = window->from;
    *to = window->to;
    return &window->counts;
}

uint32_t gb_server_window_rounds(const gb_server *s, bool running, uint32_t *counted)
{
    const gb_window *window = running ? &s->windows.running : &s->windows.closed;
    *counted = window->counted;
    return window->rounds;
}

const gb_planner *gb_server_planner(const gb_server *s) { return s->options.moe_layers ? &s->planner : NULL; }

static void sum_engines(const gb_server *s, gb_server_stats *stats)
{
    for (uint32_t e = 0; e < s->options.engines; e++) {
        const gb_engine *engine = &s->engines[e];
        stats->running += engine->n_running;
        stats->waiting += engine->queue.n;
        stats->preempted += engine->preemptions;
        stats->blocks_used += gb_kv_held(&engine->kv);
        stats->blocks_cached += engine->kv.n_idle;
        stats->blocks_total += engine->kv.n_blocks;
    }
}

void gb_server_stats_get(const gb_server *s, gb_server_stats *stats)
{
    *stats = (gb_server_stats){
        .accepted = s->accepted, .refused = s->refused, .finished = s->finished, .failed = s->failed, .aborted = s->aborted,
        .prompt_tokens = s->prompt_tokens, .generated_tokens = s->generated_tokens, .rounds = s->rounds,
        .cached_tokens = s->cached_tokens, .ordered_dispatches = s->ordered_dispatches,
    };
    gb_migrate_stats migrate = gb_migrate_stats_of(&s->migrate);
    stats->windows = s->windows.running.id - 1;
    stats->rearrangements = s->planner.stats.decisions;
    stats->rearrangements_accepted = s->planner.stats.accepted;
    stats->migrations_done = migrate.done;
    stats->migrations_cancelled = migrate.cancelled;
    stats->migrations_failed = migrate.failed;
    stats->migrations_stalled = migrate.stalled;
    stats->experts_moved = migrate.experts_moved;
    stats->bytes_moved = migrate.bytes_moved;
    stats->moves_left = migrate.moves_left;
    sum_engines(s, stats);
    stats->live = stats->running + stats->waiting;
    for (int hook = 0; hook < GB_HOOKS; hook++) stats->hooks[hook] = s->hook_stats[hook];
}

static gb_request_state state_of(const gb_live *live)
{
    if (live->phase == GB_PHASE_WAITING) return GB_WAITING;
    return live->phase == GB_PHASE_RUNNING ? GB_RUNNING : GB_PREEMPTED;
}

bool gb_server_request_next(const gb_server *s, uint32_t *cursor, gb_request_info *info)
{
    while (*cursor < s->pool.capacity) {
        const gb_live *live = &s->pool.slots[(*cursor)++];
        if (gb_live_has_ended(live)) continue;
        *info = (gb_request_info){
            .id = live->id, .tag = live->tag, .state = state_of(live), .engine = live->engine, .prompt_tokens = live->n_prompt,
            .computed_tokens = live->n_computed, .generated_tokens = gb_live_generated(live),
            .max_tokens = live->stream->sampling.max_tokens, .preemptions = live->preemptions, .priority = live->priority,
            .arrived = live->arrived,
        };
        return true;
    }
    return false;
}
