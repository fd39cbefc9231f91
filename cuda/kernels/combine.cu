/* x[row] += sum over k of weights[row][k] * out[grouped_of_route[row][k]], in the order of k: the same sum whatever the batch is and
   wherever the experts live. One block a row, 8 elements a thread and step; the rows of 8 routes are under way at once. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kThreads = 256;
constexpr uint32_t kUnderWay = 8;

__global__ void __launch_bounds__(kThreads, 3) combine_kernel(gb_k_combine_args a)
{
    const uint32_t first = blockIdx.x * a.K;
    const bool nothing = gb_is_set(a.abandoned);
    float *x = a.x + (size_t)blockIdx.x * a.hidden;
    for (uint32_t i = threadIdx.x * 8; i < a.hidden; i += blockDim.x * 8) {
        float low[4], high[4], out[8];
        gb_load_floats(low, x + i);
        gb_load_floats(high, x + i + 4);
        for (uint32_t k0 = 0; k0 < a.K; k0 += kUnderWay) {
            uint4 part[kUnderWay];
            float weight[kUnderWay];
            bool there[kUnderWay];
#pragma unroll
            for (uint32_t j = 0; j < kUnderWay; j++) {
                const uint32_t route = first + k0 + j;
                const int32_t row = k0 + j >= a.K ? -1 : a.grouped_of_route ? a.grouped_of_route[route] : (int32_t)route;
                there[j] = row >= 0 && !nothing;
                weight[j] = there[j] && a.weights ? a.weights[route] : 1.0f;
                if (there[j]) part[j] = gb_load16(a.out + (size_t)row * a.hidden + i);
            }
#pragma unroll
            for (uint32_t j = 0; j < kUnderWay; j++) {
                if (!there[j]) continue;
                gb_widen8(out, part[j]);
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    low[c] = fmaf(weight[j], out[c], low[c]);
                    high[c] = fmaf(weight[j], out[4 + c], high[c]);
                }
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
    GB_LAUNCH(combine_kernel, a->n, gb_k_row_threads(a->hidden / 8, kThreads), 0, stream, *a);
    return gb_k_launched("combine");
}
