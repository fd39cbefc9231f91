/* What one decision of a policy came to when it was only tried: nothing counts it and nothing follows from it. */
#ifndef GB_LUA_TRIAL_H
#define GB_LUA_TRIAL_H

#include <stddef.h>

#include "bindings/lua/lua_fault.h"

typedef struct gb_lua_trial {
    int answer;                      /* of the hook: an engine, 0 (keys are in the snapshot's queue), or GB_POLICY_* */
    uint64_t cpu_ns;                 /* that it took */
    size_t allocated_bytes;          /* garbage and kept data that it made */
    gb_lua_fault_kind fault_kind;    /* of a fault */
    char fault[GB_LUA_FAULT_BYTES];  /* "" without one */
} gb_lua_trial;

#endif
