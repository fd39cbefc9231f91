#define _GNU_SOURCE    /* pipe2 */
#include "bindings/cli/bench_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char SCRIPT[] = "tests/bench/peer_llama.py", PLACE[] = "build/bench";

/* Starts python SCRIPT arguments... with pipes; its standard error goes to build/bench/peer.log. */
static int start(gb_bench_peer *peer, const char *python, const char *const *arguments)
{
    int in[2], out[2];
    const char *argv[16] = {python, SCRIPT};
    for (int i = 0; arguments[i]; i++) argv[2 + i] = arguments[i];
    if (pipe2(in, O_CLOEXEC)) return GB_EIO;
    if (pipe2(out, O_CLOEXEC)) {
        close(in[0]), close(in[1]);
        return GB_EIO;
    }
    fflush(NULL);
    peer->child = fork();
    if (peer->child == 0) {
        int log = open("build/bench/peer.log", O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (log < 0) log = open("/dev/null", O_WRONLY);
        dup2(in[0], 0), dup2(out[1], 1), dup2(log, 2);
        execvp(python, (char *const *)argv);
        _exit(127);
    }
    close(in[0]), close(out[1]);
    peer->to = fdopen(in[1], "w");
    peer->from = fdopen(out[0], "r");
    return peer->child > 0 && peer->to && peer->from ? GB_OK : GB_EIO;
}

void gb_bench_peer_close(gb_bench_peer *peer)
{
    if (peer->to) fclose(peer->to);
    if (peer->from) fclose(peer->from);
    if (peer->child > 0) waitpid(peer->child, NULL, 0);
    *peer = (gb_bench_peer){0};
}

/* The next line of the peer without its end. */
static bool read_line(gb_bench_peer *peer, char *line, size_t capacity)
{
    if (!fgets(line, (int)capacity, peer->from)) return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

/* Does this Python have the peer? Its answer is "peer NAME" or a line that says why not. */
static bool probe(const char *python, char *name, size_t capacity, char *reason, size_t reason_capacity)
{
    static const char *const arguments[] = {"--probe", NULL};
    gb_bench_peer peer = {0};
    char line[256] = "";
    bool found = start(&peer, python, arguments) == GB_OK && read_line(&peer, line, sizeof line) && strncmp(line, "peer ", 5) == 0;
    if (found) snprintf(name, capacity, "%.100s", line + 5);
    else snprintf(reason, reason_capacity, "%s: %s", python, *line ? line : "does not run");
    gb_bench_peer_close(&peer);
    return found;
}

static const char *find_python(const char *wish, char *name, size_t capacity, gb_error *err)
{
    static const char *const usual[] = {".venv/bin/python3", "python3", NULL};
    const char *const given[] = {wish, NULL};
    char reason[320] = "";
    if (strcmp(wish, "none") == 0) return gb_fail(err, GB_ENOTFOUND, "no peer asked for"), NULL;
    if (access(SCRIPT, R_OK)) return gb_fail(err, GB_ENOTFOUND, "%s is not here: run in a checkout", SCRIPT), NULL;
    for (const char *const *python = strcmp(wish, "auto") == 0 ? usual : given; *python; python++) {
        if (probe(*python, name, capacity, reason, sizeof reason)) return *python;
    }
    return gb_fail(err, GB_ENOTFOUND, "%s", reason), NULL;
}

static int write_model(const gb_synthetic *model, char dir[64], gb_error *err)
{
    char file[96];
    struct stat st;
    snprintf(dir, 64, "%s/%s", PLACE, model->name);
    snprintf(file, sizeof file, "%s/model.safetensors", dir);
    if (stat(file, &st) == 0 && (size_t)st.st_size > model->bytes) return GB_OK;    /* header and all weights */
    return gb_synthetic_write(model, dir, err);
}

int gb_bench_peer_open(gb_bench_peer *peer, const char *python, const gb_synthetic *model, uint32_t threads, gb_error *err)
{
    char dir[64], count[16], line[256] = "";
    *peer = (gb_bench_peer){0};
    signal(SIGPIPE, SIG_IGN);    /* a peer that died is an error of the next write, not our end */
    mkdir("build", 0777), mkdir(PLACE, 0777);
    const char *found = find_python(python, peer->name, sizeof peer->name, err);
    if (!found) return GB_ENOTFOUND;
    int status = write_model(model, dir, err);
    if (status) return status;
    snprintf(count, sizeof count, "%u", threads);
    const char *const arguments[] = {dir, count, NULL};
    status = start(peer, found, arguments);
    if (!status && (!read_line(peer, line, sizeof line) || strcmp(line, "ready") != 0)) status = GB_EDOWN;
    if (!status) return GB_OK;
    gb_bench_peer_close(peer);
    return gb_fail(err, GB_ENOTFOUND, "%s did not start: %s (%s/peer.log)", found, *line ? line : "no answer", PLACE);
}

static int ask(gb_bench_peer *peer, const char *command, double *seconds, gb_error *err)
{
    char line[256] = "", *end;
    fprintf(peer->to, "%s\n", command);
    if (fflush(peer->to) == 0 && read_line(peer, line, sizeof line)) {
        *seconds = strtod(line, &end);
        if (end != line && *end == '\0' && *seconds > 0) return GB_OK;
    }
    return gb_fail(err, GB_EDOWN, "the peer %s answered \"%s\" to %s (%s/peer.log)", peer->name, line, command, PLACE);
}

int gb_bench_peer_prefill(gb_bench_peer *peer, uint32_t n, double *seconds, gb_error *err)
{
    char command[64];
    snprintf(command, sizeof command, "prefill %u", n);
    return ask(peer, command, seconds, err);
}

int gb_bench_peer_decode(gb_bench_peer *peer, uint32_t sequences, uint32_t steps, double *seconds, gb_error *err)
{
    char command[64];
    snprintf(command, sizeof command, "decode %u %u", sequences, steps);
    return ask(peer, command, seconds, err);
}
