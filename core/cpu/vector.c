#include "core/cpu/vector.h"

#include <string.h>

#include "core/cpu/vector_rungs.h"

size_t gb_attend_scratch_bytes(void) { return GB_ATTEND_SCRATCH_BYTES; }

const gb_vector *gb_vector_for(const char *matmul_name)
{
#if defined(__x86_64__)
    if (strcmp(matmul_name, "avx2") == 0) return &gb_vector_avx2;
    if (strncmp(matmul_name, "avx512", strlen("avx512")) == 0) return &gb_vector_avx512f;
#endif
    (void)matmul_name;
    return &gb_vector_scalar;
}
