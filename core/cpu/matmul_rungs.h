/* The rungs by name, for the table in matmul.c; each lives in the file matmul_NAME.c, built for its instruction set. Whether
   the CPU has it is asked in matmul.c, which is built for the baseline. */
#ifndef GB_CPU_MATMUL_RUNGS_H
#define GB_CPU_MATMUL_RUNGS_H

#include "core/cpu/matmul.h"

#if defined(__x86_64__)
#define GB_CPU_X86 1
#endif

extern const gb_matmul_rung gb_matmul_scalar;
#ifdef GB_CPU_X86
extern const gb_matmul_rung gb_matmul_avx2, gb_matmul_avx512f, gb_matmul_avx512_bf16;
bool gb_cpu_has_avx2(void);           /* AVX2 and FMA, enabled by the system (every such CPU has F16C) */
bool gb_cpu_has_avx512f(void);        /* and AVX512 F, BW, VL, DQ */
bool gb_cpu_has_avx512_bf16(void);    /* and AVX512_BF16 */
#endif

#endif
