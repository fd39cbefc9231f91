#include "core/cpu/matmul.h"

#include <stdlib.h>

#include "core/base/rng.h"
#include "core/cpu/bf16.h"
#include "tests/check.h"

/* The rungs under test: those of this build that run here, or the AVX-512 ones over an emulation. */
#ifdef GB_TEST_EMULATED
#include "tests/cpu/emulated.h"

static const gb_matmul_rung *const rungs[] = {&emulated_avx512f, &emulated_avx512_bf16};
enum { RUNGS = sizeof rungs / sizeof *rungs };

bool emulation_runs(void)
{
    return true;
}
#else
#define rungs gb_matmul_rungs
#define RUNGS gb_matmul_rung_count
#endif

/* A product over random numbers, with room for odd strides. */
typedef struct problem {
    uint32_t m, n, k;
    bool f32;
    float *x, *w;             /* [m][k], [n][k]; bfloat16 values unless f32 */
    gb_packed packed;
    void *memory;
} problem;

enum { ROWS_MAX = 33, PAD = 3 };

static void *zeroed(size_t bytes)
{
    size_t rounded = (bytes + 63) / 64 * 64 + 64;
    void *p = aligned_alloc(64, rounded);
    memset(p, 0, rounded);
    return p;
}

static float *random_floats(gb_rng *rng, size_t n, bool f32)
{
    float *v = zeroed(n * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        float x = (float)(gb_rng_uniform(rng) * 2 - 1);
        v[i] = f32 ? x : gb_bf16_widen(gb_bf16_round(x));
    }
    return v;
}

static problem problem_new(uint32_t m, uint32_t n, uint32_t k, bool f32)
{
    gb_rng rng;
    gb_rng_init(&rng, m * 1000003u + n * 1009u + k + f32);
    problem p = {.m = m, .n = n, .k = k, .f32 = f32};
    p.x = random_floats(&rng, (size_t)m * k, f32);
    p.w = random_floats(&rng, (size_t)n * k, f32);
    p.memory = zeroed(gb_packed_bytes(n, k, f32));
    gb_packed_init(&p.packed, n, k, f32, p.memory);
    return p;
}

static void problem_free(problem *p)
{
    free(p->x);
    free(p->w);
    free(p->memory);
}

/* Inputs as the rung wants them, rows `stride` apart, the gaps filled with NaN. */
static gb_inputs inputs_of(const gb_matmul_rung *rung, const problem *p, uint32_t stride)
{
    bool half = gb_matmul_takes_bf16(rung, &p->packed);
    size_t element = half ? sizeof(uint16_t) : sizeof(float);
    char *data = zeroed((size_t)p->m * stride * element);
    memset(data, 0xff, (size_t)p->m * stride * element);
    for (uint32_t i = 0; i < p->m; i++) {
        char *row = data + (size_t)i * stride * element;
        if (half) rung->convert(row, p->x + (size_t)i * p->k, p->k);
        else memcpy(row, p->x + (size_t)i * p->k, p->k * element);
    }
    return (gb_inputs){.data = data, .stride = stride};
}

static double exact(const problem *p, uint32_t row, uint32_t output, double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (uint32_t k = 0; k < p->k; k++) {
        double product = (double)p->x[(size_t)row * p->k + k] * (double)p->w[(size_t)output * p->k + k];
        sum += product;
        *magnitude += fabs(product);
    }
    return sum;
}

/* A float32 sum of k products is within k rounding errors of half an ulp each of the exact one; sums of random signs stay
   far below: 4 sqrt(k) of them. */
static double tolerance(uint32_t k, double magnitude)
{
    return 4 * sqrt((double)k) * 6e-8 * magnitude + 1e-30;
}

static const struct { uint32_t n, k; } shapes[] = {
    {1, 1}, {1, 2}, {63, 3}, {64, 64}, {65, 7}, {100, 130}, {192, 384}, {130, 257}, {64, 301}, {31, 390},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void multiply_all(const gb_matmul_rung *rung, const problem *p, const gb_inputs *x, float *y, size_t stride, uint32_t m)
{
    uint32_t half = p->packed.panels / 2;
    rung->multiply(y, stride, x, &p->packed, m, 0, half);
    rung->multiply(y, stride, x, &p->packed, m, half, p->packed.panels);
}

static void check_against_exact(const gb_matmul_rung *rung, problem *p)
{
    size_t stride = p->n + PAD;
    float *y = zeroed((p->m * stride + 1) * sizeof *y);
    for (size_t i = 0; i < p->m * stride; i++) y[i] = 12345;
    gb_packed_rows(&p->packed, p->w, 0, p->n);
    gb_inputs x = inputs_of(rung, p, p->k + PAD);
    multiply_all(rung, p, &x, y, stride, p->m);
    uint32_t wrong = 0, overwritten = 0;
    for (uint32_t i = 0; i < p->m; i++) {
        for (uint32_t o = 0; o < p->n; o++) {
            double magnitude, sum = exact(p, i, o, &magnitude);
            wrong += !(fabs(y[i * stride + o] - sum) <= tolerance(p->k, magnitude));
        }
        for (uint32_t o = p->n; o < stride; o++) overwritten += y[i * stride + o] != 12345;
    }
    if (wrong || overwritten) printf("%s m=%u n=%u k=%u f32=%d\n", rung->name, p->m, p->n, p->k, p->f32);
    CHECK_EQ(wrong, 0);
    CHECK_EQ(overwritten, 0);
    free((void *)x.data);
    free(y);
}

/* Runs check(rung, problem) on every rung of this CPU, shape and weight type. */
static void for_each_problem(uint32_t m, void (*check)(const gb_matmul_rung *, problem *))
{
    for (uint32_t r = 0; r < RUNGS; r++) {
        if (!rungs[r]->supported()) continue;
        for (uint32_t i = 0; i < 2 * SHAPES; i++) {
            problem p = problem_new(m, shapes[i / 2].n, shapes[i / 2].k, i % 2);
            check(rungs[r], &p);
            problem_free(&p);
        }
    }
}

static void every_rung_is_within_float32_rounding_of_the_exact_product(void)
{
    static const uint32_t rows[] = {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) for_each_problem(rows[i], check_against_exact);
}

/* Each row alone and in batches of every size that fits: the same bits. */
static void check_batches(const gb_matmul_rung *rung, problem *p)
{
    size_t stride = p->n;
    float *alone = zeroed(ROWS_MAX * stride * sizeof *alone), *batched = zeroed(ROWS_MAX * stride * sizeof *batched);
    gb_packed_rows(&p->packed, p->w, 0, p->n);
    gb_inputs x = inputs_of(rung, p, p->k);
    for (uint32_t i = 0; i < ROWS_MAX; i++) {
        gb_inputs row = {.data = x.data, .stride = x.stride, .index = &i};
        multiply_all(rung, p, &row, alone + i * stride, stride, 1);
    }
    for (uint32_t m = 1; m <= ROWS_MAX; m++) {
        memset(batched, 0, ROWS_MAX * stride * sizeof *batched);
        multiply_all(rung, p, &x, batched, stride, m);
        bool same = memcmp(alone, batched, m * stride * sizeof *alone) == 0;
        if (!same) printf("%s m=%u n=%u k=%u f32=%d\n", rung->name, m, p->n, p->k, p->f32);
        CHECK(same);
    }
    free((void *)x.data);
    free(alone);
    free(batched);
}

static void a_row_has_the_same_bits_alone_and_in_batches_of_up_to_33(void)
{
    for_each_problem(ROWS_MAX, check_batches);
}

/* The fused products are the plain ones followed by their formula, row by row in an order of the caller's choice. */
static void check_gate_up(const gb_matmul_rung *rung, problem *p)
{
    uint32_t f = p->n / 2, stride = f + PAD;
    if (f == 0) return;
    problem gated = *p;
    gated.n = 2 * f;
    gb_packed_init(&gated.packed, 2 * f, p->k, p->f32, p->memory);
    gb_packed_gated_rows(&gated.packed, p->w, false, 0, f);
    gb_packed_gated_rows(&gated.packed, p->w + (size_t)f * p->k, true, 0, f);
    uint32_t reversed[ROWS_MAX];
    for (uint32_t i = 0; i < p->m; i++) reversed[i] = p->m - 1 - i;
    gb_inputs x = inputs_of(rung, &gated, p->k);
    x.index = reversed;
    bool half = gb_matmul_takes_bf16(rung, &gated.packed);
    void *h = zeroed((size_t)p->m * stride * sizeof(float));
    rung->gate_up(h, stride, &x, &gated.packed, p->m, 0, gated.packed.panels);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < p->m; i++) {
        for (uint32_t o = 0; o < f; o++) {
            double gm, um, g = exact(p, reversed[i], o, &gm), u = exact(p, reversed[i], f + o, &um);
            double expected = g / (1 + exp(-g)) * u;
            double slack = (fabs(u) + 1) * tolerance(p->k, gm) * 2 + (fabs(g) + 1) * tolerance(p->k, um) + 1e-6 * fabs(expected);
            double got = half ? (double)gb_bf16_widen(((uint16_t *)h)[i * stride + o]) : (double)((float *)h)[i * stride + o];
            wrong += !(fabs(got - expected) <= slack + (half ? fabs(expected) / 256 : 0));
        }
        for (uint32_t o = f; o < stride; o++) {
            wrong += half ? ((uint16_t *)h)[i * stride + o] != 0 : ((float *)h)[i * stride + o] != 0;
        }
    }
    if (wrong) printf("%s m=%u n=%u k=%u f32=%d\n", rung->name, p->m, gated.n, p->k, p->f32);
    CHECK_EQ(wrong, 0);
    free((void *)x.data);
    free(h);
}

static void gate_up_is_silu_of_the_gate_times_up(void)
{
    for_each_problem(1, check_gate_up);
    for_each_problem(9, check_gate_up);
}

static void check_add(const gb_matmul_rung *rung, problem *p)
{
    size_t stride = p->n + PAD, wrong = 0;
    float *plain = zeroed(p->m * stride * sizeof *plain), *sum = zeroed(p->m * stride * sizeof *sum);
    for (size_t i = 0; i < p->m * stride; i++) sum[i] = (float)i;
    gb_packed_rows(&p->packed, p->w, 0, p->n);
    gb_inputs x = inputs_of(rung, p, p->k);
    multiply_all(rung, p, &x, plain, stride, p->m);
    rung->add(sum, stride, &x, &p->packed, p->m, 0, p->packed.panels);
    for (size_t i = 0; i < p->m * stride; i++) wrong += sum[i] != (float)i + plain[i];
    if (wrong) printf("%s m=%u n=%u k=%u f32=%d\n", rung->name, p->m, p->n, p->k, p->f32);
    CHECK_EQ(wrong, 0);
    free((void *)x.data);
    free(plain);
    free(sum);
}

static void add_adds_the_product_to_what_is_there(void)
{
    for_each_problem(1, check_add);
    for_each_problem(10, check_add);
}

static void silu_saturates_without_overflow_and_passes_nan_on(void)
{
    static const float gates[] = {-1e30f, -200, -88, -20, -1e-20f, 0, 1e-20f, 20, 88, 200, 1e30f};
    enum { GATES = sizeof gates / sizeof *gates };
    void *memory = zeroed(gb_packed_bytes(2 * GATES + 2, 1, true));
    gb_packed w;
    gb_packed_init(&w, 2 * GATES + 2, 1, true, memory);
    float ups[GATES + 1], rows[GATES + 1], h[GATES + 1], one = 1;
    for (uint32_t i = 0; i <= GATES; i++) ups[i] = 1, rows[i] = i < GATES ? gates[i] : NAN;
    gb_packed_gated_rows(&w, rows, false, 0, GATES + 1);
    gb_packed_gated_rows(&w, ups, true, 0, GATES + 1);
    for (uint32_t r = 0; r < RUNGS; r++) {
        if (!rungs[r]->supported()) continue;
        rungs[r]->gate_up(h, GATES + 1, &(gb_inputs){.data = &one, .stride = 1}, &w, 1, 0, 1);
        for (uint32_t i = 0; i < GATES; i++) {
            double expected = gates[i] / (1 + exp(-(double)gates[i]));
            CHECK_NEAR(h[i], expected, 1e-6 * fabs(expected) + (gates[i] < -80 ? 1e-6 : 0));
        }
        CHECK(isnan(h[GATES]));
    }
    free(memory);
}

static void packing_rows_in_any_order_gives_the_same_panels(void)
{
    problem p = problem_new(1, 130, 33, false);
    size_t bytes = gb_packed_bytes(p.n, p.k, false);
    gb_packed backwards;
    void *memory = zeroed(bytes);
    gb_packed_init(&backwards, p.n, p.k, false, memory);
    gb_packed_rows(&p.packed, p.w, 0, p.n);
    for (uint32_t row = p.n; row-- > 0;) gb_packed_rows(&backwards, p.w + (size_t)row * p.k, row, 1);
    CHECK_EQ(bytes, 3 * 64 * 34 * 2);
    CHECK(memcmp(p.memory, memory, bytes) == 0);
    free(memory);
    problem_free(&p);
}

static void rungs_are_chosen_by_name_and_auto_takes_one_that_runs(void)
{
    const gb_matmul_rung *rung;
    gb_error err = {0};
    CHECK_EQ(gb_matmul_choose(&rung, "auto", &err), 0);
    CHECK(rung && rung->supported());
    for (uint32_t i = 0; i < gb_matmul_rung_count; i++) {
        int status = gb_matmul_choose(&rung, gb_matmul_rungs[i]->name, &err);
        CHECK_EQ(status, gb_matmul_rungs[i]->supported() ? 0 : GB_EUNSUPPORTED);
        if (status == 0) CHECK(rung == gb_matmul_rungs[i]);
        else CHECK_CONTAINS(err.text, "scalar");
    }
    CHECK_EQ(gb_matmul_choose(&rung, "sse9", &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "\"sse9\"");
    CHECK_CONTAINS(err.text, "scalar");
    CHECK(rung == NULL);
}

TESTS(TEST(every_rung_is_within_float32_rounding_of_the_exact_product),
      TEST(a_row_has_the_same_bits_alone_and_in_batches_of_up_to_33),
      TEST(gate_up_is_silu_of_the_gate_times_up),
      TEST(add_adds_the_product_to_what_is_there),
      TEST(silu_saturates_without_overflow_and_passes_nan_on),
      TEST(packing_rows_in_any_order_gives_the_same_panels),
      TEST(rungs_are_chosen_by_name_and_auto_takes_one_that_runs))
