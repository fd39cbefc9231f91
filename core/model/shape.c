/* What follows from a config that is there: sizes and rotary frequencies. Reads no file, needs no library. */
#include "core/model/config.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

static const struct {
    const char *name;
    uint32_t bytes;
} DTYPES[] = {[GB_BF16] = {"bfloat16", 2}, [GB_F16] = {"float16", 2}, [GB_F32] = {"float32", 4}};

const char *gb_dtype_name(gb_dtype dtype) { return DTYPES[dtype].name; }
uint32_t gb_dtype_bytes(gb_dtype dtype) { return DTYPES[dtype].bytes; }

/* ---- parameters ---- */

/* Parameters of all layers when `experts` of each routed layer count. */
static uint64_t count_parameters(const gb_model_config *c, uint64_t experts)
{
    uint64_t hidden = c->hidden, q = (uint64_t)c->heads * c->head_dim, kv = (uint64_t)c->kv_heads * c->head_dim;
    uint64_t attention = 2 * hidden * (q + kv) + 2 * c->head_dim + (c->attention_bias ? q + 2 * kv + hidden : 0);
    uint64_t moe = hidden * c->experts + experts * 3 * hidden * c->expert_intermediate;
    uint64_t dense = 3 * hidden * c->dense_intermediate;
    uint64_t embeddings = (c->tied_embeddings ? 1 : 2) * hidden * c->vocab;
    return embeddings + hidden + c->layers * (attention + 2 * hidden) + c->moe_layers * moe + (c->layers - c->moe_layers) * dense;
}

uint64_t gb_model_config_parameters(const gb_model_config *config) { return count_parameters(config, config->experts); }
uint64_t gb_model_config_active_parameters(const gb_model_config *config) { return count_parameters(config, config->experts_per_token); }

/* ---- rotary frequencies ---- */

/* The dimension whose wave turns `rotations` times over the original context. */
static double yarn_dimension(const gb_rope *rope, double dims, double rotations)
{
    return dims * log(rope->original_max_positions / (rotations * 2 * PI)) / (2 * log(rope->theta));
}

/* Low dimensions keep their frequency, high ones are stretched by factor, with a linear ramp between. */
static void scale_yarn(const gb_rope *rope, double *inv_freq, uint32_t half)
{
    double dims = 2.0 * half;
    double low = yarn_dimension(rope, dims, rope->beta_fast), high = yarn_dimension(rope, dims, rope->beta_slow);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, dims - 1);
    if (low == high) high += 0.001;
    for (uint32_t i = 0; i < half; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        inv_freq[i] = inv_freq[i] / rope->factor * ramp + inv_freq[i] * (1 - ramp);
    }
}

/* Short waves keep their frequency, long ones are stretched by factor, the middle is blended. */
static void scale_llama3(const gb_rope *rope, double *inv_freq, uint32_t half)
{
    double original = rope->original_max_positions, low = rope->low_freq_factor, high = rope->high_freq_factor;
    for (uint32_t i = 0; i < half; i++) {
        double wave = 2 * PI / inv_freq[i];
        if (wave < original / high) continue;
        double keep = wave > original / low ? 0 : (original / wave - low) / (high - low);
        inv_freq[i] = (1 - keep) * inv_freq[i] / rope->factor + keep * inv_freq[i];
    }
}

void gb_rope_frequencies(const gb_model_config *config, double *inv_freq, double *attention_factor)
{
    const gb_rope *rope = &config->rope;
    uint32_t half = config->head_dim / 2;
    for (uint32_t i = 0; i < half; i++) inv_freq[i] = pow(rope->theta, -2.0 * i / config->head_dim);
    if (rope->kind == GB_ROPE_LINEAR)
        for (uint32_t i = 0; i < half; i++) inv_freq[i] /= rope->factor;
    if (rope->kind == GB_ROPE_YARN) scale_yarn(rope, inv_freq, half);
    if (rope->kind == GB_ROPE_LLAMA3) scale_llama3(rope, inv_freq, half);
    *attention_factor = rope->attention_factor;
}
