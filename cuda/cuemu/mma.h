/* The emulator's twins of cuda/kernels/mma.cuh: fragments as the PTX ISA lays them out over the 32 lanes of a warp. They check our
   indexing against our reading of that document, not against a chip. */
#ifndef GB_CUEMU_MMA_H
#define GB_CUEMU_MMA_H

#include "cuda/cuemu/cuemu.h"

namespace cuemu {

struct MmaFragments {
    uint32_t a[4], b[2];
};

CUEMU_PLAIN inline float half_of(uint32_t pair, unsigned high)
{
    return __uint_as_float(high ? pair & 0xffff0000u : pair << 16);
}

/* All 32 lanes come together: tensor-core instructions know no smaller mask. */
CUEMU_PLAIN inline Meeting *meet_warp(Kind kind, const void *lane_data, const void *where)
{
    Meeting *meeting = meet(kind, 0xffffffffu, uint64_t(reinterpret_cast<uintptr_t>(lane_data)), where);
    if (meeting->arrived != 0xffffffffu)
        fault(where, "PARTIAL WARP in a warp-wide instruction: lanes %#x took part", meeting->arrived);
    return meeting;
}

CUEMU_PLAIN inline float mma_element(const Meeting *meeting, unsigned row, unsigned column, float sum)
{
    for (unsigned k = 0; k < 16; k++) {
        auto *a = reinterpret_cast<const MmaFragments *>(meeting->value[(row & 7) * 4 + (k & 7) / 2]);
        auto *b = reinterpret_cast<const MmaFragments *>(meeting->value[column * 4 + (k & 7) / 2]);
        if (a && b)
            sum += half_of(a->a[row / 8 + k / 8 * 2], k & 1) * half_of(b->b[k / 8], k & 1);
    }
    return sum;
}

/* Reads lane i's row addresses of matrix m and gives the caller's register of it. */
CUEMU_PLAIN inline uint32_t matrix_pair(const Meeting *meeting, unsigned matrix, bool transposed, const void *where)
{
    unsigned group = self->lane / 4, place = self->lane % 4;
    uint32_t pair = 0;
    for (unsigned i = 0; i < 2; i++) {
        unsigned row = transposed ? 2 * place + i : group, column = transposed ? group : 2 * place + i;
        auto *from = reinterpret_cast<const uint16_t *>(meeting->value[matrix * 8 + row]);
        if (!from)
            continue;
        access(from + column, sizeof *from, Access::read, where);
        pair |= uint32_t(from[column]) << 16 * i;
    }
    return pair;
}

CUEMU_PLAIN inline void ldmatrix_x4(uint32_t (&r)[4], const void *row, bool transposed, const void *where)
{
    if (reinterpret_cast<uintptr_t>(row) % 16)
        fault(where, "MISALIGNED ldmatrix: row address %p is not a multiple of 16", row);
    Meeting *meeting = meet_warp(kLdMatrix, row, where);
    for (unsigned matrix = 0; matrix < 4; matrix++)
        r[matrix] = matrix_pair(meeting, matrix, transposed, where);
    leave(meeting);
}

}    // namespace cuemu

CUEMU_CALL void gb_mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    cuemu::MmaFragments mine;
    memcpy(mine.a, a, sizeof mine.a);
    memcpy(mine.b, b, sizeof mine.b);
    cuemu::Meeting *meeting = cuemu::meet_warp(cuemu::kMma, &mine, CUEMU_HERE);
    unsigned group = cuemu::self->lane / 4, place = cuemu::self->lane % 4;
    for (unsigned i = 0; i < 4; i++)
        d[i] = cuemu::mma_element(meeting, group + i / 2 * 8, 2 * place + i % 2, d[i]);
    cuemu::leave(meeting);
    cuemu::leave(cuemu::meet_warp(cuemu::kMmaDone, nullptr, CUEMU_HERE));    /* until here the others read what lies on this fiber */
}

CUEMU_CALL void gb_ldmatrix_x4(uint32_t (&r)[4], const void *row) { cuemu::ldmatrix_x4(r, row, false, CUEMU_HERE); }
CUEMU_CALL void gb_ldmatrix_x4_trans(uint32_t (&r)[4], const void *row) { cuemu::ldmatrix_x4(r, row, true, CUEMU_HERE); }

CUEMU_CALL void gb_cp_async16(void *to_shared, const void *from_global, bool valid)
{
    cuemu::async_copy16(to_shared, from_global, valid, CUEMU_HERE);
}

CUEMU_CALL void gb_cp_commit() { cuemu::async_commit(); }
template <int kPending> CUEMU_CALL void gb_cp_wait() { cuemu::async_wait(kPending); }

#endif
