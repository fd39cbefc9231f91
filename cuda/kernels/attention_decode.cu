/* The part of one chunk of positions in a tile's attention, for few rows over long contexts: chunks run side by side and
   attention_merge puts them together. One warp for each (tile, kv head); its partial result is out[head_dim] before
   normalisation, the highest score and the normaliser, float32. Where the cuts are depends on positions alone, never on the batch. */
#include "cuda/kernels/launch.cuh"

#include "cuda/kernels/attention.cuh"

template <int D> __device__ __forceinline__ void store_partial(float *rows, const gb_softmax<D> &s)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int side = 0; side < 2; side++) {
        float *row = rows + (lane / 4 + 8 * side) * (D + 2);
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            row[8 * n + 2 * (lane % 4)] = s.out[n][2 * side];
            row[8 * n + 2 * (lane % 4) + 1] = s.out[n][2 * side + 1];
        }
        if (lane % 4 == 0) {
            row[D] = s.highest[side];
            row[D + 1] = s.sum[side];
        }
    }
}

template <int D> __global__ void __launch_bounds__(32) attention_decode_kernel(gb_k_attention_args a)
{
    GB_DYN_SHARED(uint16_t, s_tiles);
    const gb_k_tile tile = a.tiles[blockIdx.x];
    if (tile.n == 0) return;    /* the whole block */
    const uint32_t kv_head = blockIdx.y;
    gb_attend t = gb_attend_of(a, tile, kv_head);
    uint32_t q[D / 16][4];
    gb_softmax<D> s;
    gb_load_queries<D>(q, t, a, tile, kv_head, 0);
    gb_attend_chunk<D, 32>(s, q, s_tiles, t, tile.chunk);
    store_partial<D>(a.partial + ((size_t)blockIdx.x * a.kv.kv_heads + kv_head) * GB_K_TILE_ROWS * (D + 2), s);
}

extern "C" int gb_k_attention_decode(const gb_k_attention_args *a, cudaStream_t stream)
{
    int status = gb_check_attention(a, "attention_decode");
    if (status != GB_OK || a->n_tiles == 0) return status;
    const dim3 grid(a->n_tiles, a->kv.kv_heads);
    switch (a->kv.head_dim) {
    case 16: GB_LAUNCH((attention_decode_kernel<16>), grid, 32, kAttentionBytes<16>, stream, *a); break;
    case 32: GB_LAUNCH((attention_decode_kernel<32>), grid, 32, kAttentionBytes<32>, stream, *a); break;
    case 64: GB_LAUNCH((attention_decode_kernel<64>), grid, 32, kAttentionBytes<64>, stream, *a); break;
    case 96: GB_LAUNCH((attention_decode_kernel<96>), grid, 32, kAttentionBytes<96>, stream, *a); break;
    default: GB_LAUNCH((attention_decode_kernel<128>), grid, 32, kAttentionBytes<128>, stream, *a); break;
    }
    return gb_k_launched("attention_decode");
}
