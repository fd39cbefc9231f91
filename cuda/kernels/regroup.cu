/* Between the order of arrival and the grouped order, by the tables of land: rows into groups for the experts, and their outputs back to
   whoever sent them. A warp a row; how many there are, only the device knows, so a fixed grid walks over them. A warp finds its row's
   (slot, source) by looking at 32 beginnings at once. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"
#include "cuda/kernels/rows.cuh"

typedef struct origin {
    uint32_t source, arrival;    /* place in the order of arrival */
} origin;

/* The last (slot, source) that begins at or before the row: those without rows begin where the next one does. */
__device__ __forceinline__ origin origin_of(const gb_k_regroup_args &a, uint32_t row)
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t cell = 0, cells = a.slots * a.sources;    /* the answer is one of cells from cell on */
    while (cells > 1) {
        const uint32_t step = (cells + 31) / 32, at = lane * step;
        const uint32_t last = __popc(__ballot_sync(0xffffffffu, at < cells && a.begin[cell + at] <= row)) - 1;
        cell += last * step;
        cells = min(step, cells - last * step);
    }
    return {cell % a.sources, a.from[cell] + row - a.begin[cell]};
}

__device__ __forceinline__ uint32_t first_row() { return blockIdx.x * kRowWarps + threadIdx.x / 32; }

__global__ void __launch_bounds__(kRowThreads) regroup_kernel(gb_k_regroup_args a)
{
    const uint32_t rows = a.offsets[a.slots];
    for (uint32_t row = first_row(); row < rows; row += gridDim.x * kRowWarps)
        gb_copy_row(a.grouped + (size_t)row * a.hidden, a.arrived + (size_t)origin_of(a, row).arrival * a.hidden, a.hidden);
}

__global__ void __launch_bounds__(kRowThreads) bring_back_kernel(gb_k_regroup_args a)
{
    const uint32_t rows = a.offsets[a.slots];
    for (uint32_t row = first_row(); row < rows; row += gridDim.x * kRowWarps) {
        const origin o = origin_of(a, row);
        uint16_t *to = a.returned;
        size_t at = o.arrival;
        if (a.back) {
            to = a.back[o.source];
            at = a.headers[(size_t)o.source * (a.slots + GB_K_HEADER_WORDS) + a.slots + GB_K_HEADER_BEGIN] + o.arrival - a.start[o.source];
            if (at >= a.back_rows) {    /* the whole warp */
                gb_report(a.fault, GB_K_FAULT_ROOM, o.source, (int32_t)at);
                continue;
            }
        }
        gb_copy_row(to + at * a.hidden, a.out + (size_t)row * a.hidden, a.hidden);
    }
}

static int launch(void (*kernel)(gb_k_regroup_args), const gb_k_regroup_args *a, const char *name, cudaStream_t stream)
{
    if (a->hidden == 0 || a->hidden % 8) return gb_k_fail(GB_EINVAL, "%s: a hidden size of %u is no multiple of 8", name, a->hidden);
    if (a->sources == 0 || a->sources > GB_K_PEERS_MAX || a->slots == 0 || a->slots > GB_K_SLOTS_MAX)
        return gb_k_fail(GB_EINVAL, "%s: %u slots for %u sources; at most %d for %d are supported", name, a->slots, a->sources, GB_K_SLOTS_MAX,
                         GB_K_PEERS_MAX);
    if (a->capacity > kGridMax) return gb_k_fail(GB_EINVAL, "%s: room for %u rows: too many for 32-bit rows", name, a->capacity);
    if (a->capacity == 0) return GB_OK;
    const uint32_t grid = gb_k_ceil(a->capacity, kRowWarps);
    GB_LAUNCH(kernel, grid < kRowBlocks ? grid : kRowBlocks, kRowThreads, 0, stream, *a);
    return gb_k_launched(name);
}

extern "C" int gb_k_regroup(const gb_k_regroup_args *a, cudaStream_t stream) { return launch(regroup_kernel, a, "regroup", stream); }

extern "C" int gb_k_bring_back(const gb_k_regroup_args *a, cudaStream_t stream)
{
    return launch(bring_back_kernel, a, "bring_back", stream);
}
