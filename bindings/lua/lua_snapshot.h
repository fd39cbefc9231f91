/* What a hook saw in one decision, so that it can be decided again elsewhere: all columns, the time, the state of
   gimbal.random and the params of the policy. What a script keeps in its own locals is not in it. As text it is one JSON object:

     {"gimbal_snapshot": 1, "hook": "select_engine", "now_ns": 7000000000, "random": ["hex", "hex", "hex", "hex"],
      "params": {"w_wait": 1, ...}, "request": {"prompt_tokens": 12, ...},
      "engines": {"n": 2, "next": 0, "kv_used_ratio": [0.5, 0.1], ...},
      "fault": {"seq": 1, "decision": 812, "kind": "error", "policy": "mine", "version": 3, "sha256": "hex", "message": "mine.lua:3: no"}}

   or with "queue": {"n": 3, "engine": 0, "wait_ns": [...], ...} for order_queue; "fault" says what became of the decision.
   Numbers that JSON lacks are "inf", "-inf" and "nan". A snapshot owns its tables. A column that the text leaves out is 0 in every
   row; one that this gimbal does not know is refused. */
#ifndef GB_LUA_SNAPSHOT_H
#define GB_LUA_SNAPSHOT_H

#include <stdbool.h>

#include "bindings/lua/lua_fault.h"
#include "core/base/rng.h"
#include "core/base/status.h"
#include "core/flow/policy.h"

enum {
    GB_LUA_SNAPSHOT_FORMAT = 1,
    GB_LUA_SNAPSHOT_ROWS_MAX = 4096,             /* of a queue that is taken; the rows beyond are left out */
    GB_LUA_SNAPSHOT_BYTES_MAX = 16 * 1024 * 1024,
    GB_LUA_SNAPSHOT_PARAMS_MAX = 256,          /* of a policy; those beyond are left out */
};

typedef struct gb_lua_snapshot {
    gb_hook hook;
    gb_time now;
    gb_rng rng;
    bool cut;              /* the queue was longer */
    gb_tables tables;      /* those of the hook are filled, the others have one row of zeros */
    gb_lua_setting *params;    /* [n_params] that the policy had; a number that is not finite is not among them */
    uint32_t n_params;
    gb_lua_fault fault;    /* that followed; its message is "" when none did */
    gb_arena arena;
} gb_lua_snapshot;

/* Copies the live tables: request and engines for select_engine, queue for order_queue; the others may be NULL. GB_ENOMEM. */
int gb_lua_snapshot_take(gb_lua_snapshot **out, gb_hook hook, const gb_request_row *request, const gb_engine_table *engines,
                         const gb_queue_table *queue, gb_time now);
void gb_lua_snapshot_free(gb_lua_snapshot *snapshot);

char *gb_lua_snapshot_write(const gb_lua_snapshot *snapshot);    /* malloc'd JSON text; NULL without memory */

/* Reads that text, or the answer of policy_log, of which the newest fault that has a snapshot counts. what names the text in errors.
   GB_EFORMAT or GB_ETOOBIG with the thing that is wrong, GB_ENOMEM. */
int gb_lua_snapshot_read(gb_lua_snapshot **out, const char *what, const char *text, size_t bytes, gb_error *err);

#endif
