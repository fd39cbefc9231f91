/* The part of a vector file that is the same for all instruction sets: plain C that compilers turn into vectors. The file
   defines before it includes this

       TILE_ROWS    queries its largest tile takes
       products     static void (float *c, size_t c_stride, const float *const *a, const char *const *b, size_t step,
                    uint32_t k, uint32_t k_block, uint32_t rows, bool f32):
                    c[rows][16] += sum over i < k of a[row][i] * b[i / k_block][i % k_block][16], in ascending order of i;
                    step = bytes from one row of b to the next (bfloat16: from one pair of rows to the next). */
#include <math.h>
#include <string.h>

#include "core/base/exp.h"
#include "core/cpu/vector.h"
#include "core/flow/ids.h"

enum { SUMS = 16, COLUMNS = 16, CHUNK = GB_ATTEND_CHUNK, CHUNK_BLOCKS = CHUNK / GB_BLOCK_TOKENS };

typedef struct attend_scratch {
    float scores[TILE_ROWS][CHUNK];
    float highest[GB_ATTEND_QUERIES], sum[GB_ATTEND_QUERIES];
} attend_scratch;

_Static_assert(sizeof(attend_scratch) <= GB_ATTEND_SCRATCH_BYTES, "scratch of attention");
_Static_assert(CHUNK % SUMS == 0 && (int)GB_BLOCK_TOKENS == (int)COLUMNS, "a block is one column panel of scores");

static float fold_sum(const float s[SUMS])
{
    float t[SUMS / 2];
    for (int j = 0; j < SUMS / 2; j++) t[j] = s[j] + s[j + SUMS / 2];
    for (int n = SUMS / 4; n; n /= 2)
        for (int j = 0; j < n; j++) t[j] += t[j + n];
    return t[0];
}

static float fold_max(const float s[SUMS])
{
    float highest = s[0];
    for (int j = 1; j < SUMS; j++) highest = s[j] > highest ? s[j] : highest;
    return highest;
}

static float sum_of_squares(const float *x, uint32_t n)
{
    float s[SUMS] = {0};
    uint32_t whole = n - n % SUMS;
    for (uint32_t i = 0; i < whole; i += SUMS)
        for (int j = 0; j < SUMS; j++) s[j] += x[i + j] * x[i + j];
    for (uint32_t i = whole; i < n; i++) s[i - whole] += x[i] * x[i];
    return fold_sum(s);
}

static void rms_norm(float *y, const float *x, const float *weight, uint32_t n, float epsilon)
{
    float scale = 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + epsilon);
    for (uint32_t i = 0; i < n; i++) y[i] = x[i] * scale * weight[i];
}

static void rotate(float *restrict v, const float *restrict cos, const float *restrict sin, uint32_t half, float scale)
{
    float *restrict low = v, *restrict high = v + half;
    for (uint32_t i = 0; i < half; i++) {
        float a = low[i], b = high[i];
        low[i] = (a * cos[i] - b * sin[i]) * scale;
        high[i] = (b * cos[i] + a * sin[i]) * scale;
    }
}

static void add(float *restrict y, const float *restrict x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) y[i] += x[i];
}

static void add_scaled(float *restrict y, const float *restrict x, float scale, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) y[i] += scale * x[i];
}

/* --- attention: softmax over one chunk of positions after the other, rescaling what was summed before ---

   A query's result is the same whatever tile it is in: a chunk starts at a multiple of CHUNK, columns the query does not see
   weigh exactly 0, and adding those changes nothing. */

static uint32_t first_visible(const gb_attend *job, uint32_t i)
{
    uint32_t seen = job->position[i] + 1;
    return job->window && seen > job->window ? seen - job->window : 0;
}

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* scores[rows][n rounded up to blocks] of queries first .. first + rows - 1 and positions chunk .. chunk + n - 1 */
static void score_tile(attend_scratch *s, const gb_attend *job, uint32_t first, uint32_t rows, uint32_t chunk, uint32_t n)
{
    size_t step = COLUMNS * sizeof(float);    /* a row of float32, a pair of rows of bfloat16 */
    for (uint32_t at = 0; at < n; at += GB_BLOCK_TOKENS) {
        const char *keys = job->head + (size_t)job->blocks[(chunk + at) / GB_BLOCK_TOKENS] * job->block_bytes;
        for (uint32_t r = 0; r < rows; r++) memset(&s->scores[r][at], 0, COLUMNS * sizeof(float));
        products(&s->scores[0][at], CHUNK, job->query + first, &keys, step, job->head_dim, job->head_dim, rows, job->f32);
    }
}

/* Hides what the query must not see; then scores become weights relative to the highest score so far. Returns what earlier sums
   are to be multiplied with. */
static float soften(float *scores, uint32_t padded, uint32_t low, uint32_t high, float *highest, float *sum)
{
    for (uint32_t i = 0; i < low; i++) scores[i] = -INFINITY;
    for (uint32_t i = high; i < padded; i++) scores[i] = -INFINITY;
    float top[SUMS];
    for (int j = 0; j < SUMS; j++) top[j] = *highest;
    for (uint32_t i = 0; i < padded; i += SUMS)
        for (int j = 0; j < SUMS; j++) top[j] = scores[i + j] > top[j] ? scores[i + j] : top[j];
    float now = fold_max(top);
    float base = now > -INFINITY ? now : 0.0f;    /* nothing seen yet: all weights are 0 */
    float part[SUMS] = {0};
    for (uint32_t i = 0; i < padded; i += SUMS)
        for (int j = 0; j < SUMS; j++) {
            float weight = gb_exp_f32(scores[i + j] - base);
            scores[i + j] = weight;
            part[j] += weight;
        }
    float rescale = gb_exp_f32(*highest - base);
    *sum = *sum * rescale + fold_sum(part);
    *highest = now;
    return rescale;
}

/* out[rows][padded_dim] += weights . values */
static void value_tile(float *out, attend_scratch *s, const gb_attend *job, uint32_t rows, uint32_t chunk, uint32_t n)
{
    const float *weights[TILE_ROWS];
    const char *values[CHUNK_BLOCKS];
    uint32_t n_blocks = (n + GB_BLOCK_TOKENS - 1) / GB_BLOCK_TOKENS;
    size_t step = job->padded_dim * sizeof(float);
    const int32_t *blocks = job->blocks + chunk / GB_BLOCK_TOKENS;
    for (uint32_t r = 0; r < rows; r++) weights[r] = s->scores[r];
    for (uint32_t d = 0; d < job->padded_dim; d += COLUMNS) {
        for (uint32_t b = 0; b < n_blocks; b++)
            values[b] = job->head + (size_t)blocks[b] * job->block_bytes + job->keys_bytes + d * sizeof(float);
        products(out + d, job->padded_dim, weights, values, step, n, GB_BLOCK_TOKENS, rows, job->f32);
    }
}

static void attend_tile(float *out, attend_scratch *s, const gb_attend *job, uint32_t first, uint32_t rows, uint32_t chunk)
{
    uint32_t last = job->position[first + rows - 1];    /* the furthest that any of them sees */
    if (chunk > last || chunk + CHUNK <= first_visible(job, first)) return;
    uint32_t n = min_u32(CHUNK, last + 1 - chunk);
    uint32_t padded = (n + COLUMNS - 1) / COLUMNS * COLUMNS;
    score_tile(s, job, first, rows, chunk, n);
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t i = first + r, low = first_visible(job, i), end = job->position[i] + 1;
        float *sums = out + (size_t)i * job->padded_dim;
        float rescale = soften(s->scores[r], padded, low > chunk ? min_u32(low - chunk, padded) : 0,
                               end > chunk ? min_u32(end - chunk, padded) : 0, &s->highest[i], &s->sum[i]);
        for (uint32_t d = 0; d < job->padded_dim; d++) sums[d] *= rescale;
    }
    value_tile(out + (size_t)first * job->padded_dim, s, job, rows, chunk, n);
}

static void attend(float *out, const gb_attend *job, void *scratch)
{
    attend_scratch *s = scratch;
    uint32_t tiles = (job->n + TILE_ROWS - 1) / TILE_ROWS;
    memset(out, 0, (size_t)job->n * job->padded_dim * sizeof *out);
    for (uint32_t i = 0; i < job->n; i++) s->highest[i] = -INFINITY, s->sum[i] = 0;
    for (uint32_t chunk = first_visible(job, 0) / CHUNK * CHUNK; chunk <= job->position[job->n - 1]; chunk += CHUNK)
        for (uint32_t t = 0; t < tiles; t++) {
            uint32_t first = job->n * t / tiles, next = job->n * (t + 1) / tiles;    /* tiles of nearly one size */
            attend_tile(out, s, job, first, next - first, chunk);
        }
    for (uint32_t i = 0; i < job->n; i++)
        for (uint32_t d = 0; d < job->padded_dim; d++) out[(size_t)i * job->padded_dim + d] /= s->sum[i];
}
