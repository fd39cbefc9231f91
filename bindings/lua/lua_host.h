/* The policy host: keeps versions of policy scripts, runs their hooks over the live tables and swaps them between two
   decisions. A script can do nothing but compute: whitelist environment, checked columns, host time and randomness only, in
   32 MiB (64 when it places experts) and within a budget of CPU time (select_engine 2 ms, order_queue 5 ms, a whole placement 250 ms, loading 100 ms).
   Any error in a hook is counted, remembered and answered with GB_POLICY_FAULT, so the core decides by itself.
   One thread (the loop's) owns a host. LuaJIT appears in bindings/lua only. */
#ifndef GB_LUA_HOST_H
#define GB_LUA_HOST_H

#include <stddef.h>

#include "bindings/lua/lua_budgets.h"
#include "bindings/lua/lua_diff.h"
#include "bindings/lua/lua_log.h"
#include "bindings/lua/lua_shadow.h"
#include "bindings/lua/lua_trial.h"
#include "bindings/lua/lua_value.h"
#include "core/moe/rearrange.h"
#include "core/serve/server.h"

enum {
    GB_LUA_SOURCE_MAX = 256 * 1024,    /* bytes of one policy file */
    GB_LUA_VERSIONS_MAX = 256,         /* kept; then the oldest that does not decide is forgotten */
    GB_LUA_WARM_MAX = 4,               /* versions that neither decide nor stand by, but keep their VM ready */
    GB_LUA_QUARANTINE_MAX = 64,        /* digests of failed scripts that are remembered */
    GB_LUA_RESTORED_MAX = 32,          /* scripts of a store that are there again after a restart, besides those that decide or stand by */
};

typedef struct gb_lua_host gb_lua_host;

typedef enum gb_lua_state {
    GB_LUA_READY,      /* has a VM and can decide at once */
    GB_LUA_SHADOW,     /* is asked beside what decides, and compared with it */
    GB_LUA_ACTIVE,     /* decides for at least one hook */
    GB_LUA_STANDBY,    /* decided before the active one, and can be gone back to at once */
    GB_LUA_RETIRED,    /* only its source is kept; activating it builds a VM again */
    GB_LUA_QUARANTINED,    /* failed too often: nothing activates it again but an operator who insists */
} gb_lua_state;

const char *gb_lua_state_name(gb_lua_state state);    /* "ready", "shadow", "active", "standby", "retired", "quarantined" */

typedef struct gb_lua_info {
    uint32_t version;                  /* 1.. in order of loading, unique in the host */
    char name[GB_LUA_NAME_MAX + 1];
    char sha256[65];                   /* of the source, hex */
    bool hooks[GB_HOOKS];              /* which the script has (and the load kept) */
    bool active[GB_HOOKS];             /* for which it decides now */
    bool standby[GB_HOOKS];            /* for which a rollback goes back to it */
    gb_lua_state state;
    bool builtin;                      /* shipped with gimbal */
    uint64_t calls, nils, faults;
    uint64_t faults_by[GB_HOOKS][GB_LUA_FAULT_KINDS];
    char last_fault[1024];             /* "policies/mine.lua:12: why" and a traceback, one frame a line; or "" */
} gb_lua_info;

/* Chooses, once for the process, how scripts that run too long are stopped, and proves it in a child process. gb_lua_host_new does
   it otherwise; call it early, before there is much memory to share with the child. Returns "irprof" (with the JIT on),
   "checkhook" (the same, by a LuaJIT built for it), "interp" (interpreted, slower) or "none" (interpreted, and cannot be stopped). */
const char *gb_lua_host_prepare(void);

/* Loads the shipped policies (lua/policies) from the binary. The server is borrowed for the host's life. */
int  gb_lua_host_new(gb_lua_host **out, gb_server *server, uint64_t seed, gb_error *err);
/* The same with other budgets than the default ones. */
int  gb_lua_host_new_within(gb_lua_host **out, gb_server *server, uint64_t seed, const gb_lua_budgets *budgets, gb_error *err);
void gb_lua_host_free(gb_lua_host *host);    /* sets the server's hooks back to built-in first */

/* What an operator wants to change, and who that is. Zeros: every hook of the version, whatever decides now, without force. */
typedef struct gb_lua_change {
    const char *hook;                       /* NULL = every hook that the version has */
    const uint64_t *expected_generation;    /* refuse when something has changed since; NULL = do not look */
    bool force;                             /* a quarantined script too, and without the old one's state */
    const char *who;                        /* as in gb_lua_event; NULL = "start" */
    gb_time now;                            /* 0 = the latest that the host was told */
} gb_lua_change;

/* Compiles and probes a script; the active policies are untouched. name NULL = the script's own, else the file name of chunk
   without .lua; hook NULL = all hooks of the script; chunk is how errors name it, NULL = "policy". Returns 0 and *version;
   GB_EPOLICY, GB_ETOOBIG, GB_EINVAL with file:line and remedy. */
int gb_lua_host_load(gb_lua_host *host, uint32_t *version, const char *hook, const char *name, const char *chunk,
                     const char *source, size_t bytes, gb_error *err);
/* The same, with the hook and who in change. */
int gb_lua_host_put(gb_lua_host *host, uint32_t *version, const char *name, const char *chunk, const char *source, size_t bytes,
                    const gb_lua_change *change, gb_error *err);
int gb_lua_host_load_file(gb_lua_host *host, uint32_t *version, const char *hook, const char *path, gb_error *err);
/* Every *.lua of a directory in order of file names, all of them or none. GB_EEXIST when two files make policies of one name,
   GB_EINVAL when a link leads out of the directory. */
int gb_lua_host_load_dir(gb_lua_host *host, const char *dir, gb_error *err);

/* Keeps versions and changes in a store (bindings/lua/lua_store.h) from now on, and knows what is quarantined there. Once, before
   anything but the shipped policies is loaded. What gb_lua_store_open says. */
int gb_lua_host_open_store(gb_lua_host *host, const char *dir, gb_error *err);

/* Lets decide again what decided when the store was used last, in place of what the options chose, with the params that were set; what
   stood by stands by. Hooks that nobody changed at run time are left alone. What cannot be restored is told, and left to the options.
   The latest scripts that were put are there again too, without a VM. The generation goes on from where the store's last user was, or
   higher. Once, after the options are applied. */
void gb_lua_host_restore(gb_lua_host *host);

typedef struct gb_lua_store_info {
    const char *dir;
    uint64_t records;       /* in its log */
    uint64_t unrecorded;    /* changes since start that it could not take */
    bool damaged;           /* a record in it cannot be read */
} gb_lua_store_info;

bool gb_lua_host_store(const gb_lua_host *host, gb_lua_store_info *info);    /* false: there is none */

bool gb_lua_is_policy_file(const char *name);    /* *.lua, and not hidden */
/* A file of that directory has changed: its bytes, unless they are those of its newest version, become a new one (*version, else 0),
   which takes over the hooks that a version of its name decides. What is refused is remembered as an event, with file:line, and leaves
   what decides as it was. */
int gb_lua_host_reload(gb_lua_host *host, const char *dir, const char *entry, const gb_lua_change *change, uint32_t *version, gb_error *err);

/* Counts the changes of what decides: activations, rollbacks, quarantines, params. */
uint64_t gb_lua_host_generation(const gb_lua_host *host);

/* Makes a version decide, between two decisions; 0 = the C built-in. The version before stands by. When both scripts know how, the
   state of the old (export) goes to the new (import): if either fails, the old goes on. GB_EVERSION when the generation is not the
   expected one, GB_ENOTFOUND, GB_EINVAL for a hook that it lacks, GB_EPOLICY for a quarantined script or refused state. */
int gb_lua_host_switch(gb_lua_host *host, uint32_t version, const gb_lua_change *change, gb_error *err);
/* Back to what decided before, at once and with the state it had. Again = forward. GB_ENOTFOUND when nothing did, GB_EVERSION. */
int gb_lua_host_rollback(gb_lua_host *host, const gb_lua_change *change, gb_error *err);
/* Changes a param of a version while it runs. GB_ENOTFOUND with the nearest name, GB_EINVAL for another type, GB_EVERSION. */
int gb_lua_host_set(gb_lua_host *host, uint32_t version, const char *param, const gb_lua_value *value, const gb_lua_change *change, gb_error *err);
/* The params of a version in order of names. false: no more, or its VM is retired. */
bool gb_lua_host_param(const gb_lua_host *host, uint32_t version, uint32_t index, char name[GB_LUA_NAME_MAX + 1], gb_lua_value *value);

/* Lets a version see a part (above 0, at most 1) of the live decisions, for the hook of change or both inline hooks that it has: what it
   would have decided is compared, and nothing follows from it. It has a VM and a budget of its own (bindings/lua/lua_shadow.h). Activating it
   ends its time as a shadow. GB_ENOTFOUND, GB_EINVAL, GB_EEXIST while another is in shadow, GB_EPOLICY. */
int gb_lua_host_shadow_start(gb_lua_host *host, uint32_t version, double ratio, const gb_lua_change *change, gb_error *err);
int gb_lua_host_shadow_stop(gb_lua_host *host, const gb_lua_change *change, gb_error *err);    /* GB_ENOTFOUND */
const gb_lua_shadow *gb_lua_host_shadow(const gb_lua_host *host);    /* the latest; NULL when there was none */

/* Records what select_engine and order_queue see from now on, whoever decides (bindings/lua/lua_journal.h). Once. GB_EEXIST, GB_EIO. */
int  gb_lua_host_open_journal(gb_lua_host *host, const char *path, uint64_t most_bytes, gb_error *err);
bool gb_lua_host_journal(const gb_lua_host *host, gb_lua_journal_info *info);    /* false: there is none */

/* A version by itself, with the params that were set; the caller closes it. GB_ENOTFOUND, and what building its VM says. */
int gb_lua_host_desk(const gb_lua_host *host, uint32_t version, gb_lua_desk **out, gb_error *err);
/* Two policies (NULL: the built-in) on the newest decisions of the journal's running file. GB_ENOTFOUND without a journal. */
int gb_lua_host_diff(gb_lua_host *host, gb_lua_diff *diff, gb_lua_desk *const desks[2], uint64_t most, uint64_t budget_ns, gb_error *err);

/* The short forms: by an operator at start. */
int gb_lua_host_activate(gb_lua_host *host, const char *hook, uint32_t version, gb_error *err);
int gb_lua_host_builtin(gb_lua_host *host, const char *hook, gb_error *err);    /* C decides again; NULL = all hooks */
/* By name (newest version of it; "builtin" is the C policy) or path of a .lua file; used for --policy-select and
   --policy-order. GB_ENOTFOUND with the nearest name. */
int gb_lua_host_use(gb_lua_host *host, const char *hook, const char *name_or_path, gb_error *err);

/* Places experts: r is posed, and comes back with the answer in r->rank_of, by the script that decides (placement_cost's costs and the
   search, else score_expert and the greedy), or by the built-in after GB_POLICY_NIL (no script, or no opinion) and GB_POLICY_FAULT. The
   answer is an assignment of experts to ranks, each rank with its share; whether it is worth its moves is gb_decide's to say. */
int gb_lua_host_place(gb_lua_host *host, gb_rearrangement *r, gb_time now);

/* The same for placement: every one of its two hooks that the policy has. Used for --policy-place. GB_EINVAL when it has neither. */
int gb_lua_host_use_placement(gb_lua_host *host, const char *name_or_path, gb_error *err);

/* Decisions, changes and faults so far. A fault of a hook is answered by the built-in; the third of one hook within 10 s, and the first
   that is over its time, put the version into quarantine: its hooks go back to the version before, if that had decided for 60 s, else to
   the built-in. Nothing activates a script of that digest again without force. */
const gb_lua_log *gb_lua_host_log(const gb_lua_host *host);

uint32_t    gb_lua_host_count(const gb_lua_host *host);
int         gb_lua_host_info(const gb_lua_host *host, uint32_t index, gb_lua_info *info);          /* GB_ENOTFOUND */
int         gb_lua_host_find(const gb_lua_host *host, uint32_t version, gb_lua_info *info);        /* GB_ENOTFOUND */
/* The version active for a hook, or 0 when the C built-in decides. */
uint32_t    gb_lua_host_active(const gb_lua_host *host, gb_hook hook);
const char *gb_lua_host_source(const gb_lua_host *host, uint32_t version, size_t *bytes);          /* NULL when unknown */

/* Lets a version decide a snapshot (which gets the keys of an order_queue): for checks, replays and benches. Nothing is counted or
   logged. GB_ENOTFOUND; GB_EINVAL when the version has no such hook; what building its VM says. A fault of the script is no error
   here: trial has it. */
int gb_lua_host_try(gb_lua_host *host, uint32_t version, gb_lua_snapshot *snapshot, gb_lua_trial *trial, gb_error *err);

/* Between decisions, when the loop has time: shows scripts the window that has closed (on_window), and collects garbage. */
void gb_lua_host_idle(gb_lua_host *host, gb_time now);

#endif
