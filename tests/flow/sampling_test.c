#include "core/flow/sampling.h"

#include "tests/check.h"

static gb_error err;

static gb_sampling neutral(void)
{
    gb_sampling s;
    err = (gb_error){{0}};
    gb_sampling_default(&s);
    return s;
}

static void the_default_is_valid_and_neutral(void)
{
    gb_sampling s = neutral();
    CHECK_EQ(gb_sampling_check(&s, &err), 0);
    CHECK(s.temperature == 1 && s.top_p == 1 && s.min_p == 0 && s.top_k == 0 && s.repetition_penalty == 1);
    CHECK_EQ(s.logprobs, -1);
    CHECK(!s.has_seed);
}

#define REFUSED(field, value, words) \
    do { \
        gb_sampling s = neutral(); \
        s.field = (value); \
        CHECK_EQ(gb_sampling_check(&s, &err), GB_EINVAL); \
        CHECK_CONTAINS(err.text, #field); \
        CHECK_CONTAINS(err.text, words); \
    } while (0)

static void each_field_out_of_range_is_refused_by_name(void)
{
    REFUSED(temperature, -0.1f, "[0, 100]");
    REFUSED(temperature, NAN, "nan");
    REFUSED(temperature, INFINITY, "inf");
    REFUSED(top_p, 0, "(0, 1]");
    REFUSED(top_p, 1.5f, "1.5");
    REFUSED(min_p, -1, "[0, 1]");
    REFUSED(top_k, -1, "-1");
    REFUSED(presence_penalty, 2.5f, "[-2, 2]");
    REFUSED(frequency_penalty, -3, "[-2, 2]");
    REFUSED(repetition_penalty, 0, "(0, 10]");
    REFUSED(logprobs, GB_TOP_LOGPROBS_MAX + 1, "21");
    REFUSED(max_tokens, 0, "at least 1");
    REFUSED(min_tokens, 2, "above max_tokens 1");
}

static void stop_lists_are_bounded(void)
{
    gb_sampling s = neutral();
    s.n_stop_ids = GB_STOP_IDS_MAX + 1;
    CHECK_EQ(gb_sampling_check(&s, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "stop_token_ids has 17");
    s = neutral();
    s.n_stop_strings = GB_STOP_STRINGS_MAX + 1;
    CHECK_EQ(gb_sampling_check(&s, &err), GB_EINVAL);
    s = neutral();
    s.n_stop_strings = 1;
    CHECK_EQ(gb_sampling_check(&s, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "0 bytes");
    s.stop_string_bytes[0] = GB_STOP_STRING_BYTES + 1;
    CHECK_EQ(gb_sampling_check(&s, &err), GB_EINVAL);
    s.stop_string_bytes[0] = GB_STOP_STRING_BYTES;
    CHECK_EQ(gb_sampling_check(&s, &err), 0);
}

TESTS(TEST(the_default_is_valid_and_neutral), TEST(each_field_out_of_range_is_refused_by_name), TEST(stop_lists_are_bounded))
