/* A version in shadow: it sees a part of the live decisions after they are made, in a VM of its own, and what it would have decided
   is compared with what was. Nothing follows from it. Results stay until the next one starts. */
#ifndef GB_LUA_SHADOW_H
#define GB_LUA_SHADOW_H

#include "bindings/lua/lua_compare.h"

enum {
    GB_LUA_SHADOW_SHARE = 50,        /* it may use one part in so many of the time: 2 % */
    GB_LUA_SHADOW_SAVED_MS = 20,     /* and saves up so much of what it did not use */
    GB_LUA_SHADOW_FAULTS = 3,        /* then it ends; the first is enough when it is over its time */
};

typedef struct gb_lua_shadow {
    bool running;
    char ended[256];                 /* why, when it does not run */
    uint32_t version;
    char name[GB_LUA_NAME_MAX + 1];
    char sha256[GB_SHA256_HEX + 1];
    bool hooks[GB_HOOKS];            /* that are compared: select_engine and order_queue */
    double ratio;                    /* of the decisions that it is to see */
    uint64_t seen;                   /* decisions since it started */
    uint64_t skipped;                /* sampled, but there was no time for them */
    gb_time started;
    gb_lua_comparison comparisons[GB_HOOKS];    /* sides: what decides, and the candidate */
} gb_lua_shadow;

#endif
