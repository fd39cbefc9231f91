#include "core/model/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/assert.h"
#include "core/base/exp.h"
#include "core/base/rng.h"

/* Below this temperature the division only makes infinities: greedy. */
#define GREEDY_TEMPERATURE 1e-5f

enum {
    BUCKETS = 1024,              /* of distance from the best token, in nats ... */
    BUCKETS_PER_NAT = 32,        /* ... so fine that few tokens share the one where a filter cuts */
    PROMPT_BIT = 1u << 31,       /* in a token's count: it stands in the prompt */
};

typedef struct scratch {
    float *scores;               /* [vocab] logits after bans and penalties */
    float *weights;              /* [vocab] probability over that of the best token; 0 = filtered out */
    uint64_t *keys;              /* [vocab] tokens of one bucket, as a heap; counts of penalties before that */
} scratch;

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

size_t gb_sampler_scratch_bytes(uint32_t vocab)
{
    return 2 * aligned(vocab * sizeof(float)) + aligned(vocab * sizeof(uint64_t));
}

static scratch lay_scratch(void *memory, uint32_t vocab)
{
    char *at = memory;
    size_t floats = aligned(vocab * sizeof(float));
    return (scratch){.scores = (float *)at, .weights = (float *)(at + floats), .keys = (uint64_t *)(at + 2 * floats)};
}

/* --- the best token --- */

/* Lowest id among equals; -1 when a logit is NaN or +inf, or all are -inf. */
static int32_t best_token(const float *logits, uint32_t vocab)
{
    float highest = -INFINITY;
    bool bad = false;
    for (uint32_t i = 0; i < vocab; i++) {
        bad |= !(logits[i] <= FLT_MAX);
        highest = logits[i] > highest ? logits[i] : highest;
    }
    if (bad || highest == -INFINITY) return -1;
    uint32_t i = 0;
    while (logits[i] != highest) i++;
    return (int32_t)i;
}

/* --- logprobs, of the raw logits --- */

static double sum_exp(const float *logits, uint32_t vocab, float highest)
{
    double sum = 0;
    for (uint32_t i = 0; i < vocab; i++) sum += gb_exp_f32(logits[i] - highest);
    return sum;
}

static void list_likely(gb_logprobs *out, const float *logits, uint32_t vocab, uint32_t n)
{
    out->n = 0;
    for (uint32_t i = 0; n && i < vocab; i++) {
        if (out->n == n && !(logits[i] > out->values[n - 1])) continue;
        uint32_t at = out->n < n ? out->n++ : n - 1;
        for (; at > 0 && logits[i] > out->values[at - 1]; at--) {
            out->values[at] = out->values[at - 1];
            out->ids[at] = out->ids[at - 1];
        }
        out->values[at] = logits[i];
        out->ids[at] = (int32_t)i;
    }
}

static void report_logprobs(gb_logprobs *out, int32_t chosen, const float *logits, uint32_t vocab, uint32_t n)
{
    float highest = logits[best_token(logits, vocab)];
    float normalizer = highest + (float)log(sum_exp(logits, vocab, highest));
    list_likely(out, logits, vocab, n < vocab ? n : vocab);
    for (uint32_t i = 0; i < out->n; i++) out->values[i] -= normalizer;
    out->chosen = logits[chosen] - normalizer;
}

/* --- bans and penalties --- */

static bool has_penalties(const gb_sampling *s)
{
    return s->repetition_penalty != 1 || s->frequency_penalty != 0 || s->presence_penalty != 0;
}

static void penalize(float *score, uint32_t count, const gb_sampling *s)
{
    uint32_t generated = count & ~PROMPT_BIT;
    *score = *score > 0 ? *score / s->repetition_penalty : *score * s->repetition_penalty;
    *score -= s->frequency_penalty * (float)generated;
    if (generated) *score -= s->presence_penalty;
}

/* Each distinct token once: repetition looks at prompt and completion, the other two at the completion. Only the counts
   of tokens that occur are touched. */
static void apply_penalties(float *scores, const gb_work *work, uint32_t *counts)
{
    for (uint32_t i = 0; i < work->n_tokens; i++) counts[work->tokens[i]] = 0;
    for (uint32_t i = 0; i < work->n_tokens; i++) {
        uint32_t *count = &counts[work->tokens[i]];
        if (i < work->n_prompt) *count |= PROMPT_BIT;
        else ++*count;
    }
    for (uint32_t i = 0; i < work->n_tokens; i++) {
        uint32_t *count = &counts[work->tokens[i]];
        if (*count) penalize(&scores[work->tokens[i]], *count, work->sampling);
        *count = 0;
    }
}

/* The logits themselves when nothing changes them. */
static const float *adjust(const scratch *s, const float *logits, uint32_t vocab, const gb_work *work)
{
    if (work->n_banned == 0 && !has_penalties(work->sampling)) return logits;
    memcpy(s->scores, logits, vocab * sizeof *logits);
    for (uint32_t i = 0; i < work->n_banned; i++) s->scores[work->banned[i]] = -INFINITY;
    if (has_penalties(work->sampling)) apply_penalties(s->scores, work, (uint32_t *)s->keys);
    return s->scores;
}

/* --- filters ---

   A filter keeps the best tokens in the order (score falling, id rising) until a target is met: a number of tokens, or a mass.
   A pass over buckets of score finds the bucket where that happens; a heap orders that bucket alone. */

/* Better tokens have larger keys. */
static uint64_t key_of(float score, uint32_t id)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)ordered << 32 | (UINT32_MAX - id);
}

static void sift_down(uint64_t *heap, size_t n, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[at] >= heap[child]) return;
        uint64_t swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

static uint64_t pop_best(uint64_t *heap, size_t *n)
{
    uint64_t best = heap[0];
    heap[0] = heap[--*n];
    sift_down(heap, *n, 0);
    return best;
}

typedef struct filter {
    const float *scores;
    float *weights;
    uint32_t vocab;
    float highest, per_score;    /* bucket = (highest - score) * per_score */
    bool by_mass;                /* target is a mass, else a number of tokens */
    double target;
} filter;

static uint32_t bucket_of(const filter *f, uint32_t id)
{
    float distance = (f->highest - f->scores[id]) * f->per_score;
    return distance < BUCKETS - 1 ? (uint32_t)distance : BUCKETS - 1;
}

static double share(const filter *f, uint32_t id) { return f->by_mass ? f->weights[id] : 1; }

/* The bucket in which the target is met, and what the better ones hold. BUCKETS when all together do not meet it. */
static uint32_t find_bucket(const filter *f, double *before)
{
    double sums[BUCKETS] = {0};
    for (uint32_t i = 0; i < f->vocab; i++)
        if (f->weights[i] > 0) sums[bucket_of(f, i)] += share(f, i);
    *before = 0;
    for (uint32_t b = 0; b < BUCKETS; b++) {
        if (*before + sums[b] >= f->target) return b;
        *before += sums[b];
    }
    return BUCKETS;
}

/* Key of the last token that stays. */
static uint64_t find_cut(const filter *f, uint64_t *keys)
{
    double reached;
    size_t n = 0;
    uint32_t bucket = find_bucket(f, &reached);
    if (bucket == BUCKETS) return 0;
    for (uint32_t i = 0; i < f->vocab; i++)
        if (f->weights[i] > 0 && bucket_of(f, i) == bucket) keys[n++] = key_of(f->scores[i], i);
    for (size_t i = n / 2; i-- > 0;) sift_down(keys, n, i);
    for (;;) {
        uint64_t best = pop_best(keys, &n);
        reached += share(f, UINT32_MAX - (uint32_t)best);
        if (reached >= f->target || n == 0) return best;
    }
}

static void keep_best(const filter *f, uint64_t *keys)
{
    uint64_t cut = find_cut(f, keys);
    for (uint32_t i = 0; i < f->vocab; i++)
        if (f->weights[i] > 0 && key_of(f->scores[i], i) < cut) f->weights[i] = 0;
}

static double total_weight(const float *weights, uint32_t vocab)
{
    double sum = 0;
    for (uint32_t i = 0; i < vocab; i++) sum += weights[i];
    return sum;
}

static void apply_filters(const scratch *s, const float *scores, uint32_t vocab, float highest, const gb_sampling *sampling)
{
    filter f = {.scores = scores, .weights = s->weights, .vocab = vocab, .highest = highest,
                .per_score = BUCKETS_PER_NAT / sampling->temperature};
    for (uint32_t i = 0; sampling->min_p > 0 && i < vocab; i++)
        if (s->weights[i] < sampling->min_p) s->weights[i] = 0;
    if (sampling->top_k > 0 && (uint32_t)sampling->top_k < vocab) {
        f.target = sampling->top_k;
        keep_best(&f, s->keys);
    }
    if (sampling->top_p < 1) {
        f.by_mass = true;
        f.target = sampling->top_p * total_weight(s->weights, vocab);
        keep_best(&f, s->keys);
    }
}

/* --- the draw --- */

/* Inverts the distribution in the order of ids; rounding at the very end falls to the last token that can be. */
static int32_t draw(const float *weights, uint32_t vocab, double uniform)
{
    double left = uniform * total_weight(weights, vocab);
    int32_t last = -1;
    for (uint32_t i = 0; i < vocab; i++) {
        if (weights[i] == 0) continue;
        last = (int32_t)i;
        if (left < weights[i]) break;
        left -= weights[i];
    }
    return last;
}

static int32_t choose(const scratch *s, const float *scores, uint32_t vocab, const gb_work *work)
{
    const gb_sampling *sampling = work->sampling;
    int32_t best = best_token(scores, vocab);
    if (best < 0 || sampling->temperature < GREEDY_TEMPERATURE) return best;
    float highest = scores[best], per_score = 1 / sampling->temperature;
    for (uint32_t i = 0; i < vocab; i++) s->weights[i] = gb_exp_f32((scores[i] - highest) * per_score);
    apply_filters(s, scores, vocab, highest, sampling);
    return draw(s->weights, vocab, gb_rng_at(sampling->seed, work->n_tokens));
}

int gb_sampler_pick(gb_sampled *out, const float *logits, uint32_t vocab, const gb_work *work, void *memory)
{
    scratch s = lay_scratch(memory, vocab);
    GB_ASSERT(vocab > 0);
    out->cancelled = false;
    out->token = best_token(logits, vocab);
    if (out->token < 0) return GB_EINTERNAL;
    out->token = choose(&s, adjust(&s, logits, vocab, work), vocab, work);
    if (out->token < 0) return GB_EINTERNAL;    /* every token is banned */
    if (work->sampling->logprobs >= 0) report_logprobs(&out->logprobs, out->token, logits, vocab, (uint32_t)work->sampling->logprobs);
    return GB_OK;
}
