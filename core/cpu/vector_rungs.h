/* The implementations behind vector.h by name; vector_NAME.c is built for its instruction set. */
#ifndef GB_CPU_VECTOR_RUNGS_H
#define GB_CPU_VECTOR_RUNGS_H

#include "core/cpu/matmul_rungs.h"
#include "core/cpu/vector.h"

enum { GB_ATTEND_SCRATCH_BYTES = 16 * 1024 };    /* of the largest tile */

extern const gb_vector gb_vector_scalar;
#ifdef GB_CPU_X86
extern const gb_vector gb_vector_avx2, gb_vector_avx512f;
#endif

#endif
