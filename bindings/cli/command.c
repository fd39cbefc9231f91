#include "bindings/cli/command.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nearest.h"

static const gb_command *const commands[] = {
    &gb_command_serve, &gb_command_generate, &gb_command_rpc, &gb_command_policy, &gb_command_place, &gb_command_bench, &gb_command_version,
    &gb_command_api_info, &gb_command_rank,
};

enum { N_COMMANDS = sizeof commands / sizeof *commands };

int gb_command_failed(int status, const gb_error *err)
{
    fprintf(stderr, "gimbal: %s\n", err->text[0] ? err->text : gb_status_message(status));
    switch (status) {
    case GB_EINVAL: return GB_EXIT_USAGE;
    case GB_ENOMEM: return GB_EXIT_RETRY;
    case GB_EDOWN:
    case GB_EINTERNAL: return GB_EXIT_ENGINE;
    default: return GB_EXIT_DATA;
    }
}

static int usage_error(const gb_error *err)
{
    fprintf(stderr, "gimbal: %s\n", err->text);
    return GB_EXIT_USAGE;
}

static void help_all(FILE *out)
{
    fputs("gimbal: a Lua-scriptable serving engine for Mixture-of-Experts language models\n\nUsage: gimbal COMMAND ...\n\n"
          "Commands:\n", out);
    for (int i = 0; i < N_COMMANDS; i++)
        if (!commands[i]->hidden) gb_option_help_line(out, commands[i]->name, commands[i]->arguments, commands[i]->summary, "");
    fputs("\ngimbal COMMAND --help shows the flags of a command.\n", out);
}

static const gb_command *find_command(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    }
    return NULL;
}

static int unknown_command(const char *name)
{
    gb_error err = {0};
    gb_nearest nearest = gb_nearest_to(name);
    for (int i = 0; i < N_COMMANDS; i++)
        if (!commands[i]->hidden) gb_nearest_offer(&nearest, commands[i]->name);
    const char *found = gb_nearest_found(&nearest);
    if (found) gb_fail(&err, GB_ENOTFOUND, "unknown command \"%s\"; did you mean %s?", name, found);
    else gb_fail(&err, GB_ENOTFOUND, "unknown command \"%s\"; gimbal --help lists them all", name);
    return usage_error(&err);
}

/* What a command wrote is only worth an exit code of 0 when it arrived. */
static int finish_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fprintf(stderr, "gimbal: standard output: %s\n", strerror(errno));
    return code ? code : GB_EXIT_OUTPUT;
}

static int run_parsed(const gb_command *command, const gb_args *args)
{
    if (args->help) {
        printf("Usage: gimbal %s [flags]%s%s\n%s\n", command->name, *command->arguments ? " " : "", command->arguments, command->summary);
        if (command->help) command->help(stdout);
        gb_args_help(args, stdout);
        return GB_EXIT_OK;
    }
    if (args->print_config) {
        gb_options_print(args->options, stdout);
        return GB_EXIT_OK;
    }
    return command->run(args);
}

static int run_command(const gb_command *command, int argc, char *const *argv)
{
    gb_error err = {0};
    gb_options options;
    gb_options_init(&options);
    gb_args args = {
        .flags = command->flags, .n_flags = command->n_flags, .values = calloc(1, command->values_bytes + 1),
        .options = command->takes_options ? &options : NULL, .max_words = command->max_words,
    };
    int code;
    if (!args.values) code = gb_command_failed(GB_ENOMEM, &err);
    else if (gb_args_parse(&args, argc, argv, &err)) code = usage_error(&err);
    else code = run_parsed(command, &args);
    free(args.values);
    gb_options_deinit(&options);
    return code;
}

static bool asks(const char *word, const char *flag, const char *name)
{
    return strcmp(word, flag) == 0 || strcmp(word, name) == 0;
}

int gb_command_main(int argc, char *const *argv)
{
    signal(SIGXFSZ, SIG_IGN);    /* a file that may not grow is an error of write, not a death */
    if (argc < 2) {
        help_all(stderr);
        return GB_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (asks(name, "--help", "help") || strcmp(name, "-h") == 0) {
        help_all(stdout);
        return finish_output(GB_EXIT_OK);
    }
    const gb_command *command = find_command(strcmp(name, "--version") == 0 ? "version" : name);
    if (!command) return unknown_command(name);
    return finish_output(run_command(command, argc - 2, argv + 2));
}
