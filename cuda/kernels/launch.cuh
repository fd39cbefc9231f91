/* What launchers share: the sentence of a refusal, and the check behind a launch. */
#ifndef GB_CUDA_LAUNCH_CUH
#define GB_CUDA_LAUNCH_CUH

#include "core/base/status.h"
#include "cuda/kernels/compat.cuh"
#include "cuda/kernels/kernels.h"

/* Keeps the sentence for gb_k_message and returns status (message.c). */
extern "C" int gb_k_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline int gb_k_launched(const char *name)
{
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? GB_OK : gb_k_fail(GB_EDOWN, "kernel %s was not launched: %s", name, cudaGetErrorString(error));
}

static inline uint32_t gb_k_ceil(uint32_t n, uint32_t unit) { return (n + unit - 1) / unit; }

/* Threads of a block that goes over a row of `pieces` accesses: one each where most threads are enough. A matter of the model's sizes, never of
   the batch. */
static inline uint32_t gb_k_row_threads(uint32_t pieces, uint32_t most)
{
    const uint32_t threads = gb_k_ceil(pieces, 32) * 32;
    return threads < most ? threads : most;
}

/* Rows go to blocks one by one: what a grid can count. */
enum { kGridMax = 0x7fffffff };

#endif
