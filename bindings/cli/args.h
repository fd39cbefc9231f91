/* The words of a command line, checked against tables: options of the house (bindings/c/options.h), the command's own flags
   and the words that are left. Help is printed from the same tables. */
#ifndef GB_CLI_ARGS_H
#define GB_CLI_ARGS_H

#include "bindings/c/options.h"

enum { GB_ARGS_WORDS_MAX = 16, GB_ARGS_FLAGS_MAX = 64 };

/* A flag of one command and where its value goes in the command's struct. */
typedef struct gb_flag {
    gb_option_row row;
    size_t offset;
} gb_flag;

#define GB_FLAG(type, field, kind, text, low, high, metavar, help) \
    {{"flags", #field, GB_OPTION_##kind, text, low, high, metavar, help}, offsetof(type, field)}

typedef struct gb_args {
    const gb_flag *flags;
    uint32_t n_flags;
    void *values;                  /* the command's struct, filled with defaults first */
    gb_options *options;           /* NULL: the command knows no options */
    uint32_t max_words;
    uint32_t n_words;
    const char *words[GB_ARGS_WORDS_MAX];
    uint64_t given;                /* bit i: flags[i] was on the command line */
    const char *config;            /* --config */
    bool help, print_config;
} gb_args;

/* Reads argv[0..argc) into args (flags, values, options and max_words are set by the caller). Options end up with command
   line over environment over config file over default. GB_EINVAL or GB_ENOTFOUND with a sentence for the user. */
int gb_args_parse(gb_args *args, int argc, char *const *argv, gb_error *err);

bool gb_args_given(const gb_args *args, const char *key);
void gb_args_help(const gb_args *args, FILE *out);

#endif
