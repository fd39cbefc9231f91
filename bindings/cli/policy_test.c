#define _GNU_SOURCE
#include "bindings/cli/policy_test.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bindings/cli/command.h"
#include "bindings/lua/embedded.h"

extern char **environ;

static const char kit_prefix[] = "lua/";    /* require("gimbal.testing") finds DIR/gimbal/testing.lua */

typedef struct run {
    char policy[PATH_MAX], spec[PATH_MAX];    /* absolute */
    char kit[PATH_MAX];                       /* a directory of our own; "" until it is made */
} run;

/* ---- what there must be ---- */

static bool is_file(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static bool is_in_path(const char *program)
{
    const char *path = getenv("PATH");
    for (const char *at = path ? path : ""; *at;) {
        char file[PATH_MAX];
        size_t n = strcspn(at, ":");
        int length = snprintf(file, sizeof file, "%.*s/%s", (int)n, at, program);
        if (n && length < (int)sizeof file && access(file, X_OK) == 0 && is_file(file)) return true;
        at += n + (at[n] == ':');
    }
    return false;
}

static int check_programs(gb_error *err)
{
    if (!is_in_path("busted"))
        return gb_fail(err, GB_EDOWN, "busted is not installed, and specs are written for it; apt install lua-busted, or luarocks install busted");
    if (!is_in_path("luajit")) return gb_fail(err, GB_EDOWN, "luajit is not installed, and policies run under it; apt install luajit");
    return GB_OK;
}

/* mine_spec.lua beside mine.lua. */
static void name_spec(char out[PATH_MAX], const char *policy)
{
    size_t n = strlen(policy);
    if (n > 4 && strcmp(policy + n - 4, ".lua") == 0) n -= 4;
    snprintf(out, PATH_MAX, "%.*s_spec.lua", (int)n, policy);
}

static int find_files(run *r, const char *policy, const char *spec, gb_error *err)
{
    char beside[PATH_MAX];
    if (!is_file(policy) || !realpath(policy, r->policy)) return gb_fail(err, GB_ENOTFOUND, "%s is no file; a policy is one .lua file", policy);
    name_spec(beside, policy);
    const char *chosen = spec ? spec : beside;
    if (is_file(chosen) && realpath(chosen, r->spec)) return GB_OK;
    return gb_fail(err, GB_ENOTFOUND, "%s has no spec: %s is no file; write it as docs/policies.md shows, or name another with --spec", policy, chosen);
}

/* ---- the kit ---- */

static int write_file(const char *path, const gb_embedded_file *from, gb_error *err)
{
    FILE *file = fopen(path, "we");
    bool written = file && fwrite(from->data, 1, from->bytes, file) == from->bytes;
    if (file && fclose(file)) written = false;
    return written ? GB_OK : gb_fail(err, GB_EIO, "%s cannot be written: %s", path, strerror(errno));
}

static bool is_kit(const gb_embedded_file *file) { return strncmp(file->name, "lua/gimbal/", 11) == 0; }

static void kit_path(char out[PATH_MAX], const run *r, const char *name) { snprintf(out, PATH_MAX, "%.256s/%.256s", r->kit, name); }

static int write_kit(run *r, gb_error *err)
{
    char path[PATH_MAX];
    const char *base = getenv("TMPDIR");
    snprintf(r->kit, sizeof r->kit, "%.200s/gimbal-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(r->kit)) {
        int status = gb_fail(err, GB_EIO, "%s cannot be made: %s", r->kit, strerror(errno));
        r->kit[0] = '\0';
        return status;
    }
    kit_path(path, r, "gimbal");
    if (mkdir(path, 0700)) return gb_fail(err, GB_EIO, "%s cannot be made: %s", path, strerror(errno));
    int status = GB_OK;
    for (unsigned i = 0; i < gb_embedded_count && !status; i++) {
        if (!is_kit(&gb_embedded_files[i])) continue;
        kit_path(path, r, gb_embedded_files[i].name + strlen(kit_prefix));
        status = write_file(path, &gb_embedded_files[i], err);
    }
    return status;
}

static void remove_kit(const run *r)
{
    char path[PATH_MAX];
    if (!r->kit[0]) return;
    for (unsigned i = 0; i < gb_embedded_count; i++) {
        if (!is_kit(&gb_embedded_files[i])) continue;
        kit_path(path, r, gb_embedded_files[i].name + strlen(kit_prefix));
        unlink(path);
    }
    kit_path(path, r, "gimbal");
    rmdir(path);
    rmdir(r->kit);
}

/* ---- busted ---- */

/* The kit first, then what lies beside the policy, then what was there; ;; stands for LuaJIT's own. */
static int set_environment(const run *r, gb_error *err)
{
    const char *old = getenv("LUA_PATH");
    int beside = (int)(strrchr(r->policy, '/') - r->policy);
    char *path = NULL;
    if (asprintf(&path, "%s/?.lua;%.*s/?.lua;%s", r->kit, beside, r->policy, old && *old ? old : ";") < 0) return gb_fail(err, GB_ENOMEM, "out of memory for LUA_PATH");
    int failed = setenv("LUA_PATH", path, 1) || setenv("GIMBAL_TESTED_POLICY", r->policy, 1);
    free(path);
    return failed ? gb_fail(err, GB_ENOMEM, "out of memory for the environment of busted") : GB_OK;
}

static int run_busted(run *r, bool json, int *code, gb_error *err)
{
    char *const argv[] = {"busted", "--lua=luajit", json ? "--output=json" : "--output=utfTerminal", r->spec, NULL};
    pid_t pid;
    int ended = 0;
    fflush(stdout);
    int error = posix_spawnp(&pid, "busted", NULL, NULL, argv, environ);
    if (error) return gb_fail(err, GB_EDOWN, "busted cannot be started: %s", strerror(error));
    while (waitpid(pid, &ended, 0) < 0 && errno == EINTR) {}
    *code = WIFEXITED(ended) && WEXITSTATUS(ended) == 0 ? GB_EXIT_OK : GB_EXIT_FAILED;
    return GB_OK;
}

int gb_policy_test(const char *path, const char *spec, bool json)
{
    static run r;
    gb_error err = {{0}};
    int code = GB_EXIT_OK;
    r = (run){.kit = ""};
    int status = find_files(&r, path, spec, &err);
    if (!status) status = check_programs(&err);
    if (!status) status = write_kit(&r, &err);
    if (!status) status = set_environment(&r, &err);
    if (!status) status = run_busted(&r, json, &code, &err);
    remove_kit(&r);
    if (!status) return code;
    gb_command_failed(status, &err);
    return status == GB_EDOWN ? GB_EXIT_UNAVAILABLE : GB_EXIT_DATA;
}
