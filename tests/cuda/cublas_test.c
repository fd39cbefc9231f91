/* cuBLAS as we call it, against sums in double precision: the emulated one, or on a GPU the real one. */
#include "tests/cuda/device.h"

#include <cublas_v2.h>

enum { M = 5, N = 3, K = 37, LD_A = 40, LD_B = 38, LD_D = 6 };

static void make_bf16(uint16_t *bits, size_t n, gb_rng *rng) { fill_bf16(bits, n, 1.0f, rng); }

/* column-major: element (i, j) of an untransposed matrix is at j * ld + i */
static double element(const uint16_t *matrix, bool transposed, int ld, int i, int j)
{
    return gb_bf16_to_f32(matrix[transposed ? i * ld + j : j * ld + i]);
}

static double product(const uint16_t *a, bool ta, const uint16_t *b, bool tb, int i, int j)
{
    double sum = 0;
    for (int k = 0; k < K; k++)
        sum += element(a, ta, LD_A, i, k) * element(b, tb, LD_B, k, j);
    return sum;
}

static void gemm_multiplies_every_kind_of_transposed(void)
{
    gb_rng rng;
    uint16_t a[LD_A * LD_A], b[LD_B * LD_B];
    float old[LD_D * N], d[LD_D * N], alpha = 2, beta = 0.5f;
    cublasHandle_t handle;
    fresh_rng(&rng, 5);
    make_bf16(a, LD_A * LD_A, &rng);
    make_bf16(b, LD_B * LD_B, &rng);
    fill_f32(old, LD_D * N, 1, &rng);
    CHECK_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    for (int kind = 0; kind < 4; kind++) {
        bool ta = kind & 1, tb = kind & 2;
        void *da = DEVICE_COPY(a), *db = DEVICE_COPY(b), *dd = DEVICE_COPY(old);
        CHECK_EQ(cublasGemmEx(handle, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, M, N, K, &alpha, da, CUDA_R_16BF, LD_A,
                              db, CUDA_R_16BF, LD_B, &beta, dd, CUDA_R_32F, LD_D, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                 CUBLAS_STATUS_SUCCESS);
        device_read(d, dd, LD_D * N, sizeof *d);
        for (int j = 0; j < N; j++)
            for (int i = 0; i < M; i++)
                CHECK_NEAR(d[j * LD_D + i], 2 * product(a, ta, b, tb, i, j) + 0.5 * old[j * LD_D + i], 1e-4);
        CHECK_EQ(d[M] == old[M], 1);    /* between columns nothing is touched */
    }
    cublasDestroy(handle);
    device_free_all();
}

TESTS(TEST(gemm_multiplies_every_kind_of_transposed))
