#include "cuda/host/context.h"

#include "core/base/assert.h"

int gb_cuda_take(gb_cuda *cuda, void *out, size_t count, size_t size)
{
    GB_ASSERT(cuda->n_device < GB_CUDA_ALLOCATIONS);
    void *memory = NULL;
    size_t bytes = count && size ? count * size : 16;    /* what a model does not have still has an address */
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
        cudaGetLastError();
        return gb_k_fail(GB_ENOMEM, "the device has no %zu bytes left; lower --kv-cache-memory or --max-num-batched-tokens", bytes);
    }
    cuda->device_memory[cuda->n_device++] = memory;
    *(void **)out = memory;
    return GB_OK;
}

int gb_cuda_take_pinned(gb_cuda *cuda, void *out, size_t count, size_t size)
{
    GB_ASSERT(cuda->n_pinned < GB_CUDA_ALLOCATIONS);
    void *memory = NULL;
    size_t bytes = count && size ? count * size : 16;
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocDefault) != cudaSuccess) {
        cudaGetLastError();
        return gb_k_fail(GB_ENOMEM, "no %zu bytes of memory can be pinned for the device", bytes);
    }
    cuda->pinned_memory[cuda->n_pinned++] = memory;
    *(void **)out = memory;
    return GB_OK;
}

void gb_cuda_give_back(gb_cuda *cuda)
{
    while (cuda->n_device) cudaFree(cuda->device_memory[--cuda->n_device]);
    while (cuda->n_pinned) cudaFreeHost(cuda->pinned_memory[--cuda->n_pinned]);
}
