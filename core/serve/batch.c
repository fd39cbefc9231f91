#include "core/serve/batch.h"

#include "core/base/assert.h"

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* For one more request. */
static bool has_room(const gb_engine *engine, const gb_batch *batch, const gb_batch_limits *limits)
{
    return batch->n_tokens < limits->max_tokens && engine->n_running < limits->max_running;
}

static void add_work(gb_engine *engine, gb_batch *batch, gb_live *live, uint32_t count)
{
    const gb_stream *stream = live->stream;
    bool banned = gb_live_generated(live) < stream->sampling.min_tokens;
    batch->works[batch->n_works] = (gb_work){
        .id = live->id,
        .tokens = live->tokens, .n_tokens = live->n_tokens, .n_prompt = live->n_prompt,
        .start = live->n_computed, .count = count,
        .blocks = live->kv.blocks,
        .samples = live->n_computed + count == live->n_tokens,
        .sampling = &stream->sampling,
        .banned = stream->banned, .n_banned = banned ? stream->n_banned : 0,
    };
    live->in_round = true;
    live->work = batch->n_works;
    engine->flight[engine->n_flight] = live;
    engine->flight_counts[engine->n_flight++] = count;
    batch->n_works++;
    batch->n_tokens += count;
}

/* --- running requests --- */

static bool pinned(const gb_live *live, const gb_batch_limits *limits) { return live->preemptions >= limits->max_preemptions; }

static void preempt(gb_engine *engine, gb_live *live)
{
    gb_engine_remove_running(engine, live);
    gb_kv_release(&engine->kv, &live->kv);
    live->n_computed = 0;
    live->preemptions++;
    live->phase = GB_PHASE_PREEMPTED;
    engine->preemptions++;
    gb_queue_push(&engine->queue, live);
}

/* The worst running request behind place i that may be preempted. All behind i are without a work in this batch yet. */
static gb_live *victim_behind(const gb_engine *engine, const gb_batch_limits *limits, uint32_t i)
{
    for (uint32_t v = engine->n_running; v-- > i + 1;)
        if (!pinned(engine->running[v], limits)) return engine->running[v];
    return NULL;
}

static bool make_room(gb_engine *engine, const gb_batch_limits *limits, uint32_t i)
{
    gb_live *live = engine->running[i];
    while (!gb_kv_grow(&engine->kv, &live->kv, live->n_tokens)) {
        gb_live *victim = victim_behind(engine, limits, i);
        if (!victim) return false;
        preempt(engine, victim);
    }
    return true;
}

static void continue_decodes(gb_engine *engine, gb_batch *batch, const gb_batch_limits *limits)
{
    for (uint32_t i = 0; i < engine->n_running; i++)
        if (gb_live_decodes(engine->running[i]) && make_room(engine, limits, i)) add_work(engine, batch, engine->running[i], 1);
}

static void continue_prefills(gb_engine *engine, gb_batch *batch, const gb_batch_limits *limits)
{
    for (uint32_t i = 0; i < engine->n_running && batch->n_tokens < limits->max_tokens; i++) {
        gb_live *live = engine->running[i];
        if (!gb_live_decodes(live)) add_work(engine, batch, live, least(gb_live_left(live), limits->max_tokens - batch->n_tokens));
    }
}

bool gb_batch_continue(gb_engine *engine, gb_batch *batch, const gb_batch_limits *limits)
{
    uint64_t preemptions = engine->preemptions;
    continue_decodes(engine, batch, limits);
    continue_prefills(engine, batch, limits);
    return engine->preemptions == preemptions && has_room(engine, batch, limits);
}

/* --- waiting requests --- */

static bool take_blocks(gb_engine *engine, gb_live *live, const gb_batch_limits *limits)
{
    uint32_t positions = pinned(live, limits) ? gb_live_positions_max(live) : live->n_tokens;
    return gb_kv_take(&engine->kv, &live->kv, live->tokens, live->n_tokens, positions);
}

static void admit(gb_engine *engine, gb_batch *batch, const gb_batch_limits *limits, gb_live *live, gb_time now)
{
    GB_ASSERT(live->n_computed == 0);
    live->n_computed = live->kv.n_shared * GB_BLOCK_TOKENS;
    gb_engine_add_running(engine, live);
    if (live->scheduled == GB_NEVER) {
        live->scheduled = now;
        live->cached_tokens = live->n_computed;
    }
    add_work(engine, batch, live, least(gb_live_left(live), limits->max_tokens - batch->n_tokens));
}

void gb_batch_admit(gb_engine *engine, gb_batch *batch, const gb_batch_limits *limits, gb_time now)
{
    gb_live *blocked = NULL;    /* the first in line whose blocks are not free */
    for (uint32_t i = 0; i < engine->queue.n && has_room(engine, batch, limits);) {
        gb_live *live = engine->queue.entries[i].live;
        if (take_blocks(engine, live, limits)) {
            gb_queue_take(&engine->queue, i);
            admit(engine, batch, limits, live, now);
            if (blocked) blocked->bypassed++;
        } else {
            if (!blocked) blocked = live;
            i++;
        }
        if (blocked && blocked->bypassed >= limits->max_bypass) break;
    }
}
