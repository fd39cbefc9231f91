#include "bindings/lua/lua_shadow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bindings/lua/lua_host_parts.h"
#include "core/base/log.h"

struct gb_lua_watcher {
    gb_lua_shadow shown;
    gb_lua_policy *policy;           /* NULL when it does not run */
    gb_lua_counts counts;            /* borrowed by policy, as chunk is */
    char chunk[GB_LUA_CHUNK_BYTES];
    gb_rng sampling;
    double saved_ns;                 /* that it may use now */
    gb_time saved_at;
    double *keys[2];                 /* [capacity of a queue] */
    gb_lua_place *places;
};

static uint64_t clock_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- life ---- */

void gb_lua_watcher_free(gb_lua_watcher *w)
{
    if (!w) return;
    gb_lua_policy_free(w->policy);
    free(w->keys[0]);
    free(w->keys[1]);
    free(w->places);
    free(w);
}

static gb_lua_watcher *new_watcher(const gb_lua_version *v, uint32_t capacity)
{
    gb_lua_watcher *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    for (int side = 0; side < 2; side++) w->keys[side] = malloc(capacity * sizeof(double));
    w->places = malloc(capacity * sizeof *w->places);
    if (!w->keys[0] || !w->keys[1] || !w->places) {
        gb_lua_watcher_free(w);
        return NULL;
    }
    w->shown.version = v->number;
    memcpy(w->chunk, v->chunk, sizeof w->chunk);
    memcpy(w->shown.name, v->name, sizeof w->shown.name);
    memcpy(w->shown.sha256, v->sha256, sizeof w->shown.sha256);
    w->saved_ns = GB_LUA_SHADOW_SAVED_MS * 1e6;
    gb_rng_init(&w->sampling, v->number);
    return w;
}

static int choose_hooks(gb_lua_watcher *w, const gb_lua_version *v, const char *hook, gb_error *err)
{
    int only;
    bool any = false;
    int status = gb_lua_host_parse_hook(&only, hook, err);
    if (status) return status;
    if (only != GB_HOOKS && !v->hooks[only]) return gb_lua_host_lacks(v, only, err);
    for (int h = 0; h < GB_HOOKS; h++) {
        w->shown.hooks[h] = v->hooks[h] && (only == GB_HOOKS || only == h) && (h == GB_HOOK_SELECT || h == GB_HOOK_ORDER);
        any = any || w->shown.hooks[h];
    }
    if (any) return GB_OK;
    return gb_fail(err, GB_EINVAL, "a shadow compares select_engine and order_queue; what policy %s v%u does to placements, gimbal place says on dumped windows",
                   v->name, v->number);
}

static int make(gb_lua_host *host, gb_lua_watcher **out, const gb_lua_version *v, const gb_lua_change *change, gb_error *err)
{
    gb_lua_watcher *w = new_watcher(v, gb_server_tables(host->server)->queue.capacity);
    if (!w) return gb_fail(err, GB_ENOMEM, "out of memory for a shadow");
    int status = choose_hooks(w, v, change->hook, err);
    if (!status) status = gb_lua_host_build(host, v, w->chunk, &w->counts, &w->policy, err);
    if (status) {
        gb_lua_watcher_free(w);
        return status;
    }
    gb_lua_policy_silence(w->policy);
    *out = w;
    return GB_OK;
}

bool gb_lua_host_shadows(const gb_lua_host *host, const gb_lua_version *v)
{
    return host->watcher && host->watcher->shown.running && host->watcher->shown.version == v->number;
}

bool gb_lua_host_watches(const gb_lua_host *host, gb_hook hook)
{
    return host->watcher && host->watcher->shown.running && host->watcher->shown.hooks[hook];
}

int gb_lua_host_shadow_start(gb_lua_host *host, uint32_t number, double ratio, const gb_lua_change *change, gb_error *err)
{
    gb_lua_watcher *w = NULL;
    const gb_lua_version *v = gb_lua_host_find_version(host, number);
    if (!v) return gb_lua_host_unknown(number, err);
    if (!(ratio > 0 && ratio <= 1)) return gb_fail(err, GB_EINVAL, "the ratio of decisions that a shadow sees is above 0 and at most 1");
    if (host->watcher && host->watcher->shown.running)
        return gb_fail(err, GB_EEXIST, "policy %s v%u is in shadow already; stop it first", host->watcher->shown.name, host->watcher->shown.version);
    if (gb_lua_host_is_quarantined(host, v)) return gb_fail(err, GB_EPOLICY, "policy %s v%u is quarantined; load a mended source", v->name, v->number);
    int status = make(host, &w, v, change, err);
    if (status) return status;
    gb_lua_watcher_free(host->watcher);
    host->watcher = w;
    w->shown.ratio = ratio;
    w->shown.running = true;
    w->shown.started = w->saved_at = change->now ? change->now : host->now;
    gb_lua_host_tell(host, GB_LUA_EVENT_SHADOW, v, change, "policy %s v%u is in shadow of what decides, for %g of the decisions", v->name, v->number, ratio);
    return GB_OK;
}

/* The VM goes; the results stay. Not within a decision of the shadow. */
static void end(gb_lua_host *host, const gb_lua_change *change, const char *why)
{
    gb_lua_watcher *w = host->watcher;
    w->shown.running = false;
    snprintf(w->shown.ended, sizeof w->shown.ended, "%s", why);
    gb_lua_policy_free(w->policy);
    w->policy = NULL;
    gb_lua_host_tell(host, GB_LUA_EVENT_SHADOW, gb_lua_host_find_version(host, w->shown.version), change, "policy %s v%u is in shadow no more: %s",
                     w->shown.name, w->shown.version, why);
}

int gb_lua_host_shadow_stop(gb_lua_host *host, const gb_lua_change *change, gb_error *err)
{
    if (!host->watcher || !host->watcher->shown.running) return gb_fail(err, GB_ENOTFOUND, "no policy is in shadow");
    end(host, change, "it was stopped");
    return GB_OK;
}

void gb_lua_host_shadow_decides(gb_lua_host *host, const gb_lua_version *v, const gb_lua_change *change)
{
    if (gb_lua_host_shadows(host, v)) end(host, change, "it decides now");
}

const gb_lua_shadow *gb_lua_host_shadow(const gb_lua_host *host) { return host->watcher ? &host->watcher->shown : NULL; }

/* ---- watching ---- */

static void save_up(gb_lua_watcher *w, gb_time now)
{
    double most = GB_LUA_SHADOW_SAVED_MS * 1e6;
    if (now <= w->saved_at) return;
    w->saved_ns += (double)gb_time_since(w->saved_at, now) / GB_LUA_SHADOW_SHARE;
    if (w->saved_ns > most) w->saved_ns = most;
    w->saved_at = now;
}

static bool takes_part(gb_lua_watcher *w, gb_time now)
{
    w->shown.seen++;
    if (gb_rng_uniform(&w->sampling) >= w->shown.ratio) return false;
    save_up(w, now);
    if (w->saved_ns > 0) return true;
    w->shown.skipped++;
    return false;
}

/* The script that decides and the candidate draw the same random numbers. */
static void share_random(gb_lua_host *host, gb_hook hook)
{
    if (host->seats[hook].active) gb_lua_policy_vm(host->watcher->policy)->rng = host->rng_before;
}

/* What it cost is taken from its savings; a candidate that fails too often ends. */
static void settle(gb_lua_host *host, gb_hook hook, int answer, uint64_t started_ns, gb_time now)
{
    gb_lua_watcher *w = host->watcher;
    char why[256];
    w->saved_ns -= (double)(clock_ns() - started_ns);
    if (answer != GB_POLICY_FAULT) return;
    bool slow = gb_lua_policy_vm(w->policy)->fault_kind == GB_LUA_FAULT_TIME;
    if (!slow && w->counts.faults < GB_LUA_SHADOW_FAULTS) return;
    snprintf(why, sizeof why, "it failed in %s: %.*s", gb_hook_name(hook), (int)strcspn(w->counts.last_fault, "\n"), w->counts.last_fault);
    end(host, &(gb_lua_change){.who = "fault", .now = now}, why);
}

void gb_lua_host_shadow_select(gb_lua_host *host, const gb_request_row *request, const gb_engine_table *engines, int answer, uint64_t ns, gb_time now)
{
    gb_lua_watcher *w = host->watcher;
    if (!gb_lua_host_watches(host, GB_HOOK_SELECT) || !takes_part(w, now)) return;
    gb_lua_comparison *c = &w->shown.comparisons[GB_HOOK_SELECT];
    share_random(host, GB_HOOK_SELECT);
    uint64_t start = clock_ns();
    int other = gb_lua_policy_select(w->policy, request, engines, now);
    uint64_t other_ns = clock_ns() - start;
    int built_in = answer < 0 || other < 0 ? host->builtin.select_engine(host->builtin.self, request, engines, now) : 0;
    const int decided[2] = {answer < 0 ? built_in : answer, other < 0 ? built_in : other};
    gb_lua_compare_answer(&c->sides[0], answer, ns, NULL);
    gb_lua_compare_answer(&c->sides[1], other, other_ns, w->counts.last_fault);
    if (decided[0] >= 0 && decided[1] >= 0) gb_lua_compare_engines(c, request, engines, decided);
    settle(host, GB_HOOK_SELECT, other, start, now);
}

/* keys as they stand, or the built-in's. */
static const double *keys_of(const gb_lua_host *host, const gb_queue_table *queue, double *keys, int answer, gb_time now)
{
    gb_queue_table table = *queue;
    table.key = keys;
    if (answer != GB_OK) host->builtin.order_queue(host->builtin.self, &table, now);
    return keys;
}

void gb_lua_host_shadow_order(gb_lua_host *host, const gb_queue_table *queue, int answer, uint64_t ns, gb_time now)
{
    gb_lua_watcher *w = host->watcher;
    if (queue->n < 2 || !gb_lua_host_watches(host, GB_HOOK_ORDER) || !takes_part(w, now)) return;    /* one request has one order */
    gb_lua_comparison *c = &w->shown.comparisons[GB_HOOK_ORDER];
    gb_queue_table table = *queue;
    table.key = w->keys[1];
    memcpy(w->keys[0], queue->key, queue->n * sizeof(double));
    share_random(host, GB_HOOK_ORDER);
    uint64_t start = clock_ns();
    int other = gb_lua_policy_order(w->policy, &table, now);
    uint64_t other_ns = clock_ns() - start;
    const double *const keys[2] = {keys_of(host, queue, w->keys[0], answer, now), keys_of(host, queue, w->keys[1], other, now)};
    gb_lua_compare_answer(&c->sides[0], answer, ns, NULL);
    gb_lua_compare_answer(&c->sides[1], other, other_ns, w->counts.last_fault);
    gb_lua_compare_orders(c, queue, keys, w->places);
    settle(host, GB_HOOK_ORDER, other, start, now);
}
