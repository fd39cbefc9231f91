#include "core/model/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/rng.h"
#include "tests/check.h"

enum { SMALL = 6, LARGE = 151936 };

typedef struct fixture {
    gb_sampling sampling;
    int32_t tokens[64], banned[LARGE];
    gb_work work;
    gb_sampled out;
    void *scratch;
} fixture;

static void set_up(fixture *f, uint32_t vocab)
{
    gb_sampling_default(&f->sampling);
    memset(f->tokens, 0, sizeof f->tokens);
    f->work = (gb_work){.tokens = f->tokens, .n_tokens = 1, .n_prompt = 1, .count = 1, .samples = true,
                        .sampling = &f->sampling, .banned = f->banned};
    f->scratch = aligned_alloc(64, (gb_sampler_scratch_bytes(vocab) + 63) / 64 * 64);
    memset(f->scratch, 0xff, gb_sampler_scratch_bytes(vocab));    /* its contents must not matter */
}

static fixture f;

static int32_t pick(const float *logits, uint32_t vocab)
{
    CHECK_EQ(gb_sampler_pick(&f.out, logits, vocab, &f.work, f.scratch), GB_OK);
    return f.out.token;
}

/* Draws at positions 1 .. n and returns how often each of the first SMALL tokens came. */
static void count_draws(const float *logits, uint32_t vocab, uint32_t n, uint32_t counts[SMALL])
{
    memset(counts, 0, SMALL * sizeof *counts);
    int32_t *history = calloc(n + 1, sizeof *history);
    f.work.tokens = history;
    f.work.n_prompt = 1;
    for (uint32_t i = 1; i <= n; i++) {
        f.work.n_tokens = i;
        int32_t token = pick(logits, vocab);
        if (token < SMALL) counts[token]++;
    }
    free(history);
    f.work.tokens = f.tokens;
    f.work.n_tokens = 1;
}

/* Within five standard deviations of n p. */
static void check_share(uint32_t count, uint32_t n, double p) { CHECK_NEAR(count, n * p, 5 * sqrt(n * p * (1 - p)) + 1e-9); }

/* --- greedy --- */

static void greedy_takes_the_lowest_id_among_equals(void)
{
    static const float logits[SMALL] = {1, 3, 2, 3, 3, -1};
    set_up(&f, SMALL);
    f.sampling.temperature = 0;
    CHECK_EQ(pick(logits, SMALL), 1);
    f.sampling.temperature = 1e-6f;
    CHECK_EQ(pick(logits, SMALL), 1);
    free(f.scratch);
}

static void banned_tokens_are_never_taken(void)
{
    static const float logits[SMALL] = {1, 3, 2, 3, 3, -1};
    set_up(&f, SMALL);
    f.sampling.temperature = 0;
    f.banned[0] = 1, f.banned[1] = 3, f.banned[2] = 4;
    f.work.n_banned = 3;
    CHECK_EQ(pick(logits, SMALL), 2);
    f.sampling.temperature = 1;
    uint32_t counts[SMALL];
    count_draws(logits, SMALL, 500, counts);
    CHECK_EQ(counts[1] + counts[3] + counts[4], 0);
    free(f.scratch);
}

static void logits_that_are_no_numbers_are_refused(void)
{
    float logits[SMALL] = {1, 3, NAN, 3, 3, -1};
    set_up(&f, SMALL);
    CHECK_EQ(gb_sampler_pick(&f.out, logits, SMALL, &f.work, f.scratch), GB_EINTERNAL);
    CHECK_EQ(f.out.token, -1);
    logits[2] = INFINITY;
    CHECK_EQ(gb_sampler_pick(&f.out, logits, SMALL, &f.work, f.scratch), GB_EINTERNAL);
    logits[2] = -INFINITY;
    CHECK_EQ(gb_sampler_pick(&f.out, logits, SMALL, &f.work, f.scratch), GB_OK);
    for (int i = 0; i < SMALL; i++) logits[i] = -INFINITY;
    CHECK_EQ(gb_sampler_pick(&f.out, logits, SMALL, &f.work, f.scratch), GB_EINTERNAL);
    free(f.scratch);
}

static void a_ban_of_every_token_is_refused(void)
{
    static const float logits[SMALL] = {0};
    set_up(&f, SMALL);
    for (int i = 0; i < SMALL; i++) f.banned[i] = i;
    f.work.n_banned = SMALL;
    CHECK_EQ(gb_sampler_pick(&f.out, logits, SMALL, &f.work, f.scratch), GB_EINTERNAL);
    free(f.scratch);
}

/* --- penalties --- */

/* Tokens 0 (prompt) and 1, 1, 2 (generated). By hand, with repetition 2, frequency 0.5, presence 0.25:
   0: 4 / 2 = 2;  1: 4 / 2 - 2 * 0.5 - 0.25 = 0.75;  2: -1 * 2 - 0.5 - 0.25 = -2.75;  3: 1.9 untouched. */
static void penalties_follow_the_formulas_of_vllm(void)
{
    static const float logits[SMALL] = {4, 4, -1, 1.9f, 0, -1};
    set_up(&f, SMALL);
    memcpy(f.tokens, (int32_t[]){0, 1, 1, 2}, 4 * sizeof(int32_t));
    f.work.n_tokens = 4;
    f.work.n_prompt = 1;
    f.sampling.temperature = 0;
    f.sampling.repetition_penalty = 2;
    f.sampling.frequency_penalty = 0.5f;
    f.sampling.presence_penalty = 0.25f;
    CHECK_EQ(pick(logits, SMALL), 0);
    f.banned[0] = 0;
    f.work.n_banned = 1;
    CHECK_EQ(pick(logits, SMALL), 3);
    f.banned[1] = 3;
    f.work.n_banned = 2;
    CHECK_EQ(pick(logits, SMALL), 1);
    f.banned[2] = 1, f.banned[3] = 4;
    f.work.n_banned = 4;
    CHECK_EQ(pick(logits, SMALL), 5);    /* -1 beats token 2's -2.75 */
    free(f.scratch);
}

static void frequency_and_presence_ignore_the_prompt(void)
{
    static const float logits[SMALL] = {1, 0.9f, 0, 0, 0, 0};
    set_up(&f, SMALL);
    f.work.n_tokens = f.work.n_prompt = 3;    /* 0, 0, 0 */
    f.sampling.temperature = 0;
    f.sampling.frequency_penalty = 2;
    f.sampling.presence_penalty = 2;
    CHECK_EQ(pick(logits, SMALL), 0);
    f.work.n_prompt = 2;
    CHECK_EQ(pick(logits, SMALL), 1);
    free(f.scratch);
}

/* --- distributions --- */

static void draws_follow_the_probabilities(void)
{
    enum { N = 20000 };
    static const double p[SMALL] = {0.4, 0.3, 0.15, 0.1, 0.04, 0.01};
    float logits[SMALL];
    uint32_t counts[SMALL];
    set_up(&f, SMALL);
    f.sampling.seed = 1;
    for (int i = 0; i < SMALL; i++) logits[i] = (float)log(p[i]) + 3;
    count_draws(logits, SMALL, N, counts);
    for (int i = 0; i < SMALL; i++) check_share(counts[i], N, p[i]);
    free(f.scratch);
}

static void temperature_divides_the_logits(void)
{
    enum { N = 20000 };
    static const float logits[SMALL] = {0, 1, 2, -1, 0.5f, 1.5f};
    uint32_t counts[SMALL];
    double p[SMALL], sum = 0;
    set_up(&f, SMALL);
    f.sampling.temperature = 2;
    for (int i = 0; i < SMALL; i++) sum += p[i] = exp(logits[i] / 2);
    count_draws(logits, SMALL, N, counts);
    for (int i = 0; i < SMALL; i++) check_share(counts[i], N, p[i] / sum);
    free(f.scratch);
}

static void top_k_keeps_exactly_k_and_the_lower_id_among_equals(void)
{
    enum { N = 6000 };
    static const float logits[SMALL] = {1, 2, 1, 2, 1, 0};
    uint32_t counts[SMALL];
    set_up(&f, SMALL);
    f.sampling.top_k = 3;    /* 1, 3 and, of the three equals, 0 */
    count_draws(logits, SMALL, N, counts);
    CHECK_EQ(counts[2] + counts[4] + counts[5], 0);
    double e = exp(1), sum = 2 * e * e + e;
    check_share(counts[1], N, e * e / sum);
    check_share(counts[3], N, e * e / sum);
    check_share(counts[0], N, e / sum);
    f.sampling.top_k = 1;
    count_draws(logits, SMALL, 50, counts);
    CHECK_EQ(counts[1], 50);
    free(f.scratch);
}

/* 0.4 + 0.3 = 0.7 < 0.75, so the third is needed; 0.7 is met by two. */
static void top_p_keeps_the_smallest_set_that_reaches_the_mass(void)
{
    enum { N = 6000 };
    static const double p[SMALL] = {0.1, 0.4, 0.04, 0.3, 0.15, 0.01};
    float logits[SMALL];
    uint32_t counts[SMALL];
    set_up(&f, SMALL);
    for (int i = 0; i < SMALL; i++) logits[i] = (float)log(p[i]);
    f.sampling.top_p = 0.75f;
    count_draws(logits, SMALL, N, counts);
    CHECK_EQ(counts[0] + counts[2] + counts[5], 0);
    check_share(counts[1], N, 0.4 / 0.85);
    check_share(counts[3], N, 0.3 / 0.85);
    f.sampling.top_p = 0.699f;
    count_draws(logits, SMALL, N, counts);
    CHECK_EQ(counts[1] + counts[3], N);
    f.sampling.top_p = 1e-6f;
    count_draws(logits, SMALL, 100, counts);
    CHECK_EQ(counts[1], 100);
    free(f.scratch);
}

static void min_p_keeps_what_reaches_a_share_of_the_best(void)
{
    static const double p[SMALL] = {0.1, 0.4, 0.04, 0.3, 0.15, 0.01};
    float logits[SMALL];
    uint32_t counts[SMALL];
    set_up(&f, SMALL);
    for (int i = 0; i < SMALL; i++) logits[i] = (float)log(p[i]);
    f.sampling.min_p = 0.2f;    /* 0.08 */
    count_draws(logits, SMALL, 3000, counts);
    CHECK_EQ(counts[2] + counts[5], 0);
    CHECK(counts[0] > 0 && counts[1] > 0 && counts[3] > 0 && counts[4] > 0);
    free(f.scratch);
}

/* top_k 3 leaves 0.4, 0.3, 0.15 (of 0.85); 0.8 of that is 0.68: two tokens. Of the whole mass it would have been three. */
static void top_p_counts_the_mass_that_top_k_left(void)
{
    static const double p[SMALL] = {0.1, 0.4, 0.04, 0.3, 0.15, 0.01};
    float logits[SMALL];
    uint32_t counts[SMALL];
    set_up(&f, SMALL);
    for (int i = 0; i < SMALL; i++) logits[i] = (float)log(p[i]);
    f.sampling.top_k = 3;
    f.sampling.top_p = 0.8f;
    count_draws(logits, SMALL, 1000, counts);
    CHECK_EQ(counts[1] + counts[3], 1000);
    free(f.scratch);
}

/* --- a real vocabulary, against plain sorting --- */

static const float *sorted_by;

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (sorted_by[x] != sorted_by[y]) return sorted_by[x] < sorted_by[y] ? 1 : -1;
    return x - y;
}

/* The token that sorting everything gives: the specification of all filters together. */
static int32_t pick_by_sorting(const float *logits, uint32_t vocab, const gb_sampling *s, uint64_t position)
{
    int32_t *ids = malloc(vocab * sizeof *ids);
    double *weights = calloc(vocab, sizeof *weights), mass = 0, kept = 0;
    for (uint32_t i = 0; i < vocab; i++) ids[i] = (int32_t)i;
    sorted_by = logits;
    qsort(ids, vocab, sizeof *ids, compare_ids);
    uint32_t n = s->top_k > 0 && (uint32_t)s->top_k < vocab ? (uint32_t)s->top_k : vocab;
    for (uint32_t i = 0; i < n; i++) {
        double w = exp((double)(logits[ids[i]] - logits[ids[0]]) / s->temperature);
        if (w < s->min_p) n = i;
        else mass += weights[ids[i]] = w;
    }
    uint32_t end = 0;
    for (; end < n && (end == 0 || kept < s->top_p * mass); end++) kept += weights[ids[end]];
    for (uint32_t i = end; i < n; i++) weights[ids[i]] = 0;
    double left = gb_rng_at(s->seed, position) * kept;
    int32_t token = -1;
    for (uint32_t i = 0; i < vocab && token < 0; i++) {
        if (weights[i] > 0 && left < weights[i]) token = (int32_t)i;
        left -= weights[i];
    }
    free(ids);
    free(weights);
    return token;
}

/* Normal logits, some of them equal; a draw that hits a border between two tokens within rounding may part, so nearly all
   must agree. */
static void selection_agrees_with_sorting_a_vocabulary_of_151936(void)
{
    static const struct { int32_t top_k; float top_p, min_p, temperature; } settings[] = {
        {0, 1, 0, 1}, {20, 0.8f, 0, 0.7f}, {50, 1, 0, 1}, {0, 0.95f, 0, 0.6f}, {0, 0.9f, 0.02f, 1.5f},
        {5000, 0.99f, 0, 2}, {0, 0.5f, 0, 100},
    };
    enum { SETTINGS = sizeof settings / sizeof *settings, DRAWS = 4 };
    float *logits = malloc(LARGE * sizeof *logits);
    gb_rng rng;
    uint32_t agreed = 0;
    set_up(&f, LARGE);
    gb_rng_init(&rng, 5);
    for (int i = 0; i < LARGE; i++) {
        double normal = 0;
        for (int k = 0; k < 12; k++) normal += gb_rng_uniform(&rng) - 0.5;
        logits[i] = (float)(round(normal * 3 * 256) / 256);
    }
    for (int i = 0; i < SETTINGS; i++)
        for (uint32_t n = 1; n <= DRAWS; n++) {
            f.sampling.top_k = settings[i].top_k, f.sampling.top_p = settings[i].top_p;
            f.sampling.min_p = settings[i].min_p, f.sampling.temperature = settings[i].temperature;
            f.work.n_tokens = n;
            agreed += pick(logits, LARGE) == pick_by_sorting(logits, LARGE, &f.sampling, n);
        }
    CHECK(agreed >= SETTINGS * DRAWS - 1);
    free(logits);
    free(f.scratch);
}

static void equal_logits_draw_evenly_whatever_the_filter(void)
{
    static const float logits[SMALL] = {2, 2, 2, 2, 2, 2};
    uint32_t counts[SMALL];
    set_up(&f, SMALL);
    f.sampling.top_p = 0.5f;    /* three of six: the lower ids */
    count_draws(logits, SMALL, 6000, counts);
    for (int i = 0; i < 3; i++) check_share(counts[i], 6000, 1.0 / 3);
    CHECK_EQ(counts[3] + counts[4] + counts[5], 0);
    free(f.scratch);
}

/* --- determinism --- */

static void the_draw_depends_on_seed_and_position_only(void)
{
    static const float logits[SMALL] = {0, 0.1f, 0.2f, 0.3f, 0.2f, 0.1f};
    int32_t first[40], differ_by_seed = 0;
    set_up(&f, SMALL);
    for (uint32_t n = 1; n <= 40; n++) {
        f.work.n_tokens = n;
        first[n - 1] = pick(logits, SMALL);
    }
    for (uint32_t n = 40; n >= 1; n--) {    /* the other way round, with other tokens before it */
        f.work.n_tokens = n;
        for (int i = 0; i < 64; i++) f.tokens[i] = (int32_t)(n + (uint32_t)i) % SMALL;
        CHECK_EQ(pick(logits, SMALL), first[n - 1]);
        f.sampling.seed = 1;
        differ_by_seed += pick(logits, SMALL) != first[n - 1];
        f.sampling.seed = 0;
    }
    CHECK(differ_by_seed > 10);
    free(f.scratch);
}

/* --- logprobs --- */

static void logprobs_are_of_the_raw_logits_and_best_first(void)
{
    static const double p[SMALL] = {0.1, 0.4, 0.04, 0.3, 0.15, 0.01};
    float logits[SMALL];
    set_up(&f, SMALL);
    for (int i = 0; i < SMALL; i++) logits[i] = (float)log(p[i]) - 7;
    f.sampling.temperature = 0;
    f.sampling.logprobs = 3;
    f.sampling.repetition_penalty = 1.5f;
    f.tokens[0] = 1;
    f.banned[0] = 1;
    f.work.n_banned = 1;
    CHECK_EQ(pick(logits, SMALL), 3);
    CHECK_NEAR(f.out.logprobs.chosen, log(0.3), 1e-6);
    CHECK_EQ(f.out.logprobs.n, 3);
    CHECK_EQ(f.out.logprobs.ids[0], 1);
    CHECK_EQ(f.out.logprobs.ids[1], 3);
    CHECK_EQ(f.out.logprobs.ids[2], 4);
    CHECK_NEAR(f.out.logprobs.values[0], log(0.4), 1e-6);
    CHECK_NEAR(f.out.logprobs.values[2], log(0.15), 1e-6);
    f.sampling.logprobs = 0;
    pick(logits, SMALL);
    CHECK_EQ(f.out.logprobs.n, 0);
    CHECK_NEAR(f.out.logprobs.chosen, log(0.3), 1e-6);
    free(f.scratch);
}

static void more_logprobs_than_tokens_list_every_token(void)
{
    static const float logits[SMALL] = {1, 3, 2, 3, 3, -1};
    set_up(&f, SMALL);
    f.sampling.logprobs = GB_TOP_LOGPROBS_MAX;
    pick(logits, SMALL);
    CHECK_EQ(f.out.logprobs.n, SMALL);
    CHECK_EQ(f.out.logprobs.ids[0], 1);
    CHECK_EQ(f.out.logprobs.ids[5], 5);
    free(f.scratch);
}

TESTS(TEST(greedy_takes_the_lowest_id_among_equals), TEST(banned_tokens_are_never_taken), TEST(logits_that_are_no_numbers_are_refused),
      TEST(a_ban_of_every_token_is_refused), TEST(penalties_follow_the_formulas_of_vllm), TEST(frequency_and_presence_ignore_the_prompt),
      TEST(draws_follow_the_probabilities), TEST(temperature_divides_the_logits), TEST(top_k_keeps_exactly_k_and_the_lower_id_among_equals),
      TEST(top_p_keeps_the_smallest_set_that_reaches_the_mass), TEST(min_p_keeps_what_reaches_a_share_of_the_best),
      TEST(top_p_counts_the_mass_that_top_k_left), TEST(selection_agrees_with_sorting_a_vocabulary_of_151936),
      TEST(equal_logits_draw_evenly_whatever_the_filter), TEST(the_draw_depends_on_seed_and_position_only),
      TEST(logprobs_are_of_the_raw_logits_and_best_first), TEST(more_logprobs_than_tokens_list_every_token))
