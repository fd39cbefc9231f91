/* One round through the layers: what a row computes does not depend on its batch, its chunks, its threads or where experts
   live; counts are those of the routes; a cancelled work leaves and nobody notices. */
#include "core/forward/forward.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/rng.h"
#include "core/moe/migrate.h"
#include "core/moe/trade.h"
#include "tests/check.h"
#include "tests/forward/harness.h"

enum { PROMPT = 130, OTHERS = 31, VOCAB = 300 };    /* tokens that every checkpoint here has */

static const harness_options bundled = {.directory = "examples/models/tiny-moe", .tap = true};
static const harness_options small = {.directory = "tests/golden/many-experts", .tap = true};

static void random_tokens(int32_t *tokens, uint32_t n, uint64_t seed)
{
    gb_rng rng;
    gb_rng_init(&rng, seed);
    for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)gb_rng_below(&rng, VOCAB);
}

static uint64_t mix_words(uint64_t hash, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &x[i], sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
    }
    return gb_mix64(hash);
}

/* The bits of all that a tap saw of the first n positions, as one number. */
static uint64_t bits_of(const harness *h, uint32_t n)
{
    const gb_model_config *c = &h->config;
    uint64_t hash = mix_words(1, h->logits, (size_t)n * c->vocab);
    for (uint32_t depth = 0; depth <= c->layers; depth++)
        hash = mix_words(hash, h->hidden + (size_t)depth * HARNESS_POSITIONS * c->hidden, (size_t)n * c->hidden);
    return hash;
}

/* --- batch invariance --- */

static uint64_t bits_in_chunks(const harness_options *options, uint32_t chunk)
{
    harness h;
    int32_t tokens[PROMPT];
    random_tokens(tokens, PROMPT, 1);
    harness_open(&h, options);
    harness_feed(&h, tokens, PROMPT, chunk, &harness_greedy);
    uint64_t bits = bits_of(&h, PROMPT);
    harness_close(&h);
    return bits;
}

static void check_chunks(const harness_options *options)
{
    static const uint32_t chunks[] = {1, 16, 37, 64, 128};
    uint64_t whole = bits_in_chunks(options, HARNESS_POSITIONS);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) CHECK_EQ(bits_in_chunks(options, chunks[i]), whole);
}

static void a_row_has_the_same_bits_in_chunks_of_any_size(void)
{
    check_chunks(&bundled);
    for (const gb_matmul_rung *const *rung = harness_rungs(); *rung; rung++)
        for (int f32 = 0; f32 < 2; f32++) {
            harness_options options = {.directory = f32 ? "tests/golden/odd-sizes" : "tests/golden/sliding-window", .tap = true};
            options.rung = *rung;
            options.f32 = f32;
            check_chunks(&options);
        }
}

static void a_row_has_the_same_bits_with_one_two_or_three_threads(void)
{
    harness_options options = small;
    uint64_t one = bits_in_chunks(&options, 64);
    for (options.threads = 2; options.threads <= 3; options.threads++) CHECK_EQ(bits_in_chunks(&options, 64), one);
}

/* Work 0 in chunks of 64, with OTHERS sequences of other lengths beside it, some of them decoding. */
static uint64_t bits_in_a_crowd(uint32_t engines)
{
    harness h;
    static int32_t tokens[1 + OTHERS][PROMPT];
    harness_options options = small;
    options.engines = options.ranks = engines;
    options.max_tokens = 64 + 16 * OTHERS;
    options.threads = 2;
    harness_open(&h, &options);
    random_tokens(tokens[0], PROMPT, 1);
    for (uint32_t s = 1; s <= OTHERS; s++) random_tokens(tokens[s], PROMPT, s + 1);
    for (uint32_t start = 0, step = 0; start < PROMPT; start += 64, step++) {
        harness_clear(&h);
        harness_add(&h, 0, 0, tokens[0], PROMPT, PROMPT, start, PROMPT - start < 64 ? PROMPT - start : 64, &harness_greedy);
        for (uint32_t s = 1; s <= OTHERS; s++) {
            uint32_t count = s % 16 + 1;
            harness_add(&h, s % engines, s, tokens[s], PROMPT, PROMPT, step * count, count, &harness_greedy);
        }
        CHECK_EQ(harness_run(&h), GB_OK);
    }
    uint64_t bits = bits_of(&h, PROMPT);
    harness_close(&h);
    return bits;
}

static void a_row_has_the_same_bits_alone_and_in_a_batch_of_32(void)
{
    uint64_t alone = bits_in_chunks(&small, HARNESS_POSITIONS);
    CHECK_EQ(bits_in_a_crowd(1), alone);
    CHECK_EQ(bits_in_a_crowd(2), alone);
}

static void a_seed_samples_the_same_tokens_alone_and_beside_others(void)
{
    harness h;
    int32_t tokens[2][PROMPT + 2] = {{0}}, mates[PROMPT];
    gb_sampling sampling;
    gb_sampling_default(&sampling);
    sampling.seed = 7;
    random_tokens(mates, PROMPT, 3);
    harness_open(&h, &small);
    for (int crowd = 0; crowd < 2; crowd++) {
        random_tokens(tokens[crowd], 8, 2);
        for (uint32_t n = 8; n < 40; n++) {
            uint32_t start = n == 8 ? 0 : n - 1;
            harness_clear(&h);
            for (uint32_t s = 0; crowd && s < 5; s++) harness_add(&h, 0, 1 + s, mates, PROMPT, PROMPT, n - 8, s + 1, &sampling);
            uint32_t work = harness_add(&h, 0, 0, tokens[crowd], n, 8, start, n - start, &sampling);
            CHECK_EQ(harness_run(&h), GB_OK);
            tokens[crowd][n] = h.result.sampled[0][work].token;
        }
    }
    CHECK(memcmp(tokens[0], tokens[1], 40 * sizeof tokens[0][0]) == 0);
    harness_close(&h);
}

/* --- counts --- */

static void counts_are_those_of_the_routes(void)
{
    harness h;
    int32_t tokens[PROMPT];
    random_tokens(tokens, PROMPT, 1);
    harness_options options = small;
    options.engines = 2;
    options.ranks = 4;
    harness_open(&h, &options);
    harness_clear(&h);
    harness_add(&h, 0, 0, tokens, PROMPT, PROMPT, 0, PROMPT, &harness_greedy);
    harness_add(&h, 1, 1, tokens, PROMPT, PROMPT, 0, 20, &harness_greedy);
    CHECK_EQ(harness_run(&h), GB_OK);
    uint32_t K = h.config.experts_per_token, E = h.config.experts;
    uint64_t arrived[4] = {0};
    for (uint32_t layer = 0; layer < h.config.moe_layers; layer++) {
        uint64_t want[GB_EXPERTS_MAX] = {0}, other = 0;
        for (uint32_t i = 0; i < PROMPT * K; i++) want[h.experts[layer * HARNESS_POSITIONS * K + i]]++;
        for (uint32_t e = 0; e < E; e++) {
            CHECK_EQ(gb_matrix_row(&h.result.counts, layer, 0)[e], want[e]);
            other += gb_matrix_row(&h.result.counts, layer, 1)[e];
            arrived[e / (E / 4)] += gb_matrix_row(&h.result.counts, layer, 0)[e] + gb_matrix_row(&h.result.counts, layer, 1)[e];
        }
        CHECK_EQ(other, 20 * K);
    }
    for (uint32_t r = 0; r < 4; r++) CHECK_EQ(h.result.rank_tokens[r], arrived[r]);
    harness_close(&h);
}

static void a_round_of_empty_batches_counts_nothing(void)
{
    harness h;
    harness_options options = small;
    options.engines = options.ranks = 2;
    harness_open(&h, &options);
    harness_clear(&h);
    h.result.rank_tokens[1] = 5;
    gb_matrix_row(&h.result.counts, 0, 1)[3] = 5;
    CHECK_EQ(harness_run(&h), GB_OK);
    CHECK_EQ(h.result.rank_tokens[1], 0);
    CHECK_EQ(gb_matrix_row(&h.result.counts, 0, 1)[3], 0);
    CHECK_EQ(h.result.seq, h.round.seq);
    harness_close(&h);
}

static void an_idle_engine_does_not_show_in_the_other_s_bits(void)
{
    harness h;
    int32_t tokens[PROMPT];
    random_tokens(tokens, PROMPT, 1);
    harness_options options = small;
    options.engines = options.ranks = 4;
    harness_open(&h, &options);
    harness_feed(&h, tokens, PROMPT, PROMPT, &harness_greedy);
    CHECK_EQ(bits_of(&h, PROMPT), bits_in_chunks(&small, PROMPT));
    harness_close(&h);
}

/* --- experts that move --- */

static void copy_expert(harness *h, uint32_t layer, int32_t to, int32_t from)
{
    gb_copy copy = {.layer = layer, .from = from, .to = to, .bytes = h->ops->info.expert_bytes};
    CHECK_EQ(gb_ops_copy_expert(h->ops, &copy), GB_OK);
}

/* Moves an expert to the first empty slot of a rank and lets another expert's bytes overwrite its old slot, so that a stale
   route would be seen. */
static void move_expert(harness *h, uint32_t layer, int32_t expert, uint32_t rank)
{
    int32_t *slots = gb_placement_layer_slots(&h->placement, layer);
    uint32_t to = rank * h->placement.slots_per_rank, from = 0;
    while (slots[to] != -1) to++;
    while (slots[from] != expert) from++;
    copy_expert(h, layer, (int32_t)to, (int32_t)from);
    copy_expert(h, layer, (int32_t)from, (int32_t)(from ? from - 1 : from + 1));
    slots[to] = expert;
    slots[from] = -1;
    for (uint32_t s = 0; s < h->placement.sources; s++) gb_placement_routes(&h->placement, layer, s)[expert] = (int32_t)to;
    h->placement.version++;
}

static void experts_that_moved_give_the_same_bits(void)
{
    harness h;
    int32_t tokens[PROMPT];
    gb_error err = {0};
    random_tokens(tokens, PROMPT, 1);
    harness_options options = small;
    options.engines = 2;
    options.ranks = 4;
    options.spare_slots = 2;
    harness_open(&h, &options);
    harness_feed(&h, tokens, PROMPT, PROMPT, &harness_greedy);
    uint64_t before = bits_of(&h, PROMPT), sent = gb_matrix_row(&h.result.counts, 1, 0)[3], home = h.result.rank_tokens[0];
    uint64_t moved = 0;
    for (uint32_t layer = 0; layer < h.config.moe_layers; layer++)
        for (int32_t e = 3; e < 5; e++) {    /* from rank 0 to ranks 2 and 3 */
            move_expert(&h, layer, e, 2 + (uint32_t)e % 2);
            moved += gb_matrix_row(&h.result.counts, layer, 0)[e];
        }
    CHECK_EQ(gb_placement_check(&h.placement, &err), GB_OK);
    harness_feed(&h, tokens, PROMPT, PROMPT, &harness_greedy);
    CHECK_EQ(bits_of(&h, PROMPT), before);
    CHECK_EQ(gb_matrix_row(&h.result.counts, 1, 0)[3], sent);
    CHECK(moved > 0);
    CHECK_EQ(h.result.rank_tokens[0], home - moved);
    harness_close(&h);
}

static void replicas_serve_their_sources_with_the_same_bits(void)
{
    harness h;
    int32_t tokens[PROMPT];
    random_tokens(tokens, PROMPT, 1);
    harness_options options = small;
    options.engines = options.ranks = 2;
    options.spare_slots = 1;
    harness_open(&h, &options);
    for (uint32_t layer = 0; layer < h.config.moe_layers; layer++) {    /* expert 0 also on rank 1, for source 1 */
        uint32_t spare = 2 * h.placement.slots_per_rank - 1;
        copy_expert(&h, layer, (int32_t)spare, 0);
        gb_placement_layer_slots(&h.placement, layer)[spare] = 0;
        gb_placement_routes(&h.placement, layer, 1)[0] = (int32_t)spare;
    }
    harness_clear(&h);
    harness_add(&h, 0, 0, tokens, PROMPT, PROMPT, 0, PROMPT, &harness_greedy);
    harness_add(&h, 1, 1, tokens, PROMPT, PROMPT, 0, PROMPT, &harness_greedy);
    CHECK_EQ(harness_run(&h), GB_OK);
    CHECK_EQ(bits_of(&h, PROMPT), bits_in_chunks(&small, PROMPT));
    CHECK_EQ(h.result.sampled[0][0].token, h.result.sampled[1][0].token);
    uint64_t own = 0;
    for (uint32_t layer = 0; layer < h.config.moe_layers; layer++) own += gb_matrix_row(&h.result.counts, layer, 1)[0];
    CHECK(own > 0);
    harness_close(&h);
}

/* Ranks 0 and 1 both have expert 0 of every layer, and its tokens go to them in halves. */
static void share_expert_0(harness *h)
{
    for (uint32_t layer = 0; layer < h->config.moe_layers; layer++) {
        int32_t spare = 2 * (int32_t)h->placement.slots_per_rank - 1;
        size_t route = gb_placement_route_index(&h->placement, layer, 0, 0);
        copy_expert(h, layer, spare, 0);
        gb_placement_layer_slots(&h->placement, layer)[spare] = 0;
        h->placement.other[route] = spare;
        h->placement.other_share[route] = GB_SHARES / 2;
    }
    CHECK_EQ(gb_placement_check(&h->placement, NULL), GB_OK);
}

/* What arrives at rank 1 when these positions of a sequence are computed, beside `rows` positions of another one. */
static uint64_t arrivals(harness *h, const int32_t *tokens, uint32_t start, uint32_t count, const int32_t *others, uint32_t rows)
{
    harness_clear(h);
    if (rows) harness_add(h, 0, 1, others, rows, rows, 0, rows, &harness_greedy);
    if (count) harness_add(h, 0, 0, tokens, start + count, start + count, start, count, &harness_greedy);
    CHECK_EQ(harness_run(h), GB_OK);
    return h->result.rank_tokens[1];
}

static void a_token_goes_to_the_same_copy_whole_in_chunks_and_among_others(void)
{
    enum { OTHER = 23, CHUNK = 7 };
    harness h;
    int32_t tokens[PROMPT], others[OTHER];
    uint64_t in_chunks = 0;
    random_tokens(tokens, PROMPT, 1);
    random_tokens(others, OTHER, 2);
    harness_options options = small;
    options.ranks = 2;
    options.spare_slots = 1;
    harness_open(&h, &options);
    uint64_t unshared = arrivals(&h, tokens, 0, PROMPT, others, 0);
    share_expert_0(&h);
    uint64_t whole = arrivals(&h, tokens, 0, PROMPT, others, 0);
    CHECK(whole > unshared);
    for (uint32_t start = 0; start < PROMPT; start += CHUNK) in_chunks += arrivals(&h, tokens, start, PROMPT - start < CHUNK ? PROMPT - start : CHUNK, others, 0);
    CHECK_EQ(in_chunks, whole);
    uint64_t alone = arrivals(&h, tokens, 0, 0, others, OTHER);
    CHECK_EQ(arrivals(&h, tokens, 0, PROMPT, others, OTHER), whole + alone);
    harness_close(&h);
}

/* Two copies share the tokens of one source: every token counts once, at the rank that its name chooses. */
static void copies_that_share_a_source_give_the_same_bits(void)
{
    harness h;
    int32_t tokens[PROMPT];
    random_tokens(tokens, PROMPT, 1);
    harness_options options = small;
    options.ranks = 2;
    options.spare_slots = 1;
    harness_open(&h, &options);
    harness_feed(&h, tokens, PROMPT, PROMPT, &harness_greedy);
    uint64_t before = bits_of(&h, PROMPT), at_home = h.result.rank_tokens[0], sent = 0;
    for (uint32_t layer = 0; layer < h.config.moe_layers; layer++) sent += gb_matrix_row(&h.result.counts, layer, 0)[0];
    share_expert_0(&h);
    harness_feed(&h, tokens, PROMPT, PROMPT, &harness_greedy);
    CHECK_EQ(bits_of(&h, PROMPT), before);
    uint64_t gone = at_home - h.result.rank_tokens[0];
    CHECK(gone > 0 && gone < sent);
    harness_close(&h);
}

static uint64_t checksum(const harness *h, uint32_t layer, int32_t place) { return gb_executor_checksum(h->executor, layer, (uint32_t)place); }

static void an_expert_copied_in_pieces_has_the_checksum_of_the_whole(void)
{
    harness h;
    harness_options options = small;
    options.ranks = 2;
    harness_open(&h, &options);
    int32_t spare = (int32_t)h.ops->info.slots;
    uint64_t bytes = h.ops->info.expert_bytes, piece = bytes / 3 + 1;
    CHECK_EQ(h.ops->info.places, h.ops->info.slots + 2);
    CHECK(checksum(&h, 1, 0) != checksum(&h, 1, 1) && checksum(&h, 1, 0) != checksum(&h, 0, 0));
    for (uint64_t offset = 0; offset < bytes; offset += piece) {
        CHECK(checksum(&h, 1, spare) != checksum(&h, 1, 0));
        gb_copy_list list = {.n = 1, .copies = {{.layer = 1, .from = 0, .to = spare, .offset = offset,
                                                .bytes = bytes - offset < piece ? bytes - offset : piece}}};
        CHECK_EQ(gb_executor_copy(h.executor, &list), GB_OK);
    }
    CHECK_EQ(checksum(&h, 1, spare), checksum(&h, 1, 0));
    harness_close(&h);
}

enum { LAYERS_MAX = 8, EXPERTS_MAX = 128 };    /* of the golden model */

/* Random experts of all layers trade ranks; every expert keeps its weights and every row its bits. */
static void check_migrations(bool shared_ranks)
{
    harness h;
    gb_migrate migrate;
    gb_placement to;
    gb_rng rng;
    int32_t tokens[PROMPT];
    static uint64_t sums[LAYERS_MAX][EXPERTS_MAX];
    harness_options options = small;
    options.ranks = 4;
    options.shared_ranks = shared_ranks;
    harness_open(&h, &options);
    random_tokens(tokens, PROMPT, 1);
    gb_rng_init(&rng, 1);
    gb_migrate_options o = {.private_ranks = !shared_ranks, .expert_bytes = h.ops->info.expert_bytes, .list_bytes = h.ops->info.expert_bytes / 2 + 1};
    CHECK_EQ(gb_migrate_init(&migrate, &h.arena, &h.placement, &o, NULL), GB_OK);
    CHECK_EQ(gb_placement_init(&to, &h.arena, h.config.moe_layers, 1, h.config.experts, 4, 0, NULL), GB_OK);
    CHECK(h.config.moe_layers <= LAYERS_MAX && h.config.experts <= EXPERTS_MAX);
    for (uint32_t l = 0; l < h.config.moe_layers; l++)
        for (uint32_t e = 0; e < h.config.experts; e++) sums[l][e] = checksum(&h, l, (int32_t)e);
    harness_feed(&h, tokens, PROMPT, PROMPT, &harness_greedy);
    uint64_t before = bits_of(&h, PROMPT);
    for (int i = 0; i < 8; i++) {
        gb_copy_list list;
        gb_placement_copy(&to, &h.placement);
        gb_trade_at_random(&to, &rng);
        CHECK_EQ(gb_migrate_start(&migrate, &to, NULL, 0, NULL), GB_OK);
        while (gb_migrate_state_of(&migrate) != GB_MIGRATE_IDLE) {
            if (gb_migrate_poll(&migrate, &list)) gb_migrate_copied(&migrate, gb_executor_copy(h.executor, &list), 0);
            gb_migrate_flip(&migrate, 0);
        }
        CHECK(gb_migrate_is_sound(&migrate));
        harness_feed(&h, tokens, PROMPT, PROMPT, &harness_greedy);
        CHECK_EQ(bits_of(&h, PROMPT), before);
    }
    for (uint32_t l = 0; l < h.config.moe_layers; l++)
        for (uint32_t e = 0; e < h.config.experts; e++)
            CHECK_EQ(checksum(&h, l, gb_placement_layer_places(&h.placement, l)[gb_placement_routes(&h.placement, l, 0)[e]]), sums[l][e]);
    CHECK_EQ(gb_migrate_stats_of(&migrate).done, 8);
    CHECK_EQ(gb_migrate_stats_of(&migrate).experts_moved, 8 * 2 * h.config.moe_layers);
    harness_close(&h);
}

static void migrations_between_ranks_with_their_own_memory_keep_every_bit(void) { check_migrations(false); }

static void migrations_between_ranks_that_share_memory_keep_every_bit(void) { check_migrations(true); }

static void ranks_that_share_memory_have_nothing_to_copy(void)
{
    harness h;
    harness_options options = small;
    options.ranks = 2;
    options.shared_ranks = true;
    harness_open(&h, &options);
    gb_copy_list list = {.n = 1, .copies = {{.layer = 0, .from = 0, .to = 1, .bytes = 1}}};
    CHECK_EQ(h.ops->info.places, h.config.experts);
    CHECK_EQ(gb_executor_copy(h.executor, &list), GB_EUNSUPPORTED);
    harness_close(&h);
}

/* --- cancel --- */

typedef struct canceller {
    harness *h;
    uint32_t at_depth, work;      /* cancel this work when the tap comes by this depth */
    uint32_t deepest_seen;        /* depth at which its rows were last seen */
} canceller;

static void cancel_at_depth(void *self, const gb_row_set *rows, uint32_t depth, const float *x)
{
    canceller *c = self;
    (void)x;
    for (uint32_t i = 0; i < rows->n_spans; i++)
        if (rows->spans[i].work == c->work) c->deepest_seen = depth;
    if (depth == c->at_depth) gb_executor_cancel(c->h->executor, c->h->round.seq, 0, c->work);
}

/* Works 0, 1, 2 of 50 positions; work 1 is cancelled after layer 1. Returns the tokens in sampled. */
static void run_three(harness *h, int32_t tokens[3][50], gb_sampled *sampled)
{
    harness_clear(h);
    for (uint32_t s = 0; s < 3; s++) harness_add(h, 0, s, tokens[s], 50, 50, 0, 50, &harness_greedy);
    CHECK_EQ(harness_run(h), GB_OK);
    for (uint32_t s = 0; s < 3; s++) sampled[s] = h->result.sampled[0][s];
}

static void replace_executor(harness *h, canceller *c)
{
    gb_forward_tap tap = {.self = c, .hidden = cancel_at_depth};
    gb_cpu_options options;
    gb_weights *weights;
    gb_error err = {0};
    gb_cpu_options_default(&options, &h->config);
    options.limits = h->ops->info.limits;
    CHECK_EQ(gb_weights_open(&weights, check_path(small.directory), &err), GB_OK);
    gb_executor_free(h->executor);
    CHECK_EQ(gb_cpu_ops_new(&h->ops, &h->config, weights, &options, &err), GB_OK);
    CHECK_EQ(gb_forward_new(&h->executor, &h->config, h->ops, &tap, &err), GB_OK);
    gb_weights_free(weights);
}

static void a_cancelled_work_leaves_within_a_layer_and_its_mates_go_on(void)
{
    harness h;
    int32_t tokens[3][50];
    gb_sampled before[3], after[3];
    for (uint32_t s = 0; s < 3; s++) random_tokens(tokens[s], 50, 10 + s);
    harness_open(&h, &small);
    run_three(&h, tokens, before);
    canceller c = {.h = &h, .at_depth = 1, .work = 1};
    replace_executor(&h, &c);
    run_three(&h, tokens, after);
    CHECK_EQ(c.deepest_seen, 1);
    CHECK(after[1].cancelled && after[1].token == -1);
    CHECK(!after[0].cancelled && !after[2].cancelled);
    CHECK_EQ(after[0].token, before[0].token);
    CHECK_EQ(after[2].token, before[2].token);
    harness_close(&h);
}

static void a_round_whose_works_are_all_cancelled_ends_at_once(void)
{
    harness h;
    int32_t tokens[PROMPT];
    random_tokens(tokens, PROMPT, 1);
    harness_open(&h, &small);
    canceller c = {.h = &h, .at_depth = 1};
    replace_executor(&h, &c);
    harness_clear(&h);
    harness_add(&h, 0, 0, tokens, PROMPT, PROMPT, 0, PROMPT, &harness_greedy);
    CHECK_EQ(harness_run(&h), GB_OK);
    CHECK_EQ(c.deepest_seen, 1);
    CHECK(h.result.sampled[0][0].cancelled);
    uint64_t later = 0;
    for (uint32_t e = 0; e < h.config.experts; e++) later += gb_matrix_row(&h.result.counts, 1, 0)[e];
    CHECK_EQ(later, 0);
    harness_close(&h);
}

static void a_cancelled_work_leaves_the_bits_of_the_others_alone(void)
{
    harness h;
    int32_t tokens[3][50];
    gb_sampled sampled[3];
    for (uint32_t s = 0; s < 3; s++) random_tokens(tokens[s], 50, 10 + s);
    harness_open(&h, &small);
    run_three(&h, tokens, sampled);
    uint64_t before = bits_of(&h, 50);
    gb_executor_cancel(h.executor, h.round.seq + 1, 0, 2);
    run_three(&h, tokens, sampled);
    CHECK(sampled[2].cancelled);
    CHECK_EQ(bits_of(&h, 50), before);
    harness_close(&h);
}

static void a_stale_cancel_is_ignored(void)
{
    harness h;
    int32_t tokens[3][50];
    gb_sampled sampled[3];
    for (uint32_t s = 0; s < 3; s++) random_tokens(tokens[s], 50, 10 + s);
    harness_open(&h, &small);
    run_three(&h, tokens, sampled);
    gb_executor_cancel(h.executor, h.round.seq, 0, 0);
    run_three(&h, tokens, sampled);
    CHECK(!sampled[0].cancelled && sampled[0].token >= 0);
    harness_close(&h);
}

typedef struct pesterer {
    harness *h;
    atomic_uint_fast64_t round;    /* the one to cancel; 0 = stop */
} pesterer;

static void *pester(void *self)
{
    pesterer *p = self;
    for (uint64_t round; (round = atomic_load(&p->round)) != 0; sched_yield()) gb_executor_cancel(p->h->executor, round, 0, 1);
    return NULL;
}

static void cancels_come_from_another_thread_at_any_moment(void)
{
    enum { ROUNDS = 10 };
    harness h;
    pthread_t thread;
    int32_t tokens[3][50];
    gb_sampled sampled[3], before[3];
    for (uint32_t s = 0; s < 3; s++) random_tokens(tokens[s], 50, 10 + s);
    harness_options options = small;
    options.threads = 2;
    harness_open(&h, &options);
    run_three(&h, tokens, before);
    uint64_t last = h.round.seq + ROUNDS;
    pesterer p = {.h = &h, .round = last};    /* too early for all rounds but the last */
    CHECK_EQ(pthread_create(&thread, NULL, pester, &p), 0);
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        while (i == ROUNDS && !gb_ops_cancelled(h.ops, last, 0, 1)) sched_yield();
        run_three(&h, tokens, sampled);
        CHECK_EQ(sampled[0].token, before[0].token);
        CHECK_EQ(sampled[2].token, before[2].token);
        if (i < ROUNDS) CHECK_EQ(sampled[1].token, before[1].token);
        else CHECK(sampled[1].cancelled);
    }
    atomic_store(&p.round, 0);
    pthread_join(thread, NULL);
    harness_close(&h);
}

/* --- a backend that fails: the CPU's table with one op exchanged --- */

static uint32_t calls_until_failure;

static int failing_experts(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    (void)ops, (void)rows, (void)moe_layer;
    return --calls_until_failure ? GB_OK : GB_EDOWN;
}

static void an_op_that_fails_ends_the_round_with_its_status(void)
{
    harness h;
    int32_t tokens[PROMPT];
    random_tokens(tokens, PROMPT, 1);
    harness_open(&h, &small);
    const gb_ops_table *healthy = h.ops->table;
    gb_ops_table faulty = *healthy;
    faulty.experts = failing_experts;
    h.ops->table = &faulty;
    for (uint32_t layer = 0; layer < h.config.moe_layers; layer++) {
        calls_until_failure = layer + 1;
        harness_clear(&h);
        harness_add(&h, 0, 0, tokens, PROMPT, PROMPT, 0, PROMPT, &harness_greedy);
        CHECK_EQ(harness_run(&h), GB_EDOWN);
        CHECK_EQ(h.result.status, GB_EDOWN);
        CHECK_EQ(h.result.sampled[0][0].token, -1);
    }
    h.ops->table = healthy;
    harness_feed(&h, tokens, PROMPT, PROMPT, &harness_greedy);
    CHECK_EQ(bits_of(&h, PROMPT), bits_in_chunks(&small, PROMPT));
    harness_close(&h);
}

/* --- memory --- */

static void a_round_allocates_nothing(void)
{
    harness h;
    int32_t tokens[PROMPT];
    random_tokens(tokens, PROMPT, 1);
    harness_open(&h, &small);
    gb_sampling sampling;
    gb_sampling_default(&sampling);
    sampling.top_p = 0.9f;
    sampling.logprobs = 5;
    harness_feed(&h, tokens, PROMPT, PROMPT, &sampling);
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < 20; i++) harness_feed(&h, tokens, PROMPT, 100, &sampling);
    struct mallinfo2 after = mallinfo2();
    CHECK_EQ(after.uordblks, before.uordblks);
    CHECK_EQ(after.hblkhd, before.hblkhd);
    harness_close(&h);
}

TESTS(TEST(a_row_has_the_same_bits_in_chunks_of_any_size), TEST(a_row_has_the_same_bits_with_one_two_or_three_threads),
      TEST(a_row_has_the_same_bits_alone_and_in_a_batch_of_32), TEST(a_seed_samples_the_same_tokens_alone_and_beside_others),
      TEST(counts_are_those_of_the_routes), TEST(a_round_of_empty_batches_counts_nothing),
      TEST(an_idle_engine_does_not_show_in_the_other_s_bits), TEST(experts_that_moved_give_the_same_bits),
      TEST(replicas_serve_their_sources_with_the_same_bits),
      TEST(copies_that_share_a_source_give_the_same_bits), TEST(a_token_goes_to_the_same_copy_whole_in_chunks_and_among_others),
      TEST(an_expert_copied_in_pieces_has_the_checksum_of_the_whole),
      TEST(migrations_between_ranks_with_their_own_memory_keep_every_bit),
      TEST(migrations_between_ranks_that_share_memory_keep_every_bit), TEST(ranks_that_share_memory_have_nothing_to_copy), TEST(a_cancelled_work_leaves_within_a_layer_and_its_mates_go_on),
      TEST(a_round_whose_works_are_all_cancelled_ends_at_once), TEST(a_cancelled_work_leaves_the_bits_of_the_others_alone),
      TEST(a_stale_cancel_is_ignored), TEST(cancels_come_from_another_thread_at_any_moment),
      TEST(an_op_that_fails_ends_the_round_with_its_status), TEST(a_round_allocates_nothing))
