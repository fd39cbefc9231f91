#include "bindings/uv/worker.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "tests/check.h"

/* An executor without a model: answers with the round's own number, or waits until it is cancelled. */
typedef struct fake {
    gb_executor executor;
    uv_thread_t ran_on;
    atomic_bool cancelled;
    bool waits;
    uint32_t runs;
    gb_copy copied[8];
    uint32_t n_copied;
} fake;

static int fake_run(gb_executor *executor, const gb_round *round, gb_result *result)
{
    fake *f = (fake *)executor;
    f->ran_on = uv_thread_self();
    f->runs++;
    while (f->waits && !atomic_load(&f->cancelled)) uv_sleep(1);
    result->elapsed = round->seq * 10;
    return round->seq == 13 ? GB_EDOWN : GB_OK;
}

static void fake_cancel(gb_executor *executor, uint64_t round_seq, uint32_t engine, uint32_t work)
{
    (void)round_seq, (void)engine, (void)work;
    atomic_store(&((fake *)executor)->cancelled, true);
}

static int fake_copy(gb_executor *executor, const gb_copy_list *list)
{
    fake *f = (fake *)executor;
    for (uint32_t i = 0; i < list->n; i++) f->copied[f->n_copied++] = list->copies[i];
    return list->copies[0].layer == 13 ? GB_EIO : GB_OK;
}

static void fake_free(gb_executor *executor) { (void)executor; }

static const gb_executor_table table = {.run = fake_run, .cancel = fake_cancel, .copy = fake_copy, .free = fake_free};

typedef struct fixture {
    uv_loop_t loop;
    fake executor;
    gb_worker *worker;
    gb_round round;
    gb_result result;
    uint64_t answers[64];
    int statuses[64];
    uint32_t n_answers, wanted;
    int copy_status[8];
    uint32_t n_lists;
    uv_thread_t answered_on;
} fixture;

static void done(void *self, const gb_result *result)
{
    fixture *f = self;
    f->answered_on = uv_thread_self();
    f->statuses[f->n_answers] = result->status;
    f->answers[f->n_answers++] = result->seq;
    if (f->n_answers == f->wanted) return;
    f->round.seq++;
    gb_worker_run(f->worker, &f->round, &f->result);
}

static void copied(void *self, int status)
{
    fixture *f = self;
    f->copy_status[f->n_lists++] = status;
}

static void start(fixture *f)
{
    *f = (fixture){.executor = {.executor = {.table = &table, .info = {.private_ranks = true}}}, .round = {.seq = 1}, .wanted = 1};
    uv_loop_init(&f->loop);
    CHECK_EQ(gb_worker_new(&f->worker, &f->loop, &f->executor.executor, &(gb_worker_calls){f, done, copied}, NULL), GB_OK);
}

static void run_until_answered(fixture *f)
{
    while (f->n_answers < f->wanted) uv_run(&f->loop, UV_RUN_ONCE);
}

static void stop(fixture *f)
{
    gb_worker_close(f->worker);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    CHECK_EQ(uv_loop_close(&f->loop), 0);
}

static void rounds_run_on_another_thread_and_come_back_on_the_loops(void)
{
    fixture f;
    start(&f);
    f.wanted = 50;
    CHECK(!gb_worker_busy(f.worker));
    gb_worker_run(f.worker, &f.round, &f.result);
    CHECK(gb_worker_busy(f.worker));
    run_until_answered(&f);
    CHECK(!gb_worker_busy(f.worker));
    for (uint32_t i = 0; i < 50; i++) CHECK_EQ(f.answers[i], i + 1);
    for (uint32_t i = 0; i < 50; i++) CHECK_EQ(f.statuses[i], i + 1 == 13 ? GB_EDOWN : GB_OK);
    uv_thread_t self = uv_thread_self();
    CHECK(uv_thread_equal(&f.answered_on, &self));
    CHECK(!uv_thread_equal(&f.executor.ran_on, &self));
    stop(&f);
}

static void the_loop_turns_while_a_round_runs_and_can_cancel_it(void)
{
    fixture f;
    start(&f);
    f.executor.waits = true;
    gb_worker_run(f.worker, &f.round, &f.result);
    for (int i = 0; i < 10; i++) uv_run(&f.loop, UV_RUN_NOWAIT);
    CHECK_EQ(f.n_answers, 0);
    gb_executor_cancel(&f.executor.executor, 1, 0, 0);
    run_until_answered(&f);
    CHECK_EQ(f.answers[0], 1);
    stop(&f);
}

static void closing_waits_for_the_running_round(void)
{
    fixture f;
    start(&f);
    gb_worker_run(f.worker, &f.round, &f.result);
    stop(&f);
    CHECK_EQ(f.executor.runs, 1);
    CHECK_EQ(f.n_answers, 0);
}

static void an_idle_worker_closes(void)
{
    fixture f;
    start(&f);
    stop(&f);
    CHECK_EQ(f.executor.runs, 0);
}

static void wait_for_lists(fixture *f, uint32_t n)
{
    while (f->n_lists < n) uv_run(&f->loop, UV_RUN_ONCE);
}

static void copies_run_beside_a_round_and_come_back_on_their_own(void)
{
    fixture f;
    gb_copy_list first = {.n = 2, .copies = {{.layer = 3, .bytes = 7}, {.layer = 4}}}, bad = {.n = 1, .copies = {{.layer = 13}}};
    start(&f);
    f.executor.waits = true;
    gb_worker_run(f.worker, &f.round, &f.result);
    gb_worker_copy(f.worker, &first);
    wait_for_lists(&f, 1);
    CHECK_EQ(f.n_answers, 0);                      /* the round goes on */
    CHECK_EQ(f.copy_status[0], GB_OK);
    CHECK_EQ(f.executor.n_copied, 2);
    CHECK_EQ(f.executor.copied[0].bytes, 7);
    CHECK_EQ(f.executor.copied[1].layer, 4);
    gb_executor_cancel(&f.executor.executor, 1, 0, 0);
    run_until_answered(&f);
    gb_worker_copy(f.worker, &bad);                /* and without a round */
    wait_for_lists(&f, 2);
    CHECK_EQ(f.copy_status[1], GB_EIO);
    stop(&f);
}

static void copies_that_are_out_when_the_worker_closes_call_nobody(void)
{
    fixture f;
    gb_copy_list list = {.n = 1};
    start(&f);
    gb_worker_run(f.worker, &f.round, &f.result);
    gb_worker_copy(f.worker, &list);
    stop(&f);
    CHECK_EQ(f.executor.runs, 1);
    CHECK_EQ(f.n_lists, 0);
}

TESTS(TEST(copies_run_beside_a_round_and_come_back_on_their_own), TEST(copies_that_are_out_when_the_worker_closes_call_nobody),
      TEST(rounds_run_on_another_thread_and_come_back_on_the_loops), TEST(the_loop_turns_while_a_round_runs_and_can_cancel_it),
      TEST(closing_waits_for_the_running_round), TEST(an_idle_worker_closes))
