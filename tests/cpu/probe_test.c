#include "core/cpu/probe.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"

static void peaks_that_run_give_a_rate_and_the_others_zero(void)
{
    gb_threads *threads;
    CHECK_EQ(gb_threads_new(&threads, 2, NULL), 0);
    CHECK(gb_peak_runs(GB_PEAK_SCALAR));
    for (int i = 0; i < GB_PEAKS; i++) {
        double rate = gb_probe_flops(threads, (gb_peak)i);
        CHECK(gb_peak_runs((gb_peak)i) ? rate > 1e6 : rate == 0);
        CHECK(strlen(gb_peak_name((gb_peak)i)) > 0);
    }
    gb_threads_free(threads);
}

static void reading_memory_gives_a_rate(void)
{
    enum { BYTES = 8 << 20 };
    gb_threads *threads;
    CHECK_EQ(gb_threads_new(&threads, 2, NULL), 0);
    void *memory = aligned_alloc(64, BYTES);
    memset(memory, 1, BYTES);
    CHECK(gb_probe_read(threads, memory, BYTES) > 1e6);
    free(memory);
    gb_threads_free(threads);
}

/* A child that burns CPU is somebody else until it is waited for. */
static void the_meter_sees_the_cpu_time_of_another_process(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct timespec t;
        do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        while (t.tv_sec < 20);    /* never reached: the parent ends it */
        _exit(0);
    }
    gb_meter meter;
    gb_meter_start(&meter);
    nanosleep(&(struct timespec){.tv_nsec = 500 * 1000 * 1000}, NULL);
    double others = gb_meter_others(&meter);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK(others > 0 && others <= (double)sysconf(_SC_NPROCESSORS_ONLN) + 0.5);
}

TESTS(TEST(peaks_that_run_give_a_rate_and_the_others_zero),
      TEST(reading_memory_gives_a_rate),
      TEST(the_meter_sees_the_cpu_time_of_another_process))
