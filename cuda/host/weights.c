/* From a checkpoint's tensors to device memory: bfloat16 matrices as they are in the file (q, k and v one behind the other, gate, up and
   down of an expert in its place), float32 for norms, biases and routers. A rank of a world takes its heads and its experts. One tensor at a time through host memory; the source's pages
   are given back layer by layer. */
#include "cuda/host/context.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/assert.h"

typedef struct loader {
    gb_cuda *cuda;
    const gb_weights *weights;
    float *floats;             /* one tensor */
    size_t capacity;           /* floats */
} loader;

static const gb_tensor *find(const loader *l, const char *format, uint32_t layer, const char *part)
{
    char name[160];
    snprintf(name, sizeof name, format, layer, part);
    const gb_tensor *t = gb_weights_find(l->weights, name);
    GB_ASSERT(t);    /* gb_weights_check has seen it */
    return t;
}

static size_t elements(const gb_tensor *t)
{
    size_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) n *= t->dims[i];
    return n;
}

static int read_floats(loader *l, const gb_tensor *t)
{
    size_t n = elements(t);
    if (n > l->capacity) {
        float *floats = realloc(l->floats, n * sizeof *floats);
        if (!floats) return gb_k_fail(GB_ENOMEM, "out of memory for tensor %s", t->name);
        l->floats = floats;
        l->capacity = n;
    }
    gb_tensor_read_f32(t, l->floats, 0, n);
    return GB_OK;
}

static int load_f32(loader *l, float *to, const gb_tensor *t)
{
    GB_TRY(read_floats(l, t));
    GB_CUDA(cudaMemcpy(to, l->floats, elements(t) * sizeof *to, cudaMemcpyHostToDevice));
    return GB_OK;
}

static int load_bf16(loader *l, uint16_t *to, const gb_tensor *t)
{
    size_t n = elements(t);
    if (t->dtype == GB_BF16) {
        GB_CUDA(cudaMemcpy(to, t->data, n * sizeof *to, cudaMemcpyHostToDevice));
        return GB_OK;
    }
    GB_TRY(read_floats(l, t));
    uint16_t *rounded = (uint16_t *)l->floats;    /* from the front, behind what is read */
    for (size_t i = 0; i < n; i++) rounded[i] = gb_f32_to_bf16(l->floats[i]);
    GB_CUDA(cudaMemcpy(to, rounded, n * sizeof *to, cudaMemcpyHostToDevice));
    return GB_OK;
}

/* This rank's part of rows that are split evenly over the ranks of an engine. */
static int load_bf16_rows(loader *l, uint16_t *to, const gb_tensor *t)
{
    const gb_cuda_part *part = &l->cuda->part;
    gb_tensor rows = *t;
    rows.dims[0] /= part->tensor_ranks;
    rows.bytes /= part->tensor_ranks;
    rows.data = (const char *)t->data + part->tensor_rank * elements(&rows) * gb_dtype_bytes(t->dtype);
    return load_bf16(l, to, &rows);
}

static int load_f32_rows(loader *l, float *to, const gb_tensor *t)
{
    const gb_cuda_part *part = &l->cuda->part;
    size_t n = elements(t) / part->tensor_ranks;
    GB_TRY(read_floats(l, t));
    GB_CUDA(cudaMemcpy(to, l->floats + part->tensor_rank * n, n * sizeof *to, cudaMemcpyHostToDevice));
    return GB_OK;
}

/* And of columns. */
static int load_bf16_columns(loader *l, uint16_t *to, const gb_tensor *t)
{
    const gb_cuda_part *part = &l->cuda->part;
    size_t rows = t->dims[0], columns = t->dims[1], n = columns / part->tensor_ranks, first = part->tensor_rank * n;
    if (part->tensor_ranks == 1) return load_bf16(l, to, t);
    GB_TRY(read_floats(l, t));
    uint16_t *rounded = (uint16_t *)l->floats;    /* from the front, behind what is read */
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < n; i++) rounded[row * n + i] = gb_f32_to_bf16(l->floats[row * columns + first + i]);
    GB_CUDA(cudaMemcpy(to, rounded, rows * n * sizeof *to, cudaMemcpyHostToDevice));
    return GB_OK;
}

/* gate, up, down */
static int load_mlp(loader *l, uint16_t *to, uint32_t layer, const char *prefix, uint32_t width)
{
    char format[96];
    size_t matrix = (size_t)width * l->cuda->config.hidden;
    snprintf(format, sizeof format, "model.layers.%%u.mlp.%s%%s_proj.weight", prefix);
    GB_TRY(load_bf16(l, to, find(l, format, layer, "gate")));
    GB_TRY(load_bf16(l, to + matrix, find(l, format, layer, "up")));
    return load_bf16(l, to + 2 * matrix, find(l, format, layer, "down"));
}

/* Experts start where the linear placement has them. */
static int load_moe(loader *l, gb_cuda_layer *to, float *router, uint32_t layer, uint32_t moe_layer)
{
    const gb_cuda *cuda = l->cuda;
    const gb_model_config *c = &cuda->config;
    uint32_t ranks = cuda->base.info.limits.ranks, per_rank = c->experts / ranks, slots_per_rank = cuda->base.info.slots / ranks;
    GB_TRY(load_f32(l, router, find(l, "model.layers.%u.mlp.%s.weight", layer, "gate")));
    to->router = router;
    for (uint32_t e = 0; e < c->experts; e++) {
        char prefix[32];
        uint32_t place = cuda->base.info.limits.private_ranks ? e / per_rank * slots_per_rank + e % per_rank : e;
        int32_t local = gb_cuda_local_place(cuda, (int32_t)place);
        if (local < 0) continue;    /* another rank has it */
        snprintf(prefix, sizeof prefix, "experts.%u.", e);
        uint16_t *at = cuda->pool + ((size_t)moe_layer * cuda->part.places + (uint32_t)local) * cuda->place_elements;
        GB_TRY(load_mlp(l, at, layer, prefix, c->expert_intermediate));
    }
    return GB_OK;
}

/* The memory of one layer's part of an array. */
typedef struct arrays {
    float *norms;              /* [layers] attention, mlp, q, k, qkv bias, o bias */
    uint16_t *matrices;        /* [layers] qkv, o */
    uint16_t *dense;           /* [dense layers] */
    float *routers;            /* [moe_layers] */
    size_t norm_floats, matrix_elements, dense_elements;
} arrays;

static int load_attention(loader *l, gb_cuda_layer *to, float *floats, uint16_t *matrices, uint32_t layer)
{
    const gb_cuda *cuda = l->cuda;
    const gb_model_config *c = &cuda->config;
    const char *norm = "model.layers.%u.%s_layernorm.weight", *weight = "model.layers.%u.self_attn.%s.weight";
    const char *bias = "model.layers.%u.self_attn.%s.bias";
    float *mlp_norm = floats + c->hidden, *q_norm = mlp_norm + c->hidden, *k_norm = q_norm + c->head_dim;
    float *qkv_bias = k_norm + c->head_dim, *o_bias = qkv_bias + cuda->qkv_dim;
    uint16_t *k = matrices + (size_t)cuda->q_dim * c->hidden, *v = k + (size_t)cuda->kv_dim * c->hidden;
    uint16_t *o = v + (size_t)cuda->kv_dim * c->hidden;
    *to = (gb_cuda_layer){.attention_norm = floats, .mlp_norm = mlp_norm, .q_norm = q_norm, .k_norm = k_norm, .qkv = matrices, .o = o};
    GB_TRY(load_f32(l, floats, find(l, norm, layer, "input")));
    GB_TRY(load_f32(l, mlp_norm, find(l, norm, layer, "post_attention")));
    GB_TRY(load_f32(l, q_norm, find(l, weight, layer, "q_norm")));
    GB_TRY(load_f32(l, k_norm, find(l, weight, layer, "k_norm")));
    GB_TRY(load_bf16_rows(l, matrices, find(l, weight, layer, "q_proj")));
    GB_TRY(load_bf16_rows(l, k, find(l, weight, layer, "k_proj")));
    GB_TRY(load_bf16_rows(l, v, find(l, weight, layer, "v_proj")));
    GB_TRY(load_bf16_columns(l, o, find(l, weight, layer, "o_proj")));
    if (!c->attention_bias) return GB_OK;
    to->qkv_bias = qkv_bias;
    to->o_bias = o_bias;
    GB_TRY(load_f32_rows(l, qkv_bias, find(l, bias, layer, "q_proj")));
    GB_TRY(load_f32_rows(l, qkv_bias + cuda->q_dim, find(l, bias, layer, "k_proj")));
    GB_TRY(load_f32_rows(l, qkv_bias + cuda->q_dim + cuda->kv_dim, find(l, bias, layer, "v_proj")));
    return load_f32(l, o_bias, find(l, bias, layer, "o_proj"));
}

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

static int take_arrays(gb_cuda *cuda, arrays *a)
{
    const gb_model_config *c = &cuda->config;
    size_t pool = (size_t)c->moe_layers * cuda->part.places * cuda->place_elements;
    a->norm_floats = round_up(3 * c->hidden + 2 * c->head_dim + cuda->qkv_dim, 4);
    a->matrix_elements = (size_t)(cuda->qkv_dim + cuda->q_dim) * c->hidden;
    a->dense_elements = (size_t)3 * c->dense_intermediate * c->hidden;
    GB_TRY(gb_cuda_take(cuda, &a->norms, c->layers * a->norm_floats, sizeof(float)));
    GB_TRY(gb_cuda_take(cuda, &a->matrices, c->layers * a->matrix_elements, sizeof(uint16_t)));
    GB_TRY(gb_cuda_take(cuda, &a->dense, (c->layers - c->moe_layers) * a->dense_elements, sizeof(uint16_t)));
    GB_TRY(gb_cuda_take(cuda, &a->routers, (size_t)c->moe_layers * c->experts * c->hidden, sizeof(float)));
    GB_TRY(gb_cuda_take(cuda, &cuda->pool, pool, sizeof(uint16_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->embedding, (size_t)c->vocab * c->hidden, sizeof(uint16_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->final_norm, c->hidden, sizeof(float)));
    cuda->head = cuda->embedding;
    if (!c->tied_embeddings) GB_TRY(gb_cuda_take(cuda, &cuda->head, (size_t)c->vocab * c->hidden, sizeof(uint16_t)));
    size_t head = c->tied_embeddings ? 0 : (size_t)c->vocab * c->hidden;
    cuda->base.info.weight_bytes = sizeof(uint16_t) * (c->layers * a->matrix_elements + (c->layers - c->moe_layers) * a->dense_elements + pool +
                                                       (size_t)c->vocab * c->hidden + head) +
                                   sizeof(float) * (c->layers * a->norm_floats + (size_t)c->moe_layers * c->experts * c->hidden + c->hidden);
    return GB_OK;
}

static int load_ends(loader *l)
{
    gb_cuda *cuda = l->cuda;
    GB_TRY(load_f32(l, cuda->final_norm, gb_weights_find(l->weights, "model.norm.weight")));
    GB_TRY(load_bf16(l, cuda->embedding, gb_weights_find(l->weights, "model.embed_tokens.weight")));
    if (!cuda->config.tied_embeddings) GB_TRY(load_bf16(l, cuda->head, gb_weights_find(l->weights, "lm_head.weight")));
    gb_weights_release(l->weights);
    return GB_OK;
}

static int load_layers(loader *l, const arrays *a)
{
    gb_cuda *cuda = l->cuda;
    const gb_model_config *c = &cuda->config;
    GB_TRY(load_ends(l));
    for (uint32_t layer = 0, moe_layer = 0; layer < c->layers; layer++) {
        gb_cuda_layer *to = &cuda->layers[layer];
        GB_TRY(load_attention(l, to, a->norms + layer * a->norm_floats, a->matrices + layer * a->matrix_elements, layer));
        if (c->layer_is_moe[layer]) {
            GB_TRY(load_moe(l, to, a->routers + (size_t)moe_layer * c->experts * c->hidden, layer, moe_layer));
            moe_layer++;
        } else {
            uint16_t *mlp = a->dense + (layer - moe_layer) * a->dense_elements;
            GB_TRY(load_mlp(l, mlp, layer, "", c->dense_intermediate));
            to->mlp = mlp;
        }
        gb_weights_release(l->weights);
    }
    return GB_OK;
}

int gb_cuda_load_weights(gb_cuda *cuda, const gb_weights *weights)
{
    loader l = {.cuda = cuda, .weights = weights};
    arrays a;
    cuda->layers = GB_ARENA_NEW(&cuda->arena, gb_cuda_layer, cuda->config.layers);
    if (!cuda->layers) return gb_k_fail(GB_ENOMEM, "out of memory for the tables of weights");
    int status = take_arrays(cuda, &a);
    if (status == GB_OK) status = load_layers(&l, &a);
    free(l.floats);
    return status;
}
