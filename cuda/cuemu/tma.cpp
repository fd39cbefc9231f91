/* mbarriers and tensor copies. A barrier of a block is known from its init on by its address; a phase is over when all arrivals came and
   as many bytes arrived as were expected. A copy holds poison in its target from issue on, and reads its source and fills its target when
   somebody waits for its barrier and no thread of the block can do anything else: the strictest reading. A phase that can never be over is a deadlock, and what is missing is told.

   cuTensorMapEncodeTiled, as cudaGetDriverEntryPointByVersion gives it, knows what gimbal uses: up to three dimensions of bfloat16, boxes
   without strides, no swizzle or that of 128 bytes. It refuses what the driver refuses, and what it does not know. */
#include "cuda/cuemu/tma.h"
#include "cuda/cuemu/internal.h"
#include "cuda/cuemu/tensor_map.h"

#include <cstring>
#include <map>

namespace cuemu {

struct TensorCopy {
    char *to;
    TensorMap map;
    int at[kMapDims];
    Knowledge known;    /* by who issued it */
    const void *where;
};

struct Mbarrier {
    uint32_t arrivals, missing;
    int64_t bytes;      /* expected and not come */
    uint32_t parity;    /* of the phase that is not over */
    Knowledge coming, passed;
    std::vector<TensorCopy> copies;
    Queue waiting;
};

static std::map<const void *, Mbarrier> barriers;    /* of the running block */

void start_mbarriers() { barriers.clear(); }

void end_mbarriers(const void *where)
{
    for (const auto &entry : barriers)
        if (!entry.second.copies.empty())
            fault(where, "COPY NOT AWAITED: the block ended with %zu tensor copies on their way, one issued at %s", entry.second.copies.size(),
                  place_of(entry.second.copies[0].where).c_str());
}

void describe_mbarriers()
{
    for (const auto &entry : barriers) {
        const Mbarrier &b = entry.second;
        if (!b.waiting.empty())
            detail("%zu threads wait for the mbarrier at byte %td of shared memory: %u of %u arrivals are missing, and %lld bytes", b.waiting.size(),
                   static_cast<const char *>(entry.first) - dynamic_start(), b.missing, b.arrivals, static_cast<long long>(b.bytes));
    }
}

static Mbarrier *known_barrier(const uint64_t *address, const void *where)
{
    auto found = barriers.find(address);
    if (found != barriers.end())
        return &found->second;
    fault(where, "MBARRIER: nobody initialised it");
    return nullptr;
}

static void end_phases(Mbarrier &b)
{
    if (b.missing || b.bytes)
        return;
    b.parity ^= 1;
    b.missing = b.arrivals;
    b.passed = std::move(b.coming);
    b.coming.clear();
    wake(b.waiting);
}

void mbarrier_init(uint64_t *address, uint32_t arrivals, const void *where)
{
    access(address, sizeof *address, Access::write, where);
    if (arrivals == 0)
        fault(where, "MBARRIER: an initialisation for no arrivals");
    memset(address, 0xff, sizeof *address);    /* its bits are nobody's business */
    barriers[address] = {arrivals, arrivals, 0, 0, {}, {}, {}, {}};
}

void mbarrier_arrive(uint64_t *address, uint32_t bytes, const void *where)
{
    access(address, sizeof *address, Access::atomic, where);
    Mbarrier *b = known_barrier(address, where);
    if (!b)
        return;
    if (b->missing == 0) {    /* it waits for bytes */
        fault(where, "MBARRIER: an arrival more than the %u that its phase takes", b->arrivals);
        return;
    }
    tell(b->coming);
    b->bytes += bytes;
    b->missing--;
    end_phases(*b);
}

/* --- copies ------------------------------------------------------------------------------------------------------------------- */

/* Row of the box: where it begins in the tensor, or NULL when it lies outside. */
static const char *row_of(const TensorCopy &copy, uint32_t row)
{
    const uint32_t in[] = {0, row % copy.map.boxes[1], row / copy.map.boxes[1]};
    const char *from = copy.map.address;
    for (unsigned d = 1; d < kMapDims; d++) {
        int64_t i = int64_t(copy.at[d]) + in[d];
        if (i < 0 || i >= copy.map.dims[d])
            return nullptr;
        from += uint64_t(i) * copy.map.strides[d];
    }
    return from;
}

/* Words of a row that lie inside the tensor: first .. end - 1 of the box. */
static void words_inside(const TensorCopy &copy, int64_t *first, int64_t *end)
{
    *first = std::max<int64_t>(0, -int64_t(copy.at[0]));
    *end = std::max(*first, std::min<int64_t>(copy.map.boxes[0], int64_t(copy.map.dims[0]) - copy.at[0]));
}

static void check_source(const TensorCopy &copy)
{
    int64_t first, end;
    words_inside(copy, &first, &end);
    for (uint32_t row = 0; row < copy.map.rows() && first < end; row++)
        if (const char *from = row_of(copy, row))
            access(from + (copy.at[0] + first) * kWord, size_t(end - first) * kWord, Access::fetch, copy.where);
}

static void fill_target(const TensorCopy &copy)
{
    int64_t first, end;
    std::vector<char> line(copy.map.row_bytes());
    words_inside(copy, &first, &end);
    for (uint32_t row = 0; row < copy.map.rows(); row++) {
        const char *from = row_of(copy, row);
        std::fill(line.begin(), line.end(), 0);
        if (from && first < end)
            memcpy(&line[size_t(first * kWord)], from + (copy.at[0] + first) * kWord, size_t(end - first) * kWord);
        for (uint32_t byte = 0; byte < line.size(); byte += 16) {
            auto to = reinterpret_cast<uintptr_t>(copy.to) + row * line.size() + byte;
            memcpy(reinterpret_cast<char *>(copy.map.swizzled ? swizzled(to) : to), &line[byte], 16);
        }
    }
    set_again(copy.to, copy.map.bytes());
}

static void bring_copies(Mbarrier &b)
{
    for (const TensorCopy &copy : b.copies) {
        fill_target(copy);
        b.bytes -= copy.map.bytes();
        if (b.coming.size() < copy.known.size())
            b.coming.resize(copy.known.size());
        for (size_t i = 0; i < copy.known.size(); i++)
            b.coming[i] = std::max(b.coming[i], copy.known[i]);
    }
    b.copies.clear();
    end_phases(b);
}

bool bring_awaited_copies()
{
    bool brought = false;
    for (auto &entry : barriers)
        if (!entry.second.waiting.empty() && !entry.second.copies.empty()) {
            bring_copies(entry.second);
            brought = true;
        }
    return brought;
}

void mbarrier_wait(uint64_t *address, uint32_t parity, const void *where)
{
    access(address, sizeof *address, Access::atomic, where);
    Mbarrier *b = known_barrier(address, where);
    if (!b)
        return;
    while (b->parity == parity)
        wait_in(b->waiting, "an mbarrier", where);
    learn(b->passed);
}

bool is_arriving(const void *address, size_t bytes)
{
    auto *first = static_cast<const char *>(address);
    for (const auto &entry : barriers)
        for (const TensorCopy &copy : entry.second.copies)
            if (first < copy.to + copy.map.bytes() && copy.to < first + bytes)
                return true;
    return false;
}

static bool right_target(const char *to, const TensorMap &map, const void *where)
{
    unsigned align = map.swizzled ? 1024 : 128;
    if (reinterpret_cast<uintptr_t>(to) % align)
        fault(where, "MISALIGNED tensor copy: its target must be a multiple of %u in shared memory", align);
    else if (to < dynamic_start() || to + map.bytes() > dynamic_start() + dynamic_bytes())
        fault(where, "OUT OF BOUNDS: a tensor copy of %u bytes runs over dynamic shared memory", map.bytes());
    else
        return true;
    return false;
}

void tensor_load(void *to, const CUtensorMap *handle, uint64_t *address, const int *coordinates, unsigned rank, const void *where)
{
    TensorCopy copy = {static_cast<char *>(to), {}, {0, 0, 0}, {}, where};
    memcpy(&copy.map, handle, sizeof copy.map);
    access(address, sizeof *address, Access::atomic, where);
    Mbarrier *b = known_barrier(address, where);
    if (copy.map.magic != TensorMap::kMagic || copy.map.rank != rank) {
        fault(where, "TENSOR MAP: this is none, or none of %u dimensions", rank);
        return;
    }
    if (!b || !right_target(copy.to, copy.map, where))
        return;
    memcpy(copy.at, coordinates, rank * sizeof *coordinates);
    if (tracking)
        check_source(copy);
    access(to, copy.map.bytes(), Access::deliver, where);
    memset(to, 0xff, copy.map.bytes());
    unset(to, copy.map.bytes());
    tell(copy.known);
    b->copies.push_back(std::move(copy));
}

/* --- the driver's function ------------------------------------------------------------------------------------------------------ */

static bool right_shape(const TensorMap &map, const cuuint64_t *strides)
{
    for (uint32_t d = 0; d < map.rank; d++)
        if (map.dims[d] == 0 || map.boxes[d] == 0 || map.boxes[d] > 256 || (d && (strides[d - 1] % 16 || strides[d - 1] >> 40)))
            return false;
    return map.row_bytes() % 16 == 0 && (!map.swizzled || map.row_bytes() == 128);
}

static CUresult CUDAAPI encode_tiled(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
                                     const cuuint64_t *strides, const cuuint32_t *boxes, const cuuint32_t *element_strides,
                                     CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                     CUtensorMapFloatOOBfill fill)
{
    static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap), "a tensor map has 128 bytes");
    TensorMap map = {TensorMap::kMagic, static_cast<char *>(address), {kWord, 0, 0}, {1, 1, 1}, {1, 1, 1}, rank, swizzle == CU_TENSOR_MAP_SWIZZLE_128B};
    if (type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
        (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && !map.swizzled) || rank < 2 || rank > kMapDims || !address ||
        reinterpret_cast<uintptr_t>(address) % 16 || reinterpret_cast<uintptr_t>(out) % 64)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t d = 0; d < rank; d++) {
        if (dims[d] >> 32 || element_strides[d] != 1)
            return CUDA_ERROR_INVALID_VALUE;
        map.dims[d] = uint32_t(dims[d]);
        map.boxes[d] = boxes[d];
        if (d)
            map.strides[d] = strides[d - 1];
    }
    if (!right_shape(map, strides))
        return CUDA_ERROR_INVALID_VALUE;
    memset(out, 0, sizeof *out);
    memcpy(out, &map, sizeof map);
    return CUDA_SUCCESS;
}

}    // namespace cuemu

using namespace cuemu;

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned, unsigned long long,
                                                        cudaDriverEntryPointQueryResult *result)
{
    Locked locked;
    int status;
    *function = nullptr;
    if (call_fails(__func__, &status))
        return failed(cudaError_t(status));
    if (settings().devices == 0)
        return failed(cudaErrorInsufficientDriver);
    bool known = strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
    if (known)
        *function = reinterpret_cast<void *>(encode_tiled);
    if (result)
        *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
