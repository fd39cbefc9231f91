#include "bindings/c/instance.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bindings/c/backend.h"
#include "bindings/c/plan.h"
#include "core/base/log.h"
#include "core/forward/forward.h"

/* What the steps of opening hand to each other. */
typedef struct opening {
    gb_instance *instance;
    const gb_options *options;
    const gb_backend *backend;
    gb_backend_device device;
    gb_topology topology;
    gb_kv_plan kv;
    bool f32;
} opening;

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the model's directory ---- */

static int check_directory(const char *dir, gb_error *err)
{
    struct stat st;
    if (!*dir) return gb_fail(err, GB_EINVAL, "no model: give a Hugging Face model directory");
    if (stat(dir, &st))
        return gb_fail(err, errno == ENOENT ? GB_ENOTFOUND : GB_EIO, "model directory %s: %s", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return gb_fail(err, GB_EFORMAT, "model %s is not a directory; give the directory that holds config.json", dir);
    if (access(dir, R_OK | X_OK)) return gb_fail(err, GB_EIO, "model directory %s: %s", dir, strerror(errno));
    return GB_OK;
}

/* The name clients see: as wished, else the last part of the directory's real path. */
static int name_model(opening *o, gb_error *err)
{
    char path[PATH_MAX];
    const char *name = o->options->served_model_name;
    if (!*name) {
        name = realpath(o->options->model, path) ? path : o->options->model;
        const char *slash = strrchr(name, '/');
        if (slash && slash[1]) name = slash + 1;
    }
    size_t bytes = strlen(name), room = sizeof o->instance->model_name;
    if (bytes >= room) return gb_fail(err, GB_EINVAL, "served_model_name has %zu bytes; at most %zu are possible", bytes, room - 1);
    memcpy(o->instance->model_name, name, bytes + 1);
    return GB_OK;
}

static void log_model(const gb_instance *instance)
{
    const gb_model_config *c = &instance->config;
    gb_log(GB_LOG_INFO, "model %s: %s, %.2f M parameters (%.2f M active), %u layers (%u with experts), %u experts, %u a token, vocabulary %u, %s",
           instance->model_name, c->architecture, (double)gb_model_config_parameters(c) / 1e6,
           (double)gb_model_config_active_parameters(c) / 1e6, c->layers, c->moe_layers, c->experts, c->experts_per_token, c->vocab,
           gb_dtype_name(c->dtype));
}

static int open_config(opening *o, gb_error *err)
{
    gb_instance *instance = o->instance;
    int status = check_directory(o->options->model, err);
    if (!status) status = gb_model_config_load(&instance->config, o->options->model, err);
    if (!status) status = gb_generation_config_load(&instance->generation, o->options->model, instance->config.vocab, err);
    if (!status) status = name_model(o, err);
    if (!status) log_model(instance);
    return status;
}

static int open_tokenizer(opening *o, gb_error *err)
{
    gb_instance *instance = o->instance;
    int status = gb_tokenizer_load(&instance->tokenizer, o->options->model, instance->config.vocab, err);
    if (status == GB_ENOTFOUND) {
        gb_log(GB_LOG_WARN, "no tokenizer.json in %s: this model takes and gives token ids only", o->options->model);
        return GB_OK;
    }
    if (!status) gb_log(GB_LOG_INFO, "tokenizer of %u tokens", gb_tokenizer_size(instance->tokenizer));
    return status;
}

/* auto finds a template or there is none; a name that was given must exist. */
static int open_template(opening *o, gb_error *err)
{
    gb_instance *instance = o->instance;
    if (!instance->tokenizer) return GB_OK;
    int status = gb_lua_template_new(&instance->chat_template, o->options->chat_template, o->options->model, err);
    if (status == GB_ENOTFOUND && strcmp(o->options->chat_template, "auto") == 0) {
        gb_log(GB_LOG_WARN, "no chat template fits this model: messages are refused (--chat-template names one)");
        return GB_OK;
    }
    if (!status) gb_log(GB_LOG_INFO, "chat template %s", gb_lua_template_name(instance->chat_template));
    return status;
}

/* What is asked of GPUs has no meaning on the cpu. */
static int check_cpu(const gb_options *opt, gb_error *err)
{
    if (strcmp(opt->distributed_executor_backend, "threads") == 0 || strcmp(opt->distributed_executor_backend, "processes") == 0)
        return gb_fail(err, GB_EINVAL, "--distributed-executor-backend %s gives each rank a GPU, but the cpu runs the model: give --backend cuda, or "
                       "leave it at auto", opt->distributed_executor_backend);
    if (strcmp(opt->all2all_backend, "auto") != 0)
        return gb_fail(err, GB_EINVAL, "--all2all-backend %s is how tokens travel between GPUs, but the cpu runs the model: give --backend cuda, or "
                       "leave it at auto", opt->all2all_backend);
    return GB_OK;
}

static int open_backend(opening *o, gb_error *err)
{
    int status = gb_backend_choose(&o->backend, &o->device, o->options->backend, NULL, err);
    if (!status && strcmp(o->backend->name, "cpu") == 0) return check_cpu(o->options, err);
    if (!status) gb_log(GB_LOG_INFO, "backend %s on %s", o->backend->name, o->device.name);
    return status;
}

/* ---- sizes ---- */

static void log_sizes(const opening *o)
{
    const gb_kv_plan *kv = &o->kv;
    const gb_model_config *config = &o->instance->config;
    uint64_t tokens = (uint64_t)kv->blocks_per_engine * GB_BLOCK_TOKENS * o->topology.engines;
    if (kv->memory_cut)
        gb_log(GB_LOG_WARN, "kv_cache_memory is cut to %" PRIu64 " MiB, a quarter of the memory at hand", kv->memory >> 20);
    if (kv->len_cut)
        gb_log(GB_LOG_WARN, "max_model_len is cut from the model's %u to the %u positions an engine's KV cache holds; raise kv_cache_memory",
               config->max_positions, kv->max_model_len);
    if (kv->max_model_len > config->max_positions)
        gb_log(GB_LOG_WARN, "max_model_len %u is beyond the model's own %u: answers may turn to nonsense there", kv->max_model_len,
               config->max_positions);
    gb_log(GB_LOG_INFO, "%u engine%s, %u expert rank%s (%u an engine)", o->topology.engines, o->topology.engines == 1 ? "" : "s",
           o->topology.ranks, o->topology.ranks == 1 ? "" : "s", o->topology.ranks / o->topology.engines);
    gb_log(GB_LOG_INFO, "KV cache: %u blocks of %d tokens an engine, %" PRIu64 " tokens in all; maximum concurrency for %u-token requests: %.1f",
           kv->blocks_per_engine, GB_BLOCK_TOKENS, tokens, kv->max_model_len, (double)tokens / kv->max_model_len);
}

/* A model without experts has no ranks to fill. */
static uint32_t spare_slots(const opening *o) { return o->instance->config.moe_layers ? (uint32_t)o->options->spare_slots : 0; }

/* Lines of a plugin, which has a log of its own, into ours. */
static void pass_line(void *self, gb_log_level level, const char *line)
{
    (void)self;
    gb_log(level, "%s", line);
}

/* What is known of them by now: sizes of the KV cache follow from plan_sizes. */
static gb_backend_options backend_options(const opening *o)
{
    const gb_options *opt = o->options;
    return (gb_backend_options){
        .limits = {
            .engines = o->topology.engines, .ranks = o->topology.ranks, .max_works = (uint32_t)opt->max_num_seqs,
            .max_tokens = (uint32_t)opt->max_num_batched_tokens, .max_positions = o->kv.max_model_len, .spare_slots = spare_slots(o),
            .blocks_per_engine = o->kv.blocks_per_engine, .private_ranks = strcmp(opt->rank_memory, "private") == 0,
        },
        .f32 = o->f32, .threads = (uint32_t)opt->threads, .kernels = opt->cpu_kernels, .eager = opt->enforce_eager, .experts = opt->cuda_experts,
        .layout = opt->distributed_executor_backend, .exchange = opt->all2all_backend, .timeout_ms = (uint32_t)opt->collective_timeout_ms,
        .directory = opt->model, .log = pass_line,
    };
}

/* Of all devices that share the KV cache. */
static uint64_t memory_at_hand(const opening *o)
{
    gb_backend_options options = backend_options(o);
    uint32_t devices = o->backend->devices ? o->backend->devices(&o->instance->config, &options) : 1;
    return o->device.memory ? o->device.memory * devices : gb_plan_machine_memory();
}

static int plan_sizes(opening *o, gb_error *err)
{
    const gb_options *opt = o->options;
    const gb_model_config *config = &o->instance->config;
    int status = gb_plan_ranks(&o->topology, (uint32_t)opt->data_parallel_size, (uint32_t)opt->tensor_parallel_size,
                               (uint32_t)opt->expert_parallel_size, config->experts, err);
    if (status) return status;
    if (opt->force_migration_every && o->topology.ranks < 2)
        return gb_fail(err, GB_EINVAL, "--force-migration-every moves experts between ranks, but there is one: raise --expert-parallel-size");
    uint32_t others = config->experts - config->experts / o->topology.ranks;
    if (spare_slots(o) > others)
        return gb_fail(err, GB_EINVAL, "--spare-slots %u: a rank has %u of the %u experts, so that copies of at most %u others have a use", spare_slots(o),
                       config->experts - others, config->experts, others);
    o->f32 = strcmp(opt->dtype, "float32") == 0 || (strcmp(opt->dtype, "auto") == 0 && config->dtype != GB_BF16);
    gb_kv_wish wish = {
        .memory = (uint64_t)opt->kv_cache_memory, .machine = memory_at_hand(o),
        .block_bytes = o->backend->block_bytes(config, o->f32),
        .engines = o->topology.engines, .max_num_seqs = (uint32_t)opt->max_num_seqs, .max_model_len = (uint32_t)opt->max_model_len,
        .model_len = config->max_positions,
    };
    status = gb_plan_kv(&o->kv, &wish, err);
    if (!status) log_sizes(o);
    return status;
}

/* ---- executor, server, policies ---- */

static int pack_weights(opening *o, gb_ops **ops, const gb_weights *weights, gb_error *err)
{
    gb_backend_options options = backend_options(o);
    int status = gb_weights_check(weights, &o->instance->config, err);
    return status ? status : o->backend->ops_new(ops, &o->instance->config, weights, &options, err);
}

static int open_executor(opening *o, gb_error *err)
{
    gb_weights *weights = NULL;
    gb_ops *ops = NULL;
    double start = seconds_now();
    int status = gb_weights_open(&weights, o->options->model, err);
    if (!status) status = pack_weights(o, &ops, weights, err);
    gb_weights_free(weights);
    if (!status) status = gb_forward_new(&o->instance->executor, &o->instance->config, ops, NULL, err);
    if (status) return status;
    const gb_executor_info *info = &o->instance->executor->info;
    gb_log(GB_LOG_INFO, "backend %s: %s weights, %.1f MB packed in %.2f s, KV cache %.1f MB, kernels %s, %u thread%s", info->backend,
           o->f32 ? "float32" : "bfloat16", (double)info->weight_bytes / 1e6, seconds_now() - start, (double)info->kv_bytes / 1e6, info->kernels,
           info->threads, info->threads == 1 ? "" : "s");
    return GB_OK;
}

static void copy_end_ids(gb_server_options *to, const gb_instance *instance)
{
    const gb_generation_config *generation = &instance->generation;
    bool generations = generation->n_end_ids > 0;
    to->n_end_ids = generations ? generation->n_end_ids : instance->config.n_end_ids;
    memcpy(to->end_ids, generations ? generation->end_ids : instance->config.end_ids, sizeof to->end_ids);
}

static gb_place_weights weights_of(const char *name)
{
    if (strcmp(name, "balanced") == 0) return gb_place_weights_balanced();
    return strcmp(name, "latency") == 0 ? gb_place_weights_latency() : gb_place_weights_paper();
}

static gb_planner_options placement_options(const opening *o)
{
    const gb_options *opt = o->options;
    gb_planner_options placement = {.every = (uint32_t)opt->rearrange_every, .solve = gb_solve_defaults()};
    placement.solve.weights = weights_of(opt->placement_weights);
    placement.solve.min_gain_ratio = opt->rearrange_min_gain;
    placement.solve.max_moves = (uint32_t)opt->rearrange_max_moves;
    placement.solve.max_bytes = (uint64_t)opt->rearrange_max_bytes;
    if (o->instance->executor->info.expert_bytes) placement.solve.expert_bytes = o->instance->executor->info.expert_bytes;
    return placement;
}

static int open_server(opening *o, gb_error *err)
{
    const gb_options *opt = o->options;
    gb_instance *instance = o->instance;
    gb_server_options server;
    gb_server_options_default(&server);
    server.engines = o->topology.engines;
    server.ranks = o->topology.ranks;
    server.moe_layers = instance->config.moe_layers;
    server.experts = instance->config.experts;
    server.vocab = instance->config.vocab;
    server.max_model_len = o->kv.max_model_len;
    server.max_num_seqs = (uint32_t)opt->max_num_seqs;
    server.max_batched_tokens = (uint32_t)opt->max_num_batched_tokens;
    server.queue_capacity = (uint32_t)opt->max_queue;
    server.blocks_per_engine = o->kv.blocks_per_engine;
    server.window_rounds = (uint32_t)opt->window_rounds;
    if (opt->window_ms) server.window_longest = gb_ms((uint64_t)opt->window_ms);
    server.spare_slots = spare_slots(o);
    server.placement = placement_options(o);
    server.prefix_caching = opt->enable_prefix_caching;
    server.private_ranks = instance->config.moe_layers > 0 && instance->executor->info.private_ranks;
    server.expert_bytes = instance->executor->info.expert_bytes;
    server.migration_bytes = (uint64_t)opt->migration_bytes;
    server.force_migration_every = (uint32_t)opt->force_migration_every;
    server.aging = gb_ms((uint64_t)opt->aging_ms);
    server.stale_after = gb_ms((uint64_t)opt->stale_after_ms);
    server.seed = (uint64_t)opt->seed;
    server.tokenizer = instance->tokenizer;
    copy_end_ids(&server, instance);
    return gb_server_new(&instance->server, &server, err);
}

static int open_round(opening *o, gb_error *err)
{
    gb_instance *instance = o->instance;
    gb_round_limits limits = {
        .engines = o->topology.engines, .ranks = o->topology.ranks, .max_works = (uint32_t)o->options->max_num_seqs,
        .max_tokens = (uint32_t)o->options->max_num_batched_tokens, .moe_layers = instance->config.moe_layers,
        .experts = instance->config.experts,
    };
    int status = gb_round_init(&instance->round, &instance->arena, &limits);
    if (!status) status = gb_result_init(&instance->result, &instance->arena, &limits);
    return status ? gb_fail(err, status, "out of memory for rounds of %u engines", limits.engines) : GB_OK;
}

static int ask_policies(void *self, gb_rearrangement *r, gb_time now) { return gb_lua_host_place(self, r, now); }

static bool is_default(const gb_options *options, const char *key)
{
    return strcmp(options->sources[gb_options_find(key) - gb_option_rows], "default") == 0;
}

/* --policy took the hook, and nobody asked for another one in its place. */
static bool is_taken(const opening *o, gb_hook hook, const char *key)
{
    const gb_options *opt = o->options;
    if (!*opt->policy || !is_default(opt, key)) return false;
    return strcmp(opt->policy, "builtin") == 0 || gb_lua_host_active(o->instance->policies, hook);
}

static int use_placement(const opening *o, gb_error *err)
{
    if (is_taken(o, GB_HOOK_SCORE, "policy_place") || is_taken(o, GB_HOOK_COST, "policy_place")) return GB_OK;
    return gb_lua_host_use_placement(o->instance->policies, o->options->policy_place, err);
}

gb_lua_budgets gb_policy_budgets(const gb_options *opt)
{
    gb_lua_budgets budgets;
    gb_lua_budgets_default(&budgets);
    budgets.hooks[GB_HOOK_SELECT] = gb_ms((uint64_t)opt->policy_select_ms);
    budgets.hooks[GB_HOOK_ORDER] = gb_ms((uint64_t)opt->policy_order_ms);
    budgets.hooks[GB_HOOK_SCORE] = budgets.hooks[GB_HOOK_COST] = gb_ms((uint64_t)opt->policy_place_ms);
    budgets.load = gb_ms((uint64_t)opt->policy_load_ms);
    budgets.carry = gb_ms((uint64_t)opt->policy_carry_ms);
    budgets.memory_bytes = (size_t)opt->policy_memory;
    budgets.place_memory_bytes = (size_t)opt->policy_place_memory;
    return budgets;
}

static int open_policies(opening *o, gb_error *err)
{
    static const char *const keys[GB_HOOKS] = {[GB_HOOK_SELECT] = "policy_select", [GB_HOOK_ORDER] = "policy_order"};
    gb_instance *instance = o->instance;
    const gb_options *opt = o->options;
    const char *names[GB_HOOKS] = {[GB_HOOK_SELECT] = opt->policy_select, [GB_HOOK_ORDER] = opt->policy_order};
    gb_lua_budgets budgets = gb_policy_budgets(opt);
    int status = gb_lua_host_new_within(&instance->policies, instance->server, (uint64_t)opt->seed, &budgets, err);
    if (!status && *opt->policy_store) status = gb_lua_host_open_store(instance->policies, opt->policy_store, err);
    if (!status && *opt->policy_dir) status = gb_lua_host_load_dir(instance->policies, opt->policy_dir, err);
    if (!status && *opt->policy) status = gb_lua_host_use(instance->policies, NULL, opt->policy, err);
    for (int hook = 0; !status && hook < GB_HOOKS; hook++)
        if (names[hook] && !is_taken(o, (gb_hook)hook, keys[hook]))
            status = gb_lua_host_use(instance->policies, gb_hook_name((gb_hook)hook), names[hook], err);
    if (!status) status = use_placement(o, err);
    if (!status && *opt->policy_store) gb_lua_host_restore(instance->policies);
    if (!status && *opt->journal) status = gb_lua_host_open_journal(instance->policies, opt->journal, (uint64_t)opt->journal_size, err);
    if (!status && instance->config.moe_layers) gb_server_set_planner(instance->server, ask_policies, instance->policies);
    return status;
}

/* ---- the whole ---- */

/* Forks a child for a moment: now, while there are no weights whose pages it would share and no device is open. */
static int prepare_policies(opening *o, gb_error *err)
{
    (void)o;
    (void)err;
    gb_lua_host_prepare();
    return GB_OK;
}

int gb_instance_open(gb_instance **out, const gb_options *options, gb_error *err)
{
    static int (*const steps[])(opening *, gb_error *) = {
        open_config, prepare_policies, open_backend, plan_sizes, open_tokenizer, open_template, open_executor, open_server, open_round, open_policies,
    };
    double start = seconds_now();
    opening o = {.instance = calloc(1, sizeof *o.instance), .options = options};
    if (!o.instance) return gb_fail(err, GB_ENOMEM, "out of memory for the instance");
    o.instance->options = options;
    gb_arena_init(&o.instance->arena);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        int status = steps[i](&o, err);
        if (!status) continue;
        gb_instance_close(o.instance);
        return status;
    }
    o.instance->load_seconds = seconds_now() - start;
    *out = o.instance;
    return GB_OK;
}

void gb_instance_close(gb_instance *instance)
{
    if (!instance) return;
    if (instance->policies) gb_lua_host_free(instance->policies);
    if (instance->server) gb_server_free(instance->server);
    gb_executor_free(instance->executor);
    if (instance->chat_template) gb_lua_template_free(instance->chat_template);
    if (instance->tokenizer) gb_tokenizer_free(instance->tokenizer);
    gb_arena_deinit(&instance->arena);
    free(instance);
}

void gb_instance_sampling(const gb_instance *instance, gb_sampling *sampling)
{
    const gb_generation_config *g = &instance->generation;
    gb_sampling_default(sampling);
    sampling->max_tokens = UINT32_MAX;    /* the server cuts it to the rest of the context */
    if (g->has_temperature) sampling->temperature = (float)g->temperature;
    if (g->has_top_p) sampling->top_p = (float)g->top_p;
    if (g->has_min_p) sampling->min_p = (float)g->min_p;
    if (g->has_top_k) sampling->top_k = g->top_k;
    if (g->has_repetition_penalty) sampling->repetition_penalty = (float)g->repetition_penalty;
    if (g->has_do_sample && !g->do_sample) sampling->temperature = 0;
}

static bool step_round(gb_instance *instance, gb_time (*clock)(void))
{
    if (!gb_server_poll_round(instance->server, &instance->round, clock())) return false;
    gb_server_rearrange(instance->server, clock());
    gb_executor_run(instance->executor, &instance->round, &instance->result);
    gb_server_round_done(instance->server, &instance->result, clock());
    return true;
}

static bool step_copies(gb_instance *instance, gb_time (*clock)(void))
{
    if (!gb_server_poll_copies(instance->server, &instance->copies)) return false;
    int status = gb_executor_copy(instance->executor, &instance->copies);
    gb_server_copies_done(instance->server, status, clock());
    return true;
}

bool gb_instance_step(gb_instance *instance, gb_time (*clock)(void))
{
    bool ran = step_round(instance, clock), copied = step_copies(instance, clock);
    return ran || copied;
}
