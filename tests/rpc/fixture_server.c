/* The fixture behind real sockets, for tests of the clients: fixture_server UNIX_PATH PORT_FILE [API_KEY]. Listens on a Unix
   socket and on a free TCP port, writes that port to PORT_FILE, and serves until the shutdown method is called. */
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/base/assert.h"
#include "tests/rpc/fixture.h"

enum { LISTENERS = 2, CONNS_MAX = 64 };

static struct pollfd fds[LISTENERS + CONNS_MAX];
static gb_rpc_conn *conns[LISTENERS + CONNS_MAX];
static nfds_t n_fds = LISTENERS;

static gb_time read_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return gb_seconds((uint64_t)t.tv_sec) + (gb_time)t.tv_nsec;
}

static int listen_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    unlink(path);
    GB_ASSERT(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 16) == 0);
    return fd;
}

static int listen_tcp(const char *port_file)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    GB_ASSERT(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 16) == 0);
    GB_ASSERT(getsockname(fd, (struct sockaddr *)&address, &bytes) == 0);
    FILE *file = fopen(port_file, "w");
    GB_ASSERT(file);
    fprintf(file, "%d\n", ntohs(address.sin_port));
    fclose(file);
    return fd;
}

static void accept_one(fixture *f, int listener)
{
    int fd = accept(fds[listener].fd, NULL, NULL);
    GB_ASSERT(fd >= 0 && n_fds < LISTENERS + CONNS_MAX);
    conns[n_fds] = gb_rpc_open(f->service, listener == 0, f->now);
    fds[n_fds++] = (struct pollfd){.fd = fd};
}

static void close_one(fixture *f, nfds_t i)
{
    gb_rpc_close(conns[i], f->now);
    close(fds[i].fd);
    n_fds--;
    fds[i] = fds[n_fds];
    conns[i] = conns[n_fds];
}

/* False when the connection is over. */
static bool serve_one(fixture *f, nfds_t i)
{
    static char bytes[1 << 16];
    ssize_t n;
    size_t waiting;
    if ((fds[i].revents & (POLLIN | POLLHUP)) && gb_rpc_wants_input(conns[i])) {
        n = recv(fds[i].fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n == 0) return false;
        if (n > 0) gb_rpc_input(conns[i], bytes, (size_t)n, f->now);
    }
    const void *out = gb_rpc_output(conns[i], &waiting);
    if (waiting == 0) return !gb_rpc_wants_close(conns[i]);
    n = send(fds[i].fd, out, waiting, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) gb_rpc_sent(conns[i], (size_t)n, f->now);
    return true;
}

static bool has_work(const fixture *f)
{
    gb_server_stats stats;
    gb_server_stats_get(f->instance.server, &stats);
    return stats.live > 0;
}

static void turn(fixture *f)
{
    for (nfds_t i = 0; i < n_fds; i++) {
        size_t waiting = 0;
        if (i >= LISTENERS) gb_rpc_output(conns[i], &waiting);
        fds[i].events = (short)(POLLIN | (waiting ? POLLOUT : 0));
    }
    poll(fds, n_fds, has_work(f) ? 0 : 20);
    gb_time now = read_clock();
    if (now > f->now) f->now = now;    /* a round takes a millisecond of the fixture's time, and less of ours */
    for (int i = 0; i < LISTENERS; i++)
        if (fds[i].revents & POLLIN) accept_one(f, i);
    for (nfds_t i = n_fds; i-- > LISTENERS;)
        if (!serve_one(f, i)) close_one(f, i);
    fixture_round(f);
}

int main(int argc, char **argv)
{
    fixture f;
    GB_ASSERT(argc >= 3);
    fds[0].fd = listen_unix(argv[1]);
    fds[1].fd = listen_tcp(argv[2]);
    fixture_open(&f, &(fixture_options){.api_key = argc > 3 ? argv[3] : NULL, .admin_token = "the token"});
    f.now = read_clock();
    while (!f.shutdown_called) turn(&f);
    turn(&f);    /* the answer to shutdown */
    while (n_fds > LISTENERS) close_one(&f, n_fds - 1);
    fixture_close(&f);
    unlink(argv[1]);
    return 0;
}
