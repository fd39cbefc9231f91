#include "bindings/cli/policy_tables.h"

#include <math.h>
#include <stdbool.h>

#include "core/base/time.h"

const char *gb_policy_shape_name(gb_policy_shape shape)
{
    static const char *const names[GB_SHAPES] = {"idle", "busy", "skewed", "stale traces"};
    return names[shape];
}

static double load_of(gb_rng *rng, gb_policy_shape shape, uint32_t engine)
{
    if (shape == GB_SHAPE_IDLE) return 0;
    if (shape == GB_SHAPE_SKEWED) return engine == 0 ? 0.99 : 0.05 * gb_rng_uniform(rng);
    return gb_rng_uniform(rng);
}

static void fill_engine(gb_engine_table *e, uint32_t i, double load, bool stale, gb_rng *rng)
{
    e->running_prefill_tokens[i] = floor(load * 8192);
    e->waiting_prefill_tokens[i] = floor(load * 65536);
    e->pending_tokens[i] = floor(load * 2048);
    e->pending[i] = floor(load * 4);
    e->kv_used_ratio[i] = load;
    e->kv_free_tokens[i] = floor((1 - load) * 100000);
    e->kv_used_tokens[i] = floor(load * 100000);
    e->moe_pressure[i] = 0.5 + load;
    e->running[i] = floor(load * 64);
    e->waiting[i] = floor(load * 256);
    e->oldest_wait_ns[i] = floor(load * 6e9);
    e->preemptions[i] = floor(load * 10);
    e->round_time_ns[i] = floor(load * 5e7);
    e->age_ns[i] = stale ? 5e9 : 1e6;
    e->valid[i] = !stale || gb_rng_below(rng, 2);
    e->healthy[i] = 1;
    e->cached_tokens[i] = load > 0.5 ? floor(load * 4096) : 0;
}

void gb_policy_fill_engines(gb_tables *tables, gb_rng *rng, gb_policy_shape shape)
{
    gb_engine_table *e = &tables->engines;
    e->next = (uint32_t)gb_rng_below(rng, e->n);
    for (uint32_t i = 0; i < e->n; i++) fill_engine(e, i, load_of(rng, shape, i), shape == GB_SHAPE_STALE, rng);
    tables->request = (gb_request_row){.prompt_tokens = (double)(1 + gb_rng_below(rng, 8192)), .max_tokens = 100, .deadline_ns = INFINITY};
}

void gb_policy_fill_queue(gb_queue_table *q, gb_rng *rng)
{
    for (uint32_t i = 0; i < q->n; i++) {
        q->prompt_tokens[i] = q->prefill_tokens[i] = (double)(1 + gb_rng_below(rng, 8192));
        q->max_tokens[i] = (double)(1 + gb_rng_below(rng, 2048));
        q->wait_ns[i] = (double)gb_rng_below(rng, gb_seconds(10));
        q->priority[i] = (double)gb_rng_below(rng, 3);
        q->deadline_ns[i] = INFINITY;
        q->promoted[i] = q->wait_ns[i] > 5e9;
    }
}

int gb_policy_make_scene(gb_policy_scene *scene, gb_arena *arena, gb_rng *rng, const gb_policy_sizes *sizes, gb_error *err)
{
    size_t homes = (size_t)sizes->layers * sizes->experts;
    scene->options = gb_solve_defaults();
    scene->traffic = GB_ARENA_NEW(arena, double, homes * sizes->sources);
    scene->home = GB_ARENA_NEW(arena, int32_t, homes);
    if (!scene->traffic || !scene->home) return gb_fail(err, GB_ENOMEM, "out of memory for made-up windows");
    int status = gb_solver_init(&scene->solver, arena, sizes->layers, sizes->experts, sizes->ranks, err);
    if (!status) status = gb_links_init(&scene->links, arena, sizes->sources, sizes->ranks, err);
    if (!status) status = gb_rearrange_init(&scene->rearrangement, arena, &scene->solver, &scene->options, sizes->sources, err);
    if (status) return status;
    for (size_t i = 0; i < homes * sizes->sources; i++) scene->traffic[i] = floor(1000 * pow(gb_rng_uniform(rng), 4));
    for (size_t i = 0; i < homes; i++) scene->home[i] = (int32_t)(i % sizes->ranks);
    gb_rearrange_pose(&scene->rearrangement, scene->traffic, &scene->links, scene->home, 1);
    return GB_OK;
}
