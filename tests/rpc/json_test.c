#include "bindings/rpc/json.h"

#include <math.h>
#include <stdlib.h>

#include "tests/check.h"

/* JSON of one packed value, as compact text; static buffer. */
static const char *text_of(const gb_pack *p)
{
    static char text[1024];
    msgpack_unpacked unpacked;
    size_t at = 0;
    msgpack_unpacked_init(&unpacked);
    CHECK_EQ(msgpack_unpack_next(&unpacked, (const char *)p->data, p->n, &at), MSGPACK_UNPACK_SUCCESS);
    json_t *json = gb_rpc_json_of(&unpacked.data);
    size_t n = json_dumpb(json, text, sizeof text - 1, JSON_COMPACT | JSON_ENCODE_ANY);
    text[n] = '\0';
    json_decref(json);
    msgpack_unpacked_destroy(&unpacked);
    return text;
}

static void json_survives_the_way_to_msgpack_and_back(void)
{
    static const char *const texts[] = {
        "{\"a\":[1,-2,2.5,true,false,null,\"\",\"h\xc3\xa9\"],\"b\":{\"c\":{}}}", "9223372036854775807", "-9223372036854775808", "[]", "\"\"",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        gb_pack p;
        json_t *json = json_loads(texts[i], JSON_DECODE_ANY, NULL);
        gb_pack_init(&p, 1000);
        gb_rpc_json_pack(&p, json);
        CHECK_STR(text_of(&p), texts[i]);
        json_decref(json);
        gb_pack_deinit(&p);
    }
}

static void what_json_lacks_is_written_as_something_like_it(void)
{
    gb_pack p;
    gb_pack_init(&p, 1000);
    gb_pack_array(&p, 5);
    gb_pack_bin(&p, "\x00\xff", 2);
    gb_pack_float(&p, NAN);
    gb_pack_uint(&p, UINT64_MAX);
    gb_pack_raw(&p, "\xd4\x05\x00", 3);    /* an extension that nobody knows */
    gb_pack_text(&p, "\xff", 1);
    CHECK_STR(text_of(&p), "[\"00ff\",null,1.8446744073709552e19,null,null]");
    gb_pack_deinit(&p);
}

static void matrices_become_nested_arrays(void)
{
    static const uint32_t dims[] = {2, 1, 2}, u32[] = {1, 2, 3, 4};
    static const double f64[] = {0.5, INFINITY};
    gb_pack p;
    gb_pack_init(&p, 1000);
    gb_pack_array(&p, 2);
    gb_pack_matrix(&p, GB_MATRIX_U32, 3, dims, u32);
    gb_pack_matrix(&p, GB_MATRIX_F64, 1, dims, f64);
    CHECK_STR(text_of(&p), "[[[[1,2]],[[3,4]]],[0.5,null]]");
    gb_pack_deinit(&p);
}

static void a_matrix_that_lies_about_its_size_is_null(void)
{
    static const struct { const char *bytes; size_t n; } bad[] = {
        {"\xd4\x01\x00", 3}, {"\xc7\x08\x01\x00\x01\x00\x00\x02\x00\x00\x00", 11}, {"\xc7\x08\x01\x09\x01\x00\x00\x00\x00\x00\x00", 11},
        {"\xc7\x04\x01\x00\x09\x00\x00", 7}, {"\xc7\x0c\x01\x00\x02\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", 15},
        {"\xc7\x0c\x01\x00\x02\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00", 15},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gb_pack p;
        gb_pack_init(&p, 1000);
        gb_pack_raw(&p, bad[i].bytes, bad[i].n);
        CHECK_STR(text_of(&p), "null");
        gb_pack_deinit(&p);
    }
}

TESTS(TEST(json_survives_the_way_to_msgpack_and_back), TEST(what_json_lacks_is_written_as_something_like_it),
      TEST(matrices_become_nested_arrays), TEST(a_matrix_that_lies_about_its_size_is_null))
