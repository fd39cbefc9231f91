/* Where the parts of a window lie, as a kernel finds out: out[rank] for every rank. */
#include "tests/cuda/peers.h"

#include "cuda/kernels/compat.cuh"
#ifdef GB_CUEMU
#include "cuda/cuemu/nccl_device.h"
#else
#include <nccl_device.h>
#endif

__global__ void peers(char **out, ncclWindow_t window, size_t offset, int ranks)
{
    for (int rank = 0; rank < ranks; rank++)
        out[rank] = static_cast<char *>(ncclGetLsaPointer(window, offset, rank));
}

extern "C" void peers_of_window(char **out, ncclWindow_t window, size_t offset, int ranks, cudaStream_t stream)
{
    GB_LAUNCH(peers, 1, 1, 0, stream, out, window, offset, ranks);
}
