/* What the emulated cuBLAS says about wrong calls. */
#include "cuda/cuemu/control.h"
#include "tests/cuda/device.h"

#include <cublasLt.h>
#include <cublas_v2.h>

static void shapes_that_do_not_fit_are_refused(void)
{
    float alpha = 1, beta = 0;
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    void *memory = device_new(4096, 1);
    CHECK_EQ(cublasLtCreate(&lt), CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 4, 5, 4);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 6, 2, 6);
    cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 4, 2, 4);
    cuemu_quiet(1);
    CHECK_EQ(cublasLtMatmul(lt, operation, &alpha, memory, a, memory, b, &beta, memory, d, memory, d, NULL, NULL, 0, 0),
             CUBLAS_STATUS_INVALID_VALUE);
    CHECK_CONTAINS(cuemu_report_text(), "4 x 5 times 6 x 2 into 4 x 2");
    cuemu_clear_reports();
    cuemu_quiet(0);
    cublasLtMatrixLayoutDestroy(a);
    cublasLtMatrixLayoutDestroy(b);
    cublasLtMatrixLayoutDestroy(d);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(lt);
    device_free_all();
}

static void a_product_beyond_its_buffer_is_reported(void)
{
    float alpha = 1, beta = 0;
    cublasHandle_t handle;
    void *a = device_copy((float[4]){1, 2, 3, 4}, 4, sizeof(float)), *small = NULL;
    cublasCreate(&handle);
    cudaMalloc(&small, 3 * sizeof(float));
    cuemu_quiet(1);
    cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &alpha, a, CUDA_R_32F, 2, a, CUDA_R_32F, 2, &beta, small, CUDA_R_32F, 2,
                 CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    cudaDeviceSynchronize();
    CHECK_CONTAINS(cuemu_report_text(), "OUT OF BOUNDS: 16 bytes at offset 0 of a buffer of 12 bytes");
    cuemu_clear_reports();
    cuemu_quiet(0);
    cudaFree(small);
    cublasDestroy(handle);
    device_free_all();
}

TESTS(TEST(shapes_that_do_not_fit_are_refused), TEST(a_product_beyond_its_buffer_is_reported))
