#include "bindings/uv/watch.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/log.h"

/* What tells one content of a file from another without reading it. */
typedef struct stamp {
    uint64_t inode, bytes, seconds, nanoseconds;
} stamp;

typedef struct watched {
    char name[NAME_MAX + 1];
    stamp seen;       /* at the latest look */
    stamp taken;      /* when it was read last */
    bool present, was_present;    /* at the latest look, at the one before */
} watched;

struct gb_watch {
    uv_fs_event_t event;
    uv_timer_t settle, rescan;
    uint32_t open_handles;
    gb_lua_host *host;
    gb_time (*clock)(void *self);
    void *self;
    bool is_crowded, is_blind;    /* told once each */
    uint32_t n_files;
    watched files[GB_WATCH_FILES_MAX];
    char dir[PATH_MAX];
};

static bool is_equal(const stamp *a, const stamp *b)
{
    return a->inode == b->inode && a->bytes == b->bytes && a->seconds == b->seconds && a->nanoseconds == b->nanoseconds;
}

/* ---- files ---- */

static watched *place_of(gb_watch *w, const char *name)
{
    for (uint32_t i = 0; i < w->n_files; i++) {
        if (strcmp(w->files[i].name, name) == 0) return &w->files[i];
    }
    for (uint32_t i = 0; i < w->n_files; i++) {
        if (w->files[i].present || w->files[i].was_present) continue;
        w->files[i] = (watched){0};
        return &w->files[i];    /* of one that is gone */
    }
    if (w->n_files < GB_WATCH_FILES_MAX) return &w->files[w->n_files++];
    if (!w->is_crowded)
        gb_log(GB_LOG_WARN, "%s has more than %d policies; %s and others beyond are not watched", w->dir, GB_WATCH_FILES_MAX, name);
    w->is_crowded = true;
    return NULL;
}

/* A file between two names of an editor is not there for a moment: that is no error. */
static bool stamp_of(stamp *out, const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat s;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path || stat(path, &s)) return false;
    *out = (stamp){s.st_ino, (uint64_t)s.st_size, (uint64_t)s.st_mtim.tv_sec, (uint64_t)s.st_mtim.tv_nsec};
    return true;
}

static void take(gb_watch *w, watched *file)
{
    gb_error err = {{0}};
    uint32_t version;
    gb_lua_change change = {.who = "directory", .now = w->clock(w->self)};
    file->taken = file->seen;
    gb_lua_host_reload(w->host, w->dir, file->name, &change, &version, &err);    /* which logs what comes of it */
}

/* True when the file must be looked at again soon. */
static bool look_at(gb_watch *w, const char *name)
{
    stamp now;
    if (!stamp_of(&now, w->dir, name)) return false;
    watched *file = place_of(w, name);
    if (!file) return false;
    snprintf(file->name, sizeof file->name, "%s", name);
    file->present = true;
    if (is_equal(&now, &file->taken)) return false;
    bool is_settled = is_equal(&now, &file->seen);
    file->seen = now;
    if (is_settled) take(w, file);
    return !is_settled;
}

static void tell_absent(const gb_watch *w)
{
    for (uint32_t i = 0; i < w->n_files; i++) {
        if (w->files[i].was_present && !w->files[i].present)
            gb_log(GB_LOG_INFO, "%s/%s is gone; what is loaded of it stays", w->dir, w->files[i].name);
    }
}

static bool look(gb_watch *w)
{
    bool again = false;
    DIR *entries = opendir(w->dir);
    if (!entries && !w->is_blind) gb_log(GB_LOG_WARN, "the policy directory %s cannot be read: %s; what is loaded stays", w->dir, strerror(errno));
    w->is_blind = !entries;
    if (!entries) return false;
    for (uint32_t i = 0; i < w->n_files; i++) w->files[i].was_present = w->files[i].present, w->files[i].present = false;
    for (const struct dirent *entry; (entry = readdir(entries));) {
        if (gb_lua_is_policy_file(entry->d_name) && look_at(w, entry->d_name)) again = true;
    }
    closedir(entries);
    tell_absent(w);
    return again;
}

/* ---- events ---- */

static void look_again_soon(gb_watch *w);

static void on_settled(uv_timer_t *timer)
{
    gb_watch *w = timer->data;
    if (look(w)) look_again_soon(w);
}

static void look_again_soon(gb_watch *w) { uv_timer_start(&w->settle, on_settled, GB_WATCH_SETTLE_MS, 0); }

static void on_rescan(uv_timer_t *timer)
{
    gb_watch *w = timer->data;
    if (!uv_is_active((uv_handle_t *)&w->settle) && look(w)) look_again_soon(w);
}

static void on_event(uv_fs_event_t *event, const char *name, int events, int status)
{
    (void)events, (void)status;    /* whatever it is, a look tells */
    if (!name || gb_lua_is_policy_file(name)) look_again_soon(event->data);
}

/* ---- life ---- */

static void on_closed(uv_handle_t *handle)
{
    gb_watch *w = handle->data;
    if (--w->open_handles == 0) free(w);
}

static void add_handle(gb_watch *w, uv_handle_t *handle)
{
    handle->data = w;
    uv_unref(handle);
    w->open_handles++;
}

int gb_watch_new(gb_watch **out, uv_loop_t *loop, gb_lua_host *host, const char *dir, gb_time (*clock)(void *self), void *self, gb_error *err)
{
    gb_watch *w = calloc(1, sizeof *w);
    if (!w) return gb_fail(err, GB_ENOMEM, "out of memory for watching %s", dir);
    w->host = host;
    w->clock = clock;
    w->self = self;
    if (snprintf(w->dir, sizeof w->dir, "%s", dir) >= (int)sizeof w->dir) {
        free(w);
        return gb_fail(err, GB_EINVAL, "%.80s...: the path of the policy directory is too long", dir);
    }
    uv_fs_event_init(loop, &w->event);
    uv_timer_init(loop, &w->settle);
    uv_timer_init(loop, &w->rescan);
    add_handle(w, (uv_handle_t *)&w->event);
    add_handle(w, (uv_handle_t *)&w->settle);
    add_handle(w, (uv_handle_t *)&w->rescan);
    int failed = uv_fs_event_start(&w->event, on_event, dir, 0);
    if (failed) gb_log(GB_LOG_WARN, "%s tells no changes (%s); it is looked at every %d ms", dir, uv_strerror(failed), GB_WATCH_RESCAN_MS);
    uv_timer_start(&w->rescan, on_rescan, GB_WATCH_RESCAN_MS, GB_WATCH_RESCAN_MS);
    look_again_soon(w);    /* what has changed since the start is found by its bytes */
    *out = w;
    return GB_OK;
}

void gb_watch_close(gb_watch *w)
{
    if (!w || uv_is_closing((uv_handle_t *)&w->event)) return;
    uv_close((uv_handle_t *)&w->event, on_closed);
    uv_close((uv_handle_t *)&w->settle, on_closed);
    uv_close((uv_handle_t *)&w->rescan, on_closed);
}
