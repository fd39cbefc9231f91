/* q, k, v += bias; q and k: RMS norm per head, then rotary positions, halves against halves; q to bfloat16, k and v into the KV
   cache. One warp for each (row, head), heads in the order q, k, v; a lane has element i of the lower half and its partner of the
   upper half, so rotation needs no other lane. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kWarps = 4;
constexpr uint32_t kPairs = 2;    /* pairs of elements of a lane: head_dim up to 128 */

struct head_row {
    float low[kPairs], high[kPairs];
};

__device__ __forceinline__ head_row load_head(const gb_k_prepare_args &a, size_t at, uint32_t bias_at, uint32_t lane)
{
    const uint32_t middle = a.kv.head_dim / 2;
    head_row v;
#pragma unroll
    for (uint32_t j = 0; j < kPairs; j++) {
        const uint32_t i = lane + 32 * j;
        v.low[j] = v.high[j] = 0;
        if (i >= middle) continue;
        v.low[j] = a.qkv[at + i] + (a.bias ? a.bias[bias_at + i] : 0);
        v.high[j] = a.qkv[at + middle + i] + (a.bias ? a.bias[bias_at + middle + i] : 0);
    }
    return v;
}

__device__ __forceinline__ void norm_and_rotate(head_row &v, const gb_k_prepare_args &a, const float *weight, int32_t position, uint32_t lane)
{
    const uint32_t middle = a.kv.head_dim / 2;
    float squares = 0;
#pragma unroll
    for (uint32_t j = 0; j < kPairs; j++) squares = fmaf(v.low[j], v.low[j], fmaf(v.high[j], v.high[j], squares));
    const float scale = 1.0f / sqrtf(gb_warp_sum(squares) / (float)a.kv.head_dim + a.epsilon);
    const float *angles = a.angles + (size_t)position * 2 * middle;
#pragma unroll
    for (uint32_t j = 0; j < kPairs; j++) {
        const uint32_t i = lane + 32 * j;
        if (i >= middle) continue;
        const float low = v.low[j] * scale * weight[i], high = v.high[j] * scale * weight[middle + i];
        const float cosine = angles[2 * i], sine = angles[2 * i + 1];
        v.low[j] = low * cosine - high * sine;
        v.high[j] = high * cosine + low * sine;
    }
}

__device__ __forceinline__ void store_head(uint16_t *to, const head_row &v, uint32_t middle, uint32_t lane)
{
#pragma unroll
    for (uint32_t j = 0; j < kPairs; j++) {
        const uint32_t i = lane + 32 * j;
        if (i >= middle) continue;
        to[i] = (uint16_t)gb_round_bf16(v.low[j]);
        to[middle + i] = (uint16_t)gb_round_bf16(v.high[j]);
    }
}

/* The block of a row's position; -1 for what must not be there. */
__device__ __forceinline__ int32_t block_of(const gb_k_prepare_args &a, uint32_t row, int32_t position, bool report)
{
    if (position < 0 || (uint32_t)position >= a.positions) {
        if (report) gb_report(a.fault, GB_K_FAULT_POSITION, row, position);
        return -1;
    }
    const int32_t block = a.rows.blocks[a.rows.first_block[row] + position / GB_K_BLOCK_TOKENS];
    if (block >= 0 && (uint32_t)block < a.kv.blocks) return block;
    if (report) gb_report(a.fault, GB_K_FAULT_BLOCK, row, block);
    return -1;
}

/* Where a kv head's row goes; values lie behind the keys of all heads. */
__device__ __forceinline__ uint16_t *kv_row(const gb_k_prepare_args &a, uint32_t row, int32_t block, int32_t position, bool value, uint32_t kv_head)
{
    const size_t which = ((size_t)a.rows.engines[row] * a.kv.blocks + block) * 2 + value;
    return a.kv.memory + ((which * a.kv.kv_heads + kv_head) * GB_K_BLOCK_TOKENS + position % GB_K_BLOCK_TOKENS) * a.kv.head_dim;
}

__global__ void __launch_bounds__(kWarps * 32) attention_prepare_kernel(gb_k_prepare_args a)
{
    const uint32_t lane = threadIdx.x % 32, all = a.heads + 2 * a.kv.kv_heads, D = a.kv.head_dim;
    const uint32_t item = blockIdx.x * kWarps + threadIdx.x / 32, row = item / all, head = item % all;
    if (row >= a.rows.n || a.rows.tokens[row] < 0) return;    /* whole warps; padding has no position */
    const int32_t position = a.rows.positions[row], block = block_of(a, row, position, lane == 0 && head == 0);
    if (block < 0) return;
    head_row v = load_head(a, ((size_t)row * all + head) * D, head * D, lane);
    if (head < a.heads) {
        norm_and_rotate(v, a, a.q_norm, position, lane);
        store_head(a.q + ((size_t)row * a.heads + head) * D, v, D / 2, lane);
        return;
    }
    const bool value = head >= a.heads + a.kv.kv_heads;
    if (!value) norm_and_rotate(v, a, a.k_norm, position, lane);
    store_head(kv_row(a, row, block, position, value, (head - a.heads) % a.kv.kv_heads), v, D / 2, lane);
}

extern "C" int gb_k_attention_prepare(const gb_k_prepare_args *a, cudaStream_t stream)
{
    const uint32_t all = a->heads + 2 * a->kv.kv_heads;
    if (a->kv.head_dim == 0 || a->kv.head_dim % 2 || a->kv.head_dim > 64 * kPairs || a->kv.kv_heads == 0)
        return gb_k_fail(GB_EINVAL, "attention_prepare: %u kv heads of %u elements; heads have an even number of elements, at most %u",
                         a->kv.kv_heads, a->kv.head_dim, 64 * kPairs);
    if (a->rows.n == 0) return GB_OK;
    if (a->rows.n > kGridMax / all) return gb_k_fail(GB_EINVAL, "attention_prepare: %u rows are more than a grid has", a->rows.n);
    GB_LAUNCH(attention_prepare_kernel, gb_k_ceil(a->rows.n * all, kWarps), kWarps * 32, 0, stream, *a);
    return gb_k_launched("attention_prepare");
}
