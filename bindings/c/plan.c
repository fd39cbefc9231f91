#include "bindings/c/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { KV_BLOCKS_MAX = 1 << 24 };    /* of one engine: 268 million positions */

int gb_plan_ranks(gb_topology *topology, uint32_t dp, uint32_t tp, uint32_t ep, uint32_t experts, gb_error *err)
{
    if (tp == 0) tp = ep ? ep / dp : 1;
    uint64_t ranks = ep ? ep : (uint64_t)dp * tp;
    if (ranks != (uint64_t)dp * tp)
        return gb_fail(err, GB_EINVAL, "expert_parallel_size %u is not data_parallel_size %u x tensor_parallel_size %u; leave one of the "
                       "three out or make them agree", ep, dp, tp);
    if (ranks > GB_RANKS_MAX)
        return gb_fail(err, GB_EINVAL, "data_parallel_size %u x tensor_parallel_size %u makes %" PRIu64 " ranks; at most %d are possible", dp,
                       tp, ranks, GB_RANKS_MAX);
    if (experts % ranks != 0)
        return gb_fail(err, GB_EINVAL, "the model's %u experts cannot be shared evenly by %" PRIu64 " ranks (data_parallel_size %u, "
                       "tensor_parallel_size %u, expert_parallel_size %" PRIu64 "); choose a number of ranks that divides %u",
                       experts, ranks, dp, tp, ranks, experts);
    *topology = (gb_topology){.engines = dp, .ranks = (uint32_t)ranks};
    return GB_OK;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint32_t blocks_for(uint32_t tokens) { return (tokens + GB_BLOCK_TOKENS - 1) / GB_BLOCK_TOKENS; }

int gb_plan_kv(gb_kv_plan *plan, const gb_kv_wish *w, gb_error *err)
{
    *plan = (gb_kv_plan){.memory = w->memory, .max_model_len = w->max_model_len ? w->max_model_len : w->model_len};
    if (plan->memory > w->machine / 4) {
        plan->memory = w->machine / 4;
        plan->memory_cut = true;
    }
    uint64_t per_block = w->block_bytes * w->engines, useful = (uint64_t)w->max_num_seqs * blocks_for(plan->max_model_len);
    plan->blocks_per_engine = (uint32_t)least(least(plan->memory / per_block, useful), KV_BLOCKS_MAX);
    if (plan->blocks_per_engine < w->max_num_seqs)
        return gb_fail(err, GB_EINVAL, "kv_cache_memory of %" PRIu64 " bytes gives an engine %u blocks, fewer than the max_num_seqs of %u; "
                       "raise kv_cache_memory to at least %" PRIu64 " or lower max_num_seqs",
                       plan->memory, plan->blocks_per_engine, w->max_num_seqs, per_block * w->max_num_seqs);
    if (plan->blocks_per_engine >= blocks_for(plan->max_model_len)) {
        plan->memory = per_block * plan->blocks_per_engine;
        return GB_OK;
    }
    if (w->max_model_len)
        return gb_fail(err, GB_EINVAL, "kv_cache_memory of %" PRIu64 " bytes gives an engine %u positions, fewer than the max_model_len of %u; "
                       "raise kv_cache_memory to at least %" PRIu64 " or lower max_model_len",
                       plan->memory, plan->blocks_per_engine * GB_BLOCK_TOKENS, w->max_model_len,
                       per_block * blocks_for(w->max_model_len));
    plan->max_model_len = plan->blocks_per_engine * GB_BLOCK_TOKENS;
    plan->memory = per_block * plan->blocks_per_engine;
    plan->len_cut = true;
    return GB_OK;
}

uint64_t gb_plan_machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t machine = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX, group = UINT64_MAX;
    FILE *limit = fopen("/sys/fs/cgroup/memory.max", "r");
    if (limit) {
        if (fscanf(limit, "%" SCNu64, &group) != 1) group = UINT64_MAX;    /* "max" */
        fclose(limit);
    }
    return group < machine ? group : machine;
}
