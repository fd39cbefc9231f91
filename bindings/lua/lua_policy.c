#include "bindings/lua/lua_policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <luajit.h>

#include "core/base/assert.h"
#include "core/base/log.h"

/* Above the slots of the VM: the compiled file, then the hooks (nil when absent). */
enum { SLOT_FILE = GB_LUA_TOP + 1, SLOT_SELECT, SLOT_ORDER, SLOTS = SLOT_ORDER };

struct gb_lua_policy {
    gb_lua_vm *vm;
    gb_lua_counts *counts;
    gb_lua_budgets budgets;
    const char *chunk;
    char name[256];
    bool hooks[GB_HOOKS];
    gb_time next_warning;
};

void gb_lua_budgets_default(gb_lua_budgets *budgets)
{
    *budgets = (gb_lua_budgets){.hooks = {[GB_HOOK_SELECT] = gb_ms(2), [GB_HOOK_ORDER] = gb_ms(5)}, .load = gb_ms(100)};
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
    lua_settop(L, SLOT_FILE);
    lua_pushvalue(L, SLOT_FILE);
    lua_pushvalue(L, GB_LUA_ENVIRONMENT);
    if (!call_file(policy, 0, 1)) return refused(policy, err);
    lua_setfenv(L, -2);
    if (!call_file(policy, 0, 1)) return refused(policy, err);
    lua_pushvalue(L, GB_LUA_CHECK);
    lua_insert(L, -2);
    if (!call_file(policy, 1, 3)) return refused(policy, err);
    if (lua_type(L, -3) == LUA_TSTRING) snprintf(policy->name, sizeof policy->name, "%s", lua_tostring(L, -3));
    lua_remove(L, -3);
    GB_ASSERT(lua_gettop(L) == SLOTS);
    policy->hooks[GB_HOOK_SELECT] = lua_isfunction(L, SLOT_SELECT);
    policy->hooks[GB_HOOK_ORDER] = lua_isfunction(L, SLOT_ORDER);
    return GB_OK;
}

static int require_a_hook(const gb_lua_policy *policy, gb_error *err)
{
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        if (policy->hooks[hook]) return GB_OK;
    }
    return gb_fail(err, GB_EPOLICY, "%s: the policy has no hook; give it select_engine or order_queue", policy->chunk);
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
    if (!status) status = require_a_hook(policy, err);
    if (!status) status = probe(policy, script->engines, err);
    if (!status) status = run_file(policy, script->vm.seed, err);
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

void gb_lua_policy_label(gb_lua_policy *policy, const char *name, uint32_t version)
{
    snprintf(policy->vm->label, sizeof policy->vm->label, "%s v%u", name, version);
}

/* ---- deciding ---- */

/* Counts the fault in vm->fault, and logs one a second. */
static int fault(gb_lua_policy *policy, gb_hook hook, gb_time now)
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

typedef struct complaint {
    gb_hook hook;
    gb_lua_fault_kind kind;
    gb_time now;
} complaint;

static int bad_answer(gb_lua_policy *policy, complaint about, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int bad_answer(gb_lua_policy *policy, complaint about, const char *format, ...)
{
    gb_lua_vm *vm = policy->vm;
    vm->fault_kind = about.kind;
    int n = snprintf(vm->fault, sizeof vm->fault, "%s: ", policy->chunk);
    va_list args;
    va_start(args, format);
    vsnprintf(vm->fault + n, sizeof vm->fault - (size_t)n, format, args);
    va_end(args);
    return fault(policy, about.hook, about.now);
}

static int opinion_nil(gb_lua_policy *policy)
{
    policy->counts->nils++;
    return GB_POLICY_NIL;
}

/* The value on top of the stack as an engine. */
static int engine_answer(gb_lua_policy *policy, uint32_t engines, gb_time now)
{
    lua_State *L = policy->vm->L;
    switch (lua_type(L, -1)) {
    case LUA_TNIL: return opinion_nil(policy);
    case LUA_TNUMBER: break;
    default:
        return bad_answer(policy, (complaint){GB_HOOK_SELECT, GB_LUA_FAULT_TYPE, now},
                          "select_engine returned a %s; it must return an engine number or nil", lua_typename(L, lua_type(L, -1)));
    }
    double answer = lua_tonumber(L, -1);
    gb_lua_fault_kind kind = isnan(answer) ? GB_LUA_FAULT_NAN : GB_LUA_FAULT_RANGE;
    if (!(answer >= 0 && answer < engines) || answer != floor(answer))
        return bad_answer(policy, (complaint){GB_HOOK_SELECT, kind, now}, "select_engine returned %.14g; engines are 0..%u", answer, engines - 1);
    return (int)answer;
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
    lua_pushvalue(L, SLOT_SELECT);
    lua_pushvalue(L, GB_LUA_REQUEST);
    lua_pushvalue(L, GB_LUA_ENGINES);
    bool ran = gb_lua_vm_call(vm, 2, 1, gb_hook_name(GB_HOOK_SELECT), policy->budgets.hooks[GB_HOOK_SELECT]);
    int answer = ran ? engine_answer(policy, engines->n, now) : fault(policy, GB_HOOK_SELECT, now);
    lua_settop(L, SLOTS);
    gb_lua_frame_clear(&vm->frame);
    gb_lua_vm_relieve(vm);
    return answer;
}

/* A key that the script did not write is still NaN; a script that wrote none has no opinion. */
static int keys_answer(gb_lua_policy *policy, const gb_queue_table *queue, gb_time now)
{
    lua_State *L = policy->vm->L;
    if (!lua_isnil(L, -1))
        return bad_answer(policy, (complaint){GB_HOOK_ORDER, GB_LUA_FAULT_TYPE, now}, "order_queue returned a %s; it must fill queue.key[i] and return nothing", lua_typename(L, lua_type(L, -1)));
    uint32_t missing = 0, first = 0;
    for (uint32_t i = queue->n; i-- > 0;) {
        if (!isnan(queue->key[i])) continue;
        missing++;
        first = i;
    }
    if (missing == 0) return GB_OK;
    if (missing == queue->n) return opinion_nil(policy);
    return bad_answer(policy, (complaint){GB_HOOK_ORDER, GB_LUA_FAULT_NAN, now}, "order_queue left %u of %u keys unset, the first of them queue.key[%u]", missing, queue->n, first);
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
    lua_pushvalue(L, SLOT_ORDER);
    lua_pushvalue(L, GB_LUA_QUEUE);
    bool ran = gb_lua_vm_call(vm, 1, 1, gb_hook_name(GB_HOOK_ORDER), policy->budgets.hooks[GB_HOOK_ORDER]);
    int answer = ran ? keys_answer(policy, queue, now) : fault(policy, GB_HOOK_ORDER, now);
    lua_settop(L, SLOTS);
    gb_lua_frame_clear(&vm->frame);
    gb_lua_vm_relieve(vm);
    return answer;
}

/* ---- trying ---- */

static int decide(gb_lua_policy *policy, gb_lua_snapshot *snapshot)
{
    gb_tables *tables = &snapshot->tables;
    if (snapshot->hook == GB_HOOK_SELECT) return gb_lua_policy_select(policy, &tables->request, &tables->engines, snapshot->now);
    return gb_lua_policy_order(policy, &tables->queue, snapshot->now);
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
