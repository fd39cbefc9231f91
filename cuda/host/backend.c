/* The plugin: the exported symbol, the probe of the device, and the life of a context. GB_CUDA_NAME is "cuda", or "cuemu" where the
   emulator stands for the device. */
#include "cuda/host/gang.h"
#include "cuda/host/layout.h"
#include "cuda/host/rank.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/model/sampler.h"

enum { LEAST_CAPABILITY = 8 };    /* tensor cores with bfloat16, asynchronous copies */

/* --- the device --- */

static int probe(gb_backend_device *device, gb_error *err)
{
    int n = 0, major = 0;
    size_t free_bytes = 0, bytes = 0;
    struct cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0) {
        cudaGetLastError();
        return gb_fail(err, GB_EUNSUPPORTED, "backend " GB_CUDA_NAME ": no GPU can be used (%s); check nvidia-smi, or use --backend cpu",
                       error == cudaSuccess ? "none was found" : cudaGetErrorString(error));
    }
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || cudaMemGetInfo(&free_bytes, &bytes) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess)
        return gb_fail(err, GB_EUNSUPPORTED, "backend " GB_CUDA_NAME ": the GPU does not answer (%s); use --backend cpu",
                       cudaGetErrorString(cudaGetLastError()));
    if (major < LEAST_CAPABILITY)
        return gb_fail(err, GB_EUNSUPPORTED, "backend " GB_CUDA_NAME ": %s has compute capability %d; %d is the least; use --backend cpu",
                       properties.name, major, LEAST_CAPABILITY);
    snprintf(device->name, sizeof device->name, "%.*s", (int)sizeof device->name - 1, properties.name);
    device->memory = free_bytes;
    return GB_OK;
}

/* --- what can be run --- */

static size_t kv_layer_elements(const gb_model_config *c, uint32_t blocks) { return (size_t)blocks * 2 * c->kv_heads * GB_BLOCK_TOKENS * c->head_dim; }

static size_t block_bytes(const gb_model_config *config, bool f32)
{
    (void)f32;    /* ops_new refuses it with a sentence */
    return config->layers * kv_layer_elements(config, 1) * sizeof(uint16_t);
}

static int check_model(const gb_model_config *c, const gb_backend_options *options, gb_error *err)
{
    uint32_t group = c->heads / c->kv_heads, slots = c->experts + options->limits.ranks * options->limits.spare_slots;
    if (options->f32)
        return gb_fail(err, GB_EUNSUPPORTED, "backend " GB_CUDA_NAME " computes in bfloat16: give --dtype bfloat16, or --backend cpu for float32");
    if (c->head_dim != 16 && c->head_dim != 32 && c->head_dim != 64 && c->head_dim != 96 && c->head_dim != 128)
        return gb_fail(err, GB_EUNSUPPORTED, "backend " GB_CUDA_NAME " has attention for heads of 16, 32, 64, 96 and 128 elements, not %u; use --backend cpu",
                       c->head_dim);
    if (group > GB_K_TILE_ROWS)
        return gb_fail(err, GB_EUNSUPPORTED, "backend " GB_CUDA_NAME " has attention for at most %d heads to a kv head, not %u; use --backend cpu",
                       GB_K_TILE_ROWS, group);
    if (c->hidden % 8 || c->expert_intermediate % 8 || c->dense_intermediate % 8)
        return gb_fail(err, GB_EUNSUPPORTED, "backend " GB_CUDA_NAME " needs sizes that are multiples of 8: hidden is %u, intermediate %u and %u; "
                       "use --backend cpu", c->hidden, c->expert_intermediate, c->dense_intermediate);
    if (c->vocab > GB_K_VOCAB_MAX)
        return gb_fail(err, GB_EUNSUPPORTED, "backend " GB_CUDA_NAME " samples from at most %d tokens, not %u; use --backend cpu", GB_K_VOCAB_MAX, c->vocab);
    if (c->experts_per_token > GB_K_TOP_MAX || slots > GB_K_SLOTS_MAX)
        return gb_fail(err, GB_EUNSUPPORTED, "backend " GB_CUDA_NAME " takes at most %d experts a token and %d slots a layer, not %u and %u; "
                       "use --backend cpu", GB_K_TOP_MAX, GB_K_SLOTS_MAX, c->experts_per_token, slots);
    return GB_OK;
}

/* --- memory --- */

static size_t max_of(size_t a, size_t b) { return a > b ? a : b; }

static int take_hidden(gb_cuda *cuda, size_t rows)
{
    const gb_model_config *c = &cuda->config;
    GB_TRY(gb_cuda_take(cuda, &cuda->x, rows * c->hidden, sizeof(float)));
    GB_TRY(gb_cuda_take(cuda, &cuda->x_moved, rows * c->hidden, sizeof(float)));
    GB_TRY(gb_cuda_take(cuda, &cuda->h, rows * c->hidden, sizeof(uint16_t)));
    return gb_cuda_take(cuda, &cuda->h32, rows * c->hidden, sizeof(float));
}

static int take_attention(gb_cuda *cuda, size_t rows)
{
    const gb_model_config *c = &cuda->config;
    size_t per_partial = (size_t)cuda->part.kv_heads * GB_K_TILE_ROWS * (c->head_dim + 2);
    size_t chunks = (cuda->base.info.limits.max_positions + GB_K_CHUNK - 1) / GB_K_CHUNK + 1;
    size_t partials = max_of(chunks, cuda->max_partials < GB_CUDA_PARTIALS ? cuda->max_partials : GB_CUDA_PARTIALS);
    GB_TRY(gb_cuda_take(cuda, &cuda->qkv, rows * cuda->qkv_dim, sizeof(float)));
    GB_TRY(gb_cuda_take(cuda, &cuda->q, rows * cuda->q_dim, sizeof(uint16_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->attended, rows * cuda->q_dim, sizeof(uint16_t)));
    GB_CUDA(cudaMemset(cuda->attended, 0, rows * cuda->q_dim * sizeof(uint16_t)));    /* padding rows attend to nothing */
    return gb_cuda_take(cuda, &cuda->partial, partials * per_partial, sizeof(float));
}

static int take_routes(gb_cuda *cuda, size_t rows)
{
    const gb_model_config *c = &cuda->config;
    const gb_ops_info *info = &cuda->base.info;
    size_t routes = rows * c->experts_per_token, arrivals = cuda->max_arrivals;
    GB_TRY(gb_cuda_take(cuda, &cuda->router_logits, rows * c->experts, sizeof(float)));
    GB_TRY(gb_cuda_take(cuda, &cuda->weights, routes, sizeof(float)));
    GB_TRY(gb_cuda_take(cuda, &cuda->experts, routes, sizeof(int32_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->slot_of_route, routes, sizeof(int32_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->grouped_of_route, routes, sizeof(int32_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->place_in_slot, routes, sizeof(uint32_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->offsets, info->slots + 1, sizeof(uint32_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->dispatch_work, info->slots + 1, sizeof(uint32_t)));
    GB_CUDA(cudaMemset(cuda->dispatch_work, 0, (info->slots + 1) * sizeof(uint32_t)));
    cuda->group_offsets = cuda->offsets;
    GB_TRY(gb_cuda_take(cuda, &cuda->grouped, arrivals * c->hidden, sizeof(uint16_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->gated, max_of(arrivals * c->expert_intermediate, rows * c->dense_intermediate), sizeof(uint16_t)));
    return gb_cuda_take(cuda, &cuda->expert_out, max_of(arrivals, rows) * c->hidden, sizeof(uint16_t));
}

static int take_sampler(gb_cuda *cuda, size_t rows)
{
    uint32_t vocab = cuda->config.vocab;
    cuda->max_edits = (uint32_t)rows * GB_CUDA_ROW_EDITS;
    GB_TRY(gb_cuda_take(cuda, &cuda->choices, rows, sizeof(gb_k_choice)));
    GB_TRY(gb_cuda_take(cuda, &cuda->edits, cuda->max_edits, sizeof(gb_k_edit)));
    GB_TRY(gb_cuda_take_pinned(cuda, &cuda->pinned_choices, rows, sizeof(gb_k_choice)));
    GB_TRY(gb_cuda_take_pinned(cuda, &cuda->pinned_edits, cuda->max_edits, sizeof(gb_k_edit)));
    cuda->edit_of_token = GB_ARENA_NEW(&cuda->arena, uint32_t, vocab);
    cuda->sampler_scratch = gb_arena_take(&cuda->arena, 1, gb_sampler_scratch_bytes(vocab));
    return cuda->edit_of_token && cuda->sampler_scratch ? GB_OK : gb_k_fail(GB_ENOMEM, "out of memory for the sampler");
}

static int take_head(gb_cuda *cuda)
{
    const gb_model_config *c = &cuda->config;
    size_t rows = cuda->base.info.head_rows;
    GB_TRY(gb_cuda_take(cuda, &cuda->head_rows, rows, sizeof(int32_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->head_h, rows * c->hidden, sizeof(uint16_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->logits, rows * c->vocab, sizeof(float)));
    GB_TRY(gb_cuda_take(cuda, &cuda->sampled, rows, sizeof(int32_t)));
    GB_TRY(gb_cuda_take_pinned(cuda, &cuda->pinned_head_rows, rows, sizeof(int32_t)));
    GB_TRY(gb_cuda_take_pinned(cuda, &cuda->pinned_logits, c->vocab, sizeof(float)));
    GB_TRY(gb_cuda_take_pinned(cuda, &cuda->pinned_sampled, rows, sizeof(int32_t)));
    return take_sampler(cuda, rows);
}

/* Zeros at first, so that no position holds a NaN of somebody else. */
static int take_kv(gb_cuda *cuda)
{
    const gb_ops_limits *limits = &cuda->base.info.limits;
    cuda->kv_layer_elements = cuda->part.engines * kv_layer_elements(&cuda->config, limits->blocks_per_engine) / cuda->part.tensor_ranks;
    size_t bytes = cuda->config.layers * cuda->kv_layer_elements * sizeof(uint16_t);
    cuda->base.info.kv_bytes = bytes;
    GB_TRY(gb_cuda_take(cuda, &cuda->kv, bytes, 1));
    GB_CUDA(cudaMemset(cuda->kv, 0, bytes));
    return GB_OK;
}

/* Cosine and sine of every position, rounded as the cpu does. */
static int take_angles(gb_cuda *cuda)
{
    uint32_t middle = cuda->config.head_dim / 2, positions = cuda->base.info.limits.max_positions;
    size_t bytes = (size_t)positions * 2 * middle * sizeof(float);
    double *inv_freq = GB_ARENA_NEW(&cuda->arena, double, middle), factor;
    float *angles = malloc(bytes);
    int status = inv_freq && angles ? gb_cuda_take(cuda, &cuda->angles, bytes, 1) : gb_k_fail(GB_ENOMEM, "out of memory for rotary angles");
    if (status == GB_OK) {
        gb_rope_frequencies(&cuda->config, inv_freq, &factor);
        for (size_t i = 0; i < (size_t)positions * middle; i++) {
            float angle = (float)(i / middle) * (float)inv_freq[i % middle];
            angles[2 * i] = (float)(cos(angle) * factor);
            angles[2 * i + 1] = (float)(sin(angle) * factor);
        }
        if (cudaMemcpy(cuda->angles, angles, bytes, cudaMemcpyHostToDevice) != cudaSuccess)
            status = gb_k_fail(GB_EDOWN, "the rotary angles did not reach the device: %s", cudaGetErrorString(cudaGetLastError()));
    }
    free(angles);
    return status;
}

static int take_memory(gb_cuda *cuda)
{
    size_t rows = cuda->max_rows;
    GB_TRY(gb_cuda_flags_new(cuda));
    GB_TRY(take_kv(cuda));
    GB_TRY(take_angles(cuda));
    GB_TRY(gb_cuda_take_tables(cuda));
    GB_TRY(gb_cuda_take_maps(cuda));
    GB_TRY(take_hidden(cuda, rows));
    GB_TRY(take_attention(cuda, rows));
    GB_TRY(take_routes(cuda, cuda->max_share));
    GB_TRY(gb_cuda_take_counts(cuda));
    GB_TRY(take_head(cuda));
    return cuda->world ? gb_cuda_take_rank(cuda) : GB_OK;
}

/* --- life --- */

void gb_cuda_free(gb_ops *ops)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    gb_cuda_product *products[] = {&cuda->qkv_product, &cuda->o_product, &cuda->router_product, &cuda->head_product};
    cudaSetDevice(cuda->device);
    if (cuda->world) gb_cuda_settle(cuda);    /* a device with a collective that nobody joins would never be done */
    cudaDeviceSynchronize();
    gb_cuda_free_graphs(cuda);
    if (cuda->world) gb_cuda_leave_world(cuda);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) gb_cuda_product_free(products[i]);
    gb_cuda_experts_close(cuda);
    if (cuda->lt) cublasLtDestroy(cuda->lt);
    if (cuda->uploaded) cudaEventDestroy(cuda->uploaded);
    if (cuda->compute) cudaStreamDestroy(cuda->compute);
    if (cuda->migrate) cudaStreamDestroy(cuda->migrate);
    if (cuda->statistics) cudaStreamDestroy(cuda->statistics);
    if (cuda->counted) cudaEventDestroy(cuda->counted);
    gb_cuda_give_back(cuda);
    gb_arena_deinit(&cuda->arena);
    free(cuda);
}

static const gb_ops_table cuda_table = {
    .embed = gb_cuda_embed, .compact = gb_cuda_compact, .norm = gb_cuda_norm, .attention = gb_cuda_attention, .mlp = gb_cuda_mlp,
    .router = gb_cuda_router, .dispatch = gb_cuda_dispatch, .experts = gb_cuda_experts, .combine = gb_cuda_combine, .head = gb_cuda_head,
    .sample = gb_cuda_sample, .finish = gb_cuda_finish, .copy_expert = gb_cuda_copy_expert, .checksum = gb_cuda_checksum, .read = gb_cuda_read,
    .cancel = gb_cuda_cancel, .cancelled = gb_cuda_cancelled, .free = gb_cuda_free,
};

static int open_device(gb_cuda *cuda)
{
    int processors = 0, major = 0, minor = 0, lowest = 0, highest = 0;
    GB_CUDA(cudaSetDevice(cuda->device));
    GB_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, cuda->device));
    GB_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->device));
    GB_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->device));
    GB_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    GB_CUDA(cudaStreamCreateWithPriority(&cuda->compute, cudaStreamNonBlocking, highest));
    GB_CUDA(cudaStreamCreateWithPriority(&cuda->migrate, cudaStreamNonBlocking, lowest));
    GB_CUDA(cudaStreamCreateWithPriority(&cuda->statistics, cudaStreamNonBlocking, lowest));
    GB_CUDA(cudaEventCreateWithFlags(&cuda->counted, cudaEventDisableTiming));
    GB_CUDA(cudaEventCreateWithFlags(&cuda->uploaded, cudaEventDisableTiming));
    GB_CUBLAS(cublasLtCreate(&cuda->lt));
    cuda->processors = (uint32_t)processors;
    cuda->capability = (uint32_t)(major * 10 + minor);
    return GB_OK;
}

static int open_products(gb_cuda *cuda)
{
    const gb_model_config *c = &cuda->config;
    GB_TRY(gb_cuda_product_new(cuda, &cuda->qkv_product, cuda->qkv_dim, c->hidden, false, false));
    GB_TRY(gb_cuda_product_new(cuda, &cuda->o_product, c->hidden, cuda->q_dim, false, c->attention_bias && cuda->part.tensor_ranks == 1));
    if (c->moe_layers) GB_TRY(gb_cuda_product_new(cuda, &cuda->router_product, c->experts, c->hidden, true, false));
    return gb_cuda_product_new(cuda, &cuda->head_product, c->vocab, c->hidden, false, false);
}

static int open_cuda(gb_cuda *cuda, const gb_weights *weights, const gb_backend_options *options, const gb_cuda_seat *seat)
{
    GB_TRY(open_device(cuda));
    GB_TRY(gb_cuda_experts_open(cuda, options->experts));
    if (seat) GB_TRY(gb_cuda_join_world(cuda, options, seat));
    GB_TRY(open_products(cuda));
    GB_TRY(gb_cuda_load_weights(cuda, weights));
    GB_TRY(take_memory(cuda));
    GB_CUDA(cudaDeviceSynchronize());
    snprintf(cuda->base.info.kernels, sizeof cuda->base.info.kernels, "sm_%u, experts by %s, bfloat16", cuda->capability,
             gb_cuda_experts_name(&cuda->expert_runner));
    return GB_OK;
}

static void fill_part(gb_cuda *cuda, const gb_ops_limits *l)
{
    const gb_model_config *c = &cuda->config;
    const gb_cuda_part *part = &cuda->part;
    cuda->max_spans = part->engines * l->max_works;
    cuda->max_rows = (part->engines * l->max_tokens + part->unit - 1) / part->unit * part->unit;
    cuda->max_share = cuda->max_rows / part->tensor_ranks;
    cuda->max_arrivals = cuda->max_share * gb_cuda_arrivals_per_row(cuda);
    cuda->q_dim = part->heads * c->head_dim;
    cuda->kv_dim = part->kv_heads * c->head_dim;
    cuda->qkv_dim = cuda->q_dim + 2 * cuda->kv_dim;
}

static void fill_shape(gb_cuda *cuda, const gb_ops_limits *l, const gb_cuda_seat *seat)
{
    const gb_model_config *c = &cuda->config;
    gb_ops_info *info = &cuda->base.info;
    uint32_t works = l->engines * l->max_works;
    cuda->place_elements = (size_t)3 * c->expert_intermediate * c->hidden;
    *info = (gb_ops_info){
        .backend = GB_CUDA_NAME, .limits = *l, .layers = c->layers, .moe_layers = c->moe_layers, .experts = c->experts,
        .experts_per_token = c->experts_per_token, .slots = c->experts + l->ranks * l->spare_slots, .hidden = c->hidden, .vocab = c->vocab,
        .threads = 1, .keeps_counts = true, .expert_bytes = c->moe_layers ? cuda->place_elements * sizeof(uint16_t) : 0,
        .head_rows = works < GB_CUDA_HEAD_ROWS ? works : GB_CUDA_HEAD_ROWS,
    };
    info->places = l->private_ranks ? info->slots + l->ranks : c->experts;
    cuda->part = seat ? gb_cuda_part_of(cuda, seat) : (gb_cuda_part){
        .engines = l->engines, .tensor_ranks = 1, .heads = c->heads, .kv_heads = c->kv_heads, .slots = info->slots, .places = info->places, .unit = 1,
    };
    fill_part(cuda, l);
}

int gb_cuda_open(gb_ops **out, const gb_model_config *config, const gb_weights *weights, const gb_backend_options *options,
                 const gb_cuda_seat *seat, gb_error *err)
{
    int status = gb_backend_check_limits(&options->limits, config, err);
    if (status == GB_OK) status = check_model(config, options, err);
    if (status == GB_OK && seat) status = gb_cuda_check_seat(config, options, seat, err);
    if (status != GB_OK) return status;
    gb_cuda *cuda = calloc(1, sizeof *cuda);
    if (!cuda) return gb_fail(err, GB_ENOMEM, "out of memory for the " GB_CUDA_NAME " backend");
    cuda->base.table = seat ? &gb_cuda_rank_table : &cuda_table;
    cuda->config = *config;
    cuda->eager = options->eager;
    cuda->device = seat ? seat->device : 0;
    gb_arena_init(&cuda->arena);
    fill_shape(cuda, &options->limits, seat);
    status = open_cuda(cuda, weights, options, seat);
    if (status == GB_OK) {
        *out = &cuda->base;
        return GB_OK;
    }
    gb_cuda_free(&cuda->base);
    return gb_fail(err, status, "backend " GB_CUDA_NAME ": %s", gb_k_message());
}

/* --- one device, or a gang of ranks with a device each --- */

static const gb_follower_calls rank_calls = {
    .ids = gb_cuda_world_ids, .open = gb_cuda_rank_new, .send = gb_cuda_send_expert, .receive = gb_cuda_receive_expert, .give_up = gb_cuda_give_up,
};

static uint32_t count_devices(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess) return (uint32_t)n;
    cudaGetLastError();
    return 0;
}

/* What cannot be laid out is for ops_new to say. */
static uint32_t devices(const gb_model_config *config, const gb_backend_options *options)
{
    gb_cuda_layout layout;
    int status = gb_cuda_choose_layout(&layout, config, options, count_devices(), NULL);
    return status != GB_OK || layout == GB_CUDA_ONE ? 1 : options->limits.ranks;
}

static int ops_new(gb_ops **out, const gb_model_config *config, const gb_weights *weights, const gb_backend_options *options, gb_error *err)
{
    gb_cuda_layout layout;
    gb_backend_options own = *options;
    if (options->log) gb_log_set_sink(options->log, options->log_self, GB_LOG_DEBUG);    /* the other side knows which level it wants */
    int status = gb_backend_check_limits(&options->limits, config, err);
    if (status == GB_OK) status = gb_cuda_choose_layout(&layout, config, options, count_devices(), err);
    if (status != GB_OK) return status;
    if (layout == GB_CUDA_ONE) return gb_cuda_open(out, config, weights, options, NULL, err);
    if (!own.limits.private_ranks) gb_log(GB_LOG_INFO, "rank_memory is private: each rank has the memory of its own GPU");
    own.limits.private_ranks = true;
    if (layout == GB_CUDA_PROCESSES) cudaDeviceReset();    /* the probe's context: ranks have their own */
    return gb_gang_new(out, &rank_calls, config, weights, &own, layout == GB_CUDA_PROCESSES, err);
}

static int serve_rank(int socket, gb_error *err) { return gb_follower_serve(&rank_calls, socket, err); }

__attribute__((visibility("default"))) const gb_backend *gimbal_backend_open(uint32_t abi);

const gb_backend *gimbal_backend_open(uint32_t abi)
{
    static const gb_backend backend = {
        .abi = GB_BACKEND_ABI, .sizes = GB_BACKEND_SIZES, .name = GB_CUDA_NAME, .probe = probe, .block_bytes = block_bytes,
        .devices = devices, .ops_new = ops_new,
        .serve_rank = serve_rank,
    };
    return abi == GB_BACKEND_ABI ? &backend : NULL;
}
