#include "core/cpu/probe.h"

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "core/cpu/matmul_rungs.h"
#include "core/cpu/probe_kernels.h"

enum {
    PIECES_PER_THREAD = 64,    /* shared out by the pool, so that a preempted thread does not decide the figure */
    READ_PIECE = 1 << 20,
};
static const double FLOPS_SECONDS = 0.01;

static double wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- arithmetic ---- */

enum { SCALAR_SUMS = 48 };    /* twelve vectors of four: the least a compiler for the baseline has */

static float run_scalar(uint32_t steps)
{
    float sums[SCALAR_SUMS];
    for (int i = 0; i < SCALAR_SUMS; i++) sums[i] = (float)i;
    for (uint32_t step = 0; step < steps; step++) {
        for (int i = 0; i < SCALAR_SUMS; i++) sums[i] = sums[i] * 0.9999f + 1e-3f;
    }
    for (int i = 1; i < SCALAR_SUMS; i++) sums[0] += sums[i];
    return sums[0];
}

static const gb_peak_kernel scalar_kernel = {run_scalar, SCALAR_SUMS * 2};

typedef struct peak {
    const char *name;
    const gb_peak_kernel *kernel;    /* NULL on other architectures */
    bool (*supported)(void);
} peak;

static bool always(void)
{
    return true;
}

static const peak peaks[GB_PEAKS] = {
    [GB_PEAK_SCALAR] = {"float32 multiply and add", &scalar_kernel, always},
#ifdef GB_CPU_X86
    [GB_PEAK_AVX2_FMA] = {"float32 FMA, AVX2", &gb_peak_avx2, gb_cpu_has_avx2},
    [GB_PEAK_AVX512_FMA] = {"float32 FMA, AVX-512", &gb_peak_avx512f, gb_cpu_has_avx512f},
    [GB_PEAK_AVX512_BF16] = {"vdpbf16ps", &gb_peak_avx512_bf16, gb_cpu_has_avx512_bf16},
#endif
};

const char *gb_peak_name(gb_peak kind)
{
    return peaks[kind].name ? peaks[kind].name : "none";
}

bool gb_peak_runs(gb_peak kind)
{
    return peaks[kind].kernel && peaks[kind].supported();
}

typedef struct flops_job {
    float (*run)(uint32_t steps);
    uint32_t steps;
    _Atomic uint32_t sink;    /* results go somewhere, so that the work cannot be left out */
} flops_job;

static void run_pieces(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    (void)thread;
    flops_job *job = self;
    for (uint32_t i = begin; i < end; i++) job->sink += job->run(job->steps) > 0;
}

double gb_probe_flops(gb_threads *threads, gb_peak kind)
{
    if (!gb_peak_runs(kind)) return 0;
    flops_job job = {.run = peaks[kind].kernel->run, .steps = 1000};
    uint32_t pieces = gb_threads_count(threads) * PIECES_PER_THREAD;
    double seconds = 0;
    for (int pass = 0; pass < 2; pass++) {    /* the first pass wakes the threads and finds how much work fits */
        double start = wall_seconds();
        gb_threads_for(threads, pieces, 1, run_pieces, &job);
        seconds = wall_seconds() - start;
        if (pass == 0) job.steps = (uint32_t)(job.steps * (FLOPS_SECONDS / seconds)) + 1;
    }
    return pieces * (double)job.steps * peaks[kind].kernel->operations / seconds;
}

/* ---- memory ---- */

static uint64_t read_words(const void *memory, size_t bytes)
{
    const uint64_t *words = memory;
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes / sizeof *words; i++) sum += words[i];
    return sum;
}

static gb_read_kernel *read_kernel(void)
{
#ifdef GB_CPU_X86
    if (gb_cpu_has_avx512f()) return gb_read_avx512f;
    if (gb_cpu_has_avx2()) return gb_read_avx2;
#endif
    return read_words;
}

typedef struct read_job {
    gb_read_kernel *read;
    const char *memory;
    _Atomic uint64_t sum;
} read_job;

static void read_pieces(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    (void)thread;
    read_job *job = self;
    job->sum += job->read(job->memory + (size_t)begin * READ_PIECE, (size_t)(end - begin) * READ_PIECE);
}

double gb_probe_read(gb_threads *threads, const void *memory, size_t bytes)
{
    read_job job = {.read = read_kernel(), .memory = memory};
    uint32_t pieces = (uint32_t)(bytes / READ_PIECE);
    double start = wall_seconds();
    gb_threads_for(threads, pieces, 1, read_pieces, &job);
    return (double)pieces * READ_PIECE / (wall_seconds() - start);
}

/* ---- the neighbours ---- */

/* CPU seconds that the whole machine was busy, or that the hypervisor took: the first line of /proc/stat, all but idle and
   iowait. */
static double machine_seconds(void)
{
    unsigned long long user, nice, system, idle, wait, irq, softirq, steal;
    FILE *f = fopen("/proc/stat", "r");
    if (!f) return 0;
    int n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait, &irq, &softirq, &steal);
    fclose(f);
    return n == 8 ? (double)(user + nice + system + irq + softirq + steal) / (double)sysconf(_SC_CLK_TCK) : 0;
}

static double own_seconds(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + 1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

void gb_meter_start(gb_meter *meter)
{
    *meter = (gb_meter){machine_seconds(), own_seconds(), wall_seconds()};
}

double gb_meter_others(const gb_meter *meter)
{
    double busy = machine_seconds() - meter->busy_s, own = own_seconds() - meter->own_s, wall = wall_seconds() - meter->wall_s;
    return wall > 0 && busy > own ? (busy - own) / wall : 0;
}
