#include "cuda/kernels/tensor_map.h"

#include <stdatomic.h>

#include "cuda/host/check.h"

enum { BOX_K = 64, DRIVER_VERSION = 12000 };    /* 64 bfloat16 are a row of the swizzle; since CUDA 12.0 */

typedef CUresult(CUDAAPI *encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                     const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Asked for until it is there; whoever asks at the same time gets the same answer. */
static encode_fn driver_function(void)
{
    static _Atomic(void *) known;
    void *function = atomic_load(&known);
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    if (!function) {
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, DRIVER_VERSION, cudaEnableDefault, &result) != cudaSuccess ||
            result != cudaDriverEntryPointSuccess) {
            cudaGetLastError();
            return NULL;
        }
        atomic_store(&known, function);
    }
    return (encode_fn)function;
}

bool gb_k_has_tensor_maps(void) { return driver_function() != NULL; }

int gb_k_tensor_map(CUtensorMap *out, const gb_k_tensor *t)
{
    encode_fn encode = driver_function();
    const cuuint32_t rank = t->z ? 3 : 2, boxes[] = {BOX_K, t->box_rows, 1}, ones[] = {1, 1, 1};
    const cuuint64_t dims[] = {t->k, t->rows, t->z}, strides[] = {(cuuint64_t)t->k * sizeof *t->memory, t->stride * sizeof *t->memory};
    if (!encode) return gb_k_fail(GB_EUNSUPPORTED, "the driver has no tensor maps; update it, or give --cuda-experts mma");
    CUresult result = encode(out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, (void *)t->memory, dims, strides, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS) return GB_OK;
    return gb_k_fail(GB_EINVAL, "the driver refuses a tensor of %u x %u x %u at %p (error %d)", t->k, t->rows, t->z, (const void *)t->memory, (int)result);
}
