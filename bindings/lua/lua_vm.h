/* One Lua state for one policy version: its own capped memory, the trusted prelude, a stopped collector and protected calls
   that remember why they failed. A state never moves between threads while it runs. Internal to bindings/lua. */
#ifndef GB_LUA_VM_H
#define GB_LUA_VM_H

#include <stdbool.h>

#include <lua.h>

#include "bindings/lua/lua_arena.h"
#include "bindings/lua/lua_fault.h"
#include "bindings/lua/lua_guard.h"
#include "bindings/lua/lua_view.h"
#include "core/base/rng.h"
#include "core/base/status.h"

enum {
    GB_LUA_MEMORY = 32 * 1024 * 1024,          /* cap of one VM */
    GB_LUA_PLACE_MEMORY = 64 * 1024 * 1024,    /* of one whose script places experts */
    GB_LUA_LOG_BYTES = 512,              /* of one gimbal.log line */
    GB_LUA_LOG_LINES = 10,               /* of one script in one second */
};

/* Stack slots that stay filled for the life of a VM. */
enum { GB_LUA_HANDLER = 1, GB_LUA_REQUEST, GB_LUA_ENGINES, GB_LUA_QUEUE, GB_LUA_WINDOW, GB_LUA_RANKS, GB_LUA_OUT, GB_LUA_ENVIRONMENT,
       GB_LUA_CHECK, GB_LUA_TOP = GB_LUA_CHECK };

typedef struct gb_lua_log_window {
    gb_time start;
    uint32_t lines, dropped;
} gb_lua_log_window;

typedef struct gb_lua_vm {
    lua_State *L;
    gb_lua_arena arena;
    gb_lua_guard guard;
    gb_lua_frame frame;
    gb_rng rng;                            /* behind gimbal.random */
    char label[96];                        /* in log lines: "gimbal v3" */
    const char *running;                   /* the hook in a traceback */
    uint64_t budget_ns;                    /* of its CPU time */
    uint64_t extra_ns;                     /* that the next call gets beside its budget; 0 again after it */
    size_t collect_at;                     /* live bytes that force a full collection between two decisions */
    size_t settled_bytes;                  /* live bytes after the last finished collection */
    gb_lua_log_window log;
    gb_lua_fault_kind fault_kind;          /* of the last failed call */
    char fault[GB_LUA_FAULT_BYTES];        /* its "file:line: why" and the calls that led there */
} gb_lua_vm;

/* What a VM is made for. The settings are options of the server that scripts may have as params of the same name. */
typedef struct gb_lua_vm_options {
    size_t memory_bytes, place_memory_bytes;
    uint64_t seed;
    double stale_after_ns, aging_ns;
} gb_lua_vm_options;

void gb_lua_vm_options_default(gb_lua_vm_options *options);    /* the caps above, seed 0, 1 s, 5 s */

int  gb_lua_vm_new(gb_lua_vm **out, const gb_lua_vm_options *options, gb_error *err);
void gb_lua_vm_free(gb_lua_vm *vm);
void gb_lua_vm_limit(gb_lua_vm *vm, size_t memory_bytes);    /* another cap, at most the larger of the two options */

/* Compiles text (never bytecode) and leaves the function on the stack. GB_EPOLICY with file:line. */
int gb_lua_vm_compile(gb_lua_vm *vm, const char *chunk, const char *source, size_t bytes, gb_error *err);

/* Calls the function below n_args arguments as `running`, for at most budget_ns of CPU time. false: nothing is left of them on
   the stack and vm->fault says why. */
bool gb_lua_vm_call(gb_lua_vm *vm, int n_args, int n_results, const char *running, uint64_t budget_ns);

/* The same in steps, for a decision of many calls: begin, step as often as wanted (after the first false only end), end. The budget
   is that of all steps together. */
void gb_lua_vm_begin(gb_lua_vm *vm, const char *running, uint64_t budget_ns);
bool gb_lua_vm_step(gb_lua_vm *vm, int n_args, int n_results);
void gb_lua_vm_end(gb_lua_vm *vm);

/* After a decision: collects at once when memory is nearly used up. When idle: one step, if there is anything to collect. */
void gb_lua_vm_relieve(gb_lua_vm *vm);
void gb_lua_vm_idle(gb_lua_vm *vm);

#endif
