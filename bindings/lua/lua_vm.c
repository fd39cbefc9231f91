#include "bindings/lua/lua_vm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <luajit.h>
#include <lualib.h>

#include "bindings/lua/embedded.h"
#include "core/base/assert.h"
#include "core/base/log.h"

enum {
    STACK_SLOTS = 128,
    TRACEBACK_LEVELS = 32,
    IDLE_STEP = 1,
    GARBAGE_WORTH_A_STEP = 64 * 1024,
};

/* ---- faults ---- */

typedef struct text {
    char *at;
    size_t left;    /* room including the terminator */
} text;

static void append(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at, t->left, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used;
    t->left -= used;
}

/* A frame that a script's author knows: Lua code outside the prelude. */
static bool is_authors(lua_State *L, lua_Debug *frame)
{
    lua_getinfo(L, "Sln", frame);
    return *frame->what != 'C' && strcmp(frame->source, "=prelude") != 0;
}

static bool first_authors_frame(lua_State *L, lua_Debug *frame)
{
    for (int level = 0; lua_getstack(L, level, frame); level++) {
        if (is_authors(L, frame)) return true;
    }
    return false;
}

/* "prelude:12: why" says nothing to an author. */
static const char *skip_prelude_position(const char *message)
{
    if (strncmp(message, "prelude:", 8) != 0) return message;
    const char *rest = message + 8 + strspn(message + 8, "0123456789");
    return strncmp(rest, ": ", 2) == 0 ? rest + 2 : message;
}

static void append_message(text *t, lua_State *L, int index)
{
    switch (lua_type(L, index)) {
    case LUA_TSTRING: append(t, "%s", skip_prelude_position(lua_tostring(L, index))); break;
    case LUA_TNUMBER: append(t, "%.14g", lua_tonumber(L, index)); break;
    case LUA_TNIL: append(t, "error without a message"); break;
    default: append(t, "error value is a %s; raise a text", luaL_typename(L, index));
    }
}

static void append_traceback(text *t, lua_State *L, const char *outermost)
{
    lua_Debug frame, next;
    for (int level = 0; level < TRACEBACK_LEVELS && lua_getstack(L, level, &frame); level++) {
        if (!is_authors(L, &frame)) continue;
        bool last = !lua_getstack(L, level + 1, &next);
        const char *name = frame.name ? frame.name : *frame.what == 'm' ? "the file itself" : last && outermost ? outermost : "a function";
        append(t, "\n  in %s (%s:%d)", name, frame.short_src, frame.currentline);
    }
}

static void append_why(text *t, const gb_lua_vm *vm, lua_State *L)
{
    switch ((gb_lua_stop)vm->guard.stopped) {
    case GB_LUA_GOES_ON: append_message(t, L, 1); break;
    case GB_LUA_OUT_OF_TIME:
        append(t, "time budget exceeded: %s may use %.4g ms of CPU time", vm->running, (double)vm->budget_ns / 1e6);
        break;
    case GB_LUA_OUT_OF_MEMORY: append(t, "memory budget exceeded: a policy may hold %zu MiB", vm->arena.cap_bytes >> 20); break;
    }
}

/* Message handler of every call: writes vm->fault without allocating, since memory may be what ran out. */
static int remember_fault(lua_State *L)
{
    gb_lua_vm *vm = lua_touserdata(L, lua_upvalueindex(1));
    text t = {vm->fault, sizeof vm->fault};
    lua_Debug frame;
    if (first_authors_frame(L, &frame)) {
        size_t n = strlen(frame.short_src);
        const char *message = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
        if (strncmp(message, frame.short_src, n) != 0 || message[n] != ':') append(&t, "%s:%d: ", frame.short_src, frame.currentline);
    }
    append_why(&t, vm, L);
    append_traceback(&t, L, vm->running);
    return 1;
}

static void out_of_memory(void *self) { gb_lua_guard_stop(&((gb_lua_vm *)self)->guard, GB_LUA_OUT_OF_MEMORY); }

/* LuaJIT tells a full stack, and the prelude a bad value, by their words alone. */
static gb_lua_fault_kind kind_of(const gb_lua_vm *vm, int status)
{
    gb_lua_stop stop = (gb_lua_stop)vm->guard.stopped;
    if (status == LUA_ERRMEM) return GB_LUA_FAULT_MEMORY;    /* no handler ran: the text says so, whatever stopped it besides */
    if (status == LUA_ERRERR) return GB_LUA_FAULT_STACK;
    if (stop == GB_LUA_OUT_OF_TIME) return GB_LUA_FAULT_TIME;
    if (stop == GB_LUA_OUT_OF_MEMORY) return GB_LUA_FAULT_MEMORY;
    if (strstr(vm->fault, ": stack overflow")) return GB_LUA_FAULT_STACK;
    return strstr(vm->fault, " must be a finite number") ? GB_LUA_FAULT_NAN : GB_LUA_FAULT_ERROR;
}

void gb_lua_vm_begin(gb_lua_vm *vm, const char *running, uint64_t budget_ns)
{
    vm->running = running;
    vm->budget_ns = budget_ns;
    vm->arena.alarm_bytes = vm->arena.cap_bytes / 10 * 9;
    gb_lua_guard_begin(&vm->guard, budget_ns + vm->extra_ns);
}

bool gb_lua_vm_step(gb_lua_vm *vm, int n_args, int n_results)
{
    vm->frame.pcalls = 0;
    int status = lua_pcall(vm->L, n_args, n_results, GB_LUA_HANDLER);
    if (status == 0) return true;
    if (status == LUA_ERRMEM)
        snprintf(vm->fault, sizeof vm->fault, "memory budget exceeded: a policy may hold %zu MiB, and one allocation in %s was too large for what was left",
                 vm->arena.cap_bytes >> 20, vm->running);
    if (status == LUA_ERRERR) snprintf(vm->fault, sizeof vm->fault, "stack overflow; what is left of the stack is too little to find the line");
    vm->fault_kind = kind_of(vm, status);
    lua_pop(vm->L, 1);
    return false;
}

void gb_lua_vm_end(gb_lua_vm *vm)
{
    gb_lua_guard_end(&vm->guard);
    vm->extra_ns = 0;
    vm->arena.alarm_bytes = SIZE_MAX;
}

bool gb_lua_vm_call(gb_lua_vm *vm, int n_args, int n_results, const char *running, uint64_t budget_ns)
{
    gb_lua_vm_begin(vm, running, budget_ns);
    bool ran = gb_lua_vm_step(vm, n_args, n_results);
    gb_lua_vm_end(vm);
    return ran;
}

/* ---- what the prelude gets ---- */

static void take_log_line(gb_lua_vm *vm, const char *line)
{
    gb_time now = (gb_time)vm->frame.now_ns;
    if (!vm->label[0]) return;    /* not in service: nothing to tell */
    if (vm->log.start == 0 || gb_time_since(vm->log.start, now) >= gb_seconds(1)) {
        if (vm->log.dropped) gb_log(GB_LOG_INFO, "policy %s: %u log lines were left out", vm->label, vm->log.dropped);
        vm->log = (gb_lua_log_window){.start = now ? now : 1};
    }
    if (vm->log.lines == GB_LUA_LOG_LINES) {
        vm->log.dropped++;
        return;
    }
    vm->log.lines++;
    char clean[GB_LUA_LOG_BYTES];
    size_t n = 0;
    for (; line[n] && n < sizeof clean - 1; n++) clean[n] = (unsigned char)line[n] < ' ' || line[n] == 127 ? ' ' : line[n];
    clean[n] = 0;
    gb_log(GB_LOG_INFO, "policy %s: %s", vm->label, clean);
}

/* The text of a shipped policy, or nil. */
static int host_shipped(lua_State *L)
{
    const gb_embedded_file *file = gb_embedded_find(lua_pushfstring(L, "lua/policies/%s.lua", luaL_checkstring(L, 1)));
    if (file) lua_pushlstring(L, file->data, file->bytes);
    else lua_pushnil(L);
    return 1;
}

static int host_log(lua_State *L)
{
    take_log_line(lua_touserdata(L, lua_upvalueindex(1)), luaL_checkstring(L, 1));
    return 0;
}

/* debug.setmetatable, the only function of that library that the prelude needs. */
static int host_set_metatable(lua_State *L)
{
    lua_settop(L, 2);
    lua_setmetatable(L, 1);
    return 0;
}

/* Called through the FFI, which the JIT compiles to a plain call. */
static double host_uniform(void *rng) { return gb_rng_uniform(rng); }

static void push_settings(lua_State *L, const gb_lua_vm_options *options)
{
    lua_createtable(L, 0, 2);
    lua_pushnumber(L, options->stale_after_ns);
    lua_setfield(L, -2, "stale_after_ns");
    lua_pushnumber(L, options->aging_ns);
    lua_setfield(L, -2, "aging_ns");
    lua_setfield(L, -2, "settings");
}

/* The prelude asks how many parameters a hook takes; nobody else gets anything of the debug library. */
static void push_getinfo(lua_State *L)
{
    lua_pushcfunction(L, luaopen_debug);
    lua_call(L, 0, 1);
    lua_getfield(L, -1, "getinfo");
    lua_remove(L, -2);
    lua_pushnil(L);
    lua_setglobal(L, LUA_DBLIBNAME);
}

static void push_host(lua_State *L, gb_lua_vm *vm, const gb_lua_vm_options *options)
{
    gb_lua_view_push(L);
    push_settings(L, options);
    lua_pushlightuserdata(L, &vm->frame);
    lua_setfield(L, -2, "frame");
    lua_pushlightuserdata(L, &vm->rng);
    lua_setfield(L, -2, "rng");
    lua_pushlightuserdata(L, (void *)(uintptr_t)host_uniform);
    lua_setfield(L, -2, "uniform");
    lua_pushcfunction(L, host_shipped);
    lua_setfield(L, -2, "shipped");
    lua_pushcfunction(L, host_set_metatable);
    lua_setfield(L, -2, "set_metatable");
    lua_pushlightuserdata(L, vm);
    lua_pushcclosure(L, host_log, 1);
    lua_setfield(L, -2, "log");
    lua_pushcfunction(L, luaopen_ffi);
    lua_call(L, 0, 1);
    lua_setfield(L, -2, "ffi");
    push_getinfo(L);
    lua_setfield(L, -2, "getinfo");
}

/* ---- life ---- */

static void open_library(lua_State *L, const char *name, lua_CFunction open)
{
    lua_pushcfunction(L, open);
    lua_pushstring(L, name);
    lua_call(L, 1, 0);
}

/* Opens what the prelude needs and fills the slots of the stack; io, os, package and debug are never opened. Without
   luaopen_jit nothing would be compiled. */
static int set_up(lua_State *L)
{
    gb_lua_vm *vm = lua_touserdata(L, 1);
    const gb_lua_vm_options *options = lua_touserdata(L, 2);
    lua_settop(L, 0);
    open_library(L, "", luaopen_base);
    open_library(L, LUA_TABLIBNAME, luaopen_table);
    open_library(L, LUA_STRLIBNAME, luaopen_string);
    open_library(L, LUA_MATHLIBNAME, luaopen_math);
    open_library(L, LUA_BITLIBNAME, luaopen_bit);
    open_library(L, LUA_JITLIBNAME, luaopen_jit);
    lua_pushlightuserdata(L, vm);
    lua_pushcclosure(L, remember_fault, 1);
    const gb_embedded_file *prelude = gb_embedded_find("bindings/lua/prelude.lua");
    GB_ASSERT(prelude);
    if (luaL_loadbufferx(L, prelude->data, prelude->bytes, "=prelude", "t")) lua_error(L);
    push_host(L, vm, options);
    lua_call(L, 1, GB_LUA_TOP - GB_LUA_HANDLER);
    return GB_LUA_TOP;
}

void gb_lua_vm_options_default(gb_lua_vm_options *options)
{
    *options = (gb_lua_vm_options){.memory_bytes = GB_LUA_MEMORY, .place_memory_bytes = GB_LUA_PLACE_MEMORY, .stale_after_ns = 1e9, .aging_ns = 5e9};
}

static bool start(gb_lua_vm *vm, const gb_lua_vm_options *options)
{
    lua_State *L = vm->L;
    lua_gc(L, LUA_GCSTOP, 0);
    gb_lua_guard_init(&vm->guard, L, &vm->arena, gb_lua_guard_prepare());
    vm->arena.alarm = out_of_memory;
    vm->arena.alarm_self = vm;
    if (!lua_checkstack(L, STACK_SLOTS)) return false;
    lua_pushcfunction(L, set_up);
    lua_pushlightuserdata(L, vm);
    lua_pushlightuserdata(L, (void *)(uintptr_t)options);
    return lua_pcall(L, 2, LUA_MULTRET, 0) == 0;
}

int gb_lua_vm_new(gb_lua_vm **out, const gb_lua_vm_options *options, gb_error *err)
{
    size_t mebibytes = options->memory_bytes >> 20;
    size_t most_bytes = options->memory_bytes > options->place_memory_bytes ? options->memory_bytes : options->place_memory_bytes;
    gb_lua_vm *vm = calloc(1, sizeof *vm);
    if (!vm || gb_lua_arena_init(&vm->arena, most_bytes) || !(vm->L = lua_newstate(gb_lua_arena_allocate, &vm->arena))) {
        gb_lua_vm_free(vm);
        return gb_fail(err, GB_ENOMEM, "out of memory for a policy VM of %zu MiB", mebibytes);
    }
    gb_lua_frame_clear(&vm->frame);
    gb_rng_init(&vm->rng, options->seed);
    if (!start(vm, options)) {
        const char *why = lua_type(vm->L, -1) == LUA_TSTRING ? lua_tostring(vm->L, -1) : "no room for a stack";
        gb_fail(err, GB_ENOMEM, "a policy VM of %zu MiB does not start: %s", mebibytes, why);
        gb_lua_vm_free(vm);
        return GB_ENOMEM;
    }
    GB_ASSERT(lua_gettop(vm->L) == GB_LUA_TOP);
    gb_lua_vm_limit(vm, options->memory_bytes);
    vm->settled_bytes = vm->arena.live_bytes;
    *out = vm;
    return GB_OK;
}

void gb_lua_vm_limit(gb_lua_vm *vm, size_t memory_bytes)
{
    gb_lua_arena_limit(&vm->arena, memory_bytes);
    vm->collect_at = memory_bytes / 4 * 3;
}

void gb_lua_vm_free(gb_lua_vm *vm)
{
    if (!vm) return;
    if (vm->L) lua_close(vm->L);
    gb_lua_arena_deinit(&vm->arena);
    free(vm);
}

int gb_lua_vm_compile(gb_lua_vm *vm, const char *chunk, const char *source, size_t bytes, gb_error *err)
{
    char name[512];
    snprintf(name, sizeof name, "@%s", chunk);
    int status = luaL_loadbufferx(vm->L, source, bytes, name, "t");
    if (status == 0) return GB_OK;
    gb_fail(err, GB_EPOLICY, "%s", status == LUA_ERRMEM ? "out of memory while compiling" : lua_tostring(vm->L, -1));
    lua_pop(vm->L, 1);
    return GB_EPOLICY;
}

/* ---- memory ---- */

/* A full collection starts the collector's own clock again, so it is stopped again. What stays alive moves the mark up: a
   script that holds much is not collected at every decision. */
static void collect(gb_lua_vm *vm)
{
    lua_gc(vm->L, LUA_GCCOLLECT, 0);
    lua_gc(vm->L, LUA_GCSTOP, 0);
    size_t live = vm->arena.live_bytes, cap = vm->arena.cap_bytes, mark = live + (cap - live) / 2;
    vm->collect_at = mark > cap / 4 * 3 ? mark : cap / 4 * 3;
    vm->settled_bytes = live;
}

void gb_lua_vm_relieve(gb_lua_vm *vm)
{
    if (vm->arena.live_bytes >= vm->collect_at) collect(vm);
}

void gb_lua_vm_idle(gb_lua_vm *vm)
{
    if (vm->arena.live_bytes < vm->settled_bytes + GARBAGE_WORTH_A_STEP) return;
    int finished = lua_gc(vm->L, LUA_GCSTEP, IDLE_STEP);
    lua_gc(vm->L, LUA_GCSTOP, 0);
    if (finished) vm->settled_bytes = vm->arena.live_bytes;
}
