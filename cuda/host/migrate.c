/* Bytes of experts between places: by the copy engines, on the stream of lowest priority, on a thread beside the one that runs rounds.
   A copy is there when the call returns, so whoever publishes a map that names the place needs no event of ours. */
#include "cuda/host/context.h"

#include <stdlib.h>
#include <string.h>

static char *weights_of(const gb_cuda *cuda, uint32_t moe_layer, uint32_t place)
{
    return (char *)(cuda->pool + ((size_t)moe_layer * cuda->base.info.places + place) * cuda->place_elements);
}

int gb_cuda_copy_expert(gb_ops *ops, const gb_copy *copy)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    char *to = weights_of(cuda, copy->layer, (uint32_t)copy->to), *from = weights_of(cuda, copy->layer, (uint32_t)copy->from);
    GB_CUDA(cudaSetDevice(cuda->device));
    GB_CUDA(cudaMemcpyAsync(to + copy->offset, from + copy->offset, copy->bytes, cudaMemcpyDeviceToDevice, cuda->migrate));
    GB_CUDA(cudaStreamSynchronize(cuda->migrate));
    return GB_OK;
}

/* 0 when the weights cannot be read. */
uint64_t gb_cuda_checksum(gb_ops *ops, uint32_t moe_layer, uint32_t place)
{
    const gb_cuda *cuda = (const gb_cuda *)ops;
    size_t bytes = cuda->base.info.expert_bytes;
    char *copy = malloc(bytes);
    uint64_t sum = 0, word;
    bool read = copy && cudaSetDevice(cuda->device) == cudaSuccess &&
                cudaMemcpy(copy, weights_of(cuda, moe_layer, place), bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
    for (size_t i = 0; read && i < bytes; i += sizeof word) {    /* a place is a multiple of 64 elements */
        memcpy(&word, copy + i, sizeof word);
        sum = gb_mix64(sum ^ word) + 1;
    }
    free(copy);
    return sum;
}
