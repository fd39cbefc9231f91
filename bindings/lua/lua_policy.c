#include "bindings/lua/lua_policy_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <luajit.h>

#include "core/base/assert.h"
#include "core/base/log.h"
#include "core/base/nearest.h"

void gb_lua_budgets_default(gb_lua_budgets *budgets)
{
    *budgets = (gb_lua_budgets){.hooks = {[GB_HOOK_SELECT] = gb_ms(2),
                                          [GB_HOOK_ORDER] = gb_ms(5),
                                          [GB_HOOK_SCORE] = gb_ms(250),
                                          [GB_HOOK_COST] = gb_ms(250)},
                                .load = gb_ms(100),
                                .carry = gb_ms(20),
                                .window = gb_ms(5),
                                .memory_bytes = GB_LUA_MEMORY,
                                .place_memory_bytes = GB_LUA_PLACE_MEMORY};
}

/* ---- making ---- */

/* A fault after a tail call has no line to name; it gets the file at least. Long names are cut by Lua, to "...end". */
static void place_fault(gb_lua_policy *policy)
{
    char *fault = policy->vm->fault, bare[GB_LUA_FAULT_BYTES];
    size_t n = strlen(policy->chunk);
    if (strncmp(fault, "...", 3) == 0 || (strncmp(fault, policy->chunk, n) == 0 && fault[n] == ':')) return;
    memcpy(bare, fault, sizeof bare);
    snprintf(fault, GB_LUA_FAULT_BYTES, "%s: %.*s", policy->chunk, (int)(sizeof bare - n - 3), bare);
}

static int refused(gb_lua_policy *policy, gb_error *err)
{
    place_fault(policy);
    return gb_fail(err, GB_EPOLICY, "%s", policy->vm->fault);
}

static bool call_file(gb_lua_policy *policy, int n_args, int n_results)
{
    return gb_lua_vm_call(policy->vm, n_args, n_results, "the file itself", policy->budgets.load);
}

/* Runs the file in a fresh environment and keeps its hooks in their slots. */
static int run_file(gb_lua_policy *policy, uint64_t seed, gb_error *err)
{
    gb_lua_vm *vm = policy->vm;
    lua_State *L = vm->L;
    gb_rng_init(&vm->rng, seed);
    lua_settop(L, GB_LUA_SLOT_FILE);
    lua_pushvalue(L, GB_LUA_SLOT_FILE);
    lua_pushvalue(L, GB_LUA_ENVIRONMENT);
    if (!call_file(policy, 0, 1)) return refused(policy, err);
    lua_setfenv(L, -2);
    if (!call_file(policy, 0, 1)) return refused(policy, err);
    lua_pushvalue(L, GB_LUA_CHECK);
    lua_insert(L, -2);
    if (!call_file(policy, 1, GB_LUA_CHECKED)) return refused(policy, err);
    if (lua_type(L, -GB_LUA_CHECKED) == LUA_TSTRING) snprintf(policy->name, sizeof policy->name, "%s", lua_tostring(L, -GB_LUA_CHECKED));
    lua_remove(L, -GB_LUA_CHECKED);
    GB_ASSERT(lua_gettop(L) == GB_LUA_SLOTS);
    policy->young[GB_HOOK_SELECT] = policy->young[GB_HOOK_ORDER] = GB_LUA_YOUNG_CALLS;
    policy->hooks[GB_HOOK_SELECT] = lua_isfunction(L, GB_LUA_SLOT_SELECT);
    policy->hooks[GB_HOOK_ORDER] = lua_isfunction(L, GB_LUA_SLOT_ORDER);
    policy->hooks[GB_HOOK_SCORE] = lua_isfunction(L, GB_LUA_SLOT_SCORE);
    policy->hooks[GB_HOOK_COST] = lua_isfunction(L, GB_LUA_SLOT_COST);
    return GB_OK;
}

static bool places(const gb_lua_policy *policy) { return policy->hooks[GB_HOOK_SCORE] || policy->hooks[GB_HOOK_COST]; }

static int require_a_hook(const gb_lua_policy *policy, gb_error *err)
{
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        if (policy->hooks[hook]) return GB_OK;
    }
    return gb_fail(err, GB_EPOLICY, "%s: the policy has no hook; give it " GB_HOOK_CHOICES, policy->chunk);
}

/* Tries the hooks on made-up tables, uncounted and unlogged. The traces that the JIT made of that run are specialised to its
   closures, so they go too. */
static int probe(gb_lua_policy *policy, uint32_t engines, gb_error *err)
{
    gb_lua_counts scratch = {0}, *counts = policy->counts;
    policy->counts = &scratch;
    policy->next_warning = GB_NEVER;
    int status = gb_lua_policy_probe(policy, engines, err);
    luaJIT_setmode(policy->vm->L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_FLUSH);
    policy->next_warning = 0;
    policy->counts = counts;
    return status;
}

int gb_lua_policy_new(gb_lua_policy **out, const gb_lua_script *script, gb_lua_counts *counts, gb_error *err)
{
    gb_lua_policy *policy = calloc(1, sizeof *policy);
    if (!policy) return gb_fail(err, GB_ENOMEM, "out of memory for policy %s", script->chunk);
    policy->counts = counts;
    policy->budgets = script->budgets;
    policy->chunk = script->chunk;
    int status = gb_lua_vm_new(&policy->vm, &script->vm, err);
    if (!status) status = gb_lua_vm_compile(policy->vm, script->chunk, script->source, script->bytes, err);
    if (!status) status = run_file(policy, script->vm.seed, err);
    if (!status && places(policy)) gb_lua_vm_limit(policy->vm, script->vm.place_memory_bytes);
    if (!status) status = require_a_hook(policy, err);
    if (!status && !script->shipped) {
        status = probe(policy, script->engines, err);
        if (!status) status = run_file(policy, script->vm.seed, err);
    }
    if (status) {
        gb_lua_policy_free(policy);
        return status;
    }
    *out = policy;
    return GB_OK;
}

void gb_lua_policy_free(gb_lua_policy *policy)
{
    if (!policy) return;
    gb_lua_vm_free(policy->vm);
    free(policy);
}

const char *gb_lua_policy_name(const gb_lua_policy *policy) { return policy->name; }
bool gb_lua_policy_has(const gb_lua_policy *policy, gb_hook hook) { return policy->hooks[hook]; }
gb_lua_vm *gb_lua_policy_vm(gb_lua_policy *policy) { return policy->vm; }

void gb_lua_policy_silence(gb_lua_policy *policy) { policy->next_warning = GB_NEVER; }

void gb_lua_policy_label(gb_lua_policy *policy, const char *name, uint32_t version)
{
    snprintf(policy->vm->label, sizeof policy->vm->label, "%s v%u", name, version);
}

/* ---- deciding ---- */

/* Counts the fault in vm->fault, and logs one a second. */
int gb_lua_policy_fault(gb_lua_policy *policy, gb_hook hook, gb_time now)
{
    gb_lua_vm *vm = policy->vm;
    place_fault(policy);
    policy->counts->faults++;
    policy->counts->faults_by[hook][vm->fault_kind]++;
    memcpy(policy->counts->last_fault, vm->fault, sizeof policy->counts->last_fault);
    if (now >= policy->next_warning) {
        policy->next_warning = now + gb_seconds(1);
        gb_log(GB_LOG_WARN, "policy %s failed, the built-in decided: %s", vm->label, vm->fault);
    }
    return GB_POLICY_FAULT;
}

int gb_lua_policy_bad_answer(gb_lua_policy *policy, gb_lua_complaint about, const char *format, ...)
{
    gb_lua_vm *vm = policy->vm;
    vm->fault_kind = about.kind;
    int n = snprintf(vm->fault, sizeof vm->fault, "%s: ", policy->chunk);
    va_list args;
    va_start(args, format);
    vsnprintf(vm->fault + n, sizeof vm->fault - (size_t)n, format, args);
    va_end(args);
    return gb_lua_policy_fault(policy, about.hook, about.now);
}

int gb_lua_policy_no_opinion(gb_lua_policy *policy)
{
    policy->counts->nils++;
    return GB_POLICY_NIL;
}

/* The value on top of the stack as an engine. */
static int engine_answer(gb_lua_policy *policy, const gb_engine_table *engines, gb_time now)
{
    lua_State *L = policy->vm->L;
    switch (lua_type(L, -1)) {
    case LUA_TNIL: return gb_lua_policy_no_opinion(policy);
    case LUA_TNUMBER: break;
    default:
        return gb_lua_policy_bad_answer(policy, (gb_lua_complaint){GB_HOOK_SELECT, GB_LUA_FAULT_TYPE, now},
                          "select_engine returned a %s; it must return an engine number or nil", lua_typename(L, lua_type(L, -1)));
    }
    double answer = lua_tonumber(L, -1);
    gb_lua_fault_kind kind = isnan(answer) ? GB_LUA_FAULT_NAN : GB_LUA_FAULT_RANGE;
    if (!(answer >= 0 && answer < engines->n) || answer != floor(answer))
        return gb_lua_policy_bad_answer(policy, (gb_lua_complaint){GB_HOOK_SELECT, kind, now}, "select_engine returned %.14g; engines are 0..%u", answer, engines->n - 1);
    if (engines->healthy[(int)answer] != 0) return (int)answer;
    return gb_lua_policy_bad_answer(policy, (gb_lua_complaint){GB_HOOK_SELECT, GB_LUA_FAULT_DOWN, now},
                                    "select_engine returned %d, an engine that is down; look at engines.healthy[i]", (int)answer);
}

static void be_patient(gb_lua_policy *policy, gb_hook hook)
{
    if (policy->young[hook] == 0) return;
    policy->young[hook]--;
    policy->vm->extra_ns = gb_ms(GB_LUA_YOUNG_EXTRA_MS);
}

int gb_lua_policy_select(void *self, const gb_request_row *request, const gb_engine_table *engines, gb_time now)
{
    gb_lua_policy *policy = self;
    gb_lua_vm *vm = policy->vm;
    lua_State *L = vm->L;
    policy->counts->calls++;
    vm->frame.engines = engines;
    vm->frame.request = request;
    vm->frame.now_ns = (double)now;
    be_patient(policy, GB_HOOK_SELECT);
    lua_pushvalue(L, GB_LUA_SLOT_SELECT);
    lua_pushvalue(L, GB_LUA_REQUEST);
    lua_pushvalue(L, GB_LUA_ENGINES);
    bool ran = gb_lua_vm_call(vm, 2, 1, gb_hook_name(GB_HOOK_SELECT), policy->budgets.hooks[GB_HOOK_SELECT]);
    int answer = ran ? engine_answer(policy, engines, now) : gb_lua_policy_fault(policy, GB_HOOK_SELECT, now);
    lua_settop(L, GB_LUA_SLOTS);
    gb_lua_frame_clear(&vm->frame);
    gb_lua_vm_relieve(vm);
    return answer;
}

/* A key that the script did not write is still NaN; a script that wrote none has no opinion. */
static int keys_answer(gb_lua_policy *policy, const gb_queue_table *queue, gb_time now)
{
    lua_State *L = policy->vm->L;
    if (!lua_isnil(L, -1))
        return gb_lua_policy_bad_answer(policy, (gb_lua_complaint){GB_HOOK_ORDER, GB_LUA_FAULT_TYPE, now}, "order_queue returned a %s; it must fill queue.key[i] and return nothing", lua_typename(L, lua_type(L, -1)));
    uint32_t missing = 0, first = 0;
    for (uint32_t i = queue->n; i-- > 0;) {
        if (!isnan(queue->key[i])) continue;
        missing++;
        first = i;
    }
    if (missing == 0) return GB_OK;
    if (missing == queue->n) return gb_lua_policy_no_opinion(policy);
    return gb_lua_policy_bad_answer(policy, (gb_lua_complaint){GB_HOOK_ORDER, GB_LUA_FAULT_NAN, now}, "order_queue left %u of %u keys unset, the first of them queue.key[%u]", missing, queue->n, first);
}

int gb_lua_policy_order(void *self, gb_queue_table *queue, gb_time now)
{
    gb_lua_policy *policy = self;
    gb_lua_vm *vm = policy->vm;
    lua_State *L = vm->L;
    policy->counts->calls++;
    vm->frame.queue = queue;
    vm->frame.now_ns = (double)now;
    for (uint32_t i = 0; i < queue->n; i++) queue->key[i] = NAN;
    be_patient(policy, GB_HOOK_ORDER);
    lua_pushvalue(L, GB_LUA_SLOT_ORDER);
    lua_pushvalue(L, GB_LUA_QUEUE);
    bool ran = gb_lua_vm_call(vm, 1, 1, gb_hook_name(GB_HOOK_ORDER), policy->budgets.hooks[GB_HOOK_ORDER]);
    int answer = ran ? keys_answer(policy, queue, now) : gb_lua_policy_fault(policy, GB_HOOK_ORDER, now);
    lua_settop(L, GB_LUA_SLOTS);
    gb_lua_frame_clear(&vm->frame);
    gb_lua_vm_relieve(vm);
    return answer;
}

/* ---- params ---- */

static bool read_value(gb_lua_value *value, lua_State *L, int index)
{
    *value = (gb_lua_value){0};
    switch (lua_type(L, index)) {
    case LUA_TNUMBER:
        value->type = GB_LUA_NUMBER;
        value->number = lua_tonumber(L, index);
        return true;
    case LUA_TBOOLEAN:
        value->type = GB_LUA_BOOLEAN;
        value->boolean = lua_toboolean(L, index);
        return true;
    case LUA_TSTRING:
        value->type = GB_LUA_TEXT;
        snprintf(value->text, sizeof value->text, "%s", lua_tostring(L, index));
        return true;
    default:
        return false;
    }
}

/* The smallest name above `after` (NULL: of all), with its value. */
static bool param_after(lua_State *L, const char *after, char name[GB_LUA_NAME_MAX + 1], gb_lua_value *value)
{
    const char *best = NULL;
    if (!lua_istable(L, GB_LUA_SLOT_PARAMS)) return false;
    lua_pushnil(L);
    while (lua_next(L, GB_LUA_SLOT_PARAMS)) {
        gb_lua_value candidate;
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        if (key && strlen(key) <= GB_LUA_NAME_MAX && (!after || strcmp(key, after) > 0) && (!best || strcmp(key, best) < 0) &&
            read_value(&candidate, L, -1)) {
            best = key;
            *value = candidate;
        }
        lua_pop(L, 1);
    }
    if (best) snprintf(name, GB_LUA_NAME_MAX + 1, "%s", best);
    return best != NULL;
}

bool gb_lua_policy_param(gb_lua_policy *policy, uint32_t index, char name[GB_LUA_NAME_MAX + 1], gb_lua_value *value)
{
    char after[GB_LUA_NAME_MAX + 1];
    bool found = param_after(policy->vm->L, NULL, name, value);
    while (found && index-- > 0) {
        memcpy(after, name, sizeof after);
        found = param_after(policy->vm->L, after, name, value);
    }
    return found;
}

static int unknown_param(gb_lua_policy *policy, const char *name, gb_error *err)
{
    enum { OFFERED = 32 };
    char names[OFFERED][GB_LUA_NAME_MAX + 1];
    gb_lua_value value;
    gb_nearest nearest = gb_nearest_to(name);
    for (uint32_t i = 0; i < OFFERED && gb_lua_policy_param(policy, i, names[i], &value); i++) gb_nearest_offer(&nearest, names[i]);
    const char *found = gb_nearest_found(&nearest);
    return gb_fail(err, GB_ENOTFOUND, "policy %s has no param \"%.64s\"%s%s%s", policy->vm->label, name,
                   found ? "; did you mean " : "", found ? found : "", found ? "?" : "; policy_status shows them all");
}

static void push_value(lua_State *L, const gb_lua_value *value)
{
    switch (value->type) {
    case GB_LUA_NUMBER:
        lua_pushnumber(L, value->number);
        break;
    case GB_LUA_BOOLEAN:
        lua_pushboolean(L, value->boolean);
        break;
    case GB_LUA_TEXT:
        lua_pushstring(L, value->text);
        break;
    }
}

/* (params, name, value), called protected, since a string needs memory. */
static int raw_set(lua_State *L)
{
    lua_pushstring(L, lua_touserdata(L, 2));
    push_value(L, lua_touserdata(L, 3));
    lua_rawset(L, 1);
    return 0;
}

int gb_lua_policy_set_param(gb_lua_policy *policy, const char *name, const gb_lua_value *value, gb_error *err)
{
    static const char *const type_names[] = {"a number", "a boolean", "a string"};
    lua_State *L = policy->vm->L;
    gb_lua_value old = {0};
    char known[GB_LUA_NAME_MAX + 1];
    bool found = false;
    for (uint32_t i = 0; !found && gb_lua_policy_param(policy, i, known, &old); i++) found = strcmp(known, name) == 0;
    if (!found) return unknown_param(policy, name, err);
    if (old.type != value->type)
        return gb_fail(err, GB_EINVAL, "params.%s of policy %s is %s, not %s", name, policy->vm->label, type_names[old.type],
                       type_names[value->type]);
    if (value->type == GB_LUA_NUMBER && !isfinite(value->number))
        return gb_fail(err, GB_EINVAL, "params.%s must be a finite number", name);
    lua_pushcfunction(L, raw_set);
    lua_pushvalue(L, GB_LUA_SLOT_PARAMS);
    lua_pushlightuserdata(L, (void *)(uintptr_t)name);
    lua_pushlightuserdata(L, (void *)(uintptr_t)value);
    bool done = gb_lua_vm_call(policy->vm, 3, 0, "params", policy->budgets.carry);
    return done ? GB_OK : refused(policy, err);
}

void gb_lua_policy_keep_params(gb_lua_policy *policy, gb_lua_snapshot *snapshot)
{
    char name[GB_LUA_NAME_MAX + 1];
    gb_lua_value value;
    uint32_t n = 0;
    while (n < GB_LUA_SNAPSHOT_PARAMS_MAX && gb_lua_policy_param(policy, n, name, &value)) n++;
    snapshot->n_params = 0;
    if (!n || !(snapshot->params = GB_ARENA_NEW(&snapshot->arena, gb_lua_setting, n))) return;
    for (uint32_t i = 0; i < n; i++) {
        gb_lua_setting *setting = &snapshot->params[snapshot->n_params];
        gb_lua_policy_param(policy, i, setting->name, &setting->value);
        if (setting->value.type != GB_LUA_NUMBER || isfinite(setting->value.number)) snapshot->n_params++;
    }
}

int gb_lua_policy_restore_params(gb_lua_policy *policy, const gb_lua_snapshot *snapshot, gb_error *err)
{
    int first = GB_OK;
    for (uint32_t i = 0; i < snapshot->n_params; i++) {
        int status = gb_lua_policy_set_param(policy, snapshot->params[i].name, &snapshot->params[i].value, first ? NULL : err);
        if (!first) first = status;
    }
    return first;
}

/* ---- state that is handed on ---- */

bool gb_lua_policy_exports(const gb_lua_policy *policy) { return lua_isfunction(policy->vm->L, GB_LUA_SLOT_EXPORT); }
bool gb_lua_policy_imports(const gb_lua_policy *policy) { return lua_isfunction(policy->vm->L, GB_LUA_SLOT_IMPORT); }

int gb_lua_policy_export(gb_lua_policy *policy, bool *exported, gb_lua_carry *carry, gb_error *err)
{
    lua_State *L = policy->vm->L;
    *exported = false;
    if (!lua_isfunction(L, GB_LUA_SLOT_EXPORT)) return GB_OK;
    lua_pushvalue(L, GB_LUA_SLOT_EXPORT);
    if (!gb_lua_vm_call(policy->vm, 0, 1, "export", policy->budgets.carry)) return refused(policy, err);
    gb_error why = {0};
    *exported = !lua_isnil(L, -1);
    int status = *exported ? gb_lua_carry_take(carry, L, &why) : GB_OK;
    lua_settop(L, GB_LUA_SLOTS);
    return status ? gb_fail(err, status, "%s: export: %s", policy->chunk, why.text) : GB_OK;
}

/* (import, carry, version) */
static int push_and_import(lua_State *L)
{
    lua_pushvalue(L, 1);
    gb_lua_carry_push(lua_touserdata(L, 2), L);
    lua_pushvalue(L, 3);
    lua_call(L, 2, 0);
    return 0;
}

int gb_lua_policy_import(gb_lua_policy *policy, const gb_lua_carry *carry, uint32_t from_version, gb_error *err)
{
    lua_State *L = policy->vm->L;
    if (!lua_isfunction(L, GB_LUA_SLOT_IMPORT)) return GB_OK;
    lua_pushcfunction(L, push_and_import);
    lua_pushvalue(L, GB_LUA_SLOT_IMPORT);
    lua_pushlightuserdata(L, (void *)(uintptr_t)carry);
    lua_pushnumber(L, from_version);
    return gb_lua_vm_call(policy->vm, 3, 0, "import", policy->budgets.carry) ? GB_OK : refused(policy, err);
}

/* ---- windows ---- */

bool gb_lua_policy_wants_windows(const gb_lua_policy *policy) { return lua_isfunction(policy->vm->L, GB_LUA_SLOT_ON_WINDOW); }

int gb_lua_policy_window(gb_lua_policy *policy, const gb_window_table *window, gb_time now, gb_error *err)
{
    gb_lua_vm *vm = policy->vm;
    vm->frame.window = window;
    vm->frame.now_ns = (double)now;
    lua_pushvalue(vm->L, GB_LUA_SLOT_ON_WINDOW);
    lua_pushvalue(vm->L, GB_LUA_WINDOW);
    bool ran = gb_lua_vm_call(vm, 1, 0, "on_window", policy->budgets.window);
    gb_lua_frame_clear(&vm->frame);
    gb_lua_vm_relieve(vm);
    return ran ? GB_OK : refused(policy, err);
}

/* ---- trying ---- */

static int decide(gb_lua_policy *policy, gb_lua_snapshot *snapshot)
{
    gb_tables *tables = &snapshot->tables;
    switch (snapshot->hook) {
    case GB_HOOK_SELECT: return gb_lua_policy_select(policy, &tables->request, &tables->engines, snapshot->now);
    case GB_HOOK_ORDER: return gb_lua_policy_order(policy, &tables->queue, snapshot->now);
    case GB_HOOK_SCORE:
    case GB_HOOK_COST: return gb_lua_policy_place(policy, snapshot->hook, &snapshot->rearrangement, snapshot->now);
    case GB_HOOKS: break;
    }
    GB_UNREACHABLE();
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void gb_lua_policy_try(gb_lua_policy *policy, gb_lua_snapshot *snapshot, gb_lua_trial *trial)
{
    gb_lua_vm *vm = policy->vm;
    gb_lua_counts scratch = {0}, *counts = policy->counts;
    gb_time next_warning = policy->next_warning;
    gb_rng rng = vm->rng;
    policy->counts = &scratch;
    policy->next_warning = GB_NEVER;
    vm->rng = snapshot->rng;
    size_t live = vm->arena.live_bytes;
    uint64_t start = thread_cpu_ns();
    trial->answer = decide(policy, snapshot);
    trial->cpu_ns = thread_cpu_ns() - start;
    trial->allocated_bytes = vm->arena.live_bytes > live ? vm->arena.live_bytes - live : 0;
    trial->fault_kind = vm->fault_kind;
    memcpy(trial->fault, scratch.last_fault, sizeof trial->fault);
    vm->rng = rng;
    policy->next_warning = next_warning;
    policy->counts = counts;
}
