#include "bindings/cli/map_guard.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

enum { BYTES = 1 << 20 };

/* Reads a mapped file that was cut short behind the mapping's back; never returns. */
static void read_beyond(const char *path, int say_to)
{
    volatile char sum = 0;
    dup2(say_to, STDERR_FILENO);
    int fd = open(path, O_RDWR);
    const volatile char *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || ftruncate(fd, 10)) _exit(1);
    gb_map_guard_start();
    for (int i = 0; i < BYTES; i += 4096) sum = (char)(sum + map[i]);
    _exit(2);
}

static void a_mapped_file_that_is_cut_ends_the_process_by_name(void)
{
    char path[] = "/tmp/gimbal_map_XXXXXX", text[1024];
    int fd = mkstemp(path), fds[2], status = 0;
    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, BYTES), 0);
    CHECK_EQ(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) read_beyond(path, fds[1]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 65);
    close(fds[1]);
    ssize_t n = read(fds[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    CHECK_CONTAINS(text, path);
    CHECK_CONTAINS(text, "became shorter");
    close(fds[0]), close(fd), unlink(path);
}

TESTS(TEST(a_mapped_file_that_is_cut_ends_the_process_by_name))
