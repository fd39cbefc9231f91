/* Inside a policy script: lua_policy.c makes it and runs its inline hooks, lua_place.c those that place experts. Internal to
   bindings/lua. */
#ifndef GB_LUA_POLICY_PARTS_H
#define GB_LUA_POLICY_PARTS_H

#include "bindings/lua/lua_policy.h"

/* Above the slots of the VM: the compiled file, then the hooks (nil when absent). */
enum {
    GB_LUA_SLOT_FILE = GB_LUA_TOP + 1,
    GB_LUA_SLOT_SELECT,
    GB_LUA_SLOT_ORDER,
    GB_LUA_SLOT_SCORE,
    GB_LUA_SLOT_COST,
    GB_LUA_SLOT_ON_WINDOW,
    GB_LUA_SLOT_EXPORT,
    GB_LUA_SLOT_IMPORT,
    GB_LUA_SLOT_PARAMS,
    GB_LUA_SLOTS = GB_LUA_SLOT_PARAMS,
    GB_LUA_CHECKED = GB_LUA_SLOTS - GB_LUA_SLOT_FILE + 1, /* results of the prelude's check: the name, then the slots after the file's */
};

/* The first calls of a script are compiled by the JIT while they run: up to 2 ms of a call on a busy machine, which it does not need
   again. */
enum { GB_LUA_YOUNG_CALLS = 200, GB_LUA_YOUNG_EXTRA_MS = 4 };

struct gb_lua_policy {
    gb_lua_vm *vm;
    gb_lua_counts *counts;
    gb_lua_budgets budgets;
    const char *chunk;
    char name[256];
    bool hooks[GB_HOOKS];
    uint32_t young[GB_HOOKS];    /* calls left in which an inline hook gets more time */
    gb_time next_warning;
};

typedef struct gb_lua_complaint {
    gb_hook hook;
    gb_lua_fault_kind kind;
    gb_time now;
} gb_lua_complaint;

/* Counts the fault in vm->fault, and logs one a second; GB_POLICY_FAULT. */
int gb_lua_policy_fault(gb_lua_policy *policy, gb_hook hook, gb_time now);
/* The same for an answer that is wrong, with its sentence. */
int gb_lua_policy_bad_answer(gb_lua_policy *policy, gb_lua_complaint about, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Counts it; GB_POLICY_NIL. */
int gb_lua_policy_no_opinion(gb_lua_policy *policy);

#endif
