/* Any bytes as config.json and as generation_config.json: refused with a sentence, or a config whose numbers keep their
   promises, so that nobody behind it has to check again. */
#include <math.h>

#include "core/base/assert.h"
#include "core/flow/sampling.h"
#include "core/model/config.h"

enum { VOCAB = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_config(const gb_model_config *c)
{
    static double inv_freq[GB_HEAD_DIM_MAX / 2];
    double factor;
    uint32_t moe = 0;
    GB_ASSERT(c->vocab && c->hidden && c->layers && c->layers <= GB_LAYERS_MAX && c->max_positions);
    GB_ASSERT(c->heads && c->kv_heads && c->heads % c->kv_heads == 0 && c->head_dim >= 2 && c->head_dim % 2 == 0 && c->head_dim <= GB_HEAD_DIM_MAX);
    GB_ASSERT(c->experts_per_token && c->experts_per_token <= c->experts && c->experts <= GB_EXPERTS_MAX && c->expert_intermediate);
    for (uint32_t l = 0; l < c->layers; l++) {
        moe += c->layer_is_moe[l];
        GB_ASSERT(!c->layer_slides[l] || c->sliding_window);
    }
    GB_ASSERT(moe == c->moe_layers && moe > 0 && (moe == c->layers || c->dense_intermediate));
    GB_ASSERT(c->n_end_ids <= GB_END_IDS_MAX && c->bos_id < (int32_t)c->vocab);
    GB_ASSERT(gb_model_config_active_parameters(c) <= gb_model_config_parameters(c));
    gb_rope_frequencies(c, inv_freq, &factor);
    GB_ASSERT(isfinite(factor) && factor > 0);
    for (uint32_t i = 0; i < c->head_dim / 2; i++) GB_ASSERT(isfinite(inv_freq[i]));
}

/* Defaults that were accepted are accepted from requests, too. */
static void check_generation(const gb_generation_config *g)
{
    gb_sampling s;
    gb_error err = {0};
    gb_sampling_default(&s);
    s.temperature = (float)g->temperature;
    s.top_p = (float)g->top_p;
    s.min_p = (float)g->min_p;
    s.top_k = g->top_k;
    s.repetition_penalty = (float)g->repetition_penalty;
    GB_ASSERT(gb_sampling_check(&s, &err) == GB_OK);
    GB_ASSERT(g->n_end_ids <= GB_END_IDS_MAX);
    for (uint32_t i = 0; i < g->n_end_ids; i++) GB_ASSERT(g->end_ids[i] >= 0 && g->end_ids[i] < VOCAB);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gb_model_config config;
    gb_generation_config generation;
    gb_error err = {0};
    if (!gb_model_config_parse(&config, (const char *)data, size, "config.json", &err)) check_config(&config);
    else GB_ASSERT(err.text[0]);
    err.text[0] = '\0';
    if (gb_generation_config_parse(&generation, (const char *)data, size, "generation_config.json", VOCAB, &err)) GB_ASSERT(err.text[0]);
    else check_generation(&generation);
    return 0;
}
