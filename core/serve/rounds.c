/* The server's rounds: composed at poll_round, settled at round_done. One is in flight at a time. */
#include "core/serve/server.h"

#include "core/base/assert.h"
#include "core/base/log.h"
#include "core/serve/internal.h"
#include "core/serve/order.h"
#include "core/serve/trace.h"

/* --- out --- */

static void plan_batch(gb_server *s, gb_engine *engine, gb_batch *batch, gb_time now)
{
    batch->n_works = batch->n_tokens = 0;
    engine->n_flight = 0;
    if (engine->n_running + engine->queue.n == 0) return;
    if (gb_batch_continue(engine, batch, &s->limits)) {
        gb_order_queue(engine, &s->policies[GB_HOOK_ORDER], &s->builtin, &s->hook_stats[GB_HOOK_ORDER], &s->tables.queue, now);
        gb_batch_admit(engine, batch, &s->limits, now);
    }
    GB_ASSERT(batch->n_works > 0);    /* whoever has requests makes progress: no deadlock */
}

/* A round border: the only moment at which the placement may change. An idle engine takes part with an empty batch. */
bool gb_server_poll_round(gb_server *s, gb_round *round, gb_time now)
{
    if (s->in_flight || !gb_outbox_has_room_for_a_round(&s->outbox)) return false;
    gb_server_tick(s, now);
    gb_server_settle_migration(s, now);
    uint32_t n_works = 0;
    for (uint32_t e = 0; e < s->options.engines; e++) {
        plan_batch(s, &s->engines[e], &round->batches[e], now);
        n_works += round->batches[e].n_works;
    }
    if (n_works == 0) return false;
    round->seq = ++s->round_seq;
    round->n_engines = s->options.engines;
    round->placement = &s->placement;
    round->counts_due = gb_windows_begin(&s->windows, now);
    s->in_flight = true;
    s->round_started = now;
    return true;
}

bool gb_server_poll_cancel(gb_server *s, uint64_t *round_seq, uint32_t *engine, uint32_t *work)
{
    if (s->drop_ring.count == 0) return false;
    const gb_drop *drop = &s->drops[gb_ring_pop(&s->drop_ring)];
    *round_seq = s->round_seq;
    *engine = drop->engine;
    *work = drop->work;
    return true;
}

/* --- in --- */

static void add_token_event(gb_server *s, gb_live *live, const gb_sampled *sampled, gb_stream_verdict *verdict, gb_time now)
{
    const gb_sampling *sampling = &live->stream->sampling;
    gb_event *event = gb_server_add_event(s, live, GB_EVENT_TOKEN, now);
    event->token = sampled->token;
    *verdict = gb_stream_push(live->stream, &s->shared, sampled->token, event->index + 1, (char *)event->text, &event->text_bytes);
    if (sampling->logprobs >= 0) gb_outbox_attach_logprobs(&s->outbox, event, &sampled->logprobs);
}

static void finish(gb_server *s, gb_live *live, const gb_stream_verdict *verdict, gb_time now)
{
    gb_event *event = gb_server_end(s, live, GB_EVENT_DONE, now);
    event->finish = verdict->finish;
    event->stop_token = verdict->stop_token;
    event->stop_string = verdict->stop_string;
    event->text_bytes = gb_stream_close(live->stream, (char *)event->text);
}

static void take_token(gb_server *s, gb_live *live, const gb_sampled *sampled, gb_time now)
{
    if (sampled->token < 0 || (uint32_t)sampled->token >= s->options.vocab) {
        gb_log(GB_LOG_ERROR, "round %llu: a request gets no token (%d): its logits are no numbers, as with damaged weights, or every token is banned",
               (unsigned long long)s->round_seq, sampled->token);
        gb_server_fail(s, live, GB_EINTERNAL, now);
        return;
    }
    if (live->first_token == GB_NEVER) {
        live->first_token = now;
        s->prompt_tokens += live->n_prompt;
        s->cached_tokens += live->cached_tokens;
    }
    live->last_token = now;
    s->generated_tokens++;
    gb_stream_verdict verdict;
    add_token_event(s, live, sampled, &verdict, now);
    live->tokens[live->n_tokens++] = sampled->token;
    if (verdict.finish != GB_FINISH_NONE) finish(s, live, &verdict, now);
}

/* One work came back. A work dropped by the executor without its request having ended is simply planned again. */
static void settle(gb_server *s, gb_engine *engine, uint32_t work, const gb_result *result, gb_time now)
{
    gb_live *live = engine->flight[work];
    live->in_round = false;
    if (live->phase == GB_PHASE_ENDED) {
        gb_kv_release(&engine->kv, &live->kv);
        gb_server_retire(s, live);
        return;
    }
    if (result->status) {
        gb_server_fail(s, live, result->status, now);
        return;
    }
    const gb_sampled *sampled = &result->sampled[engine->index][work];
    if (sampled->cancelled) return;
    live->n_computed += engine->flight_counts[work];
    gb_kv_publish(&engine->kv, &live->kv, live->tokens, live->n_computed);
    if (live->n_computed == live->n_tokens) take_token(s, live, sampled, now);
}

static void settle_engine(gb_server *s, gb_engine *engine, const gb_result *result, gb_time now)
{
    for (uint32_t w = 0; w < engine->n_flight; w++) settle(s, engine, w, result, now);
    engine->n_flight = 0;
}

static void publish_traces(gb_server *s, gb_time now)
{
    s->trace_seq++;
    for (uint32_t e = 0; e < s->options.engines; e++) {
        gb_trace trace;
        gb_engine *engine = &s->engines[e];
        gb_trace_take(&trace, engine, s->trace_seq, now - s->round_started, gb_pressure_of(&s->pressure, e), now);
        gb_trace_publish(engine, &s->tables.engines, &trace, &s->pool);
    }
}

void gb_server_round_done(gb_server *s, const gb_result *result, gb_time now)
{
    GB_ASSERT(s->in_flight && result->seq == s->round_seq);
    gb_server_advance(s, now);
    s->in_flight = false;
    s->drop_ring = (gb_ring){.capacity = s->drop_ring.capacity};
    s->rounds++;
    if (result->status == GB_OK) {
        bool closed = gb_windows_add(&s->windows, &result->counts, result->counts_pending, now);
        if (closed && s->options.moe_layers) gb_planner_observe(&s->planner, &s->windows.closed);
        gb_pressure_add(&s->pressure, result->rank_tokens);
    } else {
        gb_windows_fail(&s->windows);
        gb_log(GB_LOG_ERROR, "round %llu failed: %s", (unsigned long long)result->seq, gb_status_message(result->status));
    }
    for (uint32_t e = 0; e < s->options.engines; e++) settle_engine(s, &s->engines[e], result, now);
    for (uint32_t e = 0; result->status == GB_EDOWN && e < s->options.engines; e++) gb_server_engine_down(s, e, now);
    publish_traces(s, now);
}
