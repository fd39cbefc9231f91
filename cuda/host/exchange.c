/* Rows on their way to the experts of other ranks and back. Every way sends bfloat16, one row for each route on the way back, and lets the
   source add them up in the order of routes: so all ways give the bits that one device alone gives. */
#include "cuda/host/rank.h"

#include <string.h>

/* Beside agrs, what arrives is told by headers and lies in the order of arrival: a landing. Graphs hold what needs no word from the device. */
static const struct {
    const char *name;
    bool graphs, lands;
    int (*take)(gb_cuda *cuda);
    int (*send)(gb_cuda *cuda);
    int (*bring)(gb_cuda *cuda, gb_k_combine_args *combine);
} ways[] = {
    [GB_CUDA_AGRS] = {"agrs", true, false, gb_cuda_agrs_take, gb_cuda_agrs_send, gb_cuda_agrs_bring},
    [GB_CUDA_SENDRECV] = {"sendrecv", false, true, gb_cuda_sendrecv_take, gb_cuda_sendrecv_send, gb_cuda_sendrecv_bring},
    [GB_CUDA_LSA] = {"lsa", true, true, gb_cuda_lsa_take, gb_cuda_lsa_send, gb_cuda_lsa_bring},
};

bool gb_cuda_way_of(const char *name, gb_cuda_way *way)
{
    *way = GB_CUDA_AUTO;
    if (!name || strcmp(name, "auto") == 0) return true;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(name, ways[i].name) == 0) {
            *way = (gb_cuda_way)i;
            return true;
        }
    return false;
}

uint32_t gb_cuda_way_ranks(gb_cuda_way way) { return way != GB_CUDA_AUTO && ways[way].lands ? GB_K_PEERS_MAX : GB_RANKS_MAX; }

/* Both run in graphs. lsa sends each row to its experts only, but all ranks must reach each other's memory; NCCL tells every rank the same. */
void gb_cuda_choose_way(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    if (w->way != GB_CUDA_AUTO) return;
    w->way = w->ranks <= GB_K_PEERS_MAX && gb_k_reachable(w->all) >= w->ranks ? GB_CUDA_LSA : GB_CUDA_AGRS;
}

const char *gb_cuda_way_name(gb_cuda_way way) { return ways[way].name; }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* A row goes to K experts, each of which is here at most once. */
uint32_t gb_cuda_routes_per_rank(const gb_cuda *cuda) { return (uint32_t)least(cuda->config.experts_per_token, cuda->part.slots); }

uint32_t gb_cuda_arrivals_per_row(const gb_cuda *cuda)
{
    const gb_ops_info *info = &cuda->base.info;
    return cuda->part.slots == info->slots ? info->experts_per_token : info->limits.ranks * gb_cuda_routes_per_rank(cuda);
}

/* --- memory --- */

static int take_landing(gb_cuda *cuda)
{
    gb_cuda_landing *l = &cuda->world->landing;
    size_t sources = cuda->world->ranks, cells = sources * cuda->part.slots;
    GB_TRY(gb_cuda_take(cuda, &l->begin, cells, sizeof *l->begin));
    GB_TRY(gb_cuda_take(cuda, &l->from, cells, sizeof *l->from));
    return gb_cuda_take(cuda, &l->start, sources + 1, sizeof *l->start);
}

int gb_cuda_take_exchange(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    size_t back = (size_t)cuda->max_share * cuda->config.experts_per_token * cuda->config.hidden;
    if (!ways[w->way].graphs) cuda->eager = true;
    GB_TRY(gb_cuda_take(cuda, &w->left, w->ranks, sizeof *w->left));
    GB_CUDA(cudaMemset(w->left, 0, w->ranks * sizeof *w->left));
    GB_TRY(gb_cuda_take(cuda, &w->offsets, cuda->part.slots + 1, sizeof *w->offsets));
    GB_TRY(gb_cuda_take(cuda, &w->back, back, sizeof *w->back));
    GB_CUDA(cudaMemset(w->back, 0, back * sizeof *w->back));    /* a collective that was given up leaves what was there */
    cuda->group_offsets = w->offsets;
    if (ways[w->way].lands) GB_TRY(take_landing(cuda));
    return ways[w->way].take(cuda);
}

/* --- any way --- */

int gb_cuda_send_rows(gb_cuda *cuda) { return ways[cuda->world->way].send(cuda); }
int gb_cuda_bring_rows(gb_cuda *cuda, gb_k_combine_args *combine) { return ways[cuda->world->way].bring(cuda, combine); }

/* --- a landing --- */

uint32_t gb_cuda_header_words(const gb_cuda *cuda) { return cuda->part.slots + GB_K_HEADER_WORDS; }

static gb_k_regroup_args regroup_of(const gb_cuda *cuda)
{
    const gb_cuda_landing *l = &cuda->world->landing;
    return (gb_k_regroup_args){
        .begin = l->begin, .from = l->from, .offsets = cuda->world->offsets, .start = l->start, .sources = cuda->world->ranks,
        .slots = cuda->part.slots, .hidden = cuda->config.hidden, .capacity = cuda->share * gb_cuda_arrivals_per_row(cuda),
        .fault = cuda->fault, .back_rows = cuda->max_share * cuda->config.experts_per_token,
    };
}

int gb_cuda_land(gb_cuda *cuda, const uint32_t *headers, uint32_t stride)
{
    const gb_cuda_landing *l = &cuda->world->landing;
    gb_k_land_args a = {
        .begin = l->begin, .from = l->from, .offsets = cuda->world->offsets, .start = l->start, .received = cuda->received + cuda->part.rank,
        .headers = headers, .version = cuda->live.version, .abandoned = cuda->world->lsa.abandoned, .fault = cuda->fault, .sources = cuda->world->ranks,
        .slots = cuda->part.slots, .stride = stride, .capacity = cuda->share * gb_cuda_arrivals_per_row(cuda),
    };
    return gb_k_land(&a, cuda->compute);
}

int gb_cuda_regroup(gb_cuda *cuda, const uint16_t *arrived)
{
    gb_k_regroup_args a = regroup_of(cuda);
    a.grouped = cuda->grouped;
    a.arrived = arrived;
    return gb_k_regroup(&a, cuda->compute);
}

int gb_cuda_bring_back(gb_cuda *cuda, uint16_t *returned, uint16_t *const *back, const uint32_t *headers)
{
    gb_k_regroup_args a = regroup_of(cuda);
    a.out = cuda->expert_out;
    a.returned = returned;
    a.back = back;
    a.headers = headers;
    return gb_k_bring_back(&a, cuda->compute);
}
