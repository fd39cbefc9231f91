#include "core/cpu/vector.h"

#include <stdlib.h>

#include "core/base/rng.h"
#include "core/cpu/bf16.h"
#include "core/cpu/kv.h"
#include "core/cpu/matmul.h"
#include "tests/check.h"

/* The implementations under test: those that run here, or the AVX-512 one over an emulation. */
#ifdef GB_TEST_EMULATED
#include "tests/cpu/emulated.h"

static const gb_vector *const *vectors(void)
{
    static const gb_vector *const list[] = {&emulated_vector_avx512f, NULL};
    return list;
}
#else
static const gb_vector *const *vectors(void)
{
    static const gb_vector *list[8];
    uint32_t n = 0;
    for (uint32_t i = 0; i < gb_matmul_rung_count; i++)
        if (gb_matmul_rungs[i]->supported()) list[n++] = gb_vector_for(gb_matmul_rungs[i]->name);
    list[n] = NULL;
    return list;
}
#endif

enum { POSITIONS = 640, BLOCKS = POSITIONS / GB_BLOCK_TOKENS, DIM_MAX = 128 };

/* One head's keys and values of a sequence, plain and in a cache whose other bytes are NaN. */
typedef struct sequence {
    gb_cpu_kv kv;
    uint32_t n;                  /* positions written */
    float *keys, *values;        /* [n][head_dim] as the cache holds them */
    float *queries;              /* [n][group][head_dim] */
    uint32_t group;
    int32_t blocks[BLOCKS];
} sequence;

static float random_float(gb_rng *rng) { return (float)(gb_rng_uniform(rng) * 4 - 2); }

static float as_stored(float x, bool f32) { return f32 ? x : gb_bf16_widen(gb_bf16_round(x)); }

static void sequence_init(sequence *s, uint32_t head_dim, uint32_t n, uint32_t group, bool f32)
{
    gb_rng rng;
    gb_rng_init(&rng, head_dim * 7919u + n);
    gb_cpu_kv_init(&s->kv, 1, 1, BLOCKS + 3, 1, head_dim, f32);
    s->kv.memory = aligned_alloc(64, (gb_cpu_kv_bytes(&s->kv) + 63) / 64 * 64);
    memset(s->kv.memory, 0xff, gb_cpu_kv_bytes(&s->kv));
    s->n = n;
    s->group = group;
    s->keys = malloc((size_t)n * head_dim * sizeof(float));
    s->values = malloc((size_t)n * head_dim * sizeof(float));
    s->queries = malloc((size_t)n * group * head_dim * sizeof(float));
    for (int32_t b = 0; b < BLOCKS; b++) s->blocks[b] = (b * 7 + 2) % BLOCKS + 3;
    for (size_t i = 0; i < (size_t)n * group * head_dim; i++) s->queries[i] = random_float(&rng) / 4;
    for (uint32_t p = 0; p < n; p++) {
        float *key = s->keys + (size_t)p * head_dim, *value = s->values + (size_t)p * head_dim;
        for (uint32_t d = 0; d < head_dim; d++) key[d] = random_float(&rng), value[d] = random_float(&rng);
        gb_cpu_kv_write(&s->kv, s->kv.memory + (size_t)s->blocks[p / GB_BLOCK_TOKENS] * s->kv.block_bytes, p % GB_BLOCK_TOKENS, key, value);
        for (uint32_t d = 0; d < head_dim; d++) key[d] = as_stored(key[d], f32), value[d] = as_stored(value[d], f32);
    }
}

static void sequence_deinit(sequence *s)
{
    free(s->kv.memory);
    free(s->keys);
    free(s->values);
    free(s->queries);
}

/* All heads of positions first .. first + rows - 1. out [rows * group][padded_dim] */
static void attend(const gb_vector *v, float *out, const sequence *s, uint32_t first, uint32_t rows, uint32_t window)
{
    const float *query[GB_ATTEND_QUERIES];
    uint32_t position[GB_ATTEND_QUERIES];
    void *scratch = aligned_alloc(64, gb_attend_scratch_bytes());
    memset(scratch, 0xff, gb_attend_scratch_bytes());
    for (uint32_t i = 0; i < rows * s->group; i++) {
        position[i] = first + i / s->group;
        query[i] = s->queries + ((size_t)first * s->group + i) * s->kv.head_dim;
    }
    v->attend(out, &(gb_attend){.n = rows * s->group, .query = query, .position = position, .window = window, .head_dim = s->kv.head_dim,
                                .padded_dim = s->kv.padded_dim, .f32 = s->kv.f32, .head = s->kv.memory, .block_bytes = s->kv.block_bytes,
                                .keys_bytes = s->kv.keys_bytes, .blocks = s->blocks}, scratch);
    free(scratch);
}

static void attend_in_double(double *out, const sequence *s, const float *query, uint32_t position, uint32_t window)
{
    uint32_t D = s->kv.head_dim, low = window && position + 1 > window ? position + 1 - window : 0;
    double weights[POSITIONS], highest = -1e300, sum = 0;
    for (uint32_t p = low; p <= position; p++) {
        weights[p] = 0;
        for (uint32_t d = 0; d < D; d++) weights[p] += (double)query[d] * s->keys[(size_t)p * D + d];
        highest = fmax(highest, weights[p]);
    }
    for (uint32_t d = 0; d < D; d++) out[d] = 0;
    for (uint32_t p = low; p <= position; p++) sum += weights[p] = exp(weights[p] - highest);
    for (uint32_t p = low; p <= position; p++)
        for (uint32_t d = 0; d < D; d++) out[d] += weights[p] / sum * s->values[(size_t)p * D + d];
}

static void check_queries(const gb_vector *v, const sequence *s, uint32_t first, uint32_t rows, uint32_t window)
{
    static float out[GB_ATTEND_QUERIES * DIM_MAX];
    double want[DIM_MAX], worst = 0;
    attend(v, out, s, first, rows, window);
    for (uint32_t i = 0; i < rows * s->group; i++) {
        attend_in_double(want, s, s->queries + ((size_t)first * s->group + i) * s->kv.head_dim, first + i / s->group, window);
        for (uint32_t d = 0; d < s->kv.head_dim; d++) worst = fmax(worst, fabs(out[(size_t)i * s->kv.padded_dim + d] - want[d]));
    }
    CHECK_NEAR(worst, 0, 2e-5);
    if (!(worst <= 2e-5)) printf("    ... %s, dim %u, positions %u + %u, window %u\n", v->name, s->kv.head_dim, first, rows, window);
}

static void attention_agrees_with_double_arithmetic(void)
{
    static const uint32_t dims[] = {16, 24, 64, 128}, windows[] = {0, 1, 24, 300}, groups[] = {1, 3, 4, 8};
    static const struct { uint32_t first, rows; } parts[] = {{0, 1}, {0, 8}, {15, 2}, {60, 8}, {250, 8}, {255, 1},
                                                                   {256, 1}, {505, 8}, {639, 1}};
    for (const gb_vector *const *v = vectors(); *v; v++)
        for (int i = 0; i < 4; i++)
            for (int f32 = 0; f32 < 2; f32++) {
                sequence s;
                sequence_init(&s, dims[i], POSITIONS, groups[i], f32);
                for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
                    for (int w = 0; w < 4; w++) check_queries(*v, &s, parts[p].first, parts[p].rows, windows[w]);
                sequence_deinit(&s);
            }
}

/* Positions after the last query's, in the same block and in the pair of the last, are NaN: nobody may use them. */
static void what_was_never_written_is_never_used(void)
{
    static const uint32_t lengths[] = {1, 2, 15, 16, 17, 255, 256, 257};
    for (const gb_vector *const *v = vectors(); *v; v++)
        for (int f32 = 0; f32 < 2; f32++)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                sequence s;
                sequence_init(&s, 32, lengths[i], 2, f32);
                check_queries(*v, &s, lengths[i] - 1, 1, 0);
                sequence_deinit(&s);
            }
}

static void a_query_has_the_same_bits_in_any_tile(void)
{
    enum { ROWS = 16, FIRST = 246 };    /* over the border of a chunk */
    static float together[GB_ATTEND_QUERIES * DIM_MAX], alone[GB_ATTEND_QUERIES * DIM_MAX];
    for (const gb_vector *const *v = vectors(); *v; v++)
        for (int f32 = 0; f32 < 2; f32++)
            for (uint32_t window = 0; window <= 100; window += 20) {
                sequence s;
                sequence_init(&s, 64, POSITIONS, 4, f32);
                attend(*v, together, &s, FIRST, ROWS, window);
                for (uint32_t rows = 1; rows <= ROWS; rows += 3)
                    for (uint32_t r = 0; r + rows <= ROWS; r += rows) {
                        attend(*v, alone, &s, FIRST + r, rows, window);
                        CHECK(memcmp(alone, together + (size_t)r * 4 * 64, (size_t)rows * 4 * 64 * sizeof(float)) == 0);
                    }
                sequence_deinit(&s);
            }
}

static void rms_norm_agrees_with_double_arithmetic(void)
{
    static const uint32_t sizes[] = {1, 15, 16, 17, 72, 1024};
    float x[1024], weight[1024], y[1024];
    gb_rng rng;
    gb_rng_init(&rng, 3);
    for (int i = 0; i < 1024; i++) x[i] = random_float(&rng), weight[i] = random_float(&rng);
    for (const gb_vector *const *v = vectors(); *v; v++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            double squares = 0;
            for (uint32_t i = 0; i < sizes[s]; i++) squares += (double)x[i] * x[i];
            (*v)->rms_norm(y, x, weight, sizes[s], 1e-5f);
            for (uint32_t i = 0; i < sizes[s]; i++) CHECK_NEAR(y[i], x[i] / sqrt(squares / sizes[s] + 1e-5) * weight[i], 2e-6);
        }
}

/* A quarter turn takes (a, b) to (-b, a). */
static void rotate_turns_the_first_half_against_the_second(void)
{
    float v[6] = {1, 2, 3, 4, 5, 6}, cos[3] = {1, 0, 0.6f}, sin[3] = {0, 1, 0.8f};
    static const double want[6] = {2, -10, 2 * (3 * 0.6 - 6 * 0.8), 8, 4, 2 * (6 * 0.6 + 3 * 0.8)};
    for (const gb_vector *const *it = vectors(); *it; it++) {
        float w[6];
        memcpy(w, v, sizeof w);
        (*it)->rotate(w, cos, sin, 3, 2);
        for (int i = 0; i < 6; i++) CHECK_NEAR(w[i], want[i], 2e-6);
    }
}

static void sums_of_rows_are_plain_sums(void)
{
    float x[37], y[37];
    for (const gb_vector *const *v = vectors(); *v; v++) {
        for (int i = 0; i < 37; i++) x[i] = (float)i, y[i] = 1;
        (*v)->add(y, x, 37);
        (*v)->add_scaled(y, x, 2, 37);
        for (int i = 0; i < 37; i++) CHECK_EQ(y[i], 1 + 3 * i);
    }
}

TESTS(TEST(attention_agrees_with_double_arithmetic), TEST(what_was_never_written_is_never_used),
      TEST(a_query_has_the_same_bits_in_any_tile),
      TEST(rms_norm_agrees_with_double_arithmetic), TEST(rotate_turns_the_first_half_against_the_second), TEST(sums_of_rows_are_plain_sums))
