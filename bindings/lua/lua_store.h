/* A policy store: a directory that keeps every policy that was loaded and every change of what decides, over restarts.

     DIR/sources/SHA256.lua    a script, named by the digest of its text, written whole: to a temporary name, synced, renamed
     DIR/policies.log          "gimbal-policy-log 1", then one record a line, in order, never changed: SUM JSON
     DIR/policies.log.torn     records that a kill or a full disk cut off, set aside when the store was opened again
     DIR/lock                  held by the one process that uses the store

   SUM is the first 16 digits of the SHA-256 of the JSON text. A record is

     {"seq": 7, "at": "2026-11-30T03:12:08.120Z", "kind": "activate", "who": "unix socket", "put": 5, "version": 18, "name": "mine",
      "sha256": "hex", "hooks": ["select_engine"]}

   with "param" and "value" when kind is set, "chunk" (how errors name the file) when it is put. "put" is the seq of the record that
   put the version: its identity over restarts, for version numbers are those of one run. Kinds and keys that this gimbal does not
   know are skipped, so that later ones may be added. Internal to bindings/lua; one thread. */
#ifndef GB_LUA_STORE_H
#define GB_LUA_STORE_H

#include "bindings/lua/lua_fault.h"
#include "bindings/lua/lua_file.h"
#include "bindings/lua/lua_value.h"
#include "core/base/status.h"

enum {
    GB_LUA_STORE_FORMAT = 1,
    GB_LUA_STORE_LINE_MAX = 8 * 1024,            /* bytes of one record */
    GB_LUA_STORE_LOG_MAX = 64 * 1024 * 1024,     /* bytes of the log; then nothing more is recorded */
    GB_LUA_STORE_CHUNK_BYTES = 256,
    GB_LUA_STORE_WHO_BYTES = 80,
};

typedef enum gb_lua_record_kind {
    GB_LUA_RECORD_PUT, GB_LUA_RECORD_ACTIVATE, GB_LUA_RECORD_BUILTIN, GB_LUA_RECORD_ROLLBACK, GB_LUA_RECORD_SET, GB_LUA_RECORD_QUARANTINE,
    GB_LUA_RECORD_KINDS
} gb_lua_record_kind;

typedef struct gb_lua_record {
    uint64_t seq, put;
    gb_lua_record_kind kind;
    uint32_t version;
    char who[GB_LUA_STORE_WHO_BYTES], name[GB_LUA_NAME_MAX + 1], sha256[GB_SHA256_HEX + 1], chunk[GB_LUA_STORE_CHUNK_BYTES];
    bool hooks[GB_HOOKS];      /* put: that the version has; else: that are decided now */
    gb_lua_setting setting;    /* of a set */
} gb_lua_record;

typedef struct gb_lua_store gb_lua_store;

/* Opens or makes the store and takes its lock. log_max: GB_LUA_STORE_LOG_MAX. GB_EIO, GB_EINVAL, GB_EEXIST (another process has
   it), GB_EVERSION (a newer gimbal wrote it), GB_EFORMAT: each names the file and the remedy. Warnings are logged. */
int  gb_lua_store_open(gb_lua_store **out, const char *dir, uint64_t log_max, gb_error *err);
void gb_lua_store_close(gb_lua_store *store);

/* The records that were there when the store was opened; *cursor starts at 0. False at the end. */
bool gb_lua_store_next(const gb_lua_store *store, size_t *cursor, gb_lua_record *record);

/* Keeps a script. Its file is complete and on the disk when this returns 0; a script that is there already costs nothing. */
int gb_lua_store_keep(gb_lua_store *store, const char *sha256, const char *source, size_t bytes, gb_error *err);
/* Reads it back: GB_ENOTFOUND; GB_EFORMAT when the text is another by now. */
int gb_lua_store_source(const gb_lua_store *store, gb_lua_text *text, const char *sha256, gb_error *err);

/* Gives the record its number and the time and writes it; on the disk when this returns 0. GB_EIO; GB_EFULL at log_max. After an
   error the log is as it was. */
int gb_lua_store_append(gb_lua_store *store, gb_lua_record *record, gb_error *err);

const char *gb_lua_store_dir(const gb_lua_store *store);
uint64_t    gb_lua_store_records(const gb_lua_store *store);     /* the newest seq */
bool        gb_lua_store_damaged(const gb_lua_store *store);     /* a record amid the others could not be read: what decided is not known for sure */

#endif
