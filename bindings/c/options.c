#include "bindings/c/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/assert.h"
#include "core/base/nearest.h"

const gb_option_row gb_option_rows[] = {
#define X(group, key, type, text, low, high, metavar, help) {group, #key, GB_OPTION_##type, text, (double)(low), (double)(high), metavar, help},
    GB_OPTIONS(X)
#undef X
};
const uint32_t gb_option_count = GB_OPTION_COUNT;

static const size_t offsets[] = {
#define X(group, key, type, text, low, high, metavar, help) offsetof(gb_options, key),
    GB_OPTIONS(X)
#undef X
};

enum { HELP_COLUMN = 34, HELP_WIDTH = 110, NAME_BYTES = 64 };

static void *field(gb_options *options, uint32_t row) { return (char *)options + offsets[row]; }
static const void *field_const(const gb_options *options, uint32_t row) { return (const char *)options + offsets[row]; }

static const char *copy(gb_options *options, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *to = gb_arena_take(&options->arena, bytes, 1);
    return to ? memcpy(to, text, bytes) : NULL;
}

/* ---- text to value ---- */

/* "64", "-1", "512M": false for anything else and for what does not fit into 64 bits. */
static bool parse_integer(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || errno == ERANGE || isspace((unsigned char)text[0])) return false;
    const char *suffixes = "KMG", *suffix = *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
    int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    if (suffix) end++;
    return *end == '\0' && !__builtin_mul_overflow(number, 1LL << shift, (long long *)value);
}

static bool parse_float(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value) && !isspace((unsigned char)text[0]);
}

static bool parse_bool(const char *text, bool *value)
{
    static const char *const words[2][4] = {{"false", "0", "no", "off"}, {"true", "1", "yes", "on"}};
    for (int truth = 0; truth < 2; truth++) {
        for (int i = 0; i < 4; i++) {
            if (strcmp(text, words[truth][i]) != 0) continue;
            *value = truth;
            return true;
        }
    }
    return false;
}

static bool has_choices(const gb_option_row *row) { return row->type == GB_OPTION_STRING && strchr(row->metavar, '|'); }

static bool is_choice(const char *choices, const char *text)
{
    size_t bytes = strlen(text);
    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        if (bytes && strcspn(at, "|") == bytes && strncmp(at, text, bytes) == 0) return true;
    }
    return false;
}

/* A double cannot hold INT64_MAX, but the next number above it. */
static long long integer_bound(double bound) { return bound < 0x1p63 ? (long long)bound : INT64_MAX; }

int gb_option_parse(const gb_option_row *row, const char *text, void *value, gb_error *err)
{
    switch (row->type) {
    case GB_OPTION_STRING:
        if (has_choices(row) && !is_choice(row->metavar, text))
            return gb_fail(err, GB_EINVAL, "expected one of %s", row->metavar);
        *(const char **)value = text;
        return GB_OK;
    case GB_OPTION_INT: {
        int64_t number;
        if (!parse_integer(text, &number) || (double)number < row->low || (double)number > row->high)
            return gb_fail(err, GB_EINVAL, "expected an integer from %lld to %lld", integer_bound(row->low), integer_bound(row->high));
        *(int64_t *)value = number;
        return GB_OK;
    }
    case GB_OPTION_FLOAT: {
        double number;
        if (!parse_float(text, &number) || number < row->low || number > row->high)
            return gb_fail(err, GB_EINVAL, "expected a number from %g to %g", row->low, row->high);
        *(double *)value = number;
        return GB_OK;
    }
    case GB_OPTION_BOOL:
        return parse_bool(text, value) ? GB_OK : gb_fail(err, GB_EINVAL, "expected true or false");
    }
    GB_UNREACHABLE();
}

/* ---- setting ---- */

static bool same_key(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b)) return false;
    }
    return *a == *b;
}

const gb_option_row *gb_options_find(const char *key)
{
    for (uint32_t i = 0; i < gb_option_count; i++) {
        if (same_key(gb_option_rows[i].key, key)) return &gb_option_rows[i];
    }
    return NULL;
}

static int unknown(const char *key, const char *source, gb_error *err)
{
    gb_nearest nearest = gb_nearest_to(key);
    for (uint32_t i = 0; i < gb_option_count; i++) gb_nearest_offer(&nearest, gb_option_rows[i].key);
    const char *found = gb_nearest_found(&nearest);
    return gb_fail(err, GB_ENOTFOUND, "unknown option %s (%s)%s%s%s", key, source, found ? "; did you mean " : "",
                   found ? found : "", found ? "?" : "; gimbal serve --help lists them all");
}

int gb_options_set(gb_options *options, const char *key, const char *value, const char *source, gb_error *err)
{
    const gb_option_row *row = gb_options_find(key);
    if (!row) return unknown(key, source, err);
    gb_error why = {0};
    const char *kept = copy(options, value), *from = copy(options, source);
    if (!kept || !from) return gb_fail(err, GB_ENOMEM, "out of memory for options");
    uint32_t index = (uint32_t)(row - gb_option_rows);
    if (gb_option_parse(row, kept, field(options, index), &why))
        return gb_fail(err, GB_EINVAL, "%s = \"%s\" (%s): %s; %s", row->key, value, source, why.text, row->help);
    options->sources[index] = from;
    return GB_OK;
}

int gb_options_init(gb_options *options)
{
    *options = (gb_options){0};
    gb_arena_init(&options->arena);
    for (uint32_t i = 0; i < gb_option_count; i++) {
        gb_error err = {0};
        int status = gb_option_parse(&gb_option_rows[i], gb_option_rows[i].text, field(options, i), &err);
        GB_ASSERT(status == GB_OK);
        options->sources[i] = "default";
    }
    return GB_OK;
}

void gb_options_deinit(gb_options *options) { gb_arena_deinit(&options->arena); }

int gb_options_read_environment(gb_options *options, gb_error *err)
{
    for (uint32_t i = 0; i < gb_option_count; i++) {
        char name[NAME_BYTES] = "GIMBAL_";
        size_t n = strlen(name);
        for (const char *c = gb_option_rows[i].key; *c; c++) name[n++] = (char)toupper((unsigned char)*c);
        const char *value = getenv(name);
        if (!value) continue;
        int status = gb_options_set(options, gb_option_rows[i].key, value, "environment", err);
        if (status) return status;
    }
    return GB_OK;
}

/* ---- value to text ---- */

/* The shortest exact form: 536870912 is 512M. */
static void format_integer(int64_t value, char *out, size_t capacity)
{
    static const char *const suffixes[] = {"", "K", "M", "G"};
    int suffix = 0;
    while (suffix < 3 && value && value % 1024 == 0) value /= 1024, suffix++;
    snprintf(out, capacity, "%" PRId64 "%s", value, suffixes[suffix]);
}

void gb_options_format(const gb_options *options, uint32_t row, char *out, size_t capacity)
{
    const void *value = field_const(options, row);
    switch (gb_option_rows[row].type) {
    case GB_OPTION_STRING: snprintf(out, capacity, "%s", *(const char *const *)value); break;
    case GB_OPTION_INT: snprintf(out, capacity, "%" PRId64, *(const int64_t *)value); break;
    case GB_OPTION_FLOAT: snprintf(out, capacity, "%.17g", *(const double *)value); break;
    case GB_OPTION_BOOL: snprintf(out, capacity, "%s", *(const bool *)value ? "true" : "false"); break;
    }
}

/* A string literal that Lua reads back as the same bytes. */
static void print_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') fprintf(out, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f) fprintf(out, "\\%03u", *c);
        else fputc(*c, out);
    }
    fputc('"', out);
}

static void print_value(FILE *out, const gb_options *options, uint32_t row)
{
    char text[NAME_BYTES];
    const void *value = field_const(options, row);
    if (gb_option_rows[row].type == GB_OPTION_STRING) {
        print_quoted(out, *(const char *const *)value);
        return;
    }
    bool bytes = gb_option_rows[row].type == GB_OPTION_INT && strcmp(gb_option_rows[row].metavar, "BYTES") == 0;
    if (bytes) format_integer(*(const int64_t *)value, text, sizeof text);
    else gb_options_format(options, row, text, sizeof text);
    if (bytes) print_quoted(out, text);
    else fputs(text, out);
}

void gb_options_print(const gb_options *options, FILE *out)
{
    fputs("return {\n", out);
    for (uint32_t i = 0; i < gb_option_count; i++) {
        fprintf(out, "    %s = ", gb_option_rows[i].key);
        print_value(out, options, i);
        fprintf(out, ",  -- %s\n", options->sources[i]);
    }
    fputs("}\n", out);
}

/* ---- help ---- */

/* Prints text from the help column on, broken between words. */
static void print_wrapped(FILE *out, const char *text)
{
    size_t column = HELP_COLUMN;
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + word > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        bool first = column == HELP_COLUMN;
        fprintf(out, "%s%.*s", first ? "" : " ", (int)word, text);
        column += word + !first;
        text += word + strspn(text + word, " ");
    }
    fputc('\n', out);
}

void gb_option_help_line(FILE *out, const char *flag, const char *metavar, const char *help, const char *text)
{
    char left[256], right[512];
    int width = snprintf(left, sizeof left, "  %s%s%s", flag, *metavar ? " " : "", metavar);
    bool shown = *text && strcmp(text, "0") != 0;    /* a 0 is explained by its help */
    snprintf(right, sizeof right, "%s%s%s%s", help, shown ? " [" : "", shown ? text : "", shown ? "]" : "");
    if (width + 2 > HELP_COLUMN) fprintf(out, "%s\n%*s", left, HELP_COLUMN, "");
    else fprintf(out, "%-*s", HELP_COLUMN, left);
    print_wrapped(out, right);
}

void gb_options_help(FILE *out)
{
    const char *group = "";
    for (uint32_t i = 0; i < gb_option_count; i++) {
        const gb_option_row *row = &gb_option_rows[i];
        char flag[NAME_BYTES + 8];
        bool truth = row->type == GB_OPTION_BOOL;
        size_t n = (size_t)snprintf(flag, sizeof flag, "%s", truth ? "--[no-]" : "--");
        for (const char *c = row->key; *c; c++) flag[n++] = *c == '_' ? '-' : *c;
        flag[n] = '\0';
        if (strcmp(group, row->group) != 0) fprintf(out, "\n%c%s:\n", toupper((unsigned char)row->group[0]), row->group + 1);
        group = row->group;
        gb_option_help_line(out, flag, truth ? "" : row->metavar, row->help, truth ? (strcmp(row->text, "true") == 0 ? "on" : "") : row->text);
    }
}
