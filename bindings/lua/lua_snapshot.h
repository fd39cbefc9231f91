/* What a hook saw in one decision, so that it can be decided again elsewhere: all columns, the time, the state of
   gimbal.random and the params of the policy. What a script keeps in its own locals is not in it. As text it is one JSON object:

     {"gimbal_snapshot": 1, "hook": "select_engine", "now_ns": 7000000000, "random": ["hex", "hex", "hex", "hex"],
      "params": {"w_wait": 1, ...}, "request": {"prompt_tokens": 12, ...},
      "engines": {"n": 2, "next": 0, "kv_used_ratio": [0.5, 0.1], ...},
      "fault": {"seq": 1, "decision": 812, "kind": "error", "policy": "mine", "version": 3, "sha256": "hex", "message": "mine.lua:3: no"}}

   or with "queue": {"n": 3, "engine": 0, "wait_ns": [...], ...} for order_queue, or for score_expert and placement_cost with

     "window": {"id": 7, "layers": 2, "sources": 2, "experts": 8, "ranks": 4, "spare": 0, "tokens": [...], "home": [...], "link_cost": [...]},
     "weights": {"alpha": 1.0, "beta": 0.0025, "gamma": 1.0, "imbalance": "squares"}

   "fault" says what became of the decision. Numbers that JSON lacks are "inf", "-inf" and "nan". A snapshot owns its tables. A column
   of engines, request or queue that the text leaves out is 0 in every row; one that this gimbal does not know is refused. */
#ifndef GB_LUA_SNAPSHOT_H
#define GB_LUA_SNAPSHOT_H

#include <stdbool.h>

#include "bindings/lua/lua_fault.h"
#include "core/base/rng.h"
#include "core/base/status.h"
#include "core/flow/policy.h"
#include "core/moe/rearrange.h"

enum {
    GB_LUA_SNAPSHOT_FORMAT = 1,
    GB_LUA_SNAPSHOT_ROWS_MAX = 4096,             /* of a queue that is taken; the rows beyond are left out */
    GB_LUA_SNAPSHOT_CELLS_MAX = 512 * 1024,      /* tokens of a window; a larger one has no snapshot */
    GB_LUA_SNAPSHOT_BYTES_MAX = 16 * 1024 * 1024,
    GB_LUA_SNAPSHOT_PARAMS_MAX = 256,          /* of a policy; those beyond are left out */
};

typedef struct gb_lua_snapshot {
    gb_hook hook;
    gb_time now;
    gb_rng rng;
    bool cut;              /* the queue was longer */
    gb_tables tables;      /* those of the hook are filled, the others have one row of zeros */
    gb_rearrangement rearrangement;    /* posed, when the hook places experts */
    gb_solver solver;                  /* of the rearrangement */
    gb_solve_options options;
    gb_lua_setting *params;    /* [n_params] that the policy had; a number that is not finite is not among them */
    uint32_t n_params;
    gb_lua_fault fault;    /* that followed; its message is "" when none did */
    gb_arena arena;
} gb_lua_snapshot;

/* Copies the live tables: request and engines for select_engine, queue for order_queue; the others may be NULL. GB_ENOMEM. */
int gb_lua_snapshot_take(gb_lua_snapshot **out, gb_hook hook, const gb_request_row *request, const gb_engine_table *engines,
                         const gb_queue_table *queue, gb_time now);
/* The same for score_expert and placement_cost. GB_ENOMEM, GB_ETOOBIG. */
int gb_lua_snapshot_take_placement(gb_lua_snapshot **out, gb_hook hook, const gb_rearrangement *r, gb_time now);
void gb_lua_snapshot_free(gb_lua_snapshot *snapshot);

char *gb_lua_snapshot_write(const gb_lua_snapshot *snapshot);    /* malloc'd JSON text; NULL without memory */

/* Reads that text, or the answer of policy_log, of which the newest fault that has a snapshot counts. what names the text in errors.
   GB_EFORMAT or GB_ETOOBIG with the thing that is wrong, GB_ENOMEM. */
int gb_lua_snapshot_read(gb_lua_snapshot **out, const char *what, const char *text, size_t bytes, gb_error *err);

#endif
