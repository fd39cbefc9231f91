/* Kernels that exist to be compared with ours, and to measure a device. Pointers as in kernels.h. */
#ifndef GB_CUDA_BENCH_RIVALS_H
#define GB_CUDA_BENCH_RIVALS_H

#include "cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

int gb_b_nothing(cudaStream_t stream);
/* *sink = a sum that depends on every word; words is a multiple of 4 */
int gb_b_read(uint32_t *sink, const uint32_t *from, size_t words, uint32_t processors, cudaStream_t stream);
/* Values from -scale to scale that depend on seed and index alone. */
int gb_b_fill_bf16(uint16_t *out, size_t n, float scale, uint64_t seed, cudaStream_t stream);
int gb_b_fill_f32(float *out, size_t n, float scale, uint64_t seed, cudaStream_t stream);

/* Ways to map routes to slots and to count what each source sends, as dispatch.cu does in one pass with places and offsets besides. They
   read a->experts, map and rows, and write slot_of_route and, if they count, add to sent. */
int gb_b_map_only(const gb_k_dispatch_args *a, cudaStream_t stream);
int gb_b_count_apart(const gb_k_dispatch_args *a, cudaStream_t stream);         /* a kernel of its own, after map_only */
int gb_b_map_and_count_globally(const gb_k_dispatch_args *a, cudaStream_t stream);    /* one addition in device memory for each route */

#ifdef __cplusplus
}
#endif

#endif
