/* Tensor maps for the copies of tma.cuh: the driver makes them, and is asked through the runtime, for nothing here links libcuda. */
#ifndef GB_CUDA_TENSOR_MAP_H
#define GB_CUDA_TENSOR_MAP_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Matrices of bfloat16 with rows of k, one every stride elements (z of them; sizes and strides are multiples of 8), and the box of 64 x
   box_rows that a copy brings, with the swizzle of 128 bytes and zeros beyond the ends of a matrix. */
typedef struct gb_k_tensor {
    const uint16_t *memory;
    uint32_t k, rows, z;           /* z = 0: one matrix, in two dimensions */
    uint64_t stride;
    uint32_t box_rows;             /* at most 256 */
} gb_k_tensor;

/* GB_EUNSUPPORTED when the driver has no tensor maps, GB_EINVAL for a tensor that it refuses; gb_k_message says why. Any thread. */
int gb_k_tensor_map(CUtensorMap *out, const gb_k_tensor *tensor);

/* Whether the driver has them. */
bool gb_k_has_tensor_maps(void);

#ifdef __cplusplus
}
#endif

#endif
