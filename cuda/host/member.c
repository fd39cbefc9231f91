#define _GNU_SOURCE
#include "cuda/host/member.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/log.h"

enum { LOOK_EVERY_MS = 2 };    /* for the end of a process */

extern char **environ;

/* --- sockets --- */

static void close_ends(int *ends)
{
    for (int i = 0; i < GB_WIRE_PAIRS; i++) {
        if (ends[i] >= 0) close(ends[i]);
        ends[i] = -1;
    }
}

void gb_member_init(gb_member *m, const gb_follower_start *start)
{
    *m = (gb_member){.start = *start};
    for (int i = 0; i < GB_WIRE_PAIRS; i++) m->sockets[i] = m->start.sockets[i] = -1;
}

static int open_pairs(gb_member *m, gb_error *err)
{
    for (int i = 0; i < GB_WIRE_PAIRS; i++) {
        int ends[2], kind = i == GB_WIRE_CONTROL ? SOCK_SEQPACKET : SOCK_STREAM;
        if (socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, ends)) {
            int error = errno;
            close_ends(m->sockets);
            close_ends(m->start.sockets);
            return gb_fail(err, GB_ENOMEM, "no sockets for rank %u: %s; raise ulimit -n", m->start.seat.rank, strerror(error));
        }
        m->sockets[i] = ends[0];
        m->start.sockets[i] = ends[1];
    }
    for (int i = 0; i < GB_WIRE_CONTROL; i++) m->lines[i].in.socket = m->sockets[i];
    return GB_OK;
}

/* --- starting --- */

static void *run_thread(void *self)
{
    gb_follower_run(self);
    return NULL;
}

static int start_thread(gb_member *m, gb_error *err)
{
    int error = pthread_create(&m->thread, NULL, run_thread, &m->start);
    if (error) return gb_fail(err, GB_ENOMEM, "no thread for rank %u: %s", m->start.seat.rank, strerror(error));
    m->runs = true;
    return GB_OK;
}

/* dup2 within the child must not overwrite an end that it still needs, so all ends are above the three where they go. */
static int lift(int *ends)
{
    for (int i = 0; i < GB_WIRE_PAIRS; i++) {
        if (ends[i] >= GB_BACKEND_RANK_SOCKET + GB_WIRE_PAIRS) continue;
        int above = fcntl(ends[i], F_DUPFD_CLOEXEC, GB_BACKEND_RANK_SOCKET + GB_WIRE_PAIRS);
        if (above < 0) return errno;
        close(ends[i]);
        ends[i] = above;
    }
    return 0;
}

static int set_files(posix_spawn_file_actions_t *files, const int *ends)
{
    int error = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error) error = posix_spawn_file_actions_adddup2(files, STDERR_FILENO, STDOUT_FILENO);    /* the answer on stdout is the gang's */
    for (int i = 0; !error && i < GB_WIRE_PAIRS; i++) error = posix_spawn_file_actions_adddup2(files, ends[i], GB_BACKEND_RANK_SOCKET + i);
    return error ? error : posix_spawn_file_actions_addclosefrom_np(files, GB_BACKEND_RANK_SOCKET + GB_WIRE_PAIRS);
}

/* The program again, with its hidden verb. Nothing of a CUDA context may be inherited, and posix_spawn shares nothing but files. */
static int spawn(gb_member *m)
{
    char program[] = "gimbal", verb[] = "rank", name[] = GB_CUDA_NAME, *const argv[] = {program, verb, name, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigfillset(&defaults);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    int error = lift(m->start.sockets);
    if (!error) error = set_files(&files, m->start.sockets);
    if (!error) error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (!error) error = posix_spawnattr_setsigmask(&attributes, &none);
    if (!error) error = posix_spawnattr_setsigdefault(&attributes, &defaults);
    if (!error) error = posix_spawn(&m->pid, "/proc/self/exe", &files, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

static int start_process(gb_member *m, gb_error *err)
{
    gb_wire_buffer out = {0};
    int error = spawn(m);
    close_ends(m->start.sockets);
    if (error) {
        m->pid = 0;
        return gb_fail(err, GB_EUNSUPPORTED, "no process for rank %u: %s", m->start.seat.rank, strerror(error));
    }
    m->runs = true;
    gb_follower_put_start(&out, &m->start);
    int status = gb_wire_send(m->sockets[GB_WIRE_ROUNDS], &out, gb_wire_now() + gb_ms(GB_MEMBER_FAREWELL_MS));
    gb_wire_free(&out);
    char epitaph[GB_FOLLOWER_WHY_BYTES];
    if (status) gb_member_epitaph(m, epitaph, sizeof epitaph);
    return status ? gb_fail(err, status, "%s before it was told what to do", epitaph) : GB_OK;
}

int gb_member_start(gb_member *m, bool process, gb_error *err)
{
    int status = open_pairs(m, err);
    if (!status) status = process ? start_process(m, err) : start_thread(m, err);
    if (status && !m->runs) {
        close_ends(m->sockets);
        close_ends(m->start.sockets);
    }
    return status;
}

/* --- ends --- */

bool gb_member_is_over(gb_member *m)
{
    if (!m->pid) return false;
    if (m->runs && waitpid(m->pid, &m->ended, WNOHANG) != 0) m->runs = false;
    return !m->runs;
}

bool gb_member_has_died(gb_member *m) { return gb_member_is_over(m) && m->ended != 0; }

static bool await_process(gb_member *m, gb_time deadline)
{
    while (!gb_member_is_over(m) && gb_wire_now() < deadline) nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY_MS * 1000000}, NULL);
    return !m->runs;
}

void gb_member_epitaph(gb_member *m, char *out, size_t capacity)
{
    uint32_t rank = m->start.seat.rank;
    int pid = (int)m->pid;
    if (!pid) snprintf(out, capacity, "the thread of rank %u is over", rank);
    else if (!await_process(m, gb_wire_now() + gb_ms(GB_MEMBER_EXIT_MS))) snprintf(out, capacity, "rank %u (process %d) closed its socket", rank, pid);
    else if (!WIFSIGNALED(m->ended)) snprintf(out, capacity, "rank %u (process %d) ended with exit status %d", rank, pid, WEXITSTATUS(m->ended));
    else {
        int signal_number = WTERMSIG(m->ended);
        snprintf(out, capacity, "rank %u (process %d) was killed by signal %d (%s)", rank, pid, signal_number, strsignal(signal_number));
    }
}

void gb_member_give_up(const gb_member *m, const char *why)
{
    if (m->sockets[GB_WIRE_CONTROL] >= 0) send(m->sockets[GB_WIRE_CONTROL], why, strlen(why), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The rank closes when it reads the message; without grace, when it finds the sockets shut. The control socket stays open for reading: the
   last log lines come through it. */
void gb_member_leave(gb_member *m, bool grace)
{
    gb_wire_buffer out = {0};
    if (!m->runs) return;
    gb_wire_begin(&out, GB_WIRE_CLOSE);
    if (grace) gb_wire_send(m->sockets[GB_WIRE_ROUNDS], &out, gb_wire_now() + gb_ms(GB_MEMBER_EXIT_MS));
    else
        for (int i = 0; i < GB_WIRE_PAIRS; i++) shutdown(m->sockets[i], i == GB_WIRE_CONTROL ? SHUT_WR : SHUT_RDWR);
    gb_wire_free(&out);
}

static bool end_thread(gb_member *m, gb_time deadline)
{
    struct timespec until;
    gb_time left = gb_time_since(gb_wire_now(), deadline);
    clock_gettime(CLOCK_REALTIME, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + left;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    if (pthread_timedjoin_np(m->thread, NULL, &until) == 0) m->runs = false;
    else gb_log(GB_LOG_ERROR, "cuda: the thread of rank %u does not end and is left behind", m->start.seat.rank);
    return !m->runs;
}

static bool end_process(gb_member *m, gb_time deadline)
{
    char epitaph[GB_FOLLOWER_WHY_BYTES];
    bool in_time = await_process(m, deadline);
    if (!in_time) {
        gb_log(GB_LOG_ERROR, "cuda: rank %u (process %d) does not end and is killed", m->start.seat.rank, (int)m->pid);
        kill(m->pid, SIGKILL);
        await_process(m, GB_NEVER);
    } else if (m->ended && !(WIFEXITED(m->ended) && WEXITSTATUS(m->ended) == GB_FOLLOWER_ORPHAN)) {
        gb_member_epitaph(m, epitaph, sizeof epitaph);
        gb_log(GB_LOG_ERROR, "cuda: %s", epitaph);
    }
    return in_time;
}

bool gb_member_end(gb_member *m, gb_time deadline)
{
    return !m->runs || (m->pid ? end_process(m, deadline) : end_thread(m, deadline));
}

void gb_member_close(gb_member *m)
{
    close_ends(m->sockets);
    for (int i = 0; i < GB_WIRE_CONTROL; i++) gb_wire_free(&m->lines[i].in.bytes);
}
