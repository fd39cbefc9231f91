/* Failures of the CUDA libraries become GB_EDOWN, with a sentence in the log and for gb_k_message. */
#ifndef GB_CUDA_CHECK_H
#define GB_CUDA_CHECK_H

#include <cuda_runtime_api.h>

#include "core/base/status.h"
#include "cuda/kernels/kernels.h"

/* Keeps the sentence (gb_k_message, of this thread), logs it and returns status. */
int gb_k_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Leaves the function with GB_EDOWN when a runtime or cuBLASLt call fails. The runtime forgets the error, or the next launch would be
   blamed for it. */
#define GB_CUDA(call) \
    do { \
        cudaError_t gb_cuda_error = (call); \
        if (gb_cuda_error != cudaSuccess) { \
            cudaGetLastError(); \
            return gb_k_fail(GB_EDOWN, "%s failed: %s", #call, cudaGetErrorString(gb_cuda_error)); \
        } \
    } while (0)
#define GB_CUBLAS(call) \
    do { \
        cublasStatus_t gb_cublas_status = (call); \
        if (gb_cublas_status != CUBLAS_STATUS_SUCCESS) \
            return gb_k_fail(GB_EDOWN, "%s failed with cuBLAS status %d", #call, (int)gb_cublas_status); \
    } while (0)

/* Leaves the function when a step fails that has said why. */
#define GB_TRY(call) \
    do { \
        int gb_try_status = (call); \
        if (gb_try_status != GB_OK) return gb_try_status; \
    } while (0)

#endif
