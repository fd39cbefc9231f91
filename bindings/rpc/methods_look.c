/* model_info, server_stats, config_get, engine_list, expert_matrix, placement_get. */
#include <stdlib.h>
#include <string.h>

#include "bindings/rpc/conn.h"
#include "bindings/rpc/params.h"
#include "bindings/rpc/snapshot.h"

/* --- model_info --- */

static gb_rpc_outcome run_model_info(gb_rpc_call *call)
{
    const gb_instance *instance = call->service->instance;
    const gb_model_config *config = &instance->config;
    const gb_executor_info *executor = &instance->executor->info;
    const gb_server_options *server = gb_server_options_get(instance->server);
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_key_str(&map, "name", instance->model_name);
    gb_pack_key_str(&map, "architecture", config->architecture);
    gb_pack_key_str(&map, "dtype", gb_dtype_name(config->dtype));
    gb_pack_key_uint(&map, "layers", config->layers);
    gb_pack_key_uint(&map, "moe_layers", config->moe_layers);
    gb_pack_key_uint(&map, "hidden", config->hidden);
    gb_pack_key_uint(&map, "experts", config->experts);
    gb_pack_key_uint(&map, "experts_per_token", config->experts_per_token);
    gb_pack_key_uint(&map, "vocab", config->vocab);
    gb_pack_key_uint(&map, "parameters", gb_model_config_parameters(config));
    gb_pack_key_uint(&map, "active_parameters", gb_model_config_active_parameters(config));
    gb_pack_key_uint(&map, "max_model_len", server->max_model_len);
    gb_pack_key_str(&map, "backend", executor->backend);
    gb_pack_key_str(&map, "kernels", executor->kernels);
    gb_pack_key_uint(&map, "threads", executor->threads);
    gb_pack_key_uint(&map, "engines", server->engines);
    gb_pack_key_uint(&map, "ranks", server->ranks);
    gb_pack_key_uint(&map, "weight_bytes", executor->weight_bytes);
    gb_pack_key_uint(&map, "kv_bytes", executor->kv_bytes);
    gb_pack_key_uint(&map, "kv_tokens", (uint64_t)server->blocks_per_engine * server->engines * GB_BLOCK_TOKENS);
    gb_pack_key_bool(&map, "tokenizer", instance->tokenizer != NULL);
    if (instance->chat_template) gb_pack_key_str(&map, "chat_template", gb_lua_template_name(instance->chat_template));
    gb_pack_list ends = gb_pack_begin_array(gb_pack_key(&map, "end_tokens"));
    for (uint32_t i = 0; i < server->n_end_ids; i++) gb_pack_int(gb_pack_next(&ends), server->end_ids[i]);
    gb_pack_end(&ends);
    gb_pack_key_float(&map, "load_ms", instance->load_seconds * 1e3);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field model_info_result[] = {
    {.name = "name", .type = GB_RPC_STRING, .doc = "--served-model-name, or the directory's"},
    {.name = "architecture", .type = GB_RPC_STRING, .doc = "of config.json"},
    {.name = "dtype", .type = GB_RPC_STRING, .doc = "of the checkpoint"},
    {.name = "layers", .type = GB_RPC_INT, .doc = "decoder layers"},
    {.name = "moe_layers", .type = GB_RPC_INT, .doc = "those with experts"},
    {.name = "hidden", .type = GB_RPC_INT, .doc = "width"},
    {.name = "experts", .type = GB_RPC_INT, .doc = "of a layer"},
    {.name = "experts_per_token", .type = GB_RPC_INT, .doc = "chosen by the router"},
    {.name = "vocab", .type = GB_RPC_INT, .doc = "token ids are below it"},
    {.name = "parameters", .type = GB_RPC_INT, .doc = "in all"},
    {.name = "active_parameters", .type = GB_RPC_INT, .doc = "of one token"},
    {.name = "max_model_len", .type = GB_RPC_INT, .doc = "longest sequence in tokens"},
    {.name = "backend", .type = GB_RPC_STRING, .doc = "\"cpu\""},
    {.name = "kernels", .type = GB_RPC_STRING, .doc = "the variant that runs"},
    {.name = "threads", .type = GB_RPC_INT, .doc = "that compute"},
    {.name = "engines", .type = GB_RPC_INT, .doc = "data-parallel replicas"},
    {.name = "ranks", .type = GB_RPC_INT, .doc = "holding experts"},
    {.name = "weight_bytes", .type = GB_RPC_INT, .doc = "packed"},
    {.name = "kv_bytes", .type = GB_RPC_INT, .doc = "of all engines"},
    {.name = "kv_tokens", .type = GB_RPC_INT, .doc = "positions that fit into them"},
    {.name = "tokenizer", .type = GB_RPC_BOOL, .doc = "false: token ids only"},
    {.name = "chat_template", .type = GB_RPC_STRING, .optional = true, .doc = "absent: no messages"},
    {.name = "end_tokens", .type = GB_RPC_INT, .shape = GB_RPC_LIST, .doc = "that end a request"},
    {.name = "load_ms", .type = GB_RPC_FLOAT, .doc = "time to open the model"},
    {0},
};

/* --- server_stats --- */

static uint64_t pack_hooks(gb_pack *out, const gb_server_stats *stats)
{
    uint64_t faults = 0;
    gb_pack_list hooks = gb_pack_begin_map(out);
    for (int h = 0; h < GB_HOOKS; h++) {
        gb_pack_list hook = gb_pack_begin_map(gb_pack_key(&hooks, gb_hook_name((gb_hook)h)));
        gb_pack_key_uint(&hook, "calls", stats->hooks[h].calls);
        gb_pack_key_uint(&hook, "nils", stats->hooks[h].nils);
        gb_pack_key_uint(&hook, "faults", stats->hooks[h].faults);
        gb_pack_end(&hook);
        faults += stats->hooks[h].faults;
    }
    gb_pack_end(&hooks);
    return faults;
}

/* X(name, meaning): the counters as the serving core has them. */
#define COUNTERS(X) \
    X(accepted, "requests that were queued") \
    X(refused, "requests that were not") \
    X(finished, "ended by stop or length") \
    X(failed, "ended by a failure") \
    X(aborted, "ended by abort or a closed connection") \
    X(preempted, "times a request lost its blocks") \
    X(prompt_tokens, "of requests with a first token") \
    X(cached_tokens, "of them, not computed again") \
    X(generated_tokens, "sampled") \
    X(rounds, "run") \
    X(ordered_dispatches, "engine choices made in turn, for want of fresh traces") \
    X(windows, "profiling windows that have closed") \
    X(rearrangements, "decisions on the placement of experts") \
    X(rearrangements_accepted, "of them, worth a migration") \
    X(migrations_done, "migrations of experts that reached their placement") \
    X(migrations_cancelled, "ended on the way: by request, by a shutdown, or because an engine went down") \
    X(migrations_failed, "ended on the way because bytes could not be copied") \
    X(migrations_stalled, "ended on the way by the watchdog: no progress for 30 s") \
    X(experts_moved, "by migrations, to another slot") \
    X(bytes_moved, "with them; 0 where ranks share memory") \
    X(moves_left, "of the running migration") \
    X(live, "requests now") \
    X(running, "of them in batches") \
    X(waiting, "of them in queues") \
    X(blocks_used, "KV blocks that requests hold") \
    X(blocks_cached, "that only the prefix cache keeps") \
    X(blocks_total, "KV blocks of all engines")

void gb_rpc_pack_stats(gb_rpc_service *service, gb_pack *out)
{
    gb_server_stats stats;
    gb_server_stats_get(service->instance->server, &stats);
    gb_pack_list map = gb_pack_begin_map(out);
#define X(name, meaning) gb_pack_key_uint(&map, #name, stats.name);
    COUNTERS(X)
#undef X
    uint64_t faults = pack_hooks(gb_pack_key(&map, "hooks"), &stats);
    gb_pack_key_uint(&map, "policy_faults", faults);
    const gb_planner *planner = gb_server_planner(service->instance->server);
    gb_pack_key_float(&map, "expert_variation", planner ? gb_estimate_variation(&planner->estimate) : 0);
    gb_pack_key_float(&map, "expert_persistence", planner ? gb_estimate_persistence(&planner->estimate) : 0);
    gb_pack_key_bool(&map, "draining", gb_server_draining(service->instance->server));
    gb_pack_key_uint(&map, "connections", service->n_conns);
    gb_pack_end(&map);
}

static gb_rpc_outcome run_server_stats(gb_rpc_call *call)
{
    gb_rpc_pack_stats(call->service, call->out);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field hook_stats_fields[] = {
    {.name = "calls", .type = GB_RPC_INT, .doc = "decisions asked for"},
    {.name = "nils", .type = GB_RPC_INT, .doc = "no opinion: the built-in decided"},
    {.name = "faults", .type = GB_RPC_INT, .doc = "errors and refused answers: the built-in decided"},
    {0},
};

static const gb_rpc_field server_stats_result[] = {
#define X(name_, meaning) {.name = #name_, .type = GB_RPC_INT, .doc = meaning},
    COUNTERS(X)
#undef X
    {.name = "hooks", .type = GB_RPC_MAP, .shape = GB_RPC_BY_NAME, .fields = hook_stats_fields, .doc = "by hook"},
    {.name = "policy_faults", .type = GB_RPC_INT, .doc = "faults of all hooks"},
    {.name = "expert_variation", .type = GB_RPC_FLOAT, .doc = "mean over layers of expert_matrix.variation"},
    {.name = "expert_persistence", .type = GB_RPC_FLOAT, .doc = "mean over layers of expert_matrix.persistence"},
    {.name = "draining", .type = GB_RPC_BOOL, .doc = "no new requests are taken"},
    {.name = "connections", .type = GB_RPC_INT, .doc = "open now"},
    {0},
};

/* --- config_get --- */

#define PACK_VALUE(out, value) \
    _Generic((value), const char *: gb_pack_str, int64_t: gb_pack_int, double: gb_pack_float, bool: gb_pack_bool)(out, value)

static gb_rpc_outcome run_config_get(gb_rpc_call *call)
{
    const gb_options *options = call->service->instance->options;
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_list config = gb_pack_begin_map(gb_pack_key(&map, "config"));
#define X(group, key, type, text, low, high, metavar, help) PACK_VALUE(gb_pack_key(&config, #key), options->key);
    GB_OPTIONS(X)
#undef X
    gb_pack_end(&config);
    gb_pack_list sources = gb_pack_begin_map(gb_pack_key(&map, "sources"));
    for (uint32_t i = 0; i < gb_option_count; i++) gb_pack_key_str(&sources, gb_option_rows[i].key, options->sources[i]);
    gb_pack_end(&sources);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field config_get_result[] = {
    {.name = "config", .type = GB_RPC_ANY, .shape = GB_RPC_BY_NAME, .doc = "every option of --help with its value; \"\" = unset"},
    {.name = "sources", .type = GB_RPC_STRING, .shape = GB_RPC_BY_NAME, .doc = "where each value came from"},
    {0},
};

/* --- engine_list --- */

/* A column in the unit it travels in: nanoseconds as milliseconds, counts as integers. */
static void pack_column(gb_pack_list *map, const char *name, const char *unit, double value)
{
    char in_ms[64];
    size_t n = strlen(name);
    if (strcmp(unit, "ns") == 0) {
        memcpy(in_ms, name, n - 2);
        strcpy(in_ms + n - 2, "ms");
        gb_pack_key_float(map, in_ms, value / 1e6);
    } else if (strcmp(unit, "0 or 1") == 0) gb_pack_key_bool(map, name, value != 0);
    else if (strcmp(unit, "0..1") == 0 || strcmp(unit, "1 = average") == 0) gb_pack_key_float(map, name, value);
    else gb_pack_key_int(map, name, (int64_t)value);
}

static void pack_engine(gb_pack *out, const gb_server *server, uint32_t engine)
{
    const gb_server_options *options = gb_server_options_get(server);
    const gb_engine_table *engines = &gb_server_tables(server)->engines;
    uint32_t per_engine = options->ranks / options->engines;
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_key_uint(&map, "id", engine);
    gb_pack_list ranks = gb_pack_begin_array(gb_pack_key(&map, "ranks"));
    for (uint32_t r = 0; r < per_engine; r++) gb_pack_uint(gb_pack_next(&ranks), engine * per_engine + r);
    gb_pack_end(&ranks);
#define X(name, unit, meaning) pack_column(&map, #name, unit, engines->name[engine]);
    GB_ENGINE_COLUMNS(X)
#undef X
    gb_pack_key_int(&map, "kv_used", (int64_t)(engines->kv_used_ratio[engine] * options->blocks_per_engine + 0.5));
    gb_pack_key_uint(&map, "kv_total", options->blocks_per_engine);
    gb_pack_key_uint(&map, "trace_seq", gb_server_trace_seq(server, engine));
    gb_pack_end(&map);
}

void gb_rpc_pack_engines(gb_rpc_service *service, gb_pack *out)
{
    const gb_server *server = service->instance->server;
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_list engines = gb_pack_begin_array(gb_pack_key(&map, "engines"));
    for (uint32_t e = 0; e < gb_server_options_get(server)->engines; e++) pack_engine(gb_pack_next(&engines), server, e);
    gb_pack_end(&engines);
    gb_pack_end(&map);
}

static gb_rpc_outcome run_engine_list(gb_rpc_call *call)
{
    gb_rpc_pack_engines(call->service, call->out);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field engine_fields[] = {
    {.name = "id", .type = GB_RPC_INT, .doc = "0-based"},
    {.name = "ranks", .type = GB_RPC_INT, .shape = GB_RPC_LIST, .doc = "its own"},
    {.name = "running_prefill_tokens", .type = GB_RPC_INT, .doc = "unfinished prompt tokens of running requests"},
    {.name = "waiting_prefill_tokens", .type = GB_RPC_INT, .doc = "prompt tokens of waiting requests"},
    {.name = "pending_tokens", .type = GB_RPC_INT, .doc = "prompt tokens dispatched to it that its latest trace has not seen"},
    {.name = "kv_used_ratio", .type = GB_RPC_FLOAT, .doc = "KV blocks in use over all"},
    {.name = "kv_free_tokens", .type = GB_RPC_INT, .doc = "positions that fit into free blocks"},
    {.name = "moe_pressure", .type = GB_RPC_FLOAT,
     .doc = "recent expert tokens on its ranks over the mean of all engines; 1 = average"},
    {.name = "running", .type = GB_RPC_INT, .doc = "requests being served"},
    {.name = "waiting", .type = GB_RPC_INT, .doc = "requests waiting"},
    {.name = "oldest_wait_ms", .type = GB_RPC_FLOAT, .doc = "of its waiting requests"},
    {.name = "preemptions", .type = GB_RPC_INT, .doc = "since start"},
    {.name = "round_time_ms", .type = GB_RPC_FLOAT, .doc = "of its latest round"},
    {.name = "age_ms", .type = GB_RPC_FLOAT, .doc = "of the trace; 0 while nothing is in flight"},
    {.name = "valid", .type = GB_RPC_BOOL, .doc = "true once a trace exists"},
    {.name = "healthy", .type = GB_RPC_BOOL, .doc = "false when the engine is down"},
    {.name = "cached_tokens", .type = GB_RPC_INT,
     .doc = "of the latest request: its first tokens that the engine's prefix cache had"},
    {.name = "pending", .type = GB_RPC_INT, .doc = "requests dispatched to it that its latest trace has not seen"},
    {.name = "kv_used_tokens", .type = GB_RPC_INT, .doc = "positions in blocks that requests hold"},
    {.name = "kv_used", .type = GB_RPC_INT, .doc = "KV blocks in use; a block has 16 positions"},
    {.name = "kv_total", .type = GB_RPC_INT, .doc = "KV blocks of the engine"},
    {.name = "trace_seq", .type = GB_RPC_INT, .doc = "grows with each trace"},
    {0},
};

static const gb_rpc_field engine_list_result[] = {
    {.name = "engines", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = engine_fields, .doc = "the trace of each engine"},
    {0},
};

/* --- expert_matrix --- */

/* Counts as a matrix of u32 where they fit, of u64 where not. */
static void pack_counts(gb_pack *out, const uint64_t *counts, uint32_t n_dims, const uint32_t *dims)
{
    size_t n = 1;
    uint64_t largest = 0;
    for (uint32_t i = 0; i < n_dims; i++) n *= dims[i];
    for (size_t i = 0; i < n; i++) largest = counts[i] > largest ? counts[i] : largest;
    uint32_t *narrow = largest <= UINT32_MAX ? malloc(n * sizeof *narrow + 1) : NULL;
    for (size_t i = 0; narrow && i < n; i++) narrow[i] = (uint32_t)counts[i];
    if (narrow) gb_pack_matrix(out, GB_MATRIX_U32, n_dims, dims, narrow);
    else gb_pack_matrix(out, GB_MATRIX_U64, n_dims, dims, counts);
    free(narrow);
}

typedef struct view {
    const gb_matrix *counts;
    uint64_t id;
    bool running;
    gb_time from, to;
    uint32_t rounds, counted;
} view;

static view view_of(const gb_server *server, bool running)
{
    view v = {.running = running};
    v.counts = gb_server_window(server, running, &v.id, &v.from, &v.to);
    v.rounds = gb_server_window_rounds(server, running, &v.counted);
    return v;
}

/* The latest closed window; before there is one (its id is 0), the running one. */
static view default_view(const gb_server *server)
{
    view closed = view_of(server, false);
    return closed.id ? closed : view_of(server, true);
}

static void pack_estimate(gb_pack_list *map, const gb_planner *planner, uint32_t first, uint32_t layers)
{
    if (!planner) return;
    gb_pack_matrix(gb_pack_key(map, "variation"), GB_MATRIX_F64, 1, (uint32_t[]){layers}, planner->estimate.variation + first);
    gb_pack_matrix(gb_pack_key(map, "persistence"), GB_MATRIX_F64, 1, (uint32_t[]){layers}, planner->estimate.persistence + first);
}

static int pack_view(gb_pack *out, const view *v, const gb_planner *planner, uint32_t first, uint32_t layers)
{
    gb_matrix a = {.layers = layers,
                   .sources = v->counts->sources,
                   .experts = v->counts->experts,
                   .counts = gb_matrix_row(v->counts, first, 0)};
    uint64_t *b = malloc(((size_t)layers * a.experts + 1) * sizeof *b);
    if (!b) return GB_ENOMEM;
    gb_matrix_sum_sources(&a, b);
    gb_pack_list map = gb_pack_begin_map(out);
    pack_counts(gb_pack_key(&map, "A"), a.counts, 3, (uint32_t[]){layers, a.sources, a.experts});
    pack_counts(gb_pack_key(&map, "B"), b, 2, (uint32_t[]){layers, a.experts});
    pack_estimate(&map, planner, first, layers);
    gb_pack_key_uint(&map, "first_layer", first);
    gb_pack_key_uint(&map, "window_id", v->id);
    gb_pack_key_uint(&map, "rounds", v->rounds);
    gb_pack_key_uint(&map, "counted_rounds", v->counted);
    gb_pack_key_bool(&map, "running", v->running);
    gb_pack_key_float(&map, "t0_ms", gb_to_ms(v->from));
    gb_pack_key_float(&map, "t1_ms", gb_to_ms(v->to));
    gb_pack_end(&map);
    free(b);
    return GB_OK;
}

void gb_rpc_pack_experts(gb_rpc_service *service, gb_pack *out)
{
    view v = default_view(service->instance->server);
    pack_view(out, &v, gb_server_planner(service->instance->server), 0, v.counts->layers);
}

static gb_rpc_outcome find_view(gb_rpc_call *call, view *v)
{
    const gb_server *server = call->service->instance->server;
    view running = view_of(server, true), closed = view_of(server, false);
    *v = default_view(server);
    uint64_t wanted = (uint64_t)gb_rpc_param_int(call->params, "window", (int64_t)v->id);
    if (wanted == 0 || wanted == running.id) *v = running;
    else if (wanted == closed.id) *v = closed;
    else
        return gb_rpc_fail(call, GB_RPC_NOT_FOUND, "window",
                           "window %llu is not kept: %llu is running, and the latest closed one is kept",
                           (unsigned long long)wanted, (unsigned long long)running.id);
    return GB_RPC_REPLIED;
}

static gb_rpc_outcome run_expert_matrix(gb_rpc_call *call)
{
    view v;
    if (find_view(call, &v) == GB_RPC_FAILED) return GB_RPC_FAILED;
    int64_t layer = gb_rpc_param_int(call->params, "layer", -1);
    if (layer >= (int64_t)v.counts->layers)
        return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "layer", "layer is %lld, but MoE layers are 0..%u", (long long)layer,
                           v.counts->layers - 1);
    int status = pack_view(call->out, &v, gb_server_planner(call->service->instance->server), layer < 0 ? 0 : (uint32_t)layer, layer < 0 ? v.counts->layers : 1);
    return status == GB_OK ? GB_RPC_REPLIED : gb_rpc_fail_status(call, status, NULL);
}

static const gb_rpc_field expert_matrix_params[] = {
    {.name = "layer", .type = GB_RPC_INT, .low = 0, .high = GB_LAYERS_MAX, .doc = "one MoE layer; default: all"},
    {.name = "window", .type = GB_RPC_INT, .low = 0, .high = INT64_MAX,
     .doc = "id of a window, 0 = the running one; default: the latest closed one, before there is one the running one"},
    {0},
};

static const gb_rpc_field expert_matrix_result[] = {
    {.name = "A", .type = GB_RPC_MATRIX, .doc = "[layer, source, expert] tokens routed"},
    {.name = "B", .type = GB_RPC_MATRIX, .doc = "[layer, expert] sum of A over sources"},
    {.name = "variation", .type = GB_RPC_MATRIX, .optional = true,
     .doc = "[layer] total variation between engines in the latest closed window: 0 = all alike, 1 = nothing in common"},
    {.name = "persistence", .type = GB_RPC_MATRIX, .optional = true,
     .doc = "[layer] how much of the difference between engines lasts from window to window: 0 = noise, 1 = all of it"},
    {.name = "first_layer", .type = GB_RPC_INT, .doc = "MoE layer of the first row"},
    {.name = "window_id", .type = GB_RPC_INT, .doc = "grows by one with each window"},
    {.name = "rounds", .type = GB_RPC_INT, .doc = "so far"},
    {.name = "counted_rounds", .type = GB_RPC_INT,
     .doc = "of them in A and B; a device may bring the counts of a running window only when it closes"},
    {.name = "running", .type = GB_RPC_BOOL, .doc = "whether it is still being counted"},
    {.name = "t0_ms", .type = GB_RPC_FLOAT, .doc = "its first round began, on the clock of ping"},
    {.name = "t1_ms", .type = GB_RPC_FLOAT, .doc = "its latest round ended"},
    {0},
};

/* --- placement_get --- */

void gb_rpc_pack_placement(gb_rpc_service *service, gb_pack *out)
{
    const gb_placement *p = gb_server_placement(service->instance->server);
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_key_uint(&map, "version", p->version);
    gb_pack_key_uint(&map, "ranks", p->ranks);
    gb_pack_key_uint(&map, "slots_per_rank", p->slots_per_rank);
    gb_pack_key_uint(&map, "expert_bytes", gb_server_options_get(service->instance->server)->placement.solve.expert_bytes);
    gb_pack_matrix(gb_pack_key(&map, "slots"), GB_MATRIX_U32, 3, (uint32_t[]){p->layers, p->ranks, p->slots_per_rank},
                   p->expert_of_slot);
    gb_pack_matrix(gb_pack_key(&map, "route"), GB_MATRIX_U32, 3, (uint32_t[]){p->layers, p->sources, p->experts}, p->route);
    gb_pack_end(&map);
}

static gb_rpc_outcome run_placement_get(gb_rpc_call *call)
{
    uint32_t current = gb_server_placement(call->service->instance->server)->version;
    int64_t wanted = gb_rpc_param_int(call->params, "version", current);
    if (wanted != current)
        return gb_rpc_fail(call, GB_RPC_NOT_FOUND, "version", "placement version %lld is not kept: the current one is %u",
                           (long long)wanted, current);
    gb_rpc_pack_placement(call->service, call->out);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field placement_get_params[] = {
    {.name = "version", .type = GB_RPC_INT, .low = 0, .high = UINT32_MAX, .doc = "only the current one is kept; default: that"},
    {0},
};

static const gb_rpc_field placement_get_result[] = {
    {.name = "version", .type = GB_RPC_INT, .doc = "grows with each change"},
    {.name = "ranks", .type = GB_RPC_INT, .doc = "how many"},
    {.name = "slots_per_rank", .type = GB_RPC_INT, .doc = "places for one expert of a layer on a rank"},
    {.name = "expert_bytes", .type = GB_RPC_INT, .doc = "weights of one expert of one layer"},
    {.name = "slots", .type = GB_RPC_MATRIX, .doc = "[layer, rank, slot] expert, or 4294967295 for an empty slot"},
    {.name = "route", .type = GB_RPC_MATRIX,
     .doc = "[layer, source, expert] slot (rank * slots_per_rank + place) that serves the source"},
    {0},
};

const gb_rpc_method gb_rpc_look_methods[] = {
    {"model_info", GB_RPC_NEEDS_HELLO, 1, run_model_info, gb_rpc_no_fields, model_info_result, "What is served, and on what."},
    {"server_stats", GB_RPC_NEEDS_HELLO, 1, run_server_stats, gb_rpc_no_fields, server_stats_result,
     "Counters since start, and gauges."},
    {"config_get", GB_RPC_NEEDS_HELLO, 1, run_config_get, gb_rpc_no_fields, config_get_result,
     "Every option and where its value came from."},
    {"engine_list", GB_RPC_NEEDS_HELLO, 1, run_engine_list, gb_rpc_no_fields, engine_list_result,
     "The engines and their traces: what policies see."},
    {"expert_matrix", GB_RPC_NEEDS_HELLO, 1, run_expert_matrix, expert_matrix_params, expert_matrix_result,
     "Which engine's tokens went to which expert in a profiling window."},
    {"placement_get", GB_RPC_NEEDS_HELLO, 1, run_placement_get, placement_get_params, placement_get_result,
     "Where the experts live."},
    {0},
};
