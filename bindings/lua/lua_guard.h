/* Stops a script that runs too long, with the JIT on.

   Each thread that runs scripts has a timer of its own CPU time; its signal (GB_LUA_GUARD_SIGNAL, delivered to that thread)
   looks whether one call has used up its budget, and then sets a count hook that raises an error at the next instruction.
   Compiled code checks no hook by itself. LuaJIT emits a check on every line when its profiler's line mode is on (IR_PROF);
   setting the profiler's bit in the state's hook mask makes the code leave for the interpreter, where the hook waits. Waiting for
   a CPU is not counted, so a busy machine stops no script. What C code does cannot be interrupted: such functions are bounded
   or left out of the environment.

   All of it is proven once in a child process before it is trusted. Internal to bindings/lua. */
#ifndef GB_LUA_GUARD_H
#define GB_LUA_GUARD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include <lua.h>

#include "bindings/lua/lua_arena.h"

#define GB_LUA_GUARD_SIGNAL (SIGRTMIN + 4)

typedef enum gb_lua_interrupts {
    GB_LUA_IRPROF,         /* compiled code leaves at profiler checks */
    GB_LUA_CHECKHOOK,      /* this LuaJIT was built to check hooks in compiled code */
    GB_LUA_INTERP,         /* neither worked: scripts are interpreted */
    GB_LUA_NO_INTERRUPTS,  /* the system has no timers of thread time: scripts are interpreted, and trusted to end */
} gb_lua_interrupts;

typedef enum gb_lua_stop { GB_LUA_GOES_ON, GB_LUA_OUT_OF_TIME, GB_LUA_OUT_OF_MEMORY } gb_lua_stop;

typedef struct gb_lua_guard {
    lua_State *L;
    volatile uint8_t *hook_mask;             /* inside the state; NULL when it was not found */
    uint64_t budget_ns;                      /* CPU time of the running call */
    volatile sig_atomic_t stopped;           /* gb_lua_stop: why the running call is being stopped */
} gb_lua_guard;

/* Chooses the way to interrupt, once for the process: forks a child that has to stop an endless loop. Call it early, before
   there is much memory to share with a child. */
gb_lua_interrupts gb_lua_guard_prepare(void);
const char       *gb_lua_interrupts_name(gb_lua_interrupts interrupts);    /* "irprof", "checkhook", "interp", "none" */

/* Makes a fresh state interruptible, before it compiles anything. arena is the state's. */
void gb_lua_guard_init(gb_lua_guard *guard, lua_State *L, const gb_lua_arena *arena, gb_lua_interrupts interrupts);

/* Around every call, on the thread that makes it. end tells why the call was stopped, and lets the state run again. */
void        gb_lua_guard_begin(gb_lua_guard *guard, uint64_t budget_ns);
gb_lua_stop gb_lua_guard_end(gb_lua_guard *guard);

/* Stops the running call at its next instruction; may be called from the allocator. */
void gb_lua_guard_stop(gb_lua_guard *guard, gb_lua_stop why);

#endif
