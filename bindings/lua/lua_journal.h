/* A journal of what hooks saw: one JSON object a line, so that it can be looked at with anything.

     {"gimbal_journal": 1, "started": "2026-11-30T03:12:08.120Z", "engines": 2, "stale_after_ns": 1e9, "aging_ns": 5e9}
     {"gimbal_snapshot": 1, ..., "decision": {"digest": "16 digits", "inputs": "16 digits", "policy": "mine", "version": 3, "sha256": "hex", "answer": 1, "ns": 812}}

   A decision is a snapshot (lua_snapshot.h) of select_engine or order_queue with what was answered: an engine, 0 for an order, -1 no
   opinion, -2 a fault; version 0 is the built-in. digest is the first 16 digits of the SHA-256 of the snapshot's own text, which
   is the line without "decision", so that a damaged line is found; inputs is what decision_log has (lua_digest.h): the same columns, the
   same digits. Lines of other kinds are
   skipped, so that later ones may be added; a reader refuses a higher gimbal_journal.

   The file has at most half of the journal's size; then it becomes FILE.1, in place of the one before, and a new one begins. Decisions
   are copied when they are made and written when there is time: what does not fit in between is dropped and counted. A kill loses
   those of the last moments and may cut the last line off. Internal to bindings/lua, but for the reader. One thread each. */
#ifndef GB_LUA_JOURNAL_H
#define GB_LUA_JOURNAL_H

#include "bindings/lua/lua_snapshot.h"

enum {
    GB_LUA_JOURNAL_FORMAT = 1,
    GB_LUA_JOURNAL_PENDING = 64,    /* decisions that wait to be written */
};

/* Of the server that is recorded. */
typedef struct gb_lua_journal_header {
    uint32_t engines;
    double stale_after_ns, aging_ns;
} gb_lua_journal_header;

typedef struct gb_lua_decided {
    char digest[17], policy[GB_LUA_NAME_MAX + 1], sha256[GB_SHA256_HEX + 1];
    uint32_t version;
    int answer;
    uint64_t inputs, ns;
} gb_lua_decided;

/* ---- writing ---- */

typedef struct gb_lua_journal gb_lua_journal;

typedef struct gb_lua_journal_info {
    const char *path;
    uint64_t written, dropped, waiting;
    uint64_t lines;         /* decisions in the running file */
    bool failed;            /* it cannot be written any more; the log says why */
} gb_lua_journal_info;

/* An old journal at path becomes path.1. GB_EEXIST when something else is there, GB_EIO. */
int  gb_lua_journal_open(gb_lua_journal **out, const char *path, uint64_t most_bytes, const gb_lua_journal_header *header, gb_error *err);
void gb_lua_journal_close(gb_lua_journal *journal);                 /* writes what waits */
bool gb_lua_journal_has_room(const gb_lua_journal *journal);        /* else the next decision is dropped */
/* Takes the snapshot, which may be NULL for one that could not be made; the digest is filled in. */
void gb_lua_journal_add(gb_lua_journal *journal, gb_lua_snapshot *snapshot, const gb_lua_decided *decided);
void gb_lua_journal_write(gb_lua_journal *journal);
void gb_lua_journal_info_get(const gb_lua_journal *journal, gb_lua_journal_info *info);

/* ---- reading ---- */

typedef struct gb_lua_journal_reader gb_lua_journal_reader;

/* GB_ENOTFOUND, GB_EIO, GB_EFORMAT (no journal), GB_EVERSION (a newer gimbal's). */
int  gb_lua_journal_read(gb_lua_journal_reader **out, const char *path, gb_lua_journal_header *header, gb_error *err);
void gb_lua_journal_read_end(gb_lua_journal_reader *reader);

/* The next decision: *snapshot is the caller's, NULL at the end. GB_EFORMAT with file:line and remedy for a damaged line. */
int  gb_lua_journal_next(gb_lua_journal_reader *reader, gb_lua_snapshot **snapshot, gb_lua_decided *decided, gb_error *err);
bool gb_lua_journal_is_cut(const gb_lua_journal_reader *reader);    /* after the end: the last line was not whole, and is left out */
void gb_lua_journal_skip(gb_lua_journal_reader *reader, uint64_t lines);

#endif
