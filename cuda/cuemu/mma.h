/* The emulator's twins of cuda/kernels/mma.cuh: fragments as the PTX ISA lays them out over the 32 lanes of a warp. They check our
   indexing against our reading of that document, not against a chip. */
#ifndef GB_CUEMU_MMA_H
#define GB_CUEMU_MMA_H

#include "cuda/cuemu/cuemu.h"

namespace cuemu {

/* The fragments of one lane. */
struct MmaLane {
    const uint32_t *a, *b;
    float *d;
};

CUEMU_PLAIN inline float half_of(uint32_t pair, unsigned high)
{
    return __uint_as_float(high ? pair & 0xffff0000u : pair << 16);
}

/* All 32 lanes come together: tensor-core instructions know no smaller mask. */
CUEMU_PLAIN inline bool is_whole(const Meeting *meeting)
{
    if (meeting->arrived == 0xffffffffu)
        return true;
    fault(meeting->where, "PARTIAL WARP in a warp-wide instruction: lanes %#x took part", meeting->arrived);
    return false;
}

/* The last lane to come multiplies for all of them, k after k. */
CUEMU_PLAIN inline void multiply_together(Meeting *meeting)
{
    float a[16][16], b[16][8], d[16][8];
    if (!is_whole(meeting))
        return;
    auto at = [](unsigned lane, unsigned i) { return lane / 4 + i / 2 * 8; };
    for (unsigned lane = 0; lane < 32; lane++) {
        auto *mine = reinterpret_cast<const MmaLane *>(meeting->value[lane]);
        unsigned group = lane / 4, pair = 2 * (lane % 4);
        for (unsigned half = 0; half < 2; half++) {
            for (unsigned i = 0; i < 4; i++)
                a[group + i % 2 * 8][pair + i / 2 * 8 + half] = half_of(mine->a[i], half);
            for (unsigned i = 0; i < 2; i++)
                b[pair + i * 8 + half][group] = half_of(mine->b[i], half);
        }
        for (unsigned i = 0; i < 4; i++)
            d[at(lane, i)][pair + i % 2] = mine->d[i];
    }
    for (unsigned row = 0; row < 16; row++)
        for (unsigned k = 0; k < 16; k++)
            for (unsigned column = 0; column < 8; column++)
                d[row][column] += a[row][k] * b[k][column];
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned i = 0; i < 4; i++)
            reinterpret_cast<const MmaLane *>(meeting->value[lane])->d[i] = d[at(lane, i)][2 * (lane % 4) + i % 2];
}

/* Reads lane i's row addresses of matrix m and gives the caller's register of it. */
CUEMU_PLAIN inline uint32_t matrix_pair(const Meeting *meeting, unsigned matrix, bool transposed, const void *where)
{
    unsigned group = self->lane / 4, place = self->lane % 4;
    uint32_t pair = 0;
    for (unsigned i = 0; i < 2; i++) {
        unsigned row = transposed ? 2 * place + i : group, column = transposed ? group : 2 * place + i;
        auto *from = reinterpret_cast<const uint16_t *>(meeting->value[matrix * 8 + row]);
        access(from + column, sizeof *from, Access::read, where);
        pair |= uint32_t(from[column]) << 16 * i;
    }
    return pair;
}

CUEMU_PLAIN inline void ldmatrix_x4(uint32_t (&r)[4], const void *row, bool transposed, const void *where)
{
    if (reinterpret_cast<uintptr_t>(row) % 16)
        fault(where, "MISALIGNED ldmatrix: row address %p is not a multiple of 16", row);
    Meeting *meeting = meet(kLdMatrix, 0xffffffffu, uint64_t(reinterpret_cast<uintptr_t>(row)), where);
    if (is_whole(meeting))
        for (unsigned matrix = 0; matrix < 4; matrix++)
            r[matrix] = matrix_pair(meeting, matrix, transposed, where);
    leave(meeting);
}

}    // namespace cuemu

CUEMU_CALL void gb_mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    cuemu::MmaLane mine = {a, b, d};
    cuemu::leave(cuemu::meet(cuemu::kMma, 0xffffffffu, uint64_t(reinterpret_cast<uintptr_t>(&mine)), CUEMU_HERE, cuemu::multiply_together));
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
