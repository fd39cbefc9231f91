#include "core/serve/trace.h"

/* Tokens a running request still has to compute before it decodes. */
static uint64_t running_prefill_tokens(const gb_engine *engine)
{
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < engine->n_running; i++)
        if (!gb_live_decodes(engine->running[i])) tokens += gb_live_left(engine->running[i]);
    return tokens;
}

void gb_trace_take(gb_trace *trace, const gb_engine *engine, uint64_t seq, gb_time round_time, double moe_pressure, gb_time now)
{
    const gb_kv *kv = &engine->kv;
    *trace = (gb_trace){
        .seq = seq,
        .at = now,
        .seen_dispatch = engine->dispatches,
        .running_prefill_tokens = (double)running_prefill_tokens(engine),
        .waiting_prefill_tokens = (double)engine->queue.prefill_tokens,
        .kv_used_ratio = (double)gb_kv_held(kv) / kv->n_blocks,
        .kv_used_tokens = (double)gb_kv_held(kv) * GB_BLOCK_TOKENS,
        .kv_free_tokens = (double)gb_kv_available(kv) * GB_BLOCK_TOKENS,
        .moe_pressure = moe_pressure,
        .running = engine->n_running,
        .waiting = engine->queue.n,
        .oldest_wait_ns = (double)gb_time_since(gb_queue_oldest(&engine->queue), now),
        .preemptions = (double)engine->preemptions,
        .round_time_ns = (double)round_time,
    };
}

/* Dispatches after the last one the trace knows of. A trace taken here and now knows all, and nothing has to be summed. */
static void count_unseen(gb_engine *engine, const gb_pool *pool)
{
    engine->pending = engine->pending_tokens = 0;
    if (engine->trace.seen_dispatch == engine->dispatches) return;
    for (uint32_t i = 0; i < pool->capacity; i++) {
        const gb_live *live = &pool->slots[i];
        if (gb_live_has_ended(live) || live->engine != engine->index || live->dispatch <= engine->trace.seen_dispatch) continue;
        engine->pending++;
        engine->pending_tokens += live->n_prompt;
    }
}

static void show_unseen(const gb_engine *engine, gb_engine_table *table)
{
    table->pending[engine->index] = (double)engine->pending;
    table->pending_tokens[engine->index] = (double)engine->pending_tokens;
}

bool gb_trace_publish(gb_engine *engine, gb_engine_table *table, const gb_trace *trace, const gb_pool *pool)
{
    uint32_t i = engine->index;
    if (trace->seq <= engine->trace.seq) return false;
    engine->trace = *trace;
    count_unseen(engine, pool);
    show_unseen(engine, table);
    table->running_prefill_tokens[i] = trace->running_prefill_tokens;
    table->waiting_prefill_tokens[i] = trace->waiting_prefill_tokens;
    table->kv_used_ratio[i] = trace->kv_used_ratio;
    table->kv_used_tokens[i] = trace->kv_used_tokens;
    table->kv_free_tokens[i] = trace->kv_free_tokens;
    table->moe_pressure[i] = trace->moe_pressure;
    table->running[i] = trace->running;
    table->waiting[i] = trace->waiting;
    table->oldest_wait_ns[i] = trace->oldest_wait_ns;
    table->preemptions[i] = trace->preemptions;
    table->round_time_ns[i] = trace->round_time_ns;
    table->valid[i] = 1;
    return true;
}

void gb_trace_note_dispatch(gb_engine *engine, gb_engine_table *table, gb_live *live)
{
    live->dispatch = ++engine->dispatches;
    engine->pending++;
    engine->pending_tokens += live->n_prompt;
    show_unseen(engine, table);
}

void gb_trace_note_withdrawal(gb_engine *engine, gb_engine_table *table, const gb_live *live)
{
    if (live->dispatch <= engine->trace.seen_dispatch) return;
    engine->pending--;
    engine->pending_tokens -= live->n_prompt;
    show_unseen(engine, table);
}

void gb_trace_refresh_age(const gb_engine *engine, gb_engine_table *table, gb_time now)
{
    bool flying = engine->n_flight > 0;
    table->age_ns[engine->index] = flying && engine->trace.seq > 0 ? (double)gb_time_since(engine->trace.at, now) : 0;
}
