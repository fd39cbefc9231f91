#include "core/moe/swap_kernels.h"

#if defined(__x86_64__)

#include "core/moe/swap_kernels_body.h"

const gb_swap_kernels gb_swap_kernels_avx2 = {"avx2", squares, most, dual};

#else

/* Only x86-64 has these instructions; elsewhere the portable kernels are the best. */
typedef int gb_swap_kernels_avx2_unused;

#endif
