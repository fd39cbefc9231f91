#define _GNU_SOURCE
#include "bindings/uv/checker.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

static gb_time clock_of(void *self)
{
    (void)self;
    return gb_seconds(7);
}

/* A stand-in for the gimbal command: a shell script. */
static char program[] = "/tmp/gimbal-checker-XXXXXX";

static void write_program(const char *body)
{
    strcpy(program + strlen(program) - 6, "XXXXXX");
    int fd = mkstemp(program);
    CHECK(fd >= 0);
    dprintf(fd, "#!/bin/sh\n%s\n", body);
    fchmod(fd, 0700);
    close(fd);
}

typedef struct answer {
    int times, status;
    gb_time now;
    char text[4096];
    gb_error err;
} answer;

static void note(void *self, int status, const char *report, size_t bytes, const gb_error *err, gb_time now)
{
    answer *a = self;
    a->times++;
    a->status = status;
    a->now = now;
    a->err = *err;
    snprintf(a->text, sizeof a->text, "%.*s", (int)(bytes < 4000 ? bytes : 4000), report);
}

typedef struct bench {
    uv_loop_t loop;
    gb_checker *checker;
    answer answer;
    uint64_t job;
    gb_error err;
} bench;

static void open_bench(bench *b, const char *executable, gb_time deadline)
{
    memset(b, 0, sizeof *b);
    CHECK_EQ(uv_loop_init(&b->loop), 0);
    CHECK_EQ(gb_checker_new(&b->checker, &b->loop, executable, deadline, clock_of, NULL, &b->err), GB_OK);
}

static int start(bench *b, const char *source, const char *snapshots)
{
    gb_check_script script = {"mine", source, snapshots, strlen(source), strlen(snapshots), 1};
    const gb_checker_seam *seam = gb_checker_seam_of(b->checker);
    return seam->start(seam->self, &b->job, &script, note, &b->answer, &b->err);
}

static void close_bench(bench *b)
{
    gb_checker_close(b->checker);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    CHECK_EQ(uv_loop_close(&b->loop), 0);
    unlink(program);
}

static void a_process_gets_the_script_and_the_snapshots_and_its_report_comes_back(void)
{
    bench b;
    write_program("echo \"$@\"; cat -; cat /dev/fd/3");
    open_bench(&b, program, gb_seconds(60));
    CHECK_EQ(start(&b, "return 1\n", "{}\n"), GB_OK);
    uv_run(&b.loop, UV_RUN_DEFAULT);
    CHECK_EQ(b.answer.times, 1);
    CHECK_EQ(b.answer.status, GB_OK);
    CHECK_EQ(b.answer.now, gb_seconds(7));
    CHECK_STR(b.answer.text, "policy check --json --engines 1 --name mine --on /dev/fd/3 -\nreturn 1\n{}\n");
    close_bench(&b);
}

static void a_script_larger_than_a_pipe_gets_through(void)
{
    enum { BYTES = 256 * 1024 };
    bench b;
    char *source = malloc(BYTES + 1);
    memset(source, 'x', BYTES);
    source[BYTES] = '\0';
    write_program("cat - | wc -c");
    open_bench(&b, program, gb_seconds(60));
    CHECK_EQ(start(&b, source, ""), GB_OK);
    uv_run(&b.loop, UV_RUN_DEFAULT);
    CHECK_EQ(atoi(b.answer.text), BYTES);
    free(source);
    close_bench(&b);
}

static void a_process_over_its_deadline_is_killed_with_its_children(void)
{
    bench b;
    write_program("sleep 1000 & echo $!; wait");
    open_bench(&b, program, gb_ms(200));
    CHECK_EQ(start(&b, "x", ""), GB_OK);
    uv_run(&b.loop, UV_RUN_DEFAULT);
    CHECK_EQ(b.answer.times, 1);
    CHECK_EQ(b.answer.status, GB_EDEADLINE);
    CHECK_CONTAINS(b.answer.err.text, "took more than 0.2 s");
    close_bench(&b);
}

static void a_report_without_end_is_cut_off(void)
{
    bench b;
    write_program("yes");
    open_bench(&b, program, gb_seconds(60));
    CHECK_EQ(start(&b, "x", ""), GB_OK);
    uv_run(&b.loop, UV_RUN_DEFAULT);
    CHECK_EQ(b.answer.status, GB_ETOOBIG);
    CHECK_CONTAINS(b.answer.err.text, "more than 1048576 bytes");
    close_bench(&b);
}

static void a_process_that_fails_says_how(void)
{
    static const struct {
        const char *body, *why;
    } cases[] = {{"exit 65", "exit code 65"}, {"exit 0", "exit code 0 and no report"}, {"kill -ABRT $$", "signal 6"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench b;
        write_program(cases[i].body);
        open_bench(&b, program, gb_seconds(60));
        CHECK_EQ(start(&b, "x", ""), GB_OK);
        uv_run(&b.loop, UV_RUN_DEFAULT);
        CHECK_EQ(b.answer.status, GB_EINTERNAL);
        CHECK_CONTAINS(b.answer.err.text, cases[i].why);
        close_bench(&b);
    }
}

static void an_executable_that_is_not_there_is_unsupported(void)
{
    bench b;
    open_bench(&b, "/nowhere/gimbal", gb_seconds(60));
    CHECK_EQ(start(&b, "x", ""), GB_EUNSUPPORTED);
    CHECK_CONTAINS(b.err.text, "/nowhere/gimbal cannot be started");
    uv_run(&b.loop, UV_RUN_DEFAULT);
    CHECK_EQ(b.answer.times, 0);
    close_bench(&b);
}

static void a_cancelled_check_has_no_end(void)
{
    bench b;
    write_program("sleep 1000");
    open_bench(&b, program, gb_seconds(60));
    CHECK_EQ(start(&b, "x", ""), GB_OK);
    const gb_checker_seam *seam = gb_checker_seam_of(b.checker);
    seam->cancel(seam->self, b.job);
    uv_run(&b.loop, UV_RUN_DEFAULT);
    CHECK_EQ(b.answer.times, 0);
    close_bench(&b);
}

static void closing_kills_what_still_runs(void)
{
    bench b;
    write_program("sleep 1000");
    open_bench(&b, program, gb_seconds(60));
    for (int i = 0; i < 3; i++) CHECK_EQ(start(&b, "x", ""), GB_OK);
    close_bench(&b);
    CHECK_EQ(b.answer.times, 0);
}

TESTS(TEST(a_process_gets_the_script_and_the_snapshots_and_its_report_comes_back), TEST(a_script_larger_than_a_pipe_gets_through),
      TEST(a_process_over_its_deadline_is_killed_with_its_children), TEST(a_report_without_end_is_cut_off), TEST(a_process_that_fails_says_how),
      TEST(an_executable_that_is_not_there_is_unsupported), TEST(a_cancelled_check_has_no_end), TEST(closing_kills_what_still_runs))
