/* The whole backend against the cpu: logits of checkpoints within what bfloat16 allows, counts, and the bits of a row against itself in
   chunks, in company, over other ranks and after its experts moved. */
#include <stdlib.h>

#include "core/base/rng.h"
#include "core/model/sampler.h"
#include "cuda/cuemu/control.h"
#include "cuda/host/context.h"
#include "tests/check.h"
#include "tests/forward/harness.h"

gb_backend_open_fn gimbal_backend_open;

static const gb_backend *device(void) { return gimbal_backend_open(GB_BACKEND_ABI); }

static void random_tokens(int32_t *tokens, uint32_t n, uint32_t vocab, uint64_t seed)
{
    gb_rng rng;
    gb_rng_init(&rng, seed);
    for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)gb_rng_below(&rng, vocab);
}

static harness_options on_device(const char *directory) { return (harness_options){.directory = directory, .backend = device(), .tap = true}; }

/* --- against the cpu --- */

/* Where a router's near-tie falls to the other side, another expert answers for good reason: such rows may be few, and all others must
   agree. */
enum { AGREE_POSITIONS = 48, FLIPS_MAX = 5 };

static double row_error(const float *got, const float *want, uint32_t n)
{
    double difference = 0, size = 0;
    for (uint32_t i = 0; i < n; i++) {
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += (double)want[i] * want[i];
    }
    return sqrt(difference / size);
}

/* Both sent the position to the same experts in every layer; equal weights may stand in either order. */
static bool same_routes(const harness *a, const harness *b, uint32_t position)
{
    uint32_t K = a->config.experts_per_token;
    for (uint32_t layer = 0; layer < a->config.moe_layers; layer++) {
        size_t at = (layer * (size_t)HARNESS_POSITIONS + position) * K;
        for (uint32_t k = 0, same = 0; k < K; k++, same = 0) {
            for (uint32_t j = 0; j < K; j++) same += a->experts[at + k] == b->experts[at + j];
            if (same != 1) return false;
        }
    }
    return true;
}

/* The backend's favourite is the cpu's, or nearly as good in the cpu's eyes. */
static void check_favourite(const float *got, const float *want, uint32_t n)
{
    uint32_t favourite = 0;
    float highest = -INFINITY, spread = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (got[i] > got[favourite]) favourite = i;
        highest = fmaxf(highest, want[i]);
        spread = fmaxf(spread, fabsf(want[i]));
    }
    CHECK_NEAR(want[favourite], highest, 0.05 * spread);
}

static void check_agreement(const char *directory, const char *experts)
{
    harness cpu, cuda;
    harness_options options = {.directory = directory, .tap = true};
    int32_t tokens[AGREE_POSITIONS];
    uint32_t flips = 0;
    double worst = 0;
    harness_open(&cpu, &options);
    options.backend = device();
    options.experts = experts;
    harness_open(&cuda, &options);
    uint32_t vocab = cpu.config.vocab;
    random_tokens(tokens, AGREE_POSITIONS, vocab, 1);
    harness_feed(&cpu, tokens, AGREE_POSITIONS, AGREE_POSITIONS, &harness_greedy);
    harness_feed(&cuda, tokens, AGREE_POSITIONS, AGREE_POSITIONS, &harness_greedy);
    for (uint32_t p = 0; p < AGREE_POSITIONS; p++) {
        const float *got = cuda.logits + (size_t)p * vocab, *want = cpu.logits + (size_t)p * vocab;
        if (!same_routes(&cuda, &cpu, p)) {
            flips++;
            continue;
        }
        worst = fmax(worst, row_error(got, want, vocab));
        check_favourite(got, want, vocab);
    }
    if (worst > 0.04 || flips > FLIPS_MAX) printf("    %s: relative error %.4f, %u other routes\n", directory, worst, flips);
    CHECK_NEAR(worst, 0, 0.04);
    CHECK(flips <= FLIPS_MAX);
    harness_close(&cpu);
    harness_close(&cuda);
}

/* Where every access is checked, a few small checkpoints show as much and take seconds instead of minutes. */
#ifdef __SANITIZE_ADDRESS__
static bool is_slow(void) { return true; }
#else
static bool is_slow(void) { return cuemu_tracks(); }
#endif

static void logits_of_the_bundled_model_agree_with_the_cpu(void)
{
    if (!is_slow()) check_agreement("examples/models/tiny-moe", NULL);
}

static void logits_of_every_kind_of_checkpoint_agree_with_the_cpu(void)
{
    static const char *const kinds[] = {
        "plain", "dense-mixed", "sliding-window", "attention-bias", "wide-heads", "all-kv-heads", "all-experts", "top-1", "no-renorm",
        "many-experts", "tied", "f16-sharded", "rope-yarn",
    };
    for (size_t i = 0; i < (is_slow() ? 3 : sizeof kinds / sizeof *kinds); i++) {
        char directory[64];
        snprintf(directory, sizeof directory, "tests/golden/%s", kinds[i]);
        check_agreement(directory, NULL);
    }
}

static void logits_agree_with_the_cpu_whatever_runs_the_experts(void)
{
    static const char *const families[] = {"wgmma", "mma", "cublas"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) check_agreement("tests/golden/dense-mixed", families[i]);
}

/* It waits for the sizes of groups, which no capture allows. */
static void steps_with_cublas_are_no_graphs(void)
{
    harness h;
    harness_options options = on_device("tests/golden/plain");
    int32_t tokens[5];
    options.graphs = true;
    options.experts = "cublas";
    harness_open(&h, &options);
    random_tokens(tokens, 5, h.config.vocab, 1);
    harness_feed(&h, tokens, 5, 1, &harness_greedy);
    harness_close(&h);
}

/* --- a row against itself --- */

enum { PROMPT = 40 };

static const char *const models[] = {"tests/golden/sliding-window", "tests/golden/plain", "tests/golden/dense-mixed"};

static size_t n_models(void) { return is_slow() ? 1 : sizeof models / sizeof *models; }

static uint64_t bits_of(const harness *h)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < (size_t)PROMPT * h->config.vocab; i++) {
        uint32_t word;
        memcpy(&word, &h->logits[i], sizeof word);
        sum = gb_mix64(sum ^ word);
    }
    return sum;
}

static uint64_t bits_in_chunks(const harness_options *options, uint32_t chunk)
{
    harness h;
    int32_t tokens[PROMPT];
    harness_open(&h, options);
    random_tokens(tokens, PROMPT, h.config.vocab, 1);
    harness_feed(&h, tokens, PROMPT, chunk, &harness_greedy);
    uint64_t bits = bits_of(&h);
    harness_close(&h);
    return bits;
}

static void a_row_has_the_same_bits_in_chunks_of_any_size(void)
{
    for (size_t i = 0; i < n_models(); i++) {
        harness_options options = on_device(models[i]);
        uint64_t whole = bits_in_chunks(&options, PROMPT);
        CHECK_EQ(bits_in_chunks(&options, 1), whole);
        CHECK_EQ(bits_in_chunks(&options, 7), whole);
        CHECK_EQ(bits_in_chunks(&options, 33), whole);
    }
}

static void a_row_has_the_same_bits_with_each_kernel_of_experts(void)
{
    static const char *const kernels[] = {"wgmma", "mma"};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        harness_options options = on_device("tests/golden/dense-mixed");
        options.experts = kernels[i];
        uint64_t whole = bits_in_chunks(&options, PROMPT);
        CHECK_EQ(bits_in_chunks(&options, 1), whole);
        CHECK_EQ(bits_in_chunks(&options, 33), whole);
    }
}

/* Every step from the third on replays a graph of one row. */
static void steps_that_run_as_graphs_give_the_same_bits(void)
{
    for (size_t i = 0; i < n_models(); i++) {
        harness_options options = on_device(models[i]);
        uint64_t whole = bits_in_chunks(&options, PROMPT);
        options.graphs = true;
        CHECK_EQ(bits_in_chunks(&options, 1), whole);
    }
}

/* Two engines decode a growing number of sequences: padded rows are there, and neither counted nor sent. */
static void padded_graphs_count_what_eager_steps_count(void)
{
    enum { SEQUENCES = 5, STEPS = 6 };
    harness h[2];
    int32_t tokens[SEQUENCES][STEPS];
    for (int graphs = 0; graphs < 2; graphs++) {
        harness_options options = on_device("tests/golden/plain");
        options.engines = options.ranks = 2;
        options.graphs = graphs;
        harness_open(&h[graphs], &options);
    }
    for (uint32_t s = 0; s < SEQUENCES; s++) random_tokens(tokens[s], STEPS, h[0].config.vocab, s);
    for (uint32_t step = 0; step < STEPS; step++) {
        for (int graphs = 0; graphs < 2; graphs++) {
            harness_clear(&h[graphs]);
            for (uint32_t s = 0; s < SEQUENCES && s <= step; s++)
                harness_add(&h[graphs], s % 2, s, tokens[s], step - s + 1, step - s + 1, step - s, 1, &harness_greedy);
            CHECK_EQ(harness_run(&h[graphs]), GB_OK);
        }
        const gb_result *eager = &h[0].result, *graph = &h[1].result;
        for (size_t i = 0; i < gb_matrix_cells(&eager->counts); i++) CHECK_EQ(graph->counts.counts[i], eager->counts.counts[i]);
        for (uint32_t rank = 0; rank < 2; rank++) CHECK_EQ(graph->rank_tokens[rank], eager->rank_tokens[rank]);
        for (uint32_t s = 0; s < SEQUENCES && s <= step; s++)
            CHECK_EQ(graph->sampled[s % 2][s / 2].token, eager->sampled[s % 2][s / 2].token);
    }
    harness_close(&h[0]);
    harness_close(&h[1]);
}

/* Chunks of 16 with others beside them, some of which decode. */
static uint64_t bits_in_a_crowd(const char *directory, uint32_t engines)
{
    enum { OTHERS = 9 };
    harness h;
    int32_t tokens[1 + OTHERS][PROMPT];
    harness_options options = on_device(directory);
    options.engines = engines;
    options.ranks = 2 * engines;
    harness_open(&h, &options);
    for (uint32_t s = 0; s <= OTHERS; s++) random_tokens(tokens[s], PROMPT, h.config.vocab, s + 1);
    for (uint32_t start = 0, step = 0; start < PROMPT; start += 16, step++) {
        harness_clear(&h);
        harness_add(&h, 0, 0, tokens[0], PROMPT, PROMPT, start, PROMPT - start < 16 ? PROMPT - start : 16, &harness_greedy);
        for (uint32_t s = 1; s <= OTHERS; s++) harness_add(&h, s % engines, s, tokens[s], PROMPT, PROMPT, step * s, s, &harness_greedy);
        CHECK_EQ(harness_run(&h), GB_OK);
    }
    uint64_t bits = bits_of(&h);
    harness_close(&h);
    return bits;
}

static void a_row_has_the_same_bits_alone_and_in_company_of_any_ranks(void)
{
    for (size_t i = 0; i < n_models(); i++) {
        harness_options options = on_device(models[i]);
        uint64_t alone = bits_in_chunks(&options, PROMPT);
        CHECK_EQ(bits_in_a_crowd(models[i], 1), alone);
        CHECK_EQ(bits_in_a_crowd(models[i], 2), alone);
    }
}

/* --- counts --- */

static void tokens_sent_and_received_are_those_of_the_routes(void)
{
    harness h;
    harness_options options = on_device("tests/golden/plain");
    int32_t tokens[PROMPT];
    options.engines = 2;
    options.ranks = 4;
    harness_open(&h, &options);
    random_tokens(tokens, PROMPT, h.config.vocab, 1);
    harness_feed(&h, tokens, PROMPT, PROMPT, &harness_greedy);
    uint32_t K = h.config.experts_per_token, per_rank = h.config.experts / 4;
    uint64_t received[4] = {0};
    for (uint32_t layer = 0; layer < h.config.moe_layers; layer++) {
        uint64_t sent[64] = {0};
        for (uint32_t i = 0; i < PROMPT * K; i++) sent[h.experts[layer * (size_t)HARNESS_POSITIONS * K + i]]++;
        for (uint32_t e = 0; e < h.config.experts; e++) {
            CHECK_EQ(gb_matrix_row(&h.result.counts, layer, 0)[e], sent[e]);
            CHECK_EQ(gb_matrix_row(&h.result.counts, layer, 1)[e], 0);
            received[e / per_rank] += sent[e];
        }
    }
    for (uint32_t rank = 0; rank < 4; rank++) CHECK_EQ(h.result.rank_tokens[rank], received[rank]);
    harness_close(&h);
}

/* --- experts that move --- */

static void copy_expert(harness *h, uint32_t layer, int32_t to, int32_t from)
{
    uint64_t bytes = h->ops->info.expert_bytes, part = bytes / 3 / 2 * 2;
    gb_copy pieces[] = {{.layer = layer, .from = from, .to = to, .bytes = part},
                        {.layer = layer, .from = from, .to = to, .offset = part, .bytes = bytes - part}};
    for (int i = 0; i < 2; i++) CHECK_EQ(gb_ops_copy_expert(h->ops, &pieces[i]), GB_OK);
    CHECK_EQ(gb_ops_checksum(h->ops, layer, (uint32_t)to), gb_ops_checksum(h->ops, layer, (uint32_t)from));
}

/* Slots are places here; the old place is overwritten, so that a stale map would be seen. */
static void move_expert(harness *h, uint32_t layer, int32_t expert, uint32_t rank)
{
    int32_t *slots = gb_placement_layer_slots(&h->placement, layer);
    uint32_t to = rank * h->placement.slots_per_rank, from = 0;
    while (slots[to] != -1) to++;
    while (slots[from] != expert) from++;
    copy_expert(h, layer, (int32_t)to, (int32_t)from);
    copy_expert(h, layer, (int32_t)from, (int32_t)from + 1);
    slots[to] = expert;
    slots[from] = -1;
    for (uint32_t s = 0; s < h->placement.sources; s++) gb_placement_routes(&h->placement, layer, s)[expert] = (int32_t)to;
    h->placement.version++;
}

static void experts_that_moved_give_the_same_bits(void)
{
    harness h;
    harness_options options = on_device("tests/golden/plain");
    int32_t tokens[PROMPT];
    uint64_t moved = 0;
    options.engines = options.ranks = 2;
    options.spare_slots = 2;
    harness_open(&h, &options);
    random_tokens(tokens, PROMPT, h.config.vocab, 1);
    harness_feed(&h, tokens, PROMPT, PROMPT, &harness_greedy);
    uint64_t before = bits_of(&h), home = h.result.rank_tokens[0];
    for (uint32_t layer = 0; layer < h.config.moe_layers; layer++) {
        move_expert(&h, layer, 0, 1);
        moved += gb_matrix_row(&h.result.counts, layer, 0)[0];
    }
    harness_feed(&h, tokens, PROMPT, PROMPT, &harness_greedy);
    CHECK_EQ(bits_of(&h), before);
    CHECK(moved > 0);
    CHECK_EQ(h.result.rank_tokens[0], home - moved);
    harness_close(&h);
}

/* --- works that leave --- */

typedef struct canceller {
    harness *h;
    uint32_t deepest_seen;
} canceller;

static void cancel_work_1(void *self, const gb_row_set *rows, uint32_t depth, const float *x)
{
    canceller *c = self;
    (void)x;
    for (uint32_t i = 0; i < rows->n_spans; i++)
        if (rows->spans[i].work == 1) c->deepest_seen = depth;
    if (depth == 1) gb_executor_cancel(c->h->executor, c->h->round.seq, 0, 1);
}

static void run_three(harness *h, int32_t tokens[3][PROMPT], gb_sampled *sampled)
{
    harness_clear(h);
    for (uint32_t s = 0; s < 3; s++) harness_add(h, 0, s, tokens[s], PROMPT, PROMPT, 0, PROMPT, &harness_greedy);
    CHECK_EQ(harness_run(h), GB_OK);
    for (uint32_t s = 0; s < 3; s++) sampled[s] = h->result.sampled[0][s];
}

static void a_cancelled_work_leaves_and_its_mates_go_on(void)
{
    harness h;
    harness_options options = on_device("tests/golden/plain");
    int32_t tokens[3][PROMPT];
    gb_sampled before[3], after[3];
    options.tap = false;
    harness_open(&h, &options);
    for (uint32_t s = 0; s < 3; s++) random_tokens(tokens[s], PROMPT, h.config.vocab, 20 + s);
    run_three(&h, tokens, before);
    harness_close(&h);
    canceller c = {.h = &h};
    gb_forward_tap tap = {.self = &c, .hidden = cancel_work_1};
    options.other_tap = &tap;
    harness_open(&h, &options);
    run_three(&h, tokens, after);
    CHECK_EQ(c.deepest_seen, 1);
    CHECK(after[1].cancelled && after[1].token == -1);
    CHECK(!after[0].cancelled && !after[2].cancelled);
    CHECK_EQ(after[0].token, before[0].token);
    CHECK_EQ(after[2].token, before[2].token);
    harness_close(&h);
}

/* A round that waits has computed nothing when the work leaves, so only its mate's tokens are sent. */
static void a_work_cancelled_before_its_graph_ran_takes_no_part(void)
{
    harness h;
    harness_options options = on_device("tests/golden/plain");
    int32_t tokens[2] = {3, 4};
    uint64_t sent = 0;
    options.graphs = true;
    options.tap = false;
    harness_open(&h, &options);
    harness_clear(&h);
    for (uint32_t s = 0; s < 2; s++) harness_add(&h, 0, s, &tokens[s], 1, 1, 0, 1, &harness_greedy);
    gb_executor_cancel(h.executor, h.round.seq + 1, 0, 0);
    CHECK_EQ(harness_run(&h), GB_OK);
    CHECK(h.result.sampled[0][0].cancelled && !h.result.sampled[0][1].cancelled);
    CHECK(h.result.sampled[0][1].token >= 0);
    for (size_t i = 0; i < gb_matrix_cells(&h.result.counts); i++) sent += h.result.counts.counts[i];
    CHECK_EQ(sent, h.config.moe_layers * h.config.experts_per_token);
    harness_close(&h);
}

/* --- tokens --- */

static void tokens_are_those_of_the_sampler(void)
{
    harness h;
    harness_options options = on_device("tests/golden/plain");
    int32_t tokens[PROMPT];
    const int32_t banned[] = {5};
    gb_sampling warm, listed = harness_greedy;
    gb_sampling_default(&warm);
    warm.seed = 9;
    warm.top_p = 0.9f;
    warm.top_k = 20;
    listed.logprobs = 3;
    gb_sampling shy = warm;
    shy.repetition_penalty = 1.3f;
    shy.frequency_penalty = 0.4f;
    shy.presence_penalty = -0.2f;
    const gb_sampling *const kinds[] = {&harness_greedy, &warm, &listed, &shy};
    harness_open(&h, &options);
    void *scratch = gb_arena_take(&h.arena, 1, gb_sampler_scratch_bytes(h.config.vocab));
    random_tokens(tokens, PROMPT, h.config.vocab, 1);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        gb_sampled want;
        harness_clear(&h);
        uint32_t work = harness_add(&h, 0, 0, tokens, PROMPT, PROMPT / 2, 0, PROMPT, kinds[i]);
        h.round.batches[0].works[work].banned = banned;
        h.round.batches[0].works[work].n_banned = i == 1;
        CHECK_EQ(harness_run(&h), GB_OK);
        const float *logits = h.logits + (size_t)(PROMPT - 1) * h.config.vocab;
        CHECK_EQ(gb_sampler_pick(&want, logits, h.config.vocab, &h.round.batches[0].works[work], scratch), GB_OK);
        CHECK_EQ(h.result.sampled[0][work].token, want.token);
        if (i == 2) CHECK(memcmp(h.result.sampled[0][work].logprobs.ids, want.logprobs.ids, 3 * sizeof *want.logprobs.ids) == 0);
    }
    harness_close(&h);
}

/* Every work may say one token only: the changes of the first are on the device, the others' rows come to the host. */
static void works_whose_bans_find_no_room_get_their_tokens_all_the_same(void)
{
    static int32_t banned[HARNESS_WORKS][4096];
    harness h;
    harness_options options = {.directory = "examples/models/tiny-moe", .backend = device()};
    const int32_t token = 7;
    harness_open(&h, &options);
    harness_clear(&h);
    uint32_t vocab = h.config.vocab;
    for (uint32_t i = 0; i < HARNESS_WORKS; i++) {
        for (uint32_t id = 0, n = 0; id < vocab; id++)
            if (id != 100 + i) banned[i][n++] = (int32_t)id;
        harness_add(&h, 0, i, &token, 1, 1, 0, 1, &harness_greedy);
        h.round.batches[0].works[i].banned = banned[i];
        h.round.batches[0].works[i].n_banned = vocab - 1;
    }
    CHECK(HARNESS_WORKS * (vocab - 1) > HARNESS_WORKS * GB_CUDA_ROW_EDITS && vocab - 1 < HARNESS_WORKS * GB_CUDA_ROW_EDITS);
    CHECK_EQ(harness_run(&h), GB_OK);
    for (uint32_t i = 0; i < HARNESS_WORKS; i++) CHECK_EQ(h.result.sampled[0][i].token, 100 + i);
    harness_close(&h);
}

/* --- what must not be --- */

static void a_token_outside_of_the_vocabulary_ends_the_round_with_a_status(void)
{
    harness h;
    harness_options options = on_device("tests/golden/plain");
    int32_t tokens[4];
    harness_open(&h, &options);
    random_tokens(tokens, 4, h.config.vocab, 1);
    tokens[2] = (int32_t)h.config.vocab;
    harness_clear(&h);
    harness_add(&h, 0, 0, tokens, 4, 4, 0, 4, &harness_greedy);
    CHECK_EQ(harness_run(&h), GB_EINTERNAL);
    tokens[2] = 0;
    CHECK_EQ(harness_run(&h), GB_OK);    /* the next round is none the worse */
    harness_close(&h);
}

static void check_refused(const char *directory, bool f32, int status, const char *part)
{
    gb_model_config config;
    gb_weights *weights = NULL;
    gb_error err = {0};
    gb_ops *ops = NULL;
    gb_backend_options options = {.limits = {.engines = 1, .ranks = 1, .max_works = 1, .max_tokens = 16, .max_positions = 64, .blocks_per_engine = 4}, .f32 = f32};
    CHECK_EQ(gb_model_config_load(&config, check_path(directory), &err), GB_OK);
    CHECK_EQ(gb_weights_open(&weights, check_path(directory), &err), GB_OK);
    CHECK_EQ(device()->ops_new(&ops, &config, weights, &options, &err), status);
    CHECK_CONTAINS(err.text, part);
    gb_weights_free(weights);
}

static void models_that_do_not_fit_are_refused_with_a_remedy(void)
{
    check_refused("tests/golden/odd-sizes", false, GB_EUNSUPPORTED, "not 24; use --backend cpu");
    check_refused("tests/golden/plain", true, GB_EUNSUPPORTED, "--dtype bfloat16");
}

static void another_abi_is_refused(void)
{
    CHECK(gimbal_backend_open(GB_BACKEND_ABI + 1) == NULL);
    CHECK_STR(device()->name, GB_CUDA_NAME);
}

TESTS(TEST(logits_of_the_bundled_model_agree_with_the_cpu), TEST(logits_of_every_kind_of_checkpoint_agree_with_the_cpu),
      TEST(logits_agree_with_the_cpu_whatever_runs_the_experts), TEST(steps_with_cublas_are_no_graphs),
      TEST(a_row_has_the_same_bits_in_chunks_of_any_size), TEST(a_row_has_the_same_bits_with_each_kernel_of_experts),
      TEST(steps_that_run_as_graphs_give_the_same_bits),
      TEST(padded_graphs_count_what_eager_steps_count), TEST(a_row_has_the_same_bits_alone_and_in_company_of_any_ranks),
      TEST(tokens_sent_and_received_are_those_of_the_routes), TEST(experts_that_moved_give_the_same_bits),
      TEST(a_cancelled_work_leaves_and_its_mates_go_on), TEST(a_work_cancelled_before_its_graph_ran_takes_no_part),
      TEST(tokens_are_those_of_the_sampler), TEST(works_whose_bans_find_no_room_get_their_tokens_all_the_same),
      TEST(a_token_outside_of_the_vocabulary_ends_the_round_with_a_status), TEST(models_that_do_not_fit_are_refused_with_a_remedy),
      TEST(another_abi_is_refused))
