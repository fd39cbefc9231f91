/* The shape of a Qwen3-MoE checkpoint, read from config.json and checked once, so that later code uses plain numbers.
   Every field that changes the arithmetic is honoured or refused by name; unknown fields are ignored. */
#ifndef GB_MODEL_CONFIG_H
#define GB_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/flow/ids.h"    /* GB_EXPERTS_MAX */

/* What a config may ask for at most; a larger number is a damaged file, not a model. */
enum {
    GB_LAYERS_MAX = 512,
    GB_VOCAB_MAX = 1 << 22,
    GB_HIDDEN_MAX = 1 << 16,
    GB_HEADS_MAX = 1024,
    GB_HEAD_DIM_MAX = 1024,
    GB_INTERMEDIATE_MAX = 1 << 20,
    GB_POSITIONS_MAX = 1 << 24,
    GB_END_IDS_MAX = 16,
};

typedef enum gb_dtype { GB_BF16, GB_F16, GB_F32 } gb_dtype;

const char *gb_dtype_name(gb_dtype dtype);    /* "bfloat16", "float16", "float32" */
uint32_t    gb_dtype_bytes(gb_dtype dtype);

typedef enum gb_rope_kind { GB_ROPE_DEFAULT, GB_ROPE_LINEAR, GB_ROPE_YARN, GB_ROPE_LLAMA3 } gb_rope_kind;

typedef struct gb_rope {
    gb_rope_kind kind;
    double theta, factor;
    double original_max_positions;                /* yarn, llama3 */
    double beta_fast, beta_slow, attention_factor;    /* yarn; attention_factor resolved from mscale rules when absent */
    double mscale, mscale_all_dim;
    bool truncate;                                /* yarn: round the correction range */
    double low_freq_factor, high_freq_factor;     /* llama3 */
} gb_rope;

typedef struct gb_model_config {
    uint32_t vocab, hidden, layers, heads, kv_heads, head_dim;
    uint32_t dense_intermediate, expert_intermediate;
    uint32_t experts, experts_per_token;
    bool norm_topk_prob, tied_embeddings, attention_bias;
    uint32_t sliding_window;                      /* positions a query sees, itself included; 0 = all */
    bool layer_is_moe[GB_LAYERS_MAX];
    bool layer_slides[GB_LAYERS_MAX];             /* the window applies to this layer */
    uint32_t moe_layers;                          /* how many are true in layer_is_moe */
    uint32_t max_positions;
    float norm_epsilon;
    gb_rope rope;
    gb_dtype dtype;                               /* torch_dtype / dtype; float32, which loses nothing, when absent */
    int32_t bos_id;                               /* -1 = none */
    uint32_t n_end_ids;
    int32_t end_ids[GB_END_IDS_MAX];
    char architecture[64];
} gb_model_config;

/* generation_config.json: sampling defaults, within the ranges that requests have, and end tokens. Absent fields keep their
   has_ flag false. */
typedef struct gb_generation_config {
    bool has_do_sample, do_sample, has_temperature, has_top_p, has_top_k, has_min_p, has_repetition_penalty;
    double temperature, top_p, min_p, repetition_penalty;
    int32_t top_k;
    uint32_t n_end_ids;
    int32_t end_ids[GB_END_IDS_MAX];
} gb_generation_config;

/* Read DIR/config.json; GB_ENOTFOUND, GB_EIO, GB_EFORMAT, GB_EUNSUPPORTED with a sentence naming file and field. */
int gb_model_config_load(gb_model_config *config, const char *dir, gb_error *err);
int gb_model_config_parse(gb_model_config *config, const char *json, size_t bytes, const char *name, gb_error *err);

/* Read DIR/generation_config.json; a missing file is fine (all absent). vocab = the model's: end tokens are below it. */
int gb_generation_config_load(gb_generation_config *generation, const char *dir, uint32_t vocab, gb_error *err);
int gb_generation_config_parse(gb_generation_config *generation, const char *json, size_t bytes, const char *name, uint32_t vocab,
                               gb_error *err);

/* Parameters in all and per token (embeddings and head counted once each when untied). */
uint64_t gb_model_config_parameters(const gb_model_config *config);
uint64_t gb_model_config_active_parameters(const gb_model_config *config);

/* Rotary table entries: inv_freq[head_dim / 2] and the factor on cos and sin. */
void gb_rope_frequencies(const gb_model_config *config, double *inv_freq, double *attention_factor);

#endif
