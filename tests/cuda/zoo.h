/* The bug zoo: wrong kernels, one for each class of mistake, and their right twins (zoo.cu). */
#ifndef GB_TESTS_CUDA_ZOO_H
#define GB_TESTS_CUDA_ZOO_H

#include <cuda_runtime_api.h>

enum { ZOO_THREADS = 64, ZOO_INTS = 64 };

typedef enum zoo_animal {
    ZOO_NO_SYNCWARP, ZOO_WRITE_AFTER_READ, ZOO_TWO_BLOCKS_ADD, ZOO_ATOMIC_MEETS_PLAIN, ZOO_DIVERGENT_BARRIER, ZOO_EARLY_EXIT,
    ZOO_LANE_NOT_IN_MASK, ZOO_HALF_A_WARP_WAITS, ZOO_WARP_DIVERGES, ZOO_SHUFFLE_FROM_EXITED, ZOO_UNSET_DEVICE, ZOO_UNSET_SHARED,
    ZOO_SHARED_OVERRUN, ZOO_WRITE_PAST_END, ZOO_FAR_OUT, ZOO_MISALIGNED, ZOO_MISALIGNED_PAIR, ZOO_COPY_NOT_AWAITED,
    ZOO_COPY_OVERTAKES_READ, ZOO_TOO_MUCH_SHARED, ZOO_TOO_MANY_THREADS, ZOO_HOST_MEMORY, ZOO_TRAP, ZOO_PARTIAL_MMA, ZOO_NO_PEER_ACCESS,
    ZOO_TENSOR_READ_EARLY, ZOO_TENSOR_WRONG_BYTES, ZOO_TENSOR_MISALIGNED, ZOO_TENSOR_NOT_AWAITED, ZOO_TENSOR_OVERTAKES_READ,
    ZOO_MBARRIER_NOT_SHARED, ZOO_WGMMA_READ_EARLY, ZOO_WGMMA_WRONG_SWIZZLE, ZOO_WGMMA_NO_FENCE, ZOO_WGMMA_HIDDEN_STORE, ZOO_WGMMA_PARTIAL,
    ZOO_ANIMALS
} zoo_animal;

#ifdef __cplusplus
extern "C" {
#endif

/* Runs the wrong kernel of a class, or with right != 0 its right twin; out and in are device buffers of ZOO_INTS. */
void zoo_run(zoo_animal animal, int right, int *out, const int *in, cudaStream_t stream);
/* out[i] = value; out[i] = in[i]: right kernels for wrong host code. */
void zoo_fill(int *out, int value, cudaStream_t stream);
void zoo_copy(int *out, const int *in, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
