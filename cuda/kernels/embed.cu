/* x[row] = E[token], bfloat16 to float32; zeros for padding (token -1). One block a row, 8 elements a thread and step. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads) embed_kernel(gb_k_embed_args a)
{
    const uint32_t row = blockIdx.x;
    const int32_t token = a.tokens[row];
    const bool known = token >= 0 && (uint32_t)token < a.vocab;
    if (threadIdx.x == 0 && !known && token != -1) gb_report(a.fault, GB_K_FAULT_TOKEN, row, token);
    for (uint32_t i = threadIdx.x * 8; i < a.hidden; i += blockDim.x * 8) {
        float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (known) gb_load_bf16(v, a.table + (size_t)token * a.hidden + i);
        const float low[4] = {v[0], v[1], v[2], v[3]}, high[4] = {v[4], v[5], v[6], v[7]};
        gb_store_floats(a.x + (size_t)row * a.hidden + i, low);
        gb_store_floats(a.x + (size_t)row * a.hidden + i + 4, high);
    }
}

extern "C" int gb_k_embed(const gb_k_embed_args *a, cudaStream_t stream)
{
    if (a->hidden == 0 || a->hidden % 8)
        return gb_k_fail(GB_EINVAL, "embed: a hidden size of %u is no multiple of 8", a->hidden);
    if (a->n == 0) return GB_OK;
    if (a->n > kGridMax) return gb_k_fail(GB_EINVAL, "embed: %u rows are more than a grid has", a->n);
    GB_LAUNCH(embed_kernel, a->n, gb_k_row_threads(a->hidden / 8, kThreads), 0, stream, *a);
    return gb_k_launched("embed");
}
