#include "bindings/cli/args.h"

#include <stdlib.h>
#include <string.h>

#include "bindings/lua/lua_config.h"
#include "core/base/assert.h"
#include "core/base/nearest.h"

/* Short spellings that vLLM's users have in their fingers. */
static const char *const aliases[][2] = {
    {"-dp", "data_parallel_size"},
    {"-ep", "expert_parallel_size"},
    {"-tp", "tensor_parallel_size"},
    {"-h", "help"},
};

/* Flags of every command (help) and of every command with options. */
static const gb_option_row help_row = {"flags", "help", GB_OPTION_BOOL, "false", 0, 0, "", "print this and stop"};
static const gb_option_row config_row = {"flags", "config", GB_OPTION_STRING, "", 0, 0, "FILE", "read options from a config file in Lua"};
static const gb_option_row print_row = {"flags", "print_config", GB_OPTION_BOOL, "false", 0, 0, "",
                                        "print every option and where its value came from, and stop"};

/* One option given on the command line; applied after the config file and the environment. */
typedef struct assignment {
    const char *key, *text;
} assignment;

typedef struct parse {
    gb_args *args;
    assignment *assignments;
    uint32_t n;
} parse;

static bool same(const char *key, const char *name, size_t bytes)
{
    if (strlen(key) != bytes) return false;
    for (size_t i = 0; i < bytes; i++) {
        if (key[i] != (name[i] == '-' ? '_' : name[i])) return false;
    }
    return true;
}

static const gb_option_row *find_row(const gb_args *args, const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < args->n_flags; i++) {
        if (same(args->flags[i].row.key, name, bytes)) return &args->flags[i].row;
    }
    if (same(help_row.key, name, bytes)) return &help_row;
    if (!args->options) return NULL;
    if (same(config_row.key, name, bytes)) return &config_row;
    if (same(print_row.key, name, bytes)) return &print_row;
    for (uint32_t i = 0; i < gb_option_count; i++) {
        if (same(gb_option_rows[i].key, name, bytes)) return &gb_option_rows[i];
    }
    return NULL;
}

/* --no-x turns the option x off. */
static const gb_option_row *find_negated(const gb_args *args, const char *name, size_t bytes)
{
    if (!args->options || bytes <= 3 || strncmp(name, "no-", 3) != 0) return NULL;
    const gb_option_row *row = find_row(args, name + 3, bytes - 3);
    bool option = row >= gb_option_rows && row < gb_option_rows + gb_option_count;
    return option && row->type == GB_OPTION_BOOL ? row : NULL;
}

static void flag_name(char *out, size_t capacity, const char *key)
{
    snprintf(out, capacity, "--%s", key);
    for (char *c = out; *c; c++) {
        if (*c == '_') *c = '-';
    }
}

static int unknown_flag(const gb_args *args, const char *word, gb_error *err)
{
    char name[GB_NEAREST_BYTES + 1] = "", suggestion[GB_NEAREST_BYTES + 8];
    const char *bare = word + strspn(word, "-");
    size_t bytes = strcspn(bare, "=");
    if (bytes < sizeof name) memcpy(name, bare, bytes);
    gb_nearest nearest = gb_nearest_to(name);
    for (uint32_t i = 0; i < args->n_flags; i++) gb_nearest_offer(&nearest, args->flags[i].row.key);
    for (uint32_t i = 0; args->options && i < gb_option_count; i++) gb_nearest_offer(&nearest, gb_option_rows[i].key);
    gb_nearest_offer(&nearest, help_row.key);
    if (args->options) gb_nearest_offer(&nearest, config_row.key), gb_nearest_offer(&nearest, print_row.key);
    const char *found = gb_nearest_found(&nearest);
    if (!found) return gb_fail(err, GB_ENOTFOUND, "unknown flag %s; --help lists them all", word);
    flag_name(suggestion, sizeof suggestion, found);
    return gb_fail(err, GB_ENOTFOUND, "unknown flag %s; did you mean %s?", word, suggestion);
}

/* Stores a flag that is no option; options wait for the layers below the command line. */
static int take(parse *p, const gb_option_row *row, const char *text, gb_error *err)
{
    gb_args *args = p->args;
    gb_error why = {0};
    void *value = NULL;
    if (row == &help_row) value = &args->help;
    else if (row == &print_row) value = &args->print_config;
    else if (row == &config_row) value = &args->config;
    for (uint32_t i = 0; i < args->n_flags; i++) {
        if (row != &args->flags[i].row) continue;
        value = (char *)args->values + args->flags[i].offset;
        args->given |= UINT64_C(1) << i;
    }
    if (!value) {
        p->assignments[p->n++] = (assignment){row->key, text};
        return GB_OK;
    }
    if (gb_option_parse(row, text, value, &why) == GB_OK) return GB_OK;
    char name[GB_NEAREST_BYTES + 8];
    flag_name(name, sizeof name, row->key);
    return gb_fail(err, GB_EINVAL, "%s \"%s\": %s; %s", name, text, why.text, row->help);
}

/* The flag at argv[*at] and its value, which is behind '=' or in the next word. */
static int take_flag(parse *p, int argc, char *const *argv, int *at, gb_error *err)
{
    const char *word = argv[*at], *name = word + 2, *equals = strchr(word, '=');
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        size_t bytes = strlen(aliases[i][0]);
        if (strncmp(word, aliases[i][0], bytes) == 0 && (word[bytes] == '\0' || word[bytes] == '=')) name = aliases[i][1];
    }
    bool alias = name != word + 2;
    if (!alias && word[1] != '-') return unknown_flag(p->args, word, err);
    size_t bytes = alias || !equals ? strlen(name) : (size_t)(equals - name);
    const gb_option_row *row = find_row(p->args, name, bytes), *negated = row ? NULL : find_negated(p->args, name, bytes);
    if (negated && equals) return gb_fail(err, GB_EINVAL, "--%.*s takes no value", (int)bytes, name);
    if (negated) return take(p, negated, "false", err);
    if (!row) return unknown_flag(p->args, word, err);
    if (equals) return take(p, row, equals + 1, err);
    if (row->type == GB_OPTION_BOOL) return take(p, row, "true", err);
    if (*at + 1 == argc) return gb_fail(err, GB_EINVAL, "%s needs a value (%s): %s", word, row->metavar, row->help);
    return take(p, row, argv[++*at], err);
}

static int take_words(parse *p, int argc, char *const *argv, gb_error *err)
{
    gb_args *args = p->args;
    bool flags_ended = false;
    for (int i = 0; i < argc; i++) {
        if (!flags_ended && argv[i][0] == '-' && argv[i][1]) {
            flags_ended = strcmp(argv[i], "--") == 0;
            int status = flags_ended ? GB_OK : take_flag(p, argc, argv, &i, err);
            if (status) return status;
        } else if (args->n_words == args->max_words) {
            return gb_fail(err, GB_EINVAL, "unexpected argument \"%s\"; --help shows what is expected", argv[i]);
        } else {
            args->words[args->n_words++] = argv[i];
        }
    }
    return GB_OK;
}

static void take_defaults(gb_args *args)
{
    for (uint32_t i = 0; i < args->n_flags; i++) {
        const gb_flag *flag = &args->flags[i];
        int status = gb_option_parse(&flag->row, flag->row.text, (char *)args->values + flag->offset, NULL);
        GB_ASSERT(status == GB_OK);
    }
}

static int apply(parse *p, gb_error *err)
{
    gb_options *options = p->args->options;
    int status = p->args->config ? gb_lua_config_load(options, p->args->config, err) : GB_OK;
    if (!status) status = gb_options_read_environment(options, err);
    for (uint32_t i = 0; !status && i < p->n; i++)
        status = gb_options_set(options, p->assignments[i].key, p->assignments[i].text, "command line", err);
    return status;
}

int gb_args_parse(gb_args *args, int argc, char *const *argv, gb_error *err)
{
    GB_ASSERT(args->max_words <= GB_ARGS_WORDS_MAX && args->n_flags <= GB_ARGS_FLAGS_MAX);
    parse p = {.args = args, .assignments = calloc((size_t)argc + 1, sizeof(assignment))};
    if (!p.assignments) return gb_fail(err, GB_ENOMEM, "out of memory for the command line");
    take_defaults(args);
    int status = take_words(&p, argc, argv, err);
    if (!status && args->options && !args->help) status = apply(&p, err);
    free(p.assignments);
    return status;
}

bool gb_args_given(const gb_args *args, const char *key)
{
    for (uint32_t i = 0; i < args->n_flags; i++) {
        if (strcmp(args->flags[i].row.key, key) == 0) return args->given >> i & 1;
    }
    GB_UNREACHABLE();
}

static void help_line(FILE *out, const gb_option_row *row)
{
    char name[GB_NEAREST_BYTES + 8];
    flag_name(name, sizeof name, row->key);
    bool truth = row->type == GB_OPTION_BOOL;
    gb_option_help_line(out, name, truth ? "" : row->metavar, row->help, truth ? "" : row->text);
}

void gb_args_help(const gb_args *args, FILE *out)
{
    fputs("\nFlags:\n", out);
    for (uint32_t i = 0; i < args->n_flags; i++) help_line(out, &args->flags[i].row);
    if (args->options) help_line(out, &config_row), help_line(out, &print_row);
    help_line(out, &help_row);
    if (!args->options) return;
    gb_options_help(out);
    fputs("\nEvery option can also be set as GIMBAL_NAME in the environment or as name in a config file.\n", out);
}
