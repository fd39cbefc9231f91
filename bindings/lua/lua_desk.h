/* A policy script on the desk: by itself, without a server, for checks and benches. Checked and probed as the server would, with a
   number of engines; then its hooks decide tables of the caller. One thread. */
#ifndef GB_LUA_DESK_H
#define GB_LUA_DESK_H

#include "bindings/lua/lua_budgets.h"
#include "bindings/lua/lua_snapshot.h"
#include "bindings/lua/lua_trial.h"

typedef struct gb_lua_desk gb_lua_desk;

/* GB_EPOLICY with file:line and remedy, what reading the file says, GB_ENOMEM. chunk is how errors name a text. Budgets are a server's
   defaults where none are given. */
int  gb_lua_desk_open(gb_lua_desk **out, const char *chunk, const char *text, size_t bytes, uint32_t engines, const gb_lua_budgets *budgets, gb_error *err);
int  gb_lua_desk_open_file(gb_lua_desk **out, const char *path, uint32_t engines, gb_error *err);
/* A policy that is shipped in the binary: "gimbal". GB_ENOTFOUND. */
int  gb_lua_desk_open_shipped(gb_lua_desk **out, const char *name, uint32_t engines, gb_error *err);
void gb_lua_desk_close(gb_lua_desk *desk);

/* As a server calls it; a hook that the script lacks is NULL. Borrowed until close. */
const gb_policy *gb_lua_desk_policy(const gb_lua_desk *desk);
bool             gb_lua_desk_has(const gb_lua_desk *desk, gb_hook hook);
/* Places experts as gb_lua_host_place does: r is posed and comes back answered. GB_POLICY_NIL and GB_POLICY_FAULT: by the built-in. */
int              gb_lua_desk_place(gb_lua_desk *desk, gb_rearrangement *r);
const char      *gb_lua_desk_name(const gb_lua_desk *desk);    /* the script's own, or "" */
const char      *gb_lua_desk_fault(const gb_lua_desk *desk);   /* of the last call that failed: "file:line: why" and the calls that led there */

const char      *gb_lua_desk_sha256(const gb_lua_desk *desk);  /* of the source, hex */

/* Gives the script the params of the snapshot. GB_ENOTFOUND, GB_EINVAL for the first that it lacks or that is of another type; the
   others are set. */
int gb_lua_desk_restore(gb_lua_desk *desk, const gb_lua_snapshot *snapshot, gb_error *err);
int gb_lua_desk_set(gb_lua_desk *desk, const gb_lua_setting *setting, gb_error *err);    /* GB_ENOTFOUND, GB_EINVAL */
/* False when the script has no such param, or none that is a number. */
bool gb_lua_desk_set_number(gb_lua_desk *desk, const char *param, double number);
/* Decides a snapshot. A fault is no error: trial has it. The snapshot's hook is one that the script has. */
void gb_lua_desk_try(gb_lua_desk *desk, gb_lua_snapshot *snapshot, gb_lua_trial *trial);

/* Shows the script a window (on_window), if it wants any. GB_EPOLICY with its fault. */
bool gb_lua_desk_wants_windows(const gb_lua_desk *desk);
int  gb_lua_desk_window(gb_lua_desk *desk, const gb_window_table *window, gb_time now, gb_error *err);

/* Hands the state of one script to another, as an activation does: export, then import. GB_EPOLICY with the fault, GB_ETOOBIG. */
typedef struct gb_lua_handover {
    bool exports, imports;          /* the scripts have the functions */
    bool exported;                  /* there was a state */
    size_t bytes;                   /* of it */
    uint64_t export_ns, import_ns;  /* CPU time */
} gb_lua_handover;

int gb_lua_desk_hand_over(gb_lua_desk *from, gb_lua_desk *to, gb_lua_handover *handover, gb_error *err);

#endif
