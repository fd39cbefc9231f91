#include "bindings/cli/log_lines.h"

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 };    /* at most PIPE_BUF, so that a line is written whole or not at all */

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static bool log_json;
static _Thread_local uint32_t dropped;    /* lines of this thread that were lost since the last one written */

/* Appends s as the inside of a JSON string; stops early rather than cutting an escape. */
static size_t append_escaped(char *out, size_t at, size_t capacity, const char *s)
{
    for (const unsigned char *c = (const unsigned char *)s; *c && at + 8 < capacity; c++) {
        if (*c == '"' || *c == '\\') at += (size_t)snprintf(out + at, capacity - at, "\\%c", *c);
        else if (*c < 0x20) at += (size_t)snprintf(out + at, capacity - at, "\\u%04x", *c);
        else out[at++] = (char)*c;
    }
    return at;
}

static size_t format_time(char *out, size_t capacity)
{
    struct timespec t;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &utc);
    size_t n = strftime(out, capacity, "%Y-%m-%dT%H:%M:%S", &utc);
    return n + (size_t)snprintf(out + n, capacity - n, ".%03dZ", (int)(t.tv_nsec / 1000000));
}

static size_t format_json(char *out, size_t capacity, gb_log_level level, const char *line)
{
    size_t at = (size_t)snprintf(out, capacity, "{\"time\": \"");
    at += format_time(out + at, capacity - at);
    at += (size_t)snprintf(out + at, capacity - at, "\", \"level\": \"%s\", \"dropped\": %u, \"message\": \"", level_names[level], dropped);
    at = append_escaped(out, at, capacity - 4, line);
    return at + (size_t)snprintf(out + at, capacity - at, "\"}\n");
}

static size_t format_text(char *out, size_t capacity, gb_log_level level, const char *line)
{
    size_t at = format_time(out, capacity);
    at += (size_t)snprintf(out + at, capacity - at, " %-5s ", level_names[level]);
    if (dropped) at += (size_t)snprintf(out + at, capacity - at, "[%u lines lost] ", dropped);
    for (const char *c = line; *c && at + 2 < capacity; c++) out[at++] = (unsigned char)*c < 0x20 && *c != '\t' ? ' ' : *c;
    out[at++] = '\n';
    return at;
}

bool gb_log_lines_write(int fd, bool json, gb_log_level level, const char *line)
{
    char text[LINE_BYTES];
    size_t n = (json ? format_json : format_text)(text, sizeof text, level, line);
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    bool written = poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) && write(fd, text, n) == (ssize_t)n;
    dropped = written ? 0 : dropped + 1;
    return written;
}

static void sink(void *self, gb_log_level level, const char *line)
{
    (void)self;
    gb_log_lines_write(STDERR_FILENO, log_json, level, line);
}

void gb_log_lines_start(const char *level, const char *format)
{
    gb_log_level lowest = GB_LOG_INFO;
    for (int i = GB_LOG_DEBUG; i <= GB_LOG_ERROR; i++) {
        if (strcmp(level, level_names[i]) == 0) lowest = (gb_log_level)i;
    }
    log_json = strcmp(format, "json") == 0;
    gb_log_set_sink(sink, NULL, lowest);
}
