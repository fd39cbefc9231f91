/* Where experts live, on the device: the placement's tables in one piece, staged by a copy and made live by one kernel between two
   kernels of a round, so that no kernel ever sees half a map. */
#include "cuda/host/context.h"

#include <string.h>

typedef struct sizes {
    size_t routes, places;    /* of all layers */
} sizes;

static sizes sizes_of(const gb_cuda *cuda)
{
    const gb_ops_info *info = &cuda->base.info;
    return (sizes){(size_t)info->moe_layers * cuda->part.engines * info->experts, (size_t)info->moe_layers * cuda->part.slots};
}

static gb_cuda_maps maps_at(int32_t *words, sizes s)
{
    int32_t *place = words + 2 * s.routes, *version = place + s.places;
    return (gb_cuda_maps){
        .route = words, .other = words + s.routes, .place = place, .version = (uint32_t *)version, .other_share = (uint16_t *)(version + 1),
        .words = (uint32_t)(2 * s.routes + s.places + 1 + (s.routes + 1) / 2),
    };
}

int gb_cuda_take_maps(gb_cuda *cuda)
{
    sizes s = sizes_of(cuda);
    uint32_t words = maps_at(NULL, s).words;
    int32_t *pinned, *staged, *live;
    GB_TRY(gb_cuda_take_pinned(cuda, &pinned, words, sizeof *pinned));
    GB_TRY(gb_cuda_take(cuda, &staged, words, sizeof *staged));
    GB_TRY(gb_cuda_take(cuda, &live, words, sizeof *live));
    cuda->pinned_maps = maps_at(pinned, s);
    cuda->staged = maps_at(staged, s);
    cuda->live = maps_at(live, s);
    if (s.routes % 2) pinned[words - 1] = 0;    /* the half word that no share fills */
    return GB_OK;
}

/* Places are numbered over all ranks: like slots, then one spare for each rank (placement.h). */
int32_t gb_cuda_local_place(const gb_cuda *cuda, int32_t place)
{
    const gb_cuda_part *part = &cuda->part;
    int32_t slots = (int32_t)cuda->base.info.slots, first = (int32_t)part->first_slot;
    if (!cuda->world) return place;
    if (place == slots + (int32_t)part->rank) return (int32_t)part->slots;
    return place >= first && place < first + (int32_t)part->slots ? place - first : -1;
}

/* One layer of what is here: the sources' routes, and the places of the slots. */
static void lay_layer(const gb_cuda *cuda, const gb_placement *p, uint32_t layer)
{
    const gb_cuda_maps *to = &cuda->pinned_maps;
    const gb_cuda_part *part = &cuda->part;
    size_t n = (size_t)part->engines * p->experts, at = layer * n, from = gb_placement_route_index(p, layer, part->engine, 0);
    const int32_t *places = gb_placement_layer_places(p, layer) + part->first_slot;
    memcpy(to->route + at, p->route + from, n * sizeof *p->route);
    memcpy(to->other + at, p->other + from, n * sizeof *p->other);
    memcpy(to->other_share + at, p->other_share + from, n * sizeof *p->other_share);
    for (uint32_t i = 0; i < part->slots; i++) to->place[layer * (size_t)part->slots + i] = gb_cuda_local_place(cuda, places[i]);
}

int gb_cuda_commit_maps(gb_cuda *cuda, const gb_placement *p)
{
    if (cuda->placement == p && cuda->placement_version == p->version) return GB_OK;
    const gb_cuda_maps *to = &cuda->pinned_maps;
    GB_TRY(gb_cuda_wait(cuda, cuda->compute));    /* the last staging has left pinned memory */
    for (uint32_t layer = 0; layer < p->layers; layer++) lay_layer(cuda, p, layer);
    *to->version = p->version;
    GB_CUDA(cudaMemcpyAsync(cuda->staged.route, to->route, to->words * sizeof(int32_t), cudaMemcpyHostToDevice, cuda->compute));
    gb_k_commit_args commit = {.live = cuda->live.route, .staged = cuda->staged.route, .words = to->words};
    GB_TRY(gb_k_commit(&commit, cuda->compute));
    cuda->placement = p;
    cuda->placement_version = p->version;
    return GB_OK;
}

gb_k_map gb_cuda_map(const gb_cuda *cuda, uint32_t moe_layer)
{
    const gb_ops_info *info = &cuda->base.info;
    size_t at = (size_t)moe_layer * cuda->part.engines * info->experts;
    return (gb_k_map){.route = cuda->live.route + at, .other = cuda->live.other + at, .other_share = cuda->live.other_share + at,
                      .sources = cuda->part.engines, .E = info->experts, .ranks = info->limits.ranks, .slots = info->slots};
}
