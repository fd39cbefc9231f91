#include "core/model/split.h"

#include <stdlib.h>

#include "tests/check.h"

static const char QWEN[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static int append(void *self, const char *piece, size_t bytes)
{
    char *out = self;
    snprintf(out + strlen(out), 256 - strlen(out), "[%.*s]", (int)bytes, piece);
    return GB_OK;
}

static void check_split(gb_split *split, const char *text, const char *wanted)
{
    char out[256] = "";
    gb_error err = {0};
    CHECK_EQ(gb_split_run(split, text, strlen(text), append, out, &err), GB_OK);
    CHECK_STR(out, wanted);
}

static gb_split *splitting_by(const char *first, const char *second)
{
    gb_split *split;
    gb_error err = {0};
    CHECK_EQ(gb_split_new(&split), GB_OK);
    CHECK_EQ(gb_split_add(split, first, &err), GB_OK);
    if (second) CHECK_EQ(gb_split_add(split, second, &err), GB_OK);
    CHECK_STR(err.text, "");
    return split;
}

static void words_numbers_and_space_are_cut_as_the_pattern_says(void)
{
    gb_split *split = splitting_by(QWEN, NULL);
    check_split(split, "", "");
    check_split(split, "Hello  world 42!", "[Hello][ ][ world][ ][4][2][!]");
    check_split(split, "it's WE'LL don\u2019t", "[it]['s][ WE]['LL][ don][\u2019t]");
    check_split(split, "a\r\n\r\n  b  ", "[a][\r\n\r\n][ ][ b][  ]");
    check_split(split, "\u4e2d\u6587\u3002\u00bd", "[\u4e2d\u6587][\u3002][\u00bd]");
    gb_split_free(split);
}

/* U+31350 came with Unicode 15 and U+180E left the spaces with 6.3, whatever the regex library at hand believes. */
static void the_kind_of_a_character_is_that_of_the_reference(void)
{
    gb_split *split = splitting_by(QWEN, NULL);
    check_split(split, "a\U00031350b", "[a\U00031350b]");
    check_split(split, "a\u180e\u180eb", "[a][\u180e\u180e][b]");
    check_split(split, "1\U0001d2c0\U000116d0", "[1][\U0001d2c0][\U000116d0]");
    check_split(split, "'\u017f '\u212a", "['\u017f][ '][\u212a]");
    gb_split_free(split);
}

static void a_second_stage_cuts_the_pieces_of_the_first(void)
{
    gb_split *split = splitting_by("\\p{N}{1,3}", "\\p{L}+");
    check_split(split, "ab12345c-d", "[ab][123][45][c][-][d]");
    gb_split_free(split);
}

static void check_refused(int status, const char *pattern, const char *part)
{
    gb_split *split;
    gb_error err = {0};
    CHECK_EQ(gb_split_new(&split), GB_OK);
    int got = gb_split_add(split, pattern, &err);
    if (got != status) printf("    pattern %s\n", pattern);
    CHECK_EQ(got, status);
    CHECK_CONTAINS(err.text, part);
    gb_split_free(split);
}

static void what_means_different_things_to_different_libraries_is_refused(void)
{
    static const char *const CONSTRUCTS[] = {
        "\\w+", "\\d", "\\h", "\\b", "\\v", "\\R", "\\X", "\\x41", "\\1", "\\p{Lu}", "\\p{^L}", "\\pL", "a.", "^a", "a$", "[a[b]]", "[[:alpha:]]", "[a&&b]",
        "[\\w]", "[\\s-z]", "[!-~]", "[]a]", "(?m:a)", "(?i)a", "(?<n>a)", "(*ACCEPT)a", "a{,3}", "a{1,2}+", "a{2}?", "a{x}", "a]", "a}", "\\",
        "(?#c)a", "(?R)", "[a",
    };
    for (size_t i = 0; i < sizeof CONSTRUCTS / sizeof *CONSTRUCTS; i++) check_refused(GB_EUNSUPPORTED, CONSTRUCTS[i], "not supported");
    check_refused(GB_EUNSUPPORTED, "\u00e9", "printable ASCII");
    check_refused(GB_EUNSUPPORTED, "(?i:ss)", "fold together");
    check_refused(GB_EUNSUPPORTED, "a*", "can match nothing");
    check_refused(GB_EFORMAT, "(a", "is not a regex");
    check_refused(GB_EFORMAT, "*a", "is not a regex");
}

static void long_patterns_and_many_stages_are_refused(void)
{
    static char pattern[GB_SPLIT_PATTERN_BYTES_MAX + 2];
    memset(pattern, 'a', GB_SPLIT_PATTERN_BYTES_MAX + 1);
    check_refused(GB_ETOOBIG, pattern, "at most 4096");
    gb_split *split;
    gb_error err = {0};
    CHECK_EQ(gb_split_new(&split), GB_OK);
    for (int i = 0; i < GB_SPLIT_STAGES_MAX; i++) CHECK_EQ(gb_split_add(split, "a", &err), GB_OK);
    CHECK_EQ(gb_split_add(split, "a", &err), GB_ETOOBIG);
    CHECK_CONTAINS(err.text, "more than 8 split patterns");
    gb_split_free(split);
}

static int ignore(void *self, const char *piece, size_t bytes)
{
    (void)piece;
    *(size_t *)self += bytes;
    return GB_OK;
}

static void a_match_that_explodes_ends_at_the_limit(void)
{
    gb_split *split = splitting_by("(?:a+)+[bc]", NULL);
    gb_error err = {0};
    char text[65] = "";
    size_t seen = 0;
    memset(text, 'a', 64);
    CHECK_EQ(gb_split_run(split, text, 64, ignore, &seen, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "cannot be split into words within the limits");
    gb_split_free(split);
}

static void long_runs_are_cut_whole(void)
{
    static const char *const RUNS[] = {"a", " ", "\n", "!", "\u4e2d", "1", "\t "};
    gb_split *split = splitting_by(QWEN, NULL);
    for (size_t i = 0; i < sizeof RUNS / sizeof *RUNS; i++) {
        size_t n = strlen(RUNS[i]), seen = 0, bytes = (1 << 20) / n * n;
        char *text = malloc(bytes);
        gb_error err = {0};
        for (size_t at = 0; at < bytes; at += n) memcpy(text + at, RUNS[i], n);
        CHECK_EQ(gb_split_run(split, text, bytes, ignore, &seen, &err), GB_OK);
        CHECK_EQ(seen, bytes);
        free(text);
    }
    gb_split_free(split);
}

TESTS(TEST(words_numbers_and_space_are_cut_as_the_pattern_says), TEST(the_kind_of_a_character_is_that_of_the_reference),
      TEST(a_second_stage_cuts_the_pieces_of_the_first), TEST(what_means_different_things_to_different_libraries_is_refused),
      TEST(long_patterns_and_many_stages_are_refused), TEST(a_match_that_explodes_ends_at_the_limit), TEST(long_runs_are_cut_whole))
