/* The probes' inner loops, one table per instruction set; see probe.c. */
#ifndef GB_CPU_PROBE_KERNELS_H
#define GB_CPU_PROBE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Runs steps of a fixed number of operations in registers; the result keeps the compiler honest. */
typedef struct gb_peak_kernel {
    float (*run)(uint32_t steps);
    double operations;    /* of one step */
} gb_peak_kernel;

/* Reads bytes (a multiple of 512, 64-byte aligned) and returns a checksum. */
typedef uint64_t gb_read_kernel(const void *memory, size_t bytes);

#if defined(__x86_64__)
extern const gb_peak_kernel gb_peak_avx2, gb_peak_avx512f, gb_peak_avx512_bf16;
gb_read_kernel gb_read_avx2, gb_read_avx512f;
#endif

#endif
