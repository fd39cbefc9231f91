/* The avx512f vectors over SIMDe's portable emulation of their instructions. */
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#define GB_EMULATE_AVX512
#define gb_vector_avx512f emulated_vector_avx512f

#include "tests/cpu/emulated.h"

#include "core/cpu/vector_avx512f.c"
