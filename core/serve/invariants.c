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

/* A request's blocks: a path of the tree that spells its tokens and is computed, then blocks that it alone holds. An ended
   request may hold what is forgotten meanwhile. */
static void check_share(const gb_kv *kv, const gb_live *live)
{
    const gb_kv_share *share = &live->kv;
    GB_ASSERT(share->n_shared <= share->n_blocks);
    if (live->phase != GB_PHASE_RUNNING) return;
    GB_ASSERT(share->n_shared == (kv->sharing ? live->n_computed / GB_BLOCK_TOKENS : 0));
    for (uint32_t i = 0; i < share->n_shared; i++) {
        const gb_prefix_node *node = &kv->prefix.nodes[share->blocks[i]];
        GB_ASSERT(node->serial != 0 && node->parent == (i > 0 ? share->blocks[i - 1] : GB_PREFIX_ROOT));
        GB_ASSERT(memcmp(node->tokens, live->tokens + i * GB_BLOCK_TOKENS, sizeof node->tokens) == 0);
    }
    for (uint32_t i = share->n_shared; i < share->n_blocks; i++)
        GB_ASSERT(kv->holders[share->blocks[i]] == 1 && !gb_prefix_has(&kv->prefix, share->blocks[i]));
}

/* Holders are who they are said to be. */
static void check_holders(gb_server *s, const gb_engine *engine)
{
    const gb_kv *kv = &engine->kv;
    memset(s->check_marks, 0, kv->n_blocks * sizeof *s->check_marks);
    for (uint32_t i = 0; i < s->pool.capacity; i++) {
        const gb_live *live = &s->pool.slots[i];
        if (live->phase == GB_PHASE_FREE || live->engine != engine->index) continue;
        for (uint32_t b = 0; b < live->kv.n_blocks; b++) s->check_marks[live->kv.blocks[b]]++;
        check_share(kv, live);
    }
    for (uint32_t b = 0; b < kv->n_blocks; b++) GB_ASSERT(s->check_marks[b] == kv->holders[b]);
}

/* Each block is free, held or idle. */
static void check_states(gb_server *s, const gb_kv *kv)
{
    enum { FREE = 1, IDLE };
    uint32_t held = 0, idle = 0;
    memset(s->check_marks, 0, kv->n_blocks * sizeof *s->check_marks);
    for (uint32_t i = 0; i < kv->n_free; i++) {
        int32_t block = kv->free_blocks[i];
        GB_ASSERT(s->check_marks[block] == 0 && !gb_prefix_has(&kv->prefix, block));
        s->check_marks[block] = FREE;
    }
    for (int32_t block = kv->oldest; block >= 0; block = kv->newer[block], idle++) {
        int32_t parent = kv->prefix.nodes[block].parent;
        GB_ASSERT(s->check_marks[block] == 0 && gb_prefix_has(&kv->prefix, block));
        GB_ASSERT(parent == GB_PREFIX_ROOT || s->check_marks[parent] == 0);    /* a parent is idle later or not at all */
        s->check_marks[block] = IDLE;
    }
    for (uint32_t b = 0; b < kv->n_blocks; b++) {
        GB_ASSERT((kv->holders[b] == 0) == (s->check_marks[b] != 0));
        held += kv->holders[b] > 0;
    }
    GB_ASSERT(idle == kv->n_idle && kv->n_free + idle + held == kv->n_blocks);
}

/* The tree: whoever is in it is found in it, has a parent there, and is counted by it. */
static void check_tree(gb_server *s, const gb_kv *kv)
{
    memset(s->check_marks, 0, kv->n_blocks * sizeof *s->check_marks);
    for (uint32_t b = 0; b < kv->n_blocks; b++) {
        const gb_prefix_node *node = &kv->prefix.nodes[b];
        if (node->serial == 0) continue;
        GB_ASSERT(gb_prefix_find(&kv->prefix, node->parent, node->hash, node->tokens) == (int32_t)b);
        if (node->parent == GB_PREFIX_ROOT) continue;
        GB_ASSERT(gb_prefix_has(&kv->prefix, node->parent) && kv->holders[node->parent] >= kv->holders[b]);
        s->check_marks[node->parent]++;
    }
    for (uint32_t b = 0; b < kv->n_blocks; b++) GB_ASSERT(kv->prefix.nodes[b].children == s->check_marks[b]);
}

static void check_engine(gb_server *s, const gb_engine *engine)
{
    uint64_t prefill = 0;
    for (uint32_t i = 0; i < engine->queue.n; i++) prefill += engine->queue.entries[i].live->n_tokens;
    GB_ASSERT(prefill == engine->queue.prefill_tokens);
    GB_ASSERT(engine->n_running <= s->limits.max_running && engine->n_flight <= s->limits.max_running);
    for (uint32_t i = 1; i < engine->n_running; i++) GB_ASSERT(gb_live_outranks(engine->running[i - 1], engine->running[i]));
    check_holders(s, engine);
    check_states(s, &engine->kv);
    check_tree(s, &engine->kv);
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
    GB_ASSERT(gb_migrate_is_sound(&s->migrate));
}
