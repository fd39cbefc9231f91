#define _GNU_SOURCE
#include "bindings/uv/socket_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path));
    return address;
}

static int make_socket(void) { return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

/* Only a server that is gone refuses a connection; every other answer, a full backlog included, comes from a live one. */
static int check_dead(const char *path, gb_error *err)
{
    struct sockaddr_un address = address_of(path);
    int fd = make_socket();
    if (fd < 0) return gb_fail(err, GB_EIO, "socket %s: %s", path, strerror(errno));
    int refused = connect(fd, (struct sockaddr *)&address, sizeof address) ? errno : 0;
    close(fd);
    if (refused == ECONNREFUSED || refused == ENOENT) return GB_OK;
    if (refused == 0 || refused == EAGAIN)
        return gb_fail(err, GB_EEXIST, "socket %s: a server is listening there already; stop it or choose another --socket", path);
    return gb_fail(err, GB_EIO, "socket %s: %s", path, strerror(refused));
}

static int remove_stale(const char *path, gb_error *err)
{
    struct stat st;
    if (lstat(path, &st)) return errno == ENOENT ? GB_OK : gb_fail(err, GB_EIO, "socket %s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return gb_fail(err, GB_EEXIST, "socket %s: the file exists and is no socket; choose another --socket", path);
    int status = check_dead(path, err);
    if (status) return status;
    if (unlink(path) && errno != ENOENT) return gb_fail(err, GB_EIO, "socket %s: %s", path, strerror(errno));
    return GB_OK;
}

/* The directory is locked between the look at an old file and the new socket, so that two starting servers take turns. */
static int lock_directory(int *fd, const char *path, gb_error *err)
{
    char directory[GB_SOCKET_PATH_MAX + 1];
    const char *slash = strrchr(path, '/');
    size_t bytes = slash ? (size_t)(slash - path) + (slash == path) : 1;
    memcpy(directory, slash ? path : ".", bytes);
    directory[bytes] = '\0';
    *fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) return gb_fail(err, GB_EIO, "socket %s: directory %s: %s", path, directory, strerror(errno));
    while (flock(*fd, LOCK_EX)) {
        if (errno != EINTR) break;    /* a file system without locks: two starts at one moment may race, nothing worse */
    }
    return GB_OK;
}

static int bind_private(int fd, const char *path, gb_error *err)
{
    struct sockaddr_un address = address_of(path);
    mode_t before = umask(0177);    /* the file is private from its first moment */
    int failed = bind(fd, (struct sockaddr *)&address, sizeof address) ? errno : 0;
    umask(before);
    return failed ? gb_fail(err, GB_EIO, "socket %s: %s", path, strerror(failed)) : GB_OK;
}

int gb_socket_path_bind(int *out, const char *path, gb_error *err)
{
    size_t bytes = strlen(path);
    int directory = -1, fd = -1;
    if (bytes == 0) return gb_fail(err, GB_EINVAL, "socket: the path is empty");
    if (bytes > GB_SOCKET_PATH_MAX)
        return gb_fail(err, GB_ETOOBIG, "socket %s: the path has %zu bytes, a Unix socket takes at most %d; choose a shorter --socket",
                       path, bytes, GB_SOCKET_PATH_MAX);
    int status = lock_directory(&directory, path, err);
    if (!status) status = remove_stale(path, err);
    if (!status && (fd = make_socket()) < 0) status = gb_fail(err, GB_EIO, "socket %s: %s", path, strerror(errno));
    if (!status) status = bind_private(fd, path, err);
    /* Listening here, under the lock: a bound socket that does not listen yet looks like a dead one. */
    if (!status && listen(fd, SOMAXCONN)) status = gb_fail(err, GB_EIO, "socket %s: %s", path, strerror(errno));
    if (directory >= 0) close(directory);
    if (status && fd >= 0) close(fd);
    if (!status) *out = fd;
    return status;
}

int gb_socket_path_default(char *path, size_t capacity)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *home = getenv("HOME");
    if (runtime && *runtime) snprintf(path, capacity, "%s/gimbal.sock", runtime);
    else if (home && *home) snprintf(path, capacity, "%s/.gimbal.sock", home);
    else return GB_ENOTFOUND;
    return GB_OK;
}
