#include "core/model/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/flow/sampling.h"
#include "core/model/json.h"
#include "core/model/rope.h"

static const char ARCHITECTURE[] = "Qwen3MoeForCausalLM";
enum {
    SLIDING_WINDOW_DEFAULT = 4096,    /* what the reference assumes when use_sliding_window stands alone */
    POSITIONS_MIN = 2,                /* a prompt and a token to generate */
};

/* Fields of relatives that would change the arithmetic, with the one value (as JSON, numbers as reals) that leaves it
   alone. NULL: any value is refused. */
static const struct {
    const char *key, *neutral;
} FIXED[] = {
    {"hidden_act", "\"silu\""},
    {"quantization_config", NULL},
    {"compression_config", NULL},
    {"dual_chunk_attention_config", NULL},
    {"sparse_attention_config", NULL},
    {"attention_chunk_size", NULL},
    {"attn_logit_softcapping", NULL},
    {"final_logit_softcapping", NULL},
    {"query_pre_attn_scalar", NULL},
    {"partial_rotary_factor", "1.0"},
    {"use_qk_norm", "true"},
    {"attn_output_gate", "false"},
    {"is_causal", "true"},
    {"qkv_bias", "false"},
    {"mlp_bias", "false"},
    {"shared_expert_intermediate_size", "0.0"},
    {"n_shared_experts", "0.0"},
    {"num_shared_experts", "0.0"},
    {"scoring_func", "\"softmax\""},
    {"n_group", "1.0"},
    {"topk_group", "1.0"},
    {"routed_scaling_factor", "1.0"},
    {"embedding_multiplier", "1.0"},
    {"residual_multiplier", "1.0"},
    {"logits_scaling", "1.0"},
    {"logit_scale", "1.0"},
};

static void check_fixed(gb_fields *f)
{
    for (size_t i = 0; i < sizeof FIXED / sizeof *FIXED; i++) {
        if (f->status || !gb_fields_has(f, FIXED[i].key)) continue;
        const char *neutral = FIXED[i].neutral;
        char *value = json_dumps(json_object_get(f->object, FIXED[i].key), JSON_ENCODE_ANY | JSON_COMPACT);
        if (!value) gb_fields_fail(f, GB_ENOMEM, "no memory for %s", FIXED[i].key);
        else if (!neutral) gb_fields_fail(f, GB_EUNSUPPORTED, "%s is not supported (%s)", FIXED[i].key, gb_json_quote(value).text);
        else if (strcmp(value, neutral) != 0)
            gb_fields_fail(f, GB_EUNSUPPORTED, "%s is %s; only %s is supported", FIXED[i].key, gb_json_quote(value).text, neutral);
        free(value);
    }
}

static void check_architecture(gb_model_config *c, gb_fields *f)
{
    snprintf(c->architecture, sizeof c->architecture, "%s", ARCHITECTURE);
    const char *type = gb_fields_string(f, "model_type", NULL);
    json_t *names = gb_fields_array(f, "architectures");
    if (!names && !type) gb_fields_fail(f, GB_EFORMAT, "architectures is missing; expected [\"%s\"]", ARCHITECTURE);
    const char *name = json_string_value(json_array_get(names, 0));
    if (names && (json_array_size(names) != 1 || !name || strcmp(name, ARCHITECTURE) != 0))
        gb_fields_fail(f, GB_EUNSUPPORTED, "architectures is [%s%s]; only %s is supported", name ? gb_json_quote(name).text : "",
                       json_array_size(names) > 1 ? ", ..." : "", ARCHITECTURE);
    if (type && strcmp(type, "qwen3_moe") != 0)
        gb_fields_fail(f, GB_EUNSUPPORTED, "model_type is \"%s\"; only qwen3_moe is supported", gb_json_quote(type).text);
}

static void parse_attention(gb_model_config *c, gb_fields *f)
{
    c->heads = (uint32_t)gb_fields_need_int(f, "num_attention_heads", 1, GB_HEADS_MAX);
    c->kv_heads = (uint32_t)gb_fields_need_int(f, "num_key_value_heads", 1, GB_HEADS_MAX);
    c->attention_bias = gb_fields_bool(f, "attention_bias", false);
    c->head_dim = (uint32_t)gb_fields_int(f, "head_dim", 2, GB_HEAD_DIM_MAX, 0);
    if (f->status) return;
    if (c->heads % c->kv_heads)
        gb_fields_fail(f, GB_EFORMAT, "num_attention_heads %u is not a multiple of num_key_value_heads %u", c->heads, c->kv_heads);
    if (!c->head_dim && c->hidden % c->heads)
        gb_fields_fail(f, GB_EFORMAT, "head_dim is missing and hidden_size %u is not a multiple of num_attention_heads %u", c->hidden,
                       c->heads);
    if (!c->head_dim) c->head_dim = c->hidden / c->heads;
    if (c->head_dim % 2 || c->head_dim > GB_HEAD_DIM_MAX)
        gb_fields_fail(f, GB_EFORMAT, "head_dim is %u; it must be even and between 2 and %d", c->head_dim, GB_HEAD_DIM_MAX);
}

static void parse_shape(gb_model_config *c, gb_fields *f)
{
    c->vocab = (uint32_t)gb_fields_need_int(f, "vocab_size", 1, GB_VOCAB_MAX);
    c->hidden = (uint32_t)gb_fields_need_int(f, "hidden_size", 1, GB_HIDDEN_MAX);
    c->layers = (uint32_t)gb_fields_need_int(f, "num_hidden_layers", 1, GB_LAYERS_MAX);
    c->max_positions = (uint32_t)gb_fields_need_int(f, "max_position_embeddings", POSITIONS_MIN, GB_POSITIONS_MAX);
    c->norm_epsilon = (float)gb_fields_real(f, "rms_norm_eps", 1e-12, 0.1, 1e-6);
    c->tied_embeddings = gb_fields_bool(f, "tie_word_embeddings", false);
    parse_attention(c, f);
}

/* Which layers route: every decoder_sparse_step-th one that mlp_only_layers does not name. */
static void parse_layers(gb_model_config *c, gb_fields *f)
{
    int64_t step = gb_fields_int(f, "decoder_sparse_step", 1, GB_LAYERS_MAX, 1);
    json_t *dense = gb_fields_array(f, "mlp_only_layers");
    if (f->status) return;
    for (uint32_t l = 0; l < c->layers; l++) c->layer_is_moe[l] = (l + 1) % step == 0;
    for (size_t i = 0; i < json_array_size(dense); i++)
        c->layer_is_moe[gb_fields_int_of(f, json_array_get(dense, i), "mlp_only_layers", 0, c->layers - 1)] = false;
    for (uint32_t l = 0; l < c->layers; l++) c->moe_layers += c->layer_is_moe[l];
    if (!c->moe_layers)
        gb_fields_fail(f, GB_EUNSUPPORTED, "decoder_sparse_step and mlp_only_layers leave no layer with experts");
    if (c->moe_layers < c->layers)
        c->dense_intermediate = (uint32_t)gb_fields_need_int(f, "intermediate_size", 1, GB_INTERMEDIATE_MAX);
}

static void parse_experts(gb_model_config *c, gb_fields *f)
{
    const char *key = gb_fields_has(f, "num_experts") ? "num_experts" : "num_local_experts";
    c->experts = (uint32_t)gb_fields_int(f, key, 1, GB_EXPERTS_MAX, 0);
    if (!c->experts) gb_fields_fail(f, GB_EFORMAT, "num_experts is missing");
    if (gb_fields_int(f, "num_local_experts", 1, GB_EXPERTS_MAX, c->experts) != c->experts)
        gb_fields_fail(f, GB_EFORMAT, "num_experts and num_local_experts differ");
    c->experts_per_token = (uint32_t)gb_fields_need_int(f, "num_experts_per_tok", 1, c->experts);
    c->expert_intermediate = (uint32_t)gb_fields_need_int(f, "moe_intermediate_size", 1, GB_INTERMEDIATE_MAX);
    c->norm_topk_prob = gb_fields_bool(f, "norm_topk_prob", false);
    parse_layers(c, f);
}

static void parse_layer_types(gb_model_config *c, gb_fields *f, const json_t *types)
{
    if (json_array_size(types) != c->layers)
        gb_fields_fail(f, GB_EFORMAT, "layer_types has %zu entries for %u layers", json_array_size(types), c->layers);
    for (uint32_t l = 0; l < c->layers && !f->status; l++) {
        const char *type = json_string_value(json_array_get(types, l));
        if (!type) gb_fields_fail(f, GB_EFORMAT, "layer_types must be a list of strings");
        else if (!strcmp(type, "sliding_attention")) c->layer_slides[l] = true;
        else if (strcmp(type, "full_attention") != 0)
            gb_fields_fail(f, GB_EUNSUPPORTED, "layer_types has \"%s\"; supported are full_attention and sliding_attention",
                           gb_json_quote(type).text);
        if (c->layer_slides[l] && !c->sliding_window)
            gb_fields_fail(f, GB_EFORMAT, "layer_types has sliding_attention, but use_sliding_window and sliding_window give no window");
    }
}

/* The window covers every layer, as in the reference, unless layer_types says otherwise. Releases of the reference differ on
   what max_window_layers means beside it, so it may stand only where it changes nothing. */
static void parse_window(gb_model_config *c, gb_fields *f)
{
    if (gb_fields_bool(f, "use_sliding_window", false)) {
        bool null_window = json_is_null(json_object_get(f->object, "sliding_window"));
        c->sliding_window = (uint32_t)gb_fields_int(f, "sliding_window", 1, GB_POSITIONS_MAX, null_window ? 0 : SLIDING_WINDOW_DEFAULT);
    }
    json_t *types = gb_fields_array(f, "layer_types");
    int64_t full_layers = gb_fields_int(f, "max_window_layers", 0, INT32_MAX, 0);
    if (f->status) return;
    if (types) {
        parse_layer_types(c, f, types);
        return;
    }
    if (c->sliding_window && full_layers)
        gb_fields_fail(f, GB_EUNSUPPORTED, "max_window_layers is %lld beside a sliding window; "
                       "say which layers slide with layer_types instead", (long long)full_layers);
    for (uint32_t l = 0; l < c->layers; l++) c->layer_slides[l] = c->sliding_window != 0;
}

static void parse_dtype(gb_model_config *c, gb_fields *f)
{
    const char *old = gb_fields_string(f, "torch_dtype", NULL), *name = gb_fields_string(f, "dtype", old ? old : "float32");
    if (old && strcmp(old, name) != 0)
        gb_fields_fail(f, GB_EFORMAT, "torch_dtype \"%s\" and dtype \"%s\" differ", gb_json_quote(old).text, gb_json_quote(name).text);
    for (int dtype = GB_BF16; dtype <= GB_F32; dtype++)
        if (!strcmp(name, gb_dtype_name((gb_dtype)dtype))) {
            c->dtype = (gb_dtype)dtype;
            return;
        }
    gb_fields_fail(f, GB_EUNSUPPORTED, "dtype is \"%s\"; supported are bfloat16, float16 and float32", gb_json_quote(name).text);
}

static void add_end_id(gb_fields *f, const json_t *value, int64_t max, int32_t *ids, uint32_t *n)
{
    int32_t id = (int32_t)gb_fields_int_of(f, value, "eos_token_id", 0, max);
    for (uint32_t i = 0; i < *n; i++)
        if (ids[i] == id) return;
    if (*n == GB_END_IDS_MAX) gb_fields_fail(f, GB_ETOOBIG, "eos_token_id has more than %d ids", GB_END_IDS_MAX);
    else ids[(*n)++] = id;
}

/* eos_token_id: one id or a list. */
static void parse_end_ids(gb_fields *f, int64_t max, int32_t *ids, uint32_t *n)
{
    if (f->status || !gb_fields_has(f, "eos_token_id")) return;
    const json_t *value = json_object_get(f->object, "eos_token_id");
    if (!json_is_array(value)) add_end_id(f, value, max, ids, n);
    for (size_t i = 0; i < json_array_size(value); i++) add_end_id(f, json_array_get(value, i), max, ids, n);
}

int gb_model_config_parse(gb_model_config *config, const char *json, size_t bytes, const char *name, gb_error *err)
{
    *config = (gb_model_config){.bos_id = -1};
    json_t *root;
    int status = gb_json_parse(&root, json, bytes, name, GB_JSON_ALL_REALS, err);
    if (status) return status;
    char where[1024];
    snprintf(where, sizeof where, "%s: ", name);
    gb_fields f = {.object = root, .where = where, .err = err};
    check_architecture(config, &f);
    check_fixed(&f);
    parse_shape(config, &f);
    parse_experts(config, &f);
    parse_window(config, &f);
    gb_rope_parse(&config->rope, &f, config->max_positions);
    parse_dtype(config, &f);
    config->bos_id = (int32_t)gb_fields_int(&f, "bos_token_id", 0, (int64_t)config->vocab - 1, -1);
    parse_end_ids(&f, (int64_t)config->vocab - 1, config->end_ids, &config->n_end_ids);
    json_decref(root);
    return f.status;
}

int gb_model_config_load(gb_model_config *config, const char *dir, gb_error *err)
{
    char *text, path[1024];
    size_t bytes;
    int status = gb_file_read(&text, &bytes, dir, "config.json", GB_JSON_CONFIG_BYTES_MAX, err);
    if (status) return status;
    snprintf(path, sizeof path, "%s/config.json", dir);
    status = gb_model_config_parse(config, text, bytes, path, err);
    free(text);
    return status;
}

int gb_generation_config_parse(gb_generation_config *generation, const char *json, size_t bytes, const char *name, uint32_t vocab,
                               gb_error *err)
{
    gb_generation_config *g = generation;
    *g = (gb_generation_config){0};
    json_t *root;
    int status = gb_json_parse(&root, json, bytes, name, GB_JSON_ALL_REALS, err);
    if (status) return status;
    char where[1024];
    snprintf(where, sizeof where, "%s: ", name);
    gb_fields f = {.object = root, .where = where, .err = err};
    g->has_do_sample = gb_fields_has(&f, "do_sample");
    g->do_sample = gb_fields_bool(&f, "do_sample", false);
    g->has_temperature = gb_fields_has(&f, "temperature");
    g->temperature = gb_fields_real(&f, "temperature", 0, GB_TEMPERATURE_MAX, 1);
    g->has_top_p = gb_fields_has(&f, "top_p");
    g->top_p = gb_fields_real(&f, "top_p", 1e-9, 1, 1);
    g->has_top_k = gb_fields_has(&f, "top_k");
    g->top_k = (int32_t)gb_fields_int(&f, "top_k", 0, GB_TOP_K_MAX, 0);
    g->has_min_p = gb_fields_has(&f, "min_p");
    g->min_p = gb_fields_real(&f, "min_p", 0, 1, 0);
    g->has_repetition_penalty = gb_fields_has(&f, "repetition_penalty");
    g->repetition_penalty = gb_fields_real(&f, "repetition_penalty", 1e-3, GB_REPETITION_PENALTY_MAX, 1);
    parse_end_ids(&f, (int64_t)vocab - 1, g->end_ids, &g->n_end_ids);
    json_decref(root);
    return f.status;
}

int gb_generation_config_load(gb_generation_config *generation, const char *dir, uint32_t vocab, gb_error *err)
{
    char *text, path[1024];
    size_t bytes;
    *generation = (gb_generation_config){0};
    int status = gb_file_read(&text, &bytes, dir, "generation_config.json", GB_JSON_CONFIG_BYTES_MAX, err);
    if (status == GB_ENOTFOUND) {
        if (err) err->text[0] = '\0';
        return GB_OK;
    }
    if (status) return status;
    snprintf(path, sizeof path, "%s/generation_config.json", dir);
    status = gb_generation_config_parse(generation, text, bytes, path, vocab, err);
    free(text);
    return status;
}
