#define _GNU_SOURCE    /* sched_setaffinity */
#include "core/cpu/threads.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"

enum { ITEMS = 1000 };

typedef struct tally {
    uint32_t calls[ITEMS];           /* plain: the pool must order the writes */
    uint32_t largest_chunk[8];       /* by thread */
    atomic_uint highest_thread;
    gb_threads *pool;
} tally;

static void count_items(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    tally *t = self;
    for (uint32_t i = begin; i < end; i++) t->calls[i]++;
    if (end - begin > t->largest_chunk[thread]) t->largest_chunk[thread] = end - begin;
    unsigned seen = atomic_load(&t->highest_thread);
    while (thread > seen && !atomic_compare_exchange_weak(&t->highest_thread, &seen, thread)) {}
}

static gb_threads *pool_of(uint32_t n)
{
    gb_threads *pool;
    gb_error err = {0};
    int status = gb_threads_new(&pool, n, &err);
    CHECK_EQ(status, 0);
    return pool;
}

static void every_item_is_done_exactly_once_before_the_call_returns(void)
{
    for (uint32_t threads = 1; threads <= 5; threads++) {
        gb_threads *pool = pool_of(threads);
        CHECK_EQ(gb_threads_count(pool), threads);
        for (uint32_t n = 0; n <= ITEMS; n = n * 2 + 1) {
            for (uint32_t chunk = 1; chunk <= 64; chunk *= 4) {
                tally t = {0};
                gb_threads_for(pool, n, chunk, count_items, &t);
                uint32_t wrong = 0;
                for (uint32_t i = 0; i < ITEMS; i++) wrong += t.calls[i] != (i < n);
                CHECK_EQ(wrong, 0);
                for (uint32_t i = 0; i < 8; i++) CHECK(t.largest_chunk[i] <= chunk);
                CHECK(atomic_load(&t.highest_thread) < threads);
            }
        }
        gb_threads_free(pool);
    }
}

static void runs_cover_every_item_once_and_keep_to_their_longest(void)
{
    for (uint32_t threads = 1; threads <= 5; threads++) {
        gb_threads *pool = pool_of(threads);
        for (uint32_t n = 0; n <= ITEMS; n = n * 2 + 1) {
            tally t = {0};
            gb_threads_for_runs(pool, n, 16, count_items, &t);
            uint32_t wrong = 0;
            for (uint32_t i = 0; i < ITEMS; i++) wrong += t.calls[i] != (i < n);
            CHECK_EQ(wrong, 0);
            for (uint32_t i = 0; i < 8; i++) CHECK(t.largest_chunk[i] <= 16);
        }
        gb_threads_free(pool);
    }
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Items wait for each other: item 0 ends only when another thread has finished all the rest. */
static void wait_for_the_rest(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    (void)thread;
    atomic_uint *finished = self;
    if (begin == 0) {
        while (atomic_load(finished) < 99) sleep_ms(1);
    } else {
        atomic_fetch_add(finished, end - begin);
    }
}

/* Three items for two threads: the first waits for the others, so one thread alone would never end. */
static void few_items_in_runs_are_shared_all_the_same(void)
{
    gb_threads *pool = pool_of(2);
    atomic_uint finished = 97;
    gb_threads_for_runs(pool, 3, 16, wait_for_the_rest, &finished);
    CHECK_EQ(atomic_load(&finished), 99);
    gb_threads_free(pool);
}

static void ten_thousand_jobs_in_a_row_see_each_other_s_results(void)
{
    gb_threads *pool = pool_of(4);
    tally t = {0};
    for (uint32_t job = 0; job < 10000; job++) gb_threads_for(pool, 16, 1, count_items, &t);
    for (uint32_t i = 0; i < 16; i++) CHECK_EQ(t.calls[i], 10000);
    gb_threads_free(pool);
}

static double process_cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void idle_threads_sleep_and_wake_for_the_next_job(void)
{
    gb_threads *pool = pool_of(4);
    tally t = {0};
    for (uint32_t round = 1; round <= 5; round++) {
        gb_threads_for(pool, ITEMS, 10, count_items, &t);
        sleep_ms(10);    /* far beyond the spin */
        for (uint32_t i = 0; i < ITEMS; i += 111) CHECK_EQ(t.calls[i], round);
    }
    double before = process_cpu_seconds();
    sleep_ms(200);
    CHECK(process_cpu_seconds() - before < 0.1);    /* three spinning threads would burn 0.2 CPU seconds or more */
    gb_threads_free(pool);
}

static void a_held_up_thread_does_not_hold_up_the_other_chunks(void)
{
    gb_threads *pool = pool_of(2);
    atomic_uint finished = 0;
    gb_threads_for(pool, 100, 1, wait_for_the_rest, &finished);
    CHECK_EQ(atomic_load(&finished), 99);
    gb_threads_free(pool);
}

static void call_again(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    (void)begin, (void)end, (void)thread;
    tally inner = {0};
    gb_threads_for(self, 8, 1, count_items, &inner);
}

static void a_call_inside_a_body_is_an_assertion(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        gb_threads *pool = pool_of(1);    /* a fork copies only the thread that calls it */
        gb_threads_for(pool, 8, 1, call_again, pool);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void a_pool_has_between_one_thread_and_the_limit(void)
{
    gb_threads *pool;
    gb_error err = {0};
    CHECK_EQ(gb_threads_new(&pool, 0, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "0 compute threads");
    CHECK(pool == NULL);
    CHECK_EQ(gb_threads_new(&pool, GB_THREADS_MAX + 1, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "1025");
    gb_threads_free(NULL);
}

static void available_cpus_follow_the_affinity_mask(void)
{
    uint32_t all = gb_threads_available();
    CHECK(all >= 1 && all <= (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        cpu_set_t now, one;
        CPU_ZERO(&one);
        if (sched_getaffinity(0, sizeof now, &now) != 0) _exit(2);
        int cpu = 0;
        while (!CPU_ISSET(cpu, &now)) cpu++;
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0) _exit(2);
        _exit(gb_threads_available() == 1 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_cpu_quota_is_rounded_up_to_whole_cpus(void)
{
    CHECK_EQ(gb_threads_of_quota("200000 100000"), 2);
    CHECK_EQ(gb_threads_of_quota("150000 100000"), 2);
    CHECK_EQ(gb_threads_of_quota("1000 100000"), 1);
    CHECK_EQ(gb_threads_of_quota("max 100000"), UINT32_MAX);
    CHECK_EQ(gb_threads_of_quota("0 100000"), UINT32_MAX);
    CHECK_EQ(gb_threads_of_quota("100000 0"), UINT32_MAX);
    CHECK_EQ(gb_threads_of_quota(""), UINT32_MAX);
}

TESTS(TEST(every_item_is_done_exactly_once_before_the_call_returns),
      TEST(runs_cover_every_item_once_and_keep_to_their_longest),
      TEST(few_items_in_runs_are_shared_all_the_same),
      TEST(ten_thousand_jobs_in_a_row_see_each_other_s_results),
      TEST(idle_threads_sleep_and_wake_for_the_next_job),
      TEST(a_held_up_thread_does_not_hold_up_the_other_chunks),
      TEST(a_call_inside_a_body_is_an_assertion),
      TEST(a_pool_has_between_one_thread_and_the_limit),
      TEST(available_cpus_follow_the_affinity_mask),
      TEST(a_cpu_quota_is_rounded_up_to_whole_cpus))
