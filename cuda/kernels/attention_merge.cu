/* out[row][head] = the partial results of attention_decode put together in the order of chunks, normalised. One block for each
   (tile, kv head); a thread takes single elements of the tile's query rows. */
#include "cuda/kernels/launch.cuh"

#include "cuda/kernels/attention.cuh"

constexpr uint32_t kThreads = 128;

__global__ void __launch_bounds__(kThreads) attention_merge_kernel(gb_k_merge_args a)
{
    const gb_k_merge_tile tile = a.tiles[blockIdx.x];
    const uint32_t kv_head = blockIdx.y, group = a.heads / a.kv_heads, D = a.head_dim;
    for (uint32_t item = threadIdx.x; item < tile.n * group * D; item += kThreads) {
        const uint32_t i = item / D, d = item % D;
        float out = 0, sum = 0, highest = -INFINITY;
        for (uint32_t chunk = 0; chunk < tile.chunks; chunk++) {
            const float *part = a.partial + (((size_t)(tile.first - a.first + chunk) * a.kv_heads + kv_head) * GB_K_TILE_ROWS + i) * (D + 2);
            float total_scale, part_scale;
            gb_merge_scales(total_scale, part_scale, highest, part[D]);
            sum = gb_merge(sum, total_scale, part[D + 1], part_scale);
            out = gb_merge(out, total_scale, part[d], part_scale);
        }
        a.out[((size_t)(tile.row + i / group) * a.heads + kv_head * group + i % group) * D + d] = (uint16_t)gb_round_bf16(out / sum);
    }
}

extern "C" int gb_k_attention_merge(const gb_k_merge_args *a, cudaStream_t stream)
{
    if (a->kv_heads == 0 || a->heads % a->kv_heads || a->n_tiles > kGridMax)
        return gb_k_fail(GB_EINVAL, "attention_merge: %u heads over %u kv heads, %u tiles", a->heads, a->kv_heads, a->n_tiles);
    if (a->n_tiles == 0) return GB_OK;
    GB_LAUNCH(attention_merge_kernel, dim3(a->n_tiles, a->kv_heads), kThreads, 0, stream, *a);
    return gb_k_launched("attention_merge");
}
