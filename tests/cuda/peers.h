/* Windows of NCCL on the device (peers.cu). */
#ifndef GB_TESTS_CUDA_PEERS_H
#define GB_TESTS_CUDA_PEERS_H

#include <cuda_runtime_api.h>
#include <nccl.h>

#ifdef __cplusplus
extern "C" {
#endif

void peers_of_window(char **out, ncclWindow_t window, size_t offset, int ranks, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
