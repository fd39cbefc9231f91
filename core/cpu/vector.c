#include "core/cpu/vector.h"

#include <string.h>

#include "core/cpu/vector_rungs.h"

size_t gb_attend_scratch_bytes(void) { return GB_ATTEND_SCRATCH_BYTES; }

const gb_vector *gb_vector_for(const char *matmul_name)
{
#ifdef GB_CPU_X86
    bool wide = strncmp(matmul_name, "avx512", strlen("avx512")) == 0;
    if (wide && gb_cpu_has_avx512f()) return &gb_vector_avx512f;
    if ((wide || strcmp(matmul_name, "avx2") == 0) && gb_cpu_has_avx2()) return &gb_vector_avx2;
#endif
    (void)matmul_name;
    return &gb_vector_scalar;
}
