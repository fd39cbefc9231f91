/* The wrappers around an executor: what was sent has arrived, at the latest when counts are due. */
#include "core/forward/executor.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

/* An executor that says what it is told to. */
static gb_executor executor;
static gb_arena arena;
static gb_round round_in_hand;
static gb_result result;

typedef struct answer {
    uint64_t sent, arrived;
    bool pending;
    int status;
} answer;
static answer next;

static int run(gb_executor *self, const gb_round *round, gb_result *out)
{
    (void)self, (void)round;
    gb_matrix_row(&out->counts, 0, 1)[2] = next.sent;
    out->rank_tokens[0] = next.arrived / 3;
    out->rank_tokens[1] = next.arrived - next.arrived / 3;
    out->counts_pending = next.pending;
    return next.status;
}

static void start(void)
{
    static const gb_executor_table table = {.run = run};
    gb_round_limits limits = {.engines = 2, .ranks = 2, .max_works = 1, .max_tokens = 1, .moe_layers = 1, .experts = 4};
    gb_arena_init(&arena);
    CHECK_EQ(gb_round_init(&round_in_hand, &arena, &limits), GB_OK);
    CHECK_EQ(gb_result_init(&result, &arena, &limits), GB_OK);
    executor = (gb_executor){.table = &table, .info = {.engines = 2, .ranks = 2, .moe_layers = 1, .experts = 4}};
}

static void stop(void) { gb_arena_deinit(&arena); }

static int step(answer a, bool due)
{
    next = a;
    round_in_hand.counts_due = due;
    return gb_executor_run(&executor, &round_in_hand, &result);
}

/* In a child: does the step end the program? */
static bool ends_the_program(answer a, bool due)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        step(a, due);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void counts_may_come_in_every_round_or_all_at_once_when_they_are_due(void)
{
    start();
    CHECK_EQ(step((answer){.sent = 6, .arrived = 6}, false), GB_OK);
    CHECK_EQ(step((answer){.sent = 5, .arrived = 5}, true), GB_OK);
    CHECK_EQ(step((answer){.arrived = 6, .pending = true}, false), GB_OK);
    CHECK_EQ(step((answer){.sent = 2, .arrived = 4, .pending = true}, false), GB_OK);
    CHECK_EQ(step((answer){.sent = 13, .arrived = 5}, true), GB_OK);
    CHECK_EQ(step((answer){.sent = 1, .arrived = 1}, true), GB_OK);
    stop();
}

static void what_was_sent_and_has_not_arrived_ends_the_program(void)
{
    start();
    CHECK(ends_the_program((answer){.sent = 6, .arrived = 5}, false));
    CHECK(ends_the_program((answer){.sent = 6, .arrived = 5, .pending = true}, false));
    CHECK(ends_the_program((answer){.sent = 5, .arrived = 6}, false));
    CHECK_EQ(step((answer){.arrived = 6, .pending = true}, false), GB_OK);
    CHECK(ends_the_program((answer){.sent = 4, .arrived = 4}, true));
    CHECK(!ends_the_program((answer){.sent = 10, .arrived = 4}, true));
    stop();
}

static void counts_that_are_due_cannot_be_pending(void)
{
    start();
    CHECK(ends_the_program((answer){.sent = 6, .arrived = 6, .pending = true}, true));
    CHECK(!ends_the_program((answer){.sent = 6, .arrived = 6}, true));
    stop();
}

static void a_failed_round_begins_the_count_anew(void)
{
    start();
    CHECK_EQ(step((answer){.arrived = 6, .pending = true}, false), GB_OK);
    CHECK_EQ(step((answer){.sent = 1, .arrived = 9, .status = GB_EINTERNAL}, true), GB_EINTERNAL);
    CHECK_EQ(step((answer){.sent = 4, .arrived = 4}, true), GB_OK);
    stop();
}

TESTS(TEST(counts_may_come_in_every_round_or_all_at_once_when_they_are_due), TEST(what_was_sent_and_has_not_arrived_ends_the_program),
      TEST(counts_that_are_due_cannot_be_pending), TEST(a_failed_round_begins_the_count_anew))
