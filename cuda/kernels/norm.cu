/* x += residual where there is one; h = x / sqrt(mean(x^2) + epsilon) * weight, as bfloat16 and, where asked for, float32. One block
   a row, 4 elements a thread and step; each thread adds up its own elements, then warps, then warps among each other, always in this
   order. The row is read twice, the second time from the cache. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kThreads = 512;

__device__ __forceinline__ float block_sum(float x)
{
    GB_SHARED(float, s_sums, [kThreads / 32]);
    x = gb_warp_sum(x);
    if (threadIdx.x % 32 == 0) s_sums[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0;
    for (uint32_t w = 0; w < blockDim.x / 32; w++) sum += s_sums[w];
    return sum;
}

__global__ void __launch_bounds__(kThreads) norm_kernel(gb_k_norm_args a)
{
    const size_t row = a.index ? (size_t)a.index[blockIdx.x] : blockIdx.x, out = (size_t)blockIdx.x * a.hidden;
    float *x = a.x + row * a.hidden, squares = 0, v[4], weight[4];
    for (uint32_t i = threadIdx.x * 4; i < a.hidden; i += blockDim.x * 4) {
        gb_load_floats(v, x + i);
        if (a.residual) {
            float residual[4];
            gb_load_floats(residual, a.residual + row * a.hidden + i);
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] += residual[j];
            gb_store_floats(x + i, v);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) squares = fmaf(v[j], v[j], squares);
    }
    const float scale = 1.0f / sqrtf(block_sum(squares) / (float)a.hidden + a.epsilon);
    for (uint32_t i = threadIdx.x * 4; i < a.hidden; i += blockDim.x * 4) {
        gb_load_floats(v, x + i);
        gb_load_floats(weight, a.weight + i);
#pragma unroll
        for (int j = 0; j < 4; j++) v[j] = v[j] * scale * weight[j];
        *reinterpret_cast<uint2 *>(a.h + out + i) = make_uint2(gb_pack_bf16(v[0], v[1]), gb_pack_bf16(v[2], v[3]));
        if (a.h32) gb_store_floats(a.h32 + out + i, v);
    }
}

extern "C" int gb_k_norm(const gb_k_norm_args *a, cudaStream_t stream)
{
    if (a->hidden == 0 || a->hidden % 4) return gb_k_fail(GB_EINVAL, "norm: a hidden size of %u is no multiple of 4", a->hidden);
    if (a->n == 0) return GB_OK;
    if (a->n > kGridMax) return gb_k_fail(GB_EINVAL, "norm: %u rows are more than a grid has", a->n);
    GB_LAUNCH(norm_kernel, a->n, gb_k_row_threads(a->hidden / 4, kThreads), 0, stream, *a);
    return gb_k_launched("norm");
}
