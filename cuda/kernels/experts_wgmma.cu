/* The products of experts.cu on Hopper: wgmma over tiles that tensor copies bring.

       gate_up    out[row][f] = silu(G[f] . in[row]) * (U[f] . in[row])        down    out[row][o] = D[o] . in[row]

   Weights are the 64-row side of wgmma.m64nNk16 and rows its N, whether a slot has one row or thousands: an element is always the same
   sum over k in steps of 16, so its bits do not depend on the tile. One shape of kernel serves both ends:

       rows of a tile     8     64    128      few rows a slot: bound by streaming weights; many: by tensor cores
       warpgroups         1      2      2      each multiplies two tiles of 64 weight rows: gate and up of 64 outputs, or 128 outputs
       stage, KiB        17     40     48      64 of k: 128 bytes, a row of the swizzle
       stages            12      5      4      204, 200, 192 KiB of 227, so one block a multiprocessor
       accumulators       8     64    128      registers a thread, of 224 that 288 threads may have: no setmaxnreg is needed

   In flight are all stages but one: 187 KiB for 8 rows, several times what latency times bandwidth asks for on one of 132 multiprocessors.
   A 256 x 128 tile does 85 operations for each byte that it reads from L2. A warp of its own starts copies and runs ahead over the ends of
   tiles; warpgroups that multiply keep one group of products open while the next stage is awaited. The copies of a stage count at its
   barrier `full`, a lane of each multiplying warp at its barrier `empty`.

   A box may reach over the end of a matrix, where zeros come, over the gate rows into the up rows, or into the rows of the next slot: those
   sums are made and not stored. The accumulators of a warp are 16 outputs by all rows of the tile; they turn round in 768 bytes of its own
   in shared memory, so that a row's 16 outputs are stored as 32 bytes. */
#include "cuda/kernels/experts.cuh"

#include "cuda/kernels/tensor_map.h"
#include "cuda/kernels/wgmma.cuh"

constexpr uint32_t kDepth = 64;               /* of k in a stage */
constexpr uint32_t kTileRows = 64;            /* weight rows of one product */
constexpr uint32_t kTileBytes = kTileRows * kDepth * sizeof(uint16_t);
constexpr uint32_t kAlign = 1024;             /* of a swizzled tile */
constexpr uint32_t kTurnRows = 16, kTurnRow = 16 + 8;    /* rows at once; elements of one, so that stmatrix meets no bank twice */

template <uint32_t kRows> struct pipeline {
    static constexpr uint32_t kWarpgroups = kRows == 8 ? 1 : 2;
    static constexpr uint32_t kStages = kRows == 8 ? 12 : kRows == 64 ? 5 : 4;
    static constexpr uint32_t kThreads = kWarpgroups * 128 + 32;
    static constexpr uint32_t kTiles = 2 * kWarpgroups;
    static constexpr uint32_t kStageBytes = kTiles * kTileBytes + kRows * kDepth * sizeof(uint16_t);
    static constexpr uint32_t kTurnBytes = kWarpgroups * 4 * kTurnRows * kTurnRow * sizeof(uint16_t);
    static constexpr uint32_t kBytes = kAlign + kStages * (kStageBytes + 2 * sizeof(uint64_t)) + kTurnBytes;
    static_assert(kBytes <= 227 * 1024 && kStageBytes % kAlign == 0 && kTurnBytes % sizeof(uint64_t) == 0, "shared memory of a block");
};

template <bool kGated, uint32_t kRows> constexpr uint32_t kOutputsOfTile = pipeline<kRows>::kWarpgroups * (kGated ? kTileRows : 2 * kTileRows);

/* A block's shared memory. */
struct parts {
    unsigned char *stages;
    uint16_t *turn;                /* of each warp */
    uint64_t *full, *empty;        /* of each stage */
};

/* The stage that comes next, and the parity of the phase that fills it. */
struct position {
    uint32_t stage, parity;
};

template <uint32_t kRows> __device__ __forceinline__ void advance(position &at)
{
    if (++at.stage < pipeline<kRows>::kStages) return;
    at.stage = 0;
    at.parity ^= 1;
}

template <uint32_t kRows> __device__ __forceinline__ parts lay_out(unsigned char *memory)
{
    using P = pipeline<kRows>;
    parts s;
    s.stages = memory + (kAlign - gb_shared_address(memory) % kAlign) % kAlign;
    s.turn = reinterpret_cast<uint16_t *>(s.stages + P::kStages * P::kStageBytes);
    s.full = reinterpret_cast<uint64_t *>(s.stages + P::kStages * P::kStageBytes + P::kTurnBytes);
    s.empty = s.full + P::kStages;
    return s;
}

template <uint32_t kRows> __device__ __forceinline__ void open_barriers(const parts &s)
{
    using P = pipeline<kRows>;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < P::kStages; i++) {
            gb_mbarrier_init(s.full + i, 1);
            gb_mbarrier_init(s.empty + i, P::kWarpgroups * 4);
        }
        gb_fence_async();
    }
    __syncthreads();
}

/* --- the warp that copies; one lane of it ---------------------------------------------------------------------------------------- */

/* The row of the place's matrix at which weight tile i of a stage begins. */
template <bool kGated> __device__ __forceinline__ uint32_t weight_row_of(uint32_t i, const tile &t, const problem &p)
{
    return kGated ? i % 2 * p.outputs + t.first_output + i / 2 * kTileRows : t.first_output + i * kTileRows;
}

template <bool kGated, uint32_t kRows>
__device__ __forceinline__ void copy_tiles(const gb_k_experts_args &a, const problem &p, const parts &s, const CUtensorMap *weights, const CUtensorMap *rows)
{
    using P = pipeline<kRows>;
    position at = {0, 1};    /* no stage is taken */
    walk w = {0, 0};
    tile t;
    for (uint32_t number = blockIdx.x; find_tile(t, w, number, a, p); number += gridDim.x)
        for (uint32_t k = 0; k < p.k; k += kDepth, advance<kRows>(at)) {
            unsigned char *s_stage = s.stages + at.stage * P::kStageBytes;
            uint64_t *full = s.full + at.stage;
            gb_mbarrier_wait(s.empty + at.stage, at.parity);
            gb_mbarrier_arrive_expect(full, P::kStageBytes);
#pragma unroll
            for (uint32_t i = 0; i < P::kTiles; i++)
                gb_tensor_load_3d(s_stage + i * kTileBytes, weights, full, (int)k, (int)weight_row_of<kGated>(i, t, p), (int)t.place);
            gb_tensor_load_2d(s_stage + P::kTiles * kTileBytes, rows, full, (int)k, (int)t.first_row);
        }
}

/* --- the warpgroups that multiply -------------------------------------------------------------------------------------------------- */

template <uint32_t kRows>
__device__ __forceinline__ void begin_stage(float (&first)[kRows / 2], float (&second)[kRows / 2], const unsigned char *s_stage, bool add)
{
    const unsigned char *s_weights = s_stage + threadIdx.x / 128 * 2 * kTileBytes, *s_rows = s_stage + pipeline<kRows>::kTiles * kTileBytes;
    gb_wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < kDepth; k += 16) {
        const uint64_t rows = gb_wgmma_tile(s_rows, k);
        gb_wgmma<kRows>(first, gb_wgmma_tile(s_weights, k), rows, add || k > 0);
        gb_wgmma<kRows>(second, gb_wgmma_tile(s_weights + kTileBytes, k), rows, add || k > 0);
    }
    gb_wgmma_commit();
}

/* Whoever fills the stage next may: this warp has read it. */
__device__ __forceinline__ void free_stage(uint64_t *empty)
{
    if (threadIdx.x % 32 == 0) gb_mbarrier_arrive(empty);
}

template <uint32_t kRows>
__device__ __forceinline__ void multiply_tile(float (&first)[kRows / 2], float (&second)[kRows / 2], position &at, const parts &s, uint32_t k)
{
    uint32_t before = 0;    /* the stage whose products are open */
    for (uint32_t done = 0; done < k; done += kDepth, advance<kRows>(at)) {
        gb_mbarrier_wait(s.full + at.stage, at.parity);
        begin_stage<kRows>(first, second, s.stages + at.stage * pipeline<kRows>::kStageBytes, done > 0);
        gb_wgmma_wait<1>();
        if (done > 0) free_stage(s.empty + before);
        before = at.stage;
    }
    gb_wgmma_wait<0>();
    free_stage(s.empty + before);
}

/* 16 rows by the 16 outputs of a warp, as pairs along rows: 0 and 1 of the first 8 rows, 2 and 3 of the others. */
__device__ __forceinline__ void store_turned(uint16_t *out, uint16_t *s_turn, const uint32_t (&pairs)[4], uint32_t rows, uint32_t outputs, size_t stride)
{
    const uint32_t lane = threadIdx.x % 32, row = lane / 2, output = lane % 2 * 8;
    __syncwarp();    /* what lies there was read */
    gb_stmatrix_x4_trans(s_turn + (lane / 16 * 8 + lane % 8) * kTurnRow + lane / 8 % 2 * 8, pairs);
    __syncwarp();
    if (row < rows && output < outputs)
        gb_store16(out + row * stride + output, gb_load16(s_turn + row * kTurnRow + output));
}

/* The warp's 16 outputs, of which `outputs` exist, for all rows of the tile: sums, or silu(sums) * up. */
template <bool kGated, uint32_t kRows>
__device__ __forceinline__ void store_sums(uint16_t *out, uint16_t *s_turn, const float (&sums)[kRows / 2], const float (&up)[kRows / 2], uint32_t rows,
                                           uint32_t outputs, size_t stride)
{
#pragma unroll
    for (uint32_t row = 0; row < kRows; row += kTurnRows) {
        uint32_t pairs[4] = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t i = 0; i < 4 && row + i / 2 * 8 < kRows; i++) {
            const float *s = sums + row / 2 + 2 * i, *u = up + row / 2 + 2 * i;
            pairs[i] = kGated ? gb_pack_bf16(gb_silu(s[0]) * u[0], gb_silu(s[1]) * u[1]) : gb_pack_bf16(s[0], s[1]);
        }
        if (row < rows) store_turned(out + row * stride, s_turn, pairs, rows - row, outputs, stride);
    }
}

template <bool kGated, uint32_t kRows>
__device__ __forceinline__ void store_products(const float (&first)[kRows / 2], const float (&second)[kRows / 2], const gb_k_experts_args &a,
                                               const problem &p, const tile &t, const parts &s)
{
    const uint32_t warp = threadIdx.x / 32, output = t.first_output + warp / 4 * (kGated ? 1 : 2) * kTileRows + warp % 4 * 16;
    uint16_t *s_turn = s.turn + warp * kTurnRows * kTurnRow, *out = a.out + (size_t)t.first_row * p.outputs + output;
    if (output < p.outputs) store_sums<kGated, kRows>(out, s_turn, first, second, t.rows, p.outputs - output, p.outputs);
    if (!kGated && output + kTileRows < p.outputs)
        store_sums<false, kRows>(out + kTileRows, s_turn, second, second, t.rows, p.outputs - output - kTileRows, p.outputs);
}

template <bool kGated, uint32_t kRows> __device__ __forceinline__ void multiply_tiles(const gb_k_experts_args &a, const problem &p, const parts &s)
{
    position at = {0, 0};
    walk w = {0, 0};
    tile t;
    for (uint32_t number = blockIdx.x; find_tile(t, w, number, a, p); number += gridDim.x) {
        float first[kRows / 2], second[kRows / 2];
        multiply_tile<kRows>(first, second, at, s, p.k);
        store_products<kGated, kRows>(first, second, a, p, t, s);
    }
}

/* --- both ---------------------------------------------------------------------------------------------------------------------------- */

template <bool kGated, uint32_t kRows>
__global__ void __launch_bounds__(pipeline<kRows>::kThreads, 1)
    experts_wgmma_kernel(gb_k_experts_args a, const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap rows)
{
#ifdef GB_HOPPER
    GB_DYN_SHARED(unsigned char, s_memory);
    const parts s = lay_out<kRows>(s_memory);
    const problem p = problem_of(a.pool, kGated, kOutputsOfTile<kGated, kRows>, kRows);
    open_barriers<kRows>(s);
    if (threadIdx.x < pipeline<kRows>::kWarpgroups * 128) multiply_tiles<kGated, kRows>(a, p, s);
    else if (threadIdx.x % 32 == 0) copy_tiles<kGated, kRows>(a, p, s, &weights, &rows);
#endif
}

template <bool kGated, uint32_t kRows> static int start(const gb_k_experts_args *a, const char *name, cudaStream_t stream)
{
    using P = pipeline<kRows>;
    const problem p = problem_of(a->pool, kGated, kOutputsOfTile<kGated, kRows>, kRows);
    const gb_k_tensor places = {a->pool.memory + p.offset, p.k, kGated ? 2 * p.outputs : p.outputs, a->pool.places, p.place_elements, kTileRows};
    const gb_k_tensor in = {a->in, p.k, a->max_rows, 0, 0, kRows};
    CUtensorMap weights, rows;
    int status = gb_k_tensor_map(&weights, &places);
    if (status == GB_OK) status = gb_k_tensor_map(&rows, &in);
    if (status != GB_OK) return status;
    cudaFuncSetAttribute(reinterpret_cast<const void *>(experts_wgmma_kernel<kGated, kRows>), cudaFuncAttributeMaxDynamicSharedMemorySize, P::kBytes);
    GB_LAUNCH((experts_wgmma_kernel<kGated, kRows>), blocks_of_experts(a, p, a->processors), P::kThreads, P::kBytes, stream, *a, weights, rows);
    return gb_k_launched(name);
}

template <bool kGated> static int launch(const gb_k_experts_args *a, const char *name, cudaStream_t stream)
{
    const int status = check_experts(a, name);
    if (status != GB_OK || a->max_rows == 0) return status;
    const uint64_t slots = a->pool.slots;
    if (a->max_rows <= slots * 8) return start<kGated, 8>(a, name, stream);
    if (a->max_rows <= slots * 64) return start<kGated, 64>(a, name, stream);
    return start<kGated, 128>(a, name, stream);
}

extern "C" int gb_k_experts_wgmma_gate_up(const gb_k_experts_args *a, cudaStream_t stream) { return launch<true>(a, "experts_wgmma_gate_up", stream); }

extern "C" int gb_k_experts_wgmma_down(const gb_k_experts_args *a, cudaStream_t stream) { return launch<false>(a, "experts_wgmma_down", stream); }
