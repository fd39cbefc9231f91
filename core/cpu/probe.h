/* What this machine can do at this moment, to put beside a measurement: read bandwidth, arithmetic peaks, and how much CPU
   others take. A shared machine changes its mood within seconds, so a bound is only worth something next to its run. */
#ifndef GB_CPU_PROBE_H
#define GB_CPU_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/cpu/threads.h"

/* One arithmetic peak: register-only instructions of one kind. */
typedef enum gb_peak { GB_PEAK_SCALAR, GB_PEAK_AVX2_FMA, GB_PEAK_AVX512_FMA, GB_PEAK_AVX512_BF16, GB_PEAKS } gb_peak;

const char *gb_peak_name(gb_peak peak);    /* "float32 FMA (AVX2)" */
bool        gb_peak_runs(gb_peak peak);

/* Operations per second (a multiply-add is two) of all threads of the pool; takes about 10 ms. 0 where it does not run. */
double gb_probe_flops(gb_threads *threads, gb_peak peak);

/* Bytes per second that the pool reads from memory [bytes] once, start to end; memory much larger than the caches. */
double gb_probe_read(gb_threads *threads, const void *memory, size_t bytes);

/* Seconds of CPU that everybody else took between two looks, as CPUs (0 .. number of CPUs). */
typedef struct gb_meter {
    double busy_s, own_s, wall_s;
} gb_meter;

void   gb_meter_start(gb_meter *meter);
double gb_meter_others(const gb_meter *meter);    /* since start; 0 where the system does not say */

#endif
