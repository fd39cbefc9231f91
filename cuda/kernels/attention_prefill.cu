/* Attention of many rows of one sequence: four warps of 16 query rows share each key tile. Chunk after chunk, put together in
   registers with the same operations that attention_merge uses. One block for each (tile, kv head). */
#include "cuda/kernels/launch.cuh"

#include "cuda/kernels/attention.cuh"

constexpr int kThreads = GB_K_PREFILL_ROWS / 16 * 32;

template <int D> __device__ __forceinline__ void merge_chunk(gb_softmax<D> &total, const gb_softmax<D> &part)
{
#pragma unroll
    for (int side = 0; side < 2; side++) {
        float total_scale, part_scale;
        gb_merge_scales(total_scale, part_scale, total.highest[side], part.highest[side]);
        total.sum[side] = gb_merge(total.sum[side], total_scale, part.sum[side], part_scale);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int j = 2 * side; j < 2 * side + 2; j++) total.out[n][j] = gb_merge(total.out[n][j], total_scale, part.out[n][j], part_scale);
    }
}

template <int D>
__device__ __forceinline__ void store_rows(const gb_k_attention_args &a, const gb_k_tile &tile, uint32_t kv_head, uint32_t first_row,
                                           const gb_softmax<D> &s)
{
    const uint32_t lane = threadIdx.x % 32, group = a.heads / a.kv.kv_heads;
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const uint32_t i = first_row + lane / 4 + 8 * side;
        if (i >= tile.n * group) continue;
        uint16_t *row = a.out + ((size_t)(tile.row + i / group) * a.heads + kv_head * group + i % group) * D + 2 * (lane % 4);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            *reinterpret_cast<uint32_t *>(row + 8 * n) = gb_pack_bf16(s.out[n][2 * side] / s.sum[side], s.out[n][2 * side + 1] / s.sum[side]);
    }
}

template <int D> __global__ void __launch_bounds__(kThreads, 1) attention_prefill_kernel(gb_k_attention_args a)
{
    GB_DYN_SHARED(uint16_t, s_tiles);
    const gb_k_tile tile = a.tiles[blockIdx.x];
    if (tile.n == 0) return;    /* the whole block */
    const uint32_t kv_head = blockIdx.y, first_row = threadIdx.x / 32 * 16;
    gb_attend t = gb_attend_of(a, tile, kv_head);
    uint32_t q[D / 16][4];
    gb_softmax<D> total, part;
    gb_softmax_clear(total);
    gb_load_queries<D>(q, t, a, tile, kv_head, first_row);
    for (uint32_t chunk = tile.chunk; chunk <= tile.last_chunk; chunk++) {
        gb_attend_chunk<D, kThreads>(part, q, s_tiles, t, chunk);
        merge_chunk<D>(total, part);
    }
    store_rows<D>(a, tile, kv_head, first_row, total);
}

extern "C" int gb_k_attention_prefill(const gb_k_attention_args *a, cudaStream_t stream)
{
    int status = gb_check_attention(a, "attention_prefill");
    if (status != GB_OK || a->n_tiles == 0) return status;
    const dim3 grid(a->n_tiles, a->kv.kv_heads);
    switch (a->kv.head_dim) {
    case 16: GB_LAUNCH((attention_prefill_kernel<16>), grid, kThreads, kAttentionBytes<16>, stream, *a); break;
    case 32: GB_LAUNCH((attention_prefill_kernel<32>), grid, kThreads, kAttentionBytes<32>, stream, *a); break;
    case 64: GB_LAUNCH((attention_prefill_kernel<64>), grid, kThreads, kAttentionBytes<64>, stream, *a); break;
    case 96: GB_LAUNCH((attention_prefill_kernel<96>), grid, kThreads, kAttentionBytes<96>, stream, *a); break;
    default: GB_LAUNCH((attention_prefill_kernel<128>), grid, kThreads, kAttentionBytes<128>, stream, *a); break;
    }
    return gb_k_launched("attention_prefill");
}
