/* The trial of a new script: every hook over tables of many shapes with the server's own number of engines, interpreted first
   and compiled later, before it may decide anything. */
#include <math.h>
#include <string.h>

#include "bindings/lua/lua_policy.h"

enum {
    PROBE_CALLS = 100,      /* of each hook: enough for the JIT to compile it */
    PROBE_QUEUE = 64,
    PROBE_SEED = 20110,
};

static const uint32_t probe_queues[] = {1, 2, 7, PROBE_QUEUE};

/* Quiet engines, busy engines, engines short of memory, engines without a trace, engines that are down. */
static void fill_engines(gb_engine_table *e, gb_rng *rng, unsigned shape)
{
    e->next = (uint32_t)gb_rng_below(rng, e->n);
    for (uint32_t i = 0; i < e->n; i++) {
        double load = shape == 0 ? 0 : gb_rng_uniform(rng);
        e->running_prefill_tokens[i] = floor(load * 8192);
        e->waiting_prefill_tokens[i] = floor(load * 65536);
        e->pending_tokens[i] = floor(load * 2048);
        e->kv_used_ratio[i] = shape == 2 ? 0.85 + 0.15 * load : load;
        e->pending[i] = floor(load * 8);
        e->kv_used_tokens[i] = floor(e->kv_used_ratio[i] * 100000);
        e->kv_free_tokens[i] = floor((1 - e->kv_used_ratio[i]) * 100000);
        e->moe_pressure[i] = 0.5 + load;
        e->running[i] = floor(load * 64);
        e->waiting[i] = floor(load * 256);
        e->oldest_wait_ns[i] = floor(load * 6e9);
        e->preemptions[i] = floor(load * 10);
        e->round_time_ns[i] = floor(load * 5e7);
        e->age_ns[i] = shape == 3 ? 5e9 : floor(load * 1e8);
        e->valid[i] = shape != 3;
        e->healthy[i] = shape != 4 || gb_rng_below(rng, 2);
        e->cached_tokens[i] = gb_rng_below(rng, 2) ? floor(load * 4096) : 0;
    }
}

static void fill_request(gb_request_row *r, gb_rng *rng)
{
    *r = (gb_request_row){
        .prompt_tokens = (double)(1 + gb_rng_below(rng, 8192)),
        .max_tokens = (double)(1 + gb_rng_below(rng, 2048)),
        .priority = (double)gb_rng_below(rng, 3),
        .session = (double)gb_rng_below(rng, 4),
        .deadline_ns = gb_rng_below(rng, 2) ? INFINITY : 1e9,
    };
}

static void fill_queue(gb_queue_table *q, gb_rng *rng)
{
    for (uint32_t i = 0; i < q->n; i++) {
        q->prompt_tokens[i] = (double)(1 + gb_rng_below(rng, 8192));
        q->generated_tokens[i] = gb_rng_below(rng, 4) ? 0 : (double)gb_rng_below(rng, 512);
        q->prefill_tokens[i] = q->prompt_tokens[i] + q->generated_tokens[i];
        q->max_tokens[i] = (double)(1 + gb_rng_below(rng, 2048));
        q->wait_ns[i] = (double)gb_rng_below(rng, gb_seconds(10));
        q->priority[i] = (double)gb_rng_below(rng, 3);
        q->deadline_ns[i] = gb_rng_below(rng, 2) ? INFINITY : 1e9;
        q->preemptions[i] = (double)gb_rng_below(rng, 8);
        q->promoted[i] = q->wait_ns[i] > 5e9;
        q->cached_tokens[i] = gb_rng_below(rng, 2) ? (double)gb_rng_below(rng, (uint64_t)q->prefill_tokens[i]) : 0;
    }
}

/* A script that overlooks engines that are down may be loaded: it is only wrong while one is. */
static bool refuses(gb_lua_policy *policy, int answer)
{
    return answer == GB_POLICY_FAULT && gb_lua_policy_vm(policy)->fault_kind != GB_LUA_FAULT_DOWN;
}

static int probe_select(gb_lua_policy *policy, gb_tables *tables, gb_rng *rng)
{
    enum { SHAPES = 5 };
    for (unsigned call = 0; call < PROBE_CALLS; call++) {
        fill_engines(&tables->engines, rng, call % SHAPES);
        fill_request(&tables->request, rng);
        if (refuses(policy, gb_lua_policy_select(policy, &tables->request, &tables->engines, gb_ms(call)))) return GB_EPOLICY;
    }
    return GB_OK;
}

static int probe_order(gb_lua_policy *policy, gb_tables *tables, gb_rng *rng)
{
    for (unsigned call = 0; call < PROBE_CALLS; call++) {
        tables->queue.n = probe_queues[call % (sizeof probe_queues / sizeof *probe_queues)];
        fill_queue(&tables->queue, rng);
        if (gb_lua_policy_order(policy, &tables->queue, gb_ms(call)) == GB_POLICY_FAULT) return GB_EPOLICY;
    }
    return GB_OK;
}

/* ---- placement ---- */

enum { PLACE_LAYERS = 2, PLACE_EXPERTS = 16, PLACE_CALLS = 40 };    /* of two layers, each expert or layer a call of the hook */

static const struct {
    uint32_t sources, ranks;
} place_shapes[] = {{1, 1}, {1, 4}, {2, 4}, {4, 16}};

typedef struct place_scene {
    gb_solver solver;
    gb_solve_options options;
    gb_rearrangement r;
    gb_links links;
    double *traffic;
    int32_t *home;
} place_scene;

static int open_place_scene(place_scene *s, gb_arena *arena, uint32_t sources, uint32_t ranks)
{
    gb_error err;
    s->options = gb_solve_defaults();
    s->traffic = GB_ARENA_NEW(arena, double, PLACE_LAYERS * sources * PLACE_EXPERTS);
    s->home = GB_ARENA_NEW(arena, int32_t, PLACE_LAYERS * PLACE_EXPERTS);
    if (!s->traffic || !s->home) return GB_ENOMEM;
    int status = gb_solver_init(&s->solver, arena, PLACE_LAYERS, PLACE_EXPERTS, ranks, &err);
    if (!status) status = gb_links_init(&s->links, arena, sources, ranks, &err);
    return status ? status : gb_rearrange_init(&s->r, arena, &s->solver, &s->options, sources, &err);
}

/* Windows with traffic, without any, and with all of it on one expert; homes in circles. */
static void pose_window(place_scene *s, gb_rng *rng, unsigned call)
{
    for (size_t i = 0; i < (size_t)s->r.window.n; i++)
        s->traffic[i] = call % 4 == 1 ? 0 : call % 4 == 2 ? (i % PLACE_EXPERTS == 3) * 1e6 : (double)gb_rng_below(rng, 5000);
    for (uint32_t i = 0; i < PLACE_LAYERS * PLACE_EXPERTS; i++) s->home[i] = (int32_t)((i + call) % s->solver.ranks);
    gb_rearrange_pose(&s->r, s->traffic, &s->links, s->home, call + 1);
}

static int probe_shape(gb_lua_policy *policy, gb_hook hook, gb_rng *rng, uint32_t sources, uint32_t ranks)
{
    gb_arena arena;
    place_scene s;
    gb_arena_init(&arena);
    int status = open_place_scene(&s, &arena, sources, ranks);
    for (unsigned call = 0; call < PLACE_CALLS && !status; call++) {
        pose_window(&s, rng, call);
        if (gb_lua_policy_place(policy, hook, &s.r, gb_ms(call)) == GB_POLICY_FAULT) status = GB_EPOLICY;
    }
    gb_arena_deinit(&arena);
    return status;
}

static int probe_placement(gb_lua_policy *policy, gb_hook hook, gb_rng *rng)
{
    int status = GB_OK;
    if (!gb_lua_policy_has(policy, hook)) return GB_OK;
    for (size_t i = 0; i < sizeof place_shapes / sizeof *place_shapes && !status; i++)
        status = probe_shape(policy, hook, rng, place_shapes[i].sources, place_shapes[i].ranks);
    return status;
}

int gb_lua_policy_probe(gb_lua_policy *policy, uint32_t engines, gb_error *err)
{
    gb_arena arena;
    gb_tables tables;
    gb_rng rng;
    gb_rng_init(&rng, PROBE_SEED);
    gb_arena_init(&arena);
    int status = gb_tables_init(&tables, &arena, engines, PROBE_QUEUE);
    if (!status && gb_lua_policy_has(policy, GB_HOOK_SELECT)) status = probe_select(policy, &tables, &rng);
    if (!status && gb_lua_policy_has(policy, GB_HOOK_ORDER)) status = probe_order(policy, &tables, &rng);
    gb_arena_deinit(&arena);
    if (!status) status = probe_placement(policy, GB_HOOK_SCORE, &rng);
    if (!status) status = probe_placement(policy, GB_HOOK_COST, &rng);
    if (status) gb_fail(err, status, "%s", status == GB_EPOLICY ? gb_lua_policy_vm(policy)->fault : "out of memory");
    return status;
}
