/* A policy script in its VM: compiled, checked, probed, and the functions behind gb_policy that run its hooks. The answer of
   a hook is checked here, so that every fault has its sentence. Internal to bindings/lua; one thread. */
#ifndef GB_LUA_POLICY_H
#define GB_LUA_POLICY_H

#include "bindings/lua/lua_budgets.h"
#include "bindings/lua/lua_carry.h"
#include "bindings/lua/lua_snapshot.h"
#include "bindings/lua/lua_trial.h"
#include "bindings/lua/lua_value.h"
#include "bindings/lua/lua_vm.h"
#include "core/flow/policy.h"
#include "core/moe/rearrange.h"

typedef struct gb_lua_policy gb_lua_policy;

typedef struct gb_lua_script {
    const char *chunk;     /* how errors name the file, at most 255 bytes */
    const char *source;
    size_t bytes;
    uint32_t engines;      /* how many the server has */
    bool shipped;          /* with gimbal: its hooks are not tried again, our tests have done so */
    gb_lua_vm_options vm;
    gb_lua_budgets budgets;
} gb_lua_script;

typedef struct gb_lua_counts {
    uint64_t calls, nils, faults;
    uint64_t faults_by[GB_HOOKS][GB_LUA_FAULT_KINDS];
    char last_fault[GB_LUA_FAULT_BYTES];
} gb_lua_counts;

/* Compiles, runs the file, checks the table it returns, and tries every hook on made-up tables. What the probe leaves behind
   in the script's locals is thrown away with that run of the file: the decisions come from a second, fresh one.
   GB_EPOLICY, GB_ENOMEM. chunk and counts are borrowed and outlive the policy. */
int  gb_lua_policy_new(gb_lua_policy **out, const gb_lua_script *script, gb_lua_counts *counts, gb_error *err);
void gb_lua_policy_free(gb_lua_policy *policy);

const char *gb_lua_policy_name(const gb_lua_policy *policy);    /* the script's own, or "" */
bool        gb_lua_policy_has(const gb_lua_policy *policy, gb_hook hook);
void        gb_lua_policy_label(gb_lua_policy *policy, const char *name, uint32_t version);    /* for its log lines */
void        gb_lua_policy_silence(gb_lua_policy *policy);                                       /* its faults are counted, not logged */
gb_lua_vm  *gb_lua_policy_vm(gb_lua_policy *policy);

/* The hooks of gb_policy; self is the gb_lua_policy. After GB_POLICY_FAULT the VM has the fault. */
int gb_lua_policy_select(void *self, const gb_request_row *request, const gb_engine_table *engines, gb_time now);
int gb_lua_policy_order(void *self, gb_queue_table *queue, gb_time now);

/* Asks score_expert or placement_cost about all layers of a posed problem, as one decision. After 0 the greedy has placed them
   (r->rank_of), or the solver's layers have the costs and the search is up to the caller. After GB_POLICY_NIL and GB_POLICY_FAULT the
   numbers and the answer are of no use: the built-in decides. */
int gb_lua_policy_place(gb_lua_policy *policy, gb_hook hook, gb_rearrangement *r, gb_time now);

/* Decides a snapshot, uncounted and unlogged. */
void gb_lua_policy_try(gb_lua_policy *policy, gb_lua_snapshot *snapshot, gb_lua_trial *trial);

/* The params with a number, string or boolean, in order of names: false after the last. */
bool gb_lua_policy_param(gb_lua_policy *policy, uint32_t index, char name[GB_LUA_NAME_MAX + 1], gb_lua_value *value);
/* Changes a param between two calls. GB_ENOTFOUND with the nearest name; GB_EINVAL for another type, or a number that is not finite. */
int  gb_lua_policy_set_param(gb_lua_policy *policy, const char *name, const gb_lua_value *value, gb_error *err);

/* Writes the params into the snapshot (as far as memory goes), and back: those that the script has and that are of its type are set,
   and the first other one is the error. */
void gb_lua_policy_keep_params(gb_lua_policy *policy, gb_lua_snapshot *snapshot);
int  gb_lua_policy_restore_params(gb_lua_policy *policy, const gb_lua_snapshot *snapshot, gb_error *err);

bool gb_lua_policy_exports(const gb_lua_policy *policy);
bool gb_lua_policy_imports(const gb_lua_policy *policy);
/* The state that the script hands on: *exported = false when it has no export, or export returns nil. GB_EPOLICY with file:line when it
   fails or the state is no plain data, GB_ETOOBIG. */
int gb_lua_policy_export(gb_lua_policy *policy, bool *exported, gb_lua_carry *carry, gb_error *err);
/* Does nothing in a script without import. GB_EPOLICY; then the script may hold half of the state: do not use it. */
int gb_lua_policy_import(gb_lua_policy *policy, const gb_lua_carry *carry, uint32_t from_version, gb_error *err);

bool gb_lua_policy_wants_windows(const gb_lua_policy *policy);
/* Calls on_window. GB_EPOLICY with its fault. */
int  gb_lua_policy_window(gb_lua_policy *policy, const gb_window_table *window, gb_time now, gb_error *err);

/* Runs every hook over made-up tables of many shapes: GB_EPOLICY with the fault of the first that fails. */
int gb_lua_policy_probe(gb_lua_policy *policy, uint32_t engines, gb_error *err);

#endif
