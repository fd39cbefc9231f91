/* Greedy text of the whole backend beside the cpu's: each token is the cpu's favourite for the same text so far, or nearly as good in the
   cpu's eyes. Both decode step by step; the device runs its steps as graphs. */
#include "core/base/rng.h"
#include "cuda/cuemu/control.h"
#include "tests/check.h"
#include "tests/forward/harness.h"

gb_backend_open_fn gimbal_backend_open;

enum { PROMPT = 6, TOKENS = 12, TEXT = PROMPT + TOKENS };
static const double near_tie = 0.05;    /* of the largest logit */

/* The logits of position n - 1 given tokens 0 .. n - 1, whose earlier positions have been computed. */
static int32_t step(harness *h, const int32_t *tokens, uint32_t n, uint32_t count)
{
    harness_clear(h);
    harness_add(h, 0, 0, tokens, n, n, n - count, count, &harness_greedy);
    CHECK_EQ(harness_run(h), GB_OK);
    return h->result.sampled[0][0].token;
}

static double shortfall(const float *logits, uint32_t n, int32_t token)
{
    float highest = -INFINITY, spread = 0;
    for (uint32_t i = 0; i < n; i++) {
        highest = fmaxf(highest, logits[i]);
        spread = fmaxf(spread, fabsf(logits[i]));
    }
    return ((double)highest - logits[token]) / spread;
}

/* Returns how many tokens are the cpu's own. */
static uint32_t check_text(harness *cpu, harness *cuda, uint32_t number)
{
    int32_t tokens[TEXT + 1];
    gb_rng rng;
    uint32_t same = 0;
    gb_rng_init(&rng, number);
    for (uint32_t i = 0; i < PROMPT; i++) tokens[i] = (int32_t)gb_rng_below(&rng, cpu->config.vocab);
    for (uint32_t n = PROMPT; n < TEXT; n++) {
        const uint32_t count = n == PROMPT ? PROMPT : 1;
        const int32_t mine = step(cuda, tokens, n, count), other = step(cpu, tokens, n, count);
        CHECK(mine >= 0 && (uint32_t)mine < cpu->config.vocab);
        if (mine < 0) return 0;
        same += mine == other;
        if (mine != other) CHECK(shortfall(cpu->logits + (size_t)(n - 1) * cpu->config.vocab, cpu->config.vocab, mine) <= near_tie);
        tokens[n] = mine;
    }
    return same;
}

static void check_model(const char *directory, uint32_t texts)
{
    harness cpu, cuda;
    harness_options options = {.directory = directory, .tap = true};
    uint32_t same = 0;
    harness_open(&cpu, &options);
    options.backend = gimbal_backend_open(GB_BACKEND_ABI);
    options.tap = false;
    options.graphs = true;
    harness_open(&cuda, &options);
    for (uint32_t i = 0; i < texts; i++) same += check_text(&cpu, &cuda, i);
    printf("    %s: %u of %u tokens are the cpu's\n", directory, same, texts * TOKENS);
    CHECK(2 * same > texts * TOKENS);
    harness_close(&cpu);
    harness_close(&cuda);
}

static void greedy_tokens_of_the_bundled_model_are_the_cpus_up_to_near_ties(void)
{
    check_model("examples/models/tiny-moe", cuemu_tracks() ? 1 : 2);
}

static void greedy_tokens_of_a_model_with_dense_layers_and_a_window_are_too(void)
{
    check_model("tests/golden/dense-mixed", 1);
    check_model("tests/golden/sliding-window", 1);
}

TESTS(TEST(greedy_tokens_of_the_bundled_model_are_the_cpus_up_to_near_ties), TEST(greedy_tokens_of_a_model_with_dense_layers_and_a_window_are_too))
