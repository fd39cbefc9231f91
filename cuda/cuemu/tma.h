/* The emulator's twins of cuda/kernels/tma.cuh (state and rules: tma.cpp). */
#ifndef GB_CUEMU_TMA_H
#define GB_CUEMU_TMA_H

#include "cuda/cuemu/cuemu.h"

#include <cuda.h>

namespace cuemu {

void mbarrier_init(uint64_t *barrier, uint32_t arrivals, const void *where);
void mbarrier_arrive(uint64_t *barrier, uint32_t bytes, const void *where);
void mbarrier_wait(uint64_t *barrier, uint32_t parity, const void *where);
void tensor_load(void *to, const CUtensorMap *map, uint64_t *barrier, const int *coordinates, unsigned rank, const void *where);
void fence_async();

}    // namespace cuemu

CUEMU_CALL void gb_mbarrier_init(uint64_t *s_barrier, uint32_t arrivals) { cuemu::mbarrier_init(s_barrier, arrivals, CUEMU_HERE); }
CUEMU_CALL void gb_mbarrier_arrive(uint64_t *s_barrier) { cuemu::mbarrier_arrive(s_barrier, 0, CUEMU_HERE); }
CUEMU_CALL void gb_mbarrier_arrive_expect(uint64_t *s_barrier, uint32_t bytes) { cuemu::mbarrier_arrive(s_barrier, bytes, CUEMU_HERE); }
CUEMU_CALL void gb_mbarrier_wait(uint64_t *s_barrier, uint32_t parity) { cuemu::mbarrier_wait(s_barrier, parity, CUEMU_HERE); }
CUEMU_CALL void gb_fence_async() { cuemu::fence_async(); }

CUEMU_CALL void gb_tensor_load_2d(void *to_shared, const CUtensorMap *map, uint64_t *s_barrier, int x, int y)
{
    const int coordinates[] = {x, y};
    cuemu::tensor_load(to_shared, map, s_barrier, coordinates, 2, CUEMU_HERE);
}

CUEMU_CALL void gb_tensor_load_3d(void *to_shared, const CUtensorMap *map, uint64_t *s_barrier, int x, int y, int z)
{
    const int coordinates[] = {x, y, z};
    cuemu::tensor_load(to_shared, map, s_barrier, coordinates, 3, CUEMU_HERE);
}

#endif
