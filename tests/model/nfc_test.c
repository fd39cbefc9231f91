#include "core/model/nfc.h"

#include <stdlib.h>

#include "core/base/status.h"
#include "tests/check.h"

static void check_nfc(const char *text, const char *wanted)
{
    const char *out;
    char *owned;
    size_t n;
    CHECK_EQ(gb_nfc(&out, &n, &owned, text, strlen(text)), GB_OK);
    if (n != strlen(wanted) || memcmp(out, wanted, n)) CHECK_STR(out, wanted);
    free(owned);
}

static void text_below_the_marks_is_given_back_itself(void)
{
    static const char TEXT[] = "caf\u00e9 \u02af\n";
    const char *out;
    char *owned;
    size_t n;
    CHECK_EQ(gb_nfc(&out, &n, &owned, TEXT, strlen(TEXT)), GB_OK);
    CHECK(out == TEXT && n == strlen(TEXT) && !owned);
}

static void marks_are_ordered_and_composed(void)
{
    check_nfc("e\u0301", "\u00e9");
    check_nfc("e\u0301\u0323", "\u1eb9\u0301");
    check_nfc("\u1e0b\u0323", "\u1e0d\u0307");
    check_nfc("\u1100\u1161\u11a8", "\uac01");
    check_nfc("\uac00\u11a8", "\uac01");
    check_nfc("\u212b\u2126", "\u00c5\u03a9");
    check_nfc("\u0344", "\u0308\u0301");
    check_nfc("\u0958", "\u0915\u093c");
    check_nfc("\u0dd9\u0dca", "\u0dda");
    check_nfc("\u4e2d\u0301a\u0300", "\u4e2d\u0301\u00e0");
    check_nfc("\U0001d15e", "\U0001d157\U0001d165");
    check_nfc("\u0301\u0301", "\u0301\u0301");
}

/* The reference's tables end with Unicode 9: U+1ABF (13.0) neither moves before U+0301 nor lets it reach the letter. */
static void characters_newer_than_the_reference_are_left_alone(void)
{
    check_nfc("q\u0301\u1abf", "q\u0301\u1abf");
    check_nfc("e\u1abf\u0301", "e\u1abf\u0301");
    check_nfc("\U00011935\U00011930", "\U00011935\U00011930");
    check_nfc("e\u0301\u1abfe\u0301", "\u00e9\u1abf\u00e9");
}

/* A sort of n * n steps would take minutes here. */
static void a_text_of_nothing_but_marks_is_sorted(void)
{
    enum { N = 400000 };
    char *text = malloc(4 * N + 1);
    text[0] = 'q';
    for (size_t i = 0; i < N; i++) memcpy(text + 1 + 4 * i, "\u0301\u0323", 4);    /* classes 230 and 220, by turns */
    const char *out;
    char *owned;
    size_t n;
    CHECK_EQ(gb_nfc(&out, &n, &owned, text, 4 * N + 1), GB_OK);
    CHECK_EQ(n, 4 * N + 1);
    CHECK(!memcmp(out + 1, "\u0323\u0323", 4) && !memcmp(out + 2 * N - 1, "\u0323\u0301", 4) && !memcmp(out + n - 4, "\u0301\u0301", 4));
    free(owned);
    free(text);
}

TESTS(TEST(text_below_the_marks_is_given_back_itself), TEST(marks_are_ordered_and_composed),
      TEST(characters_newer_than_the_reference_are_left_alone), TEST(a_text_of_nothing_but_marks_is_sorted))
