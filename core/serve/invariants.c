/* Every invariant of the room in one place; tests call it after each step. */
#include "core/serve/internal.h"

#include <string.h>

#include "core/base/assert.h"

static bool is_queued(const gb_engine *engine, const gb_live *live)
{
    for (uint32_t i = 0; i < engine->queue.n; i++)
        if (engine->queue.entries[i].live == live) return true;
    return false;
}

static bool is_running(const gb_engine *engine, const gb_live *live)
{
    for (uint32_t i = 0; i < engine->n_running; i++)
        if (engine->running[i] == live) return true;
    return false;
}

static bool is_in_flight(const gb_engine *engine, const gb_live *live)
{
    return live->work < engine->n_flight && engine->flight[live->work] == live;
}

/* One state, and its list agrees; blocks cover what was computed, and only a running request or a round owns any. */
static void check_live(const gb_server *s, const gb_live *live)
{
    const gb_engine *engine = &s->engines[live->engine];
    bool ended = live->phase == GB_PHASE_ENDED;
    GB_ASSERT(gb_live_is_waiting(live) == is_queued(engine, live));
    GB_ASSERT((live->phase == GB_PHASE_RUNNING) == is_running(engine, live));
    GB_ASSERT(live->in_round == (s->in_flight && is_in_flight(engine, live)));
    GB_ASSERT(!live->in_round || live->phase == GB_PHASE_RUNNING || ended);
    GB_ASSERT(live->kv.n_blocks == 0 || live->phase == GB_PHASE_RUNNING || (ended && live->in_round));
    GB_ASSERT(live->n_computed <= live->n_tokens && live->n_tokens <= live->n_prompt + live->stream->sampling.max_tokens);
    if (live->phase == GB_PHASE_RUNNING) GB_ASSERT(gb_kv_blocks_for(live->n_computed) <= live->kv.n_blocks && gb_live_left(live) > 0);
    GB_ASSERT(live->preemptions <= s->limits.max_preemptions);
    GB_ASSERT(live->bypassed <= s->limits.max_bypass);
    GB_ASSERT(engine->healthy || ended);
    GB_ASSERT(!ended || !live->end_polled || live->in_round);
}

/* Each block is free or owned, once. */
static void check_blocks(gb_server *s, const gb_engine *engine)
{
    const gb_kv *kv = &engine->kv;
    uint32_t seen = kv->n_free;
    memset(s->check_marks, 0, kv->n_blocks);
    for (uint32_t i = 0; i < kv->n_free; i++) GB_ASSERT(s->check_marks[kv->free_blocks[i]]++ == 0);
    for (uint32_t i = 0; i < s->pool.capacity; i++) {
        const gb_live *live = &s->pool.slots[i];
        if (live->phase == GB_PHASE_FREE || live->engine != engine->index) continue;
        for (uint32_t b = 0; b < live->kv.n_blocks; b++) GB_ASSERT(s->check_marks[live->kv.blocks[b]]++ == 0);
        seen += live->kv.n_blocks;
    }
    GB_ASSERT(seen == kv->n_blocks);
}

static void check_engine(gb_server *s, const gb_engine *engine)
{
    uint64_t prefill = 0;
    for (uint32_t i = 0; i < engine->queue.n; i++) prefill += engine->queue.entries[i].live->n_tokens;
    GB_ASSERT(prefill == engine->queue.prefill_tokens);
    GB_ASSERT(engine->n_running <= s->limits.max_running && engine->n_flight <= s->limits.max_running);
    for (uint32_t i = 1; i < engine->n_running; i++) GB_ASSERT(gb_live_outranks(engine->running[i - 1], engine->running[i]));
    check_blocks(s, engine);
}

void gb_server_check(gb_server *s)
{
    uint32_t n_free = 0, live = 0;
    for (uint32_t i = 0; i < s->pool.capacity; i++) {
        n_free += s->pool.slots[i].phase == GB_PHASE_FREE;
        live += !gb_live_has_ended(&s->pool.slots[i]);
        if (s->pool.slots[i].phase != GB_PHASE_FREE) check_live(s, &s->pool.slots[i]);
    }
    GB_ASSERT(n_free == s->pool.n_free);
    GB_ASSERT(s->accepted == s->finished + s->failed + s->aborted + live);
    for (uint32_t e = 0; e < s->options.engines; e++) check_engine(s, &s->engines[e]);
}
