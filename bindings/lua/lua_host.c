#include "bindings/lua/lua_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/lua/embedded.h"
#include "bindings/lua/lua_file.h"
#include "bindings/lua/lua_host_parts.h"
#include "core/base/assert.h"
#include "core/base/log.h"
#include "core/base/nearest.h"
#include "core/base/sha256.h"

const char *gb_lua_state_name(gb_lua_state state)
{
    static const char *const names[] = {"ready", "shadow", "active", "standby", "retired", "quarantined"};
    return names[state];
}

/* ---- looking up ---- */

gb_lua_version *gb_lua_host_find_version(const gb_lua_host *host, uint32_t number)
{
    for (uint32_t i = 0; i < host->n_versions; i++) {
        if (host->versions[i]->number == number) return host->versions[i];
    }
    return NULL;
}

static gb_lua_version *find_newest(const gb_lua_host *host, const char *name)
{
    for (uint32_t i = host->n_versions; i-- > 0;) {
        if (strcmp(host->versions[i]->name, name) == 0) return host->versions[i];
    }
    return NULL;
}

int gb_lua_host_parse_hook(int *hook, const char *name, gb_error *err)
{
    *hook = GB_HOOKS;
    if (!name) return GB_OK;
    for (*hook = 0; *hook < GB_HOOKS; (*hook)++) {
        if (strcmp(name, gb_hook_name((gb_hook)*hook)) == 0) return GB_OK;
    }
    char all[GB_HOOK_NAMES_BYTES];
    gb_hook_names(all);
    return gb_fail(err, GB_EINVAL, "\"%.64s\" is no hook; hooks are %s", name, all);
}

int gb_lua_host_unknown(uint32_t number, gb_error *err)
{
    return gb_fail(err, GB_ENOTFOUND, "there is no policy version %u; policy_list shows them all", number);
}

static int unknown_name(const gb_lua_host *host, const char *name, gb_error *err)
{
    gb_nearest nearest = gb_nearest_to(name);
    for (uint32_t i = 0; i < host->n_versions; i++) gb_nearest_offer(&nearest, host->versions[i]->name);
    const char *found = gb_nearest_found(&nearest);
    if (found) return gb_fail(err, GB_ENOTFOUND, "there is no policy \"%.64s\"; did you mean %s?", name, found);
    return gb_fail(err, GB_ENOTFOUND, "there is no policy \"%.64s\"; name a loaded policy, builtin, or a .lua file", name);
}

/* ---- versions ---- */

static void free_version(gb_lua_version *v)
{
    if (!v) return;
    gb_lua_policy_free(v->policy);
    free(v->source);
    free(v);
}

/* The seed of gimbal.random depends on the script, not on what was loaded before it. */
static uint64_t seed_of(const gb_lua_host *host, const gb_lua_version *v)
{
    char digits[17];
    snprintf(digits, sizeof digits, "%.16s", v->sha256);
    return gb_mix64(host->seed ^ strtoull(digits, NULL, 16));
}

int gb_lua_host_build(gb_lua_host *host, const gb_lua_version *v, const char *chunk, gb_lua_counts *counts, gb_lua_policy **out, gb_error *err)
{
    const gb_server_options *options = gb_server_options_get(host->server);
    gb_lua_script script = {.chunk = chunk, .source = v->source, .bytes = v->bytes, .engines = options->engines, .shipped = v->builtin};
    gb_lua_vm_options_default(&script.vm);
    script.budgets = host->budgets;
    script.vm.memory_bytes = host->budgets.memory_bytes;
    script.vm.place_memory_bytes = host->budgets.place_memory_bytes;
    script.vm.seed = seed_of(host, v);
    script.vm.stale_after_ns = (double)options->stale_after;
    script.vm.aging_ns = (double)options->aging;
    int status = gb_lua_policy_new(out, &script, counts, err);
    if (status) return status;
    gb_lua_policy_label(*out, v->name, v->number);
    for (uint32_t i = 0; i < v->n_settings && !status; i++)
        status = gb_lua_policy_set_param(*out, v->settings[i].name, &v->settings[i].value, err);
    if (!status) return GB_OK;
    gb_lua_policy_free(*out);
    *out = NULL;
    return status;
}

static int build(gb_lua_host *host, gb_lua_version *v, gb_error *err)
{
    return gb_lua_host_build(host, v, v->chunk, &v->counts, &v->policy, err);
}

static void forget(gb_lua_host *host, uint32_t index)
{
    free_version(host->versions[index]);
    host->n_versions--;
    memmove(host->versions + index, host->versions + index + 1, (host->n_versions - index) * sizeof *host->versions);
}

void gb_lua_host_forget(gb_lua_host *host, gb_lua_version *v)
{
    for (uint32_t i = 0; i < host->n_versions; i++) {
        if (host->versions[i] == v) return forget(host, i);
    }
}

void gb_lua_host_forget_from(gb_lua_host *host, uint32_t first)
{
    while (host->n_versions && host->versions[host->n_versions - 1]->number >= first) forget(host, host->n_versions - 1);
}

static void make_room(gb_lua_host *host)
{
    for (uint32_t i = 0; host->n_versions == GB_LUA_VERSIONS_MAX; i++) {
        gb_lua_version *v = host->versions[i];
        if (!v->builtin && !gb_lua_host_holds(host, v) && !gb_lua_host_shadows(host, v)) forget(host, i);
    }
}

void gb_lua_host_retire(gb_lua_host *host)
{
    for (;;) {
        gb_lua_version *coldest = NULL;
        uint32_t warm = 0;
        for (uint32_t i = 0; i < host->n_versions; i++) {
            gb_lua_version *v = host->versions[i];
            if (!v->policy || gb_lua_host_holds(host, v)) continue;
            warm++;
            if (!coldest || v->last_used < coldest->last_used) coldest = v;
        }
        if (warm <= GB_LUA_WARM_MAX) return;
        gb_lua_policy_free(coldest->policy);
        coldest->policy = NULL;
    }
}

/* ---- names ---- */

static bool is_name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

static bool is_valid_name(const char *name)
{
    size_t n = 0;
    while (is_name_character(name[n])) n++;
    return n > 0 && name[n] == 0 && n <= GB_LUA_NAME_MAX && strcmp(name, "builtin") != 0;
}

static void name_of_file(char *name, size_t capacity, const char *chunk)
{
    const char *slash = strrchr(chunk, '/');
    snprintf(name, capacity, "%s", slash ? slash + 1 : chunk);
    size_t n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, ".lua") == 0) name[n - 4] = 0;
}

static int name_version(gb_lua_version *v, const char *name, gb_error *err)
{
    char chosen[GB_LUA_CHUNK_BYTES];
    const char *own = gb_lua_policy_name(v->policy);
    if (name || *own) snprintf(chosen, sizeof chosen, "%s", name ? name : own);
    else name_of_file(chosen, sizeof chosen, v->chunk);
    if (!is_valid_name(chosen)) {
        return gb_fail(err, GB_EINVAL, "%s: \"%.80s\" is no policy name; use 1 to %d letters, digits, '_', '-' or '.', and not \"builtin\"",
                       v->chunk, chosen, GB_LUA_NAME_MAX);
    }
    memcpy(v->name, chosen, strlen(chosen) + 1);
    return GB_OK;
}

/* ---- loading ---- */

static int keep_hooks(gb_lua_version *v, int only, gb_error *err)
{
    for (int hook = 0; hook < GB_HOOKS; hook++)
        v->hooks[hook] = gb_lua_policy_has(v->policy, (gb_hook)hook) && (only == GB_HOOKS || only == hook);
    if (only == GB_HOOKS || v->hooks[only]) return GB_OK;
    return gb_fail(err, GB_EINVAL, "%s has no %s", v->chunk, gb_hook_name((gb_hook)only));
}

void gb_lua_host_chunk(char out[GB_LUA_CHUNK_BYTES], const char *chunk)
{
    size_t n = strlen(chunk);
    if (n < GB_LUA_CHUNK_BYTES) memcpy(out, chunk, n + 1);
    else snprintf(out, GB_LUA_CHUNK_BYTES, "...%s", chunk + n - (GB_LUA_CHUNK_BYTES - 4));
}

static int new_version(gb_lua_version **out, const char *chunk, const char *source, size_t bytes, gb_error *err)
{
    gb_lua_version *v = calloc(1, sizeof *v);
    if (!v || !(v->source = malloc(bytes + 1))) {
        free_version(v);
        gb_fail(err, GB_ENOMEM, "out of memory for policy %s", chunk);
        return GB_ENOMEM;
    }
    memcpy(v->source, source, bytes);
    v->source[bytes] = 0;
    v->bytes = bytes;
    gb_lua_host_chunk(v->chunk, chunk);
    gb_sha256_hex(v->sha256, source, bytes);
    *out = v;
    return GB_OK;
}

static void add_version(gb_lua_host *host, gb_lua_version *v)
{
    make_room(host);
    v->number = host->next_number++;
    v->last_used = ++host->uses;
    host->versions[host->n_versions++] = v;
    if (v->policy) gb_lua_policy_label(v->policy, v->name, v->number);
    gb_lua_host_retire(host);
}

int gb_lua_host_shelve(gb_lua_host *host, gb_lua_version **out, const gb_lua_record *put, const gb_lua_text *text, gb_error *err)
{
    gb_lua_version *v = NULL;
    int status = new_version(&v, put->chunk, text->data, text->bytes, err);
    if (status) return status;
    memcpy(v->name, put->name, sizeof v->name);
    memcpy(v->hooks, put->hooks, sizeof v->hooks);
    v->put = put->put;
    add_version(host, v);
    *out = v;
    return GB_OK;
}

static int load(gb_lua_host *host, gb_lua_version **out, bool shipped, const char *hook, const char *name, const char *chunk,
                const char *source, size_t bytes, gb_error *err)
{
    int only;
    int status = gb_lua_host_parse_hook(&only, hook, err);
    if (status) return status;
    if (bytes > GB_LUA_SOURCE_MAX)
        return gb_fail(err, GB_ETOOBIG, "%s has %zu bytes; a policy has at most %d", chunk, bytes, GB_LUA_SOURCE_MAX);
    if ((status = gb_lua_text_check(chunk, source, bytes, err))) return status;
    gb_lua_version *v = NULL;
    if ((status = new_version(&v, chunk, source, bytes, err))) return status;
    v->builtin = shipped;
    status = build(host, v, err);
    if (!status) status = keep_hooks(v, only, err);
    if (!status) status = name_version(v, name, err);
    if (status) {
        free_version(v);
        return status;
    }
    add_version(host, v);
    *out = v;
    return GB_OK;
}

int gb_lua_host_put(gb_lua_host *host, uint32_t *number, const char *name, const char *chunk, const char *source, size_t bytes,
                    const gb_lua_change *change, gb_error *err)
{
    gb_lua_version *v = NULL;
    int status = load(host, &v, false, change->hook, name, chunk ? chunk : "policy", source, bytes, err);
    if (!status && gb_lua_host_records(host, change) && (status = gb_lua_host_keep(host, v, change->who, err))) gb_lua_host_forget(host, v);
    if (status) return status;
    *number = v->number;
    gb_lua_host_tell(host, GB_LUA_EVENT_LOAD, v, change, "policy %s v%u is loaded from %s", v->name, v->number, v->chunk);
    return GB_OK;
}

int gb_lua_host_load(gb_lua_host *host, uint32_t *number, const char *hook, const char *name, const char *chunk, const char *source,
                     size_t bytes, gb_error *err)
{
    return gb_lua_host_put(host, number, name, chunk, source, bytes, &(gb_lua_change){.hook = hook}, err);
}

int gb_lua_host_load_file(gb_lua_host *host, uint32_t *number, const char *hook, const char *path, gb_error *err)
{
    gb_lua_text text;
    int status = gb_lua_file_read(&text, path, "a policy", GB_LUA_SOURCE_MAX, err);
    if (status) return status;
    status = gb_lua_host_load(host, number, hook, NULL, path, text.data, text.bytes, err);
    gb_lua_text_free(&text);
    return status;
}

/* ---- deciding ---- */

int gb_lua_host_wake(gb_lua_host *host, gb_lua_version *v, gb_error *err)
{
    v->last_used = ++host->uses;
    return v->policy ? GB_OK : build(host, v, err);
}

int gb_lua_host_lacks(const gb_lua_version *v, int hook, gb_error *err)
{
    return gb_fail(err, GB_EINVAL, "policy %s v%u has no %s", v->name, v->number, gb_hook_name((gb_hook)hook));
}

int gb_lua_host_try(gb_lua_host *host, uint32_t number, gb_lua_snapshot *snapshot, gb_lua_trial *trial, gb_error *err)
{
    gb_lua_version *v = gb_lua_host_find_version(host, number);
    if (!v) return gb_lua_host_unknown(number, err);
    if (!v->hooks[snapshot->hook]) return gb_lua_host_lacks(v, snapshot->hook, err);
    int status = gb_lua_host_wake(host, v, err);
    if (status) return status;
    gb_lua_host_retire(host);
    gb_lua_policy_try(v->policy, snapshot, trial);
    return GB_OK;
}

static bool is_path(const char *text)
{
    size_t n = strlen(text);
    return strchr(text, '/') || (n > 4 && strcmp(text + n - 4, ".lua") == 0);
}

/* A file named for two hooks becomes one version, and one VM. */
static gb_lua_version *find_same(gb_lua_host *host, const char *path, const gb_lua_text *text)
{
    char sha256[GB_SHA256_HEX + 1], chunk[GB_LUA_CHUNK_BYTES];
    gb_lua_host_chunk(chunk, path);
    gb_sha256_hex(sha256, text->data, text->bytes);
    for (uint32_t i = host->n_versions; i-- > 0;) {
        gb_lua_version *v = host->versions[i];
        if (strcmp(v->sha256, sha256) == 0 && strcmp(v->chunk, chunk) == 0) return v;
    }
    return NULL;
}

static int version_of_file(gb_lua_host *host, gb_lua_version **out, const char *path, gb_error *err)
{
    gb_lua_text text;
    int status = gb_lua_file_read(&text, path, "a policy", GB_LUA_SOURCE_MAX, err);
    if (status) return status;
    uint32_t number = 0;
    *out = find_same(host, path, &text);
    if (!*out) status = gb_lua_host_load(host, &number, NULL, NULL, path, text.data, text.bytes, err);
    if (number) *out = gb_lua_host_find_version(host, number);
    gb_lua_text_free(&text);
    return status;
}

static int find_or_load(gb_lua_host *host, gb_lua_version **out, const char *name_or_path, gb_error *err)
{
    *out = find_newest(host, name_or_path);
    if (*out) return GB_OK;
    return is_path(name_or_path) ? version_of_file(host, out, name_or_path, err) : unknown_name(host, name_or_path, err);
}

/* A restart is no pardon for a script in quarantine, but no reason not to start either. */
static int use_version(gb_lua_host *host, const char *hook, const gb_lua_version *v, gb_error *err)
{
    if (!host->store || !gb_lua_host_is_quarantined(host, v)) return gb_lua_host_activate(host, hook, v->number, err);
    gb_lua_host_tell(host, GB_LUA_EVENT_REFUSED, v, NULL, "policy %s v%u is quarantined in %s, so the built-in policy decides in its place; mend it, or "
                     "activate it with force", v->name, v->number, gb_lua_store_dir(host->store));
    return gb_lua_host_builtin(host, hook, err);
}

int gb_lua_host_use(gb_lua_host *host, const char *hook, const char *name_or_path, gb_error *err)
{
    if (strcmp(name_or_path, "builtin") == 0) return gb_lua_host_builtin(host, hook, err);
    gb_lua_version *v = NULL;
    int status = find_or_load(host, &v, name_or_path, err);
    return status ? status : use_version(host, hook, v, err);
}

int gb_lua_host_use_placement(gb_lua_host *host, const char *name_or_path, gb_error *err)
{
    static const gb_hook hooks[] = {GB_HOOK_SCORE, GB_HOOK_COST};
    gb_lua_version *v = NULL;
    bool any = false;
    int status = strcmp(name_or_path, "builtin") == 0 ? GB_OK : find_or_load(host, &v, name_or_path, err);
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks && !status; i++) {
        if (!v) status = gb_lua_host_builtin(host, gb_hook_name(hooks[i]), err);
        else if (v->hooks[hooks[i]]) status = use_version(host, gb_hook_name(hooks[i]), v, err);
        any = any || !v || v->hooks[hooks[i]];
    }
    if (status || any) return status;
    return gb_fail(err, GB_EINVAL, "policy %s v%u places no experts: it has neither score_expert nor placement_cost", v->name, v->number);
}

/* ---- life ---- */

const char *gb_lua_host_prepare(void) { return gb_lua_interrupts_name(gb_lua_guard_prepare()); }

static int load_shipped(gb_lua_host *host, gb_error *err)
{
    for (unsigned i = 0; i < gb_embedded_count; i++) {
        const gb_embedded_file *file = &gb_embedded_files[i];
        if (strncmp(file->name, "lua/policies/", 13) != 0) continue;
        gb_lua_version *v = NULL;
        int status = load(host, &v, true, NULL, NULL, file->name, file->data, file->bytes, err);
        if (status) return status;
    }
    return GB_OK;
}

int gb_lua_host_new(gb_lua_host **out, gb_server *server, uint64_t seed, gb_error *err)
{
    gb_lua_budgets budgets;
    gb_lua_budgets_default(&budgets);
    return gb_lua_host_new_within(out, server, seed, &budgets, err);
}

int gb_lua_host_new_within(gb_lua_host **out, gb_server *server, uint64_t seed, const gb_lua_budgets *budgets, gb_error *err)
{
    gb_lua_host *host = calloc(1, sizeof *host);
    if (!host) return gb_fail(err, GB_ENOMEM, "out of memory for the policy host");
    host->server = server;
    host->budgets = *budgets;
    host->seed = seed;
    host->next_number = 1;
    host->log = gb_lua_log_new();
    for (int hook = 0; hook < GB_HOOKS; hook++) host->seats[hook].since = GB_NEVER;
    if (!host->log) {
        gb_lua_host_free(host);
        return gb_fail(err, GB_ENOMEM, "out of memory for the policy host");
    }
    host->builtin = *gb_server_policy(server, GB_HOOK_SELECT);    /* nobody else has set one */
    gb_lua_host_sit_down(host);
    int status = load_shipped(host, err);
    if (status) {
        gb_lua_host_free(host);
        return status;
    }
    *out = host;
    return GB_OK;
}

void gb_lua_host_free(gb_lua_host *host)
{
    if (!host) return;
    for (int hook = 0; hook < GB_HOOKS; hook++) gb_server_set_policy(host->server, (gb_hook)hook, NULL);
    while (host->n_versions) forget(host, host->n_versions - 1);
    gb_lua_log_free(host->log);
    gb_lua_store_close(host->store);
    gb_lua_journal_close(host->journal);
    gb_lua_watcher_free(host->watcher);
    free(host->window_block);
    free(host);
}

/* ---- looking in ---- */

static gb_lua_state state_of(const gb_lua_host *host, const gb_lua_version *v)
{
    if (gb_lua_host_decides(host, v)) return GB_LUA_ACTIVE;
    if (gb_lua_host_is_quarantined(host, v)) return GB_LUA_QUARANTINED;
    if (gb_lua_host_shadows(host, v)) return GB_LUA_SHADOW;
    if (gb_lua_host_holds(host, v)) return GB_LUA_STANDBY;
    return v->policy ? GB_LUA_READY : GB_LUA_RETIRED;
}

static void fill_info(const gb_lua_host *host, const gb_lua_version *v, gb_lua_info *info)
{
    *info = (gb_lua_info){
        .version = v->number,
        .state = state_of(host, v),
        .builtin = v->builtin,
        .calls = v->counts.calls,
        .nils = v->counts.nils,
        .faults = v->counts.faults,
    };
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        info->hooks[hook] = v->hooks[hook];
        info->active[hook] = host->seats[hook].active == v;
        info->standby[hook] = host->seats[hook].has_standby && host->seats[hook].standby == v;
    }
    memcpy(info->name, v->name, sizeof info->name);
    memcpy(info->sha256, v->sha256, sizeof info->sha256);
    _Static_assert(sizeof info->last_fault == sizeof v->counts.last_fault, "a fault is shown whole");
    memcpy(info->faults_by, v->counts.faults_by, sizeof info->faults_by);
    memcpy(info->last_fault, v->counts.last_fault, sizeof info->last_fault);
}

uint32_t gb_lua_host_count(const gb_lua_host *host) { return host->n_versions; }

int gb_lua_host_info(const gb_lua_host *host, uint32_t index, gb_lua_info *info)
{
    if (index >= host->n_versions) return GB_ENOTFOUND;
    fill_info(host, host->versions[index], info);
    return GB_OK;
}

int gb_lua_host_find(const gb_lua_host *host, uint32_t number, gb_lua_info *info)
{
    const gb_lua_version *v = gb_lua_host_find_version(host, number);
    if (!v) return GB_ENOTFOUND;
    fill_info(host, v, info);
    return GB_OK;
}

uint32_t gb_lua_host_active(const gb_lua_host *host, gb_hook hook)
{
    const gb_lua_version *v = host->seats[hook].active;
    return v ? v->number : 0;
}

const char *gb_lua_host_source(const gb_lua_host *host, uint32_t number, size_t *bytes)
{
    const gb_lua_version *v = gb_lua_host_find_version(host, number);
    if (!v) return NULL;
    if (bytes) *bytes = v->bytes;
    return v->source;
}
