#include "core/moe/exact.h"

#include "tests/check.h"
#include "tests/moe/fixture.h"

static gb_arena arena;

typedef struct text {
    char bytes[1 << 20];
    size_t n, limit;
} text;

static text written;

static int append(void *self, const char *bytes, size_t n)
{
    text *t = self;
    if (t->n + n > t->limit) return GB_EIO;
    memcpy(t->bytes + t->n, bytes, n);
    t->bytes[t->n += n] = '\0';
    return 0;
}

static gb_layer score(const moe_fixture *f)
{
    gb_layer layer = {f->experts, f->ranks, GB_ARENA_NEW(&arena, double, (size_t)f->ranks * f->experts), GB_ARENA_NEW(&arena, double, f->experts)};
    gb_score_layer(&layer, &f->weights, &f->links, f->flow, f->home, NULL);
    return layer;
}

static uint32_t count(const char *text_, const char *part)
{
    uint32_t n = 0;
    for (const char *at = strstr(text_, part); at; at = strstr(at + 1, part)) n++;
    return n;
}

static void the_program_has_a_row_per_expert_rank_and_tangent_and_short_lines(void)
{
    gb_arena_init(&arena);
    moe_fixture f = moe_fixture_read("t3_2x8x4_quad", &arena);
    gb_layer layer = score(&f);
    written.n = 0, written.limit = sizeof written.bytes - 1;
    CHECK_EQ(gb_exact_write(&layer, &f.weights, 2, append, &written), 0);
    CHECK_EQ(count(written.bytes, " = 1\n"), 8);
    CHECK_EQ(count(written.bytes, " <= 2\n"), 4);
    CHECK_EQ(count(written.bytes, " >= "), 4 * GB_EXACT_TANGENTS);
    CHECK_CONTAINS(written.bytes, "Binaries\n x0_0 x0_1");
    for (const char *line = written.bytes; line; line = strchr(line + 1, '\n')) CHECK(strcspn(line + 1, "\n") < 255);
    gb_arena_deinit(&arena);
}

static void the_max_form_has_one_load_variable(void)
{
    gb_arena_init(&arena);
    moe_fixture f = moe_fixture_read("t4_2x8x4_max", &arena);
    gb_layer layer = score(&f);
    written.n = 0, written.limit = sizeof written.bytes - 1;
    CHECK_EQ(gb_exact_write(&layer, &f.weights, 2, append, &written), 0);
    CHECK_EQ(count(written.bytes, "+ y0 >= "), 4);
    CHECK_EQ(count(written.bytes, "y1"), 0);
    gb_arena_deinit(&arena);
}

static void a_sink_that_is_full_ends_the_writing(void)
{
    gb_arena_init(&arena);
    moe_fixture f = moe_fixture_read("t3_2x8x4_quad", &arena);
    gb_layer layer = score(&f);
    written.n = 0, written.limit = 100;
    CHECK_EQ(gb_exact_write(&layer, &f.weights, 2, append, &written), GB_EIO);
    CHECK(written.n <= 100);
    gb_arena_deinit(&arena);
}

static void an_answer_is_read_and_checked(void)
{
    double cost[8] = {0}, load[4] = {1, 1, 1, 1};
    gb_layer layer = {4, 2, cost, load};
    int32_t x[4];
    bool optimal = false;
    gb_error err = {{0}};
    CHECK_EQ(gb_exact_read("Optimal - objective value 2.5\n      0 x0_0   1   0.5\n      3 x1_1   1   0\n      4 x0_2   0.9999999  2\n"
                           "      7 x1_3   1   0\n      8 y0   0.25  1\n", &layer, 2, x, &optimal, &err), 0);
    CHECK(optimal);
    CHECK(x[0] == 0 && x[1] == 1 && x[2] == 0 && x[3] == 1);
    CHECK_EQ(gb_exact_read("Stopped on time - objective value 2.5\n 0 x0_0 1 0\n 1 x1_1 1 0\n 2 x1_2 1 0\n 3 x1_3 1 0\n", &layer, 2, x, &optimal, &err), GB_EFORMAT);
    CHECK(!optimal);
    CHECK_CONTAINS(err.text, "more than 2 experts on rank 1");
    CHECK_EQ(gb_exact_read("Optimal\n 0 x0_0 1 0\n", &layer, 2, x, &optimal, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "expert 1 nowhere");
    CHECK_EQ(gb_exact_read("Optimal\n 0 x9_0 1 0\n", &layer, 2, x, &optimal, &err), GB_EFORMAT);
    CHECK_EQ(gb_exact_read("Infeasible - objective value 0\n", &layer, 2, x, &optimal, &err), GB_ENOTFOUND);
    CHECK_EQ(gb_exact_read("Stopped on time (no integer solution - continuous used)\n", &layer, 2, x, &optimal, &err), GB_ENOTFOUND);
    CHECK_EQ(gb_exact_read("", &layer, 2, x, &optimal, &err), GB_EFORMAT);
}

TESTS(TEST(the_program_has_a_row_per_expert_rank_and_tangent_and_short_lines), TEST(the_max_form_has_one_load_variable),
      TEST(a_sink_that_is_full_ends_the_writing), TEST(an_answer_is_read_and_checked))
