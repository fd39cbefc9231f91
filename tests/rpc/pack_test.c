#include "bindings/rpc/pack.h"

#include <msgpack.h>

#include "tests/check.h"

static void check_packed(const gb_pack *p, const char *bytes, size_t n)
{
    CHECK_EQ(p->n, n);
    CHECK(p->n == n && memcmp(p->data, bytes, n) == 0);
}

static void values_are_written_as_msgpack(void)
{
    gb_pack p;
    gb_pack_init(&p, 1000);
    gb_pack_array(&p, 6);
    gb_pack_nil(&p);
    gb_pack_bool(&p, true);
    gb_pack_int(&p, -1);
    gb_pack_uint(&p, UINT64_MAX);
    gb_pack_str(&p, "ab");
    gb_pack_bin(&p, "\0", 1);
    check_packed(&p, "\x96\xc0\xc3\xff\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xa2" "ab\xc4\x01\x00", 19);
    gb_pack_deinit(&p);
}

static void a_map_gets_its_count_at_its_end(void)
{
    gb_pack p;
    gb_pack_init(&p, 1000);
    gb_pack_list map = gb_pack_begin_map(&p);
    gb_pack_key_int(&map, "a", 1);
    gb_pack_list list = gb_pack_begin_array(gb_pack_key(&map, "b"));
    gb_pack_int(gb_pack_next(&list), 7);
    gb_pack_end(&list);
    gb_pack_end(&map);
    check_packed(&p, "\xde\x00\x02\xa1" "a\x01\xa1" "b\xdc\x00\x01\x07", 12);
    gb_pack_deinit(&p);
}

static void a_matrix_is_extension_one_with_dims_before_data(void)
{
    static const uint32_t dims[] = {1, 2}, data[] = {5, 0x01020304};
    gb_pack p;
    gb_pack_init(&p, 1000);
    gb_pack_matrix(&p, GB_MATRIX_U32, 2, dims, data);
    check_packed(&p, "\xc7\x14\x01\x00\x02\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x05\x00\x00\x00\x04\x03\x02\x01", 23);
    gb_pack_deinit(&p);
}

static void past_its_limit_a_pack_overflows_and_keeps_what_it_has(void)
{
    gb_pack p;
    gb_pack_init(&p, 10);
    gb_pack_str(&p, "12345678");
    CHECK(!p.overflow);
    gb_pack_list map = gb_pack_begin_map(&p);
    gb_pack_end(&map);
    CHECK(p.overflow);
    CHECK_EQ(p.n, 9);
    gb_pack_nil(&p);    /* it would fit, but something is missing before it */
    CHECK_EQ(p.n, 9);
    gb_pack_cut(&p, 0);
    gb_pack_nil(&p);
    CHECK(!p.overflow);
    gb_pack_deinit(&p);
}

static void a_cleared_pack_keeps_little_memory(void)
{
    static char much[GB_PACK_KEEP_BYTES + 1];
    gb_pack p;
    gb_pack_init(&p, 1 << 20);
    gb_pack_nil(&p);
    gb_pack_clear(&p);
    CHECK(p.capacity > 0 && p.n == 0);
    gb_pack_raw(&p, much, sizeof much);
    gb_pack_clear(&p);
    CHECK_EQ(p.capacity, 0);
    gb_pack_nil(&p);
    check_packed(&p, "\xc0", 1);
    gb_pack_deinit(&p);
}

TESTS(TEST(values_are_written_as_msgpack), TEST(a_map_gets_its_count_at_its_end),
      TEST(a_matrix_is_extension_one_with_dims_before_data), TEST(past_its_limit_a_pack_overflows_and_keeps_what_it_has),
      TEST(a_cleared_pack_keeps_little_memory))
