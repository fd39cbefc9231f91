#define _GNU_SOURCE
#include "bindings/uv/socket_path.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/check.h"

static char directory[] = "/tmp/gimbal_socket_XXXXXX";

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void a_new_socket_belongs_to_its_owner_alone_and_listens(void)
{
    int fd = -1;
    struct stat st;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK_EQ(gb_socket_path_bind(&fd, path_of("new"), NULL), GB_OK);
    CHECK_EQ(stat(path_of("new"), &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0600);
    memcpy(address.sun_path, path_of("new"), strlen(path_of("new")));
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_EQ(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    close(client), close(fd), unlink(path_of("new"));
}

static void a_socket_file_whose_server_is_gone_is_replaced(void)
{
    int first = -1, second = -1;
    CHECK_EQ(gb_socket_path_bind(&first, path_of("stale"), NULL), GB_OK);
    close(first);
    CHECK_EQ(access(path_of("stale"), F_OK), 0);
    CHECK_EQ(gb_socket_path_bind(&second, path_of("stale"), NULL), GB_OK);
    close(second), unlink(path_of("stale"));
}

static void a_live_server_keeps_its_socket(void)
{
    int first = -1, second = -1;
    gb_error err = {0};
    CHECK_EQ(gb_socket_path_bind(&first, path_of("live"), NULL), GB_OK);
    CHECK_EQ(gb_socket_path_bind(&second, path_of("live"), &err), GB_EEXIST);
    CHECK_CONTAINS(err.text, "listening there already");
    CHECK_EQ(second, -1);
    close(first), unlink(path_of("live"));
}

static void a_file_that_is_no_socket_is_left_alone(void)
{
    int fd = -1;
    gb_error err = {0};
    FILE *file = fopen(path_of("file"), "w");
    fputs("precious", file), fclose(file);
    CHECK_EQ(gb_socket_path_bind(&fd, path_of("file"), &err), GB_EEXIST);
    CHECK_CONTAINS(err.text, "no socket");
    CHECK_EQ(access(path_of("file"), F_OK), 0);
    unlink(path_of("file"));
}

static void a_path_of_107_bytes_works_and_108_are_refused_with_both_figures(void)
{
    char path[GB_SOCKET_PATH_MAX + 2];
    int fd = -1;
    gb_error err = {0};
    int n = snprintf(path, sizeof path, "%s/", directory);
    memset(path + n, 'x', sizeof path - (size_t)n);
    path[GB_SOCKET_PATH_MAX] = '\0';
    CHECK_EQ(gb_socket_path_bind(&fd, path, &err), GB_OK);
    close(fd), unlink(path);
    path[GB_SOCKET_PATH_MAX] = 'x', path[GB_SOCKET_PATH_MAX + 1] = '\0';
    CHECK_EQ(gb_socket_path_bind(&fd, path, &err), GB_ETOOBIG);
    CHECK_CONTAINS(err.text, "108 bytes");
    CHECK_CONTAINS(err.text, "at most 107");
}

static void a_missing_directory_is_named(void)
{
    int fd = -1;
    gb_error err = {0};
    CHECK_EQ(gb_socket_path_bind(&fd, path_of("none/s"), &err), GB_EIO);
    CHECK_CONTAINS(err.text, "none: No such file or directory");
    CHECK_EQ(gb_socket_path_bind(&fd, "", &err), GB_EINVAL);
}

static void a_path_without_a_directory_is_in_the_current_one(void)
{
    int fd = -1;
    CHECK_EQ(chdir(directory), 0);
    CHECK_EQ(gb_socket_path_bind(&fd, "here", NULL), GB_OK);
    CHECK_EQ(access(path_of("here"), F_OK), 0);
    close(fd), unlink("here");
}

static void the_default_is_in_the_runtime_directory_else_at_home(void)
{
    char path[256];
    setenv("HOME", "/home/someone", 1);
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    CHECK_EQ(gb_socket_path_default(path, sizeof path), GB_OK);
    CHECK_STR(path, "/run/user/7/gimbal.sock");
    unsetenv("XDG_RUNTIME_DIR");
    CHECK_EQ(gb_socket_path_default(path, sizeof path), GB_OK);
    CHECK_STR(path, "/home/someone/.gimbal.sock");
    unsetenv("HOME");
    CHECK_EQ(gb_socket_path_default(path, sizeof path), GB_ENOTFOUND);
}

static const check_test tests[] = {
    TEST(a_new_socket_belongs_to_its_owner_alone_and_listens), TEST(a_socket_file_whose_server_is_gone_is_replaced),
    TEST(a_live_server_keeps_its_socket), TEST(a_file_that_is_no_socket_is_left_alone),
    TEST(a_path_of_107_bytes_works_and_108_are_refused_with_both_figures), TEST(a_missing_directory_is_named),
    TEST(a_path_without_a_directory_is_in_the_current_one), TEST(the_default_is_in_the_runtime_directory_else_at_home),
};

int main(int argc, char **argv)
{
    if (!mkdtemp(directory)) return 1;
    int failed = check_main(argc, argv, tests, sizeof tests / sizeof *tests);
    rmdir(directory);
    return failed;
}
