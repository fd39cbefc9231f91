#include "core/base/rng.h"

#include "tests/check.h"

/* Known answers of Random123 (kat_vectors, philox4x32 10). */
static void philox_gives_the_published_known_answers(void)
{
    uint32_t out[4];
    gb_philox4x32(out, (uint32_t[4]){0, 0, 0, 0}, (uint32_t[2]){0, 0});
    CHECK_EQ(out[0], 0x6627e8d5u);
    CHECK_EQ(out[1], 0xe169c58du);
    CHECK_EQ(out[2], 0xbc57ac4cu);
    CHECK_EQ(out[3], 0x9b00dbd8u);
    gb_philox4x32(out, (uint32_t[4]){0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, (uint32_t[2]){0xa4093822u, 0x299f31d0u});
    CHECK_EQ(out[0], 0xd16cfe09u);
    CHECK_EQ(out[1], 0x94fdccebu);
    CHECK_EQ(out[2], 0x5001e420u);
    CHECK_EQ(out[3], 0x24126ea1u);
}

static void rng_at_depends_on_seed_and_position_only(void)
{
    double a = gb_rng_at(7, 3);
    gb_rng_at(7, 4);
    CHECK(gb_rng_at(7, 3) == a);
    CHECK(gb_rng_at(7, 4) != a);
    CHECK(gb_rng_at(8, 3) != a);
    CHECK(a >= 0 && a < 1);
}

static void below_is_uniform_within_sampling_error(void)
{
    gb_rng rng;
    gb_rng_init(&rng, 1);
    int hits[10] = {0};
    for (int i = 0; i < 100000; i++) hits[gb_rng_below(&rng, 10)]++;
    for (int i = 0; i < 10; i++) CHECK_NEAR(hits[i], 10000, 500);
}

TESTS(TEST(philox_gives_the_published_known_answers), TEST(rng_at_depends_on_seed_and_position_only),
      TEST(below_is_uniform_within_sampling_error))
