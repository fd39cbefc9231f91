/* Bytes of experts between places: by the copy engines, on the stream of lowest priority, on a thread beside the one that runs rounds.
   A copy is there when the call returns, so whoever publishes a map that names the place needs no event of ours. Between the ranks of
   a world pieces go through a communicator of their own, which may take few blocks of the device. */
#include "cuda/host/rank.h"

#include <stdlib.h>
#include <string.h>

/* NULL: the place is another rank's. */
static char *weights_of(const gb_cuda *cuda, uint32_t moe_layer, int32_t place)
{
    int32_t local = gb_cuda_local_place(cuda, place);
    return local < 0 ? NULL : (char *)(cuda->pool + ((size_t)moe_layer * cuda->part.places + (size_t)local) * cuda->place_elements);
}

static int fail_place(const gb_cuda *cuda, int32_t place)
{
    return gb_k_fail(GB_EINVAL, "place %d of a layer is not on rank %u", place, cuda->part.rank);
}

int gb_cuda_copy_expert(gb_ops *ops, const gb_copy *copy)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    char *to = weights_of(cuda, copy->layer, copy->to), *from = weights_of(cuda, copy->layer, copy->from);
    if (!to || !from) return fail_place(cuda, to ? copy->from : copy->to);
    GB_CUDA(cudaSetDevice(cuda->device));
    GB_CUDA(cudaMemcpyAsync(to + copy->offset, from + copy->offset, copy->bytes, cudaMemcpyDeviceToDevice, cuda->migrate));
    return gb_cuda_wait(cuda, cuda->migrate);
}

int gb_cuda_send_expert(gb_ops *ops, const gb_copy *copy, uint32_t to_rank)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    gb_cuda_world *w = cuda->world;
    const char *from = weights_of(cuda, copy->layer, copy->from);
    if (!from) return fail_place(cuda, copy->from);
    GB_CUDA(cudaSetDevice(cuda->device));
    GB_NCCL(cuda, w->movers, ncclSend(from + copy->offset, copy->bytes, ncclUint8, (int)to_rank, w->movers, cuda->migrate));
    return gb_cuda_wait(cuda, cuda->migrate);
}

int gb_cuda_receive_expert(gb_ops *ops, const gb_copy *copy, uint32_t from_rank)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    gb_cuda_world *w = cuda->world;
    char *to = weights_of(cuda, copy->layer, copy->to);
    if (!to) return fail_place(cuda, copy->to);
    GB_CUDA(cudaSetDevice(cuda->device));
    GB_NCCL(cuda, w->movers, ncclRecv(to + copy->offset, copy->bytes, ncclUint8, (int)from_rank, w->movers, cuda->migrate));
    return gb_cuda_wait(cuda, cuda->migrate);
}

/* 0 when the weights are not here or cannot be read. */
uint64_t gb_cuda_checksum(gb_ops *ops, uint32_t moe_layer, uint32_t place)
{
    const gb_cuda *cuda = (const gb_cuda *)ops;
    size_t bytes = cuda->base.info.expert_bytes;
    const char *weights = weights_of(cuda, moe_layer, (int32_t)place);
    char *copy = malloc(bytes);
    uint64_t sum = 0, word;
    bool read = copy && weights && cudaSetDevice(cuda->device) == cudaSuccess &&
                cudaMemcpy(copy, weights, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
    for (size_t i = 0; read && i < bytes; i += sizeof word) {    /* a place is a multiple of 64 elements */
        memcpy(&word, copy + i, sizeof word);
        sum = gb_mix64(sum ^ word) + 1;
    }
    free(copy);
    return sum;
}
