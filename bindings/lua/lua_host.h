/* The policy host: keeps versions of policy scripts, runs their hooks over the live tables and swaps them between two
   decisions. A script can do nothing but compute: whitelist environment, checked columns, host time and randomness only, in
   32 MiB and within a budget of CPU time (select_engine 2 ms, order_queue 5 ms, loading 100 ms).
   Any error in a hook is counted, remembered and answered with GB_POLICY_FAULT, so the core decides by itself.
   One thread (the loop's) owns a host. LuaJIT appears in bindings/lua only. */
#ifndef GB_LUA_HOST_H
#define GB_LUA_HOST_H

#include <stddef.h>

#include "bindings/lua/lua_fault.h"
#include "bindings/lua/lua_snapshot.h"
#include "bindings/lua/lua_trial.h"
#include "core/serve/server.h"

enum {
    GB_LUA_SOURCE_MAX = 256 * 1024,    /* bytes of one policy file */
    GB_LUA_VERSIONS_MAX = 256,         /* kept; then the oldest that does not decide is forgotten */
    GB_LUA_WARM_MAX = 4,               /* versions that do not decide, but keep their VM ready */
};

typedef struct gb_lua_host gb_lua_host;

typedef enum gb_lua_state {
    GB_LUA_READY,      /* has a VM and can decide at once */
    GB_LUA_ACTIVE,     /* decides for at least one hook */
    GB_LUA_RETIRED,    /* only its source is kept; activating it builds a VM again */
} gb_lua_state;

const char *gb_lua_state_name(gb_lua_state state);    /* "ready", "active", "retired" */

typedef struct gb_lua_info {
    uint32_t version;                  /* 1.. in order of loading, unique in the host */
    char name[GB_LUA_NAME_MAX + 1];
    char sha256[65];                   /* of the source, hex */
    bool hooks[GB_HOOKS];              /* which the script has (and the load kept) */
    bool active[GB_HOOKS];             /* for which it decides now */
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
void gb_lua_host_free(gb_lua_host *host);    /* sets the server's hooks back to built-in first */

/* Compiles and probes a script; the active policies are untouched. name NULL = the script's own, else the file name of chunk
   without .lua; hook NULL = all hooks of the script; chunk is how errors name it, NULL = "policy". Returns 0 and *version;
   GB_EPOLICY, GB_ETOOBIG, GB_EINVAL with file:line and remedy. */
int gb_lua_host_load(gb_lua_host *host, uint32_t *version, const char *hook, const char *name, const char *chunk,
                     const char *source, size_t bytes, gb_error *err);
int gb_lua_host_load_file(gb_lua_host *host, uint32_t *version, const char *hook, const char *path, gb_error *err);
/* Every *.lua of a directory in order of file names, all of them or none. GB_EEXIST when two files make policies of one name,
   GB_EINVAL when a link leads out of the directory. */
int gb_lua_host_load_dir(gb_lua_host *host, const char *dir, gb_error *err);

/* Makes a version decide for one hook (NULL = every hook it has), between two decisions. */
int gb_lua_host_activate(gb_lua_host *host, const char *hook, uint32_t version, gb_error *err);
/* By name (newest version of it; "builtin" is the C policy) or path of a .lua file; used for --policy-select and
   --policy-order. GB_ENOTFOUND with the nearest name. */
int gb_lua_host_use(gb_lua_host *host, const char *hook, const char *name_or_path, gb_error *err);
int gb_lua_host_builtin(gb_lua_host *host, const char *hook, gb_error *err);    /* C decides again; NULL = all hooks */

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

/* Between decisions, when the loop is idle: a step of garbage collection. */
void gb_lua_host_idle(gb_lua_host *host);

#endif
