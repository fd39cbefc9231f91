#include "cuda/host/context.h"

enum { ROWS_TO_TUNE_FOR = 64 };    /* decode: a large algorithm would leave most of the device idle there */

/* cublasLt is column-major: a row-major [rows][columns] matrix is its [columns][rows]. */
static int make_layouts(gb_cuda_product *p, bool f32)
{
    cudaDataType_t type = f32 ? CUDA_R_32F : CUDA_R_16BF;
    GB_CUBLAS(cublasLtMatrixLayoutCreate(&p->weights, type, p->k, p->n, p->k));
    GB_CUBLAS(cublasLtMatrixLayoutCreate(&p->in, type, p->k, ROWS_TO_TUNE_FOR, p->k));
    GB_CUBLAS(cublasLtMatrixLayoutCreate(&p->out, CUDA_R_32F, p->n, ROWS_TO_TUNE_FOR, p->n));
    return GB_OK;
}

static int make_operation(gb_cuda_product *p, bool bias)
{
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    GB_CUBLAS(cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    GB_CUBLAS(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    if (bias) GB_CUBLAS(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    return GB_OK;
}

/* No workspace and no reduction between blocks: then the sum of an element has one order, whatever m is. */
static int choose_algorithm(gb_cuda *cuda, gb_cuda_product *p)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    int found = 0;
    GB_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_reduction,
                                                                 sizeof no_reduction);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(cuda->lt, p->operation, p->weights, p->in, p->out, p->out, preference, 1, &result, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0)
        return gb_k_fail(GB_EUNSUPPORTED, "cublasLt has no algorithm for a product of %u x %u (status %d)", p->n, p->k, (int)status);
    p->algorithm = result.algo;
    return GB_OK;
}

int gb_cuda_product_new(gb_cuda *cuda, gb_cuda_product *p, uint32_t n, uint32_t k, bool f32, bool bias)
{
    *p = (gb_cuda_product){.n = n, .k = k};
    GB_TRY(make_operation(p, bias));
    GB_TRY(make_layouts(p, f32));
    return choose_algorithm(cuda, p);
}

void gb_cuda_product_free(gb_cuda_product *p)
{
    if (p->operation) cublasLtMatmulDescDestroy(p->operation);
    if (p->weights) cublasLtMatrixLayoutDestroy(p->weights);
    if (p->in) cublasLtMatrixLayoutDestroy(p->in);
    if (p->out) cublasLtMatrixLayoutDestroy(p->out);
}

int gb_cuda_multiply(gb_cuda *cuda, gb_cuda_product *p, float *y, const void *x, const void *weights, const float *bias, uint32_t m, bool add)
{
    uint64_t rows = m;
    float alpha = 1, beta = add ? 1 : 0;
    GB_CUBLAS(cublasLtMatrixLayoutSetAttribute(p->in, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows));
    GB_CUBLAS(cublasLtMatrixLayoutSetAttribute(p->out, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows));
    if (bias) GB_CUBLAS(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    GB_CUBLAS(cublasLtMatmul(cuda->lt, p->operation, &alpha, weights, p->weights, x, p->in, &beta, y, p->out, y, p->out, &p->algorithm, NULL, 0,
                             cuda->compute));
    return GB_OK;
}
