#include "bindings/cli/place_script.h"

#include <stdio.h>
#include <string.h>

bool gb_place_script_is_path(const char *name)
{
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 4 && strcmp(name + n - 4, ".lua") == 0);
}

static void follow_weights(gb_place_script *script, const gb_place_weights *weights)
{
    gb_lua_desk_set_number(script->desk, "alpha", weights->alpha);
    gb_lua_desk_set_number(script->desk, "beta", weights->beta);
    gb_lua_desk_set_number(script->desk, "gamma", weights->gamma);
}

static int decide(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    gb_place_script *script = p->script;
    int status = gb_placer_find_homes(p, now, err);
    if (status) return status;
    follow_weights(script, &p->options.weights);
    gb_rearrange_pose(&script->rearrangement, traffic, &p->links, p->home, p->estimate.windows);
    int answer = gb_lua_desk_place(script->desk, &script->rearrangement);
    script->asked++;
    script->nils += answer == GB_POLICY_NIL;
    script->faults += answer == GB_POLICY_FAULT;
    gb_plan_settle(next, now, script->rearrangement.rank_of);
    return GB_OK;
}

static int open_desk(gb_place_script *script, const char *name, uint32_t sources, gb_error *err)
{
    if (gb_place_script_is_path(name)) return gb_lua_desk_open_file(&script->desk, name, sources, err);
    return gb_lua_desk_open_shipped(&script->desk, name, sources, err);
}

int gb_place_script_open(gb_place_script *script, gb_placer *placer, const char *name, uint32_t sources, gb_error *err)
{
    *script = (gb_place_script){0};
    int status = open_desk(script, name, sources, err);
    if (status) return status;
    if (!gb_lua_desk_has(script->desk, GB_HOOK_SCORE) && !gb_lua_desk_has(script->desk, GB_HOOK_COST)) {
        gb_place_script_close(script);
        return gb_fail(err, GB_EINVAL, "policy %s places no experts: give it score_expert or placement_cost", name);
    }
    const char *own = gb_lua_desk_name(script->desk), *slash = strrchr(name, '/');
    snprintf(script->name, sizeof script->name, "%s", *own ? own : slash ? slash + 1 : name);
    script->policy = (gb_placer_policy){.name = script->name, .summary = "a script", .decide = decide};
    placer->script = script;
    status = gb_rearrange_init(&script->rearrangement, placer->arena, &placer->solver, &placer->options, sources, err);
    if (status) gb_place_script_close(script);
    return status;
}

void gb_place_script_close(gb_place_script *script)
{
    gb_lua_desk_close(script->desk);
    script->desk = NULL;
}
