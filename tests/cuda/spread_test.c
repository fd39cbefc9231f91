/* The whole backend with a device for each rank, through the plugin's door, against the same backend on one device: bits, counts, experts
   that move from device to device, and a device that fails. */
#include <stdlib.h>

#include "core/base/rng.h"
#include "cuda/cuemu/control.h"
#include "cuda/host/check.h"
#include "tests/check.h"
#include "tests/forward/harness.h"

gb_backend_open_fn gimbal_backend_open;

static const char model[] = "tests/golden/plain";
static const char *const ways[] = {"agrs", "sendrecv", "lsa"};

enum { RANKS = 4, PROMPT = 12, STEPS = 4, TOKENS = PROMPT + STEPS };

static harness_options options_of(const char *layout, const char *way)
{
    return (harness_options){.directory = model, .backend = gimbal_backend_open(GB_BACKEND_ABI), .layout = layout, .exchange = way, .engines = RANKS,
                             .ranks = RANKS, .spare_slots = 1, .max_tokens = 64, .graphs = true, .tap = true};
}

static void random_tokens(int32_t tokens[RANKS][TOKENS], uint32_t vocab)
{
    gb_rng rng;
    gb_rng_init(&rng, 3);
    for (uint32_t i = 0; i < RANKS * TOKENS; i++) tokens[i / TOKENS][i % TOKENS] = (int32_t)gb_rng_below(&rng, vocab);
}

/* Every engine has one sequence; engine 3 joins late and rests in the last step. */
static int run_step(harness *h, int32_t tokens[RANKS][TOKENS], uint32_t step)
{
    harness_clear(h);
    for (uint32_t e = 0; e < RANKS; e++) {
        if (e == 3 && (step == 0 || step == STEPS)) continue;
        bool prompt = step == (e == 3);
        uint32_t start = prompt ? 0 : PROMPT + step - 1 - (e == 3), count = prompt ? PROMPT : 1;
        harness_add(h, e, e, tokens[e], start + count, PROMPT, start, count, &harness_greedy);
    }
    return harness_run(h);
}

static void check_same_round(const harness *a, const harness *b)
{
    for (size_t i = 0; i < gb_matrix_cells(&b->result.counts); i++) CHECK_EQ(a->result.counts.counts[i], b->result.counts.counts[i]);
    for (uint32_t r = 0; r < RANKS; r++) CHECK_EQ(a->result.rank_tokens[r], b->result.rank_tokens[r]);
    for (uint32_t e = 0; e < RANKS; e++)
        for (uint32_t w = 0; w < b->round.batches[e].n_works; w++) CHECK_EQ(a->result.sampled[e][w].token, b->result.sampled[e][w].token);
}

static void check_same_logits(const harness *a, const harness *b)
{
    CHECK(memcmp(a->logits, b->logits, (size_t)TOKENS * b->config.vocab * sizeof *b->logits) == 0);
}

static void a_device_for_each_rank_gives_the_bits_of_one_device(void)
{
    int32_t tokens[RANKS][TOKENS];
    harness h[2];
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        harness_options one = options_of("one", NULL), many = options_of("threads", ways[way]);
        harness_open(&h[0], &one);
        harness_open(&h[1], &many);
        random_tokens(tokens, h[0].config.vocab);
        for (uint32_t step = 0; step <= STEPS; step++) {
            for (int i = 0; i < 2; i++) {
                h[i].round.counts_due = step % 2;
                CHECK_EQ(run_step(&h[i], tokens, step), GB_OK);
            }
            check_same_round(&h[1], &h[0]);
        }
        check_same_logits(&h[1], &h[0]);
        CHECK_CONTAINS(h[1].executor->info.kernels, "4 ranks, threads");
        harness_close(&h[0]);
        harness_close(&h[1]);
    }
}

/* --- experts that move to another device --- */

/* Expert 0 of a layer goes from rank 0 to the spare slot of another rank; what was in its place is overwritten. */
static void move_expert(harness *h, uint32_t layer, uint32_t rank)
{
    int32_t *slots = gb_placement_layer_slots(&h->placement, layer), per_rank = (int32_t)h->placement.slots_per_rank;
    int32_t to = (int32_t)rank * per_rank + per_rank - 1;
    uint64_t bytes = h->ops->info.expert_bytes, part = bytes / 3 / 16 * 16;
    const gb_copy copies[] = {{.layer = layer, .from = 0, .to = to, .bytes = part},
                              {.layer = layer, .from = 0, .to = to, .offset = part, .bytes = bytes - part},
                              {.layer = layer, .from = 1, .to = 0, .bytes = bytes}};
    gb_copy_list list = {.n = 3};
    memcpy(list.copies, copies, sizeof copies);
    uint64_t sum = gb_executor_checksum(h->executor, layer, 0);
    CHECK(sum != 0);
    CHECK_EQ(gb_executor_copy(h->executor, &list), GB_OK);
    CHECK_EQ(gb_executor_checksum(h->executor, layer, (uint32_t)to), sum);
    slots[to] = 0;
    slots[0] = -1;
    for (uint32_t s = 0; s < h->placement.sources; s++) gb_placement_routes(&h->placement, layer, s)[0] = to;
    h->placement.version++;
}

static void experts_that_move_to_other_devices_give_the_same_bits(void)
{
    int32_t tokens[RANKS][TOKENS];
    harness h[2];
    harness_options one = options_of("one", NULL), many = options_of("threads", "auto");
    harness_open(&h[0], &one);
    harness_open(&h[1], &many);
    random_tokens(tokens, h[0].config.vocab);
    for (uint32_t step = 0; step <= STEPS; step++)
        for (int i = 0; i < 2; i++) {
            if (i == 1 && step > 0 && step <= h[i].config.moe_layers) move_expert(&h[i], step - 1, step % RANKS);
            CHECK_EQ(run_step(&h[i], tokens, step), GB_OK);
        }
    for (uint32_t e = 0; e < RANKS - 1; e++) CHECK_EQ(h[1].result.sampled[e][0].token, h[0].result.sampled[e][0].token);
    check_same_logits(&h[1], &h[0]);
    CHECK(h[1].placement.version > 1);
    harness_close(&h[0]);
    harness_close(&h[1]);
}

/* --- a device that fails --- */

static void fail_one_device(const char *way)
{
    int32_t tokens[RANKS][TOKENS];
    harness h;
    harness_options many = options_of("threads", way);
    many.tap = false;
    harness_open(&h, &many);
    random_tokens(tokens, h.config.vocab);
    CHECK_EQ(run_step(&h, tokens, 0), GB_OK);
    cuemu_fail_call("attention_prepare_kernel", 2, cudaErrorUnknown);
    CHECK_EQ(run_step(&h, tokens, 1), GB_EDOWN);
    CHECK_CONTAINS(gb_k_message(), "rank ");    /* the first to say so; the log has all of them */
    CHECK_EQ(run_step(&h, tokens, 2), GB_EDOWN);
    gb_copy copy = {.layer = 0, .from = 0, .to = 1, .bytes = 64};
    CHECK_EQ(gb_ops_copy_expert(h.ops, &copy), GB_EDOWN);
    harness_close(&h);
}

static void a_device_that_fails_takes_all_down_and_nobody_waits(void)
{
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) fail_one_device(ways[way]);
}

/* --- planning --- */

static void the_memory_of_every_device_with_a_rank_is_at_hand(void)
{
    const gb_backend *backend = gimbal_backend_open(GB_BACKEND_ABI);
    const gb_model_config config = {.kv_heads = 2};
    gb_backend_options options = {.limits = {.engines = 2, .ranks = RANKS}, .layout = "threads"};
    CHECK_EQ(backend->devices(&config, &options), RANKS);
    options.layout = "auto";
    CHECK_EQ(backend->devices(&config, &options), RANKS);
    options.layout = "one";
    CHECK_EQ(backend->devices(&config, &options), 1);
    options.layout = "threads";
    options.limits.ranks = RANKS + 2;    /* is refused later */
    CHECK_EQ(backend->devices(&config, &options), 1);
}

int main(int argc, char **argv)
{
    static const check_test tests[] = {
        TEST(a_device_for_each_rank_gives_the_bits_of_one_device), TEST(experts_that_move_to_other_devices_give_the_same_bits),
        TEST(a_device_that_fails_takes_all_down_and_nobody_waits),
        TEST(the_memory_of_every_device_with_a_rank_is_at_hand),
    };
    cuemu_set_devices(RANKS);
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
