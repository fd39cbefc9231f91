#include "cuda/bench/model.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/forward/backend.h"

gb_backend_open_fn gimbal_backend_open;

static const gb_sampling greedy = {.temperature = 0, .top_p = 1, .repetition_penalty = 1, .logprobs = -1, .max_tokens = 1};

static gb_model_config config_of(const gb_bench_shape *s, const gb_bench_model_limits *l)
{
    gb_model_config c = {
        .vocab = s->vocab, .hidden = s->hidden, .layers = l->layers, .heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->head_dim,
        .expert_intermediate = s->width, .experts = s->experts, .experts_per_token = s->K, .norm_topk_prob = true, .moe_layers = l->layers,
        .max_positions = l->positions, .norm_epsilon = 1e-6f, .rope = {.kind = GB_ROPE_DEFAULT, .theta = 1e6, .factor = 1, .attention_factor = 1},
        .dtype = GB_BF16, .bos_id = -1,
    };
    for (uint32_t i = 0; i < l->layers; i++) c.layer_is_moe[i] = true;
    return c;
}

/* --- weights: tensors that lie anywhere in one array of random numbers --- */

typedef struct source {
    gb_weights *weights;
    uint16_t *noise, *ones;
    size_t elements;           /* of noise: the largest tensor and a little more */
    int status;
} source;

enum { SLACK = 1 << 16 };      /* tensors begin at so many different places */

static void add(source *s, const char *name, uint64_t rows, uint64_t columns, bool ones)
{
    size_t n = rows * columns, offset = 0;
    for (const char *c = name; *c; c++) offset = offset * 31 + (unsigned char)*c;
    const gb_tensor t = {.name = name, .dtype = GB_BF16, .n_dims = columns > 1 ? 2 : 1, .dims = {rows, columns},
                         .data = ones ? s->ones : s->noise + gb_mix64(offset) % (s->elements - n), .bytes = n * 2};
    if (s->status == GB_OK) s->status = gb_weights_add(s->weights, &t);
}

static void add_layer(source *s, const gb_model_config *c, uint32_t layer)
{
    static const char *const norms[] = {"input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"};
    static const char *const projections[] = {"q", "k", "v", "o"}, *const parts[] = {"gate", "up", "down"};
    const uint64_t q = (uint64_t)c->heads * c->head_dim, kv = (uint64_t)c->kv_heads * c->head_dim;
    const uint64_t outputs[] = {q, kv, kv, c->hidden};
    char name[128];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "model.layers.%u.%s.weight", layer, norms[i]);
        add(s, name, i < 2 ? c->hidden : c->head_dim, 1, true);
        snprintf(name, sizeof name, "model.layers.%u.self_attn.%s_proj.weight", layer, projections[i]);
        add(s, name, outputs[i], i == 3 ? q : c->hidden, false);
    }
    snprintf(name, sizeof name, "model.layers.%u.mlp.gate.weight", layer);
    add(s, name, c->experts, c->hidden, false);
    for (uint32_t e = 0; e < c->experts; e++)
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.%s_proj.weight", layer, e, parts[i]);
            add(s, name, i == 2 ? c->hidden : c->expert_intermediate, i == 2 ? c->expert_intermediate : c->hidden, false);
        }
}

/* Signs and seven bits at random, from 1/32 to 1/16: what a projection's weights look like. */
static void make_noise(uint16_t *noise, size_t n, uint64_t seed)
{
    gb_rng rng;
    gb_rng_init(&rng, seed);
    for (size_t i = 0; i < n; i += 4) {
        const uint64_t word = gb_rng_next(&rng);
        for (size_t j = 0; j < 4 && i + j < n; j++) noise[i + j] = (uint16_t)((word >> 16 * j & 0x807f) | 0x3d00);
    }
}

static int make_weights(gb_bench *b, source *s, const gb_model_config *c)
{
    const size_t largest = (size_t)c->vocab * c->hidden > 3 * (size_t)c->expert_intermediate * c->hidden ? (size_t)c->vocab * c->hidden
                                                                                                        : 3 * (size_t)c->expert_intermediate * c->hidden;
    s->elements = largest + SLACK;
    s->noise = malloc(s->elements * 2);
    s->ones = malloc((size_t)c->hidden * 2);
    if (!s->noise || !s->ones || gb_weights_new(&s->weights) != GB_OK) return gb_k_fail(GB_ENOMEM, "out of memory for random weights");
    make_noise(s->noise, s->elements, b->seed);
    for (uint32_t i = 0; i < c->hidden; i++) s->ones[i] = 0x3f80;
    add(s, "model.embed_tokens.weight", c->vocab, c->hidden, false);
    add(s, "lm_head.weight", c->vocab, c->hidden, false);
    add(s, "model.norm.weight", c->hidden, 1, true);
    for (uint32_t layer = 0; layer < c->layers; layer++) add_layer(s, c, layer);
    return s->status;
}

/* --- opening --- */

static uint32_t blocks_of_one(const gb_bench_model_limits *l) { return (l->positions + GB_BLOCK_TOKENS - 1) / GB_BLOCK_TOKENS; }

static int open_executor(gb_bench *b, gb_bench_model *m, const gb_model_config *c)
{
    const gb_bench_model_limits *l = &m->limits;
    source s = {0};
    gb_ops *ops = NULL;
    gb_error err = {0};
    gb_backend_options options = {
        .limits = {.engines = 1, .ranks = 1, .private_ranks = true, .max_works = l->sequences, .max_tokens = l->max_tokens, .max_positions = l->positions,
                   .blocks_per_engine = l->sequences * blocks_of_one(l)},
        .experts = l->experts, .layout = l->layout, .exchange = l->exchange,
    };
    int status = make_weights(b, &s, c);
    if (status == GB_OK) status = gimbal_backend_open(GB_BACKEND_ABI)->ops_new(&ops, c, s.weights, &options, &err);
    if (status == GB_OK) status = gb_forward_new(&m->executor, c, ops, NULL, &err);
    gb_weights_free(s.weights);
    free(s.noise);
    free(s.ones);
    return status == GB_OK || !err.text[0] ? status : gb_k_fail(status, "%s", err.text);
}

static int take_tables(gb_bench_model *m, const gb_model_config *c)
{
    const gb_bench_model_limits *l = &m->limits;
    const gb_round_limits limits = {.engines = 1, .ranks = 1, .max_works = l->sequences, .max_tokens = l->max_tokens, .moe_layers = c->moe_layers,
                                    .experts = c->experts};
    m->tokens = GB_ARENA_NEW(&m->arena, int32_t, (size_t)l->sequences * l->positions);
    m->known = GB_ARENA_NEW(&m->arena, uint32_t, l->sequences);
    m->computed = GB_ARENA_NEW(&m->arena, uint32_t, l->sequences);
    m->blocks = GB_ARENA_NEW(&m->arena, int32_t, (size_t)l->sequences * blocks_of_one(l));
    if (!m->tokens || !m->known || !m->computed || !m->blocks) return gb_k_fail(GB_ENOMEM, "out of memory for the tables of a model");
    for (uint32_t i = 0; i < l->sequences * blocks_of_one(l); i++) m->blocks[i] = (int32_t)i;
    GB_TRY(gb_round_init(&m->round, &m->arena, &limits));
    GB_TRY(gb_result_init(&m->result, &m->arena, &limits));
    GB_TRY(gb_placement_init(&m->placement, &m->arena, c->moe_layers, 1, c->experts, 1, 0, NULL));
    m->round.placement = &m->placement;
    m->round.counts_due = true;
    return GB_OK;
}

int gb_bench_open_model(gb_bench *b, gb_bench_model *m, const gb_bench_model_limits *limits)
{
    *m = (gb_bench_model){.limits = *limits};
    gb_arena_init(&m->arena);
    const gb_model_config config = config_of(&b->shape, limits);
    int status = take_tables(m, &config);
    if (status == GB_OK) status = open_executor(b, m, &config);
    if (status != GB_OK) gb_bench_close_model(m);
    return status;
}

void gb_bench_close_model(gb_bench_model *m)
{
    if (m->executor) gb_executor_free(m->executor);
    gb_arena_deinit(&m->arena);
    *m = (gb_bench_model){0};
}

/* --- rounds --- */

void gb_bench_prompt(gb_bench *b, gb_bench_model *m, uint32_t sequence, uint32_t n, uint64_t seed)
{
    gb_rng rng;
    gb_rng_init(&rng, seed);
    for (uint32_t i = 0; i < n; i++) m->tokens[(size_t)sequence * m->limits.positions + i] = (int32_t)gb_rng_below(&rng, b->shape.vocab);
    m->known[sequence] = n;
    m->computed[sequence] = 0;
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fill_batch(gb_bench_model *m, uint32_t first, uint32_t n)
{
    gb_batch *batch = &m->round.batches[0];
    *batch = (gb_batch){.works = batch->works};
    for (uint32_t s = first; s < first + n && batch->n_tokens < m->limits.max_tokens; s++) {
        uint32_t count = m->known[s] - m->computed[s], room = m->limits.max_tokens - batch->n_tokens;
        if (count > room) count = room;
        batch->works[batch->n_works] = (gb_work){
            .id = s + 1, .tokens = m->tokens + (size_t)s * m->limits.positions, .n_tokens = m->known[s], .n_prompt = m->known[s],
            .start = m->computed[s], .count = count, .blocks = m->blocks + (size_t)s * blocks_of_one(&m->limits),
            .samples = m->computed[s] + count == m->known[s], .sampling = &greedy,
        };
        batch->n_tokens += count;
        batch->n_works++;
    }
}

int gb_bench_step(gb_bench_model *m, uint32_t first, uint32_t n, double *seconds)
{
    fill_batch(m, first, n);
    m->round.seq++;
    const double begin = seconds_now();
    int status = gb_executor_run(m->executor, &m->round, &m->result);
    *seconds = seconds_now() - begin;
    if (status != GB_OK) return status;
    const gb_batch *batch = &m->round.batches[0];
    for (uint32_t i = 0; i < batch->n_works; i++) {
        const gb_work *w = &batch->works[i];
        const uint32_t s = first + i;
        const int32_t token = m->result.sampled[0][i].token;
        m->computed[s] += w->count;
        if (!w->samples) continue;
        if (token < 0) return gb_k_fail(GB_EINTERNAL, "sequence %u got a token that is none at position %u", s, m->known[s]);
        if (m->known[s] < m->limits.positions) m->tokens[(size_t)s * m->limits.positions + m->known[s]++] = token;
    }
    return GB_OK;
}

int gb_bench_copy_expert(gb_bench_model *m)
{
    const gb_copy_list list = {.n = 1, .copies = {{.from = 0, .to = (int32_t)m->executor->info.experts, .bytes = m->executor->info.expert_bytes}}};
    return gb_executor_copy(m->executor, &list);
}
