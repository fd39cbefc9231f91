#include "bindings/cli/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "bindings/c/instance.h"
#include "bindings/cli/log_lines.h"
#include "bindings/cli/map_guard.h"

enum { STDIN_BYTES_MAX = 8 << 20 };

typedef struct generate_flags {
    const char *prompt, *tokens, *system;
    bool chat, thinking, ignore_eos;
    int64_t max_tokens, min_tokens, top_k;
    double temperature, top_p, min_p, repetition_penalty;
} generate_flags;

static const gb_flag flags[] = {
    GB_FLAG(generate_flags, prompt, STRING, "", 0, 0, "TEXT", "the prompt; - reads it from standard input"),
    GB_FLAG(generate_flags, tokens, STRING, "", 0, 0, "IDS", "the prompt as token ids (\"1 2 3\"); token ids come out, too"),
    GB_FLAG(generate_flags, chat, BOOL, "false", 0, 0, "", "the prompt is a message of a user: apply the chat template"),
    GB_FLAG(generate_flags, system, STRING, "", 0, 0, "TEXT", "with --chat: a system message before the prompt"),
    GB_FLAG(generate_flags, thinking, BOOL, "false", 0, 0, "", "with --chat: let a template that can, ask for reasoning first"),
    GB_FLAG(generate_flags, max_tokens, INT, "0", 0, 1048576, "N", "most tokens to generate (default: the rest of the context)"),
    GB_FLAG(generate_flags, min_tokens, INT, "0", 0, 1048576, "N", "no end before this many tokens"),
    GB_FLAG(generate_flags, ignore_eos, BOOL, "false", 0, 0, "", "end tokens do not end the text"),
    GB_FLAG(generate_flags, temperature, FLOAT, "1", 0, 100, "T", "0 is greedy (default: the model's, else 1)"),
    GB_FLAG(generate_flags, top_k, INT, "0", 0, 1048576, "N", "draw from the N likeliest tokens (default: the model's, else all)"),
    GB_FLAG(generate_flags, top_p, FLOAT, "1", 0, 1, "P", "draw from the likeliest tokens that make up P (default: the model's, else 1)"),
    GB_FLAG(generate_flags, min_p, FLOAT, "0", 0, 1, "P", "drop tokens less likely than P times the likeliest (default: the model's)"),
    GB_FLAG(generate_flags, repetition_penalty, FLOAT, "1", 0, 10, "R", "above 1 makes tokens that were there less likely (default: the model's)"),
};

static gb_time clock_now(void) { return uv_hrtime(); }

/* ---- the prompt ---- */

typedef struct prompt {
    char *text;    /* malloc'd */
    size_t bytes;
    int32_t *tokens;
    size_t n;
} prompt;

static int read_stdin(prompt *p, gb_error *err)
{
    p->text = malloc(STDIN_BYTES_MAX + 1);
    if (!p->text) return gb_fail(err, GB_ENOMEM, "out of memory for the prompt");
    p->bytes = fread(p->text, 1, STDIN_BYTES_MAX + 1, stdin);
    if (ferror(stdin)) return gb_fail(err, GB_EIO, "standard input: %s", strerror(errno));
    if (p->bytes > STDIN_BYTES_MAX) return gb_fail(err, GB_ETOOBIG, "standard input: a prompt has at most %d bytes", STDIN_BYTES_MAX);
    p->text[p->bytes] = '\0';
    return GB_OK;
}

static int read_text(prompt *p, const generate_flags *f, gb_error *err)
{
    if (strcmp(f->prompt, "-") == 0) return read_stdin(p, err);
    p->text = strdup(f->prompt);
    p->bytes = p->text ? strlen(p->text) : 0;
    return p->text ? GB_OK : gb_fail(err, GB_ENOMEM, "out of memory for the prompt");
}

static int apply_template(prompt *p, const gb_instance *instance, const generate_flags *f, gb_error *err)
{
    if (!instance->chat_template)
        return gb_fail(err, GB_EUNSUPPORTED, "model %s has no chat template; leave out --chat or name one with --chat-template", instance->model_name);
    gb_message messages[2];
    size_t n = 0;
    if (*f->system) messages[n++] = (gb_message){"system", f->system, strlen("system"), strlen(f->system)};
    messages[n++] = (gb_message){"user", p->text, strlen("user"), p->bytes};
    char *text;
    size_t bytes;
    int status = gb_lua_template_apply(instance->chat_template, &text, &bytes, messages, n, true, f->thinking, err);
    if (status) return status;
    free(p->text);
    p->text = text;
    p->bytes = bytes;
    return GB_OK;
}

static int encode(prompt *p, const gb_instance *instance, gb_error *err)
{
    if (!instance->tokenizer)
        return gb_fail(err, GB_EUNSUPPORTED, "model %s has no tokenizer.json; give token ids with --tokens", instance->model_name);
    size_t capacity = p->bytes * GB_TOKENIZER_TOKENS_PER_BYTE + 1;
    p->tokens = malloc(capacity * sizeof *p->tokens);
    if (!p->tokens) return gb_fail(err, GB_ENOMEM, "out of memory for the prompt");
    return gb_tokenizer_encode(instance->tokenizer, p->text, p->bytes, p->tokens, capacity, &p->n, err);
}

static int parse_tokens(prompt *p, const char *text, gb_error *err)
{
    size_t capacity = strlen(text) / 2 + 1;
    p->tokens = malloc(capacity * sizeof *p->tokens);
    if (!p->tokens) return gb_fail(err, GB_ENOMEM, "out of memory for the prompt");
    for (const char *at = text + strspn(text, " ,"); *at; at += strspn(at, " ,")) {
        char *end;
        errno = 0;
        long id = strtol(at, &end, 10);
        if (end == at || (*end && *end != ' ' && *end != ',') || errno || id < 0 || id > INT32_MAX)
            return gb_fail(err, GB_EINVAL, "--tokens \"%s\": expected token ids such as \"1 2 3\"", text);
        p->tokens[p->n++] = (int32_t)id;
        at = end;
    }
    return GB_OK;
}

static int read_prompt(prompt *p, const gb_instance *instance, const generate_flags *f, gb_error *err)
{
    if (*f->tokens) return parse_tokens(p, f->tokens, err);
    int status = read_text(p, f, err);
    if (!status && f->chat) status = apply_template(p, instance, f, err);
    return status ? status : encode(p, instance, err);
}

/* ---- generating ---- */

static void read_sampling(gb_sampling *s, const gb_args *args, const gb_instance *instance)
{
    const generate_flags *f = args->values;
    gb_instance_sampling(instance, s);
    if (gb_args_given(args, "temperature")) s->temperature = (float)f->temperature;
    if (gb_args_given(args, "top_k")) s->top_k = (int32_t)f->top_k;
    if (gb_args_given(args, "top_p")) s->top_p = (float)f->top_p;
    if (gb_args_given(args, "min_p")) s->min_p = (float)f->min_p;
    if (gb_args_given(args, "repetition_penalty")) s->repetition_penalty = (float)f->repetition_penalty;
    if (gb_args_given(args, "max_tokens")) s->max_tokens = (uint32_t)f->max_tokens;
    s->min_tokens = (uint32_t)f->min_tokens;
    s->ignore_eos = f->ignore_eos;
}

/* Prints what an event brings. False when standard output does not take it. */
static bool print_event(const gb_event *event, bool ids)
{
    if (ids && event->kind == GB_EVENT_TOKEN) printf("%s%d", event->index ? " " : "", event->token);
    else if (!ids && event->text_bytes) fwrite(event->text, 1, event->text_bytes, stdout);
    if (event->kind == GB_EVENT_DONE) fputc('\n', stdout);
    return fflush(stdout) == 0;
}

static int stream_out(gb_instance *instance, bool ids, gb_error *err)
{
    gb_event event;
    for (;;) {
        while (gb_server_poll_event(instance->server, &event)) {
            if (!print_event(&event, ids)) return GB_OK;    /* the exit code says it: see finish_output */
            if (event.kind == GB_EVENT_DONE) return GB_OK;
            if (event.kind != GB_EVENT_TOKEN) return gb_fail(err, event.status ? event.status : GB_EABORTED, "generation failed: %s",
                                                             gb_status_message(event.status ? event.status : GB_EABORTED));
        }
        if (!gb_instance_step(instance, clock_now)) gb_server_tick(instance->server, clock_now());
    }
}

static int generate(gb_instance *instance, const gb_args *args, gb_error *err)
{
    const generate_flags *f = args->values;
    prompt p = {0};
    gb_sampling sampling;
    gb_request_id id;
    int status = read_prompt(&p, instance, f, err);
    if (!status) {
        read_sampling(&sampling, args, instance);
        gb_request request = {.tokens = p.tokens, .n_tokens = (uint32_t)p.n, .deadline = GB_NEVER, .sampling = &sampling};
        status = gb_server_submit(instance->server, &id, &request, clock_now(), err);
    }
    free(p.text);
    free(p.tokens);
    return status ? status : stream_out(instance, *f->tokens != '\0', err);
}

/* One sequence on one engine, and quiet, unless somebody said otherwise. */
static int settle_options(gb_options *options, const gb_args *args, gb_error *err)
{
    static const char *const defaults[][2] = {{"max_num_seqs", "1"}, {"log_level", "error"}};
    int status = GB_OK;
    for (size_t i = 0; !status && i < sizeof defaults / sizeof *defaults; i++) {
        bool is_default = strcmp(options->sources[gb_options_find(defaults[i][0]) - gb_option_rows], "default") == 0;
        if (is_default) status = gb_options_set(options, defaults[i][0], defaults[i][1], "generate", err);
    }
    if (!status && args->n_words) status = gb_options_set(options, "model", args->words[0], "command line", err);
    return status;
}

static int run(const gb_args *args)
{
    const generate_flags *f = args->values;
    gb_options *options = args->options;
    gb_instance *instance = NULL;
    gb_error err = {0};
    int status = settle_options(options, args, &err);
    gb_log_lines_start(options->log_level, options->log_format);
    if (!status && !*f->prompt && !*f->tokens) status = gb_fail(&err, GB_EINVAL, "no prompt: give --prompt TEXT or --tokens IDS");
    gb_map_guard_start();
    if (!status) status = gb_instance_open(&instance, options, &err);
    gb_map_guard_stop();
    if (!status) status = generate(instance, args, &err);
    gb_instance_close(instance);
    return status ? gb_command_failed(status, &err) : GB_EXIT_OK;
}

const gb_command gb_command_generate = {
    .name = "generate", .arguments = "[MODEL_DIR]", .summary = "continue a prompt on standard output, without a server",
    .flags = flags, .n_flags = sizeof flags / sizeof *flags, .values_bytes = sizeof(generate_flags), .takes_options = true, .max_words = 1,
    .run = run,
};
