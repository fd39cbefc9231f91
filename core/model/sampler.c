#include "core/model/sampler.h"

#include <math.h>
#include <string.h>

#include "core/base/assert.h"
#include "core/base/exp.h"
#include "core/base/rng.h"

enum {
    LANES = 16,                  /* partial results of a pass over the vocabulary, so that compilers use vectors */
    BUCKETS = 1024,              /* of distance from the best token, in nats ... */
    BUCKETS_PER_NAT = 32,        /* ... so fine that few tokens share the one where top-p cuts */
    FEW = 1024,                  /* candidates that are ordered without buckets */
    PROMPT_BIT = 1u << 31,       /* in a token's count: it stands in the prompt */
};

/* Arrays of [vocab] in the caller's memory. */
typedef struct scratch {
    float *scores;               /* logits after bans and penalties */
    float *weights;              /* of candidates */
    float *chosen_scores;        /* of candidates that top-k chose, and their ids */
    int32_t *chosen_ids;
    uint64_t *keys;              /* a heap; the counts of penalties before that */
} scratch;

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

size_t gb_sampler_scratch_bytes(uint32_t vocab)
{
    return 4 * aligned(vocab * sizeof(float)) + aligned(vocab * sizeof(uint64_t));
}

static scratch lay_scratch(void *memory, uint32_t vocab)
{
    size_t floats = aligned(vocab * sizeof(float));
    char *at = memory;
    return (scratch){.scores = (float *)at, .weights = (float *)(at + floats), .chosen_scores = (float *)(at + 2 * floats),
                     .chosen_ids = (int32_t *)(at + 3 * floats), .keys = (uint64_t *)(at + 4 * floats)};
}

/* --- passes over many numbers --- */

static float largest(const float *x, uint32_t n)
{
    float top[LANES], highest = -INFINITY;
    uint32_t whole = n - n % LANES;
    for (int j = 0; j < LANES; j++) top[j] = -INFINITY;
    for (uint32_t i = 0; i < whole; i += LANES)
        for (int j = 0; j < LANES; j++) top[j] = x[i + j] > top[j] ? x[i + j] : top[j];
    for (int j = 0; j < LANES; j++) highest = top[j] > highest ? top[j] : highest;
    for (uint32_t i = whole; i < n; i++) highest = x[i] > highest ? x[i] : highest;
    return highest;
}

static double total(const float *x, uint32_t n)
{
    double sums[LANES] = {0}, sum = 0;
    uint32_t whole = n - n % LANES;
    for (uint32_t i = 0; i < whole; i += LANES)
        for (int j = 0; j < LANES; j++) sums[j] += x[i + j];
    for (int j = 0; j < LANES; j++) sum += sums[j];
    for (uint32_t i = whole; i < n; i++) sum += x[i];
    return sum;
}

/* out = exp((x - highest) * rate): 1 for the highest */
static void weigh(float *out, const float *x, uint32_t n, float highest, float rate)
{
    for (uint32_t i = 0; i < n; i++) out[i] = gb_exp_f32((x[i] - highest) * rate);
}

/* Every number is finite or -inf. */
static bool are_numbers(const float *x, uint32_t n)
{
    uint32_t any = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        any |= -(uint32_t)(bits > 0xff800000u) | -(uint32_t)(bits - 0x7f800000u < 0x00800000u);
    }
    return !any;
}

/* Lowest id among equals; -1 when no token is possible. */
static int32_t best_token(const float *scores, uint32_t vocab)
{
    float highest = largest(scores, vocab);
    int32_t i = 0;
    if (highest == -INFINITY) return -1;
    while (scores[i] != highest) i++;
    return i;
}

/* --- logprobs, of the raw logits --- */

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

static void report_logprobs(gb_logprobs *out, int32_t chosen, const float *logits, uint32_t vocab, uint32_t n, float *weights)
{
    float highest = largest(logits, vocab);
    weigh(weights, logits, vocab, highest, 1);
    float normalizer = highest + (float)log(total(weights, vocab));
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

/* --- the order of tokens: score falling, id rising; better ones have larger keys --- */

static uint64_t key_of(float score, uint32_t id)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)ordered << 32 | (UINT32_MAX - id);
}

static uint32_t id_of(uint64_t key) { return UINT32_MAX - (uint32_t)key; }

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

static void make_heap(uint64_t *heap, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) sift_down(heap, n, i);
}

/* --- top-k --- */

/* The tokens that may still be drawn, in the order of ids. */
typedef struct candidates {
    uint32_t n;
    const float *scores;
    const int32_t *ids;     /* NULL: 0 .. n - 1 */
    float *weights;         /* probability over that of the best token; 0 = filtered out */
} candidates;

/* The k-th best token's id. A heap of the complements of keys has the worst of the k best on top; whole groups of tokens that
   do not reach it are skipped. */
static uint32_t find_kth(const float *scores, uint32_t vocab, uint32_t k, uint64_t *heap)
{
    for (uint32_t i = 0; i < k; i++) heap[i] = ~key_of(scores[i], i);
    make_heap(heap, k);
    for (uint32_t begin = k; begin < vocab; begin += LANES) {
        uint32_t end = vocab - begin < LANES ? vocab : begin + LANES;
        if (!(largest(scores + begin, end - begin) > scores[id_of(~heap[0])])) continue;
        for (uint32_t i = begin; i < end; i++) {
            if (~key_of(scores[i], i) >= heap[0]) continue;
            heap[0] = ~key_of(scores[i], i);
            sift_down(heap, k, 0);
        }
    }
    return id_of(~heap[0]);
}

static candidates choose_top_k(const scratch *s, const float *scores, uint32_t vocab, uint32_t k)
{
    candidates c = {.scores = s->chosen_scores, .ids = s->chosen_ids, .weights = s->weights};
    uint32_t kth = find_kth(scores, vocab, k, s->keys);
    float lowest = scores[kth];
    for (uint32_t i = 0; i < vocab; i++) {
        if (scores[i] < lowest || (scores[i] == lowest && i > kth)) continue;
        s->chosen_scores[c.n] = scores[i];
        s->chosen_ids[c.n++] = (int32_t)i;
    }
    return c;
}

/* --- top-p ---

   Keeps the best candidates until their mass reaches the target. With many candidates a pass over buckets of score finds the
   bucket where that happens, and only that one is ordered. */

typedef struct nucleus {
    const candidates *c;
    float highest, per_score;    /* bucket = (highest - score) * per_score */
    double target, reached;
} nucleus;

static uint32_t bucket_of(const nucleus *u, uint32_t i)
{
    float distance = (u->highest - u->c->scores[i]) * u->per_score;
    return distance < BUCKETS - 1 ? (uint32_t)distance : BUCKETS - 1;
}

/* The bucket in which the target is met; reached becomes the mass of the better ones. */
static uint32_t find_bucket(nucleus *u)
{
    double sums[BUCKETS] = {0};
    uint32_t b = 0;
    for (uint32_t i = 0; i < u->c->n; i++) sums[bucket_of(u, i)] += u->c->weights[i];
    for (; b < BUCKETS - 1 && u->reached + sums[b] < u->target; b++) u->reached += sums[b];
    return b;
}

/* Candidates of the bucket (all of them when there are few) as keys of their positions. */
static size_t collect(nucleus *u, uint64_t *keys)
{
    size_t n = 0;
    bool few = u->c->n <= FEW;
    uint32_t bucket = few ? 0 : find_bucket(u);
    for (uint32_t i = 0; i < u->c->n; i++)
        if (u->c->weights[i] > 0 && (few || bucket_of(u, i) == bucket)) keys[n++] = key_of(u->c->scores[i], i);
    return n;
}

static void keep_nucleus(nucleus *u, uint64_t *keys)
{
    size_t n = collect(u, keys);
    uint32_t last = 0;
    make_heap(keys, n);
    while (n > 0 && u->reached < u->target) {
        last = id_of(keys[0]);
        u->reached += u->c->weights[last];
        keys[0] = keys[--n];
        sift_down(keys, n, 0);
    }
    float lowest = u->c->scores[last];
    for (uint32_t i = 0; i < u->c->n; i++)
        u->c->weights[i] = u->c->scores[i] > lowest || (u->c->scores[i] == lowest && i <= last) ? u->c->weights[i] : 0;
}

/* --- the draw --- */

/* Inverts the distribution in the order of ids; rounding at the very end falls to the last one that can be. */
static uint32_t draw(const candidates *c, double uniform)
{
    double left = uniform * total(c->weights, c->n);
    uint32_t last = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->weights[i] == 0) continue;
        last = i;
        if (left < c->weights[i]) break;
        left -= c->weights[i];
    }
    return last;
}

static int32_t choose(const scratch *s, const float *scores, uint32_t vocab, const gb_work *work)
{
    const gb_sampling *sampling = work->sampling;
    if (sampling->temperature < GB_GREEDY_TEMPERATURE) return best_token(scores, vocab);
    float highest = largest(scores, vocab);
    if (highest == -INFINITY) return -1;
    candidates c = {.n = vocab, .scores = scores, .weights = s->weights};
    if (sampling->top_k > 0 && (uint32_t)sampling->top_k < vocab) c = choose_top_k(s, scores, vocab, (uint32_t)sampling->top_k);
    weigh(c.weights, c.scores, c.n, highest, 1 / sampling->temperature);
    for (uint32_t i = 0; sampling->min_p > 0 && i < c.n; i++) c.weights[i] = c.weights[i] >= sampling->min_p ? c.weights[i] : 0;
    if (sampling->top_p < 1) {
        nucleus u = {.c = &c, .highest = highest, .per_score = BUCKETS_PER_NAT / sampling->temperature,
                     .target = sampling->top_p * total(c.weights, c.n)};
        keep_nucleus(&u, s->keys);
    }
    uint32_t at = draw(&c, gb_rng_at(sampling->seed, work->n_tokens));
    return c.ids ? c.ids[at] : (int32_t)at;
}

int gb_sampler_pick(gb_sampled *out, const float *logits, uint32_t vocab, const gb_work *work, void *memory)
{
    scratch s = lay_scratch(memory, vocab);
    GB_ASSERT(vocab > 0);
    out->cancelled = false;
    out->token = are_numbers(logits, vocab) ? choose(&s, adjust(&s, logits, vocab, work), vocab, work) : -1;
    if (out->token < 0) return GB_EINTERNAL;
    if (work->sampling->logprobs >= 0)
        report_logprobs(&out->logprobs, out->token, logits, vocab, (uint32_t)work->sampling->logprobs, s.weights);
    return GB_OK;
}
