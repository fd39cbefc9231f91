#include "bindings/cli/place_exact.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { PATH_BYTES = 512, ANSWER_BYTES_MAX = 64 << 20 };

/* A directory of our own with the program and the answer. */
typedef struct folder {
    char dir[PATH_BYTES - 16], model[PATH_BYTES], answer[PATH_BYTES];
} folder;

static int make_folder(folder *f, gb_error *err)
{
    const char *base = getenv("TMPDIR");
    int n = snprintf(f->dir, sizeof f->dir, "%s/gimbal-exact-XXXXXX", base && *base ? base : "/tmp");
    if (n < 0 || (size_t)n >= sizeof f->dir || !mkdtemp(f->dir)) return gb_fail(err, GB_EIO, "cannot make a directory in %s: %s", base ? base : "/tmp", strerror(errno));
    snprintf(f->model, sizeof f->model, "%s/layer.lp", f->dir);
    snprintf(f->answer, sizeof f->answer, "%s/answer", f->dir);
    return GB_OK;
}

static void remove_folder(const folder *f)
{
    unlink(f->model);
    unlink(f->answer);
    rmdir(f->dir);
}

static int write_text(void *self, const char *text, size_t bytes) { return fwrite(text, 1, bytes, self) == bytes ? 0 : GB_EIO; }

static int write_model(const folder *f, const gb_layer *layer, const gb_place_weights *weights, uint32_t capacity, gb_error *err)
{
    FILE *file = fopen(f->model, "we");
    int rc = file ? gb_exact_write(layer, weights, capacity, write_text, file) : GB_EIO;
    if (file && fclose(file) != 0) rc = GB_EIO;
    return rc == 0 ? GB_OK : gb_fail(err, rc, "%s cannot be written: %s", f->model, strerror(errno));
}

static int spawn_cbc(const folder *f, double gap_ratio, uint32_t seconds, pid_t *pid)
{
    char gap[32], limit[32];
    snprintf(gap, sizeof gap, "%g", gap_ratio);
    snprintf(limit, sizeof limit, "%u", seconds);
    char *argv[] = {"cbc", (char *)f->model, "-ratioGap", gap, "-sec", limit, "-solve", "-solution", (char *)f->answer, NULL};
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawnp(pid, "cbc", &quiet, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&quiet);
    return rc;
}

static int run_cbc(const folder *f, double gap_ratio, uint32_t seconds, gb_error *err)
{
    pid_t pid;
    int status, rc = spawn_cbc(f, gap_ratio, seconds, &pid);
    if (rc == ENOENT)
        return gb_fail(err, GB_EUNSUPPORTED, "--exact needs the program cbc, which was not found: install it (Debian, Ubuntu: apt install coinor-cbc) or leave --exact out");
    if (rc != 0) return gb_fail(err, GB_EUNSUPPORTED, "cbc cannot be run: %s", strerror(rc));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return gb_fail(err, GB_EIO, "waiting for cbc failed: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return GB_OK;
    return gb_fail(err, GB_EIO, "cbc failed (%s %d)", WIFSIGNALED(status) ? "signal" : "exit code", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static int read_answer(const folder *f, char **text, gb_error *err)
{
    FILE *file = fopen(f->answer, "re");
    *text = calloc(1, ANSWER_BYTES_MAX + 1);
    size_t n = file && *text ? fread(*text, 1, ANSWER_BYTES_MAX, file) : 0;
    if (file) fclose(file);
    if (!*text) return gb_fail(err, GB_ENOMEM, "out of memory for cbc's answer");
    return n > 0 ? GB_OK : gb_fail(err, GB_ENOTFOUND, "cbc left no answer");
}

static double wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int gb_place_exact_solve(gb_place_exact *exact, const gb_layer *layer, const gb_place_weights *weights, uint32_t capacity, double gap_ratio,
                         uint32_t seconds, gb_error *err)
{
    folder f;
    char *text = NULL;
    int rc = make_folder(&f, err);
    if (rc != GB_OK) return rc;
    double started = wall_seconds();
    rc = write_model(&f, layer, weights, capacity, err);
    if (rc == GB_OK) rc = run_cbc(&f, gap_ratio, seconds, err);
    exact->seconds = wall_seconds() - started;
    if (rc == GB_OK) rc = read_answer(&f, &text, err);
    if (rc == GB_OK) rc = gb_exact_read(text, layer, capacity, exact->rank_of, &exact->optimal, err);
    free(text);
    remove_folder(&f);
    return rc;
}
