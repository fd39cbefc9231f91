#include "bindings/rpc/auth.h"

#include "tests/check.h"

static void only_the_secret_matches(void)
{
    uint8_t digest[GB_SHA256_BYTES];
    gb_sha256(digest, "secret", 6);
    CHECK(gb_auth_matches(digest, "secret", 6));
    CHECK(!gb_auth_matches(digest, "secret", 5));
    CHECK(!gb_auth_matches(digest, "secrett", 7));
    CHECK(!gb_auth_matches(digest, "Secret", 6));
    CHECK(!gb_auth_matches(digest, "", 0));
}

TESTS(TEST(only_the_secret_matches))
