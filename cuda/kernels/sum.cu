/* x[row] += (parts[0][row] + parts[1][row] + ...) + bias: what an all-reduce would give, but in the order of ranks on every rank, whatever
   the library would have chosen for that many rows. One block a row, 4 elements a thread and step. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kThreads = 512;

__global__ void __launch_bounds__(kThreads) sum_kernel(gb_k_sum_args a)
{
    float *row = a.x + (size_t)blockIdx.x * a.hidden;
    for (uint32_t i = threadIdx.x * 4; i < a.hidden; i += blockDim.x * 4) {
        float sum[4], more[4];
        gb_load_floats(sum, a.parts + (size_t)blockIdx.x * a.hidden + i);
#pragma unroll 4
        for (uint32_t rank = 1; rank < a.ranks; rank++) {
            gb_load_floats(more, a.parts + ((size_t)rank * a.stride + blockIdx.x) * a.hidden + i);
            for (int j = 0; j < 4; j++) sum[j] += more[j];
        }
        if (a.bias) {
            gb_load_floats(more, a.bias + i);
            for (int j = 0; j < 4; j++) sum[j] += more[j];
        }
        gb_load_floats(more, row + i);
        for (int j = 0; j < 4; j++) sum[j] = more[j] + sum[j];
        gb_store_floats(row + i, sum);
    }
}

extern "C" int gb_k_sum(const gb_k_sum_args *a, cudaStream_t stream)
{
    if (a->hidden == 0 || a->hidden % 4 || a->ranks == 0 || a->n > a->stride)
        return gb_k_fail(GB_EINVAL, "sum: %u rows of %u elements, %u from each of %u ranks; elements must be a multiple of 4", a->n, a->hidden,
                         a->stride, a->ranks);
    if (a->n == 0) return GB_OK;
    if (a->n > kGridMax) return gb_k_fail(GB_EINVAL, "sum: %u rows are more than a grid has", a->n);
    GB_LAUNCH(sum_kernel, a->n, gb_k_row_threads(a->hidden / 4, kThreads), 0, stream, *a);
    return gb_k_launched("sum");
}
