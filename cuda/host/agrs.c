/* agrs: every rank gets all rows and all routes (all-gather), takes those for its slots (arrive), and gives back a row for every route of all
   ranks, which changes no sum where another rank answers (spread, reduce-scatter). A sum of one value and such rows is that value, in any
   order. That costs K times the bytes of a sum over experts before the reduce-scatter, and buys tokens that do not change when experts
   move. Shapes are those of the round, never those of the routes, so a graph can hold it. */
#include "cuda/host/rank.h"

int gb_cuda_agrs_take(gb_cuda *cuda)
{
    gb_cuda_agrs *a = &cuda->world->agrs;
    size_t hidden = cuda->config.hidden, rows = (size_t)cuda->world->ranks * cuda->max_share, routes = rows * cuda->config.experts_per_token;
    GB_TRY(gb_cuda_take(cuda, &a->h, rows * hidden, sizeof *a->h));
    GB_TRY(gb_cuda_take(cuda, &a->slot_of_route, routes, sizeof *a->slot_of_route));
    GB_TRY(gb_cuda_take(cuda, &a->own_slot_of_route, routes, sizeof *a->own_slot_of_route));
    GB_TRY(gb_cuda_take(cuda, &a->grouped_of_route, routes, sizeof *a->grouped_of_route));
    GB_TRY(gb_cuda_take(cuda, &a->place_in_slot, routes, sizeof *a->place_in_slot));
    GB_TRY(gb_cuda_take(cuda, &a->work, cuda->part.slots + 1, sizeof *a->work));
    GB_TRY(gb_cuda_take(cuda, &a->spread, routes * hidden, sizeof *a->spread));
    GB_CUDA(cudaMemset(a->work, 0, (cuda->part.slots + 1) * sizeof *a->work));
    /* A collective that was given up leaves what was there: no rows, and routes to nowhere. */
    GB_CUDA(cudaMemset(a->h, 0, rows * hidden * sizeof *a->h));
    GB_CUDA(cudaMemset(a->slot_of_route, 0xff, routes * sizeof *a->slot_of_route));
    return GB_OK;
}

static int gather(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    size_t rows = cuda->share;
    GB_TRY(gb_cuda_enter(cuda));
    ncclGroupStart();
    ncclResult_t h = ncclAllGather(cuda->h, w->agrs.h, rows * cuda->config.hidden, ncclBfloat16, w->all, cuda->compute);
    ncclResult_t routes = ncclAllGather(cuda->slot_of_route, w->agrs.slot_of_route, rows * cuda->config.experts_per_token, ncclInt32, w->all,
                                        cuda->compute);
    ncclResult_t result = ncclGroupEnd();
    if (h != ncclSuccess && h != ncclInProgress) result = h;
    if (routes != ncclSuccess && routes != ncclInProgress) result = routes;
    return gb_cuda_leave(cuda, &w->all, result, "ncclAllGather");
}

int gb_cuda_agrs_send(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    const gb_cuda_agrs *agrs = &w->agrs;
    uint32_t rows = w->ranks * cuda->share, K = cuda->config.experts_per_token;
    GB_TRY(gather(cuda));
    gb_k_arrive_args a = {
        .own_slot_of_route = agrs->own_slot_of_route, .place_in_slot = agrs->place_in_slot, .offsets = w->offsets,
        .received = cuda->received + cuda->part.rank, .work = agrs->work, .slot_of_route = agrs->slot_of_route, .n = rows, .K = K,
        .first_slot = cuda->part.first_slot, .slots = cuda->part.slots,
    };
    GB_TRY(gb_k_arrive(&a, cuda->compute));
    gb_k_permute_args p = {
        .grouped = cuda->grouped, .grouped_of_route = agrs->grouped_of_route, .h = agrs->h, .slot_of_route = agrs->own_slot_of_route,
        .place_in_slot = agrs->place_in_slot, .offsets = w->offsets, .n = rows, .K = K, .hidden = cuda->config.hidden,
    };
    return gb_k_permute(&p, cuda->compute);
}

int gb_cuda_agrs_bring(gb_cuda *cuda, gb_k_combine_args *combine)
{
    gb_cuda_world *w = cuda->world;
    uint32_t K = cuda->config.experts_per_token, hidden = cuda->config.hidden;
    gb_k_spread_args s = {.out = w->agrs.spread, .in = cuda->expert_out, .grouped_of_route = w->agrs.grouped_of_route, .n = w->ranks * cuda->share,
                          .K = K, .hidden = hidden};
    GB_TRY(gb_k_spread(&s, cuda->compute));
    GB_NCCL(cuda, w->all, ncclReduceScatter(w->agrs.spread, w->back, (size_t)cuda->share * K * hidden, ncclBfloat16, ncclSum, w->all, cuda->compute));
    combine->out = w->back;
    combine->grouped_of_route = NULL;
    return GB_OK;
}
