#include "core/flow/round.h"

#include "tests/check.h"

static void a_round_and_its_result_have_room_for_every_work(void)
{
    gb_arena arena;
    gb_round round;
    gb_result result;
    gb_round_limits limits = {.engines = 2, .ranks = 4, .max_works = 3, .max_tokens = 16, .moe_layers = 2, .experts = 8};
    gb_arena_init(&arena);
    CHECK_EQ(gb_round_init(&round, &arena, &limits), 0);
    CHECK_EQ(gb_result_init(&result, &arena, &limits), 0);
    CHECK_EQ(round.n_engines, 2);
    for (uint32_t e = 0; e < 2; e++)
        for (uint32_t w = 0; w < 3; w++) {
            round.batches[e].works[w].id = 10 * e + w;
            result.sampled[e][w].token = (int32_t)(100 * e + w);
        }
    CHECK_EQ(round.batches[0].works[2].id, 2);
    CHECK_EQ(result.sampled[0][2].token, 2);
    CHECK_EQ(gb_matrix_cells(&result.counts), 32);
    gb_arena_deinit(&arena);
}

static void a_model_without_experts_has_an_empty_matrix(void)
{
    gb_arena arena;
    gb_result result;
    gb_round_limits limits = {.engines = 1, .ranks = 1, .max_works = 1, .max_tokens = 1};
    gb_arena_init(&arena);
    CHECK_EQ(gb_result_init(&result, &arena, &limits), 0);
    CHECK_EQ(gb_matrix_cells(&result.counts), 0);
    gb_arena_deinit(&arena);
}

TESTS(TEST(a_round_and_its_result_have_room_for_every_work), TEST(a_model_without_experts_has_an_empty_matrix))
