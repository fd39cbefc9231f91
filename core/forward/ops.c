#include "core/forward/ops.h"

#include "core/base/assert.h"

static void check_rows(const gb_ops *ops, const gb_row_set *rows)
{
    const gb_ops_limits *limits = &ops->info.limits;
    uint32_t next = 0;
    for (uint32_t i = 0; i < rows->n_spans; i++) {
        const gb_span *s = &rows->spans[i];
        GB_ASSERT(s->row == next && s->count >= 1 && s->engine < limits->engines && s->work < limits->max_works);
        GB_ASSERT(s->start + s->count <= limits->max_positions);
        next += s->count;
    }
    GB_ASSERT(rows->n >= 1 && rows->n == next && next <= limits->engines * limits->max_tokens);
}

int gb_ops_embed(gb_ops *ops, const gb_row_set *rows)
{
    check_rows(ops, rows);
    return ops->table->embed(ops, rows);
}

int gb_ops_compact(gb_ops *ops, const gb_row_set *rows, const uint32_t *from)
{
    check_rows(ops, rows);
    for (uint32_t i = 0; i < rows->n_spans; i++) GB_ASSERT(from[i] >= rows->spans[i].row);
    return ops->table->compact(ops, rows, from);
}

int gb_ops_norm(gb_ops *ops, const gb_row_set *rows, gb_norm norm, uint32_t layer)
{
    GB_ASSERT(layer < ops->info.layers);
    return ops->table->norm(ops, rows, norm, layer);
}

int gb_ops_attention(gb_ops *ops, const gb_row_set *rows, uint32_t layer)
{
    GB_ASSERT(layer < ops->info.layers);
    return ops->table->attention(ops, rows, layer);
}

int gb_ops_mlp(gb_ops *ops, const gb_row_set *rows, uint32_t layer)
{
    GB_ASSERT(layer < ops->info.layers);
    return ops->table->mlp(ops, rows, layer);
}

int gb_ops_router(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    GB_ASSERT(moe_layer < ops->info.moe_layers);
    return ops->table->router(ops, rows, moe_layer);
}

int gb_ops_dispatch(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement, gb_matrix *counts,
                    uint64_t *rank_tokens)
{
    const gb_ops_info *info = &ops->info;
    GB_ASSERT(moe_layer < info->moe_layers && placement->layers == info->moe_layers);
    GB_ASSERT(placement->sources == info->limits.engines && placement->experts == info->experts);
    GB_ASSERT(placement->ranks == info->limits.ranks && gb_placement_slots(placement) == info->slots);
    GB_ASSERT(counts->layers == info->moe_layers && counts->sources == info->limits.engines && counts->experts == info->experts);
    return ops->table->dispatch(ops, rows, moe_layer, placement, counts, rank_tokens);
}

int gb_ops_experts(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    GB_ASSERT(moe_layer < ops->info.moe_layers);
    return ops->table->experts(ops, rows, moe_layer);
}

int gb_ops_combine(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    GB_ASSERT(moe_layer < ops->info.moe_layers);
    return ops->table->combine(ops, rows, moe_layer);
}

int gb_ops_head(gb_ops *ops, const uint32_t *rows, uint32_t n)
{
    GB_ASSERT(n >= 1 && n <= ops->info.head_rows);
    for (uint32_t i = 0; i < n; i++) GB_ASSERT(rows[i] < ops->info.limits.engines * ops->info.limits.max_tokens);
    return ops->table->head(ops, rows, n);
}

int gb_ops_sample(gb_ops *ops, const gb_pick *picks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) GB_ASSERT(picks[i].logits_row < ops->info.head_rows && picks[i].work->samples);
    return ops->table->sample(ops, picks, n);
}

int gb_ops_finish(gb_ops *ops, gb_matrix *due)
{
    GB_ASSERT(ops->table->finish || !ops->info.keeps_counts);
    return ops->table->finish ? ops->table->finish(ops, due) : GB_OK;
}

static bool is_place(const gb_ops *ops, int32_t place) { return place >= 0 && (uint32_t)place < ops->info.places; }

int gb_ops_copy_expert(gb_ops *ops, const gb_copy *copy)
{
    GB_ASSERT(copy->layer < ops->info.moe_layers && is_place(ops, copy->from) && is_place(ops, copy->to) && copy->from != copy->to);
    GB_ASSERT(copy->offset <= ops->info.expert_bytes && copy->bytes <= ops->info.expert_bytes - copy->offset);
    return ops->table->copy_expert(ops, copy);
}

uint64_t gb_ops_checksum(gb_ops *ops, uint32_t moe_layer, uint32_t place)
{
    GB_ASSERT(moe_layer < ops->info.moe_layers && place < ops->info.places);
    return ops->table->checksum(ops, moe_layer, place);
}

int gb_ops_read(gb_ops *ops, gb_readable what, uint32_t first, uint32_t n, void *out)
{
    uint32_t rows = what == GB_READ_LOGITS ? ops->info.head_rows : ops->info.limits.engines * ops->info.limits.max_tokens;
    GB_ASSERT(first <= rows && n <= rows - first);
    return ops->table->read(ops, what, first, n, out);
}

void gb_ops_cancel(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work)
{
    GB_ASSERT(engine < ops->info.limits.engines && work < ops->info.limits.max_works);
    ops->table->cancel(ops, round_seq, engine, work);
}

bool gb_ops_cancelled(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work)
{
    GB_ASSERT(engine < ops->info.limits.engines && work < ops->info.limits.max_works);
    return ops->table->cancelled(ops, round_seq, engine, work);
}

void gb_ops_free(gb_ops *ops)
{
    if (ops) ops->table->free(ops);
}
