/* The directory of policies: all of it at start, one file of it when that changes. */
#include "bindings/lua/lua_host.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bindings/lua/lua_file.h"
#include "bindings/lua/lua_host_parts.h"

bool gb_lua_is_policy_file(const char *name)
{
    size_t n = strlen(name);
    return name[0] != '.' && n > 4 && strcmp(name + n - 4, ".lua") == 0;
}

static int check_stays_inside(const char *real_dir, const char *path, gb_error *err)
{
    char real[PATH_MAX];
    if (!realpath(path, real)) return gb_fail(err, GB_EIO, "%s cannot be opened: %s", path, strerror(errno));
    size_t n = strlen(real_dir);
    if (strncmp(real, real_dir, n) == 0 && (real[n] == '/' || strcmp(real_dir, "/") == 0)) return GB_OK;
    return gb_fail(err, GB_EINVAL, "%s is a link out of the policy directory, to %s; copy the file into it", path, real);
}

static int path_of(char path[PATH_MAX], const char *dir, const char *entry, gb_error *err)
{
    if (snprintf(path, PATH_MAX, "%s/%s", dir, entry) < PATH_MAX) return GB_OK;
    return gb_fail(err, GB_EINVAL, "%s/%s: the path is too long", dir, entry);
}

/* ---- at start ---- */

static int load_entry(gb_lua_host *host, const char *dir, const char *real_dir, const char *entry, uint32_t first, gb_error *err)
{
    char path[PATH_MAX];
    uint32_t number;
    int status = path_of(path, dir, entry, err);
    if (!status) status = check_stays_inside(real_dir, path, err);
    if (!status) status = gb_lua_host_load_file(host, &number, NULL, path, err);
    if (status) return status;
    const gb_lua_version *v = gb_lua_host_find_version(host, number);
    for (uint32_t i = 0; i < host->n_versions; i++) {
        const gb_lua_version *other = host->versions[i];
        if (other->number >= first && other != v && strcmp(other->name, v->name) == 0)
            return gb_fail(err, GB_EEXIST, "%s and %s both make a policy named %s; rename one", other->chunk, path, v->name);
    }
    return GB_OK;
}

static int is_policy_entry(const struct dirent *entry) { return gb_lua_is_policy_file(entry->d_name); }

int gb_lua_host_load_dir(gb_lua_host *host, const char *dir, gb_error *err)
{
    char real_dir[PATH_MAX];
    struct dirent **entries = NULL;
    int n = realpath(dir, real_dir) ? scandir(dir, &entries, is_policy_entry, alphasort) : -1;
    if (n < 0) {
        return gb_fail(err, errno == ENOENT ? GB_ENOTFOUND : GB_EIO, "the policy directory %s cannot be read: %s", dir, strerror(errno));
    }
    uint32_t first = host->next_number;
    int status = GB_OK;
    for (int i = 0; i < n; i++) {
        if (!status) status = load_entry(host, dir, real_dir, entries[i]->d_name, first, err);
        free(entries[i]);
    }
    free(entries);
    if (status) gb_lua_host_forget_from(host, first);
    return status;
}

/* ---- while it serves ---- */

static const gb_lua_version *newest_of_file(const gb_lua_host *host, const char *path)
{
    char chunk[GB_LUA_CHUNK_BYTES];
    gb_lua_host_chunk(chunk, path);
    for (uint32_t i = host->n_versions; i-- > 0;) {
        if (strcmp(host->versions[i]->chunk, chunk) == 0) return host->versions[i];
    }
    return NULL;
}

static bool is_same(const gb_lua_version *v, const gb_lua_text *text)
{
    return v && v->bytes == text->bytes && memcmp(v->source, text->data, text->bytes) == 0;
}

/* Another file of the directory, still there, that makes a policy of this name. */
static const gb_lua_version *rival_of(const gb_lua_host *host, const gb_lua_version *v, const char *dir)
{
    size_t n = strlen(dir);
    for (uint32_t i = 0; i < host->n_versions; i++) {
        const gb_lua_version *other = host->versions[i];
        bool inside = strncmp(other->chunk, dir, n) == 0 && other->chunk[n] == '/';
        if (inside && strcmp(other->name, v->name) == 0 && strcmp(other->chunk, v->chunk) != 0 && access(other->chunk, F_OK) == 0) return other;
    }
    return NULL;
}

/* The new version takes the hooks that a version of its name decides; those it no longer has go to the built-in. */
static int take_over(gb_lua_host *host, const gb_lua_version *v, const gb_lua_change *change, gb_error *err)
{
    int status = GB_OK;
    for (int hook = 0; hook < GB_HOOKS && !status; hook++) {
        const gb_lua_version *active = host->seats[hook].active;
        if (!active || strcmp(active->name, v->name) != 0) continue;
        gb_lua_change its = *change;
        its.hook = gb_hook_name((gb_hook)hook);
        status = gb_lua_host_switch(host, v->hooks[hook] ? v->number : 0, &its, err);
    }
    return status;
}

static int load_changed(gb_lua_host *host, const char *dir, const char *path, const gb_lua_change *change, uint32_t *number, gb_error *err)
{
    gb_lua_text text;
    int status = gb_lua_file_read(&text, path, "a policy", GB_LUA_SOURCE_MAX, err);
    if (status) return status;
    if (!is_same(newest_of_file(host, path), &text)) status = gb_lua_host_put(host, number, NULL, path, text.data, text.bytes, change, err);
    gb_lua_text_free(&text);
    if (status || !*number) return status;
    const gb_lua_version *v = gb_lua_host_find_version(host, *number), *rival = rival_of(host, v, dir);
    if (!rival) return take_over(host, v, change, err);
    return gb_fail(err, GB_EEXIST, "%s and %s both make a policy named %s; rename one (v%u is loaded, and does not decide)", rival->chunk, path,
                   v->name, v->number);
}

int gb_lua_host_reload(gb_lua_host *host, const char *dir, const char *entry, const gb_lua_change *change, uint32_t *number, gb_error *err)
{
    char real_dir[PATH_MAX], path[PATH_MAX];
    *number = 0;
    int status = realpath(dir, real_dir) ? path_of(path, dir, entry, err)
                                         : gb_fail(err, GB_EIO, "the policy directory %s cannot be read: %s", dir, strerror(errno));
    if (!status) status = check_stays_inside(real_dir, path, err);
    if (!status) status = load_changed(host, dir, path, change, number, err);
    if (status) gb_lua_host_tell(host, GB_LUA_EVENT_REFUSED, gb_lua_host_find_version(host, *number), change, "%.480s", err->text);
    return status;
}
