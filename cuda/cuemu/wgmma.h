/* The emulator's twins of cuda/kernels/wgmma.cuh (state and rules: wgmma.cpp). */
#ifndef GB_CUEMU_WGMMA_H
#define GB_CUEMU_WGMMA_H

#include "cuda/cuemu/mma.h"

namespace cuemu {

void warpgroup_fence();
void warpgroup_multiply(float *d, unsigned columns, uint64_t a, uint64_t b, bool add, const void *where);
void warpgroup_commit();
void warpgroup_wait(unsigned pending, const void *where);

/* Writes lane i's pair of matrix m, transposed, to the rows whose addresses the lanes gave. */
CUEMU_PLAIN inline void store_matrix_pair(const Meeting *meeting, unsigned matrix, uint32_t pair, const void *where)
{
    for (unsigned i = 0; i < 2; i++) {
        auto *to = reinterpret_cast<uint16_t *>(meeting->value[matrix * 8 + 2 * (self->lane % 4) + i]) + self->lane / 4;
        access(to, sizeof *to, Access::write, where);
        *to = uint16_t(pair >> 16 * i);
    }
}

}    // namespace cuemu

CUEMU_CALL void gb_wgmma_fence() { cuemu::warpgroup_fence(); }
CUEMU_CALL void gb_wgmma_commit() { cuemu::warpgroup_commit(); }
template <int kPending> CUEMU_CALL void gb_wgmma_wait() { cuemu::warpgroup_wait(kPending, CUEMU_HERE); }

template <uint32_t kColumns> CUEMU_CALL void gb_wgmma(float (&d)[kColumns / 2], uint64_t a, uint64_t b, bool add)
{
    cuemu::warpgroup_multiply(d, kColumns, a, b, add, CUEMU_HERE);
}

CUEMU_CALL void gb_stmatrix_x4_trans(void *row, const uint32_t (&r)[4])
{
    using namespace cuemu;
    const void *where = CUEMU_HERE;
    if (reinterpret_cast<uintptr_t>(row) % 16)
        fault(where, "MISALIGNED stmatrix: row address %p is not a multiple of 16", row);
    Meeting *meeting = meet(kStMatrix, 0xffffffffu, uint64_t(reinterpret_cast<uintptr_t>(row)), where);
    if (is_whole(meeting))
        for (unsigned matrix = 0; matrix < 4; matrix++)
            store_matrix_pair(meeting, matrix, r[matrix], where);
    leave(meeting);
}

#endif
