#include "bindings/lua/lua_arena.h"

#include "core/base/rng.h"
#include "core/base/status.h"
#include "tests/check.h"

enum { CAP = 1 << 20 };

static gb_lua_arena arena;

static void *take(size_t bytes) { return gb_lua_arena_allocate(&arena, NULL, 0, bytes); }

static void give(void *piece, size_t bytes) { CHECK(gb_lua_arena_allocate(&arena, piece, bytes, 0) == NULL); }

static void the_cap_is_met_to_the_byte(void)
{
    CHECK_EQ(gb_lua_arena_init(&arena, CAP), 0);
    unsigned pieces = 0;
    while (take(1024)) pieces++;
    CHECK_EQ(pieces, CAP / 1024);
    CHECK_EQ(arena.live_bytes, CAP);
    CHECK_EQ(arena.refused, 1);
    CHECK(take((size_t)1 << 62) == NULL);
    gb_lua_arena_deinit(&arena);
}

static void what_is_given_back_can_be_taken_again(void)
{
    CHECK_EQ(gb_lua_arena_init(&arena, CAP), 0);
    for (int round = 0; round < 1000; round++) {
        void *piece = take(CAP / 2);
        CHECK(piece != NULL);
        give(piece, CAP / 2);
    }
    CHECK_EQ(arena.live_bytes, 0);
    gb_lua_arena_deinit(&arena);
}

static void shrinking_never_fails(void)
{
    CHECK_EQ(gb_lua_arena_init(&arena, CAP), 0);
    char *piece = take(CAP);    /* nothing is left to move to */
    CHECK(piece != NULL);
    piece[0] = 'x';
    char *shrunk = gb_lua_arena_allocate(&arena, piece, CAP, 100);
    CHECK(shrunk != NULL);
    CHECK_EQ(shrunk[0], 'x');
    CHECK(arena.live_bytes < 200);
    give(shrunk, 100);
    CHECK_EQ(arena.live_bytes, 0);
    gb_lua_arena_deinit(&arena);
}

static void the_cap_can_change_within_what_is_mapped(void)
{
    CHECK_EQ(gb_lua_arena_init(&arena, CAP), 0);
    gb_lua_arena_limit(&arena, CAP / 2);
    CHECK(take(CAP / 2 + 1) == NULL);
    char *half = take(CAP / 2);
    CHECK(half != NULL && take(CAP / 2) == NULL);
    gb_lua_arena_limit(&arena, CAP);
    CHECK(take(CAP / 2) != NULL);
    gb_lua_arena_deinit(&arena);
}

static unsigned rings;

static void ring(void *self)
{
    (void)self;
    rings++;
}

static void the_alarm_rings_once(void)
{
    CHECK_EQ(gb_lua_arena_init(&arena, CAP), 0);
    arena.alarm = ring;
    arena.alarm_bytes = CAP / 2;
    rings = 0;
    for (int i = 0; i < CAP / 1024; i++) {
        CHECK_EQ(rings, i >= CAP / 2048);
        CHECK(take(1024) != NULL);
    }
    CHECK_EQ(rings, 1);
    gb_lua_arena_deinit(&arena);
}

/* Pieces hold what was written to them, whatever is taken, resized and given back around them. */
static void pieces_do_not_overlap(void)
{
    enum { PIECES = 64, STEPS = 20000 };
    static struct {
        unsigned char *at;
        size_t bytes;
    } held[PIECES];
    gb_rng rng;
    gb_rng_init(&rng, 11);
    CHECK_EQ(gb_lua_arena_init(&arena, 8 * CAP), 0);
    memset(held, 0, sizeof held);
    for (int step = 0; step < STEPS; step++) {
        unsigned i = (unsigned)gb_rng_below(&rng, PIECES);
        for (size_t b = 0; b < held[i].bytes; b++) {
            if (held[i].at[b] != (unsigned char)(i + 1)) check_fail(__FILE__, __LINE__, "piece %u lost byte %zu at step %d", i, b, step);
        }
        size_t bytes = (size_t)gb_rng_below(&rng, gb_rng_below(&rng, 8) ? 200 : 20000);
        held[i].at = gb_lua_arena_allocate(&arena, held[i].at, held[i].bytes, bytes);
        held[i].bytes = bytes;
        CHECK(bytes == 0 || held[i].at);
        CHECK_EQ((uintptr_t)held[i].at % 16, 0);
        if (bytes) memset(held[i].at, (int)i + 1, bytes);
    }
    for (unsigned i = 0; i < PIECES; i++) {
        if (held[i].bytes) give(held[i].at, held[i].bytes);
    }
    CHECK_EQ(arena.live_bytes, 0);
    gb_lua_arena_deinit(&arena);
}

TESTS(TEST(the_cap_is_met_to_the_byte), TEST(what_is_given_back_can_be_taken_again), TEST(shrinking_never_fails),
      TEST(the_cap_can_change_within_what_is_mapped), TEST(the_alarm_rings_once), TEST(pieces_do_not_overlap))
