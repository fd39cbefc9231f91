/* q, k, v = h W_qkv^T + bias; q and k: RMS norm per head, then rotary positions; k and v go to the KV cache; each query head
   attends to its kv head's positions up to its own (the last `window` of them in sliding layers); x += attended W_o^T + bias.
   Threads share tiles of rows, then (tile, kv head) pairs. */
#include "core/cpu/context.h"

#include <math.h>

typedef struct attention_job {
    gb_cpu *cpu;
    const gb_row_set *rows;
    const gb_cpu_layer *layer;
    uint32_t index;    /* of the layer */
} attention_job;

/* One row of q | k | v, ready for attention. */
static void prepare_row(const attention_job *job, const gb_span *span, uint32_t offset)
{
    gb_cpu *cpu = job->cpu;
    const gb_model_config *c = &cpu->config;
    uint32_t row = span->row + offset, position = span->start + offset, half = c->head_dim / 2;
    float *q = cpu->qkv + (size_t)row * cpu->qkv_dim, *k = q + cpu->q_dim, *v = k + cpu->kv_dim;
    const float *cos = cpu->cos + (size_t)row * half, *sin = cpu->sin + (size_t)row * half;
    float scale = 1.0f / sqrtf((float)c->head_dim);
    if (job->layer->qkv_bias) cpu->vector->add(q, job->layer->qkv_bias, cpu->qkv_dim);
    for (uint32_t head = 0; head < c->heads; head++, q += c->head_dim) {
        cpu->vector->rms_norm(q, q, job->layer->q_norm, c->head_dim, c->norm_epsilon);
        cpu->vector->rotate(q, cos, sin, half, scale);
    }
    char *block = gb_cpu_kv_engine(&cpu->kv, job->index, span->engine) +
                  (size_t)span->blocks[position / GB_BLOCK_TOKENS] * cpu->kv.block_bytes;
    for (uint32_t head = 0; head < c->kv_heads; head++, k += c->head_dim, v += c->head_dim) {
        cpu->vector->rms_norm(k, k, job->layer->k_norm, c->head_dim, c->norm_epsilon);
        cpu->vector->rotate(k, cos, sin, half, 1.0f);
        gb_cpu_kv_write(&cpu->kv, block + head * cpu->kv.head_bytes, position % GB_BLOCK_TOKENS, k, v);
    }
}

static void prepare_tiles(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    attention_job *job = self;
    (void)thread;
    for (uint32_t t = begin; t < end; t++) {
        const gb_cpu_tile *tile = &job->cpu->tiles[t];
        for (uint32_t i = 0; i < tile->n; i++) prepare_row(job, &job->rows->spans[tile->span], tile->offset + i);
    }
}

static void attend_head(const attention_job *job, const gb_cpu_tile *tile, uint32_t kv_head, void *scratch)
{
    gb_cpu *cpu = job->cpu;
    const gb_model_config *c = &cpu->config;
    const gb_span *span = &job->rows->spans[tile->span];
    const float *query[GB_ATTEND_QUERIES];
    uint32_t position[GB_ATTEND_QUERIES], group = c->heads / c->kv_heads, first = span->row + tile->offset;
    float *out = (float *)((char *)scratch + gb_attend_scratch_bytes());
    for (uint32_t i = 0; i < tile->n * group; i++) {
        query[i] = cpu->qkv + (size_t)(first + i / group) * cpu->qkv_dim + (kv_head * group + i % group) * c->head_dim;
        position[i] = span->start + tile->offset + i / group;
    }
    gb_attend attend = {
        .n = tile->n * group, .query = query, .position = position,
        .window = c->layer_slides[job->index] ? c->sliding_window : 0,
        .head_dim = c->head_dim, .padded_dim = cpu->kv.padded_dim, .f32 = cpu->f32,
        .head = gb_cpu_kv_engine(&cpu->kv, job->index, span->engine) + kv_head * cpu->kv.head_bytes,
        .block_bytes = cpu->kv.block_bytes, .keys_bytes = cpu->kv.keys_bytes, .blocks = span->blocks,
    };
    cpu->vector->attend(out, &attend, scratch);
    for (uint32_t i = 0; i < attend.n; i++) {
        size_t at = (size_t)(first + i / group) * cpu->q_dim + (kv_head * group + i % group) * c->head_dim;
        gb_cpu_store_inputs(cpu, cpu->attended, at, out + (size_t)i * cpu->kv.padded_dim, c->head_dim);
    }
}

static void attend_items(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    attention_job *job = self;
    uint32_t kv_heads = job->cpu->config.kv_heads;
    for (uint32_t i = begin; i < end; i++)
        attend_head(job, &job->cpu->tiles[i / kv_heads], i % kv_heads, gb_cpu_scratch(job->cpu, thread));
}

int gb_cpu_attention(gb_ops *ops, const gb_row_set *rows, uint32_t layer)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    const gb_cpu_layer *l = &cpu->weights.layers[layer];
    uint32_t hidden = cpu->config.hidden;
    attention_job job = {cpu, rows, l, layer};
    gb_cpu_multiply(cpu, cpu->rung, cpu->qkv, cpu->qkv_dim, cpu->h_inputs, hidden, &l->qkv, rows->n);
    gb_threads_for(cpu->threads, cpu->n_tiles, 1, prepare_tiles, &job);
    gb_threads_for(cpu->threads, cpu->n_tiles * cpu->config.kv_heads, 1, attend_items, &job);
    for (uint32_t r = 0; l->o_bias && r < rows->n; r++) cpu->vector->add(gb_cpu_x(cpu, r), l->o_bias, hidden);
    gb_cpu_add_product(cpu, cpu->x, hidden, cpu->attended, cpu->q_dim, &l->o, rows->n);
    return GB_OK;
}
