#include "core/base/sha256.h"

#include <stdlib.h>

#include "tests/check.h"

static void check_text(const char *text, const char *expected)
{
    char hex[GB_SHA256_HEX + 1];
    gb_sha256_hex(hex, text, strlen(text));
    CHECK_STR(hex, expected);
}

/* Examples of FIPS 180-2 and the NIST example files. */
static void sha256_gives_the_published_answers(void)
{
    check_text("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_text("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check_text("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
               "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
}

static void sha256_of_a_million_letters_is_the_published_one(void)
{
    enum { N = 1000000 };
    char *text = malloc(N), hex[GB_SHA256_HEX + 1];
    memset(text, 'a', N);
    gb_sha256_hex(hex, text, N);
    CHECK_STR(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(text);
}

/* The padding changes shape at 55, 56 and 64 bytes; every length has to give its own digest, the same each time. */
static void sha256_tells_every_length_around_the_padding_apart(void)
{
    static const char zeros[130];
    char hex[130][GB_SHA256_HEX + 1];
    for (size_t n = 0; n < 130; n++) {
        gb_sha256_hex(hex[n], zeros, n);
        for (size_t m = 0; m < n; m++) CHECK(strcmp(hex[n], hex[m]) != 0);
    }
    CHECK_STR(hex[55], "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7");
    CHECK_STR(hex[56], "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb");
    CHECK_STR(hex[64], "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b");
}

TESTS(TEST(sha256_gives_the_published_answers), TEST(sha256_of_a_million_letters_is_the_published_one),
      TEST(sha256_tells_every_length_around_the_padding_apart))
