/* Counts stay on the device until they are due, and are then those of all rounds since; two backends run the same rounds, one of which
   has to tell its counts every time. */
#include "cuda/host/context.h"

#include "tests/check.h"
#include "tests/forward/harness.h"

gb_backend_open_fn gimbal_backend_open;

enum { TOKENS = 40, STEPS = 12 };

static harness keeps, tells;
static int32_t tokens[2][TOKENS];
static gb_matrix sum;    /* of what tells told */

static void start(bool graphs)
{
    harness_options options = {.directory = "tests/golden/plain", .backend = gimbal_backend_open(GB_BACKEND_ABI), .graphs = graphs, .engines = 2,
                               .ranks = 2};
    gb_rng rng;
    gb_rng_init(&rng, 3);
    harness_open(&keeps, &options);
    harness_open(&tells, &options);
    for (uint32_t i = 0; i < 2 * TOKENS; i++) tokens[i / TOKENS][i % TOKENS] = (int32_t)gb_rng_below(&rng, keeps.config.vocab);
    CHECK_EQ(gb_matrix_init(&sum, &keeps.arena, keeps.config.moe_layers, 2, keeps.config.experts), GB_OK);
}

static void stop(void)
{
    harness_close(&keeps);
    harness_close(&tells);
}

static void add_works(harness *h, uint32_t start_at, uint32_t count)
{
    harness_clear(h);
    for (uint32_t e = 0; e < 2; e++) harness_add(h, e, 0, tokens[e], TOKENS, TOKENS, start_at, count - e, &harness_greedy);
}

static uint64_t total(const gb_matrix *counts)
{
    uint64_t n = 0;
    for (size_t i = 0; i < gb_matrix_cells(counts); i++) n += counts->counts[i];
    return n;
}

/* The same round on both; on one it is due. */
static void step(uint32_t start_at, uint32_t count, bool due)
{
    add_works(&keeps, start_at, count);
    add_works(&tells, start_at, count);
    keeps.round.counts_due = due;
    CHECK_EQ(harness_run(&tells), GB_OK);
    CHECK_EQ(harness_run(&keeps), GB_OK);
    CHECK(memcmp(keeps.result.rank_tokens, tells.result.rank_tokens, 2 * sizeof *keeps.result.rank_tokens) == 0);
    gb_matrix_add(&sum, &tells.result.counts);
}

static void check_same_counts(void)
{
    CHECK(!keeps.result.counts_pending);
    CHECK_EQ(memcmp(keeps.result.counts.counts, sum.counts, gb_matrix_cells(&sum) * sizeof *sum.counts), 0);
    CHECK(total(&sum) > 0);
    gb_matrix_clear(&sum);
}

static void counts_of_chunks_come_when_they_are_due(void)
{
    start(false);
    for (uint32_t i = 0; i < 7; i++) {
        step(i * 5, 5, i % 3 == 2);    /* no chunk but the last samples: nobody waits for the device before the round ends */
        if (i % 3 == 2) check_same_counts();
        else CHECK(keeps.result.counts_pending && total(&keeps.result.counts) == 0);
    }
    stop();
}

static void steps_that_are_graphs_count_into_the_same_window(void)
{
    start(true);
    step(0, 9, false);
    for (uint32_t i = 0; i < STEPS; i++) {
        step(9 + i, 2, i % 5 == 4);
        if (i % 5 == 4) check_same_counts();
    }
    stop();
}

static void counters_that_could_overflow_leave_before_they_are_due(void)
{
    start(false);
    gb_cuda *cuda = (gb_cuda *)keeps.ops;
    cuda->counted_most = cuda->max_rows + 20;
    for (uint32_t i = 0; i < 6; i++) {
        step(i * 6, 6, i == 5);
        CHECK(cuda->counted_rows <= 20);
    }
    check_same_counts();
    stop();
}

static void a_round_without_rows_brings_what_is_kept(void)
{
    start(false);
    step(0, 8, false);
    harness_clear(&keeps);
    keeps.round.counts_due = true;
    CHECK_EQ(harness_run(&keeps), GB_OK);
    check_same_counts();
    CHECK_EQ(harness_run(&keeps), GB_OK);
    CHECK_EQ(total(&keeps.result.counts), 0);
    stop();
}

static void a_round_that_fails_takes_what_is_kept_with_it(void)
{
    start(false);
    for (int empty = 0; empty < 2; empty++) {
        step(0, 8, false);
        int32_t right = tokens[0][2];
        tokens[0][2] = (int32_t)keeps.config.vocab;
        add_works(&keeps, 0, 8);
        keeps.round.counts_due = true;
        CHECK_EQ(harness_run(&keeps), GB_EINTERNAL);
        tokens[0][2] = right;
        gb_matrix_clear(&sum);
        if (empty) {
            harness_clear(&keeps);
            CHECK_EQ(harness_run(&keeps), GB_OK);
            CHECK_EQ(total(&keeps.result.counts), 0);
        }
        step(0, 8, true);
        check_same_counts();
    }
    stop();
}

TESTS(TEST(counts_of_chunks_come_when_they_are_due), TEST(steps_that_are_graphs_count_into_the_same_window),
      TEST(counters_that_could_overflow_leave_before_they_are_due), TEST(a_round_without_rows_brings_what_is_kept),
      TEST(a_round_that_fails_takes_what_is_kept_with_it))
