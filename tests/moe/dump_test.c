#include "core/moe/dump.h"

#include <stdlib.h>

#include "core/moe/generate.h"
#include "tests/check.h"

static gb_arena arena;

enum { WINDOWS = 2, LAYERS = 2, SOURCES = 2, EXPERTS = 8, RANKS = 4, LINKS_AT = 56, SLOTS_AT = LINKS_AT + 8 * SOURCES * RANKS,
       WINDOWS_AT = SLOTS_AT + 4 * LAYERS * RANKS * 3, COUNTS_AT = WINDOWS_AT + 32 };

static gb_dump sample(void)
{
    gb_dump d;
    gb_generator g;
    gb_generator_options o = gb_generator_defaults();
    o.layers = LAYERS, o.sources = SOURCES, o.experts = EXPERTS, o.top_k = 2;
    gb_arena_init(&arena);
    CHECK_EQ(gb_dump_init(&d, &arena, WINDOWS, LAYERS, SOURCES, EXPERTS, RANKS, 1, 1000, NULL), 0);
    CHECK_EQ(gb_generator_init(&g, &arena, &o, NULL), 0);
    for (uint32_t w = 0; w < WINDOWS; w++) {
        d.window[w].id = w + 1, d.window[w].from = 10 * w, d.window[w].to = 10 * w + 9, d.window[w].rounds = 5;
        gb_generator_next(&g, &d.window[w].counts);
    }
    gb_placement_layer_slots(&d.placement, 1)[2] = 7;    /* a copy */
    d.placement.version = 42;
    return d;
}

static uint8_t *bytes_of(const gb_dump *d, uint64_t *n)
{
    *n = gb_dump_bytes(d);
    uint8_t *bytes = GB_ARENA_NEW(&arena, uint8_t, *n);
    gb_dump_write(d, bytes);
    return bytes;
}

static void sign(uint8_t *bytes, uint64_t n)
{
    uint32_t crc = gb_crc32(bytes, n - 4);
    for (int i = 0; i < 4; i++) bytes[n - 4 + (uint64_t)i] = (uint8_t)(crc >> 8 * i);
}

static void the_checksum_is_the_one_of_zip(void) { CHECK_EQ(gb_crc32("123456789", 9), 0xCBF43926u); }

static void what_is_written_is_what_is_read(void)
{
    gb_dump d = sample(), back;
    uint64_t n;
    uint8_t *bytes = bytes_of(&d, &n);
    gb_error err = {{0}};
    CHECK_EQ(gb_dump_read(&back, &arena, bytes, n, &err), 0);
    CHECK_STR(err.text, "");
    CHECK_EQ(back.windows, WINDOWS);
    CHECK_EQ(back.expert_bytes, 1000);
    CHECK_EQ(back.placement.version, 42);
    CHECK_EQ(back.window[1].to, 19);
    CHECK_EQ(back.window[1].rounds, 5);
    CHECK_EQ(gb_placement_check(&back.placement, NULL), 0);
    CHECK_EQ(gb_placement_layer_slots(&back.placement, 1)[2], 7);
    CHECK_EQ(gb_placement_routes(&back.placement, 1, 0)[7], 2);    /* nearest */
    CHECK(memcmp(back.window[1].counts.counts, d.window[1].counts.counts, gb_matrix_cells(&d.window[1].counts) * 8) == 0);
    for (int i = 0; i < SOURCES * RANKS; i++) CHECK_NEAR(back.links.cost[i], d.links.cost[i], 0);
    gb_arena_deinit(&arena);
}

/* Each case changes bytes of a good dump, signs it anew, and names what the reader must say. */
static void check_refused(uint64_t at, uint64_t value, int width, const char *part)
{
    gb_dump d = sample(), back = {.windows = 77};
    uint64_t n;
    uint8_t *bytes = bytes_of(&d, &n);
    for (int i = 0; i < width; i++) bytes[at + (uint64_t)i] = (uint8_t)(value >> 8 * i);
    sign(bytes, n);
    gb_error err = {{0}};
    CHECK_EQ(gb_dump_read(&back, &arena, bytes, n, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, part);
    CHECK_EQ(back.windows, 77);
    gb_arena_deinit(&arena);
}

static void bad_headers_are_named(void)
{
    check_refused(0, 'X', 1, "not a window dump");
    check_refused(8, 2, 4, "format version 2");
    check_refused(12, 0, 4, "0 windows");
    check_refused(12, 0xFFFFFFFF, 4, "4294967295 windows");
    check_refused(12, 3, 4, "truncated");
    check_refused(12, 1, 4, "bytes after its end");
    check_refused(16, 1, 4, "unknown flags");
    check_refused(20, 0x7FFFFFFF, 4, "layers");
    check_refused(28, 9, 4, "9 experts cannot be split evenly over 4 ranks");
    check_refused(32, 3, 4, "8 experts cannot be split evenly over 3 ranks");
    check_refused(32, 16, 4, "16 ranks for 8 experts");
    check_refused(36, 1, 4, "1 slots per rank");
    check_refused(40, 0, 8, "0 bytes");
}

static void bad_numbers_are_named(void)
{
    check_refused(COUNTS_AT, (uint64_t)-1, 8, "window 0 layer 0 source 0 expert 0: count 18446744073709551615 is negative or above 2^53");
    check_refused(COUNTS_AT + 8, UINT64_C(1) << 53, 8, "add up to more than 2^53");
    check_refused(LINKS_AT, 0x7FF8000000000000, 8, "is nan");
    check_refused(LINKS_AT + 8, 0xBFF0000000000000, 8, "is -1");
    check_refused(WINDOWS_AT + 8, 100, 8, "ends before it begins");
    check_refused(SLOTS_AT, 8, 4, "expert 0 of layer 0 nowhere");
    check_refused(SLOTS_AT + 8, 99, 4, "holds expert 99");
    check_refused(SLOTS_AT + 8, 0, 4, "holds expert 0 twice");
}

static void any_prefix_is_called_truncated_and_any_flipped_bit_damaged(void)
{
    gb_dump d = sample(), back;
    uint64_t n;
    uint8_t *bytes = bytes_of(&d, &n);
    gb_error err = {{0}};
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *prefix = malloc(i ? i : 1);    /* its own block, so that a sanitizer sees a step beyond */
        memcpy(prefix, bytes, i);
        CHECK_EQ(gb_dump_read(&back, &arena, prefix, i, &err), GB_EFORMAT);
        free(prefix);
    }
    CHECK_CONTAINS(err.text, "truncated");
    for (uint64_t i = 0; i < n; i++) {
        bytes[i] ^= 1;
        CHECK_EQ(gb_dump_read(&back, &arena, bytes, n, &err), GB_EFORMAT);
        bytes[i] ^= 1;
    }
    CHECK_EQ(gb_dump_read(&back, &arena, bytes, n, &err), 0);
    gb_arena_deinit(&arena);
}

static void shapes_that_cannot_be_are_refused_at_the_start(void)
{
    gb_dump d;
    gb_error err = {{0}};
    gb_arena_init(&arena);
    CHECK_EQ(gb_dump_init(&d, &arena, 1, 1, 1, 8, 3, 0, 1, &err), GB_EINVAL);
    CHECK_EQ(gb_dump_init(&d, &arena, 1, 1, 1, 8, 16, 0, 1, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "16 ranks for 8 experts");
    CHECK_EQ(gb_dump_init(&d, &arena, 1, 0, 1, 8, 4, 0, 1, &err), GB_EINVAL);
    CHECK_EQ(gb_dump_init(&d, &arena, 1, 1, 1, 8, 0, 0, 1, &err), GB_EINVAL);
    gb_arena_deinit(&arena);
}

TESTS(TEST(the_checksum_is_the_one_of_zip), TEST(what_is_written_is_what_is_read), TEST(bad_headers_are_named), TEST(bad_numbers_are_named),
      TEST(any_prefix_is_called_truncated_and_any_flipped_bit_damaged), TEST(shapes_that_cannot_be_are_refused_at_the_start))
