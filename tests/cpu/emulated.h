/* The AVX-512 rungs compiled against an emulation, so that matmul_test.c checks them on any machine. */
#ifndef GB_TESTS_CPU_EMULATED_H
#define GB_TESTS_CPU_EMULATED_H

#include "core/cpu/matmul.h"

extern const gb_matmul_rung emulated_avx512f, emulated_avx512_bf16;
bool emulation_runs(void);

#endif
