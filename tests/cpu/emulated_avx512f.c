/* The avx512f rung over SIMDe's portable emulation of its instructions. */
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#define GB_EMULATE_AVX512
#define PIN(v) ((void)0)
#define gb_matmul_avx512f emulated_avx512f
#define gb_cpu_has_avx512f emulation_runs

#include "tests/cpu/emulated.h"

#include "core/cpu/matmul_avx512f.c"
