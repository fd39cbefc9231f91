#define _GNU_SOURCE    /* CPU_ALLOC */
#include "core/cpu/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/assert.h"

enum {
    SPIN_NS = 100 * 1000,       /* how long an idle thread waits awake: longer than the gap between two steps of a layer */
    PAUSES_PER_LOOK = 32,       /* pauses between two looks at the clock */
    CACHE_LINE = 64,
    PATH_BYTES = 4096,
};

typedef struct worker {
    struct gb_threads *pool;
    pthread_t handle;
    uint32_t index;
} worker;

/* `ticket` is the job in one word: its number (high half) and the items not yet handed out (low half). A thread takes a chunk
   by lowering the low half; success means the job it has read is still the current one, so the fields below, which change
   only between jobs, belong to it. Whoever finishes the last item wakes the caller if it sleeps. */
struct gb_threads {
    _Alignas(CACHE_LINE) _Atomic uint64_t ticket;
    _Alignas(CACHE_LINE) _Atomic uint32_t done;
    _Alignas(CACHE_LINE) _Atomic(gb_threads_body *) body;
    _Atomic(void *) self;
    _Atomic uint32_t n, least, most;    /* items, and the bounds of a chunk */
    atomic_bool busy, stopping, caller_sleeps;
    _Atomic uint32_t sleepers;
    pthread_mutex_t lock;
    pthread_cond_t work_arrived, work_done;
    uint32_t count, started;
    worker *workers;            /* [count - 1] */
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t left_of(uint64_t ticket)
{
    return (uint32_t)ticket;
}

/* Half of what each thread would get of the rest, within the job's bounds: chunks shrink towards the end. */
static uint32_t chunk_of(gb_threads *t, uint32_t left)
{
    uint32_t least = atomic_load_explicit(&t->least, memory_order_relaxed), most = atomic_load_explicit(&t->most, memory_order_relaxed);
    uint32_t fair = left / (2 * t->count);
    uint32_t size = fair < least ? least : fair < most ? fair : most;
    return size < left ? size : left;
}

/* Takes one chunk of the current job, runs it and reports it done. False when nothing is left to take. */
static bool run_one_chunk(gb_threads *t, uint32_t index)
{
    uint64_t ticket = atomic_load_explicit(&t->ticket, memory_order_acquire);
    uint32_t left, size, n;
    gb_threads_body *body;
    void *self;
    do {
        left = left_of(ticket);
        if (left == 0) return false;
        n = atomic_load_explicit(&t->n, memory_order_relaxed);
        size = chunk_of(t, left);
        body = atomic_load_explicit(&t->body, memory_order_relaxed);
        self = atomic_load_explicit(&t->self, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&t->ticket, &ticket, ticket - size, memory_order_acq_rel, memory_order_acquire));
    body(self, n - left, n - left + size, index);
    if (atomic_fetch_add(&t->done, size) + size == n && atomic_load(&t->caller_sleeps)) {
        pthread_mutex_lock(&t->lock);
        pthread_cond_signal(&t->work_done);
        pthread_mutex_unlock(&t->lock);
    }
    return true;
}

static bool work_waits(gb_threads *t)
{
    return left_of(atomic_load(&t->ticket)) != 0 || atomic_load(&t->stopping);
}

static bool all_done(gb_threads *t)
{
    return atomic_load(&t->done) == atomic_load_explicit(&t->n, memory_order_relaxed);
}

/* Looks until the condition holds or SPIN_NS have passed. */
static bool spin_until(gb_threads *t, bool (*holds)(gb_threads *))
{
    uint64_t start = 0;
    for (;;) {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (holds(t)) return true;
            pause_cpu();
        }
        uint64_t now = now_ns();
        if (start == 0) start = now;
        if (now - start > SPIN_NS) return false;
    }
}

/* A sleeper announces itself before it looks for work a last time, and the caller publishes work before it looks for
   sleepers, both sequentially consistent: one of them sees the other. */
static void sleep_until_work(gb_threads *t)
{
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->sleepers, 1);
    while (!work_waits(t)) pthread_cond_wait(&t->work_arrived, &t->lock);
    atomic_fetch_sub(&t->sleepers, 1);
    pthread_mutex_unlock(&t->lock);
}

static void wake_sleepers(gb_threads *t)
{
    if (atomic_load(&t->sleepers) == 0) return;
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->work_arrived);
    pthread_mutex_unlock(&t->lock);
}

static void *work(void *argument)
{
    worker *w = argument;
    gb_threads *t = w->pool;
    while (!atomic_load(&t->stopping)) {
        if (run_one_chunk(t, w->index)) continue;
        if (!spin_until(t, work_waits)) sleep_until_work(t);
    }
    return NULL;
}

static void wait_until_done(gb_threads *t)
{
    if (spin_until(t, all_done)) return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->caller_sleeps, true);
    while (!all_done(t)) pthread_cond_wait(&t->work_done, &t->lock);
    atomic_store(&t->caller_sleeps, false);
    pthread_mutex_unlock(&t->lock);
}

static void publish(gb_threads *t, uint32_t n, uint32_t least, uint32_t most, gb_threads_body *body, void *self)
{
    atomic_store_explicit(&t->n, n, memory_order_relaxed);
    atomic_store_explicit(&t->least, least, memory_order_relaxed);
    atomic_store_explicit(&t->most, most, memory_order_relaxed);
    atomic_store_explicit(&t->body, body, memory_order_relaxed);
    atomic_store_explicit(&t->self, self, memory_order_relaxed);
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    uint64_t number = (atomic_load_explicit(&t->ticket, memory_order_relaxed) >> 32) + 1;
    atomic_store(&t->ticket, number << 32 | n);
    wake_sleepers(t);
}

static void run(gb_threads *t, uint32_t n, uint32_t least, uint32_t most, gb_threads_body *body, void *self)
{
    GB_ASSERT(least >= 1 && least <= most);
    bool was_busy = atomic_exchange(&t->busy, true);
    GB_ASSERT(!was_busy);
    if (t->count == 1 || n <= least) {
        for (uint32_t begin = 0; begin < n; begin += most) body(self, begin, n - begin < most ? n : begin + most, 0);
    } else {
        publish(t, n, least, most, body, self);
        while (run_one_chunk(t, 0)) {}
        wait_until_done(t);
    }
    atomic_store(&t->busy, false);
}

void gb_threads_for(gb_threads *t, uint32_t n, uint32_t chunk, gb_threads_body *body, void *self)
{
    run(t, n, chunk, chunk, body, self);
}

void gb_threads_for_runs(gb_threads *t, uint32_t n, uint32_t longest, gb_threads_body *body, void *self)
{
    run(t, n, 1, longest, body, self);
}

static int start_worker(gb_threads *t, gb_error *err)
{
    worker *w = &t->workers[t->started];
    w->pool = t;
    w->index = t->started + 1;
    int status = pthread_create(&w->handle, NULL, work, w);
    if (status != 0) {
        return gb_fail(err, GB_ENOMEM, "cannot start compute thread %u of %u: %s; use a smaller --threads", w->index + 1,
                       t->count, strerror(status));
    }
    t->started++;
    return 0;
}

int gb_threads_new(gb_threads **out, uint32_t n, gb_error *err)
{
    *out = NULL;
    if (n < 1 || n > GB_THREADS_MAX) {
        return gb_fail(err, GB_EINVAL, "%u compute threads asked for; 1 to %d are possible", n, GB_THREADS_MAX);
    }
    gb_threads *t = aligned_alloc(CACHE_LINE, sizeof *t);
    if (!t) return gb_fail(err, GB_ENOMEM, "no memory for the compute threads");
    memset(t, 0, sizeof *t);
    t->count = n;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work_arrived, NULL);
    pthread_cond_init(&t->work_done, NULL);
    t->workers = calloc(n, sizeof *t->workers);
    int status = t->workers ? 0 : gb_fail(err, GB_ENOMEM, "no memory for the compute threads");
    while (status == 0 && t->started < n - 1) status = start_worker(t, err);
    if (status != 0) {
        gb_threads_free(t);
        return status;
    }
    *out = t;
    return 0;
}

void gb_threads_free(gb_threads *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->stopping, true);
    pthread_cond_broadcast(&t->work_arrived);
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < t->started; i++) pthread_join(t->workers[i].handle, NULL);
    pthread_cond_destroy(&t->work_done);
    pthread_cond_destroy(&t->work_arrived);
    pthread_mutex_destroy(&t->lock);
    free(t->workers);
    free(t);
}

uint32_t gb_threads_count(const gb_threads *t)
{
    return t->count;
}

uint32_t gb_threads_of_quota(const char *cpu_max)
{
    unsigned long long quota, period;
    if (sscanf(cpu_max, "%llu %llu", &quota, &period) != 2 || quota == 0 || period == 0) return UINT32_MAX;
    unsigned long long cpus = (quota - 1) / period + 1;
    return cpus < UINT32_MAX ? (uint32_t)cpus : UINT32_MAX;
}

/* The first line of a file without its end; false when there is none. */
static bool read_line(char *line, size_t capacity, const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) return false;
    bool ok = fgets(line, (int)capacity, f) != NULL;
    fclose(f);
    if (ok) line[strcspn(line, "\n")] = '\0';
    return ok;
}

/* Path of this process in the unified (version 2) hierarchy: "0::/PATH" of /proc/self/cgroup. */
static bool own_group(char path[PATH_BYTES])
{
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (!f) return false;
    bool found = false;
    while (!found && fgets(path, PATH_BYTES, f)) {
        path[strcspn(path, "\n")] = '\0';
        found = strncmp(path, "0::/", 4) == 0;
    }
    fclose(f);
    if (found) memmove(path, path + 3, strlen(path + 3) + 1);
    return found;
}

/* The tightest quota from the process's control group up to the root. */
static uint32_t quota_cpus(void)
{
    char group[PATH_BYTES], path[PATH_BYTES + 64], text[128];
    uint32_t cpus = UINT32_MAX;
    if (!own_group(group)) return cpus;
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        uint32_t here = read_line(text, sizeof text, path) ? gb_threads_of_quota(text) : UINT32_MAX;
        if (here < cpus) cpus = here;
        char *slash = strrchr(group, '/');
        if (!slash) return cpus;
        *slash = '\0';
    }
}

static uint32_t affinity_cpus(void)
{
    uint32_t cpus = 0;
    for (size_t capacity = 1024; cpus == 0 && capacity <= 1 << 20; capacity *= 2) {    /* the mask must be as wide as the kernel's */
        cpu_set_t *set = CPU_ALLOC(capacity);
        if (!set) break;
        size_t bytes = CPU_ALLOC_SIZE(capacity);
        if (sched_getaffinity(0, bytes, set) == 0) cpus = (uint32_t)CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
    }
    return cpus ? cpus : 1;
}

uint32_t gb_threads_available(void)
{
    uint32_t allowed = affinity_cpus(), quota = quota_cpus();
    return quota < allowed ? quota : allowed;
}
