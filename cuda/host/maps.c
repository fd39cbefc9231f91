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
    return (sizes){(size_t)info->moe_layers * info->limits.engines * info->experts, (size_t)info->moe_layers * info->slots};
}

static gb_cuda_maps maps_at(int32_t *words, sizes s)
{
    return (gb_cuda_maps){
        .route = words, .other = words + s.routes, .place = words + 2 * s.routes,
        .other_share = (uint16_t *)(words + 2 * s.routes + s.places), .words = (uint32_t)(2 * s.routes + s.places + (s.routes + 1) / 2),
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

int gb_cuda_commit_maps(gb_cuda *cuda, const gb_placement *p)
{
    if (cuda->placement == p && cuda->placement_version == p->version) return GB_OK;
    sizes s = sizes_of(cuda);
    const gb_cuda_maps *to = &cuda->pinned_maps;
    GB_CUDA(cudaStreamSynchronize(cuda->compute));    /* the last staging has left pinned memory */
    memcpy(to->route, p->route, s.routes * sizeof *p->route);
    memcpy(to->other, p->other, s.routes * sizeof *p->other);
    memcpy(to->place, p->place, s.places * sizeof *p->place);
    memcpy(to->other_share, p->other_share, s.routes * sizeof *p->other_share);
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
    size_t at = (size_t)moe_layer * info->limits.engines * info->experts;
    return (gb_k_map){.route = cuda->live.route + at, .other = cuda->live.other + at, .other_share = cuda->live.other_share + at,
                      .sources = info->limits.engines, .E = info->experts, .ranks = info->limits.ranks, .slots = info->slots};
}
