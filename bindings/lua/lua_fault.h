/* What can go wrong in a hook, and what is remembered of it. One thread, the host's. */
#ifndef GB_LUA_FAULT_H
#define GB_LUA_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "bindings/lua/lua_value.h"
#include "core/base/sha256.h"
#include "core/flow/policy.h"

enum { GB_LUA_FAULT_BYTES = 1024 };

typedef enum gb_lua_fault_kind {
    GB_LUA_FAULT_TYPE,      /* the answer is of another type */
    GB_LUA_FAULT_RANGE,     /* there is no such engine */
    GB_LUA_FAULT_DOWN,      /* the engine is down: it can take nothing */
    GB_LUA_FAULT_NAN,       /* an answer or a key that is no finite number, or a key that was left out */
    GB_LUA_FAULT_ERROR,     /* the script raised an error */
    GB_LUA_FAULT_TIME,      /* over its budget of CPU time */
    GB_LUA_FAULT_MEMORY,    /* over its memory */
    GB_LUA_FAULT_STACK,     /* too deep a recursion */
    GB_LUA_FAULT_KINDS
} gb_lua_fault_kind;

const char *gb_lua_fault_kind_name(gb_lua_fault_kind kind);    /* "type", "range", "down", "nan", "error", "time", "memory", "stack" */

/* One failed decision; the built-in policy made it. */
typedef struct gb_lua_fault {
    uint64_t seq;                          /* 1, 2 ... over all versions of a host */
    uint64_t decision;                     /* the number of the decision that failed */
    gb_time at;
    gb_hook hook;
    gb_lua_fault_kind kind;
    uint32_t version;
    char name[GB_LUA_NAME_MAX + 1];
    char sha256[GB_SHA256_HEX + 1];
    char message[GB_LUA_FAULT_BYTES];      /* "policies/mine.lua:12: why" and the calls that led there, one a line */
} gb_lua_fault;

#endif
