/* A rank's seat in the world: what of the model is its own, the communicators, and the handshake in which all ranks find out that they
   were opened with the same options. */
#include "cuda/host/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- ids --- */

int gb_cuda_world_ids(gb_cuda_ids *ids, const gb_ops_limits *limits, gb_error *err)
{
    uint32_t per_engine = limits->ranks / limits->engines;
    ncclResult_t result = ncclGetUniqueId(&ids[0].world);
    if (result == ncclSuccess) result = ncclGetUniqueId(&ids[0].movers);
    for (uint32_t rank = 0; result == ncclSuccess && rank < limits->ranks; rank++) {
        ids[rank].world = ids[0].world;
        ids[rank].movers = ids[0].movers;
        if (rank % per_engine == 0) result = ncclGetUniqueId(&ids[rank].engine);
        else ids[rank].engine = ids[rank - 1].engine;
    }
    if (result == ncclSuccess) return GB_OK;
    return gb_fail(err, GB_EUNSUPPORTED, "backend " GB_CUDA_NAME ": ranks on several devices need NCCL, which says: %s", ncclGetErrorString(result));
}

int gb_cuda_rank_new(gb_ops **out, const gb_model_config *config, const gb_weights *weights, const gb_backend_options *options,
                     const gb_cuda_seat *seat, gb_error *err)
{
    return gb_cuda_open(out, config, weights, options, seat, err);
}

/* --- the seat --- */

int gb_cuda_check_seat(const gb_model_config *config, const gb_backend_options *options, const gb_cuda_seat *seat, gb_error *err)
{
    const gb_ops_limits *l = &options->limits;
    uint32_t tensor_ranks = l->ranks / l->engines;
    gb_cuda_way way;
    if (seat->rank >= l->ranks) return gb_fail(err, GB_EINVAL, "rank %u is none of %u", seat->rank, l->ranks);
    if (!l->private_ranks)
        return gb_fail(err, GB_EINVAL, "ranks on devices of their own have experts in memory of their own: private_ranks must be set");
    if (!gb_cuda_way_of(options->exchange, &way))
        return gb_fail(err, GB_EINVAL, "tokens cannot reach other ranks by \"%s\": choose agrs, sendrecv, lsa or auto", options->exchange);
    if (l->ranks > gb_cuda_way_ranks(way))
        return gb_fail(err, GB_EUNSUPPORTED, "tokens reach at most %u ranks by %s, not %u: choose agrs", gb_cuda_way_ranks(way), options->exchange,
                       l->ranks);
    if (config->kv_heads % tensor_ranks)
        return gb_fail(err, GB_EUNSUPPORTED, "%u kv heads cannot be split over the %u ranks of an engine: choose a number of engines that leaves each "
                       "a divisor of %u ranks", config->kv_heads, tensor_ranks, config->kv_heads);
    return GB_OK;
}

gb_cuda_part gb_cuda_part_of(const gb_cuda *cuda, const gb_cuda_seat *seat)
{
    const gb_ops_info *info = &cuda->base.info;
    uint32_t tensor_ranks = info->limits.ranks / info->limits.engines, slots = info->slots / info->limits.ranks;
    return (gb_cuda_part){
        .rank = seat->rank, .engine = seat->rank / tensor_ranks, .engines = 1, .tensor_ranks = tensor_ranks,
        .tensor_rank = seat->rank % tensor_ranks, .heads = cuda->config.heads / tensor_ranks, .kv_heads = cuda->config.kv_heads / tensor_ranks,
        .first_slot = seat->rank * slots, .slots = slots, .places = slots + 1,
        .unit = tensor_ranks == 1 ? 1 : tensor_ranks * GB_CUDA_TENSOR_UNIT,
    };
}

/* --- communicators --- */

static int open_comm(gb_cuda *cuda, ncclComm_t *comm, uint32_t ranks, const ncclUniqueId *id, uint32_t rank, int most_blocks)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (most_blocks) {
        config.minCTAs = 1;
        config.maxCTAs = most_blocks;
    }
    GB_NCCL(cuda, *comm, ncclCommInitRankConfig(comm, (int)ranks, *id, (int)rank, &config));
    return GB_OK;
}

/* Ends a communicator that nothing waits in, together with the other ranks. */
static void close_comm(gb_cuda *cuda, ncclComm_t *comm)
{
    if (!*comm || gb_cuda_enter(cuda) != GB_OK) return;
    if (gb_cuda_leave(cuda, comm, ncclCommFinalize(*comm), "ncclCommFinalize") == GB_OK) ncclCommDestroy(*comm);
    *comm = NULL;
}

/* --- the handshake --- */

enum { HELLO_WORDS = 2 };

/* Of all that must be the same on every rank: the model's shape, limits, and which collectives will be called. */
static uint64_t fingerprint(const gb_cuda *cuda)
{
    const gb_model_config *c = &cuda->config;
    const gb_ops_limits *l = &cuda->base.info.limits;
    const uint64_t words[] = {
        GB_BACKEND_ABI, c->layers, c->moe_layers, c->hidden, c->vocab, c->heads, c->kv_heads, c->head_dim, c->experts, c->experts_per_token,
        c->expert_intermediate, c->dense_intermediate, l->engines, l->ranks, l->spare_slots, l->max_works, l->max_tokens, l->max_positions,
        l->blocks_per_engine, cuda->eager, cuda->world->way,
    };
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) sum = gb_mix64(sum ^ words[i]) + 1;
    return sum;
}

static int compare_hellos(const gb_cuda *cuda, const uint32_t *hellos)
{
    const uint32_t *own = hellos + (size_t)cuda->part.rank * HELLO_WORDS;
    for (uint32_t rank = 0; rank < cuda->world->ranks; rank++)
        if (memcmp(hellos + (size_t)rank * HELLO_WORDS, own, HELLO_WORDS * sizeof *own) != 0)
            return gb_k_fail(GB_EINVAL, "ranks %u and %u were opened for different models or with different options", cuda->part.rank, rank);
    return GB_OK;
}

static int shake_hands(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    uint64_t print = fingerprint(cuda);
    uint32_t *hello, *hellos, *pinned;
    GB_TRY(gb_cuda_take(cuda, &hello, HELLO_WORDS, sizeof *hello));
    GB_TRY(gb_cuda_take(cuda, &hellos, (size_t)w->ranks * HELLO_WORDS, sizeof *hellos));
    GB_TRY(gb_cuda_take_pinned(cuda, &pinned, (size_t)w->ranks * HELLO_WORDS, sizeof *pinned));
    memcpy(pinned, &print, sizeof print);
    GB_CUDA(cudaMemcpyAsync(hello, pinned, sizeof print, cudaMemcpyHostToDevice, cuda->compute));
    GB_NCCL(cuda, w->all, ncclAllGather(hello, hellos, HELLO_WORDS, ncclUint32, w->all, cuda->compute));
    GB_CUDA(cudaMemcpyAsync(pinned, hellos, (size_t)w->ranks * sizeof print, cudaMemcpyDeviceToHost, cuda->compute));
    GB_TRY(gb_cuda_wait(cuda, cuda->compute));
    return compare_hellos(cuda, pinned);
}

/* --- life --- */

int gb_cuda_join_world(gb_cuda *cuda, const gb_backend_options *options, const gb_cuda_seat *seat)
{
    const gb_cuda_part *part = &cuda->part;
    const gb_ops_limits *l = &options->limits;
    gb_cuda_world *w = calloc(1, sizeof *w);
    if (!w) return gb_k_fail(GB_ENOMEM, "out of memory for the rank");
    w->ranks = l->ranks;
    w->timeout_ms = options->timeout_ms ? options->timeout_ms : GB_BACKEND_TIMEOUT_MS;
    gb_cuda_way_of(options->exchange, &w->way);
    pthread_mutex_init(&w->calls, NULL);
    cuda->world = w;
    GB_TRY(gb_cuda_take_pinned(cuda, &w->stuck, 1, sizeof *w->stuck));
    memset(w->stuck, 0, sizeof *w->stuck);
    GB_TRY(open_comm(cuda, &w->all, l->ranks, &seat->ids.world, part->rank, 0));
    if (part->tensor_ranks > 1) GB_TRY(open_comm(cuda, &w->engine, part->tensor_ranks, &seat->ids.engine, part->tensor_rank, 0));
    GB_TRY(open_comm(cuda, &w->movers, l->ranks, &seat->ids.movers, part->rank, GB_CUDA_MOVERS_CTAS));
    gb_cuda_choose_way(cuda);
    char *kernels = cuda->base.info.kernels;
    size_t used = strlen(kernels);
    snprintf(kernels + used, sizeof cuda->base.info.kernels - used, ", %s", gb_cuda_way_name(w->way));
    return shake_hands(cuda);
}

void gb_cuda_settle(gb_cuda *cuda)
{
    if (cuda->compute) gb_cuda_wait(cuda, cuda->compute);    /* an error has given up */
    if (cuda->migrate) gb_cuda_wait(cuda, cuda->migrate);
    if (cuda->statistics) gb_cuda_wait(cuda, cuda->statistics);
}

void gb_cuda_leave_world(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    gb_cuda_lsa_give_back(cuda);
    close_comm(cuda, &w->movers);
    close_comm(cuda, &w->engine);
    close_comm(cuda, &w->all);
    if (w->all) ncclCommAbort(w->all);    /* it had a window when the rest was given up */
    if (w->lsa.own) ncclMemFree(w->lsa.own);
    pthread_mutex_destroy(&w->calls);
    free(w);
    cuda->world = NULL;
}
