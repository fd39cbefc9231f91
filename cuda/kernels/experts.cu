/* Grouped products with the weights of each row's slot:

       gate_up    out[row][f] = silu(G[f] . in[row]) * (U[f] . in[row])        down    out[row][o] = D[o] . in[row]

   Rows of a slot are offsets[slot] .. offsets[slot + 1] - 1, read on the device, so the same launch fits every routing. Persistent
   blocks walk over (slot, tile of rows, tile of outputs). Weights are the 16-row side of mma.m16n8k16 and rows the 8-column side, whether
   a slot has one row or thousands: an element is always the same sum over k in steps of 16, so its bits do not depend on the tile.
   In a gate_up tile, 8 gate outputs and their 8 up outputs share a 16-row fragment, so one lane ends up with both.

   Tiles: 64 weight rows by 8 rows (few rows a slot: bound by streaming weights, 4 stages in flight) or by 64 (many). A row of 64
   elements in shared memory is padded by 8, so that ldmatrix meets no bank twice. */
#include "cuda/kernels/experts.cuh"

#include "cuda/kernels/mma.cuh"

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWeightRows = 64;
constexpr uint32_t kDepth = 64;               /* of k in a stage */
constexpr uint32_t kRow = kDepth + 8;
constexpr uint32_t kPieces = kDepth / 8;      /* 16-byte pieces of a row */

template <bool kGated> constexpr uint32_t kOutputs = kGated ? kWeightRows / 2 : kWeightRows;    /* of a tile */

/* kRows: rows of a tile. kWarpsAcross: warps side by side along the rows; the others split the weight rows. */
template <uint32_t kRows> struct shape {
    static constexpr uint32_t kWarpsAcross = kRows >= 64 ? 2 : 1;
    static constexpr uint32_t kFragments = kWeightRows / 16 / (4 / kWarpsAcross);    /* 16-row weight fragments of a warp */
    static constexpr uint32_t kColumns = kRows / 8 / kWarpsAcross;                   /* 8-row column fragments of a warp */
    static constexpr uint32_t kStages = kRows >= 64 ? 2 : 4;
    static constexpr uint32_t kStageElements = (kWeightRows + kRows) * kRow;
    static constexpr uint32_t kBytes = kStages * kStageElements * sizeof(uint16_t);
};

/* The row of weights behind row r of a tile; a gated one alternates 8 gate and 8 up rows. */
template <bool kGated> __device__ __forceinline__ bool weight_row(uint32_t &row, uint32_t r, const tile &t, const problem &p)
{
    const uint32_t output = t.first_output + (kGated ? r / 16 * 8 + r % 8 : r);
    row = kGated && r % 16 >= 8 ? p.outputs + output : output;
    return output < p.outputs;
}

template <bool kGated, uint32_t kRows>
__device__ __forceinline__ void load_stage(uint16_t *s_stage, const tile &t, const problem &p, const gb_k_experts_args &a, uint32_t k)
{
    const uint16_t *weights = a.pool.memory + t.place * p.place_elements + p.offset;
    uint16_t *s_rows = s_stage + kWeightRows * kRow;
    for (uint32_t i = threadIdx.x; i < kWeightRows * kPieces; i += kThreads) {
        const uint32_t r = i / kPieces, d = i % kPieces * 8;
        uint32_t row;
        const bool inside = weight_row<kGated>(row, r, t, p) && k + d < p.k;
        gb_cp_async16(s_stage + r * kRow + d, inside ? weights + (size_t)row * p.k + k + d : weights, inside);
    }
    for (uint32_t i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
        const uint32_t r = i / kPieces, d = i % kPieces * 8;
        const bool inside = r < t.rows && k + d < p.k;
        gb_cp_async16(s_rows + r * kRow + d, inside ? a.in + (size_t)(t.first_row + r) * p.k + k + d : a.in, inside);
    }
}

template <uint32_t kRows>
__device__ __forceinline__ void multiply_stage(float (&sums)[shape<kRows>::kFragments][shape<kRows>::kColumns][4], const uint16_t *s_stage)
{
    using S = shape<kRows>;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const uint16_t *s_weights = s_stage + warp / S::kWarpsAcross * S::kFragments * 16 * kRow;
    const uint16_t *s_rows = s_stage + (kWeightRows + warp % S::kWarpsAcross * S::kColumns * 8) * kRow;
#pragma unroll
    for (uint32_t k = 0; k < kDepth; k += 16) {
        uint32_t b[S::kColumns][2];
#pragma unroll
        for (uint32_t j = 0; j < S::kColumns; j++) {
            const uint16_t *from = s_rows + (j * 8 + g) * kRow + k + 2 * t;
            b[j][0] = *reinterpret_cast<const uint32_t *>(from);
            b[j][1] = *reinterpret_cast<const uint32_t *>(from + 8);
        }
#pragma unroll
        for (uint32_t i = 0; i < S::kFragments; i++) {
            uint32_t weights[4];
            gb_ldmatrix_x4(weights, s_weights + (i * 16 + lane % 16) * kRow + k + lane / 16 * 8);
#pragma unroll
            for (uint32_t j = 0; j < S::kColumns; j++) gb_mma_16816(sums[i][j], weights, b[j]);
        }
    }
}

template <bool kGated, uint32_t kRows>
__device__ __forceinline__ void store_tile(const gb_k_experts_args &a, const tile &t, const problem &p,
                                           const float (&sums)[shape<kRows>::kFragments][shape<kRows>::kColumns][4])
{
    using S = shape<kRows>;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (uint32_t i = 0; i < S::kFragments; i++)
#pragma unroll
        for (uint32_t j = 0; j < S::kColumns; j++)
#pragma unroll
            for (uint32_t c = 0; c < 2; c++) {
                const uint32_t fragment = warp / S::kWarpsAcross * S::kFragments + i;
                const uint32_t row = (warp % S::kWarpsAcross * S::kColumns + j) * 8 + 2 * (lane % 4) + c;
                const uint32_t output = t.first_output + fragment * (kGated ? 8 : 16) + lane / 4;
                if (row >= t.rows) continue;
                uint16_t *out = a.out + (size_t)(t.first_row + row) * p.outputs;
                if (kGated) {
                    if (output < p.outputs) out[output] = (uint16_t)gb_round_bf16(gb_silu(sums[i][j][c]) * sums[i][j][2 + c]);
                } else {
                    if (output < p.outputs) out[output] = (uint16_t)gb_round_bf16(sums[i][j][c]);
                    if (output + 8 < p.outputs) out[output + 8] = (uint16_t)gb_round_bf16(sums[i][j][2 + c]);
                }
            }
}

template <bool kGated, uint32_t kRows> __global__ void __launch_bounds__(kThreads) experts_kernel(gb_k_experts_args a)
{
    using S = shape<kRows>;
    GB_DYN_SHARED(uint16_t, s_stages);
    const problem p = problem_of(a.pool, kGated, kOutputs<kGated>, kRows);
    const uint32_t steps = (p.k + kDepth - 1) / kDepth;
    walk w = {0, 0};
    tile t;
    for (uint32_t number = blockIdx.x; find_tile(t, w, number, a, p); number += gridDim.x) {
        float sums[S::kFragments][S::kColumns][4];
#pragma unroll
        for (uint32_t i = 0; i < S::kFragments; i++)
#pragma unroll
            for (uint32_t j = 0; j < S::kColumns; j++)
#pragma unroll
                for (uint32_t c = 0; c < 4; c++) sums[i][j][c] = 0;
        for (uint32_t step = 0; step < S::kStages - 1; step++) {
            if (step < steps) load_stage<kGated, kRows>(s_stages + step * S::kStageElements, t, p, a, step * kDepth);
            gb_cp_commit();
        }
        for (uint32_t step = 0; step < steps; step++) {
            gb_cp_wait<S::kStages - 2>();
            __syncthreads();    /* this step's stage is there, and everyone is done with the stage that is loaded next */
            const uint32_t next = step + S::kStages - 1;
            if (next < steps) load_stage<kGated, kRows>(s_stages + next % S::kStages * S::kStageElements, t, p, a, next * kDepth);
            gb_cp_commit();
            multiply_stage<kRows>(sums, s_stages + step % S::kStages * S::kStageElements);
        }
        __syncthreads();    /* the next tile's first stages overwrite this one's last */
        store_tile<kGated, kRows>(a, t, p, sums);
    }
}

template <bool kGated, uint32_t kRows> static void start(const gb_k_experts_args *a, cudaStream_t stream)
{
    const uint32_t grid = blocks_of_experts(a, problem_of(a->pool, kGated, kOutputs<kGated>, kRows), a->processors * 4);
    GB_LAUNCH((experts_kernel<kGated, kRows>), grid, kThreads, shape<kRows>::kBytes, stream, *a);
}

template <bool kGated> static int launch(const gb_k_experts_args *a, const char *name, cudaStream_t stream)
{
    const int status = check_experts(a, name);
    if (status != GB_OK || a->max_rows == 0) return status;
    if (a->max_rows <= a->pool.slots * 8) start<kGated, 8>(a, stream);
    else start<kGated, 64>(a, stream);
    return gb_k_launched(name);
}

extern "C" int gb_k_experts_gate_up(const gb_k_experts_args *a, cudaStream_t stream) { return launch<true>(a, "experts_gate_up", stream); }

extern "C" int gb_k_experts_down(const gb_k_experts_args *a, cudaStream_t stream) { return launch<false>(a, "experts_down", stream); }
