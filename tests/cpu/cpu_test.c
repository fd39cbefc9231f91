/* The CPU backend as a whole, on small generated checkpoints: what it refuses, what it holds in memory, and rows that are no
   numbers. What it computes is checked by tests/forward. */
#include "core/cpu/cpu.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/rng.h"
#include "core/forward/forward.h"
#include "tests/check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEASURES_MEMORY false    /* the sanitizer's own would be counted */
#else
#define MEASURES_MEMORY true
#endif

enum { TOKENS = 8, BLOCKS = 16, WORKS = 4 };

typedef struct toy {
    gb_model_config config;
    gb_weights *weights;
    gb_cpu_options options;
    gb_ops *ops;
    gb_executor *executor;
    gb_arena arena;
    gb_round round;
    gb_result result;
    gb_placement placement;
    void *memory[64];
    uint32_t n_memory;
} toy;

static gb_model_config toy_config(void)
{
    gb_model_config c = {.vocab = 48, .hidden = 32, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 16, .dense_intermediate = 16,
                         .expert_intermediate = 24, .experts = 4, .experts_per_token = 2, .norm_topk_prob = true, .layer_is_moe = {true},
                         .moe_layers = 1, .max_positions = 64, .norm_epsilon = 1e-6f, .dtype = GB_F32,
                         .rope = {.theta = 10000, .factor = 1, .attention_factor = 1}};
    return c;
}

/* scale 0 makes a tensor of zeros, -1 one of ones */
static float *toy_add(toy *t, const char *name, uint64_t rows, uint64_t columns, float scale)
{
    size_t n = rows * (columns ? columns : 1);
    float *data = malloc(n * sizeof *data);
    gb_rng rng;
    gb_rng_init(&rng, n + (size_t)name[strlen(name) - 12]);
    for (size_t i = 0; i < n; i++) data[i] = scale < 0 ? 1 : scale * (float)(gb_rng_uniform(&rng) * 2 - 1);
    t->memory[t->n_memory++] = data;
    gb_tensor tensor = {.name = name, .dtype = GB_F32, .n_dims = columns ? 2 : 1, .dims = {rows, columns},
                        .data = data, .bytes = n * sizeof *data};
    CHECK_EQ(gb_weights_add(t->weights, &tensor), GB_OK);
    return data;
}

static void toy_weights(toy *t)
{
    char name[96];
    CHECK_EQ(gb_weights_new(&t->weights), GB_OK);
    float *embedding = toy_add(t, "model.embed_tokens.weight", 48, 32, 1);
    embedding[5 * 32 + 1] = NAN;    /* token 5 is poison */
    toy_add(t, "lm_head.weight", 48, 32, 1);
    toy_add(t, "model.norm.weight", 32, 0, -1);
    toy_add(t, "model.layers.0.input_layernorm.weight", 32, 0, -1);
    toy_add(t, "model.layers.0.post_attention_layernorm.weight", 32, 0, -1);
    toy_add(t, "model.layers.0.self_attn.q_norm.weight", 16, 0, -1);
    toy_add(t, "model.layers.0.self_attn.k_norm.weight", 16, 0, -1);
    toy_add(t, "model.layers.0.self_attn.q_proj.weight", 32, 32, 1);
    toy_add(t, "model.layers.0.self_attn.k_proj.weight", 16, 32, 1);
    toy_add(t, "model.layers.0.self_attn.v_proj.weight", 16, 32, 1);
    toy_add(t, "model.layers.0.self_attn.o_proj.weight", 32, 32, 1);
    toy_add(t, "model.layers.0.mlp.gate.weight", 4, 32, 0);    /* every expert is as likely as any other */
    for (int e = 0; e < 4; e++) {
        snprintf(name, sizeof name, "model.layers.0.mlp.experts.%d.gate_proj.weight", e);
        toy_add(t, name, 24, 32, 1);
        snprintf(name, sizeof name, "model.layers.0.mlp.experts.%d.up_proj.weight", e);
        toy_add(t, name, 24, 32, 1);
        snprintf(name, sizeof name, "model.layers.0.mlp.experts.%d.down_proj.weight", e);
        toy_add(t, name, 32, 24, 1);
    }
}

static void toy_init(toy *t)
{
    gb_error err = {0};
    *t = (toy){.config = toy_config()};
    toy_weights(t);
    CHECK_EQ(gb_weights_check(t->weights, &t->config, &err), GB_OK);
    gb_cpu_options_default(&t->options, &t->config);
    t->options.limits.blocks_per_engine = BLOCKS;
    t->options.limits.max_works = WORKS;
    t->options.threads = 2;
}

static void toy_open(toy *t, const gb_forward_tap *tap)
{
    gb_error err = {0};
    toy_init(t);
    CHECK_EQ(gb_cpu_ops_new(&t->ops, &t->config, t->weights, &t->options, &err), GB_OK);
    CHECK_EQ(gb_forward_new(&t->executor, &t->config, t->ops, tap, &err), GB_OK);
    gb_arena_init(&t->arena);
    gb_round_limits limits = {.engines = 1, .ranks = 1, .max_works = WORKS, .max_tokens = 512, .moe_layers = 1, .experts = 4};
    CHECK_EQ(gb_round_init(&t->round, &t->arena, &limits), GB_OK);
    CHECK_EQ(gb_result_init(&t->result, &t->arena, &limits), GB_OK);
    CHECK_EQ(gb_placement_init(&t->placement, &t->arena, 1, 1, 4, 1, 0, &err), GB_OK);
    t->round.placement = &t->placement;
}

static void toy_close(toy *t)
{
    if (t->executor) gb_executor_free(t->executor);
    gb_arena_deinit(&t->arena);
    gb_weights_free(t->weights);
    for (uint32_t i = 0; i < t->n_memory; i++) free(t->memory[i]);
}

/* One prompt of n tokens in KV block `block`. */
static void toy_add_work(toy *t, const int32_t *tokens, uint32_t n, const int32_t *block)
{
    static const gb_sampling greedy = {.temperature = 0, .top_p = 1, .repetition_penalty = 1, .logprobs = -1, .max_tokens = 1};
    gb_batch *batch = &t->round.batches[0];
    batch->works[batch->n_works++] = (gb_work){.tokens = tokens, .n_tokens = n, .n_prompt = n, .count = n,
                                               .blocks = block, .samples = true, .sampling = &greedy};
    batch->n_tokens += n;
}

static void toy_run(toy *t)
{
    t->round.seq++;
    CHECK_EQ(gb_executor_run(t->executor, &t->round, &t->result), GB_OK);
}

/* --- limits --- */

static void check_refused(void (*spoil)(gb_cpu_options *), int status, const char *part)
{
    toy t;
    gb_ops *ops = NULL;
    gb_error err = {0};
    toy_init(&t);
    spoil(&t.options);
    CHECK_EQ(gb_cpu_ops_new(&ops, &t.config, t.weights, &t.options, &err), status);
    CHECK_CONTAINS(err.text, part);
    CHECK(ops == NULL);
    toy_close(&t);
}

static void no_blocks(gb_cpu_options *o) { o->limits.blocks_per_engine = 0; }
static void three_ranks(gb_cpu_options *o) { o->limits.ranks = 3; }
static void uneven_ranks(gb_cpu_options *o) { o->limits.engines = 2, o->limits.ranks = 3; }
static void narrow_batch(gb_cpu_options *o) { o->limits.max_tokens = 3; }
static void huge_batch(gb_cpu_options *o) { o->limits.engines = o->limits.ranks = 4, o->limits.max_tokens = 1u << 30; }
static void unknown_kernels(gb_cpu_options *o) { o->kernels = "abacus"; }

static void limits_that_do_not_fit_are_refused_with_a_remedy(void)
{
    check_refused(no_blocks, GB_EINVAL, "--kv-cache-memory");
    check_refused(three_ranks, GB_EINVAL, "4 experts cannot be split evenly over 3 ranks");
    check_refused(uneven_ranks, GB_EINVAL, "3 ranks for 2 engines");
    check_refused(narrow_batch, GB_EINVAL, "--max-num-batched-tokens");
    check_refused(huge_batch, GB_EINVAL, "--max-num-batched-tokens");
    check_refused(unknown_kernels, GB_EINVAL, "abacus");
}

static void only_bfloat16_checkpoints_run_in_bfloat16_by_default(void)
{
    gb_model_config config = toy_config();
    gb_cpu_options options;
    for (gb_dtype dtype = GB_BF16; dtype <= GB_F32; dtype++) {
        config.dtype = dtype;
        gb_cpu_options_default(&options, &config);
        CHECK_EQ(options.f32, dtype != GB_BF16);
        CHECK_EQ(options.limits.max_positions, 64);
    }
}

/* --- the router's tie rule --- */

static void check_equal_routes(void *self, const gb_row_set *rows, uint32_t moe_layer, const int32_t *experts, const float *weights)
{
    (void)moe_layer;
    for (uint32_t r = 0; r < rows->n; r++) {
        CHECK_EQ(experts[2 * r], 0);
        CHECK_EQ(experts[2 * r + 1], 1);
        CHECK_NEAR(weights[2 * r], 0.5, 1e-7);
        CHECK_NEAR(weights[2 * r + 1], 0.5, 1e-7);
    }
    *(uint32_t *)self += rows->n;
}

static void equal_router_logits_choose_the_lower_experts_first(void)
{
    toy t;
    uint32_t seen = 0;
    gb_forward_tap tap = {.self = &seen, .routes = check_equal_routes};
    toy_open(&t, &tap);
    toy_add_work(&t, (int32_t[]){1, 2, 3}, 3, (int32_t[]){0});
    toy_run(&t);
    CHECK_EQ(seen, 3);
    CHECK_EQ(gb_matrix_row(&t.result.counts, 0, 0)[0], 3);
    CHECK_EQ(gb_matrix_row(&t.result.counts, 0, 0)[2], 0);
    toy_close(&t);
}

/* --- rows that are no numbers --- */

static void a_work_without_numbers_gets_no_token_and_harms_nobody(void)
{
    static const int32_t good[] = {1, 2, 3, 4}, bad[] = {1, 5, 3, 4};
    static const int32_t blocks[] = {0, 1, 2};
    toy t;
    toy_open(&t, NULL);
    toy_add_work(&t, good, 4, &blocks[0]);
    toy_run(&t);
    int32_t token = t.result.sampled[0][0].token;
    toy_add_work(&t, bad, 4, &blocks[1]);
    toy_add_work(&t, good, 4, &blocks[2]);
    toy_run(&t);
    CHECK(token >= 0);
    CHECK_EQ(t.result.sampled[0][0].token, token);
    CHECK_EQ(t.result.sampled[0][1].token, -1);
    CHECK(!t.result.sampled[0][1].cancelled);
    CHECK_EQ(t.result.sampled[0][2].token, token);
    t.round.batches[0] = (gb_batch){.works = t.round.batches[0].works};
    toy_add_work(&t, good, 4, &blocks[1]);    /* the block that held the bad one's keys */
    toy_run(&t);
    CHECK_EQ(t.result.sampled[0][0].token, token);
    toy_close(&t);
}

/* --- memory --- */

static size_t resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*s %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void a_block_costs_what_the_cache_takes(void)
{
    toy t;
    toy_open(&t, NULL);
    CHECK_EQ(t.executor->info.kv_bytes, BLOCKS * gb_cpu_block_bytes(&t.config, true));
    CHECK_EQ(gb_cpu_block_bytes(&t.config, true), 16 * 2 * 16 * sizeof(float));
    CHECK_EQ(gb_cpu_block_bytes(&t.config, false), 16 * 2 * 16 * sizeof(uint16_t));
    toy_close(&t);
}

static void append(char *text, size_t capacity, size_t *data, const char *name, uint32_t rows, uint32_t columns)
{
    size_t used = strlen(text), bytes = (size_t)rows * (columns ? columns : 1) * 2;
    char shape[32];
    if (columns) snprintf(shape, sizeof shape, "%u,%u", rows, columns);
    else snprintf(shape, sizeof shape, "%u", rows);
    snprintf(text + used, capacity - used, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
             used ? "," : "{", name, shape, *data, *data + bytes);
    *data += bytes;
}

/* A checkpoint of about 96 MiB whose tensors are all zero: a header and a hole. Its directory is `dir`. */
static gb_model_config write_large_checkpoint(const char *dir)
{
    gb_model_config c = toy_config();
    c.hidden = 512, c.expert_intermediate = 512, c.experts = 64, c.dtype = GB_BF16;
    static char header[64 << 10];
    char path[4096], name[96];
    size_t data = 0;
    header[0] = 0;
    append(header, sizeof header, &data, "model.embed_tokens.weight", 48, 512);
    append(header, sizeof header, &data, "lm_head.weight", 48, 512);
    append(header, sizeof header, &data, "model.norm.weight", 512, 0);
    append(header, sizeof header, &data, "model.layers.0.input_layernorm.weight", 512, 0);
    append(header, sizeof header, &data, "model.layers.0.post_attention_layernorm.weight", 512, 0);
    append(header, sizeof header, &data, "model.layers.0.self_attn.q_norm.weight", 16, 0);
    append(header, sizeof header, &data, "model.layers.0.self_attn.k_norm.weight", 16, 0);
    append(header, sizeof header, &data, "model.layers.0.self_attn.q_proj.weight", 32, 512);
    append(header, sizeof header, &data, "model.layers.0.self_attn.k_proj.weight", 16, 512);
    append(header, sizeof header, &data, "model.layers.0.self_attn.v_proj.weight", 16, 512);
    append(header, sizeof header, &data, "model.layers.0.self_attn.o_proj.weight", 512, 32);
    append(header, sizeof header, &data, "model.layers.0.mlp.gate.weight", 64, 512);
    for (int e = 0; e < 64; e++)
        for (int part = 0; part < 3; part++) {
            snprintf(name, sizeof name, "model.layers.0.mlp.experts.%d.%s_proj.weight", e, (const char *[]){"gate", "up", "down"}[part]);
            append(header, sizeof header, &data, name, 512, 512);
        }
    strcat(header, "}");
    uint64_t length = strlen(header);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    CHECK(write(fd, &length, sizeof length) == sizeof length && write(fd, header, length) == (ssize_t)length);
    CHECK_EQ(ftruncate(fd, (off_t)(8 + length + data)), 0);
    close(fd);
    return c;
}

static void weights_are_in_memory_once_after_loading(void)
{
    char dir[] = "/tmp/gimbal_cpu_test_XXXXXX", path[64];
    gb_error err = {0};
    gb_weights *weights = NULL;
    gb_ops *ops = NULL;
    gb_cpu_options options;
    CHECK(mkdtemp(dir) != NULL);
    gb_model_config config = write_large_checkpoint(dir);
    CHECK_EQ(gb_weights_open(&weights, dir, &err), GB_OK);
    CHECK_EQ(gb_weights_check(weights, &config, &err), GB_OK);
    gb_cpu_options_default(&options, &config);
    options.limits.blocks_per_engine = 1000;
    options.threads = 2;
    CHECK_EQ(gb_cpu_ops_new(&ops, &config, weights, &options, &err), GB_OK);
    uint64_t packed = ops->info.weight_bytes, kv = ops->info.kv_bytes;
    CHECK(packed >= 96u << 20 && packed < 100u << 20);
    if (MEASURES_MEMORY) CHECK(resident_bytes() <= (size_t)(1.15 * (double)packed) + kv + (50u << 20));
    gb_ops_free(ops);
    gb_weights_free(weights);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    rmdir(dir);
}

static void rounds_do_not_make_memory_grow(void)
{
    toy t;
    int32_t tokens[60], blocks[] = {3, 1, 2, 0};
    for (int i = 0; i < 60; i++) tokens[i] = 6 + i % 40;
    toy_open(&t, NULL);
    size_t before = resident_bytes();
    for (uint32_t i = 0; i < 300; i++) {
        t.round.batches[0] = (gb_batch){.works = t.round.batches[0].works};
        toy_add_work(&t, tokens, 1 + i % 60, blocks);
        toy_run(&t);
    }
    if (MEASURES_MEMORY) CHECK(resident_bytes() <= before + (256u << 10));    /* stacks and counters of the first rounds */
    toy_close(&t);
}

TESTS(TEST(limits_that_do_not_fit_are_refused_with_a_remedy), TEST(only_bfloat16_checkpoints_run_in_bfloat16_by_default),
      TEST(equal_router_logits_choose_the_lower_experts_first), TEST(a_work_without_numbers_gets_no_token_and_harms_nobody),
      TEST(a_block_costs_what_the_cache_takes), TEST(weights_are_in_memory_once_after_loading), TEST(rounds_do_not_make_memory_grow))
