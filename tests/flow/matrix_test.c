#include "core/flow/matrix.h"

#include <sys/wait.h>
#include <unistd.h>

#include "core/base/log.h"
#include "tests/check.h"

static gb_arena arena;

static gb_matrix make(void)
{
    gb_matrix m;
    gb_arena_init(&arena);
    CHECK_EQ(gb_matrix_init(&m, &arena, 2, 3, 4), 0);
    return m;
}

static void rows_are_layer_then_source_then_expert(void)
{
    gb_matrix m = make();
    gb_matrix_row(&m, 1, 2)[3] = 9;
    CHECK_EQ(m.counts[1 * 12 + 2 * 4 + 3], 9);
    CHECK_EQ(gb_matrix_cells(&m), 24);
    gb_arena_deinit(&arena);
}

static void b_is_a_summed_over_sources(void)
{
    uint64_t b[8];
    gb_matrix m = make();
    for (uint32_t s = 0; s < 3; s++) gb_matrix_row(&m, 1, s)[2] = 10 + s;
    gb_matrix_sum_sources(&m, b);
    CHECK_EQ(b[4 + 2], 33);
    CHECK_EQ(b[2], 0);
    gb_arena_deinit(&arena);
}

static void add_and_clear(void)
{
    gb_matrix m = make(), n;
    CHECK_EQ(gb_matrix_init(&n, &arena, 2, 3, 4), 0);
    gb_matrix_row(&m, 0, 0)[0] = UINT32_MAX;
    gb_matrix_row(&n, 0, 0)[0] = 1;
    gb_matrix_add(&m, &n);
    CHECK_EQ(gb_matrix_row(&m, 0, 0)[0], (uint64_t)UINT32_MAX + 1);
    gb_matrix_clear(&m);
    CHECK_EQ(gb_matrix_row(&m, 0, 0)[0], 0);
    gb_arena_deinit(&arena);
}

static void say(void *self, gb_log_level level, const char *line)
{
    (void)self, (void)level;
    fprintf(stderr, "%s\n", line);
}

/* In a child, whose last words are read. */
static void counts_that_differ_end_the_program_in_words(void)
{
    uint64_t sent[4] = {3, 0, 5, 1}, arrived[4] = {3, 0, 5, 1};
    char words[512] = "";
    int ends[2], status = 0;
    gb_counts_must_agree(2, 1, sent, arrived, 4);
    CHECK_EQ(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        gb_log_set_sink(say, NULL, GB_LOG_ERROR);
        arrived[2] = 4;
        gb_counts_must_agree(2, 1, sent, arrived, 4);
        _exit(0);
    }
    close(ends[1]);
    for (size_t n = 0; n < sizeof words - 1;) {
        ssize_t got = read(ends[0], words + n, sizeof words - 1 - n);
        if (got <= 0) break;
        n += (size_t)got;
    }
    close(ends[0]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(!(WIFEXITED(status) && WEXITSTATUS(status) == 0));
    CHECK_CONTAINS(words, "layer 2: engine 1 sent 5 tokens to expert 2, but 4 arrived");
}

TESTS(TEST(rows_are_layer_then_source_then_expert), TEST(b_is_a_summed_over_sources), TEST(add_and_clear),
      TEST(counts_that_differ_end_the_program_in_words))
