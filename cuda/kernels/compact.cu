/* out[i] = x[from[i]]: the rows that are left after works were dropped move together. Into other memory, for a row may lie where
   another one goes. One block a row, 4 elements a thread and step. */
#include "cuda/kernels/launch.cuh"

constexpr uint32_t kThreads = 512;

__global__ void __launch_bounds__(kThreads) compact_kernel(gb_k_compact_args a)
{
    const float *from = a.x + (size_t)a.from[blockIdx.x] * a.hidden;
    float *to = a.out + (size_t)blockIdx.x * a.hidden;
    for (uint32_t i = threadIdx.x * 4; i < a.hidden; i += blockDim.x * 4) gb_store16(to + i, gb_load16(from + i));
}

extern "C" int gb_k_compact(const gb_k_compact_args *a, cudaStream_t stream)
{
    if (a->hidden == 0 || a->hidden % 4 || a->out == a->x)
        return gb_k_fail(GB_EINVAL, "compact: a hidden size of %u must be a multiple of 4, and rows move to other memory", a->hidden);
    if (a->n == 0) return GB_OK;
    if (a->n > kGridMax) return gb_k_fail(GB_EINVAL, "compact: %u rows are more than a grid has", a->n);
    GB_LAUNCH(compact_kernel, a->n, gb_k_row_threads(a->hidden / 4, kThreads), 0, stream, *a);
    return gb_k_launched("compact");
}
