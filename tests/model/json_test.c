#include "core/model/json.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

static int parse(const char *text, size_t n, gb_error *err)
{
    json_t *root;
    int status = gb_json_parse(&root, text, n, "x.json", GB_JSON_EXACT_INTEGERS, err);
    CHECK((root != NULL) == (status == GB_OK));
    json_decref(root);
    return status;
}

/* {"a": [[[ ... ]]]} with n levels in all. */
static int parse_nested(int n, gb_error *err)
{
    char text[4096] = "{\"a\":";
    size_t at = 5;
    for (int i = 1; i < n; i++) text[at++] = '[';
    for (int i = 1; i < n; i++) text[at++] = ']';
    text[at++] = '}';
    return parse(text, at, err);
}

static void depth_is_capped(void)
{
    gb_error err = {0};
    CHECK_EQ(parse_nested(GB_JSON_DEPTH_MAX, &err), GB_OK);
    CHECK_EQ(parse_nested(GB_JSON_DEPTH_MAX + 1, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "x.json is nested more than 32 deep at byte 36");
    CHECK_EQ(parse_nested(1000, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "nested more than 32 deep");
    static const char BRACKETS[] = "{\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[\":1}";    /* in a string they count for nothing */
    CHECK_EQ(parse(BRACKETS, strlen(BRACKETS), &err), GB_OK);
}

static void values_are_capped_before_they_are_built(void)
{
    size_t n = 2 * (size_t)GB_JSON_VALUES_MAX + 16, at = 6;
    gb_error err = {0};
    char *text = malloc(n);
    memcpy(text, "{\"a\":[", at);
    for (int i = 0; i < GB_JSON_VALUES_MAX; i++, at += 2) memcpy(text + at, "1,", 2);
    memcpy(text + at, "1]}", 3);
    CHECK_EQ(parse(text, at + 3, &err), GB_ETOOBIG);
    CHECK_CONTAINS(err.text, "x.json holds more than 8388608 values");
    free(text);
}

static void a_file_above_its_cap_is_refused_unread(void)
{
    char dir[] = "/tmp/gimbal-json-XXXXXX", path[64], *text;
    size_t bytes;
    gb_error err = {0};
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/a.json", dir);
    FILE *f = fopen(path, "w");
    CHECK(f && fputs("{\"a\":1}", f) >= 0 && fclose(f) == 0);
    CHECK_EQ(gb_file_read(&text, &bytes, dir, "a.json", 7, &err), GB_OK);
    CHECK_EQ(bytes, 7);
    CHECK(!memcmp(text, "{\"a\":1}", 7));
    free(text);
    CHECK_EQ(gb_file_read(&text, &bytes, dir, "a.json", 6, &err), GB_ETOOBIG);
    CHECK_CONTAINS(err.text, "has 7 bytes; at most 6 are read");
    unlink(path);
    CHECK_EQ(mkfifo(path, 0600), 0);    /* must not wait for a writer */
    CHECK_EQ(gb_file_read(&text, &bytes, dir, "a.json", 6, &err), GB_EIO);
    CHECK_CONTAINS(err.text, "is not a regular file");
    unlink(path);
    rmdir(dir);
}

static void a_quote_is_fit_for_one_line(void)
{
    char text[300];
    CHECK_STR(gb_json_quote("a\nb\x1b[31m").text, "a?b?[31m");
    memset(text, 'x', sizeof text);
    text[299] = '\0';
    CHECK_EQ(strlen(gb_json_quote(text).text), 99);
    CHECK_CONTAINS(gb_json_quote(text).text, "xxx...");
    for (int i = 0; i < 98; i++) memcpy(text + 3 * i, "\u4e2d", 3);
    text[294] = '\0';
    CHECK_EQ(strlen(gb_json_quote(text).text) % 3, 0);
}

static void the_first_failure_is_the_one_that_is_told(void)
{
    json_t *root;
    gb_error err = {0};
    CHECK_EQ(gb_json_parse(&root, "{\"a\":-1,\"b\":[]}", 15, "x.json", GB_JSON_ALL_REALS, &err), GB_OK);
    gb_fields f = {.object = root, .where = "x.json: ", .err = &err};
    CHECK_EQ(gb_fields_need_int(&f, "a", 3, 9), 3);
    CHECK_EQ(gb_fields_need_int(&f, "b", 4, 9), 4);
    CHECK_EQ(gb_fields_int(&f, "c", 4, 9, 7), 7);
    CHECK_EQ(f.status, GB_EFORMAT);
    CHECK_STR(err.text, "x.json: a is -1; it must be a whole number between 3 and 9");
    json_decref(root);
}

TESTS(TEST(depth_is_capped), TEST(values_are_capped_before_they_are_built), TEST(a_file_above_its_cap_is_refused_unread),
      TEST(a_quote_is_fit_for_one_line), TEST(the_first_failure_is_the_one_that_is_told))
