/* The truth: what an independent implementation computes (tests/golden/README.md), for every checkpoint there and every rung
   that runs here, whole, in chunks and token by token. */
#include <math.h>
#include <stdlib.h>

#include "tests/check.h"
#include "tests/forward/harness.h"

/* The rungs under test: those that run here, or the AVX-512 ones over an emulation. */
#ifdef GB_TEST_EMULATED
#include "tests/cpu/emulated.h"

bool emulation_runs(void) { return true; }

static const gb_matmul_rung *const *rungs(void)
{
    static const gb_matmul_rung *const list[] = {&emulated_avx512f, &emulated_avx512_bf16, NULL};
    return list;
}
#else
static const gb_matmul_rung *const *rungs(void) { return harness_rungs(); }
#endif

static const char *const cases[] = {
    "plain", "tied", "no-renorm", "dense-mixed", "wide-heads", "all-kv-heads", "attention-bias", "odd-sizes", "top-1", "all-experts",
    "many-experts", "rope-linear", "rope-yarn", "rope-llama3", "sliding-window", "large-theta", "f16-sharded", "f32", "new-keys", "bundled",
};
enum { CASES = sizeof cases / sizeof *cases };

/* Every case with every rung. */
typedef struct trial {
    const char *name;
    harness h;
    golden *g;
    uint32_t prompts;
} trial;

static void for_each_trial(bool f32, void (*body)(trial *t))
{
    for (const gb_matmul_rung *const *rung = rungs(); *rung; rung++)
        for (int i = 0; i < CASES; i++) {
            char dir[128];
            static trial t;
            snprintf(dir, sizeof dir, "tests/golden/%s", cases[i]);
            t.name = cases[i];
            t.g = golden_open(dir);
            t.prompts = golden_prompts(t.g);
            harness_open(&t.h, &(harness_options){.directory = strcmp(cases[i], "bundled") ? dir : "examples/models/tiny-moe",
                                                  .rung = *rung, .f32 = f32, .tap = true});
            int before = check_failures;
            body(&t);
            if (check_failures != before) printf("    ... in %s with %s\n", t.name, (*rung)->name);
            harness_close(&t.h);
            golden_close(t.g);
        }
}

/* --- float32 --- */

static void check_logits(const trial *t, uint32_t prompt, uint32_t T)
{
    uint32_t dims[3];
    const float *want = golden_find(t->g, prompt, "logits", dims);
    const float *have = t->h.logits + (size_t)(T - dims[0]) * dims[1];    /* some have only the last position */
    double worst = 0;
    for (size_t i = 0; i < (size_t)dims[0] * dims[1]; i++) worst = fmax(worst, fabs((double)have[i] - want[i]));
    CHECK_EQ(dims[1], t->h.config.vocab);
    CHECK_NEAR(worst, 0, 1e-3);
}

static void check_hidden(const trial *t, uint32_t prompt)
{
    uint32_t dims[3];
    const float *want = golden_find(t->g, prompt, "hidden", dims);
    CHECK(dims[0] == t->h.config.layers + 1 && dims[2] == t->h.config.hidden);
    for (uint32_t depth = 0; depth < dims[0]; depth++) {
        const float *have = t->h.hidden + (size_t)depth * HARNESS_POSITIONS * dims[2], *wanted = want + (size_t)depth * dims[1] * dims[2];
        double worst = 0, largest = 0;
        for (size_t i = 0; i < (size_t)dims[1] * dims[2]; i++) {
            worst = fmax(worst, fabs((double)have[i] - wanted[i]));
            largest = fmax(largest, fabs((double)wanted[i]));
        }
        CHECK_NEAR(worst / largest, 0, 1e-4);
    }
}

static void check_routes(const trial *t, uint32_t prompt)
{
    uint32_t dims[3];
    const int32_t *experts = golden_find(t->g, prompt, "experts", dims);
    const float *weights = golden_find(t->g, prompt, "weights", dims);
    CHECK(dims[0] == t->h.config.moe_layers && dims[2] == t->h.config.experts_per_token);
    size_t n = (size_t)dims[1] * dims[2], other = 0;
    double worst = 0;
    for (uint32_t layer = 0; layer < dims[0]; layer++)
        for (size_t i = 0; i < n; i++) {
            size_t at = (size_t)layer * HARNESS_POSITIONS * dims[2] + i;
            other += t->h.experts[at] != experts[layer * n + i];
            worst = fmax(worst, fabs((double)t->h.weights[at] - weights[layer * n + i]));
        }
    CHECK_EQ(other, 0);
    CHECK_NEAR(worst, 0, 1e-5);
}

static void check_prompts(trial *t, uint32_t chunk)
{
    for (uint32_t p = 0; p < t->prompts; p++) {
        uint32_t dims[3];
        const int32_t *ids = golden_find(t->g, p, "input_ids", dims);
        harness_feed(&t->h, ids, dims[0], chunk, &harness_greedy);
        check_logits(t, p, dims[0]);
        check_hidden(t, p);
        check_routes(t, p);
    }
}

static void whole(trial *t) { check_prompts(t, HARNESS_POSITIONS); }
static void in_chunks(trial *t) { check_prompts(t, 13); }
static void token_by_token(trial *t) { check_prompts(t, 1); }

static void float32_agrees_with_the_reference_whole(void) { for_each_trial(true, whole); }
static void float32_agrees_with_the_reference_in_chunks(void) { for_each_trial(true, in_chunks); }
static void float32_agrees_with_the_reference_token_by_token(void) { for_each_trial(true, token_by_token); }

/* Equal tokens until the first step where the reference itself nearly wavered. */
static void continue_greedily(trial *t)
{
    for (uint32_t p = 0; p < t->prompts; p++) {
        uint32_t dims[3], n, more;
        int32_t tokens[HARNESS_POSITIONS];
        const int32_t *ids = golden_find(t->g, p, "input_ids", dims);
        uint32_t n_prompt = n = dims[0];
        const int32_t *greedy = golden_find(t->g, p, "greedy", dims);
        const float *margin = golden_find(t->g, p, "margin", dims);
        memcpy(tokens, ids, n * sizeof *ids);
        int32_t next = harness_feed(&t->h, tokens, n, 16, &harness_greedy);
        for (more = 0; more < dims[0] && margin[more] >= 1e-3; more++) {
            CHECK_EQ(next, greedy[more]);
            if (next != greedy[more]) break;
            tokens[n++] = next;
            harness_clear(&t->h);
            harness_add(&t->h, 0, 0, tokens, n, n_prompt, n - 1, 1, &harness_greedy);
            CHECK_EQ(harness_run(&t->h), GB_OK);
            next = t->h.result.sampled[0][0].token;
        }
        CHECK(more > 0);
    }
}

static void greedy_text_is_the_reference_s_until_a_near_tie(void) { for_each_trial(true, continue_greedily); }

/* --- bfloat16: measured with the reference's own bfloat16 run --- */

typedef struct tally {
    float *differences;    /* of logits */
    size_t n, positions, same_best, routes, same_routes;
    double yard_median, yard_best, yard_routes;    /* sums over positions of what the reference reached */
} tally;

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int compare_ints(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

static uint32_t best_of(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void tally_logits(tally *sum, const trial *t, uint32_t prompt, uint32_t T)
{
    uint32_t dims[3];
    const float *want = golden_find(t->g, prompt, "logits", dims);
    const float *have = t->h.logits + (size_t)(T - dims[0]) * dims[1];
    sum->differences = realloc(sum->differences, (sum->n + (size_t)dims[0] * dims[1]) * sizeof *sum->differences);
    for (size_t i = 0; i < (size_t)dims[0] * dims[1]; i++) sum->differences[sum->n++] = fabsf(have[i] - want[i]);
    for (uint32_t row = 0; row < dims[0]; row++)
        sum->same_best += best_of(have + (size_t)row * dims[1], dims[1]) == best_of(want + (size_t)row * dims[1], dims[1]);
    sum->positions += dims[0];
}

/* Choices as sets: both sorted, compared place by place, as the reference counts them. */
static void tally_routes(tally *sum, const trial *t, uint32_t prompt)
{
    uint32_t dims[3];
    const int32_t *experts = golden_find(t->g, prompt, "experts", dims);
    for (uint32_t layer = 0; layer < dims[0]; layer++)
        for (uint32_t row = 0; row < dims[1]; row++) {
            int32_t want[GB_EXPERTS_MAX], have[GB_EXPERTS_MAX];
            memcpy(want, experts + ((size_t)layer * dims[1] + row) * dims[2], dims[2] * sizeof *want);
            memcpy(have, t->h.experts + ((size_t)layer * HARNESS_POSITIONS + row) * dims[2], dims[2] * sizeof *have);
            qsort(want, dims[2], sizeof *want, compare_ints);
            qsort(have, dims[2], sizeof *have, compare_ints);
            for (uint32_t k = 0; k < dims[2]; k++) sum->same_routes += want[k] == have[k];
            sum->routes += dims[2];
        }
}

/* The first prompt of the random checkpoints is one token: too little to count. */
static void no_worse_than_bfloat16(trial *t)
{
    tally sum = {0};
    bool last_only = !strcmp(t->name, "bundled");
    double T_all = 0;
    for (uint32_t p = last_only ? 0 : 1; p < t->prompts; p++) {
        uint32_t dims[3], T;
        const int32_t *ids = golden_find(t->g, p, "input_ids", dims);
        T = dims[0];
        harness_feed(&t->h, ids, T, HARNESS_POSITIONS, &harness_greedy);
        tally_logits(&sum, t, p, T);
        tally_routes(&sum, t, p);
        const float *yard = golden_find(t->g, p, "bf16", dims);
        sum.yard_median += yard[0] * T;
        sum.yard_best += yard[1] * T;
        sum.yard_routes += yard[2] * T;
        T_all += T;
    }
    qsort(sum.differences, sum.n, sizeof *sum.differences, compare_floats);
    CHECK(sum.differences[sum.n / 2] <= sum.yard_median / T_all);
    CHECK((double)sum.same_routes / (double)sum.routes >= sum.yard_routes / T_all - 0.03);
    if (!last_only) CHECK((double)sum.same_best / (double)sum.positions >= sum.yard_best / T_all - 0.03);
    free(sum.differences);
}

static void bfloat16_is_no_worse_than_the_reference_in_bfloat16(void) { for_each_trial(false, no_worse_than_bfloat16); }

TESTS(TEST(float32_agrees_with_the_reference_whole), TEST(float32_agrees_with_the_reference_in_chunks),
      TEST(float32_agrees_with_the_reference_token_by_token), TEST(greedy_text_is_the_reference_s_until_a_near_tie),
      TEST(bfloat16_is_no_worse_than_the_reference_in_bfloat16))
