#include "bindings/lua/lua_digest.h"

#include "tests/check.h"

enum { ENGINES = 5, WAITING = 100 };

static gb_arena arena;
static gb_tables tables;

static void start(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&tables, &arena, ENGINES, WAITING), 0);
    tables.queue.n = WAITING;
}

static uint64_t select_now(void) { return gb_lua_digest_select(&tables.request, &tables.engines); }
static uint64_t order_now(void) { return gb_lua_digest_order(&tables.queue); }

static void the_same_inputs_have_the_same_digest(void)
{
    start();
    uint64_t before = select_now();
    tables.engines.waiting[3] = 7;
    CHECK(select_now() != before);
    tables.engines.waiting[3] = 0;
    CHECK_EQ(select_now(), before);
    gb_arena_deinit(&arena);
}

/* True when the digest differs once *value has changed; it is put back. */
static bool notices(uint64_t (*digest)(void), double *value, double other)
{
    double old = *value;
    uint64_t before = digest();
    *value = other;
    bool differs = digest() != before;
    *value = old;
    return differs;
}

static void every_column_of_every_row_counts(void)
{
    start();
    for (int half = 0; half < 2; half++) {
        double other = half ? 0.125 : 3;
#define SCALAR(name, unit, meaning) CHECK(notices(select_now, &tables.request.name, other));
        GB_REQUEST_COLUMNS(SCALAR)
#define COLUMN(name, unit, meaning) for (int i = 0; i < ENGINES; i++) CHECK(notices(select_now, &tables.engines.name[i], other));
        GB_ENGINE_COLUMNS(COLUMN)
#undef COLUMN
#define COLUMN(name, unit, meaning) for (int i = 0; i < GB_LUA_DIGEST_ROWS; i++) CHECK(notices(order_now, &tables.queue.name[i], other));
#define KEY(name, unit, meaning) CHECK(!notices(order_now, &tables.queue.name[0], other));
        GB_QUEUE_COLUMNS_OF(COLUMN, KEY)
    }
    gb_arena_deinit(&arena);
}

static void values_that_change_places_count(void)
{
    start();
    tables.engines.waiting[0] = 1;
    uint64_t here = select_now();
    tables.engines.waiting[0] = 0, tables.engines.waiting[1] = 1;
    uint64_t there = select_now();
    tables.engines.waiting[1] = 0, tables.engines.running[0] = 1;
    uint64_t elsewhere = select_now();
    CHECK(here != there && here != elsewhere && there != elsewhere);
    tables.engines.next = 2;
    CHECK(select_now() != elsewhere);
    gb_arena_deinit(&arena);
}

static void rows_beyond_the_limit_count_by_their_number_only(void)
{
    start();
    CHECK(!notices(order_now, &tables.queue.prompt_tokens[GB_LUA_DIGEST_ROWS], 5));
    uint64_t before = order_now();
    tables.queue.n--;
    CHECK(order_now() != before);
    gb_arena_deinit(&arena);
}

TESTS(TEST(the_same_inputs_have_the_same_digest), TEST(every_column_of_every_row_counts), TEST(values_that_change_places_count),
      TEST(rows_beyond_the_limit_count_by_their_number_only))
