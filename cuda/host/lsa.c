/* lsa (load-store access): each rank has a window that the others reach by plain loads and stores. Rows are pushed where they belong, headers
   beside them; a barrier, and everybody takes what lies in its own window; what the experts made of it is pushed back, and after another
   barrier the source adds it up. No number is seen by the host and all shapes are fixed, so a graph can hold it. Between two pushes of a
   window stand both barriers: whoever pushes knows that all have taken.

   A rank whose barrier is given up pushes nothing more and takes nothing more, and comes to no barrier again: what the others take lies
   still until they give up too. The rest of the step runs on nothing and is thrown away. */
#include "cuda/host/rank.h"

#include <string.h>

static size_t round_up(size_t n) { return (n + 255) / 256 * 256; }

/* Rows of one source in a window: as many as can ever come. */
static size_t stride(const gb_cuda *cuda) { return (size_t)cuda->max_share * gb_cuda_routes_per_rank(cuda); }

static gb_cuda_window layout_of(const gb_cuda *cuda)
{
    const size_t ranks = cuda->world->ranks, row = cuda->config.hidden * sizeof(uint16_t);
    gb_cuda_window l = {.headers = round_up(ranks * stride(cuda) * row)};
    l.back = l.headers + round_up(ranks * gb_cuda_header_words(cuda) * sizeof(uint32_t));
    l.flags = l.back + round_up((size_t)cuda->max_share * cuda->config.experts_per_token * row);
    l.bytes = l.flags + round_up(ranks * sizeof(uint32_t));
    return l;
}

/* --- memory --- */

/* Cleared before others can reach it: nobody has come to a barrier, and nothing lies here. */
static int take_window(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    gb_cuda_lsa *l = &w->lsa;
    l->window = layout_of(cuda);
    if (ncclMemAlloc((void **)&l->own, l->window.bytes) != ncclSuccess) {
        cudaGetLastError();
        return gb_k_fail(GB_ENOMEM, "the device has no %zu bytes left for rows of other ranks; lower --max-num-batched-tokens or choose --all2all-backend agrs",
                         l->window.bytes);
    }
    GB_CUDA(cudaMemset(l->own, 0, l->window.bytes));
    GB_CUDA(cudaDeviceSynchronize());
    GB_NCCL(cuda, w->all, ncclCommWindowRegister(w->all, l->own, l->window.bytes, &l->handle, NCCL_WIN_COLL_SYMMETRIC));
    if (!l->handle) return gb_k_fail(GB_EUNSUPPORTED, "NCCL makes no windows here: choose --all2all-backend agrs");
    return GB_OK;
}

/* The parts of all windows, as addresses of this device: what kernels take. */
static int find_peers(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    gb_cuda_lsa *l = &w->lsa;
    const size_t ranks = w->ranks;
    char **starts, **parts;
    GB_TRY(gb_cuda_take(cuda, &l->parts, 4 * ranks, sizeof *l->parts));
    GB_TRY(gb_cuda_take_pinned(cuda, &parts, 4 * ranks, sizeof *parts));
    GB_TRY(gb_cuda_take_pinned(cuda, &starts, ranks, sizeof *starts));
    gb_k_peers_args a = {.peers = (void **)l->parts, .window = l->handle, .ranks = w->ranks};
    GB_TRY(gb_k_peers(&a, cuda->compute));
    GB_CUDA(cudaMemcpyAsync(starts, l->parts, ranks * sizeof *starts, cudaMemcpyDeviceToHost, cuda->compute));
    GB_TRY(gb_cuda_wait(cuda, cuda->compute));
    for (size_t rank = 0; rank < ranks; rank++) {
        parts[rank] = starts[rank];
        parts[ranks + rank] = starts[rank] + l->window.headers;
        parts[2 * ranks + rank] = starts[rank] + l->window.back;
        parts[3 * ranks + rank] = starts[rank] + l->window.flags;
    }
    GB_CUDA(cudaMemcpyAsync(l->parts, parts, 4 * ranks * sizeof *parts, cudaMemcpyHostToDevice, cuda->compute));
    return gb_cuda_wait(cuda, cuda->compute);
}

int gb_cuda_lsa_take(gb_cuda *cuda)
{
    gb_cuda_lsa *l = &cuda->world->lsa;
    uint32_t reachable = gb_k_reachable(cuda->world->all);
    if (reachable < cuda->world->ranks)
        return gb_k_fail(GB_EUNSUPPORTED, "rank %u reaches the memory of %u ranks only, not of %u: choose --all2all-backend agrs", cuda->part.rank, reachable,
                         cuda->world->ranks);
    GB_TRY(gb_cuda_take(cuda, &l->epoch, 1, sizeof *l->epoch));
    GB_TRY(gb_cuda_take(cuda, &l->abandoned, 1, sizeof *l->abandoned));
    GB_CUDA(cudaMemset(l->epoch, 0, sizeof *l->epoch));
    GB_CUDA(cudaMemset(l->abandoned, 0, sizeof *l->abandoned));
    GB_TRY(take_window(cuda));
    return find_peers(cuda);
}

/* With the world alive all ranks leave together; one that was given up has taken the window along. */
void gb_cuda_lsa_give_back(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    gb_cuda_lsa *l = &w->lsa;
    if (l->handle && gb_cuda_enter(cuda) == GB_OK)
        gb_cuda_leave(cuda, &w->all, ncclCommWindowDeregister(w->all, l->handle), "ncclCommWindowDeregister");
    l->handle = NULL;
}

/* --- a layer --- */

static int meet(gb_cuda *cuda)
{
    const gb_cuda_world *w = cuda->world;
    gb_k_barrier_args a = {.flags = (uint32_t *const *)(w->lsa.parts + 3 * w->ranks), .epoch = w->lsa.epoch, .fault = w->stuck,
                           .limit_ns = (uint64_t)w->timeout_ms * 1000000, .rank = cuda->part.rank, .ranks = w->ranks,
                           .abandoned = w->lsa.abandoned};
    return gb_k_barrier(&a, cuda->compute);
}

static const uint32_t *own_headers(const gb_cuda_lsa *l) { return (const uint32_t *)(l->own + l->window.headers); }

int gb_cuda_lsa_send(gb_cuda *cuda)
{
    const gb_cuda_world *w = cuda->world;
    const gb_cuda_lsa *l = &w->lsa;
    gb_k_push_args a = {
        .rows = (uint16_t *const *)l->parts, .headers = (uint32_t *const *)(l->parts + w->ranks), .grouped_of_route = cuda->grouped_of_route,
        .h = cuda->h, .slot_of_route = cuda->slot_of_route, .place_in_slot = cuda->place_in_slot, .offsets = cuda->offsets,
        .version = cuda->live.version, .abandoned = l->abandoned, .fault = cuda->fault, .n = cuda->share, .K = cuda->config.experts_per_token,
        .hidden = cuda->config.hidden, .source = cuda->part.rank, .ranks = w->ranks, .slots = cuda->base.info.slots, .stride = (uint32_t)stride(cuda),
    };
    GB_TRY(gb_k_push(&a, cuda->compute));
    GB_TRY(meet(cuda));
    GB_TRY(gb_cuda_land(cuda, own_headers(l), (uint32_t)stride(cuda)));
    return gb_cuda_regroup(cuda, (const uint16_t *)l->own);
}

int gb_cuda_lsa_bring(gb_cuda *cuda, gb_k_combine_args *combine)
{
    const gb_cuda_world *w = cuda->world;
    const gb_cuda_lsa *l = &w->lsa;
    GB_TRY(gb_cuda_bring_back(cuda, NULL, (uint16_t *const *)(l->parts + 2 * w->ranks), own_headers(l)));
    GB_TRY(meet(cuda));
    combine->out = (const uint16_t *)(l->own + l->window.back);
    combine->abandoned = l->abandoned;
    return GB_OK;
}
