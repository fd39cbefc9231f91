/* The commands of gimbal in one table: each has a line of help, a table of flags and a function that returns the exit code. */
#ifndef GB_CLI_COMMAND_H
#define GB_CLI_COMMAND_H

#include "bindings/cli/args.h"

enum {
    GB_EXIT_OK = 0,
    GB_EXIT_FAILED = 1,          /* a server answered with an error; a bench missed a bound */
    GB_EXIT_USAGE = 64,          /* a word of the command line, the environment or a config file is wrong */
    GB_EXIT_DATA = 65,           /* the model, tokenizer or policy cannot be used */
    GB_EXIT_UNAVAILABLE = 69,    /* an address is in use, or nobody listens there */
    GB_EXIT_ENGINE = 70,         /* the engine died, or has no answer */
    GB_EXIT_OUTPUT = 74,         /* standard output does not take what we write */
    GB_EXIT_RETRY = 75,          /* out of memory at start; a bench that others disturbed */
};

typedef struct gb_command {
    const char *name, *arguments, *summary;
    void (*help)(FILE *out);     /* more of it, above the flags; NULL: nothing */
    const gb_flag *flags;
    uint32_t n_flags;
    size_t values_bytes;         /* of the struct that flags fill */
    bool takes_options;
    bool hidden;                 /* gimbal starts it itself */
    uint32_t max_words;
    int (*run)(const gb_args *args);
} gb_command;

extern const gb_command gb_command_serve, gb_command_generate, gb_command_rpc, gb_command_policy, gb_command_place, gb_command_bench, gb_command_version,
    gb_command_api_info, gb_command_rank;

/* Runs gimbal with its arguments (argv[0] is the program) and returns the exit code. */
int gb_command_main(int argc, char *const *argv);

/* Prints "gimbal: <sentence>" to standard error and returns the exit code that stands for the status. */
int gb_command_failed(int status, const gb_error *err);

#endif
