/* What scripts may use of the thread that they run on. */
#ifndef GB_LUA_BUDGETS_H
#define GB_LUA_BUDGETS_H

#include <stddef.h>

#include "core/base/time.h"
#include "core/flow/policy.h"

/* CPU time of one call. */
typedef struct gb_lua_budgets {
    gb_time hooks[GB_HOOKS];      /* select_engine 2 ms, order_queue 5 ms; a whole placement 250 ms */
    gb_time load;                 /* running the file itself: 100 ms */
    gb_time carry;                /* export, import: 20 ms */
    gb_time window;               /* on_window: 5 ms */
    size_t memory_bytes;          /* of a script: 32 MiB */
    size_t place_memory_bytes;    /* of one that places experts: 64 MiB */
} gb_lua_budgets;

void gb_lua_budgets_default(gb_lua_budgets *budgets);

#endif
