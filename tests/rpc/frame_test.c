#include "bindings/rpc/frame.h"

#include <stdlib.h>

#include "tests/check.h"

static gb_error err;

static gb_frame_state scan(const void *bytes, size_t n, size_t *size)
{
    gb_frame frame;
    gb_frame_init(&frame);
    gb_frame_state state = gb_frame_scan(&frame, bytes, n, &err);
    if (size) *size = frame.at;
    return state;
}

#define SCAN(...) scan((const uint8_t[]){__VA_ARGS__}, sizeof (const uint8_t[]){__VA_ARGS__}, NULL)

/* [0, 7, "ping", [{"a": [nil, 1.5, bin, ext, -1, 300]}]] with every kind of length. */
static const uint8_t session[] = {
    0x94, 0x00, 0x07, 0xa4, 'p',  'i',  'n',  'g',  0x91, 0x81, 0xa1, 'a', 0xdc, 0x00, 0x0b, 0xc0, 0xcb, 0x3f, 0xf8, 0,    0,
    0,    0,    0,    0,    0xc4, 0x02, 1,    2,    0xd6, 0x01, 1,    2,   3,    4,    0xff, 0xcd, 0x01, 0x2c, 0xd9, 0x01, 'x',
    0xc7, 0x03, 0x01, 1,    2,    3,    0xc2, 0xdf, 0,    0,    0,    1,   0xa1, 'k',  0x80, 0xca, 0,    0,    0,    0,
};

static void a_whole_message_is_measured(void)
{
    size_t size;
    CHECK_EQ(scan(session, sizeof session, &size), GB_FRAME_WHOLE);
    CHECK_EQ(size, sizeof session);
}

static void bytes_after_a_message_belong_to_the_next(void)
{
    uint8_t two[2 * sizeof session];
    size_t size;
    memcpy(two, session, sizeof session);
    memcpy(two + sizeof session, session, sizeof session);
    CHECK_EQ(scan(two, sizeof two, &size), GB_FRAME_WHOLE);
    CHECK_EQ(size, sizeof session);
}

static void a_message_cut_at_any_byte_is_a_part(void)
{
    for (size_t cut = 0; cut < sizeof session; cut++) CHECK_EQ(scan(session, cut, NULL), GB_FRAME_PART);
}

static void a_message_that_arrives_byte_by_byte_is_whole_at_its_last(void)
{
    gb_frame frame;
    gb_frame_init(&frame);
    for (size_t n = 0; n < sizeof session; n++) CHECK_EQ(gb_frame_scan(&frame, session, n, &err), GB_FRAME_PART);
    CHECK_EQ(gb_frame_scan(&frame, session, sizeof session, &err), GB_FRAME_WHOLE);
    CHECK_EQ(frame.at, sizeof session);
}

static void five_bytes_that_announce_83_million_elements_are_refused(void)
{
    CHECK_EQ(SCAN(0xdd, 0x04, 0xf2, 0x7f, 0x80), GB_FRAME_BAD);    /* array */
    CHECK_CONTAINS(err.text, "announces");
    CHECK_EQ(SCAN(0xdf, 0x04, 0xf2, 0x7f, 0x80), GB_FRAME_BAD);    /* map */
    CHECK_EQ(SCAN(0xc6, 0x04, 0xf2, 0x7f, 0x80), GB_FRAME_BAD);    /* bin */
    CHECK_EQ(SCAN(0xdb, 0x04, 0xf2, 0x7f, 0x80), GB_FRAME_BAD);    /* str */
    CHECK_EQ(SCAN(0xc9, 0x04, 0xf2, 0x7f, 0x80, 0x01), GB_FRAME_BAD);    /* ext */
    CHECK_EQ(SCAN(0xdd, 0xff, 0xff, 0xff, 0xff), GB_FRAME_BAD);
    CHECK_EQ(SCAN(0xdf, 0xff, 0xff, 0xff, 0xff), GB_FRAME_BAD);
}

static void headers_that_only_together_announce_too_much_are_refused(void)
{
    uint8_t nested[5 * GB_RPC_DEPTH_MAX];
    for (uint32_t i = 0; i < GB_RPC_DEPTH_MAX; i++) memcpy(nested + 5 * i, "\xdd\x00\x07\x00\x00", 5);    /* 458,752 each */
    CHECK_EQ(scan(nested, 5, NULL), GB_FRAME_PART);
    CHECK_EQ(scan(nested, sizeof nested, NULL), GB_FRAME_BAD);
}

static void more_values_than_the_limit_are_refused_although_the_bytes_would_fit(void)
{
    uint32_t n = GB_RPC_VALUES_MAX;    /* with the array itself one too many */
    CHECK_EQ(SCAN(0xdd, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n), GB_FRAME_BAD);
    CHECK_CONTAINS(err.text, "values");
    n--;
    CHECK_EQ(SCAN(0xdd, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n), GB_FRAME_PART);
}

static void sixteen_levels_are_allowed_and_seventeen_refused(void)
{
    uint8_t nested[18];
    memset(nested, 0x91, sizeof nested);
    nested[16] = 0xc0;
    CHECK_EQ(scan(nested, 17, NULL), GB_FRAME_WHOLE);
    nested[16] = 0x90;    /* an empty array is a level too */
    CHECK_EQ(scan(nested, 17, NULL), GB_FRAME_BAD);
    nested[16] = 0x91;
    nested[17] = 0xc0;
    CHECK_EQ(scan(nested, 18, NULL), GB_FRAME_BAD);
    CHECK_CONTAINS(err.text, "deeper than 16");
}

static void nesting_a_thousand_deep_is_refused(void)
{
    uint8_t nested[1001];
    memset(nested, 0x91, 1000);
    nested[1000] = 0xc0;
    CHECK_EQ(scan(nested, sizeof nested, NULL), GB_FRAME_BAD);
    memset(nested, 0x81, 1000);    /* maps whose keys are maps */
    CHECK_EQ(scan(nested, sizeof nested, NULL), GB_FRAME_BAD);
}

static void the_byte_that_msgpack_never_uses_is_refused(void)
{
    CHECK_EQ(SCAN(0xc1), GB_FRAME_BAD);
    CHECK_EQ(SCAN(0x92, 0x00, 0xc1), GB_FRAME_BAD);
    CHECK_CONTAINS(err.text, "byte 2");
}

static void a_message_of_exactly_the_limit_is_allowed(void)
{
    uint32_t payload = GB_RPC_MESSAGE_MAX - 5;
    uint8_t *message = calloc(1, GB_RPC_MESSAGE_MAX + 1);
    const uint8_t head[5] = {0xc6, (uint8_t)(payload >> 24), (uint8_t)(payload >> 16), (uint8_t)(payload >> 8), (uint8_t)payload};
    memcpy(message, head, sizeof head);
    CHECK_EQ(scan(message, GB_RPC_MESSAGE_MAX - 1, NULL), GB_FRAME_PART);
    CHECK_EQ(scan(message, GB_RPC_MESSAGE_MAX, NULL), GB_FRAME_WHOLE);
    message[4]++;
    CHECK_EQ(scan(message, 5, NULL), GB_FRAME_BAD);
    free(message);
}

static void an_array_whose_last_element_cannot_fit_is_refused_at_that_element(void)
{
    const uint8_t array[] = {0x92, 0xc6, 0x00, 0x7f, 0xff, 0xfa};    /* 8 MiB - 6 bytes of bin, and one value more */
    CHECK_EQ(scan(array, 1, NULL), GB_FRAME_PART);
    CHECK_EQ(scan(array, sizeof array, NULL), GB_FRAME_BAD);
    const uint8_t fits[] = {0x92, 0xc6, 0x00, 0x7f, 0xff, 0xf9};
    CHECK_EQ(scan(fits, sizeof fits, NULL), GB_FRAME_PART);
}

TESTS(TEST(a_whole_message_is_measured), TEST(bytes_after_a_message_belong_to_the_next),
      TEST(a_message_cut_at_any_byte_is_a_part), TEST(a_message_that_arrives_byte_by_byte_is_whole_at_its_last),
      TEST(five_bytes_that_announce_83_million_elements_are_refused),
      TEST(headers_that_only_together_announce_too_much_are_refused),
      TEST(more_values_than_the_limit_are_refused_although_the_bytes_would_fit),
      TEST(sixteen_levels_are_allowed_and_seventeen_refused), TEST(nesting_a_thousand_deep_is_refused),
      TEST(the_byte_that_msgpack_never_uses_is_refused), TEST(a_message_of_exactly_the_limit_is_allowed),
      TEST(an_array_whose_last_element_cannot_fit_is_refused_at_that_element))
