#include "bindings/cli/synthetic.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/rng.h"
#include "core/cpu/memory.h"

typedef struct shape {
    const char *name;
    uint32_t hidden, layers, experts, experts_per_token, intermediate, heads, kv_heads, head_dim, vocab;
} shape;

static const shape shapes[] = {
    {"m1b", 1024, 12, 64, 8, 384, 16, 4, 128, 32000},
    {"tiny", 256, 6, 32, 4, 128, 4, 2, 64, 4096},
};

enum { CONFIG_BYTES = 1024, CHUNK = 1 << 16 };

static const uint16_t BF16_ONE = 0x3f80;
static const double ROUTER_GAIN = 1.5, EMBEDDING_SCALE = 0.5;

/* ---- values ---- */

static uint64_t fnv1a(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

void gb_synthetic_values(uint16_t *out, const char *name, double scale, size_t first, size_t n)
{
    uint64_t h = fnv1a(name);
    float factor = (float)(scale / 37837.22);
    for (size_t i = 0; i < n; i++) {
        uint64_t x = gb_mix64(h + (first + i + 1) * 0x9E3779B97F4A7C15u);
        int32_t sum = (int32_t)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48)) - 131070;
        out[i] = gb_f32_to_bf16((float)sum * factor);
    }
}

typedef struct fill_job {
    const char *name;
    double scale;       /* 0: all ones */
    uint16_t *data;
    size_t n;
} fill_job;

static void fill_chunks(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    const fill_job *job = self;
    size_t first = (size_t)begin * CHUNK, last = (size_t)end * CHUNK < job->n ? (size_t)end * CHUNK : job->n;
    (void)thread;
    if (job->scale != 0) {
        gb_synthetic_values(job->data + first, job->name, job->scale, first, last - first);
    } else {
        for (size_t i = first; i < last; i++) job->data[i] = BF16_ONE;
    }
}

/* ---- tensors ---- */

typedef struct builder {
    gb_synthetic *model;
    gb_threads *threads;    /* NULL: only the sizes add up */
    size_t used;
    int status;
} builder;

static void add_tensor(builder *b, const char *name, double scale, uint32_t rows, uint32_t columns)
{
    size_t n = (size_t)rows * columns, bytes = n * sizeof(uint16_t);
    char *data = (char *)b->model->data + b->used;
    b->used += bytes;
    if (!b->threads || b->status) return;
    gb_tensor tensor = {.name = name, .dtype = GB_BF16, .n_dims = 2, .dims = {rows, columns}, .data = data, .bytes = bytes};
    if (scale == 0) tensor.n_dims = 1, tensor.dims[0] = columns;    /* a norm */
    fill_job job = {name, scale, (uint16_t *)data, n};
    gb_threads_for(b->threads, (uint32_t)((n + CHUNK - 1) / CHUNK), 1, fill_chunks, &job);
    b->status = gb_weights_add(b->model->weights, &tensor);
}

static void add_norm(builder *b, const char *name, uint32_t n) { add_tensor(b, name, 0, 1, n); }

static void add_matrix(builder *b, const char *name, double gain, uint32_t rows, uint32_t fan_in)
{
    add_tensor(b, name, gain * pow(fan_in, -0.5), rows, fan_in);
}

static const char *in_layer(char name[128], uint32_t layer, const char *part)
{
    snprintf(name, 128, "model.layers.%u.%s.weight", layer, part);
    return name;
}

static void add_experts(builder *b, const shape *s, uint32_t layer)
{
    char part[64], name[128];
    for (uint32_t e = 0; e < s->experts; e++) {
        snprintf(part, sizeof part, "mlp.experts.%u.gate_proj", e);
        add_matrix(b, in_layer(name, layer, part), 1, s->intermediate, s->hidden);
        snprintf(part, sizeof part, "mlp.experts.%u.up_proj", e);
        add_matrix(b, in_layer(name, layer, part), 1, s->intermediate, s->hidden);
        snprintf(part, sizeof part, "mlp.experts.%u.down_proj", e);
        add_matrix(b, in_layer(name, layer, part), 1, s->hidden, s->intermediate);
    }
}

static void add_layer(builder *b, const shape *s, uint32_t layer)
{
    char name[128];
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    add_norm(b, in_layer(name, layer, "input_layernorm"), s->hidden);
    add_norm(b, in_layer(name, layer, "post_attention_layernorm"), s->hidden);
    add_norm(b, in_layer(name, layer, "self_attn.q_norm"), s->head_dim);
    add_norm(b, in_layer(name, layer, "self_attn.k_norm"), s->head_dim);
    add_matrix(b, in_layer(name, layer, "self_attn.q_proj"), 1, q, s->hidden);
    add_matrix(b, in_layer(name, layer, "self_attn.k_proj"), 1, kv, s->hidden);
    add_matrix(b, in_layer(name, layer, "self_attn.v_proj"), 1, kv, s->hidden);
    add_matrix(b, in_layer(name, layer, "self_attn.o_proj"), 1, s->hidden, q);
    add_matrix(b, in_layer(name, layer, "mlp.gate"), ROUTER_GAIN, s->experts, s->hidden);
    add_experts(b, s, layer);
}

static void add_all(builder *b, const shape *s)
{
    add_tensor(b, "model.embed_tokens.weight", EMBEDDING_SCALE, s->vocab, s->hidden);
    for (uint32_t layer = 0; layer < s->layers; layer++) add_layer(b, s, layer);
    add_norm(b, "model.norm.weight", s->hidden);
    add_matrix(b, "lm_head.weight", 1, s->vocab, s->hidden);
}

/* ---- a model ---- */

static void write_config(char text[CONFIG_BYTES], const shape *s)
{
    snprintf(text, CONFIG_BYTES,
             "{\n  \"architectures\": [\"Qwen3MoeForCausalLM\"],\n  \"model_type\": \"qwen3_moe\",\n  \"vocab_size\": %u,\n"
             "  \"hidden_size\": %u,\n  \"num_hidden_layers\": %u,\n  \"num_attention_heads\": %u,\n  \"num_key_value_heads\": %u,\n"
             "  \"head_dim\": %u,\n  \"intermediate_size\": %u,\n  \"moe_intermediate_size\": %u,\n  \"num_experts\": %u,\n"
             "  \"num_experts_per_tok\": %u,\n  \"norm_topk_prob\": true,\n  \"decoder_sparse_step\": 1,\n  \"mlp_only_layers\": [],\n"
             "  \"hidden_act\": \"silu\",\n  \"max_position_embeddings\": 8192,\n  \"rope_theta\": 1000000.0,\n"
             "  \"rms_norm_eps\": 1e-06,\n  \"attention_bias\": false,\n  \"tie_word_embeddings\": false,\n"
             "  \"torch_dtype\": \"bfloat16\",\n  \"eos_token_id\": %u\n}\n",
             s->vocab, s->hidden, s->layers, s->heads, s->kv_heads, s->head_dim, s->intermediate * s->experts_per_token,
             s->intermediate, s->experts, s->experts_per_token, s->vocab - 6);
}

static const shape *find_shape(const char *name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    }
    return NULL;
}

static int fill(gb_synthetic *model, const shape *s, gb_threads *threads, gb_error *err)
{
    builder measure = {.model = model};
    add_all(&measure, s);
    model->bytes = measure.used;
    model->data = gb_memory_map(model->bytes);
    if (!model->data || gb_weights_new(&model->weights)) return gb_fail(err, GB_ENOMEM, "out of memory for %zu MB of generated weights", model->bytes >> 20);
    builder b = {.model = model, .threads = threads};
    add_all(&b, s);
    return b.status ? gb_fail(err, b.status, "generating %s: %s", s->name, gb_status_message(b.status)) : GB_OK;
}

int gb_synthetic_init(gb_synthetic *model, const char *name, gb_threads *threads, gb_error *err)
{
    char config[CONFIG_BYTES];
    const shape *s = find_shape(name);
    *model = (gb_synthetic){0};
    if (!s) return gb_fail(err, GB_ENOTFOUND, "no generated model is called \"%s\"; there are m1b and tiny", name);
    model->name = s->name;
    write_config(config, s);
    int status = gb_model_config_parse(&model->config, config, strlen(config), name, err);
    if (!status) status = fill(model, s, threads, err);
    if (!status) status = gb_weights_check(model->weights, &model->config, err);
    if (status) gb_synthetic_deinit(model);
    return status;
}

void gb_synthetic_deinit(gb_synthetic *model)
{
    gb_weights_free(model->weights);
    if (model->data) gb_memory_unmap(model->data, model->bytes);
    *model = (gb_synthetic){0};
}

/* ---- files ---- */

/* The header of a safetensors file: its length in 8 bytes, then JSON padded with spaces. */
static void write_header(FILE *f, const gb_synthetic *model)
{
    char *json = NULL;
    size_t bytes = 0;
    FILE *text = open_memstream(&json, &bytes);
    if (!text) return;
    for (size_t i = 0; i < gb_weights_count(model->weights); i++) {
        const gb_tensor *t = gb_weights_at(model->weights, i);
        size_t at = (size_t)((const char *)t->data - (const char *)model->data);
        fprintf(text, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%" PRIu64, i ? "," : "{", t->name, t->dims[0]);
        if (t->n_dims == 2) fprintf(text, ",%" PRIu64, t->dims[1]);
        fprintf(text, "],\"data_offsets\":[%zu,%zu]}", at, at + t->bytes);
    }
    fputc('}', text);
    while (ftell(text) % 8) fputc(' ', text);
    fclose(text);
    for (int i = 0; i < 8; i++) fputc((int)(bytes >> 8 * i & 0xff), f);
    fwrite(json, 1, bytes, f);
    free(json);
}

static void write_weights(FILE *f, const gb_synthetic *model)
{
    write_header(f, model);
    fwrite(model->data, 1, model->bytes, f);
}

static void write_config_file(FILE *f, const gb_synthetic *model)
{
    char config[CONFIG_BYTES];
    write_config(config, find_shape(model->name));
    fputs(config, f);
}

static int write_file(const gb_synthetic *model, const char *dir, const char *name, void (*write)(FILE *, const gb_synthetic *), gb_error *err)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path) return gb_fail(err, GB_EINVAL, "the path %s is too long", dir);
    FILE *f = fopen(path, "wb");
    if (!f) return gb_fail(err, GB_EIO, "%s cannot be written: %s", path, strerror(errno));
    write(f, model);
    bool failed = ferror(f) != 0;
    if (fclose(f) || failed) return gb_fail(err, GB_EIO, "%s cannot be written: %s", path, strerror(errno));
    return GB_OK;
}

int gb_synthetic_write(const gb_synthetic *model, const char *dir, gb_error *err)
{
    if (mkdir(dir, 0777) && errno != EEXIST) return gb_fail(err, GB_EIO, "directory %s cannot be made: %s", dir, strerror(errno));
    int status = write_file(model, dir, "config.json", write_config_file, err);
    return status ? status : write_file(model, dir, "model.safetensors", write_weights, err);
}
