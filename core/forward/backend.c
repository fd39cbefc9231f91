#include "core/forward/backend.h"

int gb_backend_check_limits(const gb_ops_limits *l, const gb_model_config *config, gb_error *err)
{
    if (l->engines == 0 || l->engines > GB_ENGINES_MAX || l->ranks == 0 || l->ranks > GB_RANKS_MAX || l->ranks % l->engines != 0)
        return gb_fail(err, GB_EINVAL, "%u ranks for %u engines: at most %d ranks, and each engine needs the same number",
                       l->ranks, l->engines, GB_RANKS_MAX);
    if (config->moe_layers && config->experts % l->ranks != 0)
        return gb_fail(err, GB_EINVAL, "%u experts cannot be split evenly over %u ranks: choose --expert-parallel-size among "
                       "the divisors of %u",
                       config->experts, l->ranks, config->experts);
    if (l->max_works == 0 || l->max_tokens < l->max_works || l->max_positions == 0)
        return gb_fail(err, GB_EINVAL, "a batch of %u tokens cannot hold %u sequences: --max-num-batched-tokens must be at least "
                       "--max-num-seqs", l->max_tokens, l->max_works);
    if (l->blocks_per_engine == 0)
        return gb_fail(err, GB_EINVAL, "no memory for a single KV block: raise --kv-cache-memory");
    if ((uint64_t)l->engines * l->max_tokens > INT32_MAX / (config->experts_per_token + 1))
        return gb_fail(err, GB_EINVAL, "%u engines with batches of %u tokens are too many rows for one round: lower "
                       "--max-num-batched-tokens", l->engines, l->max_tokens);
    return GB_OK;
}
