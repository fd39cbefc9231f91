#include "bindings/cli/log_lines.h"

#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

#include "tests/check.h"

static size_t read_all(int fd, char *out, size_t capacity)
{
    ssize_t n = read(fd, out, capacity - 1);
    out[n < 0 ? 0 : n] = '\0';
    return n < 0 ? 0 : (size_t)n;
}

static void a_text_line_has_time_level_and_message(void)
{
    int fds[2];
    char text[256];
    CHECK_EQ(pipe(fds), 0);
    CHECK(gb_log_lines_write(fds[1], false, GB_LOG_WARN, "two\nlines"));
    read_all(fds[0], text, sizeof text);
    CHECK_EQ(text[4], '-');
    CHECK_EQ(text[10], 'T');
    CHECK_EQ(text[23], 'Z');
    CHECK_STR(text + 24, " warn  two lines\n");    /* a message cannot forge a line of its own */
    close(fds[0]), close(fds[1]);
}

static void a_json_line_is_an_object_whatever_the_message(void)
{
    int fds[2];
    char text[8192], message[6000];
    CHECK_EQ(pipe(fds), 0);
    memset(message, '"', sizeof message - 1);
    message[sizeof message - 1] = '\0';
    const char *messages[] = {"plain", "quote \" back \\ newline \n", message};
    for (size_t i = 0; i < 3; i++) {
        CHECK(gb_log_lines_write(fds[1], true, GB_LOG_INFO, messages[i]));
        read_all(fds[0], text, sizeof text);
        json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        CHECK(object != NULL);
        CHECK_STR(json_string_value(json_object_get(object, "level")), "info");
        if (i < 2) CHECK_STR(json_string_value(json_object_get(object, "message")), messages[i]);
        json_decref(object);
    }
    close(fds[0]), close(fds[1]);
}

static void a_full_pipe_costs_lines_and_not_time(void)
{
    int fds[2];
    char text[65536];
    CHECK_EQ(pipe(fds), 0);
    uint32_t written = 0;
    while (written < 100000 && gb_log_lines_write(fds[1], false, GB_LOG_INFO, "filling")) written++;
    CHECK(written > 10 && written < 100000);
    CHECK(!gb_log_lines_write(fds[1], false, GB_LOG_INFO, "lost"));
    while (read_all(fds[0], text, sizeof text) == sizeof text - 1) {}
    CHECK(gb_log_lines_write(fds[1], false, GB_LOG_INFO, "after"));
    read_all(fds[0], text, sizeof text);
    CHECK_CONTAINS(text, "[2 lines lost] after");
    close(fds[0]), close(fds[1]);
}

static void a_full_disk_drops_the_line(void)
{
    int fd = open("/dev/full", O_WRONLY);
    CHECK(fd >= 0);
    CHECK(!gb_log_lines_write(fd, false, GB_LOG_ERROR, "no room"));
    close(fd);
}

TESTS(TEST(a_text_line_has_time_level_and_message), TEST(a_json_line_is_an_object_whatever_the_message),
      TEST(a_full_pipe_costs_lines_and_not_time), TEST(a_full_disk_drops_the_line))
