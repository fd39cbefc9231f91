#include "bindings/lua/lua_log.h"

#include <stdlib.h>

/* The record with number seq has place seq % kept. */
struct gb_lua_log {
    uint64_t n_decisions, n_events, n_faults;
    gb_lua_decision decisions[GB_LUA_DECISIONS_KEPT];
    gb_lua_event events[GB_LUA_EVENTS_KEPT];
    gb_lua_fault faults[GB_LUA_FAULTS_KEPT];
    gb_lua_snapshot *snapshots[GB_LUA_FAULTS_KEPT];
};

const char *gb_lua_event_kind_name(gb_lua_event_kind kind)
{
    static const char *const names[] = {"load", "activate", "builtin", "rollback", "set", "quarantine", "shadow", "refused"};
    _Static_assert(sizeof names / sizeof *names == GB_LUA_EVENT_KINDS, "every kind has a name");
    return names[kind];
}

gb_lua_log *gb_lua_log_new(void) { return calloc(1, sizeof(gb_lua_log)); }

void gb_lua_log_free(gb_lua_log *log)
{
    if (!log) return;
    for (int i = 0; i < GB_LUA_FAULTS_KEPT; i++) gb_lua_snapshot_free(log->snapshots[i]);
    free(log);
}

void gb_lua_log_decision(gb_lua_log *log, const gb_lua_decision *decision)
{
    gb_lua_decision *kept = &log->decisions[++log->n_decisions % GB_LUA_DECISIONS_KEPT];
    *kept = *decision;
    kept->seq = log->n_decisions;
}

void gb_lua_log_event(gb_lua_log *log, const gb_lua_event *event)
{
    gb_lua_event *kept = &log->events[++log->n_events % GB_LUA_EVENTS_KEPT];
    *kept = *event;
    kept->seq = log->n_events;
}

void gb_lua_log_fault(gb_lua_log *log, const gb_lua_fault *fault, gb_lua_snapshot *snapshot)
{
    uint64_t place = ++log->n_faults % GB_LUA_FAULTS_KEPT;
    log->faults[place] = *fault;
    log->faults[place].seq = log->n_faults;
    if (snapshot) snapshot->fault = log->faults[place];
    gb_lua_snapshot_free(log->snapshots[place]);
    log->snapshots[place] = snapshot;
}

/* Moves *after to the oldest number above it that is still kept of 1..n; false when there is none. */
static bool next(uint64_t *after, uint64_t n, uint64_t kept)
{
    uint64_t oldest = n > kept ? n - kept + 1 : 1;
    if (*after >= n) return false;
    *after = *after + 1 > oldest ? *after + 1 : oldest;
    return true;
}

const gb_lua_decision *gb_lua_log_next_decision(const gb_lua_log *log, uint64_t *after)
{
    return next(after, log->n_decisions, GB_LUA_DECISIONS_KEPT) ? &log->decisions[*after % GB_LUA_DECISIONS_KEPT] : NULL;
}

const gb_lua_event *gb_lua_log_next_event(const gb_lua_log *log, uint64_t *after)
{
    return next(after, log->n_events, GB_LUA_EVENTS_KEPT) ? &log->events[*after % GB_LUA_EVENTS_KEPT] : NULL;
}

const gb_lua_fault *gb_lua_log_next_fault(const gb_lua_log *log, uint64_t *after)
{
    return next(after, log->n_faults, GB_LUA_FAULTS_KEPT) ? &log->faults[*after % GB_LUA_FAULTS_KEPT] : NULL;
}

const gb_lua_snapshot *gb_lua_log_snapshot(const gb_lua_log *log, uint64_t fault_seq)
{
    uint64_t after = fault_seq - 1;
    if (fault_seq == 0 || !gb_lua_log_next_fault(log, &after) || after != fault_seq) return NULL;
    return log->snapshots[fault_seq % GB_LUA_FAULTS_KEPT];
}

uint64_t gb_lua_log_decisions(const gb_lua_log *log) { return log->n_decisions; }
uint64_t gb_lua_log_events(const gb_lua_log *log) { return log->n_events; }
uint64_t gb_lua_log_faults(const gb_lua_log *log) { return log->n_faults; }
