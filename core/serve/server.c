#include "core/serve/server.h"

#include <math.h>

#include "core/base/assert.h"
#include "core/base/rng.h"
#include "core/serve/admission.h"
#include "core/serve/internal.h"
#include "core/serve/select.h"
#include "core/serve/trace.h"

void gb_server_options_default(gb_server_options *options)
{
    *options = (gb_server_options){.max_num_seqs = 64, .max_batched_tokens = 512, .queue_capacity = 4096, .max_preemptions = 8,
                                   .max_bypass = 16, .window_rounds = 64, .window_longest = GB_NEVER, .prefix_caching = true, .aging = gb_seconds(5), .stale_after = gb_seconds(1),
                                   .migration_bytes = 1 << 20, .migration_stalled_after = gb_seconds(30), .placement = {.solve = gb_solve_defaults()}};
}

/* --- new, free --- */

static void init_shared(gb_server *s)
{
    gb_stream_shared *shared = &s->shared;
    *shared = (gb_stream_shared){.tokenizer = s->options.tokenizer, .end_ids = s->options.end_ids, .n_end_ids = s->options.n_end_ids};
    uint32_t n = shared->tokenizer ? gb_tokenizer_size(shared->tokenizer) : 0;
    for (uint32_t token = 0; token < n; token++) {
        size_t bytes = 0;
        gb_tokenizer_bytes(shared->tokenizer, (int32_t)token, &bytes);
        if (bytes > shared->token_bytes_max) shared->token_bytes_max = bytes;
    }
}

static void init_policies(gb_server *s)
{
    gb_pressure_params_default(&s->builtin_params);
    s->builtin_params.stale_after_ns = (double)s->options.stale_after;
    s->builtin = (gb_policy){.name = "builtin", .self = &s->builtin_params, .select_engine = gb_builtin_select,
                             .order_queue = gb_builtin_order};
    for (int hook = 0; hook < GB_HOOKS; hook++) s->policies[hook] = s->builtin;
}

static void init_limits(gb_server *s)
{
    const gb_server_options *o = &s->options;
    s->limits = (gb_batch_limits){.max_tokens = o->max_batched_tokens, .max_running = o->max_num_seqs,
                                  .max_preemptions = o->max_preemptions, .max_bypass = o->max_bypass};
    if (s->limits.max_running > s->limits.max_tokens) s->limits.max_running = s->limits.max_tokens;
}

static int init_engines(gb_server *s)
{
    const gb_server_options *o = &s->options;
    s->engines = GB_ARENA_NEW(&s->arena, gb_engine, o->engines);
    if (!s->engines) return GB_ENOMEM;
    for (uint32_t e = 0; e < o->engines; e++) {
        if (gb_engine_init(&s->engines[e], &s->arena, e, o->blocks_per_engine, o->prefix_caching, s->limits.max_running, o->queue_capacity))
            return GB_ENOMEM;
        s->tables.engines.healthy[e] = 1;
        s->tables.engines.kv_free_tokens[e] = (double)o->blocks_per_engine * GB_BLOCK_TOKENS;
        s->tables.engines.moe_pressure[e] = 1;
    }
    return GB_OK;
}

static int init_placement(gb_server *s, gb_error *err)
{
    const gb_server_options *o = &s->options;
    gb_migrate_options migrate = {.private_ranks = o->private_ranks, .expert_bytes = o->expert_bytes, .list_bytes = o->migration_bytes,
                                  .stalled_after = o->migration_stalled_after};
    gb_rng_init(&s->migrate_rng, o->seed);
    int rc = gb_placement_init(&s->placement, &s->arena, o->moe_layers, o->engines, o->experts, o->ranks, o->spare_slots, err);
    if (!rc) rc = gb_placement_init(&s->forced, &s->arena, o->moe_layers, o->engines, o->experts, o->ranks, o->spare_slots, err);
    if (!rc) rc = gb_migrate_init(&s->migrate, &s->arena, &s->placement, &migrate, err);
    return rc || !o->moe_layers ? rc : gb_planner_init(&s->planner, &s->arena, &s->placement, &o->placement, err);
}

/* Everything whose size only memory can refuse. */
static int init_memory(gb_server *s)
{
    const gb_server_options *o = &s->options;
    uint32_t round_works = o->engines * s->limits.max_running;
    int rc = gb_pool_init(&s->pool, &s->arena, o->queue_capacity, o->max_model_len);
    if (!rc) rc = gb_tables_init(&s->tables, &s->arena, o->engines, o->queue_capacity);
    if (!rc) rc = init_engines(s);
    if (!rc) rc = gb_outbox_init(&s->outbox, &s->arena, o->queue_capacity, round_works, gb_stream_text_max(&s->shared));
    if (!rc) rc = gb_heap_init(&s->timers, &s->arena, o->queue_capacity);
    if (!rc) rc = gb_windows_init(&s->windows, &s->arena, o->moe_layers, o->engines, o->experts, o->window_rounds, o->window_longest);
    if (!rc) rc = gb_pressure_init(&s->pressure, &s->arena, (gb_topology){o->engines, o->ranks});
    if (rc) return rc;
    s->drop_ring.capacity = round_works;
    s->drops = GB_ARENA_NEW(&s->arena, gb_drop, round_works);
    s->probe.hashes = GB_ARENA_NEW(&s->arena, uint64_t, gb_kv_blocks_for(o->max_model_len));
    s->check_marks = GB_ARENA_NEW(&s->arena, uint32_t, o->blocks_per_engine);
    s->shared.scratch = gb_arena_take(&s->arena, 1, GB_STOP_STRING_BYTES + s->shared.token_bytes_max);
    return s->drops && s->probe.hashes && s->check_marks && s->shared.scratch ? GB_OK : GB_ENOMEM;
}

int gb_server_new(gb_server **out, const gb_server_options *options, gb_error *err)
{
    int rc = gb_admission_check_options(options, err);
    if (rc) return rc;
    gb_arena arena;
    gb_arena_init(&arena);
    gb_server *s = GB_ARENA_NEW(&arena, gb_server, 1);
    if (!s) return gb_fail(err, GB_ENOMEM, "out of memory for the server");
    s->options = *options;
    s->arena = arena;
    init_shared(s);
    init_policies(s);
    init_limits(s);
    rc = init_placement(s, err);
    if (!rc && (rc = init_memory(s)))
        gb_fail(err, rc, "out of memory for %u request slots of %u tokens: lower max_queue or max_model_len", options->queue_capacity,
                options->max_model_len);
    if (rc) gb_server_free(s);
    else *out = s;
    return rc;
}

void gb_server_free(gb_server *server)
{
    if (!server) return;
    gb_arena arena = server->arena;    /* the server lies in it */
    gb_arena_deinit(&arena);
}

/* --- what the files of the room share --- */

void gb_server_advance(gb_server *s, gb_time now)
{
    GB_ASSERT(now >= s->now);
    s->now = now;
}

static gb_time between(gb_time from, gb_time to) { return from == GB_NEVER || to == GB_NEVER ? 0 : to - from; }

gb_event *gb_server_add_event(gb_server *s, const gb_live *live, gb_event_kind kind, gb_time now)
{
    gb_event *event = gb_outbox_add(&s->outbox, kind);
    event->id = live->id;
    event->tag = live->tag;
    event->engine = live->engine;
    event->at = now;
    event->index = gb_live_generated(live);
    return event;
}

static void drop_work(gb_server *s, const gb_live *live)
{
    s->drops[gb_ring_push(&s->drop_ring)] = (gb_drop){live->engine, live->work};
}

gb_event *gb_server_end(gb_server *s, gb_live *live, gb_event_kind kind, gb_time now)
{
    GB_ASSERT(!gb_live_has_ended(live) && kind != GB_EVENT_TOKEN);
    gb_engine *engine = &s->engines[live->engine];
    if (gb_live_is_waiting(live)) gb_queue_remove(&engine->queue, live);
    else gb_engine_remove_running(engine, live);
    gb_trace_note_withdrawal(engine, &s->tables.engines, live);
    gb_heap_remove(&s->timers, live->index);
    if (live->in_round) drop_work(s, live);
    else gb_kv_release(&engine->kv, &live->kv);
    live->phase = GB_PHASE_ENDED;
    s->finished += kind == GB_EVENT_DONE;
    s->failed += kind == GB_EVENT_FAILED;
    s->aborted += kind == GB_EVENT_ABORTED;
    gb_event *event = gb_server_add_event(s, live, kind, now);
    event->usage = (gb_usage){.prompt_tokens = live->n_prompt, .completion_tokens = gb_live_generated(live),
                                .cached_tokens = live->cached_tokens};
    event->timings = (gb_timings){.queued = between(live->arrived, live->scheduled), .prefill = between(live->scheduled, live->first_token),
                                  .decode = between(live->first_token, live->last_token), .total = now - live->arrived};
    return event;
}

void gb_server_fail(gb_server *s, gb_live *live, int status, gb_time now)
{
    gb_server_end(s, live, GB_EVENT_FAILED, now)->status = status;
}

void gb_server_retire(gb_server *s, gb_live *live)
{
    if (live->phase == GB_PHASE_ENDED && live->end_polled && !live->in_round) gb_pool_give_back(&s->pool, live);
}

/* --- submit --- */

static void set_timer(gb_server *s, const gb_live *live)
{
    gb_time promote_at = live->arrived < GB_NEVER - s->options.aging ? live->arrived + s->options.aging : GB_NEVER;
    gb_time next = live->promoted ? live->deadline : gb_time_min(live->deadline, promote_at);
    if (next == GB_NEVER) gb_heap_remove(&s->timers, live->index);
    else gb_heap_set(&s->timers, live->index, next);
}

/* What each engine's prefix cache has of the prompt. */
static void look_for_prompt(gb_server *s, const gb_request *request)
{
    s->probe.n_hashes = 0;
    for (uint32_t e = 0; e < s->options.engines; e++) {
        s->probe.n_match = 0;
        s->tables.engines.cached_tokens[e] = gb_kv_cached_tokens(&s->engines[e].kv, &s->probe, request->tokens, request->n_tokens);
    }
}

static int choose_engine(gb_server *s, const gb_request *request, uint32_t max_tokens, gb_time now)
{
    gb_engine_table *table = &s->tables.engines;
    for (uint32_t e = 0; e < s->options.engines; e++) gb_trace_refresh_age(&s->engines[e], table, now);
    look_for_prompt(s, request);
    s->tables.request = (gb_request_row){
        .prompt_tokens = request->n_tokens,
        .max_tokens = max_tokens,
        .priority = request->priority,
        .session = request->session,
        .deadline_ns = request->deadline == GB_NEVER ? INFINITY : (double)(request->deadline - now),
    };
    int rotation = gb_builtin_ordered(table);
    int engine = gb_select_engine(&s->policies[GB_HOOK_SELECT], &s->builtin, &s->hook_stats[GB_HOOK_SELECT], &s->tables, now);
    bool fresh = gb_builtin_traces_fresh(table, (double)s->options.stale_after);
    s->ordered_dispatches += engine >= 0 && !fresh && engine == rotation;
    return engine;
}

/* May the request come in, and where to? */
static int check_submit(gb_server *s, const gb_request *request, uint32_t *max_tokens, int *engine, gb_time now, gb_error *err)
{
    if (s->draining) return gb_fail(err, GB_EDRAINING, "the server is draining and takes no new requests");
    int rc = gb_admission_check(&s->options, request, now, max_tokens, err);
    if (rc) return rc;
    if (s->pool.n_free == 0)
        return gb_fail(err, GB_EFULL, "all %u request slots are taken: try again later or raise max_queue", s->options.queue_capacity);
    *engine = choose_engine(s, request, *max_tokens, now);
    return *engine >= 0 ? GB_OK : gb_fail(err, GB_EDOWN, "all %u engines are down", s->options.engines);
}

static void open_stream(gb_server *s, gb_live *live, const gb_sampling *sampling, uint32_t max_tokens)
{
    gb_stream_open(live->stream, &s->shared, sampling);
    gb_sampling *own = &live->stream->sampling;
    own->max_tokens = max_tokens;
    if (!own->has_seed) own->seed = gb_mix64(s->options.seed ^ gb_mix64(s->accepted));
}

int gb_server_submit(gb_server *s, gb_request_id *id, const gb_request *request, gb_time now, gb_error *err)
{
    uint32_t max_tokens = 0;
    int engine = -1;
    gb_server_advance(s, now);
    int rc = check_submit(s, request, &max_tokens, &engine, now, err);
    if (rc) {
        s->refused++;
        return rc;
    }
    s->accepted++;
    gb_live *live = gb_pool_take(&s->pool);
    live->tag = request->tag;
    live->engine = (uint32_t)engine;
    live->priority = request->priority;
    live->session = request->session;
    live->arrived = now;
    live->deadline = request->deadline;
    live->n_prompt = live->n_tokens = request->n_tokens;
    for (uint32_t i = 0; i < request->n_tokens; i++) live->tokens[i] = request->tokens[i];
    open_stream(s, live, request->sampling, max_tokens);
    gb_queue_push(&s->engines[engine].queue, live);
    gb_trace_note_dispatch(&s->engines[engine], &s->tables.engines, live);
    set_timer(s, live);
    *id = live->id;
    return GB_OK;
}

/* --- cancel, tick, health, policies --- */

int gb_server_cancel(gb_server *s, gb_request_id id, gb_time now)
{
    gb_server_advance(s, now);
    gb_live *live = gb_pool_find(&s->pool, id);
    if (!live || gb_live_has_ended(live)) return GB_ENOTFOUND;
    gb_server_end(s, live, GB_EVENT_ABORTED, now);
    return GB_OK;
}

static void promote(gb_server *s, gb_live *live)
{
    live->promoted = true;
    if (gb_live_is_waiting(live)) s->engines[live->engine].queue.dirty = true;
    set_timer(s, live);
}

void gb_server_tick(gb_server *s, gb_time now)
{
    uint32_t index;
    uint64_t due;
    gb_server_advance(s, now);
    while (gb_heap_first(&s->timers, &index, &due) && due <= now) {
        gb_live *live = &s->pool.slots[index];
        if (live->deadline <= now) gb_server_fail(s, live, GB_EDEADLINE, now);
        else promote(s, live);
    }
    gb_server_watch_migration(s, now);
}

gb_time gb_server_deadline(const gb_server *s)
{
    uint32_t index;
    uint64_t due;
    gb_time watch = gb_migrate_deadline(&s->migrate);
    return gb_heap_first(&s->timers, &index, &due) ? gb_time_min(due, watch) : watch;
}

void gb_server_engine_down(gb_server *s, uint32_t e, gb_time now)
{
    GB_ASSERT(e < s->options.engines);
    gb_engine *engine = &s->engines[e];
    gb_server_advance(s, now);
    engine->healthy = false;
    s->tables.engines.healthy[e] = 0;
    while (engine->queue.n > 0) gb_server_fail(s, engine->queue.entries[engine->queue.n - 1].live, GB_EDOWN, now);
    while (engine->n_running > 0) gb_server_fail(s, engine->running[0], GB_EDOWN, now);
    gb_kv_forget(&engine->kv);            /* whatever comes up again has other memory */
    gb_migrate_cancel(&s->migrate);       /* its ranks neither send nor receive */
}

void gb_server_engine_up(gb_server *s, uint32_t e)
{
    GB_ASSERT(e < s->options.engines);
    s->engines[e].healthy = true;
    s->tables.engines.healthy[e] = 1;
}

void gb_server_set_policy(gb_server *s, gb_hook hook, const gb_policy *policy)
{
    s->policies[hook] = policy ? *policy : s->builtin;
    if (hook != GB_HOOK_ORDER) return;
    for (uint32_t e = 0; e < s->options.engines; e++) s->engines[e].queue.dirty = true;
}

const gb_policy *gb_server_policy(const gb_server *s, gb_hook hook) { return &s->policies[hook]; }

void gb_server_count_placement(gb_server *s, gb_hook hook, int answer)
{
    gb_hook_stats *stats = &s->hook_stats[hook];
    stats->calls++;
    stats->nils += answer == GB_POLICY_NIL;
    stats->faults += answer == GB_POLICY_FAULT;
}

void gb_server_drain(gb_server *s)
{
    s->draining = true;
    gb_migrate_cancel(&s->migrate);
}

bool gb_server_draining(const gb_server *s) { return s->draining; }

/* --- events --- */

bool gb_server_poll_event(gb_server *s, gb_event *event)
{
    if (!gb_outbox_poll(&s->outbox, event)) return false;
    if (event->kind == GB_EVENT_TOKEN) return true;
    gb_live *live = gb_pool_find(&s->pool, event->id);
    GB_ASSERT(live && live->phase == GB_PHASE_ENDED && !live->end_polled);
    live->end_polled = true;
    gb_server_retire(s, live);
    return true;
}
