/* The inside of a server, for the files of this room and its tests. */
#ifndef GB_SERVE_INTERNAL_H
#define GB_SERVE_INTERNAL_H

#include "core/base/heap.h"
#include "core/base/ring.h"
#include "core/base/rng.h"
#include "core/moe/migrate.h"
#include "core/moe/pressure.h"
#include "core/moe/window.h"
#include "core/serve/batch.h"
#include "core/serve/builtin.h"
#include "core/serve/engine.h"
#include "core/serve/outbox.h"
#include "core/serve/pool.h"
#include "core/serve/server.h"

/* A work of the running round whose request has ended meanwhile. */
typedef struct gb_drop {
    uint32_t engine, work;
} gb_drop;

struct gb_server {
    gb_server_options options;
    gb_arena arena;                      /* holds everything below, and this struct */
    gb_pool pool;
    gb_engine *engines;                  /* [options.engines] */
    gb_tables tables;
    gb_outbox outbox;
    gb_heap timers;                      /* by slot: the next deadline or promotion of a live request */
    gb_stream_shared shared;
    gb_batch_limits limits;

    gb_placement placement, forced;      /* forced: scratch for what comes from elsewhere */
    gb_migrate migrate;
    gb_rng migrate_rng;
    uint64_t forced_round;               /* of the latest forced migration */
    uint64_t copied_round;               /* during or before which the latest list of copies was handed out */
    gb_windows windows;
    gb_planner planner;                  /* with moe_layers > 0 */
    gb_pressure pressure;

    gb_pressure_params builtin_params;
    gb_policy builtin, policies[GB_HOOKS];
    gb_hook_stats hook_stats[GB_HOOKS];

    bool draining, in_flight;
    uint64_t round_seq, trace_seq;
    gb_time round_started, now;          /* now: the latest time seen, to catch a clock that goes backwards */
    gb_ring drop_ring;
    gb_drop *drops;                      /* [engines * max_running] */

    uint64_t accepted, refused, finished, failed, aborted, ordered_dispatches, rounds, prompt_tokens, cached_tokens, generated_tokens;
    gb_kv_share probe;                   /* of gb_server_submit: a text that is nobody's yet */
    uint32_t *check_marks;               /* [blocks_per_engine] of gb_server_check */
};

/* Time only moves forward. */
void gb_server_advance(gb_server *server, gb_time now);

/* Ends a live request: it leaves its list, its blocks return now or with the round that holds them, and exactly one event
   says so. The caller completes the event. */
gb_event *gb_server_end(gb_server *server, gb_live *live, gb_event_kind kind, gb_time now);
void      gb_server_fail(gb_server *server, gb_live *live, int status, gb_time now);

/* A request's event with what all kinds have in common. */
gb_event *gb_server_add_event(gb_server *server, const gb_live *live, gb_event_kind kind, gb_time now);

/* Gives the slot back once the request has ended, its end was polled and no round holds it. */
void gb_server_retire(gb_server *server, gb_live *live);

/* migration.c: flips what is ready, between rounds only; begins a forced migration when it is time; says what stalls. */
void gb_server_settle_migration(gb_server *server, gb_time now);
void gb_server_watch_migration(gb_server *server, gb_time now);

/* Asserts every invariant of the room; cost is linear in slots and blocks. */
void gb_server_check(gb_server *server);

#endif
