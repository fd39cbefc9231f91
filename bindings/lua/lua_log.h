/* What a policy host remembers: its decisions, its changes, its faults. Each is a ring that forgets the oldest; numbers run on, so
   that a gap shows what was lost. One thread, the host's. */
#ifndef GB_LUA_LOG_H
#define GB_LUA_LOG_H

#include "bindings/lua/lua_fault.h"
#include "bindings/lua/lua_snapshot.h"

enum {
    GB_LUA_DECISIONS_KEPT = 4096,
    GB_LUA_EVENTS_KEPT = 256,
    GB_LUA_FAULTS_KEPT = 16,       /* each with its snapshot */
    GB_LUA_WHO_BYTES = 80,
};

/* One decision that a script was asked for. */
typedef struct gb_lua_decision {
    uint64_t seq;                       /* 1, 2 ... without gaps over all scripts of a host */
    gb_time at;
    gb_hook hook;
    uint32_t version;
    uint32_t rows;                      /* engines, or waiting requests */
    int answer;                         /* an engine, 0 for an order, or GB_POLICY_* : then the built-in decided */
    gb_lua_fault_kind fault_kind;       /* of GB_POLICY_FAULT */
    uint64_t inputs;                    /* digest of what the hook saw (lua_digest.h); 0: of a placement hook, there is none */
    uint64_t ns;                        /* that the script took, waiting for a CPU included */
} gb_lua_decision;

typedef enum gb_lua_event_kind {
    GB_LUA_EVENT_LOAD, GB_LUA_EVENT_ACTIVATE, GB_LUA_EVENT_BUILTIN, GB_LUA_EVENT_ROLLBACK, GB_LUA_EVENT_SET, GB_LUA_EVENT_QUARANTINE,
    GB_LUA_EVENT_SHADOW, GB_LUA_EVENT_REFUSED, GB_LUA_EVENT_KINDS
} gb_lua_event_kind;

const char *gb_lua_event_kind_name(gb_lua_event_kind kind);    /* "load", "activate" ... */

/* One change of what decides, or a refused one. */
typedef struct gb_lua_event {
    uint64_t seq;
    gb_time at;
    gb_lua_event_kind kind;
    uint32_t version;                   /* 0 = the C built-in */
    char sha256[GB_SHA256_HEX + 1];     /* of the version, or "" */
    char who[GB_LUA_WHO_BYTES];         /* "start", "unix socket (uid 0, pid 7)", "tcp (127.0.0.1 port 70)", "signal", "directory", "fault" */
    char text[512];                     /* the sentence of the log line */
} gb_lua_event;

typedef struct gb_lua_log gb_lua_log;

gb_lua_log *gb_lua_log_new(void);    /* NULL without memory */
void        gb_lua_log_free(gb_lua_log *log);

/* Each gives the record its number. The log owns the snapshot of a fault, which may be NULL. */
void gb_lua_log_decision(gb_lua_log *log, const gb_lua_decision *decision);
void gb_lua_log_event(gb_lua_log *log, const gb_lua_event *event);
void gb_lua_log_fault(gb_lua_log *log, const gb_lua_fault *fault, gb_lua_snapshot *snapshot);

/* The oldest kept record with a number above *after, which becomes its number; NULL at the end. Borrowed until the next record. */
const gb_lua_decision *gb_lua_log_next_decision(const gb_lua_log *log, uint64_t *after);
const gb_lua_event    *gb_lua_log_next_event(const gb_lua_log *log, uint64_t *after);
const gb_lua_fault    *gb_lua_log_next_fault(const gb_lua_log *log, uint64_t *after);
const gb_lua_snapshot *gb_lua_log_snapshot(const gb_lua_log *log, uint64_t fault_seq);    /* NULL: unknown, or forgotten */

uint64_t gb_lua_log_decisions(const gb_lua_log *log);    /* how many there were: the number of the latest */
uint64_t gb_lua_log_events(const gb_lua_log *log);
uint64_t gb_lua_log_faults(const gb_lua_log *log);

#endif
