#include "core/model/utf8.h"

#include "core/model/tokenizer.h"
#include "tests/check.h"

static void every_scalar_value_goes_round(void)
{
    for (int32_t c = 0; c < 0x110000; c++) {
        char bytes[4];
        int32_t back = -1;
        if (c == 0xd800) c = 0xe000;
        size_t n = gb_utf8_encode(bytes, c);
        CHECK_EQ(gb_utf8_decode(&back, bytes, n), n);
        CHECK_EQ(back, c);
        CHECK_EQ(gb_utf8_decode(&back, bytes, n - 1), 0);
        if (check_failures) return;
    }
}

static void malformed_bytes_are_no_character(void)
{
    static const char *const BAD[] = {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",
                                      "\xef\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xfe", "\xff"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        int32_t c;
        CHECK_EQ(gb_utf8_decode(&c, BAD[i], strlen(BAD[i])), 0);
        CHECK_EQ(gb_utf8_check(BAD[i], strlen(BAD[i])), 0);
    }
    CHECK_EQ(gb_utf8_check("h\xc3\xa9\xff", 4), 3);
    CHECK_EQ(gb_utf8_check("h\xc3\xa9", 3), 3);
}

static void white_space_is_that_of_unicode(void)
{
    int n = 0;
    for (int32_t c = 0; c < 0x110000; c++) n += gb_utf8_is_space(c);
    CHECK_EQ(n, 25);
    CHECK(gb_utf8_is_space(' ') && gb_utf8_is_space(0x85) && gb_utf8_is_space(0x3000));
    CHECK(!gb_utf8_is_space(0x180e) && !gb_utf8_is_space(0x200b) && !gb_utf8_is_space(0x1c));
}

/* Pushes text in pieces of `step` bytes and checks that whole characters come out, then the flush. */
static void check_stream(const char *text, size_t n, size_t step, const char *wanted)
{
    gb_utf8_stream stream = {0};
    char out[512];
    size_t written = 0;
    for (size_t at = 0; at < n; at += step) {
        written += gb_utf8_push(&stream, text + at, n - at < step ? n - at : step, out + written);
        CHECK_EQ(gb_utf8_check(out, written), written);
    }
    written += gb_utf8_flush(&stream, out + written);
    out[written] = '\0';
    CHECK_STR(out, wanted);
    CHECK_EQ(gb_utf8_flush(&stream, out), 0);
}

#define R "\xef\xbf\xbd"

static void a_stream_gives_whole_characters_whatever_the_pieces(void)
{
    static const char TEXT[] = "h\u00e9\u4e2d\U0001f600!";
    for (size_t step = 1; step < sizeof TEXT; step++) check_stream(TEXT, strlen(TEXT), step, TEXT);
}

/* The examples of the Unicode standard, section 3.9, and the borders of each rule. */
static void each_maximal_bad_part_becomes_one_replacement(void)
{
    static const struct {
        const char *text, *wanted;
    } CASES[] = {
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", R R R R R R R R "A"},
        {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", R R R R R R R R "A"},
        {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", R R R R R "A" R R "B"},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", R R R R "A"},
        {"\xf0\x9f\x98", R},
        {"\xf0\x9f\x98\xf0\x9f\x98\x80", R "\U0001f600"},
        {"\xc3\xc3\xa9", R "\u00e9"},
        {"\x80\x80", R R},
        {"a\xffz", "a" R "z"},
        {"\xe4\xb8", R},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        for (size_t step = 1; step <= 9; step++) check_stream(CASES[i].text, strlen(CASES[i].text), step, CASES[i].wanted);
}

TESTS(TEST(every_scalar_value_goes_round), TEST(malformed_bytes_are_no_character), TEST(white_space_is_that_of_unicode),
      TEST(a_stream_gives_whole_characters_whatever_the_pieces), TEST(each_maximal_bad_part_becomes_one_replacement))
