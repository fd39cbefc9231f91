#define _GNU_SOURCE
#include "bindings/uv/checker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/assert.h"

enum {
    FIRST_OWN_FD = 4,       /* above what the child gets: 0 script, 1 report, 2 nothing, 3 snapshots */
    READ_BYTES = 16384,
    REAP_EVERY_MS = 2,      /* between the end of the report and that of the process */
};

extern char **environ;

typedef struct job {
    gb_checker *checker;
    struct job *next;
    uint64_t id;
    uv_pipe_t out;              /* the child's standard output */
    uv_timer_t timer;           /* the deadline, then the wait for the process */
    unsigned open_handles;
    pid_t pid;                  /* 0: it has been waited for */
    int code;                   /* how it ended, of waitpid */
    bool cancelled, ended;      /* nobody wants the report; it is whole, or cut */
    int status;                 /* why there is no report */
    gb_error err;
    gb_check_done *done;
    void *done_self;
    size_t n;
    char report[GB_CHECK_REPORT_MAX + 1];
} job;

struct gb_checker {
    uv_loop_t *loop;
    const char *executable;
    gb_time deadline;
    gb_time (*clock)(void *self);
    void *clock_self;
    gb_checker_seam seam;
    uint64_t last_id;
    job *jobs;
    bool closed;
};

/* ---- the end of a job ---- */

static void unlink_job(gb_checker *c, const job *j)
{
    job **at = &c->jobs;
    while (*at != j) at = &(*at)->next;
    *at = j->next;
}

static void on_closed(uv_handle_t *handle)
{
    job *j = handle->data;
    gb_checker *c = j->checker;
    if (--j->open_handles > 0) return;
    unlink_job(c, j);
    free(j);
    if (c->closed && !c->jobs) free(c);
}

static void close_handles(job *j)
{
    uv_close((uv_handle_t *)&j->out, on_closed);
    uv_close((uv_handle_t *)&j->timer, on_closed);
}

static void kill_child(const job *j)
{
    if (j->pid > 0) kill(-j->pid, SIGKILL);    /* with what it may have started */
}

/* 0 and 1 are what a check ends with. */
static void judge(job *j)
{
    bool answered = WIFEXITED(j->code) && WEXITSTATUS(j->code) <= 1 && j->n > 0;
    if (j->status || answered) return;
    j->status = WIFEXITED(j->code) ? gb_fail(&j->err, GB_EINTERNAL, "%s ended with exit code %d and no report of the policy", j->checker->executable, WEXITSTATUS(j->code))
                                   : gb_fail(&j->err, GB_EINTERNAL, "%s was killed by signal %d while it checked the policy", j->checker->executable, WTERMSIG(j->code));
}

static void on_reap(uv_timer_t *timer)
{
    job *j = timer->data;
    gb_checker *c = j->checker;
    if (waitpid(j->pid, &j->code, WNOHANG) == 0) return;
    j->pid = 0;
    judge(j);
    j->report[j->n] = '\0';
    if (!j->cancelled) j->done(j->done_self, j->status, j->report, j->n, &j->err, c->clock(c->clock_self));
    close_handles(j);
}

/* The process has said what it has to say, or will not be heard any more. */
static void end_report(job *j)
{
    if (j->ended) return;
    j->ended = true;
    uv_read_stop((uv_stream_t *)&j->out);
    kill_child(j);    /* what has closed its output is ending: this changes nothing for it */
    uv_timer_start(&j->timer, on_reap, 0, REAP_EVERY_MS);
}

static void on_deadline(uv_timer_t *timer)
{
    job *j = timer->data;
    j->status = gb_fail(&j->err, GB_EDEADLINE, "the check of the policy took more than %g s and was ended", gb_to_ms(j->checker->deadline) / 1e3);
    end_report(j);
}

/* ---- reading ---- */

static void give_room(uv_handle_t *handle, size_t wanted, uv_buf_t *buffer)
{
    job *j = handle->data;
    size_t room = GB_CHECK_REPORT_MAX - j->n;
    (void)wanted;
    *buffer = uv_buf_init(j->report + j->n, (unsigned)(room < READ_BYTES ? room : READ_BYTES));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    job *j = stream->data;
    (void)buffer;
    if (n > 0) j->n += (size_t)n;
    if (n == UV_ENOBUFS || j->n == GB_CHECK_REPORT_MAX)
        j->status = gb_fail(&j->err, GB_ETOOBIG, "the report of the policy has more than %d bytes", GB_CHECK_REPORT_MAX);
    if (n < 0 || j->status) end_report(j);
}

/* ---- starting ---- */

/* A file in memory, above the numbers that the child's own files have. -1 without memory. */
static int open_text(const char *text, size_t bytes)
{
    int low = memfd_create("gimbal-check", MFD_CLOEXEC);
    int fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, FIRST_OWN_FD);
    if (low >= 0) close(low);
    for (size_t at = 0; fd >= 0 && at < bytes;) {
        ssize_t n = write(fd, text + at, bytes - at);
        if (n > 0) at += (size_t)n;
        else if (n < 0 && errno == EINTR) continue;
        else close(fd), fd = -1;
    }
    if (fd >= 0) lseek(fd, 0, SEEK_SET);
    return fd;
}

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fds[i] >= 0) close(fds[i]);
}

static int open_report(int fds[2])
{
    int low[2];
    if (pipe2(low, O_CLOEXEC)) return -1;
    for (int i = 0; i < 2; i++) {
        fds[i] = fcntl(low[i], F_DUPFD_CLOEXEC, FIRST_OWN_FD);
        close(low[i]);
    }
    if (fds[0] >= 0 && fds[1] >= 0) return 0;
    close_all(fds, 2);
    return -1;
}

/* posix_spawn, which copies no page tables: fork would stop the loop for as long as the model is large. */
static int spawn(pid_t *pid, const char *executable, const gb_check_script *script, const int fds[3])
{
    char engines[16], *name = (char *)(uintptr_t)script->name;
    snprintf(engines, sizeof engines, "%u", script->engines);
    char *const argv[] = {"gimbal", "policy", "check", "--json", "--engines", engines, "--name", name, "--on", "/dev/fd/3", "-", NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    int error = posix_spawn_file_actions_adddup2(&files, fds[0], 0);
    if (!error) error = posix_spawn_file_actions_adddup2(&files, fds[1], 1);
    if (!error) error = posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    if (!error) error = posix_spawn_file_actions_adddup2(&files, fds[2], 3);
    if (!error) error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (!error) error = posix_spawnattr_setsigmask(&attributes, &none);
    if (!error) error = posix_spawnattr_setsigdefault(&attributes, &defaults);
    if (!error) error = posix_spawn(pid, executable, &files, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

/* *report: where the child's report can be read. */
static int launch(job *j, int *report, const gb_check_script *script, gb_error *err)
{
    int pipe_fds[2] = {-1, -1};
    int source = open_text(script->source, script->source_bytes), snapshots = open_text(script->snapshots, script->snapshot_bytes);
    if (source < 0 || snapshots < 0 || open_report(pipe_fds)) {
        close_all((const int[]){source, snapshots}, 2);
        return gb_fail(err, GB_ENOMEM, "out of memory or files for a check of the policy");
    }
    int error = spawn(&j->pid, j->checker->executable, script, (const int[]){source, pipe_fds[1], snapshots});
    close_all((const int[]){source, snapshots, pipe_fds[1], error ? pipe_fds[0] : -1}, 4);
    *report = pipe_fds[0];
    return error ? gb_fail(err, GB_EUNSUPPORTED, "%s cannot be started to check a policy: %s", j->checker->executable, strerror(error)) : GB_OK;
}

static void watch(job *j, int report)
{
    gb_checker *c = j->checker;
    uv_pipe_init(c->loop, &j->out, 0);
    uv_timer_init(c->loop, &j->timer);
    j->out.data = j->timer.data = j;
    j->open_handles = 2;
    if (uv_pipe_open(&j->out, report) || uv_read_start((uv_stream_t *)&j->out, give_room, on_read)) {
        j->status = gb_fail(&j->err, GB_EINTERNAL, "the report of the policy cannot be read");
        end_report(j);
    } else {
        uv_timer_start(&j->timer, on_deadline, (c->deadline + 999999) / 1000000, 0);
    }
}

static int start(void *self, uint64_t *id, const gb_check_script *script, gb_check_done *done, void *done_self, gb_error *err)
{
    gb_checker *c = self;
    int report = -1;
    job *j = malloc(sizeof *j);
    if (!j) return gb_fail(err, GB_ENOMEM, "out of memory for a check of the policy");
    memset(j, 0, offsetof(job, report));
    j->checker = c;
    int status = launch(j, &report, script, err);
    if (status) {
        free(j);
        return status;
    }
    *id = j->id = ++c->last_id;
    j->done = done;
    j->done_self = done_self;
    j->next = c->jobs;
    c->jobs = j;
    watch(j, report);
    return GB_OK;
}

static void cancel_job(job *j)
{
    j->cancelled = true;
    end_report(j);
}

static void cancel(void *self, uint64_t id)
{
    const gb_checker *c = self;
    for (job *j = c->jobs; j; j = j->next)
        if (j->id == id) cancel_job(j);
}

/* ---- life ---- */

int gb_checker_new(gb_checker **out, uv_loop_t *loop, const char *executable, gb_time deadline, gb_time (*clock)(void *self), void *self, gb_error *err)
{
    gb_checker *c = calloc(1, sizeof *c);
    if (!c) return gb_fail(err, GB_ENOMEM, "out of memory for checks of policies");
    *c = (gb_checker){.loop = loop, .executable = executable, .deadline = deadline, .clock = clock, .clock_self = self};
    c->seam = (gb_checker_seam){.self = c, .start = start, .cancel = cancel};
    *out = c;
    return GB_OK;
}

void gb_checker_close(gb_checker *c)
{
    if (!c) return;
    c->closed = true;
    for (job *j = c->jobs; j; j = j->next) cancel_job(j);
    if (!c->jobs) free(c);
}

const gb_checker_seam *gb_checker_seam_of(const gb_checker *checker) { return &checker->seam; }
