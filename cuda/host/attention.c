/* q, k, v = h W_qkv^T; prepare (bias, norms, rotary positions, KV cache); tiles by chunks and whole; x += attended W_o^T + bias. */
#include "cuda/host/rank.h"

#include <math.h>

static gb_k_kv kv_of(const gb_cuda *cuda, uint32_t layer)
{
    const gb_ops_limits *limits = &cuda->base.info.limits;
    return (gb_k_kv){cuda->kv + layer * cuda->kv_layer_elements, cuda->part.engines, limits->blocks_per_engine, cuda->part.kv_heads,
                     cuda->config.head_dim};
}

static int prepare(gb_cuda *cuda, const gb_cuda_layer *l, gb_k_kv kv)
{
    gb_k_prepare_args a = {
        .q = cuda->q, .kv = kv, .qkv = cuda->qkv, .bias = l->qkv_bias, .q_norm = l->q_norm, .k_norm = l->k_norm, .angles = cuda->angles,
        .rows = gb_cuda_rows(cuda), .fault = cuda->fault, .heads = cuda->part.heads, .positions = cuda->base.info.limits.max_positions,
        .epsilon = cuda->config.norm_epsilon,
    };
    return gb_k_attention_prepare(&a, cuda->compute);
}

/* Chunks of the merges begin .. end - 1, side by side, then the merges. */
static int attend_merges(gb_cuda *cuda, gb_k_attention_args *a, const gb_cuda_tiles *device, uint32_t begin, uint32_t end, uint32_t first, uint32_t n)
{
    a->tiles = device->partials + first;
    a->n_tiles = n;
    GB_TRY(gb_k_attention_decode(a, cuda->compute));
    gb_k_merge_args m = {
        .out = cuda->attended, .partial = cuda->partial, .tiles = device->merges + begin, .first = first, .n_tiles = end - begin,
        .heads = a->heads, .kv_heads = a->kv.kv_heads, .head_dim = a->kv.head_dim,
    };
    return gb_k_attention_merge(&m, cuda->compute);
}

/* As many tiles at once as there is room for partial results; the stream keeps the launches apart. */
static int attend_chunks(gb_cuda *cuda, gb_k_attention_args *a, const gb_cuda_tiles *pinned, const gb_cuda_tiles *device)
{
    if (pinned->n_partials <= GB_CUDA_PARTIALS) return attend_merges(cuda, a, device, 0, pinned->n_merges, 0, pinned->n_partials);
    for (uint32_t begin = 0, end; begin < pinned->n_merges; begin = end) {
        uint32_t first = pinned->merges[begin].first, n = 0;
        for (end = begin; end < pinned->n_merges && (n == 0 || n + pinned->merges[end].chunks <= GB_CUDA_PARTIALS); end++)
            n += pinned->merges[end].chunks;
        GB_TRY(attend_merges(cuda, a, device, begin, end, first, n));
    }
    return GB_OK;
}

static int attend(gb_cuda *cuda, uint32_t layer, gb_k_kv kv)
{
    bool slides = cuda->config.layer_slides[layer];
    const gb_cuda_tiles *pinned = &cuda->pinned.tiles[slides], *device = &cuda->tables.tiles[slides];
    gb_k_attention_args a = {
        .out = cuda->attended, .partial = cuda->partial, .q = cuda->q, .kv = kv, .rows = gb_cuda_rows(cuda), .heads = cuda->part.heads,
        .window = slides ? cuda->config.sliding_window : 0, .scale = 1.0f / sqrtf((float)cuda->config.head_dim),
    };
    GB_TRY(attend_chunks(cuda, &a, pinned, device));
    a.tiles = device->wholes;
    a.n_tiles = pinned->n_wholes;
    return gb_k_attention_prefill(&a, cuda->compute);
}

int gb_cuda_attention(gb_ops *ops, const gb_row_set *rows, uint32_t layer)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    const gb_cuda_layer *l = &cuda->layers[layer];
    gb_k_kv kv = kv_of(cuda, layer);
    (void)rows;
    if (cuda->waits) return GB_OK;
    GB_TRY(gb_cuda_multiply(cuda, &cuda->qkv_product, cuda->qkv, cuda->h, l->qkv, NULL, cuda->rows, false));
    GB_TRY(prepare(cuda, l, kv));
    GB_TRY(attend(cuda, layer, kv));
    if (cuda->part.tensor_ranks > 1) return gb_cuda_project_together(cuda, l);
    return gb_cuda_multiply(cuda, &cuda->o_product, cuda->x, cuda->attended, l->o, l->o_bias, cuda->rows, true);
}
