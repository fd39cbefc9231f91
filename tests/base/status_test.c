#include "core/base/status.h"

#include "tests/check.h"

static void every_status_has_its_name_and_message(void)
{
    CHECK_STR(gb_status_name(GB_OK), "OK");
    CHECK_STR(gb_status_name(GB_ECONTEXT), "ECONTEXT");
    CHECK_STR(gb_status_message(GB_EDEADLINE), "deadline passed");
    CHECK_STR(gb_status_name(-9999), "?");
    CHECK_STR(gb_status_message(1), "unknown status");
}

static void status_codes_are_negative_and_all_different(void)
{
    static const int codes[] = {
#define X(name, code, message) GB_##name,
        GB_STATUS_MAP(X)
#undef X
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        CHECK(codes[i] < 0);
        for (size_t j = 0; j < i; j++) CHECK(codes[i] != codes[j]);
    }
}

static void fail_writes_the_sentence_and_returns_the_status(void)
{
    gb_error err = {{0}};
    CHECK_EQ(gb_fail(&err, GB_EINVAL, "%s is %d", "top_k", 7), GB_EINVAL);
    CHECK_STR(err.text, "top_k is 7");
    CHECK_EQ(gb_fail(NULL, GB_EIO, "nobody reads this"), GB_EIO);
}

static void a_sentence_longer_than_the_error_is_cut_and_terminated(void)
{
    static char text[5000];
    gb_error err = {{0}};
    memset(text, 'x', sizeof text - 1);
    gb_fail(&err, GB_EINVAL, "%s", text);
    CHECK_EQ(strlen(err.text), sizeof err.text - 1);
}

TESTS(TEST(every_status_has_its_name_and_message), TEST(status_codes_are_negative_and_all_different),
      TEST(fail_writes_the_sentence_and_returns_the_status), TEST(a_sentence_longer_than_the_error_is_cut_and_terminated))
