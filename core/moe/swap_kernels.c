#include "core/moe/swap_kernels.h"

#include "core/moe/swap_kernels_body.h"

const gb_swap_kernels gb_swap_kernels_portable = {"portable", squares, most, dual};

const gb_swap_kernels *gb_swap_kernels_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return &gb_swap_kernels_avx2;
#endif
    return &gb_swap_kernels_portable;
}
