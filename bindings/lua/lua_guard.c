#include "bindings/lua/lua_guard.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <lauxlib.h>
#include <luajit.h>
#include <lualib.h>

#include "core/base/log.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid    /* glibc before 2.38 has the field without the name */
#endif

/* ThreadSanitizer holds signals back until one of its own calls, and compiled Lua makes none. */
#if defined(__SANITIZE_THREAD__)
#define SIGNALS_ARE_HELD_BACK true
#elif defined(__has_feature)
#define SIGNALS_ARE_HELD_BACK __has_feature(thread_sanitizer)
#else
#define SIGNALS_ARE_HELD_BACK false
#endif

enum {
    TICK_NS = 1000 * 1000,          /* of the thread's CPU time; the kernel rounds it up to its own tick */
    IDLE_TICKS = 25,                /* without a call: the timer pauses */
    HOOK_PROFILE = 0x80,            /* LuaJIT's bit in the hook mask */
    TRIAL_BUDGET_NS = 1000 * 1000,
    TRIAL_PATIENCE_MS = 2000,
};

/* ---- ticks ---- */

/* The thread's timer and the call it watches. Written by the thread and by its own signal handler, never by another. */
static _Thread_local struct watch {
    timer_t timer;
    volatile sig_atomic_t ticking;
    bool has_timer;
    gb_lua_guard *volatile running;
    volatile uint32_t call;         /* number of the running call */
    uint32_t seen_call;             /* the call that the latest tick saw, and the CPU time then */
    uint64_t seen_ns;
    unsigned idle_ticks;
} watch;

static pthread_key_t watch_key;    /* deletes the timer with its thread */
static const struct itimerspec every_tick = {{0, TICK_NS}, {0, TICK_NS}}, never;

static uint64_t thread_cpu_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void tick_without_a_call(void)
{
    if (++watch.idle_ticks < IDLE_TICKS) return;
    watch.ticking = 0;
    timer_settime(watch.timer, 0, &never, NULL);
}

static void tick_in_a_call(gb_lua_guard *guard)
{
    watch.idle_ticks = 0;
    uint64_t now_ns = thread_cpu_ns();
    if (watch.seen_call != watch.call) {
        watch.seen_call = watch.call;
        watch.seen_ns = now_ns;
    } else if (now_ns - watch.seen_ns >= guard->budget_ns) {
        gb_lua_guard_stop(guard, GB_LUA_OUT_OF_TIME);
    }
}

static void on_tick(int signal)
{
    (void)signal;
    int saved = errno;
    if (watch.running) tick_in_a_call(watch.running);
    else tick_without_a_call();
    errno = saved;
}

static void delete_timer(void *timer) { timer_delete(*(timer_t *)timer); }

static bool make_timer(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = GB_LUA_GUARD_SIGNAL};
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, GB_LUA_GUARD_SIGNAL);
    pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &watch.timer)) return false;
    pthread_setspecific(watch_key, &watch.timer);
    watch.has_timer = true;
    return true;
}

static void start_ticking(void)
{
    if (!watch.has_timer && !make_timer()) return;
    watch.idle_ticks = 0;
    watch.ticking = 1;
    timer_settime(watch.timer, 0, &every_tick, NULL);
}

/* ---- stopping ---- */

static void raise_stop(lua_State *L, lua_Debug *where)
{
    (void)where;
    lua_pushliteral(L, "stopped");
    lua_error(L);
}

/* As luajit.c does for Ctrl-C: setting a hook is all that may be done to a running state from outside. The hook stays until
   the call has ended, so that a script that catches the error meets it again at once. */
void gb_lua_guard_stop(gb_lua_guard *guard, gb_lua_stop why)
{
    if (guard->stopped == GB_LUA_GOES_ON) guard->stopped = why;
    lua_sethook(guard->L, NULL, 0, 0);
    lua_sethook(guard->L, raise_stop, LUA_MASKCOUNT, 1);
    if (guard->hook_mask) *guard->hook_mask |= HOOK_PROFILE;
}

void gb_lua_guard_begin(gb_lua_guard *guard, uint64_t budget_ns)
{
    guard->budget_ns = budget_ns;
    watch.call++;
    watch.running = guard;
    if (!watch.ticking) start_ticking();
}

gb_lua_stop gb_lua_guard_end(gb_lua_guard *guard)
{
    watch.running = NULL;
    gb_lua_stop why = (gb_lua_stop)guard->stopped;
    if (why == GB_LUA_GOES_ON) return why;
    lua_sethook(guard->L, NULL, 0, 0);
    if (guard->hook_mask) *guard->hook_mask &= (uint8_t)~HOOK_PROFILE;
    guard->stopped = GB_LUA_GOES_ON;
    return why;
}

/* ---- a state that can be interrupted ---- */

/* LuaJIT keeps the hook mask in its first allocation, at a place it does not tell: it is the one byte there that follows every
   mask we set. */
static volatile uint8_t *find_hook_mask(lua_State *L, volatile uint8_t *first, size_t bytes)
{
    static const uint8_t masks[] = {8, 4, 2, 1, 13, 0};
    bool *strays = calloc(bytes, sizeof *strays);
    if (!strays) return NULL;
    for (size_t m = 0; m < sizeof masks; m++) {
        lua_sethook(L, masks[m] ? raise_stop : NULL, masks[m], 1 << 20);
        for (size_t i = 0; i < bytes; i++) strays[i] |= first[i] != masks[m];
    }
    volatile uint8_t *found = NULL;
    size_t candidates = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (strays[i]) continue;
        found = first + i;
        candidates++;
    }
    free(strays);
    return candidates == 1 ? found : NULL;
}

static void ignore_sample(void *data, lua_State *L, int samples, int vm_state)
{
    (void)data, (void)L, (void)samples, (void)vm_state;
}

void gb_lua_guard_init(gb_lua_guard *guard, lua_State *L, const gb_lua_arena *arena, gb_lua_interrupts interrupts)
{
    *guard = (gb_lua_guard){.L = L};
    if (interrupts == GB_LUA_IRPROF) {
        guard->hook_mask = find_hook_mask(L, arena->first, arena->first_bytes);
        luaJIT_profile_start(L, "l", ignore_sample, NULL);
    }
    bool compiles = interrupts == GB_LUA_IRPROF ? guard->hook_mask != NULL : interrupts == GB_LUA_CHECKHOOK;
    if (!compiles) luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
}

/* ---- once a process ---- */

/* The profiler belongs to one state of the process; the others only get its line checks. So an idle state owns it for good, and
   its own timer and signal are put back as they were. */
static void own_the_profiler(void)
{
    static lua_State *owner;
    struct itimerval timer;
    struct sigaction action;
    getitimer(ITIMER_PROF, &timer);
    sigaction(SIGPROF, NULL, &action);
    owner = luaL_newstate();
    if (!owner) return;
    luaJIT_profile_start(owner, "i100000000", ignore_sample, NULL);
    setitimer(ITIMER_PROF, &timer, NULL);
    sigaction(SIGPROF, &action, NULL);
}

static void install_handler(void)
{
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(GB_LUA_GUARD_SIGNAL, &action, NULL);
}

/* In the child: an endless loop, compiled, has to end with our error. */
static bool stops_an_endless_loop(gb_lua_interrupts interrupts)
{
    static const char loop[] = "local n = 0 while true do n = n + 1 end";
    gb_lua_arena arena;
    gb_lua_guard guard;
    if (gb_lua_arena_init(&arena, 16 << 20)) return false;
    lua_State *L = lua_newstate(gb_lua_arena_allocate, &arena);
    if (!L) return false;
    gb_lua_guard_init(&guard, L, &arena, interrupts);
    lua_cpcall(L, luaopen_jit, NULL);
    if (luaL_loadbuffer(L, loop, sizeof loop - 1, "=loop")) return false;
    gb_lua_guard_begin(&guard, TRIAL_BUDGET_NS);
    if (!watch.ticking) return false;
    int status = lua_pcall(L, 0, 0, 0);
    return gb_lua_guard_end(&guard) == GB_LUA_OUT_OF_TIME && status == LUA_ERRRUN;
}

static bool works_in_a_child(gb_lua_interrupts interrupts)
{
    pid_t child = fork();
    if (child == 0) {
        watch = (struct watch){0};    /* a child inherits no timers */
        _exit(stops_an_endless_loop(interrupts) ? 0 : 1);
    }
    if (child < 0) return false;
    int status = 0;
    for (int ms = 0; ms < TRIAL_PATIENCE_MS; ms++) {
        pid_t done = waitpid(child, &status, WNOHANG);
        if (done == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (done < 0 && errno != EINTR) return false;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return false;
}

static gb_lua_interrupts chosen = GB_LUA_NO_INTERRUPTS;

static void choose(void)
{
    pthread_key_create(&watch_key, delete_timer);
    install_handler();
    own_the_profiler();
    gb_lua_interrupts next = SIGNALS_ARE_HELD_BACK ? GB_LUA_NO_INTERRUPTS : GB_LUA_IRPROF;
    while (next < GB_LUA_NO_INTERRUPTS && !works_in_a_child(next)) next++;
    chosen = next;
    gb_log(chosen == GB_LUA_IRPROF ? GB_LOG_INFO : GB_LOG_WARN, "policies: %s, interrupts by %s", LUAJIT_VERSION,
           gb_lua_interrupts_name(chosen));
}

gb_lua_interrupts gb_lua_guard_prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}

const char *gb_lua_interrupts_name(gb_lua_interrupts interrupts)
{
    static const char *const names[] = {"irprof", "checkhook", "interp", "none"};
    return names[interrupts];
}
