/* The AVX-512 rungs compiled against an emulation, so that matmul_test.c and vector_test.c check them on any machine. */
#ifndef GB_TESTS_CPU_EMULATED_H
#define GB_TESTS_CPU_EMULATED_H

#include "core/cpu/matmul.h"
#include "core/cpu/vector.h"

extern const gb_matmul_rung emulated_avx512f, emulated_avx512_bf16;
extern const gb_vector emulated_vector_avx512f;
bool emulation_runs(void);

#endif
