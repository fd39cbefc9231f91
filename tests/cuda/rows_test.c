/* embed, compact, norm, attention_prepare: what looks at one row at a time. */
#include "tests/cuda/device.h"

static void embedding_widens_rows_and_leaves_padding_zero(void)
{
    enum { HIDDEN = 2072, VOCAB = 5, N = 4 };    /* a block goes over 2048 at once */
    static uint16_t table[VOCAB * HIDDEN];
    static float x[N * HIDDEN];
    const int32_t tokens[N] = {4, -1, 0, 4};
    gb_rng rng;
    fresh_rng(&rng, 1);
    fill_bf16(table, VOCAB * HIDDEN, 1, &rng);
    gb_k_embed_args a = {.x = device_new(N * HIDDEN, sizeof *x), .table = DEVICE_COPY(table), .tokens = DEVICE_COPY(tokens), .fault = fault_new(),
                         .n = N, .hidden = HIDDEN, .vocab = VOCAB};
    CHECK_EQ(gb_k_embed(&a, 0), GB_OK);
    device_read(x, a.x, N * HIDDEN, sizeof *x);
    for (int r = 0; r < N; r++)
        for (int i = 0; i < HIDDEN; i++)
            if (x[r * HIDDEN + i] != (tokens[r] < 0 ? 0 : gb_bf16_to_f32(table[tokens[r] * HIDDEN + i]))) CHECK_EQ(r, -1);
    CHECK_EQ(fault_read(a.fault).kind, GB_K_FAULT_NONE);
    device_free_all();
}

static void a_token_outside_of_the_vocabulary_is_a_fault(void)
{
    const int32_t tokens[] = {1, 7};
    gb_k_embed_args a = {.x = device_new(16, 4), .table = device_new(2 * 8, 2), .tokens = DEVICE_COPY(tokens), .fault = fault_new(), .n = 2,
                         .hidden = 8, .vocab = 2};
    CHECK_EQ(gb_k_embed(&a, 0), GB_OK);
    gb_k_fault fault = fault_read(a.fault);
    CHECK_EQ(fault.kind, GB_K_FAULT_TOKEN);
    CHECK_EQ(fault.row, 1);
    CHECK_EQ(fault.value, 7);
    device_free_all();
}

static void compaction_moves_rows_together(void)
{
    enum { HIDDEN = 2068 };
    static float x[4 * HIDDEN], out[2 * HIDDEN];
    const int32_t from[] = {1, 3};
    for (int i = 0; i < 4 * HIDDEN; i++) x[i] = (float)i;
    gb_k_compact_args a = {.out = device_new(2 * HIDDEN, 4), .x = DEVICE_COPY(x), .from = DEVICE_COPY(from), .n = 2, .hidden = HIDDEN};
    CHECK_EQ(gb_k_compact(&a, 0), GB_OK);
    device_read(out, a.out, 2 * HIDDEN, sizeof *out);
    CHECK(memcmp(out, x + HIDDEN, HIDDEN * sizeof *x) == 0 && memcmp(out + HIDDEN, x + 3 * HIDDEN, HIDDEN * sizeof *x) == 0);
    device_free_all();
}

enum { NORM_MAX = 2056, NORM_ROWS = 5 };    /* a block goes over 2048 at once */

/* h, h32 and x of n rows picked by index; residual or not */
static void run_norm(uint32_t hidden, const int32_t *index, uint32_t n, bool residual)
{
    static float x[NORM_ROWS * NORM_MAX], add[NORM_ROWS * NORM_MAX], weight[NORM_MAX], h32[NORM_ROWS * NORM_MAX];
    static float after[NORM_ROWS * NORM_MAX];
    static uint16_t h[NORM_ROWS * NORM_MAX];
    gb_rng rng;
    fresh_rng(&rng, 2);
    fill_f32(x, NORM_ROWS * NORM_MAX, 3, &rng);
    fill_f32(add, NORM_ROWS * NORM_MAX, 3, &rng);
    fill_f32(weight, NORM_MAX, 2, &rng);
    gb_k_norm_args a = {
        .h = device_new(n * hidden, 2), .h32 = device_new(n * hidden, 4), .x = device_copy(x, NORM_ROWS * hidden, 4),
        .residual = residual ? device_copy(add, NORM_ROWS * hidden, 4) : NULL,
        .weight = device_copy(weight, hidden, 4), .index = index ? device_copy(index, n, 4) : NULL, .n = n, .hidden = hidden, .epsilon = 1e-6f,
    };
    CHECK_EQ(gb_k_norm(&a, 0), GB_OK);
    device_read(h, a.h, n * hidden, 2);
    device_read(h32, a.h32, n * hidden, 4);
    device_read(after, a.x, NORM_ROWS * hidden, 4);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = index ? (uint32_t)index[i] : i;
        double squares = 0, v[NORM_MAX];
        for (uint32_t d = 0; d < hidden; d++) {
            float sum = x[row * hidden + d] + (residual ? add[row * hidden + d] : 0);
            CHECK_EQ(after[row * hidden + d] == sum, 1);
            v[d] = sum;
            squares += v[d] * v[d];
        }
        for (uint32_t d = 0; d < hidden; d++) {
            double want = v[d] / sqrt(squares / hidden + 1e-6) * weight[d];
            CHECK_NEAR(h32[i * hidden + d], want, 1e-5);
            CHECK_EQ(h[i * hidden + d], gb_f32_to_bf16(h32[i * hidden + d]));
        }
    }
    device_free_all();
}

static void norm_agrees_with_float64(void)
{
    run_norm(NORM_MAX, NULL, NORM_ROWS, false);
    run_norm(200, NULL, NORM_ROWS, false);
    run_norm(4, NULL, 1, false);
}

static void norm_adds_a_residual_first(void) { run_norm(NORM_MAX, NULL, NORM_ROWS, true); }
static void norm_takes_the_rows_of_an_index(void) { run_norm(200, (const int32_t[]){4, 0}, 2, false); }

/* --- attention_prepare --- */

enum { HEADS = 4, KV_HEADS = 2, DIM = 96, ALL = HEADS + 2 * KV_HEADS, BLOCKS = 5, POSITIONS = 40, ROWS = 3 };

static void expect_head(const uint16_t *got, const float *v, const float *bias, const float *weight, const float *angles)
{
    double x[DIM], squares = 0;
    for (int i = 0; i < DIM; i++) {
        x[i] = (double)v[i] + bias[i];
        squares += x[i] * x[i];
    }
    double scale = weight ? 1 / sqrt(squares / DIM + 1e-6) : 1;
    for (int i = 0; i < DIM; i++) x[i] *= scale * (weight ? weight[i] : 1);
    for (int i = 0; i < DIM / 2; i++) {
        double low = x[i], high = x[DIM / 2 + i], c = weight ? angles[2 * i] : 1, s = weight ? angles[2 * i + 1] : 0;
        CHECK_NEAR(gb_bf16_to_f32(got[i]), low * c - high * s, 0.02);
        CHECK_NEAR(gb_bf16_to_f32(got[DIM / 2 + i]), high * c + low * s, 0.02);
    }
}

static void preparation_norms_rotates_and_fills_the_kv_cache(void)
{
    static float qkv[ROWS * ALL * DIM], bias[ALL * DIM], q_norm[DIM], k_norm[DIM], angles[POSITIONS * DIM];
    static uint16_t q[ROWS * HEADS * DIM], kv[2 * BLOCKS * 2 * KV_HEADS * GB_K_BLOCK_TOKENS * DIM];
    const int32_t tokens[] = {1, -1, 1}, positions[] = {39, 0, 3}, engines[] = {0, 0, 1}, first_block[] = {0, 3, 3}, blocks[] = {1, 2, 4, 3};
    gb_rng rng;
    fresh_rng(&rng, 3);
    fill_f32(qkv, ROWS * ALL * DIM, 1, &rng);
    fill_f32(bias, ALL * DIM, 0.5f, &rng);
    fill_f32(q_norm, DIM, 1.5f, &rng);
    fill_f32(k_norm, DIM, 1.5f, &rng);
    fill_f32(angles, POSITIONS * DIM, 1, &rng);
    gb_k_prepare_args a = {
        .q = device_new(ROWS * HEADS * DIM, 2), .kv = {device_new(sizeof kv / 2, 2), 2, BLOCKS, KV_HEADS, DIM}, .qkv = DEVICE_COPY(qkv),
        .bias = DEVICE_COPY(bias), .q_norm = DEVICE_COPY(q_norm), .k_norm = DEVICE_COPY(k_norm), .angles = DEVICE_COPY(angles),
        .rows = {ROWS, DEVICE_COPY(tokens), DEVICE_COPY(positions), DEVICE_COPY(engines), DEVICE_COPY(first_block), DEVICE_COPY(blocks)},
        .fault = fault_new(), .heads = HEADS, .positions = POSITIONS, .epsilon = 1e-6f,
    };
    CHECK_EQ(gb_k_attention_prepare(&a, 0), GB_OK);
    CHECK_EQ(fault_read(a.fault).kind, GB_K_FAULT_NONE);
    device_read(q, a.q, ROWS * HEADS * DIM, 2);
    device_read(kv, a.kv.memory, sizeof kv / 2, 2);
    uint32_t written = 0;
    for (int row = 0; row < ROWS; row += 2) {
        const float *from = qkv + row * ALL * DIM, *turn = angles + positions[row] * DIM;
        int block = blocks[first_block[row] + positions[row] / GB_K_BLOCK_TOKENS], offset = positions[row] % GB_K_BLOCK_TOKENS;
        for (int head = 0; head < HEADS; head++)
            expect_head(q + (row * HEADS + head) * DIM, from + head * DIM, bias + head * DIM, q_norm, turn);
        for (int head = 0; head < 2 * KV_HEADS; head++) {
            const uint16_t *got = kv + (((engines[row] * BLOCKS + block) * 2 * KV_HEADS + head) * GB_K_BLOCK_TOKENS + offset) * DIM;
            expect_head(got, from + (HEADS + head) * DIM, bias + (HEADS + head) * DIM, head < KV_HEADS ? k_norm : NULL, turn);
        }
    }
    for (size_t i = 0; i < sizeof kv / sizeof *kv; i++) written += kv[i] != 0xffff;
    CHECK_EQ(written, 2 * 2 * KV_HEADS * DIM);
    for (int i = 0; i < HEADS * DIM; i++) CHECK_EQ(q[HEADS * DIM + i], 0xffff);    /* padding */
    device_free_all();
}

/* Row 1 has what must not be there; row 0 is none the worse and row 1 writes nothing. */
static void check_lost_row(int32_t position, int32_t block, gb_k_fault_kind kind, int32_t value)
{
    static float qkv[2 * 3 * 16], norm[16], angles[POSITIONS * 16];
    uint16_t kv[2 * 2 * GB_K_BLOCK_TOKENS * 16];
    uint32_t written = 0;
    const int32_t tokens[] = {1, 1}, engines[] = {0, 0}, first_block[] = {0, 0};
    int32_t positions[] = {3, position}, blocks[] = {0, block, 0};
    gb_k_prepare_args a = {
        .q = device_new(2 * 16, 2), .kv = {device_new(sizeof kv / 2, 2), 1, 2, 1, 16}, .qkv = DEVICE_COPY(qkv), .q_norm = DEVICE_COPY(norm),
        .k_norm = DEVICE_COPY(norm), .angles = DEVICE_COPY(angles),
        .rows = {2, DEVICE_COPY(tokens), DEVICE_COPY(positions), DEVICE_COPY(engines), DEVICE_COPY(first_block), DEVICE_COPY(blocks)},
        .fault = fault_new(), .heads = 1, .positions = POSITIONS, .epsilon = 1e-6f,
    };
    CHECK_EQ(gb_k_attention_prepare(&a, 0), GB_OK);
    device_read(kv, a.kv.memory, sizeof kv / 2, 2);
    for (size_t i = 0; i < sizeof kv / 2; i++) written += kv[i] != 0xffff;
    CHECK_EQ(written, 2 * 16);
    gb_k_fault fault = fault_read(a.fault);
    CHECK_EQ(fault.kind, kind);
    CHECK_EQ(fault.row, 1);
    CHECK_EQ(fault.value, value);
    device_free_all();
}

static void positions_and_blocks_that_do_not_exist_are_faults(void)
{
    check_lost_row(POSITIONS, 1, GB_K_FAULT_POSITION, POSITIONS);
    check_lost_row(-5, 1, GB_K_FAULT_POSITION, -5);
    check_lost_row(20, 2, GB_K_FAULT_BLOCK, 2);
    check_lost_row(20, -1, GB_K_FAULT_BLOCK, -1);
}

static void shapes_that_do_not_fit_are_refused_with_a_sentence(void)
{
    gb_k_embed_args embed = {.n = 1, .hidden = 12};
    CHECK_EQ(gb_k_embed(&embed, 0), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "12 is no multiple of 8");
    gb_k_norm_args norm = {.n = 1};
    CHECK_EQ(gb_k_norm(&norm, 0), GB_EINVAL);
    gb_k_compact_args compact = {.n = 1, .hidden = 6};
    CHECK_EQ(gb_k_compact(&compact, 0), GB_EINVAL);
    gb_k_prepare_args prepare = {.kv = {NULL, 1, 1, 1, 130}, .rows = {.n = 1}, .heads = 1};
    CHECK_EQ(gb_k_attention_prepare(&prepare, 0), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "130 elements");
}

static void no_rows_are_no_work(void)
{
    gb_k_embed_args embed = {.hidden = 8};
    gb_k_norm_args norm = {.hidden = 8};
    gb_k_compact_args compact = {.hidden = 8, .out = (float *)16};
    gb_k_prepare_args prepare = {.kv = {NULL, 1, 1, 1, 64}, .heads = 1};
    CHECK_EQ(gb_k_embed(&embed, 0), GB_OK);
    CHECK_EQ(gb_k_norm(&norm, 0), GB_OK);
    CHECK_EQ(gb_k_compact(&compact, 0), GB_OK);
    CHECK_EQ(gb_k_attention_prepare(&prepare, 0), GB_OK);
}

TESTS(TEST(embedding_widens_rows_and_leaves_padding_zero), TEST(a_token_outside_of_the_vocabulary_is_a_fault), TEST(compaction_moves_rows_together),
      TEST(norm_agrees_with_float64), TEST(norm_adds_a_residual_first), TEST(norm_takes_the_rows_of_an_index),
      TEST(preparation_norms_rotates_and_fills_the_kv_cache), TEST(positions_and_blocks_that_do_not_exist_are_faults),
      TEST(shapes_that_do_not_fit_are_refused_with_a_sentence), TEST(no_rows_are_no_work))
