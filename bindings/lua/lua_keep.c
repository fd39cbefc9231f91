/* What a policy host remembers over restarts: versions and changes go into the store, and what decided comes back out of it. */
#include <stdio.h>
#include <string.h>

#include "bindings/lua/lua_host_parts.h"
#include "core/base/log.h"

/* ---- into the store ---- */

bool gb_lua_host_records(const gb_lua_host *host, const gb_lua_change *change) { return host->store && change && change->who; }

static gb_lua_record record_of(gb_lua_record_kind kind, const gb_lua_version *v, const char *who)
{
    gb_lua_record record = {.kind = kind};
    snprintf(record.who, sizeof record.who, "%s", who);
    if (!v) return record;
    record.put = v->put;
    record.version = v->number;
    memcpy(record.name, v->name, sizeof record.name);
    memcpy(record.sha256, v->sha256, sizeof record.sha256);
    return record;
}

int gb_lua_host_keep(gb_lua_host *host, gb_lua_version *v, const char *who, gb_error *err)
{
    gb_lua_record record = record_of(GB_LUA_RECORD_PUT, v, who);
    memcpy(record.hooks, v->hooks, sizeof record.hooks);
    snprintf(record.chunk, sizeof record.chunk, "%s", v->chunk);
    int status = gb_lua_store_keep(host->store, v->sha256, v->source, v->bytes, err);
    if (!status) status = gb_lua_store_append(host->store, &record, err);
    if (!status) v->put = record.put;
    return status;
}

/* A version from the options enters the store when it is first spoken of. */
static void append(gb_lua_host *host, const gb_lua_version *v, gb_lua_record *record)
{
    gb_error why = {{0}};
    gb_lua_version *unknown = v && !v->put ? gb_lua_host_find_version(host, v->number) : NULL;
    int status = unknown ? gb_lua_host_keep(host, unknown, record->who, &why) : GB_OK;
    if (v) record->put = v->put;
    if (!status) status = gb_lua_store_append(host->store, record, &why);
    if (!status) return;
    host->unrecorded++;
    gb_log(GB_LOG_WARN, "the change is done, but a restart will not know of it: %s", why.text);
}

void gb_lua_host_record_seats(gb_lua_host *host, gb_lua_event_kind kind, const gb_lua_version *v, const bool hooks[GB_HOOKS], const gb_lua_change *change)
{
    if (!gb_lua_host_records(host, change)) return;
    gb_lua_record_kind as = kind == GB_LUA_EVENT_ROLLBACK ? GB_LUA_RECORD_ROLLBACK : v ? GB_LUA_RECORD_ACTIVATE : GB_LUA_RECORD_BUILTIN;
    gb_lua_record record = record_of(as, v, change->who);
    memcpy(record.hooks, hooks, sizeof record.hooks);
    append(host, v, &record);
}

void gb_lua_host_record_quarantine(gb_lua_host *host, const gb_lua_version *v, gb_hook hook, const gb_lua_change *change)
{
    if (!gb_lua_host_records(host, change)) return;
    gb_lua_record record = record_of(GB_LUA_RECORD_QUARANTINE, v, change->who);
    record.hooks[hook] = true;
    append(host, v, &record);
}

void gb_lua_host_record_set(gb_lua_host *host, const gb_lua_version *v, const gb_lua_setting *setting, const gb_lua_change *change)
{
    if (!gb_lua_host_records(host, change)) return;
    gb_lua_record record = record_of(GB_LUA_RECORD_SET, v, change->who);
    record.setting = *setting;
    append(host, v, &record);
}

/* ---- out of the store ---- */

/* What the records say of one hook; versions by the records that put them. */
typedef struct kept_seat {
    bool known, has_standby;
    uint64_t active, standby;    /* 0: the built-in */
    char active_sha256[GB_SHA256_HEX + 1], standby_sha256[GB_SHA256_HEX + 1];
} kept_seat;

typedef struct kept {
    kept_seat seats[GB_HOOKS];
    uint64_t latest[GB_LUA_RESTORED_MAX];    /* puts; a ring */
    uint64_t n_puts;
} kept;

static void replay_seat(kept_seat *s, const gb_lua_record *record)
{
    bool by_fault = strcmp(record->who, "fault") == 0;
    if (s->known && s->active == record->put) return;
    s->has_standby = s->known && !by_fault;
    s->standby = s->active;
    memcpy(s->standby_sha256, s->active_sha256, sizeof s->standby_sha256);
    s->active = record->put;
    memcpy(s->active_sha256, record->sha256, sizeof s->active_sha256);
    s->known = true;
}

/* Its own fall follows in the next records. */
static void replay_quarantine(kept *k, const gb_lua_record *record)
{
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        kept_seat *s = &k->seats[hook];
        if (s->has_standby && strcmp(s->standby_sha256, record->sha256) == 0) s->has_standby = false;
        if (s->known && strcmp(s->active_sha256, record->sha256) == 0) *s = (kept_seat){.known = true};
    }
}

static void replay(kept *k, const gb_lua_store *store)
{
    gb_lua_record record;
    for (size_t cursor = 0; gb_lua_store_next(store, &cursor, &record);) {
        if (record.kind == GB_LUA_RECORD_PUT) k->latest[k->n_puts++ % GB_LUA_RESTORED_MAX] = record.put;
        if (record.kind == GB_LUA_RECORD_QUARANTINE) replay_quarantine(k, &record);
        if (record.kind != GB_LUA_RECORD_ACTIVATE && record.kind != GB_LUA_RECORD_BUILTIN && record.kind != GB_LUA_RECORD_ROLLBACK) continue;
        for (int hook = 0; hook < GB_HOOKS; hook++)
            if (record.hooks[hook]) replay_seat(&k->seats[hook], &record);
    }
}

static bool is_wanted(const kept *k, uint64_t put)
{
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        const kept_seat *s = &k->seats[hook];
        if (s->active == put || (s->has_standby && s->standby == put)) return true;
    }
    for (int i = 0; i < GB_LUA_RESTORED_MAX; i++)
        if (k->latest[i] == put) return true;
    return false;
}

static gb_lua_version *find_put(const gb_lua_host *host, uint64_t put)
{
    for (uint32_t i = 0; put && i < host->n_versions; i++)
        if (host->versions[i]->put == put) return host->versions[i];
    return NULL;
}

/* A script that the options loaded again is the one that was put. */
static gb_lua_version *find_same(const gb_lua_host *host, const gb_lua_record *put)
{
    for (uint32_t i = host->n_versions; i-- > 0;) {
        gb_lua_version *v = host->versions[i];
        if (!v->put && strcmp(v->sha256, put->sha256) == 0 && strcmp(v->name, put->name) == 0 && memcmp(v->hooks, put->hooks, sizeof v->hooks) == 0) return v;
    }
    return NULL;
}

static void restore_put(gb_lua_host *host, const gb_lua_record *put)
{
    gb_error why = {{0}};
    gb_lua_text text = {0};
    gb_lua_version *v = find_same(host, put);
    if (v) {
        v->put = put->put;
        return;
    }
    int status = gb_lua_store_source(host->store, &text, put->sha256, &why);
    if (!status) status = gb_lua_host_shelve(host, &v, put, &text, &why);
    gb_lua_text_free(&text);
    if (status) gb_log(GB_LOG_WARN, "policy %s (sha256 %s) is not restored: %s; put its file back, or load it again", put->name, put->sha256, why.text);
}

static void restore_setting(gb_lua_host *host, const gb_lua_record *set)
{
    gb_error why = {{0}};
    gb_lua_version *v = find_put(host, set->put);
    gb_lua_setting *setting = v ? gb_lua_host_setting(v, set->setting.name) : NULL;
    if (!setting) return;
    int status = v->policy ? gb_lua_policy_set_param(v->policy, set->setting.name, &set->setting.value, &why) : GB_OK;
    if (status) {
        gb_log(GB_LOG_WARN, "a param is not restored: %s", why.text);
        return;
    }
    *setting = set->setting;
    if (setting == &v->settings[v->n_settings]) v->n_settings++;
}

static void restore_versions(gb_lua_host *host, const kept *k)
{
    gb_lua_record record;
    for (size_t cursor = 0; gb_lua_store_next(host->store, &cursor, &record);) {
        if (record.kind == GB_LUA_RECORD_PUT && is_wanted(k, record.put)) restore_put(host, &record);
        if (record.kind == GB_LUA_RECORD_SET) restore_setting(host, &record);
    }
}

/* With a VM, or the reason why not. */
static bool wake(gb_lua_host *host, gb_lua_version **v, uint64_t put, gb_hook hook)
{
    gb_error why = {{0}};
    *v = find_put(host, put);
    if (!put) return true;
    if (!*v) gb_fail(&why, GB_ENOTFOUND, "its source is not in the store");
    else if (gb_lua_host_is_quarantined(host, *v)) gb_fail(&why, GB_EPOLICY, "policy %s is quarantined", (*v)->name);
    else if (gb_lua_host_wake(host, *v, &why) == GB_OK) return true;
    gb_log(GB_LOG_WARN, "what decided %s before is not restored, so the options decide: %s", gb_hook_name(hook), why.text);
    return false;
}

/* True when the hook has its decider back. */
static bool restore_seat(gb_lua_host *host, gb_hook hook, const kept_seat *s)
{
    gb_lua_version *v, *standby;
    if (!s->known || !wake(host, &v, s->active, hook)) return false;
    if (s->has_standby && wake(host, &standby, s->standby, hook) && host->seats[hook].active != standby) gb_lua_host_reseat(host, hook, standby);
    if (host->seats[hook].active != v) gb_lua_host_reseat(host, hook, v);
    return true;
}

void gb_lua_host_restore(gb_lua_host *host)
{
    kept k = {0};
    bool restored[GB_HOOKS] = {false}, any = false;
    replay(&k, host->store);
    restore_versions(host, &k);
    for (int hook = 0; hook < GB_HOOKS && !gb_lua_store_damaged(host->store); hook++) {
        restored[hook] = restore_seat(host, (gb_hook)hook, &k.seats[hook]);
        any = any || restored[hook];
    }
    if (any) gb_log(GB_LOG_INFO, "policy store %s restores what decided last, whatever the options say:", gb_lua_store_dir(host->store));
    gb_lua_host_tell_moved(host, GB_LUA_EVENT_ACTIVATE, restored, NULL);
    gb_lua_host_retire(host);
    host->generation += gb_lua_store_records(host->store);    /* each change left one at least, so no earlier run was further */
}

int gb_lua_host_open_store(gb_lua_host *host, const char *dir, gb_error *err)
{
    gb_lua_record record;
    int status = gb_lua_store_open(&host->store, dir, GB_LUA_STORE_LOG_MAX, err);
    if (status) return status;
    for (size_t cursor = 0; gb_lua_store_next(host->store, &cursor, &record);) {
        if (record.kind == GB_LUA_RECORD_QUARANTINE) gb_lua_host_remember_quarantine(host, record.sha256);
        if (record.kind == GB_LUA_RECORD_ACTIVATE) gb_lua_host_lift_quarantine(host, record.sha256);    /* it took force */
    }
    gb_log(GB_LOG_INFO, "policy store %s: %llu records", dir, (unsigned long long)gb_lua_store_records(host->store));
    return GB_OK;
}

bool gb_lua_host_store(const gb_lua_host *host, gb_lua_store_info *info)
{
    if (!host->store) return false;
    *info = (gb_lua_store_info){gb_lua_store_dir(host->store), gb_lua_store_records(host->store), host->unrecorded, gb_lua_store_damaged(host->store)};
    return true;
}
