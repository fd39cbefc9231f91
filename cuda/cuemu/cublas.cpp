/* cuBLAS and cublasLt by plain loops: an element's sum has one order whatever the other elements are. Bounds are checked; what the
   loops do not know (another type, a scaling mode) is refused with CUBLAS_STATUS_NOT_SUPPORTED, never guessed. */
#include "cuda/cuemu/internal.h"

#include <cstring>

#include <cublasLt.h>
#include <cublas_v2.h>

namespace cuemu {

/* A column-major matrix as the caller describes it; batches lie stride elements apart. */
struct Matrix {
    const void *data;
    cudaDataType_t type;
    bool transposed;
    int64_t ld, stride;
};

struct Product {
    int64_t m, n, k, batches;
    Matrix a, b, c, d;
    float alpha, beta;
    const float *bias;    /* [m], added to every column; or NULL */
    const void *where;
};

static size_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }
static bool known(cudaDataType_t type) { return type == CUDA_R_32F || type == CUDA_R_16BF; }

static float number(const void *data, cudaDataType_t type, int64_t i)
{
    if (type == CUDA_R_32F)
        return static_cast<const float *>(data)[i];
    uint32_t bits = uint32_t(static_cast<const uint16_t *>(data)[i]) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void put(void *data, cudaDataType_t type, int64_t i, float value)
{
    if (type == CUDA_R_32F) {
        static_cast<float *>(data)[i] = value;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value)
        bits = 0x7fffffff;
    static_cast<uint16_t *>(data)[i] = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* rows x k floats, k contiguous: element (r, i) is the matrix's (r, i), or (i, r) when along_columns. */
static std::vector<float> unpacked(const Matrix &matrix, int64_t batch, int64_t rows, int64_t k, bool along_columns)
{
    std::vector<float> out(size_t(rows * k));
    int64_t base = batch * matrix.stride;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < k; i++)
            out[size_t(r * k + i)] = number(matrix.data, matrix.type, base + (along_columns ? r * matrix.ld + i : i * matrix.ld + r));
    return out;
}

static float dot(const float *a, const float *b, int64_t k)
{
    enum { kLanes = 16 };
    float sums[kLanes] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + kLanes <= k; i += kLanes)
        for (int lane = 0; lane < kLanes; lane++)
            sums[lane] += a[i + lane] * b[i + lane];
    for (int lane = 0; lane < kLanes; lane++)
        sum += sums[lane];
    for (; i < k; i++)
        sum += a[i] * b[i];
    return sum;
}

static bool in_bounds(const Product &p, const Matrix &matrix, int64_t rows, int64_t columns, bool write)
{
    int64_t elements = (p.batches - 1) * matrix.stride + (columns - 1) * matrix.ld + rows;
    return touch(matrix.data, size_t(elements) * bytes_of(matrix.type), write, p.where);
}

static void multiply(const Product &p)
{
    if (p.m == 0 || p.n == 0 || p.batches == 0)
        return;
    if (!in_bounds(p, p.a, p.a.transposed ? p.k : p.m, p.a.transposed ? p.m : p.k, false) ||
        !in_bounds(p, p.b, p.b.transposed ? p.n : p.k, p.b.transposed ? p.k : p.n, false) || !in_bounds(p, p.d, p.m, p.n, true))
        return;
    for (int64_t batch = 0; batch < p.batches; batch++) {
        std::vector<float> a = unpacked(p.a, batch, p.m, p.k, p.a.transposed), b = unpacked(p.b, batch, p.n, p.k, !p.b.transposed);
        for (int64_t column = 0; column < p.n; column++)
            for (int64_t row = 0; row < p.m; row++) {
                float value = p.alpha * dot(&a[size_t(row * p.k)], &b[size_t(column * p.k)], p.k);
                if (p.beta != 0)
                    value += p.beta * number(p.c.data, p.c.type, batch * p.c.stride + column * p.c.ld + row);
                if (p.bias)
                    value += p.bias[row];
                put(const_cast<void *>(p.d.data), p.d.type, batch * p.d.stride + column * p.d.ld + row, value);
            }
    }
}

static bool fits(const Product &p)
{
    int64_t a_rows = p.a.transposed ? p.k : p.m, b_rows = p.b.transposed ? p.n : p.k;
    return p.m >= 0 && p.n >= 0 && p.k >= 0 && p.a.ld >= a_rows && p.b.ld >= b_rows && p.d.ld >= p.m && p.c.ld >= p.m;
}

static cublasStatus_t enqueue(const Product &p, const char *name, cudaStream_t stream)
{
    if (!known(p.a.type) || !known(p.b.type) || !known(p.c.type) || !known(p.d.type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!fits(p)) {
        fault(p.where, "CUBLAS: %s of m %lld, n %lld, k %lld with a leading dimension that is too small", name, (long long)p.m,
              (long long)p.n, (long long)p.k);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    push_work(stream, name, [p] { multiply(p); }, p.where);
    return CUBLAS_STATUS_SUCCESS;
}

struct Handle {
    cudaStream_t stream;
};

/* cublasLt's objects. */
struct Layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld, stride;
    int32_t batches;
};

struct Operation {
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
};

static bool may_call(const char *function, cublasStatus_t *status)
{
    int wanted;
    *status = settings().devices ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
    if (call_fails(function, &wanted))
        *status = cublasStatus_t(wanted);
    return *status == CUBLAS_STATUS_SUCCESS;
}

#define ENTER() \
    Locked locked; \
    cublasStatus_t refused; \
    if (!may_call(__func__, &refused)) \
        return refused

/* An attribute of exactly this size, copied into place. */
template <class T> static cublasStatus_t set(T *field, const void *value, size_t bytes)
{
    if (bytes != sizeof *field)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

}    // namespace cuemu

using namespace cuemu;

extern "C" {

/* --- cuBLAS ----------------------------------------------------------------------------------------------------------------- */

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    ENTER();
    *handle = reinterpret_cast<cublasHandle_t>(new Handle{nullptr});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    Locked locked;
    delete reinterpret_cast<Handle *>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    ENTER();
    reinterpret_cast<Handle *>(handle)->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *workspace, size_t bytes)
{
    ENTER();
    return touch(workspace, bytes, false, CUEMU_CALLER) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t)
{
    ENTER();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType a_type, int lda, long long stride_a,
                                          const void *b, cudaDataType b_type, int ldb, long long stride_b, const void *beta, void *c,
                                          cudaDataType c_type, int ldc, long long stride_c, int batches, cublasComputeType_t compute,
                                          cublasGemmAlgo_t)
{
    ENTER();
    if (compute != CUBLAS_COMPUTE_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    Matrix out = {c, c_type, false, ldc, stride_c};
    Product p = {m, n, k, batches, {a, a_type, transa != CUBLAS_OP_N, lda, stride_a}, {b, b_type, transb != CUBLAS_OP_N, ldb, stride_b},
                 out, out, *static_cast<const float *>(alpha), *static_cast<const float *>(beta), nullptr, CUEMU_CALLER};
    return enqueue(p, "a cuBLAS product", reinterpret_cast<Handle *>(handle)->stream);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType a_type, int lda, const void *b, cudaDataType b_type, int ldb,
                            const void *beta, void *c, cudaDataType c_type, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c, c_type, ldc, 0, 1,
                                      compute, algo);
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "the operation completed";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE: return "an invalid value";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "not supported";
    default: return "an error of the emulated cuBLAS";
    }
}

/* --- cublasLt --------------------------------------------------------------------------------------------------------------- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    ENTER();
    *handle = reinterpret_cast<cublasLtHandle_t>(new Handle{nullptr});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    Locked locked;
    delete reinterpret_cast<Handle *>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status) { return cublasGetStatusString(status); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld)
{
    ENTER();
    *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, ld, 0, 1});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete reinterpret_cast<Layout *>(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle, cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes)
{
    ENTER();
    auto *layout = reinterpret_cast<Layout *>(handle);
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return set(&layout->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return set(&layout->columns, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD: return set(&layout->ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(&layout->batches, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return set(&layout->stride, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *description, cublasComputeType_t compute, cudaDataType_t scale)
{
    ENTER();
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation{CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description)
{
    delete reinterpret_cast<Operation *>(description);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    ENTER();
    auto *operation = reinterpret_cast<Operation *>(description);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(&operation->a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(&operation->b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&operation->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&operation->bias, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* Which algorithm runs is of no interest here: preferences are taken and forgotten. */
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    ENTER();
    *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new int(0));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete reinterpret_cast<int *>(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t)
{
    ENTER();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    ENTER();
    if (wanted < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    results[0] = cublasLtMatmulHeuristicResult_t{};
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static Matrix matrix_of(const void *data, const Layout *layout, bool transposed)
{
    return {data, layout->type, transposed, layout->ld, layout->stride};
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *, void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    ENTER();
    auto *operation = reinterpret_cast<Operation *>(description);
    auto *la = reinterpret_cast<Layout *>(a_layout), *lb = reinterpret_cast<Layout *>(b_layout);
    auto *lc = reinterpret_cast<Layout *>(c_layout), *ld = reinterpret_cast<Layout *>(d_layout);
    bool a_turned = operation->a != CUBLAS_OP_N, b_turned = operation->b != CUBLAS_OP_N;
    uint64_t k = a_turned ? la->rows : la->columns, k_of_b = b_turned ? lb->columns : lb->rows;
    uint64_t m = a_turned ? la->columns : la->rows, n = b_turned ? lb->rows : lb->columns;
    bool biased = operation->epilogue == CUBLASLT_EPILOGUE_BIAS;
    if ((operation->epilogue != CUBLASLT_EPILOGUE_DEFAULT && !biased) || (biased && ld->type != CUDA_R_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (k != k_of_b || m != ld->rows || n != ld->columns || lc->rows != m || lc->columns != n || (biased && !operation->bias)) {
        fault(CUEMU_CALLER, "CUBLAS: cublasLtMatmul of shapes that do not fit: %llu x %llu times %llu x %llu into %llu x %llu",
              (unsigned long long)m, (unsigned long long)k, (unsigned long long)k_of_b, (unsigned long long)n,
              (unsigned long long)ld->rows, (unsigned long long)ld->columns);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (workspace_bytes && !touch(workspace, workspace_bytes, false, CUEMU_CALLER))
        return CUBLAS_STATUS_INVALID_VALUE;
    Product p = {int64_t(m), int64_t(n), int64_t(k), la->batches, matrix_of(a, la, a_turned), matrix_of(b, lb, b_turned),
                 matrix_of(c, lc, false), matrix_of(d, ld, false), *static_cast<const float *>(alpha), *static_cast<const float *>(beta),
                 biased ? static_cast<const float *>(operation->bias) : nullptr, CUEMU_CALLER};
    return enqueue(p, "a cublasLt product", stream);
}

}    // extern "C"
