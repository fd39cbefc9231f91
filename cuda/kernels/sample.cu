/* A token from a row of logits, by the rules of core/model/sampler.h: bans and penalties change single logits (adjust), then the row's
   best token, or temperature, top-k, min-p, top-p and a draw (sample).

   A token's key grows with its score and falls with its id, so the best tokens of a row are those whose key is at least some cut. Top-k
   and top-p look for the cut digit by digit: a histogram of a digit over the keys that share the digits found so far, weighted with 1
   or with probability, and the digit in which the sum from above reaches its target. No row is sorted.

   weight = exp((score - best) / temperature) has the host's bits (no fused operations) and is kept in fixed point, 44 bits behind the
   point: sums of integers do not depend on their order, so neither threads nor atomics can change a token. A row's sum of weights is at
   least 1; what fixed point cuts off is below vocab * 2^-44 of it. The token is the host's unless the draw or the nucleus falls nearer
   than that to a border between two tokens.

   A block of 1024 threads a row, which reads its row once for the best token, once more for each digit and twice for the draw: the row
   stays in the L2 cache. Sums of 64 bits in shared memory are two words and a carry, since the hardware adds up 32 bits there. */
#include <float.h>

#include <float.h>

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kThreads = 1024;
constexpr uint32_t kWarps = kThreads / 32;
constexpr uint32_t kIdBits = 19;                      /* of a key; 32 bits of score above */
constexpr uint32_t kDigitBits = 11, kDigits = 5;
constexpr uint32_t kBins = 1 << kDigitBits;
constexpr int kPoint = 44;

typedef unsigned long long wide;

static_assert(GB_K_VOCAB_MAX == 1 << kIdBits && kIdBits + 32 <= kDigitBits * kDigits, "a key has room for score and id");
static_assert(kIdBits + kPoint <= 63, "a sum of weights fits");
static_assert(kBins == 2 * kThreads, "a thread looks at two bins");

/* The row at hand and who may still be drawn. */
struct row_view {
    const float *scores;
    uint32_t vocab;
    float best, rate, min_p;
    wide cut;
};

__device__ __forceinline__ wide key_of(float score, uint32_t id)
{
    if (score == 0) score = 0;    /* -0 equals 0 */
    const uint32_t bits = __float_as_uint(score), ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (wide)ordered << kIdBits | (GB_K_VOCAB_MAX - 1 - id);
}

__device__ __forceinline__ wide weight_of(const row_view &row, float score)
{
    const float weight = gb_exp(__fmul_rn(__fsub_rn(score, row.best), row.rate));
    return weight >= row.min_p ? (wide)__fmul_rn(weight, (float)(1ull << kPoint)) : 0;
}

__device__ __forceinline__ wide sum_upto(wide x)
{
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const wide other = __shfl_up_sync(0xffffffffu, x, step);
        if (threadIdx.x % 32 >= (uint32_t)step) x += other;
    }
    return x;
}

/* --- the best token --- */

/* Its key; 0 when no token is possible, and when a score is NaN or +inf. */
__device__ __forceinline__ wide find_best(const float *scores, uint32_t vocab)
{
    GB_SHARED(wide, s_best, [kWarps]);
    wide best = 0;
    int bad = 0;
    for (uint32_t i = threadIdx.x; i < vocab; i += kThreads) {
        const float score = scores[i];
        bad |= !(score < INFINITY);    /* NaN, too */
        const wide key = score == -INFINITY ? 0 : key_of(score, i);
        best = key > best ? key : best;
    }
#pragma unroll
    for (int step = 16; step; step /= 2) {
        const wide other = __shfl_xor_sync(0xffffffffu, best, step);
        best = other > best ? other : best;
    }
    if (threadIdx.x % 32 == 0) s_best[threadIdx.x / 32] = best;
    bad = __syncthreads_or(bad);
    for (uint32_t w = 0; w < kWarps; w++) best = s_best[w] > best ? s_best[w] : best;
    return bad ? 0 : best;
}

/* --- the cut of top-k and top-p --- */

__device__ __forceinline__ void add_wide(uint32_t *low, uint32_t *high, wide x)
{
    const uint32_t old = atomicAdd(low, (uint32_t)x);
    const uint32_t carry = old > 0xffffffffu - (uint32_t)x;
    const uint32_t above = (uint32_t)(x >> 32) + carry;
    if (above) atomicAdd(high, above);
}

/* The key at which values from the best token downwards add up to the target, which they do reach. */
__device__ __forceinline__ wide find_cut(const row_view &row, bool by_weight, wide target)
{
    GB_SHARED(uint32_t, s_low, [kBins]);
    GB_SHARED(uint32_t, s_high, [kBins]);
    GB_SHARED(wide, s_warps, [kWarps]);
    GB_SHARED(wide, s_found, [2]);    /* the digit, and the sum above it */
    const uint32_t warp = threadIdx.x / 32, upper = kBins - 1 - 2 * threadIdx.x, lower = upper - 1;
    wide prefix = 0, above = 0;
    for (int shift = kDigitBits * (kDigits - 1); shift >= 0; shift -= kDigitBits) {
        s_low[upper] = s_low[lower] = s_high[upper] = s_high[lower] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < row.vocab; i += kThreads) {
            const float score = row.scores[i];
            const wide key = key_of(score, i);
            if (key < row.cut || key >> (shift + kDigitBits) != prefix) continue;
            const uint32_t digit = (uint32_t)(key >> shift) % kBins;
            add_wide(&s_low[digit], &s_high[digit], by_weight ? weight_of(row, score) : 1);
        }
        __syncthreads();    /* the histogram is whole */
        const wide first = (wide)s_high[upper] << 32 | s_low[upper], second = (wide)s_high[lower] << 32 | s_low[lower];
        const wide upto = sum_upto(first + second);
        if (threadIdx.x % 32 == 31) s_warps[warp] = upto;
        __syncthreads();
        wide before = above + upto - first - second;
        for (uint32_t w = 0; w < warp; w++) before += s_warps[w];
        if (before < target && before + first + second >= target) {
            const bool is_first = before + first >= target;
            s_found[0] = is_first ? upper : lower;
            s_found[1] = is_first ? before : before + first;
        }
        __syncthreads();    /* one thread has found the digit */
        prefix = prefix << kDigitBits | s_found[0];
        above = s_found[1];
    }
    return prefix;
}

/* --- sums in the order of ids, and the draw --- */

__device__ __forceinline__ wide weight_at(const row_view &row, uint32_t i)
{
    if (i >= row.vocab) return 0;
    const float score = row.scores[i];
    return key_of(score, i) >= row.cut ? weight_of(row, score) : 0;
}

/* Each warp has a run of ids: the sums of the runs before this warp's, of its own and of all. */
struct run_sums {
    uint32_t begin, end;
    wide before, own, all;
};

__device__ __forceinline__ run_sums sum_runs(const row_view &row)
{
    GB_SHARED(wide, s_runs, [kWarps]);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, length = (row.vocab + kThreads - 1) / kThreads * 32;
    run_sums runs = {warp * length, (warp + 1) * length, 0, 0, 0};
    for (uint32_t i = runs.begin + lane; i < runs.end; i += 32) runs.own += weight_at(row, i);
#pragma unroll
    for (int step = 16; step; step /= 2) runs.own += __shfl_xor_sync(0xffffffffu, runs.own, step);
    __syncthreads();    /* nobody reads the sums of an earlier call any more */
    if (lane == 0) s_runs[warp] = runs.own;
    __syncthreads();
    for (uint32_t w = 0; w < kWarps; w++) {
        runs.before += w < warp ? s_runs[w] : 0;
        runs.all += s_runs[w];
    }
    return runs;
}

/* The first token whose weight and those before it exceed a part of all. The warp that has it in its run says so. */
__device__ __forceinline__ void draw(int32_t *out, const row_view &row, wide uniform)
{
    const run_sums runs = sum_runs(row);
    const wide at = __umul64hi(uniform, runs.all);
    if (at < runs.before || at >= runs.before + runs.own) return;
    wide before = runs.before;
    for (uint32_t base = runs.begin; base < runs.end; base += 32) {
        const uint32_t i = base + threadIdx.x % 32;
        const wide upto = sum_upto(weight_at(row, i));
        const uint32_t beyond = __ballot_sync(0xffffffffu, before + upto > at);
        if (beyond) {
            if (threadIdx.x % 32 == 0) *out = (int32_t)(base + __ffs((int)beyond) - 1);
            return;
        }
        before += __shfl_sync(0xffffffffu, upto, 31);
    }
}

__global__ void __launch_bounds__(kThreads) sample_kernel(gb_k_sample_args a)
{
    const gb_k_choice choice = a.choices[blockIdx.x];
    const float *scores = a.logits + (size_t)blockIdx.x * a.vocab;
    int32_t *out = a.out + blockIdx.x;
    const wide best = find_best(scores, a.vocab);
    const uint32_t best_id = GB_K_VOCAB_MAX - 1 - (uint32_t)(best % GB_K_VOCAB_MAX);
    if (best == 0 || choice.rate == 0) {
        if (threadIdx.x == 0) *out = best ? (int32_t)best_id : -1;
        return;
    }
    row_view row = {scores, a.vocab, scores[best_id], choice.rate, choice.min_p, 0};
    if (choice.top_k && choice.top_k < a.vocab) row.cut = find_cut(row, false, choice.top_k);
    if (choice.top_p) {
        const wide all = sum_runs(row).all;
        row.cut = find_cut(row, true, __umul64hi(choice.top_p, all) + (choice.top_p * all != 0));
    }
    draw(out, row, choice.uniform);
}

/* --- single logits --- */

/* The host's steps. A logit that is no number stays and spoils its row; what a tiny repetition penalty makes infinite does not. */
__global__ void adjust_kernel(gb_k_adjust_args a)
{
    const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= a.n) return;
    const gb_k_edit edit = a.edits[at];
    if (edit.row >= a.rows || edit.token < 0 || (uint32_t)edit.token >= a.vocab) {
        gb_report(a.fault, GB_K_FAULT_TOKEN, edit.row, edit.token);
        return;
    }
    const gb_k_choice &choice = a.choices[edit.row];
    float *logit = a.logits + (size_t)edit.row * a.vocab + edit.token;
    float score = *logit;
    if (!(score < INFINITY)) return;
    const uint32_t generated = edit.what & GB_K_EDIT_GENERATED;
    score = score > 0 ? __fdiv_rn(score, choice.repetition_penalty) : __fmul_rn(score, choice.repetition_penalty);
    score = __fsub_rn(score, __fmul_rn(choice.frequency_penalty, (float)generated));
    if (generated) score = __fsub_rn(score, choice.presence_penalty);
    if (edit.what & GB_K_EDIT_BAN) score = -INFINITY;
    *logit = fminf(score, FLT_MAX);
}

extern "C" int gb_k_adjust(const gb_k_adjust_args *a, cudaStream_t stream)
{
    constexpr uint32_t kEdits = 128;    /* of a block */
    if (a->n == 0) return GB_OK;
    if (a->n > kGridMax) return gb_k_fail(GB_EINVAL, "adjust: %u changes of logits at once", a->n);
    GB_LAUNCH(adjust_kernel, gb_k_ceil(a->n, kEdits), kEdits, 0, stream, *a);
    return gb_k_launched("adjust");
}

extern "C" int gb_k_sample(const gb_k_sample_args *a, cudaStream_t stream)
{
    if (a->vocab == 0 || a->vocab > GB_K_VOCAB_MAX)
        return gb_k_fail(GB_EINVAL, "sample: a vocabulary of %u is not in 1..%d", a->vocab, GB_K_VOCAB_MAX);
    if (a->n == 0) return GB_OK;
    if (a->n > kGridMax) return gb_k_fail(GB_EINVAL, "sample: %u rows are more than a grid has", a->n);
    GB_LAUNCH(sample_kernel, a->n, kThreads, 0, stream, *a);
    return gb_k_launched("sample");
}
