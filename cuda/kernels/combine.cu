/* x[row] += sum over k of weights[row][k] * out[grouped_of_route[row][k]], in the order of k: the same sum whatever the batch is and
   wherever the experts live. One block a row, 8 elements a thread and step. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kThreads = 128;

__global__ void __launch_bounds__(kThreads) combine_kernel(gb_k_combine_args a)
{
    const size_t first = (size_t)blockIdx.x * a.K;
    float *x = a.x + (size_t)blockIdx.x * a.hidden;
    for (uint32_t i = threadIdx.x * 8; i < a.hidden; i += kThreads * 8) {
        float low[4], high[4], out[8];
        gb_load_floats(low, x + i);
        gb_load_floats(high, x + i + 4);
        for (uint32_t k = 0; k < a.K; k++) {
            const int64_t row = a.grouped_of_route ? a.grouped_of_route[first + k] : (int64_t)(first + k);
            if (row < 0) continue;
            const float weight = a.weights ? a.weights[first + k] : 1.0f;
            gb_load_bf16(out, a.out + (size_t)row * a.hidden + i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                low[j] = fmaf(weight, out[j], low[j]);
                high[j] = fmaf(weight, out[4 + j], high[j]);
            }
        }
        gb_store_floats(x + i, low);
        gb_store_floats(x + i + 4, high);
    }
}

extern "C" int gb_k_combine(const gb_k_combine_args *a, cudaStream_t stream)
{
    if (a->hidden == 0 || a->hidden % 8 || a->K == 0)
        return gb_k_fail(GB_EINVAL, "combine: a hidden size of %u is no multiple of 8, or no routes (%u)", a->hidden, a->K);
    if (a->n == 0) return GB_OK;
    if (a->n > kGridMax / a->K) return gb_k_fail(GB_EINVAL, "combine: %u rows are too many for 32-bit routes", a->n);
    GB_LAUNCH(combine_kernel, a->n, kThreads, 0, stream, *a);
    return gb_k_launched("combine");
}
