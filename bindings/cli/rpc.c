#include "bindings/cli/command.h"

#include <stdlib.h>
#include <string.h>

#include "bindings/cli/remote.h"

typedef struct rpc_flags {
    gb_remote_flags remote;
} rpc_flags;

static const gb_flag flags[] = {
    GB_REMOTE_FLAGS(rpc_flags),
};

static int parse_params(json_t **out, const char *text, gb_error *err)
{
    json_error_t why;
    const size_t options = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    *out = strcmp(text, "-") == 0 ? json_loadf(stdin, options, &why) : json_loads(text, options, &why);
    if (!*out) return gb_fail(err, GB_EINVAL, "parameters: %s at line %d, column %d; expected a JSON object such as {\"layer\": 0}", why.text, why.line, why.column);
    if (json_is_object(*out)) return GB_OK;
    return gb_fail(err, GB_EINVAL, "parameters: expected a JSON object such as {\"layer\": 0}");
}

/* A line of JSON on standard output. False when it does not take it. */
static bool print_line(const json_t *json)
{
    json_dumpf(json, stdout, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
    fputc('\n', stdout);
    return fflush(stdout) == 0;
}

/* Calls whose answer is only the beginning. */
static bool is_stream(const char *method, json_t *params)
{
    bool generates = strcmp(method, "generate") == 0 && json_is_true(json_object_get(params, "stream"));
    /* We read as fast as we can print; the socket holds the server back, no credit is needed. */
    if (generates && !json_object_get(params, "window")) json_object_set_new(params, "window", json_integer(0));
    return generates || strcmp(method, "subscribe") == 0;
}

static bool ends_stream(const gb_remote_message *m) { return strcmp(m->method, "done") == 0 || strcmp(m->method, "failed") == 0; }

/* Prints one message. *more says whether others are awaited. */
static int print_message(const gb_remote_message *m, bool stream, bool *more, gb_error *err)
{
    *more = false;
    if (!m->method) {
        if (m->error) return gb_remote_refused(m->error, err);
        *more = print_line(m->result) && stream;
        return GB_OK;
    }
    json_t *line = json_pack("{s:s, s:O}", "event", m->method, "params", m->params);
    *more = print_line(line) && !ends_stream(m);
    json_decref(line);
    if (strcmp(m->method, "failed") == 0) return gb_remote_refused(json_object_get(m->params, "error"), err);
    return GB_OK;
}

static int call(gb_remote *remote, const char *method, json_t *params, gb_error *err)
{
    uint32_t msgid;
    bool stream = is_stream(method, params), more = true;
    int status = gb_remote_send(remote, method, params, &msgid, err);
    while (!status && more) {
        gb_remote_message m;
        status = gb_remote_receive(remote, &m, err);
        if (status) break;
        status = print_message(&m, stream, &more, err);
        gb_remote_message_clear(&m);
    }
    return status;
}

static int run(const gb_args *args)
{
    const rpc_flags *f = args->values;
    gb_error err = {0};
    gb_remote *remote = NULL;
    json_t *params = NULL;
    int status = args->n_words ? GB_OK : gb_fail(&err, GB_EINVAL, "no method; gimbal api-info lists them");
    if (!status) status = parse_params(&params, args->n_words > 1 ? args->words[1] : "{}", &err);
    if (!status) status = gb_remote_open(&remote, &f->remote, &err);
    if (!status) status = call(remote, args->words[0], params, &err);
    gb_remote_close(remote);
    json_decref(params);
    return status ? gb_remote_failed(status, &err) : GB_EXIT_OK;
}

const gb_command gb_command_rpc = {
    .name = "rpc", .arguments = "METHOD [JSON]", .summary = "call a method of a running server; events follow as lines of JSON",
    .flags = flags, .n_flags = sizeof flags / sizeof *flags, .values_bytes = sizeof(rpc_flags), .max_words = 2, .run = run,
};
