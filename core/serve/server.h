/* The serving core: requests in, rounds out, results in, events out. Sans-I/O: it reads no clock, socket, file or random
   device; every call that depends on time gets `now` (never going backwards), and everything it wants is polled.

     in    submit, cancel, round_done, copies_done, tick, set_policy, migrate, engine_down, engine_up, drain
     out   poll_round, poll_cancel, poll_copies, poll_event, deadline

   What fails is told: by the status of the call, or by exactly one end event. A round is handed out and comes back; while it is
   in flight its tokens, blocks, sampling and placement stay as they are. So is a list of copies, independently of rounds.

   One thread owns a server. All memory is taken in gb_server_new; every queue has a capacity and an answer when full.
   Every accepted request is in exactly one state and ends exactly once, by DONE, FAILED or ABORTED. */
#ifndef GB_SERVE_SERVER_H
#define GB_SERVE_SERVER_H

#include "core/flow/copy.h"
#include "core/flow/event.h"
#include "core/flow/policy.h"
#include "core/flow/request.h"
#include "core/flow/round.h"
#include "core/model/tokenizer.h"
#include "core/moe/planner.h"

typedef struct gb_server gb_server;

enum {
    GB_SERVER_MODEL_LEN_MAX = 1 << 20,
    GB_SERVER_SEQS_MAX = 4096,
    GB_SERVER_BATCHED_TOKENS_MAX = 1 << 16,
    GB_SERVER_QUEUE_MAX = 1 << 16,
    GB_SERVER_BLOCKS_MAX = INT32_MAX,
    GB_SERVER_END_IDS_MAX = 16,
};

typedef struct gb_server_options {
    uint32_t engines, ranks;             /* ranks is a multiple of engines */
    uint32_t moe_layers, experts;
    uint32_t vocab, max_model_len;
    uint32_t max_num_seqs;               /* running requests per engine, at most max_batched_tokens of them; 64 */
    uint32_t max_batched_tokens;         /* per engine and round; 512 */
    uint32_t queue_capacity;             /* live requests in the whole server; 4096 */
    uint32_t blocks_per_engine;
    uint32_t max_preemptions;            /* then pinned; 8 */
    uint32_t max_bypass;                 /* how often a blocked head may be bypassed; 16 */
    uint32_t window_rounds;              /* rounds in a profiling window; 64 */
    gb_time window_longest;              /* ... which ends earlier, with the next round, when it has lasted so long; GB_NEVER */
    uint32_t spare_slots;                /* of each rank and layer, for copies of experts; 0 */
    gb_planner_options placement;        /* rearrangements; never */
    bool prefix_caching;                 /* requests that begin alike share full KV blocks; true */
    gb_time aging;                       /* promotion threshold; 5 s */
    gb_time stale_after;                 /* trace age that makes selection fall back; 1 s */
    uint64_t seed;                       /* for requests without their own, and for forced migrations */
    bool private_ranks;                  /* each rank has its experts in memory of its own: moving one moves its bytes; false */
    uint64_t expert_bytes;               /* weights of one expert of one layer, when private */
    uint64_t migration_bytes;            /* most bytes in one list of copies; 1 MiB */
    uint32_t force_migration_every;      /* rounds between migrations at random, to try them out; 0 = none */
    gb_time migration_stalled_after;     /* without progress: cancelled, logged and counted; 30 s */
    const gb_tokenizer *tokenizer;       /* may be NULL: events then carry no text; kept by reference */
    uint32_t n_end_ids;
    int32_t end_ids[GB_SERVER_END_IDS_MAX];
} gb_server_options;

void gb_server_options_default(gb_server_options *options);    /* the numbers above; shapes stay 0 */

int  gb_server_new(gb_server **out, const gb_server_options *options, gb_error *err);
void gb_server_free(gb_server *server);

/* --- in --- */

/* Checks, chooses an engine and queues. 0 and *id, or GB_EINVAL, GB_EUNSUPPORTED (stop strings without a tokenizer),
   GB_ECONTEXT (can never fit; the sentence has both figures), GB_EFULL, GB_EDRAINING, GB_EDOWN, GB_EDEADLINE. max_tokens is
   cut to the rest of the context and of the KV cache of one engine. A slot counts as taken until the end was polled. */
int gb_server_submit(gb_server *server, gb_request_id *id, const gb_request *request, gb_time now, gb_error *err);

/* Ends a request with ABORTED. GB_ENOTFOUND when it is not live. Its KV blocks are free at once, or when the round that
   holds them comes back. */
int gb_server_cancel(gb_server *server, gb_request_id id, gb_time now);

/* The answer to the round handed out by poll_round (same seq). status != 0 fails every request of the round; GB_EDOWN also
   takes every engine down (all of them took part in the round). */
void gb_server_round_done(gb_server *server, const gb_result *result, gb_time now);

/* Aging and deadlines. Call at gb_server_deadline; calling early is harmless. */
void gb_server_tick(gb_server *server, gb_time now);

/* Replaces the policy of one hook between two decisions (NULL = built-in). The struct is copied, self is borrowed until the
   next replacement. */
void gb_server_set_policy(gb_server *server, gb_hook hook, const gb_policy *policy);
const gb_policy *gb_server_policy(const gb_server *server, gb_hook hook);    /* the active one; never NULL */
/* Counts a decision of a placement hook, which is made outside of the core: 0, GB_POLICY_NIL or GB_POLICY_FAULT. */
void gb_server_count_placement(gb_server *server, gb_hook hook, int answer);

/* Begins to move experts, until the placement in use is `to` (copied). plan says in which steps, best first; NULL: in any order.
   GB_EFULL while a migration is running, GB_EDRAINING; GB_EINVAL for a placement that is not valid or where the plan does not lead. */
int  gb_server_migrate(gb_server *server, const gb_placement *to, const gb_plan *plan, gb_time now, gb_error *err);
/* The same for slots [layers][ranks * slots_per_rank], expert or -1; every source is served by the nearest copy. */
int  gb_server_set_placement(gb_server *server, const int32_t *expert_of_slot, gb_time now, gb_error *err);
/* Places experts anew when enough windows have closed, and begins the migration; false when it is not time, nothing is worth a move,
   another migration is running, an engine is down or the server drains. Takes up to milliseconds: best called while a round runs. */
bool gb_server_rearrange(gb_server *server, gb_time now);
/* Who places experts in gb_server_rearrange; NULL: the built-in search. */
void gb_server_set_planner(gb_server *server, gb_planner_place *place, void *self);
void gb_server_cancel_migration(gb_server *server);    /* what has moved stays where it is */

/* The answer to the copies handed out by poll_copies; status != 0 ends the migration where it is. */
void gb_server_copies_done(gb_server *server, int status, gb_time now);

/* An engine is lost: its requests end with FAILED(GB_EDOWN), it gets none until it is up again. */
void gb_server_engine_down(gb_server *server, uint32_t engine, gb_time now);
void gb_server_engine_up(gb_server *server, uint32_t engine);

void gb_server_drain(gb_server *server);    /* refuses new requests from now on; a migration ends where it is and none begins */
bool gb_server_draining(const gb_server *server);

/* --- out --- */

gb_time gb_server_deadline(const gb_server *server);    /* when tick wants to be called, or GB_NEVER */

/* Fills the caller's round. False: nothing to do, a round is in flight, or more than one round's tokens wait to be polled. */
bool gb_server_poll_round(gb_server *server, gb_round *round, gb_time now);

/* A work of the running round to drop, because its request has ended; one at a time. */
bool gb_server_poll_cancel(gb_server *server, uint64_t *round_seq, uint32_t *engine, uint32_t *work);

/* Bytes of experts to copy, at any time until copies_done, beside a round or between two; false: none now, or the last list is not
   back (which is left alone then). While rounds run there is one list a round. */
bool gb_server_poll_copies(gb_server *server, gb_copy_list *list);

bool gb_server_poll_event(gb_server *server, gb_event *event);    /* what the event points at lives until the next call */

/* --- looking in; all read-only --- */

typedef enum gb_request_state { GB_WAITING, GB_RUNNING, GB_PREEMPTED } gb_request_state;

typedef struct gb_request_info {
    gb_request_id id;
    uint64_t tag;
    gb_request_state state;
    uint32_t engine, prompt_tokens, computed_tokens, generated_tokens, max_tokens, preemptions;
    int32_t priority;
    gb_time arrived;
} gb_request_info;

typedef struct gb_hook_stats {
    uint64_t calls, nils, faults;    /* faults: GB_POLICY_FAULT, and answers the core refused */
} gb_hook_stats;

typedef struct gb_server_stats {
    uint64_t accepted, refused, finished, failed, aborted, preempted;
    uint64_t prompt_tokens;         /* of requests that have their first token */
    uint64_t cached_tokens;         /* of those, what the prefix cache had */
    uint64_t generated_tokens, rounds;
    uint64_t ordered_dispatches;    /* engines taken in rotation while traces were missing or stale */
    uint64_t windows;               /* closed */
    uint64_t rearrangements, rearrangements_accepted;    /* decisions on the placement of experts; those that began a migration */
    uint64_t migrations_done, migrations_cancelled, migrations_failed, migrations_stalled, experts_moved, bytes_moved;
    uint32_t moves_left;            /* of the running migration */
    uint32_t live, running, waiting;
    uint32_t blocks_used, blocks_cached, blocks_total;    /* held by requests; idle, but their text is known; all */
    gb_hook_stats hooks[GB_HOOKS];
} gb_server_stats;

const gb_tables       *gb_server_tables(const gb_server *server);      /* fixed address for the server's life */
const gb_placement    *gb_server_placement(const gb_server *server);
/* Counts of the running window, as far as they are here (counted of its rounds), or of the latest closed one (window_id 0: none yet), with
   its bounds: first round handed out, last round back. */
const gb_matrix       *gb_server_window(const gb_server *server, bool running, uint64_t *window_id, gb_time *from, gb_time *to);
uint32_t               gb_server_window_rounds(const gb_server *server, bool running, uint32_t *counted);
/* Estimates from all windows, and what was decided on them; NULL for a model without experts. */
const gb_planner      *gb_server_planner(const gb_server *server);
void                   gb_server_stats_get(const gb_server *server, gb_server_stats *stats);
/* Live requests in slot order: starts with *cursor = 0; false at the end. */
bool                   gb_server_request_next(const gb_server *server, uint32_t *cursor, gb_request_info *info);
const gb_server_options *gb_server_options_get(const gb_server *server);
uint64_t               gb_server_trace_seq(const gb_server *server, uint32_t engine);

#endif
