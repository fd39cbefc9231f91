#include "core/forward/executor.h"

#include "core/base/assert.h"

static void check_batch(const gb_executor_info *info, const gb_batch *batch)
{
    uint32_t n_tokens = 0;
    GB_ASSERT(batch->n_works <= info->max_works);
    for (uint32_t i = 0; i < batch->n_works; i++) {
        const gb_work *w = &batch->works[i];
        GB_ASSERT(w->count >= 1 && w->start + w->count <= w->n_tokens && w->n_tokens <= info->max_positions);
        GB_ASSERT(w->samples == (w->start + w->count == w->n_tokens));
        n_tokens += w->count;
    }
    GB_ASSERT(n_tokens == batch->n_tokens && n_tokens <= info->max_tokens);
}

/* Ranks count what arrives, in every round; engines what they send, which may come later. */
static void check_counts(gb_executor *executor, const gb_round *round, const gb_result *result)
{
    for (size_t i = 0; i < gb_matrix_cells(&result->counts); i++) executor->sent += result->counts.counts[i];
    for (uint32_t r = 0; r < executor->info.ranks; r++) executor->arrived += result->rank_tokens[r];
    GB_ASSERT(!(round->counts_due && result->counts_pending));
    GB_ASSERT(executor->sent == executor->arrived || (result->counts_pending && executor->sent < executor->arrived));
}

int gb_executor_run(gb_executor *executor, const gb_round *round, gb_result *result)
{
    GB_ASSERT(round->n_engines == executor->info.engines);
    for (uint32_t e = 0; e < round->n_engines; e++) check_batch(&executor->info, &round->batches[e]);
    result->seq = round->seq;
    result->status = executor->table->run(executor, round, result);
    if (result->status == GB_OK) check_counts(executor, round, result);
    if (result->status != GB_OK || round->counts_due) executor->sent = executor->arrived = 0;
    return result->status;
}

void gb_executor_cancel(gb_executor *executor, uint64_t round_seq, uint32_t engine, uint32_t work)
{
    if (executor->table->cancel) executor->table->cancel(executor, round_seq, engine, work);
}

int gb_executor_copy(gb_executor *executor, const gb_copy_list *list)
{
    GB_ASSERT(list->n >= 1 && list->n <= GB_COPIES_MAX);
    return executor->table->copy && executor->info.private_ranks ? executor->table->copy(executor, list) : GB_EUNSUPPORTED;
}

uint64_t gb_executor_checksum(gb_executor *executor, uint32_t moe_layer, uint32_t place)
{
    return executor->table->checksum ? executor->table->checksum(executor, moe_layer, place) : 0;
}

void gb_executor_free(gb_executor *executor)
{
    if (executor) executor->table->free(executor);
}
