#include "core/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cpu/context.h"
#include "core/model/sampler.h"

enum { HEAD_ROWS = 64 };    /* rows of logits at once: enough to be bound by arithmetic */

void gb_cpu_options_default(gb_cpu_options *options, const gb_model_config *config)
{
    *options = (gb_cpu_options){
        .limits = {.engines = 1, .ranks = 1, .max_works = 64, .max_tokens = 512, .max_positions = config->max_positions},
        .kernels = "auto",
        .f32 = config->dtype != GB_BF16,
    };
}

size_t gb_cpu_block_bytes(const gb_model_config *config, bool f32)
{
    gb_cpu_kv kv;
    gb_cpu_kv_init(&kv, config->layers, 1, 1, config->kv_heads, config->head_dim, f32);
    return gb_cpu_kv_bytes(&kv);
}

/* --- reading activations --- */

static int cpu_read(gb_ops *ops, gb_readable what, uint32_t first, uint32_t n, void *out)
{
    const gb_cpu *cpu = (const gb_cpu *)ops;
    const struct { const void *from; size_t row; } readable[] = {
        [GB_READ_X] = {cpu->x, cpu->config.hidden * sizeof(float)},
        [GB_READ_EXPERTS] = {cpu->experts, cpu->config.experts_per_token * sizeof(int32_t)},
        [GB_READ_WEIGHTS] = {cpu->expert_weights, cpu->config.experts_per_token * sizeof(float)},
        [GB_READ_LOGITS] = {cpu->logits, cpu->config.vocab * sizeof(float)},
    };
    memcpy(out, (const char *)readable[what].from + first * readable[what].row, n * readable[what].row);
    return GB_OK;
}

/* --- life --- */

static void cpu_free(gb_ops *ops)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    gb_memory_unmap(cpu->weights.region.base, cpu->weights.bytes);
    if (cpu->kv.memory) gb_memory_unmap(cpu->kv.memory, gb_cpu_kv_bytes(&cpu->kv));
    gb_memory_unmap(cpu->activations, cpu->activation_bytes);
    if (cpu->threads) gb_threads_free(cpu->threads);
    gb_arena_deinit(&cpu->arena);
    free(cpu);
}

static const gb_ops_table cpu_table = {
    .embed = gb_cpu_embed, .compact = gb_cpu_compact, .norm = gb_cpu_norm, .attention = gb_cpu_attention,
    .mlp = gb_cpu_dense_mlp, .router = gb_cpu_router, .dispatch = gb_cpu_dispatch, .experts = gb_cpu_experts,
    .combine = gb_cpu_combine, .head = gb_cpu_head, .sample = gb_cpu_sample, .copy_expert = gb_cpu_copy_expert,
    .checksum = gb_cpu_checksum,
    .read = cpu_read, .cancel = gb_cpu_cancel, .cancelled = gb_cpu_cancelled, .free = cpu_free,
};

/* --- memory --- */

static size_t max_of(size_t a, size_t b) { return a > b ? a : b; }

/* Every activation, in one region so that it can be measured before it is taken. */
static void place_activations(gb_cpu *cpu, gb_region *region)
{
    const gb_model_config *c = &cpu->config;
    size_t rows = cpu->max_rows, routes = rows * c->experts_per_token, input = gb_cpu_input_bytes(cpu);
    size_t head_rows = cpu->base.info.head_rows, slots = cpu->base.info.slots, half = c->head_dim / 2;
    cpu->x = gb_region_take(region, rows * c->hidden * sizeof(float));
    cpu->h = gb_region_take(region, rows * c->hidden * sizeof(float));
    cpu->h_inputs = cpu->bf16_inputs ? gb_region_take(region, rows * c->hidden * input) : cpu->h;
    cpu->cos = gb_region_take(region, rows * half * sizeof(float));
    cpu->sin = gb_region_take(region, rows * half * sizeof(float));
    cpu->tiles = gb_region_take(region, rows * sizeof *cpu->tiles);
    cpu->qkv = gb_region_take(region, rows * cpu->qkv_dim * sizeof(float));
    cpu->attended = gb_region_take(region, rows * cpu->q_dim * input);
    cpu->router_logits = gb_region_take(region, rows * c->experts * sizeof(float));
    cpu->experts = gb_region_take(region, routes * sizeof *cpu->experts);
    cpu->expert_weights = gb_region_take(region, routes * sizeof *cpu->expert_weights);
    cpu->slot_fill = gb_region_take(region, slots * sizeof *cpu->slot_fill);
    cpu->row_of_grouped = gb_region_take(region, routes * sizeof *cpu->row_of_grouped);
    cpu->grouped_of_route = gb_region_take(region, routes * sizeof *cpu->grouped_of_route);
    cpu->pieces = gb_region_take(region, (slots + routes / GB_CPU_BLOCK_ROWS) * sizeof *cpu->pieces);
    cpu->gated = gb_region_take(region, max_of(routes * c->expert_intermediate, rows * c->dense_intermediate) * input);
    cpu->expert_out = gb_region_take(region, routes * c->hidden * sizeof(float));
    cpu->head_x = gb_region_take(region, head_rows * c->hidden * sizeof(float));
    cpu->logits = gb_region_take(region, head_rows * c->vocab * sizeof(float));
    cpu->thread_scratch = gb_region_take(region, gb_threads_count(cpu->threads) * cpu->thread_scratch_bytes);
}

/* Touched now, so that memory is flat from then on. */
static int take_activations(gb_cpu *cpu)
{
    gb_region measure = {0};
    cpu->thread_scratch_bytes = max_of(gb_attend_scratch_bytes() + GB_ATTEND_QUERIES * cpu->kv.padded_dim * sizeof(float),
                                       gb_sampler_scratch_bytes(cpu->config.vocab));
    place_activations(cpu, &measure);
    cpu->activation_bytes = measure.used;
    cpu->activations = gb_memory_map(measure.used);
    if (!cpu->activations) return GB_ENOMEM;
    memset(cpu->activations, 0, measure.used);
    gb_region region = {.base = cpu->activations};
    place_activations(cpu, &region);
    return GB_OK;
}

static void touch_blocks(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    gb_cpu_kv *kv = self;
    (void)thread;
    memset(kv->memory + begin * kv->block_bytes, 0, (end - begin) * kv->block_bytes);
}

static int take_kv(gb_cpu *cpu)
{
    const gb_ops_limits *l = &cpu->base.info.limits;
    gb_cpu_kv_init(&cpu->kv, cpu->config.layers, l->engines, l->blocks_per_engine, cpu->config.kv_heads, cpu->config.head_dim, cpu->f32);
    cpu->kv.memory = gb_memory_map(gb_cpu_kv_bytes(&cpu->kv));
    if (!cpu->kv.memory) return GB_ENOMEM;
    size_t blocks = gb_cpu_kv_bytes(&cpu->kv) / cpu->kv.block_bytes;
    gb_threads_for(cpu->threads, (uint32_t)blocks, 64, touch_blocks, &cpu->kv);
    return GB_OK;
}

static int take_memory(gb_cpu *cpu, gb_error *err)
{
    cpu->inv_freq = GB_ARENA_NEW(&cpu->arena, double, cpu->config.head_dim / 2);
    if (!cpu->inv_freq || gb_cpu_flags_new(cpu) != GB_OK) return gb_fail(err, GB_ENOMEM, "out of memory for the tables of the model");
    gb_rope_frequencies(&cpu->config, cpu->inv_freq, &cpu->attention_factor);
    if (take_kv(cpu) != GB_OK)
        return gb_fail(err, GB_ENOMEM, "out of memory for %zu bytes of KV cache: lower --kv-cache-memory", gb_cpu_kv_bytes(&cpu->kv));
    if (take_activations(cpu) != GB_OK)
        return gb_fail(err, GB_ENOMEM, "out of memory for %zu bytes of activations: lower --max-num-batched-tokens", cpu->activation_bytes);
    return GB_OK;
}

/* --- opening --- */

static void fill_info(gb_cpu *cpu, const gb_cpu_options *options)
{
    const gb_model_config *c = &cpu->config;
    const gb_ops_limits *l = &options->limits;
    gb_ops_info *info = &cpu->base.info;
    *info = (gb_ops_info){
        .backend = "cpu", .limits = *l, .layers = c->layers, .moe_layers = c->moe_layers, .experts = c->experts,
        .experts_per_token = c->experts_per_token, .slots = c->experts + l->ranks * l->spare_slots, .hidden = c->hidden,
        .vocab = c->vocab, .threads = gb_threads_count(cpu->threads),
    };
    info->places = l->private_ranks ? info->slots + l->ranks : c->experts;
    uint32_t works = l->engines * l->max_works;
    info->head_rows = works < HEAD_ROWS ? works : HEAD_ROWS;
    snprintf(info->kernels, sizeof info->kernels, "%s, %s", cpu->rung->name, cpu->f32 ? "float32" : "bfloat16");
}

static void fill_shape(gb_cpu *cpu, const gb_cpu_options *options)
{
    const gb_model_config *c = &cpu->config;
    cpu->f32 = options->f32;
    cpu->bf16_inputs = cpu->rung->bf16_inputs && !cpu->f32;
    cpu->max_rows = options->limits.engines * options->limits.max_tokens;
    cpu->q_dim = c->heads * c->head_dim;
    cpu->kv_dim = c->kv_heads * c->head_dim;
    cpu->qkv_dim = cpu->q_dim + 2 * cpu->kv_dim;
    uint32_t group = c->heads / c->kv_heads;
    cpu->tile_rows = group < GB_ATTEND_QUERIES ? GB_ATTEND_QUERIES / group : 1;
}

static uint64_t bytes_of(const gb_cpu_mlp *expert)
{
    const gb_packed *last = &expert->down;
    return (uint64_t)((char *)last->data - (char *)expert->gate_up.data) + gb_packed_bytes(last->n, last->k, last->f32);
}

static int open_cpu(gb_cpu *cpu, const gb_weights *weights, const gb_cpu_options *options, gb_error *err)
{
    int rc = GB_OK;
    if (options->rung) cpu->rung = options->rung;
    else rc = gb_matmul_choose(&cpu->rung, options->kernels, err);
    if (rc == GB_OK) rc = gb_threads_new(&cpu->threads, options->threads ? options->threads : gb_threads_available(), err);
    if (rc != GB_OK) return rc;
    cpu->vector = gb_vector_for(cpu->rung->name);
    cpu->head_rung = gb_matmul_with_f32_inputs(cpu->rung);
    fill_shape(cpu, options);
    fill_info(cpu, options);
    rc = gb_cpu_pack(cpu, weights, err);
    if (rc == GB_OK) rc = take_memory(cpu, err);
    cpu->base.info.weight_bytes = cpu->weights.bytes;
    cpu->base.info.expert_bytes = cpu->config.moe_layers ? bytes_of(&cpu->weights.moe[0].places[0]) : 0;
    cpu->base.info.kv_bytes = gb_cpu_kv_bytes(&cpu->kv);
    return rc;
}

int gb_cpu_ops_new(gb_ops **out, const gb_model_config *config, const gb_weights *weights, const gb_cpu_options *options,
                   gb_error *err)
{
    int rc = gb_backend_check_limits(&options->limits, config, err);
    if (rc != GB_OK) return rc;
    gb_cpu *cpu = calloc(1, sizeof *cpu);
    if (!cpu) return gb_fail(err, GB_ENOMEM, "out of memory for the CPU backend");
    cpu->base.table = &cpu_table;
    cpu->config = *config;
    gb_arena_init(&cpu->arena);
    rc = open_cpu(cpu, weights, options, err);
    if (rc == GB_OK) *out = &cpu->base;
    else cpu_free(&cpu->base);
    return rc;
}

/* --- behind the seam of backends --- */

static int backend_ops_new(gb_ops **out, const gb_model_config *config, const gb_weights *weights, const gb_backend_options *options,
                           gb_error *err)
{
    gb_cpu_options cpu = {.limits = options->limits, .threads = options->threads, .kernels = options->kernels, .f32 = options->f32};
    return gb_cpu_ops_new(out, config, weights, &cpu, err);
}

const gb_backend *gb_cpu_backend(void)
{
    static const gb_backend backend = {
        .abi = GB_BACKEND_ABI, .sizes = GB_BACKEND_SIZES, .name = "cpu", .block_bytes = gb_cpu_block_bytes, .ops_new = backend_ops_new,
    };
    return &backend;
}
