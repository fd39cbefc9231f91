#include "bindings/cli/map_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "bindings/cli/command.h"

enum { LINE_BYTES = 4352 };    /* a line of /proc/self/maps with the longest path */

/* Everything below runs in a signal handler: open, read, write and plain memory only. */

static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static const char *parse_hex(const char *at, uintptr_t *value)
{
    *value = 0;
    for (;; at++) {
        int digit = *at >= '0' && *at <= '9' ? *at - '0' : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10 : -1;
        if (digit < 0) return at;
        *value = *value << 4 | (uintptr_t)digit;
    }
}

/* "7f00-7f10 r--p ... /path": the path when the address is inside, else NULL. */
static const char *path_in_line(const char *line, uintptr_t address)
{
    uintptr_t from, to;
    const char *dash = parse_hex(line, &from);
    if (*dash != '-') return NULL;
    parse_hex(dash + 1, &to);
    return address >= from && address < to ? strchr(line, '/') : NULL;
}

static const char *mapped_file(uintptr_t address)
{
    static char line[LINE_BYTES];
    size_t n = 0;
    char c;
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (maps >= 0 && read(maps, &c, 1) == 1) {
        if (c != '\n') {
            if (n + 1 < sizeof line) line[n++] = c;
            continue;
        }
        line[n] = '\0';
        n = 0;
        const char *path = path_in_line(line, address);
        if (path) return path;
    }
    return NULL;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    const char *path = mapped_file((uintptr_t)info->si_addr);
    say("gimbal: ");
    say(path ? path : "a mapped file");
    say(": the file became shorter than its header says while it was read; restore it and start again\n");
    _exit(GB_EXIT_DATA);
}

void gb_map_guard_start(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    action.sa_sigaction = on_bus_error;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

void gb_map_guard_stop(void) { signal(SIGBUS, SIG_DFL); }
