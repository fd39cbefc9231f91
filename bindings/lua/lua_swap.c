/* Who decides: hooks of the server that run a script, swaps between two decisions, faults and what follows from them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bindings/lua/lua_digest.h"
#include "bindings/lua/lua_host_parts.h"
#include "core/base/assert.h"
#include "core/base/log.h"

uint64_t gb_lua_host_generation(const gb_lua_host *host) { return host->generation; }
const gb_lua_log *gb_lua_host_log(const gb_lua_host *host) { return host->log; }

bool gb_lua_host_decides(const gb_lua_host *host, const gb_lua_version *v)
{
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        if (host->seats[hook].active == v) return true;
    }
    return false;
}

bool gb_lua_host_holds(const gb_lua_host *host, const gb_lua_version *v)
{
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        if (host->seats[hook].standby == v) return true;
    }
    return gb_lua_host_decides(host, v);
}

/* ---- telling ---- */

static const char *who_of(const gb_lua_change *change) { return change && change->who ? change->who : "start"; }

void gb_lua_host_tell(gb_lua_host *host, gb_lua_event_kind kind, const gb_lua_version *v, const gb_lua_change *change,
                      const char *format, ...)
{
    gb_lua_event event = {.at = change && change->now ? change->now : host->now, .kind = kind, .version = v ? v->number : 0};
    if (v) memcpy(event.sha256, v->sha256, sizeof event.sha256);
    snprintf(event.who, sizeof event.who, "%s", who_of(change));
    va_list args;
    va_start(args, format);
    vsnprintf(event.text, sizeof event.text, format, args);
    va_end(args);
    gb_lua_log_event(host->log, &event);
    gb_log_level level = kind == GB_LUA_EVENT_QUARANTINE || kind == GB_LUA_EVENT_REFUSED ? GB_LOG_WARN : GB_LOG_INFO;
    if (v) gb_log(level, "%s (by %s, sha256 %s)", event.text, event.who, event.sha256);
    else gb_log(level, "%s (by %s)", event.text, event.who);
}

static void join_hooks(char out[GB_HOOK_NAMES_BYTES], const bool hooks[GB_HOOKS])
{
    size_t n = 0;
    int last = GB_HOOKS - 1;
    while (last > 0 && !hooks[last]) last--;
    out[0] = 0;
    for (int hook = 0; hook <= last; hook++) {
        if (hooks[hook])
            n += (size_t)snprintf(out + n, GB_HOOK_NAMES_BYTES - n, "%s%s", n == 0 ? "" : hook == last ? " and " : ", ", gb_hook_name((gb_hook)hook));
    }
}

static void tell_decider(gb_lua_host *host, gb_lua_event_kind kind, const gb_lua_version *v, const bool hooks[GB_HOOKS], const gb_lua_change *change)
{
    char names[GB_HOOK_NAMES_BYTES];
    const char *back = kind == GB_LUA_EVENT_ROLLBACK ? "back to " : "";
    const char *decides = kind == GB_LUA_EVENT_ROLLBACK ? ", which decides" : " decides";
    join_hooks(names, hooks);
    if (v) gb_lua_host_tell(host, kind, v, change, "%spolicy %s v%u%s %s", back, v->name, v->number, decides, names);
    else gb_lua_host_tell(host, kind, NULL, change, "%sthe built-in policy%s %s", back, decides, names);
}

void gb_lua_host_tell_moved(gb_lua_host *host, gb_lua_event_kind kind, const bool moved[GB_HOOKS], const gb_lua_change *change)
{
    bool told[GB_HOOKS] = {false};
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        const gb_lua_version *v = host->seats[hook].active;
        bool same[GB_HOOKS] = {false};
        if (!moved[hook] || told[hook]) continue;
        for (int h = hook; h < GB_HOOKS; h++) {
            same[h] = moved[h] && host->seats[h].active == v;
            told[h] = told[h] || same[h];
        }
        gb_lua_event_kind said = kind == GB_LUA_EVENT_ROLLBACK || v ? kind : GB_LUA_EVENT_BUILTIN;
        tell_decider(host, said, v, same, change);
        gb_lua_host_record_seats(host, said, v, same, change);
    }
}

/* ---- quarantine ---- */

static char *find_digest(const gb_lua_host *host, const char *sha256)
{
    for (uint32_t i = 0; i < host->n_quarantined && i < GB_LUA_QUARANTINE_MAX; i++) {
        if (strcmp(host->quarantined[i], sha256) == 0) return (char *)host->quarantined[i];
    }
    return NULL;
}

bool gb_lua_host_is_quarantined(const gb_lua_host *host, const gb_lua_version *v) { return find_digest(host, v->sha256) != NULL; }

void gb_lua_host_remember_quarantine(gb_lua_host *host, const char *sha256)
{
    if (find_digest(host, sha256)) return;
    memcpy(host->quarantined[host->n_quarantined++ % GB_LUA_QUARANTINE_MAX], sha256, GB_SHA256_HEX + 1);
}

void gb_lua_host_lift_quarantine(gb_lua_host *host, const char *sha256)
{
    char *digest = find_digest(host, sha256);
    if (digest) *digest = 0;
}

/* ---- deciding ---- */

static uint64_t clock_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void keep_fault(gb_lua_host *host, gb_hook hook, const gb_lua_version *v, gb_lua_snapshot *snapshot, gb_time now)
{
    const gb_lua_vm *vm = gb_lua_policy_vm(v->policy);
    gb_lua_fault fault = {.decision = gb_lua_log_decisions(host->log), .at = now, .hook = hook, .kind = vm->fault_kind, .version = v->number};
    memcpy(fault.name, v->name, sizeof fault.name);
    memcpy(fault.sha256, v->sha256, sizeof fault.sha256);
    memcpy(fault.message, vm->fault, sizeof fault.message);
    if (snapshot) {
        snapshot->rng = host->rng_before;
        gb_lua_policy_keep_params(v->policy, snapshot);
    }
    gb_lua_log_fault(host->log, &fault, snapshot);
}

/* True when this fault is one too many. The next place of the ring holds the oldest of the kept. */
static bool strike(gb_lua_seat *s, gb_lua_fault_kind kind, gb_time now)
{
    s->strikes[s->n_strikes++ % GB_LUA_STRIKES] = now;
    if (kind == GB_LUA_FAULT_TIME) return true;
    if (s->n_strikes < GB_LUA_STRIKES) return false;
    return gb_time_since(s->strikes[s->n_strikes % GB_LUA_STRIKES], now) < gb_seconds(GB_LUA_STRIKES_WITHIN_S);
}

static void quarantine(gb_lua_host *host, gb_hook hook, gb_lua_version *v, gb_time now);

static void failed(gb_lua_host *host, gb_hook hook, gb_lua_version *v, gb_lua_snapshot *snapshot, gb_time now)
{
    keep_fault(host, hook, v, snapshot, now);
    if (strike(&host->seats[hook], gb_lua_policy_vm(v->policy)->fault_kind, now)) quarantine(host, hook, v, now);
}

/* A script that takes a good part of its budget makes requests wait long before it is stopped. */
static void watch_pace(gb_lua_host *host, gb_hook hook, const gb_lua_version *v, uint64_t ns, gb_time now)
{
    gb_lua_seat *s = &host->seats[hook];
    s->slow += ns > host->budgets.hooks[hook] / GB_LUA_SLOW_PART;
    if (++s->timed < GB_LUA_PACE_BLOCK) return;
    if (s->slow > GB_LUA_PACE_BLOCK / 2 && now >= s->no_warning_before) {
        s->no_warning_before = now + gb_seconds(GB_LUA_SLOW_EVERY_S);
        gb_log(GB_LOG_WARN, "policy %s v%u is slow: %u of its last %u decisions in %s took more than %.4g ms; it is stopped at %.4g ms", v->name, v->number,
               s->slow, GB_LUA_PACE_BLOCK, gb_hook_name(hook), gb_to_ms(host->budgets.hooks[hook]) / GB_LUA_SLOW_PART, gb_to_ms(host->budgets.hooks[hook]));
    }
    s->timed = s->slow = 0;
}

/* How long it took, in ns. */
static uint64_t note(gb_lua_host *host, gb_hook hook, const gb_lua_version *v, int answer, uint32_t rows, uint64_t start_ns, gb_time now)
{
    gb_lua_decision decision = {
        .at = now, .hook = hook, .version = v->number, .rows = rows, .answer = answer, .inputs = host->inputs, .ns = clock_ns() - start_ns};
    if (answer == GB_POLICY_FAULT) decision.fault_kind = gb_lua_policy_vm(v->policy)->fault_kind;
    gb_lua_log_decision(host->log, &decision);
    watch_pace(host, hook, v, decision.ns, now);
    return decision.ns;
}

static gb_lua_version *begin_decision(gb_lua_host *host, gb_hook hook, gb_time now)
{
    gb_lua_seat *seat = &host->seats[hook];
    host->now = now;
    host->inputs = 0;
    host->asked = seat->active;
    host->rng_before = gb_lua_policy_vm(seat->active->policy)->rng;
    if (seat->since == GB_NEVER) seat->since = now;
    return seat->active;
}

/* Whether anything but the core looks at the built-in's decisions. */
static bool is_observed(gb_lua_host *host, gb_hook hook)
{
    host->asked = NULL;
    return host->journal || gb_lua_host_watches(host, hook);
}

static int select_by_script(gb_lua_host *host, const gb_request_row *request, const gb_engine_table *engines, gb_time now)
{
    gb_lua_version *v = begin_decision(host, GB_HOOK_SELECT, now);
    host->inputs = gb_lua_digest_select(request, engines);
    uint64_t start_ns = clock_ns();
    int answer = gb_lua_policy_select(v->policy, request, engines, now);
    uint64_t ns = note(host, GB_HOOK_SELECT, v, answer, engines->n, start_ns, now);
    if (answer == GB_POLICY_FAULT) {
        gb_lua_snapshot *snapshot = NULL;
        gb_lua_snapshot_take(&snapshot, GB_HOOK_SELECT, request, engines, NULL, now);
        failed(host, GB_HOOK_SELECT, v, snapshot, now);
    }
    gb_lua_host_record_select(host, request, engines, answer, ns, now);
    gb_lua_host_shadow_select(host, request, engines, answer, ns, now);
    return answer;
}

static int select_engine(void *self, const gb_request_row *request, const gb_engine_table *engines, gb_time now)
{
    gb_lua_host *host = self;
    if (host->seats[GB_HOOK_SELECT].active) return select_by_script(host, request, engines, now);
    if (!is_observed(host, GB_HOOK_SELECT)) return host->builtin.select_engine(host->builtin.self, request, engines, now);
    uint64_t start_ns = clock_ns();
    int answer = host->builtin.select_engine(host->builtin.self, request, engines, now);
    uint64_t ns = clock_ns() - start_ns;
    gb_lua_host_record_select(host, request, engines, answer, ns, now);
    gb_lua_host_shadow_select(host, request, engines, answer, ns, now);
    return answer;
}

static int order_by_script(gb_lua_host *host, gb_queue_table *queue, gb_time now)
{
    gb_lua_version *v = begin_decision(host, GB_HOOK_ORDER, now);
    host->inputs = gb_lua_digest_order(queue);
    uint64_t start_ns = clock_ns();
    int answer = gb_lua_policy_order(v->policy, queue, now);
    uint64_t ns = note(host, GB_HOOK_ORDER, v, answer, queue->n, start_ns, now);
    if (answer == GB_POLICY_FAULT) {
        gb_lua_snapshot *snapshot = NULL;
        gb_lua_snapshot_take(&snapshot, GB_HOOK_ORDER, NULL, NULL, queue, now);
        failed(host, GB_HOOK_ORDER, v, snapshot, now);
    }
    gb_lua_host_record_order(host, queue, answer, ns, now);
    gb_lua_host_shadow_order(host, queue, answer, ns, now);
    return answer;
}

static int order_queue(void *self, gb_queue_table *queue, gb_time now)
{
    gb_lua_host *host = self;
    if (host->seats[GB_HOOK_ORDER].active) return order_by_script(host, queue, now);
    if (!is_observed(host, GB_HOOK_ORDER)) return host->builtin.order_queue(host->builtin.self, queue, now);
    uint64_t start_ns = clock_ns();
    int answer = host->builtin.order_queue(host->builtin.self, queue, now);
    uint64_t ns = clock_ns() - start_ns;
    gb_lua_host_record_order(host, queue, answer, ns, now);
    gb_lua_host_shadow_order(host, queue, answer, ns, now);
    return answer;
}

/* placement_cost is asked before score_expert: it says more. */
static int placement_hook(const gb_lua_host *host)
{
    if (host->seats[GB_HOOK_COST].active) return GB_HOOK_COST;
    return host->seats[GB_HOOK_SCORE].active ? GB_HOOK_SCORE : GB_HOOKS;
}

static int ask_for_placement(gb_lua_host *host, gb_hook hook, gb_rearrangement *r, gb_time now)
{
    gb_lua_version *v = begin_decision(host, hook, now);
    uint64_t start_ns = clock_ns();
    int answer = gb_lua_policy_place(v->policy, hook, r, now);
    note(host, hook, v, answer, r->solver->layers * r->solver->experts, start_ns, now);
    gb_server_count_placement(host->server, hook, answer);
    if (answer != GB_POLICY_FAULT) return answer;
    gb_lua_snapshot *snapshot = NULL;
    gb_lua_snapshot_take_placement(&snapshot, hook, r, now);
    failed(host, hook, v, snapshot, now);
    return answer;
}

int gb_lua_host_place(gb_lua_host *host, gb_rearrangement *r, gb_time now)
{
    int hook = placement_hook(host);
    int answer = hook == GB_HOOKS ? GB_POLICY_NIL : ask_for_placement(host, (gb_hook)hook, r, now);
    if (answer != GB_OK) gb_rearrange_built_in(r);
    else if (hook == GB_HOOK_COST) gb_rearrange_search(r);
    return answer;
}

/* ---- seats ---- */

/* Between two decisions, or after the script's part of one: the core has read what it needs of the old policy. The host answers for
   the built-in too, with the built-in's own function, so that a shadow sees those decisions. */
static void install(gb_lua_host *host, gb_hook hook, gb_lua_version *v)
{
    gb_policy policy = {.name = v ? v->name : host->builtin.name, .version = v ? v->number : 0, .self = host};
    host->seats[hook].active = v;
    if (hook == GB_HOOK_SELECT) policy.select_engine = select_engine;
    if (hook == GB_HOOK_ORDER) policy.order_queue = order_queue;
    gb_server_set_policy(host->server, hook, v || hook == GB_HOOK_SELECT || hook == GB_HOOK_ORDER ? &policy : NULL);
}

void gb_lua_host_sit_down(gb_lua_host *host)
{
    for (int hook = 0; hook < GB_HOOKS; hook++) install(host, (gb_hook)hook, NULL);
}

/* The new one sits down, the old one stands by. */
static void seat(gb_lua_host *host, gb_hook hook, gb_lua_version *v, gb_time now)
{
    gb_lua_seat *s = &host->seats[hook];
    if (s->active != v) {
        s->standby = s->active;
        s->has_standby = true;
        s->standby_is_healthy = gb_time_since(s->since, now) >= gb_seconds(GB_LUA_HEALTHY_AFTER_S);
    }
    s->since = now ? now : GB_NEVER;
    s->n_strikes = s->timed = s->slow = 0;
    install(host, hook, v);
}

void gb_lua_host_reseat(gb_lua_host *host, gb_hook hook, gb_lua_version *v) { seat(host, hook, v, 0); }

/* The one before comes back when it had proven itself; the one that failed does not stand by. */
static void unseat(gb_lua_host *host, gb_hook hook, gb_time now)
{
    gb_lua_seat *s = &host->seats[hook];
    gb_lua_version *next = s->standby_is_healthy ? s->standby : NULL;
    *s = (gb_lua_seat){.since = now};
    install(host, hook, next);
}

static void quarantine(gb_lua_host *host, gb_hook hook, gb_lua_version *v, gb_time now)
{
    gb_lua_change by_fault = {.who = "fault", .now = now};
    gb_lua_host_remember_quarantine(host, v->sha256);
    host->generation++;
    gb_lua_host_tell(host, GB_LUA_EVENT_QUARANTINE, v, &by_fault, "policy %s v%u is quarantined for its faults in %s: %.300s", v->name,
                     v->number, gb_hook_name(hook), v->counts.last_fault);
    gb_lua_host_record_quarantine(host, v, hook, &by_fault);
    bool back[GB_HOOKS] = {false}, out[GB_HOOKS] = {false};
    for (int h = 0; h < GB_HOOKS; h++) {
        gb_lua_seat *s = &host->seats[h];
        if (s->standby && gb_lua_host_is_quarantined(host, s->standby))
            s->standby = NULL, s->has_standby = s->standby_is_healthy = false;
        if (!s->active || !gb_lua_host_is_quarantined(host, s->active)) continue;
        unseat(host, (gb_hook)h, now);
        if (s->active) back[h] = true;
        else out[h] = true;
    }
    gb_lua_host_tell_moved(host, GB_LUA_EVENT_ROLLBACK, back, &by_fault);
    gb_lua_host_tell_moved(host, GB_LUA_EVENT_BUILTIN, out, &by_fault);
}

/* ---- changes ---- */

static int check_generation(const gb_lua_host *host, const gb_lua_change *change, gb_error *err)
{
    const uint64_t *expected = change->expected_generation;
    if (!expected || *expected == host->generation) return GB_OK;
    return gb_fail(err, GB_EVERSION,
                   "the policies are at generation %llu, not %llu: someone changed them; look again, then repeat the change",
                   (unsigned long long)host->generation, (unsigned long long)*expected);
}

static gb_time time_of(const gb_lua_host *host, const gb_lua_change *change) { return change->now ? change->now : host->now; }

static bool takes(const gb_lua_version *v, int only, int hook) { return v->hooks[hook] && (only == GB_HOOKS || only == hook); }

/* The two placement hooks are one decision: who takes one of them ends another script's hold of the other. */
static bool ends(const gb_lua_host *host, const gb_lua_version *v, int only, int hook)
{
    const gb_lua_version *holder = host->seats[hook].active;
    if (!holder || holder == v || takes(v, only, hook)) return false;
    return (hook == GB_HOOK_SCORE && takes(v, only, GB_HOOK_COST)) || (hook == GB_HOOK_COST && takes(v, only, GB_HOOK_SCORE));
}

/* A script that got half of its state is of no use: the next activation builds it anew. */
static void drop_half_filled(gb_lua_host *host, gb_lua_version *v)
{
    if (gb_lua_host_holds(host, v)) return;
    gb_lua_policy_free(v->policy);
    v->policy = NULL;
}

static int carry_state(gb_lua_host *host, gb_lua_version *from, gb_lua_version *to, gb_error *err)
{
    bool exported;
    gb_error why = {0};
    int status = gb_lua_policy_export(from->policy, &exported, &host->carry, &why);
    if (!status && exported) status = gb_lua_policy_import(to->policy, &host->carry, from->number, &why);
    if (!status) return GB_OK;
    gb_fail(err, status, "policy %s v%u does not take over from %s v%u, which goes on: %s", to->name, to->number, from->name,
            from->number, why.text);
    return status;
}

/* From each script that loses a hook, once. */
static int carry_all(gb_lua_host *host, int only, gb_lua_version *to, gb_error *err)
{
    const gb_lua_version *done = NULL;
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        gb_lua_version *from = host->seats[hook].active;
        if (!takes(to, only, hook) || !from || from == to || from == done) continue;
        int status = carry_state(host, from, to, err);
        if (status) return status;
        done = from;
    }
    return GB_OK;
}

static int check_may_decide(gb_lua_host *host, gb_lua_version *v, int only, const gb_lua_change *change, gb_error *err)
{
    if (only != GB_HOOKS && !v->hooks[only]) return gb_lua_host_lacks(v, only, err);
    if (!gb_lua_host_is_quarantined(host, v)) return GB_OK;
    if (change->force) {
        gb_lua_host_lift_quarantine(host, v->sha256);
        return GB_OK;
    }
    return gb_fail(err, GB_EPOLICY,
                   "policy %s v%u is quarantined for its faults; load a mended source, or activate it with force%s%.*s", v->name,
                   v->number, v->counts.last_fault[0] ? ": " : "", (int)strcspn(v->counts.last_fault, "\n"), v->counts.last_fault);
}

/* Gives v its hooks. False: it had them all already. */
static bool seat_script(gb_lua_host *host, int only, gb_lua_version *v, const gb_lua_change *change)
{
    bool ended[GB_HOOKS] = {false}, taken[GB_HOOKS] = {false}, changed = false;
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        ended[hook] = ends(host, v, only, hook);
        taken[hook] = takes(v, only, hook) && host->seats[hook].active != v;
        if (ended[hook] || taken[hook]) seat(host, (gb_hook)hook, taken[hook] ? v : NULL, time_of(host, change));
        changed = changed || ended[hook] || taken[hook];
    }
    gb_lua_host_tell_moved(host, GB_LUA_EVENT_BUILTIN, ended, change);
    gb_lua_host_tell_moved(host, GB_LUA_EVENT_ACTIVATE, taken, change);
    return changed;
}

static int to_script(gb_lua_host *host, int only, gb_lua_version *v, const gb_lua_change *change, bool *changed, gb_error *err)
{
    int status = check_may_decide(host, v, only, change, err);
    if (!status) status = gb_lua_host_wake(host, v, err);
    if (!status && !change->force) {
        status = carry_all(host, only, v, err);
        if (status) drop_half_filled(host, v);
    }
    if (status) return status;
    *changed = seat_script(host, only, v, change);
    gb_lua_host_shadow_decides(host, v, change);
    return GB_OK;
}

static bool to_builtin(gb_lua_host *host, int only, const gb_lua_change *change)
{
    bool moved[GB_HOOKS] = {false}, changed = false;
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        if ((only != GB_HOOKS && only != hook) || !host->seats[hook].active) continue;
        seat(host, (gb_hook)hook, NULL, time_of(host, change));
        moved[hook] = changed = true;
    }
    gb_lua_host_tell_moved(host, GB_LUA_EVENT_BUILTIN, moved, change);
    return changed;
}

int gb_lua_host_switch(gb_lua_host *host, uint32_t number, const gb_lua_change *change, gb_error *err)
{
    int only;
    bool changed = false;
    int status = gb_lua_host_parse_hook(&only, change->hook, err);
    if (!status) status = check_generation(host, change, err);
    if (status) return status;
    gb_lua_version *v = number ? gb_lua_host_find_version(host, number) : NULL;
    if (number && !v) return gb_lua_host_unknown(number, err);
    if (v) status = to_script(host, only, v, change, &changed, err);
    else changed = to_builtin(host, only, change);
    if (status) return status;
    host->generation += changed;
    gb_lua_host_retire(host);
    return GB_OK;
}

int gb_lua_host_rollback(gb_lua_host *host, const gb_lua_change *change, gb_error *err)
{
    int only;
    bool moved[GB_HOOKS] = {false}, any = false;
    int status = gb_lua_host_parse_hook(&only, change->hook, err);
    if (!status) status = check_generation(host, change, err);
    if (status) return status;
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        const gb_lua_seat *s = &host->seats[hook];
        if ((only != GB_HOOKS && only != hook) || !s->has_standby) continue;
        GB_ASSERT(!s->standby || s->standby->policy);
        seat(host, (gb_hook)hook, s->standby, time_of(host, change));
        moved[hook] = any = true;
    }
    if (!any)
        return gb_fail(err, GB_ENOTFOUND, "%s has nothing to go back to: no other policy decided before",
                       change->hook ? change->hook : "no hook");
    gb_lua_host_tell_moved(host, GB_LUA_EVENT_ROLLBACK, moved, change);
    host->generation++;
    return GB_OK;
}

/* ---- params ---- */

gb_lua_setting *gb_lua_host_setting(gb_lua_version *v, const char *name)
{
    for (uint32_t i = 0; i < v->n_settings; i++) {
        if (strcmp(v->settings[i].name, name) == 0) return &v->settings[i];
    }
    if (v->n_settings == GB_LUA_SETTINGS_MAX) return NULL;
    gb_lua_setting *setting = &v->settings[v->n_settings];
    snprintf(setting->name, sizeof setting->name, "%s", name);
    return setting;
}

static void show_value(char *out, size_t capacity, const gb_lua_value *value)
{
    switch (value->type) {
    case GB_LUA_NUMBER:
        snprintf(out, capacity, "%.14g", value->number);
        break;
    case GB_LUA_BOOLEAN:
        snprintf(out, capacity, "%s", value->boolean ? "true" : "false");
        break;
    case GB_LUA_TEXT:
        snprintf(out, capacity, "\"%.80s\"", value->text);
        break;
    }
}

int gb_lua_host_set(gb_lua_host *host, uint32_t number, const char *param, const gb_lua_value *value, const gb_lua_change *change,
                    gb_error *err)
{
    char shown[128];
    gb_lua_version *v = gb_lua_host_find_version(host, number);
    if (!v) return gb_lua_host_unknown(number, err);
    gb_lua_setting *setting = gb_lua_host_setting(v, param);
    int status = check_generation(host, change, err);
    if (!status) status = gb_lua_host_wake(host, v, err);
    if (!status && setting) status = gb_lua_policy_set_param(v->policy, param, value, err);
    if (status) return status;
    if (!setting)
        return gb_fail(err, GB_EFULL, "policy %s v%u has %d changed params; that is the most", v->name, number, GB_LUA_SETTINGS_MAX);
    setting->value = *value;
    if (setting == &v->settings[v->n_settings]) v->n_settings++;
    host->generation++;
    show_value(shown, sizeof shown, value);
    gb_lua_host_tell(host, GB_LUA_EVENT_SET, v, change, "policy %s v%u: params.%s = %s", v->name, number, param, shown);
    gb_lua_host_record_set(host, v, setting, change);
    if (host->seats[GB_HOOK_ORDER].active == v) install(host, GB_HOOK_ORDER, v); /* queues are ordered anew */
    gb_lua_host_retire(host);
    return GB_OK;
}

bool gb_lua_host_param(const gb_lua_host *host, uint32_t number, uint32_t index, char name[GB_LUA_NAME_MAX + 1], gb_lua_value *value)
{
    const gb_lua_version *v = gb_lua_host_find_version(host, number);
    return v && v->policy && gb_lua_policy_param(v->policy, index, name, value);
}

/* ---- short forms ---- */

int gb_lua_host_activate(gb_lua_host *host, const char *hook, uint32_t number, gb_error *err)
{
    return number ? gb_lua_host_switch(host, number, &(gb_lua_change){.hook = hook}, err) : gb_lua_host_unknown(0, err);
}

int gb_lua_host_builtin(gb_lua_host *host, const char *hook, gb_error *err)
{
    return gb_lua_host_switch(host, 0, &(gb_lua_change){.hook = hook}, err);
}
