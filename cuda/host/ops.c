/* Ops that are one kernel or two, and the two ends of a round. */
#include "cuda/host/rank.h"

#include <string.h>

/* --- the beginning of a round --- */

static int clear_words(gb_cuda *cuda)
{
    GB_CUDA(cudaMemsetAsync(cuda->received, 0, cuda->base.info.limits.ranks * sizeof *cuda->received, cuda->compute));
    GB_CUDA(cudaMemsetAsync(cuda->fault, 0, sizeof *cuda->fault, cuda->compute));
    return GB_OK;
}

int gb_cuda_launch_embed(gb_cuda *cuda)
{
    GB_TRY(clear_words(cuda));
    gb_k_embed_args a = {.x = cuda->x, .table = cuda->embedding, .tokens = cuda->tables.tokens, .fault = cuda->fault, .n = cuda->rows,
                         .hidden = cuda->config.hidden, .vocab = cuda->config.vocab};
    return gb_k_embed(&a, cuda->compute);
}

int gb_cuda_embed(gb_ops *ops, const gb_row_set *rows)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    GB_CUDA(cudaSetDevice(cuda->device));    /* of whichever thread runs rounds */
    GB_TRY(gb_cuda_begin_counts(cuda));
    GB_TRY(gb_cuda_lay_rows(cuda, rows, NULL));
    cuda->counted_rows += cuda->own_rows;
    return cuda->waits ? GB_OK : gb_cuda_launch_embed(cuda);
}

/* --- in between --- */

/* In a round that waits nothing stands anywhere yet. */
int gb_cuda_compact(gb_ops *ops, const gb_row_set *rows, const uint32_t *from)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    if (cuda->waits) return gb_cuda_lay_rows(cuda, rows, NULL);
    GB_TRY(gb_cuda_lay_rows(cuda, rows, from));
    gb_k_compact_args a = {.out = cuda->x_moved, .x = cuda->x, .from = cuda->tables.from, .n = cuda->rows, .hidden = cuda->config.hidden};
    GB_TRY(gb_k_compact(&a, cuda->compute));
    GB_CUDA(cudaMemcpyAsync(cuda->x, cuda->x_moved, (size_t)cuda->rows * a.hidden * sizeof *cuda->x, cudaMemcpyDeviceToDevice, cuda->compute));
    return GB_OK;
}

/* From the second norm on a rank takes care of its share of the engine's rows; they lie at the front of what they are computed into. */
static float *share_of_x(const gb_cuda *cuda) { return cuda->x + (size_t)cuda->share_first * cuda->config.hidden; }

int gb_cuda_norm(gb_ops *ops, const gb_row_set *rows, gb_norm norm, uint32_t layer)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    const gb_cuda_layer *l = &cuda->layers[layer];
    bool attention = norm == GB_NORM_ATTENTION;
    (void)rows;
    if (cuda->waits) return GB_OK;
    gb_k_norm_args a = {
        .h = cuda->h, .h32 = !attention && l->router ? cuda->h32 : NULL, .x = attention ? cuda->x : share_of_x(cuda),
        .weight = attention ? l->attention_norm : l->mlp_norm, .n = attention ? cuda->rows : cuda->share, .hidden = cuda->config.hidden,
        .epsilon = cuda->config.norm_epsilon,
    };
    return gb_k_norm(&a, cuda->compute);
}

int gb_cuda_router(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    const gb_model_config *c = &cuda->config;
    uint32_t layer = 0;
    (void)rows;
    if (cuda->waits) return GB_OK;
    for (uint32_t seen = 0; !c->layer_is_moe[layer] || seen++ < moe_layer;) layer++;
    GB_TRY(gb_cuda_multiply(cuda, &cuda->router_product, cuda->router_logits, cuda->h32, cuda->layers[layer].router, NULL, cuda->share,
                            false));
    gb_k_router_args a = {.experts = cuda->experts, .weights = cuda->weights, .logits = cuda->router_logits,
                          .tokens = gb_cuda_share_rows(cuda).tokens, .n = cuda->share, .E = c->experts, .K = c->experts_per_token, .normalize = c->norm_topk_prob};
    return gb_k_router(&a, cuda->compute);
}

int gb_cuda_launch_dispatch(gb_cuda *cuda, uint32_t moe_layer)
{
    const gb_ops_info *info = &cuda->base.info;
    gb_k_dispatch_args a = {
        .slot_of_route = cuda->slot_of_route, .place_in_slot = cuda->place_in_slot, .offsets = cuda->offsets,
        .sent = cuda->sent + (size_t)moe_layer * cuda->part.engines * info->experts,
        .received = cuda->world ? cuda->world->left : cuda->received, .work = cuda->dispatch_work, .experts = cuda->experts,
        .map = gb_cuda_map(cuda, moe_layer), .rows = gb_cuda_share_rows(cuda), .fault = cuda->fault, .K = info->experts_per_token,
    };
    GB_TRY(gb_k_dispatch(&a, cuda->compute));
    return cuda->world ? gb_cuda_send_rows(cuda) : gb_cuda_launch_permute(cuda, cuda->grouped);
}

int gb_cuda_launch_permute(gb_cuda *cuda, uint16_t *grouped)
{
    gb_k_permute_args a = {
        .grouped = grouped, .grouped_of_route = cuda->grouped_of_route, .h = cuda->h, .slot_of_route = cuda->slot_of_route,
        .place_in_slot = cuda->place_in_slot, .offsets = cuda->offsets, .n = cuda->share, .K = cuda->config.experts_per_token,
        .hidden = cuda->config.hidden,
    };
    return gb_k_permute(&a, cuda->compute);
}

int gb_cuda_dispatch(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement, gb_matrix *counts,
                     uint64_t *rank_tokens)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    (void)rows;
    (void)counts;    /* they stay here until they are due */
    GB_TRY(gb_cuda_commit_maps(cuda, placement));
    cuda->rank_tokens = rank_tokens;
    return cuda->waits ? GB_OK : gb_cuda_launch_dispatch(cuda, moe_layer);
}

int gb_cuda_experts(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    const gb_cuda_part *part = &cuda->part;
    (void)rows;
    if (cuda->waits) return GB_OK;
    gb_k_experts_args a = {
        .in = cuda->grouped, .offsets = cuda->group_offsets,
        .pool = {.memory = cuda->pool + (size_t)moe_layer * part->places * cuda->place_elements,
                 .place_of_slot = cuda->live.place + (size_t)moe_layer * part->slots, .places = part->places, .slots = part->slots,
                 .hidden = cuda->config.hidden, .width = cuda->config.expert_intermediate},
        .max_rows = cuda->share * gb_cuda_arrivals_per_row(cuda),
    };
    return gb_cuda_run_experts(cuda, &a);
}

int gb_cuda_combine(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    (void)rows;
    (void)moe_layer;
    if (cuda->waits) return GB_OK;
    gb_k_combine_args a = {.x = share_of_x(cuda), .out = cuda->expert_out, .grouped_of_route = cuda->grouped_of_route, .weights = cuda->weights,
                           .n = cuda->share, .K = cuda->config.experts_per_token, .hidden = cuda->config.hidden};
    if (cuda->world) GB_TRY(gb_cuda_bring_rows(cuda, &a));
    GB_TRY(gb_k_combine(&a, cuda->compute));
    return cuda->part.tensor_ranks > 1 ? gb_cuda_gather_x(cuda) : GB_OK;
}

/* A dense layer is one expert that takes every row. */
int gb_cuda_mlp(gb_ops *ops, const gb_row_set *rows, uint32_t layer)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    (void)rows;
    if (cuda->waits) return GB_OK;
    gb_k_experts_args a = {
        .in = cuda->h, .offsets = cuda->tables.dense_offsets,
        .pool = {.memory = cuda->layers[layer].mlp, .places = 1, .slots = 1, .hidden = cuda->config.hidden,
                 .width = cuda->config.dense_intermediate},
        .max_rows = cuda->share,
    };
    GB_TRY(gb_cuda_run_experts(cuda, &a));
    gb_k_combine_args c = {.x = share_of_x(cuda), .out = cuda->expert_out, .n = cuda->share, .K = 1, .hidden = cuda->config.hidden};
    GB_TRY(gb_k_combine(&c, cuda->compute));
    return cuda->part.tensor_ranks > 1 ? gb_cuda_gather_x(cuda) : GB_OK;
}

/* --- looking in --- */

int gb_cuda_read(gb_ops *ops, gb_readable what, uint32_t first, uint32_t n, void *out)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    const struct { const void *from; size_t row; } readable[] = {
        [GB_READ_X] = {cuda->x, cuda->config.hidden * sizeof(float)},
        [GB_READ_EXPERTS] = {cuda->experts, cuda->config.experts_per_token * sizeof(int32_t)},
        [GB_READ_WEIGHTS] = {cuda->weights, cuda->config.experts_per_token * sizeof(float)},
        [GB_READ_LOGITS] = {cuda->logits, cuda->config.vocab * sizeof(float)},
    };
    size_t row = readable[what].row;
    GB_TRY(gb_cuda_start(cuda));
    GB_TRY(gb_cuda_wait(cuda, cuda->compute));
    if (n) GB_CUDA(cudaMemcpy(out, (const char *)readable[what].from + first * row, n * row, cudaMemcpyDeviceToHost));
    return GB_OK;
}
