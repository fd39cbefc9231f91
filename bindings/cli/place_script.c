#include "bindings/cli/place_script.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bindings/lua/embedded.h"

static const char folder[] = "lua/policies/";

bool gb_place_script_is_path(const char *name)
{
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 4 && strcmp(name + n - 4, ".lua") == 0);
}

static void follow_flags(gb_place_script *script, const gb_placer *p)
{
    gb_lua_desk_set_number(script->desk, "alpha", p->options.weights.alpha);
    gb_lua_desk_set_number(script->desk, "beta", p->options.weights.beta);
    gb_lua_desk_set_number(script->desk, "gamma", p->options.weights.gamma);
    gb_lua_desk_set_number(script->desk, "groups", p->groups);
    gb_lua_desk_set_number(script->desk, "nodes", p->nodes);
}

static int decide(gb_placer *p, gb_placement *next, const gb_placement *now, const double *traffic, gb_error *err)
{
    gb_place_script *script = p->script;
    int status = gb_placer_find_homes(p, now, err);
    if (status) gb_placer_assume_homes(p);
    follow_flags(script, p);
    gb_rearrange_pose(&script->rearrangement, traffic, &p->links, p->home, p->estimate.windows);
    int answer = gb_lua_desk_place(script->desk, &script->rearrangement);
    script->asked++;
    script->nils += answer == GB_POLICY_NIL;
    script->faults += answer == GB_POLICY_FAULT;
    if (status && !gb_rearrange_is_by_slots(&script->rearrangement)) return status;
    gb_rearrange_settle(&script->rearrangement, next, now);
    return GB_OK;
}

static bool is_shipped_file(const char *name)
{
    char path[sizeof folder + 256];
    snprintf(path, sizeof path, "%s%s", folder, name);
    return gb_embedded_find(path) && access(name, F_OK) != 0;
}

static int open_desk(gb_place_script *script, const char *name, uint32_t sources, gb_error *err)
{
    if (is_shipped_file(name)) {
        char base[256];
        snprintf(base, sizeof base, "%.*s", (int)strlen(name) - 4, name);
        return gb_lua_desk_open_shipped(&script->desk, base, sources, err);
    }
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
    const gb_placer_policy *twin = NULL;
    const char *own = gb_lua_desk_name(script->desk), *slash = strrchr(name, '/');
    snprintf(script->name, sizeof script->name, "%s", is_shipped_file(name) ? name : *own ? own : slash ? slash + 1 : name);
    script->policy = (gb_placer_policy){.name = script->name, .summary = "a script", .decide = decide};
    if (gb_placer_find(&twin, own, NULL) == GB_OK) script->policy.even_if_worse = twin->even_if_worse;
    placer->script = script;
    status = gb_rearrange_init(&script->rearrangement, placer->arena, &placer->solver, &placer->options, sources, err);
    if (!status) status = gb_rearrange_add_spare(&script->rearrangement, placer->arena, placer->replicas.slots_per_rank - placer->solver.capacity, err);
    if (status) gb_place_script_close(script);
    return status;
}

void gb_place_script_close(gb_place_script *script)
{
    gb_lua_desk_close(script->desk);
    script->desk = NULL;
}

static bool places(const char *path)
{
    gb_lua_desk *desk = NULL;
    gb_error err;
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)(strlen(path) - sizeof folder + 1 - 4), path + sizeof folder - 1);
    if (gb_lua_desk_open_shipped(&desk, name, 1, &err) != GB_OK) return false;
    bool found = gb_lua_desk_has(desk, GB_HOOK_SCORE) || gb_lua_desk_has(desk, GB_HOOK_COST);
    gb_lua_desk_close(desk);
    return found;
}

const char *gb_place_script_shipped(uint32_t *at)
{
    while (*at < gb_embedded_count) {
        const char *path = gb_embedded_files[(*at)++].name;
        if (strncmp(path, folder, sizeof folder - 1) != 0 || strncmp(path + sizeof folder - 1, "gimbal_", 7) == 0) continue;
        if (places(path)) return path + sizeof folder - 1;
    }
    return NULL;
}
