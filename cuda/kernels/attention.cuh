/* Attention of 16 query rows to one chunk of positions on tensor cores, with online softmax; shared by decode and prefill, so that a
   row's bits do not depend on which of them computed it. A query row is (position, head): row i of a tile is position i / group
   and head i % group of the kv head's group. Fragments as in mma.cuh: lane l has rows g = l / 4 and g + 8, columns 2 (l % 4), + 1.

   Positions beyond a row's own (or before its window) weigh exactly 0 and change no bits, nor does a whole key tile of them. Products
   and sums that could be contracted in two ways are written as fmaf, so that every compiler agrees. */
#ifndef GB_CUDA_ATTENTION_CUH
#define GB_CUDA_ATTENTION_CUH

#include "cuda/kernels/mma.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kKeys = 32;      /* positions of a key tile: two KV blocks */
constexpr uint32_t kStages = 2;     /* key tiles in shared memory: one computed on, one under way */
constexpr uint32_t kPad = 8;        /* elements behind a row, so that ldmatrix meets no bank twice */

template <int D> constexpr uint32_t kTileElements = kKeys * (D + kPad);                                   /* keys or values */
template <int D> constexpr uint32_t kAttentionBytes = kStages * 2 * kTileElements<D> * sizeof(uint16_t);

/* What a lane keeps for its two rows. */
template <int D> struct gb_softmax {
    float out[D / 8][4];
    float highest[2], sum[2];
};

template <int D> __device__ __forceinline__ void gb_softmax_clear(gb_softmax<D> &s)
{
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) s.out[n][j] = 0;
    s.highest[0] = s.highest[1] = -INFINITY;
    s.sum[0] = s.sum[1] = 0;
}

__device__ __forceinline__ float gb_finite(float highest) { return highest == -INFINITY ? 0.0f : highest; }

/* Adds the part of one chunk to what the chunks before it gave. */
__device__ __forceinline__ void gb_merge_scales(float &total_scale, float &part_scale, float &highest, float part_highest)
{
    const float both = fmaxf(highest, part_highest), base = gb_finite(both);
    total_scale = exp2f(highest - base);
    part_scale = exp2f(part_highest - base);
    highest = both;
}

__device__ __forceinline__ float gb_merge(float total, float total_scale, float part, float part_scale)
{
    return fmaf(total, total_scale, __fmul_rn(part, part_scale));
}

/* What does not change while a tile is computed. */
struct gb_attend {
    const uint16_t *keys, *values;    /* of the engine's block 0 and the kv head */
    size_t block_elements;            /* from one block to the next */
    const int32_t *blocks;            /* of the sequence */
    uint32_t n_blocks;                /* that exist; attention_prepare reports others */
    uint32_t last;                    /* the last position that any row of the tile sees */
    uint32_t position[2];             /* of this lane's rows */
    uint32_t window;
    float scale;                      /* 1 / sqrt(head_dim) in units of log 2 */
};

__device__ __forceinline__ gb_attend gb_attend_of(const gb_k_attention_args &a, const gb_k_tile &tile, uint32_t kv_head)
{
    gb_attend t;
    const size_t head = (size_t)GB_K_BLOCK_TOKENS * a.kv.head_dim;
    t.block_elements = 2 * head * a.kv.kv_heads;
    t.keys = a.kv.memory + (size_t)a.rows.engines[tile.row] * a.kv.blocks * t.block_elements + kv_head * head;
    t.values = t.keys + head * a.kv.kv_heads;
    t.blocks = a.rows.blocks + a.rows.first_block[tile.row];
    t.n_blocks = a.kv.blocks;
    t.last = tile.position + tile.n - 1;
    t.window = a.window;
    t.scale = a.scale * 1.44269504088896341f;
    return t;
}

/* The query rows of a warp as fragments; rows beyond the tile are zeros. */
template <int D>
__device__ __forceinline__ void gb_load_queries(uint32_t (&q)[D / 16][4], gb_attend &t, const gb_k_attention_args &a, const gb_k_tile &tile,
                                                uint32_t kv_head, uint32_t first_row)
{
    const uint32_t lane = threadIdx.x % 32, group = a.heads / a.kv.kv_heads;
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const uint32_t i = first_row + lane / 4 + 8 * side;
        const bool inside = i < tile.n * group;
        t.position[side] = tile.position + (inside ? i / group : 0);
        const uint16_t *row = a.q + ((size_t)(tile.row + i / group) * a.heads + kv_head * group + i % group) * D + 2 * (lane % 4);
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            q[k][side] = inside ? *reinterpret_cast<const uint32_t *>(row + 16 * k) : 0;
            q[k][side + 2] = inside ? *reinterpret_cast<const uint32_t *>(row + 16 * k + 8) : 0;
        }
    }
}

/* Starts the copy of keys and values of positions first .. first + kKeys - 1 by all threads of the block. Positions that nobody sees are
   not read: nobody may have written them. */
template <int D, int kThreads>
__device__ __forceinline__ void gb_load_keys(uint16_t *s_keys, const gb_attend &t, uint32_t first)
{
    constexpr uint32_t kPieces = D / 8;
    for (uint32_t i = threadIdx.x; i < kKeys * kPieces; i += kThreads) {
        const uint32_t key = i / kPieces, d = i % kPieces * 8, position = first + key;
        bool seen = position <= t.last;
        uint32_t block = seen ? (uint32_t)t.blocks[position / GB_K_BLOCK_TOKENS] : 0;
        seen = seen && block < t.n_blocks;
        block = seen ? block : 0;
        const size_t from = block * t.block_elements + (size_t)(position % GB_K_BLOCK_TOKENS) * D + d;
        uint16_t *to = s_keys + key * (D + kPad) + d;
        gb_cp_async16(to, t.keys + from, seen);
        gb_cp_async16(to + kTileElements<D>, t.values + from, seen);
    }
    gb_cp_commit();
}

/* scores[n][] of keys 8 n .. 8 n + 7, scaled; -inf where a row does not see them */
template <int D>
__device__ __forceinline__ void gb_score(float (&scores)[kKeys / 8][4], const uint32_t (&q)[D / 16][4], const uint16_t *s_keys,
                                         const gb_attend &t, uint32_t first)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < (int)kKeys / 8; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) scores[n][j] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int n = 0; n < (int)kKeys / 8; n += 2) {
            uint32_t b[4];
            gb_ldmatrix_x4(b, s_keys + (8 * n + lane / 16 * 8 + lane % 8) * (D + kPad) + 16 * k + lane / 8 % 2 * 8);
            const uint32_t even[2] = {b[0], b[1]}, odd[2] = {b[2], b[3]};
            gb_mma_16816(scores[n], q[k], even);
            gb_mma_16816(scores[n + 1], q[k], odd);
        }
#pragma unroll
    for (int n = 0; n < (int)kKeys / 8; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t key = first + 8 * n + 2 * (lane % 4) + j % 2, position = t.position[j / 2];
            const bool seen = key <= position && (t.window == 0 || key + t.window > position);
            scores[n][j] = seen ? __fmul_rn(scores[n][j], t.scale) : -INFINITY;
        }
}

/* scores become weights; what was summed so far is rescaled to the new highest score */
template <int D> __device__ __forceinline__ void gb_reweigh(gb_softmax<D> &s, float (&scores)[kKeys / 8][4])
{
#pragma unroll
    for (int side = 0; side < 2; side++) {
        float highest = s.highest[side], sum = 0;
#pragma unroll
        for (int n = 0; n < (int)kKeys / 8; n++) highest = fmaxf(highest, fmaxf(scores[n][2 * side], scores[n][2 * side + 1]));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
        const float base = gb_finite(highest), scale = exp2f(s.highest[side] - base);
#pragma unroll
        for (int n = 0; n < (int)kKeys / 8; n++)
#pragma unroll
            for (int j = 2 * side; j < 2 * side + 2; j++) {
                scores[n][j] = exp2f(scores[n][j] - base);
                sum += scores[n][j];
            }
        s.sum[side] = fmaf(s.sum[side], scale, sum);
        s.highest[side] = highest;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            s.out[n][2 * side] *= scale;
            s.out[n][2 * side + 1] *= scale;
        }
    }
}

/* out += weights * values */
template <int D>
__device__ __forceinline__ void gb_add_values(gb_softmax<D> &s, const float (&weights)[kKeys / 8][4], const uint16_t *s_values)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < (int)kKeys / 16; k++) {
        uint32_t a[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float *pair = &weights[2 * k + j / 2][j % 2 * 2];
            a[j] = gb_pack_bf16(pair[0], pair[1]);
        }
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t b[4];
            gb_ldmatrix_x4_trans(b, s_values + (16 * k + lane / 8 % 2 * 8 + lane % 8) * (D + kPad) + 8 * n + lane / 16 * 8);
            const uint32_t even[2] = {b[0], b[1]}, odd[2] = {b[2], b[3]};
            gb_mma_16816(s.out[n], a, even);
            gb_mma_16816(s.out[n + 1], a, odd);
        }
    }
}

/* One chunk for the 16 rows of this warp; all threads of the block call it together. s_tiles: kAttentionBytes<D>. */
template <int D, int kThreads>
__device__ __forceinline__ void gb_attend_chunk(gb_softmax<D> &s, const uint32_t (&q)[D / 16][4], uint16_t *s_tiles, const gb_attend &t,
                                                uint32_t chunk)
{
    const uint32_t size = GB_K_CHUNK, begin = chunk * size, seen = t.last + 1 - begin;
    const uint32_t tiles = ((seen < size ? seen : size) + kKeys - 1) / kKeys;
    gb_softmax_clear(s);
    gb_load_keys<D, kThreads>(s_tiles, t, begin);
    for (uint32_t i = 0; i < tiles; i++) {
        const uint16_t *s_keys = s_tiles + i % kStages * 2 * kTileElements<D>;
        if (i + 1 < tiles) gb_load_keys<D, kThreads>(s_tiles + (i + 1) % kStages * 2 * kTileElements<D>, t, begin + (i + 1) * kKeys);
        else gb_cp_commit();    /* an empty group, so that the same wait fits */
        gb_cp_wait<1>();
        __syncthreads();
        float scores[kKeys / 8][4];
        gb_score<D>(scores, q, s_keys, t, begin + i * kKeys);
        gb_reweigh<D>(s, scores);
        gb_add_values<D>(s, scores, s_keys + kTileElements<D>);
        __syncthreads();    /* the tile may be overwritten */
    }
#pragma unroll
    for (int side = 0; side < 2; side++) {
        s.sum[side] += __shfl_xor_sync(0xffffffffu, s.sum[side], 1);
        s.sum[side] += __shfl_xor_sync(0xffffffffu, s.sum[side], 2);
    }
}

/* What both launchers demand. */
static inline int gb_check_attention(const gb_k_attention_args *a, const char *name)
{
    const uint32_t D = a->kv.head_dim;
    if (D != 16 && D != 32 && D != 64 && D != 96 && D != 128)
        return gb_k_fail(GB_EINVAL, "%s: heads of %u elements; 16, 32, 64, 96 and 128 are supported", name, D);
    if (a->kv.kv_heads == 0 || a->heads % a->kv.kv_heads || a->heads / a->kv.kv_heads > GB_K_TILE_ROWS)
        return gb_k_fail(GB_EINVAL, "%s: %u heads over %u kv heads; at most %d may share one", name, a->heads, a->kv.kv_heads, GB_K_TILE_ROWS);
    return a->n_tiles <= kGridMax ? GB_OK : gb_k_fail(GB_EINVAL, "%s: %u tiles are more than a grid has", name, a->n_tiles);
}

#endif
