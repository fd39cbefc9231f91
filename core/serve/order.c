#include "core/serve/order.h"

#include <math.h>

static void fill_table(gb_queue_table *table, gb_engine *engine, gb_time now)
{
    const gb_queue *queue = &engine->queue;
    table->engine = engine->index;
    table->n = queue->n;
    for (uint32_t i = 0; i < queue->n; i++) {
        gb_live *live = queue->entries[i].live;
        table->prefill_tokens[i] = live->n_tokens;
        table->prompt_tokens[i] = live->n_prompt;
        table->generated_tokens[i] = gb_live_generated(live);
        table->max_tokens[i] = live->stream->sampling.max_tokens;
        table->wait_ns[i] = (double)gb_time_since(live->arrived, now);
        table->priority[i] = live->priority;
        table->deadline_ns[i] = live->deadline == GB_NEVER ? INFINITY : (double)gb_time_since(now, live->deadline);
        table->preemptions[i] = live->preemptions;
        table->promoted[i] = live->promoted;
        table->key[i] = NAN;
        table->cached_tokens[i] = gb_kv_cached_tokens(&engine->kv, &live->kv, live->tokens, live->n_tokens);
    }
}

static bool keys_are_numbers(const gb_queue_table *table)
{
    for (uint32_t i = 0; i < table->n; i++)
        if (!isfinite(table->key[i])) return false;
    return true;
}

/* Whether the policy gave every request a key. Keys start as NaN, so one that was left out is found. */
static bool ask(const gb_policy *policy, gb_hook_stats *stats, gb_queue_table *table, gb_time now)
{
    stats->calls++;
    int answer = policy->order_queue ? policy->order_queue(policy->self, table, now) : GB_POLICY_NIL;
    if (answer == 0 && keys_are_numbers(table)) return true;
    if (answer == GB_POLICY_NIL) stats->nils++;
    else stats->faults++;
    return false;
}

void gb_order_queue(gb_engine *engine, const gb_policy *policy, const gb_policy *builtin, gb_hook_stats *stats,
                    gb_queue_table *table, gb_time now)
{
    gb_queue *queue = &engine->queue;
    if (!queue->dirty) return;
    fill_table(table, engine, now);
    if (!ask(policy, stats, table, now)) builtin->order_queue(builtin->self, table, now);
    for (uint32_t i = 0; i < queue->n; i++) {
        queue->entries[i].key = table->key[i];
        queue->entries[i].promoted = queue->entries[i].live->promoted;
    }
    gb_queue_sort(queue);
}
