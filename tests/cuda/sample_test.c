/* sample and adjust against core/model's sampler: the same tokens, but for draws on a border. GB_SAMPLE_TURNS=N tries N times 12 rows. */
#include "core/model/sampler.h"

#include <stdlib.h>

#include "tests/cuda/device.h"

enum { ROWS = 12, VOCAB_MAX = 5003, TEXT = 40 };

/* Rows of logits and how their tokens are to be chosen. */
static struct {
    uint32_t vocab;
    float logits[ROWS * VOCAB_MAX];
    gb_sampling sampling[ROWS];
    int32_t text[ROWS][TEXT], banned[ROWS][4];
    gb_work works[ROWS];
    gb_k_choice choices[ROWS];
    int32_t want[ROWS], got[ROWS];
} r;

static float uniform(gb_rng *rng, float low, float high) { return low + (high - low) * (float)gb_rng_uniform(rng); }

/* Some rows with many equal logits, some with a few that stand out, some tokens impossible. */
static void random_logits(uint32_t row, gb_rng *rng)
{
    float scale = uniform(rng, 0.5f, 12), *logits = r.logits + (size_t)row * r.vocab;
    bool steps = gb_rng_below(rng, 3) == 0, gaps = gb_rng_below(rng, 4) == 0;
    for (uint32_t i = 0; i < r.vocab; i++) {
        logits[i] = uniform(rng, -scale, scale);
        if (steps) logits[i] = (float)gb_rng_below(rng, 32) / 4 - 4;
        if (gb_rng_below(rng, 100) == 0) logits[i] += scale;
        if (gaps && i != r.vocab / 2 && gb_rng_below(rng, 3) == 0) logits[i] = -INFINITY;
    }
}

static void random_sampling(uint32_t row, gb_rng *rng)
{
    gb_sampling *s = &r.sampling[row];
    gb_sampling_default(s);
    s->seed = gb_rng_next(rng);
    s->temperature = gb_rng_below(rng, 10) ? uniform(rng, 0.2f, 2) : 0;
    if (gb_rng_below(rng, 2)) s->top_k = 1 + (int32_t)gb_rng_below(rng, gb_rng_below(rng, 2) ? 8 : r.vocab + 9);
    if (gb_rng_below(rng, 2)) s->top_p = gb_rng_below(rng, 8) ? uniform(rng, 0.02f, 0.99999f) : 1e-9f;
    if (gb_rng_below(rng, 3) == 0) s->min_p = gb_rng_below(rng, 8) ? uniform(rng, 0, 0.3f) : 1;
    r.works[row] = (gb_work){.tokens = r.text[row], .n_tokens = 1 + (uint32_t)gb_rng_below(rng, TEXT), .sampling = s};
}

static void random_changes(uint32_t row, gb_rng *rng)
{
    gb_work *work = &r.works[row];
    gb_sampling *s = &r.sampling[row];
    for (uint32_t i = 0; i < TEXT; i++) r.text[row][i] = (int32_t)gb_rng_below(rng, r.vocab < 20 ? r.vocab : 20);
    work->n_prompt = (uint32_t)gb_rng_below(rng, work->n_tokens + 1);
    s->repetition_penalty = uniform(rng, 0.5f, 2);
    s->frequency_penalty = uniform(rng, -1, 1);
    s->presence_penalty = uniform(rng, -1, 1);
    work->n_banned = (uint32_t)gb_rng_below(rng, 4);
    for (uint32_t i = 0; i < work->n_banned; i++) r.banned[row][i] = (int32_t)gb_rng_below(rng, r.vocab);
    work->banned = r.banned[row];
}

/* As cuda/host/sample.c makes them ready. */
static gb_k_choice choice_of(const gb_work *work)
{
    const gb_sampling *s = work->sampling;
    return (gb_k_choice){
        .uniform = (uint64_t)ldexp(gb_rng_at(s->seed, work->n_tokens), 64), .top_p = s->top_p < 1 ? (uint64_t)ldexp(s->top_p, 64) | 1 : 0,
        .top_k = (uint32_t)s->top_k, .rate = s->temperature < GB_GREEDY_TEMPERATURE ? 0 : 1 / s->temperature, .min_p = s->min_p,
        .repetition_penalty = s->repetition_penalty, .frequency_penalty = s->frequency_penalty, .presence_penalty = s->presence_penalty,
    };
}

static void ask_the_host(void)
{
    void *scratch = aligned_alloc(64, gb_sampler_scratch_bytes(r.vocab));
    for (uint32_t i = 0; i < ROWS; i++) {
        gb_sampled out = {.token = -2};
        gb_sampler_pick(&out, r.logits + (size_t)i * r.vocab, r.vocab, &r.works[i], scratch);
        r.want[i] = out.token;
    }
    free(scratch);
}

static void ask_the_device(const gb_k_edit *edits, uint32_t n_edits)
{
    for (uint32_t i = 0; i < ROWS; i++) r.choices[i] = choice_of(&r.works[i]);
    gb_k_sample_args a = {.out = device_new(ROWS, 4), .logits = device_copy(r.logits, (size_t)ROWS * r.vocab, 4), .choices = DEVICE_COPY(r.choices),
                          .n = ROWS, .vocab = r.vocab};
    gb_k_adjust_args e = {.logits = (float *)a.logits, .edits = device_copy(edits, n_edits, sizeof *edits), .choices = a.choices,
                          .fault = fault_new(), .n = n_edits, .rows = ROWS, .vocab = r.vocab};
    CHECK_EQ(gb_k_adjust(&e, 0), GB_OK);
    CHECK_EQ(gb_k_sample(&a, 0), GB_OK);
    device_read(r.got, a.out, ROWS, 4);
    CHECK_EQ(fault_read(e.fault).kind, GB_K_FAULT_NONE);
    device_free_all();
}

/* --- what may be drawn, in float64 --- */

static const float *sorted_by;

static int better_first(const void *a, const void *b)
{
    float x = sorted_by[*(const int32_t *)a], y = sorted_by[*(const int32_t *)b];
    return x != y ? (x < y) - (x > y) : *(const int32_t *)a - *(const int32_t *)b;
}

/* The token of a row when the draw and the nucleus are moved by so much. */
static int32_t reference(const float *logits, const gb_work *work, double draw_by, double nucleus_by)
{
    static int32_t order[VOCAB_MAX];
    static double weights[VOCAB_MAX];
    const gb_sampling *s = work->sampling;
    uint32_t n = s->top_k > 0 && (uint32_t)s->top_k < r.vocab ? (uint32_t)s->top_k : r.vocab, kept = 0;
    double all = 0, reached = 0, before = 0;
    int32_t last = -1;
    for (uint32_t i = 0; i < r.vocab; i++) order[i] = (int32_t)i, weights[i] = 0;
    sorted_by = logits;
    qsort(order, r.vocab, sizeof *order, better_first);
    float highest = logits[order[0]], rate = 1 / s->temperature;
    for (uint32_t i = 0; i < n; i++) {
        double weight = exp((double)((logits[order[i]] - highest) * rate));
        weights[order[i]] = weight >= s->min_p ? weight : 0;
        all += weights[order[i]];
    }
    for (; kept < n && (s->top_p >= 1 || reached < (s->top_p + nucleus_by) * all || kept == 0); kept++) reached += weights[order[kept]];
    for (uint32_t i = kept; i < r.vocab; i++) weights[order[i]] = 0;
    for (uint32_t i = 0; i < r.vocab; i++) {
        if (weights[i] == 0) continue;
        last = (int32_t)i;
        before += weights[i];
        if (before > (gb_rng_at(s->seed, work->n_tokens) + draw_by) * reached) break;
    }
    return last;
}

/* exp is good to 1e-7 on either side, which moves borders more than the sums do. */
static bool may_be(int32_t token, const float *logits, const gb_work *work)
{
    const double by[] = {0, -4e-7, 4e-7};
    for (int i = 0; i < 9; i++)
        if (reference(logits, work, by[i / 3], by[i % 3]) == token) return true;
    return false;
}

/* --- tests --- */

static void the_device_s_token_is_the_host_s(void)
{
    static const uint32_t vocabs[] = {1, 2, 31, 257, 1000, 1024, 3001, VOCAB_MAX};
    const char *wanted = getenv("GB_SAMPLE_TURNS");
    uint32_t turns = wanted ? (uint32_t)atoi(wanted) : 16, drawn = 0, others = 0;
    gb_rng rng;
    fresh_rng(&rng, 5);
    for (uint32_t turn = 0; turn < turns; turn++) {
        r.vocab = vocabs[turn % 8];
        for (uint32_t i = 0; i < ROWS; i++) {
            random_logits(i, &rng);
            random_sampling(i, &rng);
        }
        ask_the_host();
        ask_the_device(NULL, 0);
        for (uint32_t i = 0; i < ROWS; i++) {
            if (r.sampling[i].temperature == 0) CHECK_EQ(r.got[i], r.want[i]);
            if (r.sampling[i].temperature == 0) continue;
            drawn++;
            others += r.got[i] != r.want[i];
            CHECK(may_be(r.got[i], r.logits + (size_t)i * r.vocab, &r.works[i]));
        }
    }
    if (wanted) printf("    %u rows drawn, %u of them otherwise than on the host\n", drawn, others);
    CHECK(drawn >= 10 * turns && others <= drawn / 400);
}

/* As cuda/host/sample.c lists them. */
static uint32_t list_edits(gb_k_edit *edits)
{
    uint32_t n = 0;
    for (uint32_t row = 0; row < ROWS; row++)
        for (int32_t token = 0; token < (int32_t)r.vocab; token++) {
            const gb_work *w = &r.works[row];
            gb_k_edit edit = {row, token, 0};
            bool there = false;
            for (uint32_t i = 0; i < w->n_tokens; i++) {
                there |= w->tokens[i] == token;
                edit.what += w->tokens[i] == token && i >= w->n_prompt;
            }
            for (uint32_t i = 0; i < w->n_banned; i++) {
                there |= w->banned[i] == token;
                if (w->banned[i] == token) edit.what |= GB_K_EDIT_BAN;
            }
            if (there) edits[n++] = edit;
        }
    return n;
}

static void bans_and_penalties_give_the_host_s_tokens(void)
{
    static gb_k_edit edits[ROWS * VOCAB_MAX];
    uint32_t others = 0, rows = 0;
    gb_rng rng;
    fresh_rng(&rng, 6);
    for (int turn = 0; turn < 9; turn++) {
        r.vocab = (const uint32_t[]){3, 24, 300}[turn % 3];
        for (uint32_t i = 0; i < ROWS; i++) {
            random_logits(i, &rng);
            random_sampling(i, &rng);
            random_changes(i, &rng);
        }
        ask_the_host();
        ask_the_device(edits, list_edits(edits));
        for (uint32_t i = 0; i < ROWS; i++, rows++) others += r.got[i] != r.want[i];
    }
    CHECK(others <= rows / 200);
}

/* Eight tokens of equal weight: every border is known exactly. */
static int32_t token_of_eight(double at, uint32_t top_k, double top_p)
{
    float logits[8];
    for (uint32_t i = 0; i < 8; i++) logits[i] = 1;
    gb_k_choice choice = {.uniform = (uint64_t)ldexp(at, 64), .top_p = (uint64_t)ldexp(top_p, 64), .top_k = top_k, .rate = 1};
    gb_k_sample_args a = {.out = device_new(1, 4), .logits = DEVICE_COPY(logits), .choices = device_copy(&choice, 1, sizeof choice), .n = 1, .vocab = 8};
    int32_t token;
    CHECK_EQ(gb_k_sample(&a, 0), GB_OK);
    device_read(&token, a.out, 1, 4);
    device_free_all();
    return token;
}

static void a_draw_on_a_border_falls_to_the_token_above_it(void)
{
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(token_of_eight(i / 8.0, 0, 0), i);
        CHECK_EQ(token_of_eight((i + 1) / 8.0 - 0x1p-40, 0, 0), i);
    }
}

static void filters_keep_the_lower_ids_among_equals(void)
{
    const double end = 1 - 0x1p-40;
    CHECK_EQ(token_of_eight(end, 3, 0), 2);
    CHECK_EQ(token_of_eight(end, 0, 0.5), 3);
    CHECK_EQ(token_of_eight(end, 0, 0.5 + 0x1p-30), 4);
    CHECK_EQ(token_of_eight(end, 0, 0.25), 1);
    CHECK_EQ(token_of_eight(end, 6, 0.5), 2);                  /* half of the six that top-k left */
    CHECK_EQ(token_of_eight(end, 8, 0x1p-60), 0);              /* at least one stays */
}

static void the_best_token_is_the_lowest_id_among_equals_and_no_number_gives_none(void)
{
    enum { VOCAB = 700, N = 8 };
    static float logits[N * VOCAB];
    int32_t out[N];
    const int32_t want[N] = {256, 0, 699, -1, -1, -1, 3, 2};
    for (int i = 0; i < N * VOCAB; i++) logits[i] = -5;
    logits[256] = logits[257] = logits[600] = 2;
    logits[2 * VOCAB + 699] = -4.5f;
    logits[3 * VOCAB + 1] = NAN;
    logits[4 * VOCAB + 699] = INFINITY;
    for (int i = 0; i < VOCAB; i++) logits[5 * VOCAB + i] = logits[6 * VOCAB + i] = -INFINITY;
    logits[6 * VOCAB + 3] = -1e30f;
    logits[7 * VOCAB + 2] = -0.0f;
    logits[7 * VOCAB + 5] = 0.0f;
    for (int sampled = 0; sampled < 2; sampled++) {
        gb_k_choice choices[N];
        for (int i = 0; i < N; i++) choices[i] = (gb_k_choice){.rate = sampled ? 1 : 0, .top_k = 1};
        gb_k_sample_args a = {.out = device_new(N, 4), .logits = DEVICE_COPY(logits), .choices = DEVICE_COPY(choices), .n = N, .vocab = VOCAB};
        CHECK_EQ(gb_k_sample(&a, 0), GB_OK);
        device_read(out, a.out, N, 4);
        for (int i = 0; i < N; i++) CHECK_EQ(out[i], want[i]);
        device_free_all();
    }
}

/* A banned NaN still says that the row is broken; what a tiny penalty blows up is the best token and no more. */
static void changes_neither_hide_a_broken_row_nor_break_one(void)
{
    float logits[3 * 4] = {1, NAN, 2, 3, 1, INFINITY, 2, 3, 1, 5, 2, 3};
    const gb_k_edit edits[] = {{0, 1, GB_K_EDIT_BAN}, {1, 1, GB_K_EDIT_BAN}, {2, 1, 1}};
    const int32_t want[] = {-1, -1, 1};
    int32_t out[3];
    gb_k_choice choices[3];
    for (int i = 0; i < 3; i++) choices[i] = (gb_k_choice){.rate = 1, .uniform = 1, .repetition_penalty = 1e-38f};
    gb_k_adjust_args e = {.logits = DEVICE_COPY(logits), .edits = DEVICE_COPY(edits), .choices = DEVICE_COPY(choices), .fault = fault_new(), .n = 3,
                          .rows = 3, .vocab = 4};
    gb_k_sample_args a = {.out = device_new(3, 4), .logits = e.logits, .choices = e.choices, .n = 3, .vocab = 4};
    CHECK_EQ(gb_k_adjust(&e, 0), GB_OK);
    CHECK_EQ(gb_k_sample(&a, 0), GB_OK);
    device_read(out, a.out, 3, 4);
    for (int i = 0; i < 3; i++) CHECK_EQ(out[i], want[i]);
    device_free_all();
}

static void shapes_that_do_not_fit_are_refused_and_no_rows_are_no_work(void)
{
    gb_k_sample_args a = {.n = 1};
    CHECK_EQ(gb_k_sample(&a, 0), GB_EINVAL);
    a.vocab = GB_K_VOCAB_MAX + 1;
    CHECK_EQ(gb_k_sample(&a, 0), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "vocabulary of 524289");
    a = (gb_k_sample_args){.vocab = 8};
    CHECK_EQ(gb_k_sample(&a, 0), GB_OK);
    gb_k_adjust_args e = {.n = UINT32_MAX, .rows = 1, .vocab = 8};
    CHECK_EQ(gb_k_adjust(&e, 0), GB_EINVAL);
    e.n = 0;
    CHECK_EQ(gb_k_adjust(&e, 0), GB_OK);
}

static void an_edit_of_a_token_that_is_none_is_a_fault(void)
{
    float logits[8] = {0};
    const gb_k_edit edits[] = {{1, 2, GB_K_EDIT_BAN}, {0, 4, 1}};
    gb_k_choice choices[2] = {{.repetition_penalty = 1}, {.repetition_penalty = 1}};
    gb_k_adjust_args e = {.logits = DEVICE_COPY(logits), .edits = DEVICE_COPY(edits), .choices = DEVICE_COPY(choices), .fault = fault_new(), .n = 2,
                          .rows = 2, .vocab = 4};
    CHECK_EQ(gb_k_adjust(&e, 0), GB_OK);
    CHECK_EQ(fault_read(e.fault).kind, GB_K_FAULT_TOKEN);
    CHECK_EQ(fault_read(e.fault).value, 4);
    device_read(logits, e.logits, 8, 4);
    for (int i = 0; i < 8; i++) CHECK(logits[i] == (i == 6 ? -INFINITY : 0));
    device_free_all();
}

TESTS(TEST(the_device_s_token_is_the_host_s), TEST(bans_and_penalties_give_the_host_s_tokens), TEST(a_draw_on_a_border_falls_to_the_token_above_it),
      TEST(filters_keep_the_lower_ids_among_equals), TEST(the_best_token_is_the_lowest_id_among_equals_and_no_number_gives_none),
      TEST(changes_neither_hide_a_broken_row_nor_break_one), TEST(shapes_that_do_not_fit_are_refused_and_no_rows_are_no_work),
      TEST(an_edit_of_a_token_that_is_none_is_a_fault))
