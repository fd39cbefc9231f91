/* What the kernels of experts share: the groups of rows that only the device knows, cut into tiles, and the walk of a persistent block over
   them. Rows of a slot are offsets[slot] .. offsets[slot + 1] - 1. */
#ifndef GB_CUDA_EXPERTS_CUH
#define GB_CUDA_EXPERTS_CUH

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

/* One of the two products, as loops see it. */
struct problem {
    uint32_t k, outputs;           /* outputs: width (gate and up) or hidden (down) */
    uint32_t outputs_of_tile, rows_of_tile;
    size_t place_elements, offset;    /* from one place to the next; of the matrix in a place */
};

__host__ __device__ __forceinline__ problem problem_of(const gb_k_pool &pool, bool gated, uint32_t outputs_of_tile, uint32_t rows_of_tile)
{
    const size_t matrix = (size_t)pool.width * pool.hidden;
    return {gated ? pool.hidden : pool.width, gated ? pool.width : pool.hidden, outputs_of_tile, rows_of_tile, 3 * matrix, gated ? 0 : 2 * matrix};
}

/* Where a tile is. */
struct tile {
    uint32_t place;
    uint32_t first_row, rows;      /* rows of in and out */
    uint32_t first_output;
};

/* The walk over all tiles; groups before the current one were counted already. */
struct walk {
    uint32_t slot, tiles_before;
};

__device__ __forceinline__ uint32_t place_of(const gb_k_experts_args &a, uint32_t slot, uint32_t first_row)
{
    const int32_t place = a.pool.place_of_slot ? a.pool.place_of_slot[slot] : (int32_t)slot;
    if (place >= 0 && (uint32_t)place < a.pool.places) return (uint32_t)place;
    if (threadIdx.x == 0) gb_report(a.fault, GB_K_FAULT_SLOT, first_row, (int32_t)slot);
    return 0;    /* some weights, and the fault ends the round */
}

/* Finds tile number `number`, at or behind the last one that was found. False when there is none. */
__device__ __forceinline__ bool find_tile(tile &t, walk &w, uint32_t number, const gb_k_experts_args &a, const problem &p)
{
    const uint32_t across = (p.outputs + p.outputs_of_tile - 1) / p.outputs_of_tile;
    for (; w.slot < a.pool.slots; w.slot++) {
        const uint32_t first = a.offsets[w.slot], rows = a.offsets[w.slot + 1] - first, down = (rows + p.rows_of_tile - 1) / p.rows_of_tile;
        if (number - w.tiles_before >= down * across) {
            w.tiles_before += down * across;
            continue;
        }
        const uint32_t i = number - w.tiles_before, at = i % down * p.rows_of_tile;
        t.place = place_of(a, w.slot, first);
        t.first_row = first + at;
        t.rows = rows - at < p.rows_of_tile ? rows - at : p.rows_of_tile;
        t.first_output = i / down * p.outputs_of_tile;
        return true;
    }
    return false;
}

/* --- for launchers --- */

static inline int check_experts(const gb_k_experts_args *a, const char *name)
{
    const gb_k_pool *pool = &a->pool;
    if (pool->hidden == 0 || pool->width == 0 || pool->hidden % 8 || pool->width % 8)
        return gb_k_fail(GB_EINVAL, "%s: experts of %u x %u; both must be multiples of 8", name, pool->hidden, pool->width);
    if (pool->slots == 0 || pool->slots > GB_K_SLOTS_MAX || pool->places == 0 || (!pool->place_of_slot && pool->places < pool->slots))
        return gb_k_fail(GB_EINVAL, "%s: %u slots over %u places; at most %d slots are supported", name, pool->slots, pool->places, GB_K_SLOTS_MAX);
    if (a->processors == 0 || a->max_rows > kGridMax) return gb_k_fail(GB_EINVAL, "%s: %u processors, %u rows", name, a->processors, a->max_rows);
    return GB_OK;
}

/* As many blocks as there can be tiles, and at most `resident`. Each group may end in part of a tile. */
static inline uint32_t blocks_of_experts(const gb_k_experts_args *a, const problem &p, uint32_t resident)
{
    const uint64_t groups = a->max_rows < a->pool.slots ? a->max_rows : a->pool.slots;
    const uint64_t tiles = (groups + a->max_rows / p.rows_of_tile) * gb_k_ceil(p.outputs, p.outputs_of_tile);
    return (uint32_t)(tiles < resident ? tiles : resident);
}

#endif
