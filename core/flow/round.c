#include "core/flow/round.h"

#include "core/base/status.h"

int gb_round_init(gb_round *round, gb_arena *arena, const gb_round_limits *limits)
{
    *round = (gb_round){.n_engines = limits->engines};
    round->batches = GB_ARENA_NEW(arena, gb_batch, limits->engines);
    if (!round->batches) return GB_ENOMEM;
    for (uint32_t e = 0; e < limits->engines; e++) {
        round->batches[e].works = GB_ARENA_NEW(arena, gb_work, limits->max_works);
        if (!round->batches[e].works) return GB_ENOMEM;
    }
    return GB_OK;
}

int gb_result_init(gb_result *result, gb_arena *arena, const gb_round_limits *limits)
{
    *result = (gb_result){0};
    result->sampled = GB_ARENA_NEW(arena, gb_sampled *, limits->engines);
    result->rank_tokens = GB_ARENA_NEW(arena, uint64_t, limits->ranks);
    if (!result->sampled || !result->rank_tokens) return GB_ENOMEM;
    for (uint32_t e = 0; e < limits->engines; e++) {
        result->sampled[e] = GB_ARENA_NEW(arena, gb_sampled, limits->max_works);
        if (!result->sampled[e]) return GB_ENOMEM;
    }
    return gb_matrix_init(&result->counts, arena, limits->moe_layers, limits->engines, limits->experts);
}
