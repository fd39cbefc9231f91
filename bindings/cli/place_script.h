/* A Lua policy as a placement policy of gimbal place: asked on each window as a server would ask it, checked and capped like every
   other. One thread. */
#ifndef GB_CLI_PLACE_SCRIPT_H
#define GB_CLI_PLACE_SCRIPT_H

#include "bindings/cli/placer.h"
#include "bindings/lua/lua_desk.h"

typedef struct gb_place_script {
    gb_placer_policy policy;           /* what the placer runs; named like the script */
    gb_lua_desk *desk;
    gb_rearrangement rearrangement;
    char name[256];
    uint32_t asked, nils, faults;      /* windows; after a nil or a fault the built-in search decided */
} gb_place_script;

/* True for what can only be a script: a path. Shipped scripts go by their names, after the built-in policies', or by their file names
   ("eplb.lua") where there is no such file. */
bool gb_place_script_is_path(const char *name);

/* The file name of the next shipped script that places experts, from *at on (0 at first); NULL after the last. Without the configurations
   of the ablation, gimbal_*: they place as gimbal does or not at all. */
const char *gb_place_script_shipped(uint32_t *at);

/* Opens a file or a shipped policy for windows of the placer's shape. Params alpha, beta, gamma, groups and nodes of the script follow
   the placer's. A script named as a policy in C is judged like that one: as published, even if worse. GB_ENOTFOUND, GB_EINVAL when it places no experts, what the desk says. */
int  gb_place_script_open(gb_place_script *script, gb_placer *placer, const char *name, uint32_t sources, gb_error *err);
void gb_place_script_close(gb_place_script *script);    /* one that was never opened too */

#endif
