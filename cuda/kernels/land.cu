/* What the headers of all sources say together. Rows arrive source after source, each source's slot after slot; experts want them slot
   after slot, so each (slot, source) has a beginning in both orders. One block: the tables are small, and everything else waits for it.

   All or nothing: with one header of another version, more rows than there is room for, or a barrier before that was abandoned, every count
   is taken as zero. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/groups.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kWarps = kGroupThreads / 32;

__device__ __forceinline__ const uint32_t *header_of(const gb_k_land_args &a, uint32_t source)
{
    return a.headers + (size_t)source * (a.slots + GB_K_HEADER_WORDS);
}

__device__ __forceinline__ int32_t shown(unsigned long long rows) { return rows > 0x7fffffff ? 0x7fffffff : (int32_t)rows; }

/* Rows of each source, a warp a source; 64 bits, for counts of another version can be anything. Behind an abandoned
   barrier nothing is looked at: others may write there now. */
__device__ __forceinline__ void count_rows(const gb_k_land_args &a, unsigned long long *s_rows)
{
    const uint32_t slots = gb_is_set(a.abandoned) ? 0 : a.slots;
    for (uint32_t source = threadIdx.x / 32; source < a.sources; source += kWarps) {
        const uint32_t *header = header_of(a, source);
        unsigned long long rows = 0;
        for (uint32_t slot = threadIdx.x % 32; slot < slots; slot += 32) rows += header[slot];
#pragma unroll
        for (int step = 16; step; step /= 2) rows += __shfl_xor_sync(0xffffffffu, rows, step);
        if (threadIdx.x % 32 == 0) s_rows[source] = rows;
    }
}

/* Whether this thread's source may not be taken. */
__device__ __forceinline__ bool refused(const gb_k_land_args &a, const unsigned long long *s_rows)
{
    const uint32_t source = threadIdx.x;
    if (source >= a.sources) return false;
    const uint32_t version = header_of(a, source)[a.slots + GB_K_HEADER_VERSION];
    const bool stale = version != *a.version, large = a.stride && s_rows[source] > a.stride;
    if (stale) gb_report(a.fault, GB_K_FAULT_VERSION, source, (int32_t)version);
    else if (large) gb_report(a.fault, GB_K_FAULT_ROOM, source, shown(s_rows[source]));
    return stale || large;
}

/* from[slot][source]: a warp a source, 32 slots a step */
__device__ __forceinline__ void order_of_arrival(const gb_k_land_args &a, const uint32_t *s_start, bool taken)
{
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t source = threadIdx.x / 32; source < a.sources; source += kWarps) {
        const uint32_t *header = header_of(a, source);
        uint32_t begin = s_start[source];
        for (uint32_t first = 0; first < a.slots; first += 32) {
            const uint32_t slot = first + lane, count = slot < a.slots && taken ? header[slot] : 0;
            uint32_t upto = count;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const uint32_t other = __shfl_up_sync(0xffffffffu, upto, step);
                if (lane >= (uint32_t)step) upto += other;
            }
            if (slot < a.slots) a.from[(size_t)slot * a.sources + source] = begin + upto - count;
            begin += __shfl_sync(0xffffffffu, upto, 31);
        }
    }
}

/* begin[slot][source] and offsets; all rows */
__device__ __forceinline__ uint32_t grouped_order(const gb_k_land_args &a, bool taken)
{
    const uint32_t cells = a.slots * a.sources;
    uint32_t begin = 0;
    for (uint32_t first = 0; first < cells; first += kGroupThreads) {
        const uint32_t cell = first + threadIdx.x, slot = cell / a.sources, source = cell % a.sources;
        uint32_t all;
        const uint32_t before = gb_sum_before(cell < cells && taken ? header_of(a, source)[slot] : 0, all);
        if (cell < cells) {
            a.begin[cell] = begin + before;
            if (source == 0) a.offsets[slot] = begin + before;
        }
        begin += all;
    }
    return begin;
}

__global__ void __launch_bounds__(kGroupThreads) land_kernel(gb_k_land_args a)
{
    GB_SHARED(unsigned long long, s_rows, [GB_K_PEERS_MAX]);
    GB_SHARED(uint32_t, s_start, [GB_K_PEERS_MAX]);
    count_rows(a, s_rows);
    __syncthreads();
    bool taken = !__syncthreads_or(gb_is_set(a.abandoned) || refused(a, s_rows));
    unsigned long long before = 0, rows = 0;    /* the sources before this thread's, and all */
    for (uint32_t source = 0; source < a.sources; source++) {
        if (source < threadIdx.x) before += s_rows[source];
        rows += s_rows[source];
    }
    if (taken && rows > a.capacity) {
        taken = false;
        if (threadIdx.x == 0) gb_report(a.fault, GB_K_FAULT_ROOM, a.sources, shown(rows));
    }
    if (threadIdx.x <= a.sources) {
        const uint32_t start = a.stride ? threadIdx.x * a.stride : taken ? (uint32_t)before : 0;
        a.start[threadIdx.x] = start;
        if (threadIdx.x < a.sources) s_start[threadIdx.x] = start;
    }
    __syncthreads();
    order_of_arrival(a, s_start, taken);
    const uint32_t all = grouped_order(a, taken);
    if (threadIdx.x) return;
    a.offsets[a.slots] = all;
    a.received[0] += all;
}

extern "C" int gb_k_land(const gb_k_land_args *a, cudaStream_t stream)
{
    if (a->sources == 0 || a->sources > GB_K_PEERS_MAX || a->slots == 0 || a->slots > GB_K_SLOTS_MAX)
        return gb_k_fail(GB_EINVAL, "land: %u slots for %u sources; at most %d for %d are supported", a->slots, a->sources, GB_K_SLOTS_MAX,
                         GB_K_PEERS_MAX);
    if (a->capacity > kGridMax || a->stride > kGridMax / a->sources)
        return gb_k_fail(GB_EINVAL, "land: room for %u rows, %u of each source: too many for 32-bit rows", a->capacity, a->stride);
    GB_LAUNCH(land_kernel, 1, kGroupThreads, 0, stream, *a);
    return gb_k_launched("land");
}
