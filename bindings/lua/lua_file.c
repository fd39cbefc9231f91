#include "bindings/lua/lua_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int line_of(const char *data, const char *at)
{
    int line = 1;
    for (const char *p = data; p < at; p++) line += *p == '\n';
    return line;
}

int gb_lua_text_check(const char *name, const char *data, size_t bytes, gb_error *err)
{
    if (bytes && data[0] == '\x1b')
        return gb_fail(err, GB_EINVAL, "%s is Lua bytecode; only source text is accepted", name);
    if (bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0)
        return gb_fail(err, GB_EINVAL, "%s starts with a UTF-8 byte order mark; save it as UTF-8 without BOM", name);
    const char *nul = bytes ? memchr(data, 0, bytes) : NULL;
    if (nul)
        return gb_fail(err, GB_EINVAL, "%s:%d: a NUL byte at offset %td; this is not a Lua text, save the file as plain UTF-8", name, line_of(data, nul), nul - data);
    const char *cr = bytes ? memchr(data, '\r', bytes) : NULL;
    if (cr)
        return gb_fail(err, GB_EINVAL, "%s:%d: a carriage return; save the file with Unix line ends (LF)", name, line_of(data, cr));
    return GB_OK;
}

/* O_NONBLOCK, so that a FIFO cannot hold the server up. */
static int open_regular(int *fd, size_t *bytes, const char *path, const char *what, gb_error *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 && errno == ENOENT) return gb_fail(err, GB_ENOTFOUND, "%s does not exist; check the path", path);
    if (*fd < 0) return gb_fail(err, GB_EIO, "%s cannot be opened: %s", path, strerror(errno));
    struct stat status;
    int found = fstat(*fd, &status);
    if (found == 0 && S_ISREG(status.st_mode)) {
        *bytes = (size_t)status.st_size;
        return GB_OK;
    }
    close(*fd);
    const char *is = found == 0 && S_ISDIR(status.st_mode) ? "a directory" : "not a regular file";
    return gb_fail(err, GB_EINVAL, "%s is %s; %s is one .lua file", path, is, what);
}

/* Reads until the end, for a file may have changed since its size was asked for. */
static int read_all(gb_lua_text *text, int fd, const char *path, size_t capacity, gb_error *err)
{
    text->data = malloc(capacity + 1);
    if (!text->data) return gb_fail(err, GB_ENOMEM, "out of memory for %s", path);
    for (;;) {
        ssize_t n = text->bytes < capacity ? read(fd, text->data + text->bytes, capacity - text->bytes) : 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gb_fail(err, GB_EIO, "%s cannot be read: %s", path, strerror(errno));
        if (n == 0) break;
        text->bytes += (size_t)n;
    }
    text->data[text->bytes] = 0;
    return GB_OK;
}

int gb_lua_file_read(gb_lua_text *text, const char *path, const char *what, size_t most_bytes, gb_error *err)
{
    *text = (gb_lua_text){0};
    int fd;
    size_t bytes = 0;
    int status = open_regular(&fd, &bytes, path, what, err);
    if (status) return status;
    if (bytes > most_bytes)
        status = gb_fail(err, GB_ETOOBIG, "%s has %zu bytes; %s has at most %zu, shorten it", path, bytes, what, most_bytes);
    if (!status) status = read_all(text, fd, path, bytes, err);
    if (!status) status = gb_lua_text_check(path, text->data, text->bytes, err);
    close(fd);
    if (status) gb_lua_text_free(text);
    return status;
}

int gb_lua_stream_read(gb_lua_text *text, int fd, const char *name, const char *what, size_t most_bytes, gb_error *err)
{
    *text = (gb_lua_text){0};
    int status = read_all(text, fd, name, most_bytes + 1, err);
    if (!status && text->bytes > most_bytes)
        status = gb_fail(err, GB_ETOOBIG, "%s has more than %zu bytes; %s has at most that", name, most_bytes, what);
    if (!status) status = gb_lua_text_check(name, text->data, text->bytes, err);
    if (status) gb_lua_text_free(text);
    return status;
}

void gb_lua_text_free(gb_lua_text *text)
{
    free(text->data);
    *text = (gb_lua_text){0};
}
