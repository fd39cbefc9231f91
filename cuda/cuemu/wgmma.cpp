/* Products of warpgroups: wgmma.m64nNk16 with both factors in shared memory, bf16 in, float32 sums in the order of k, as the twin of
   mma.sync has them. The strictest reading: from issue to the wait the accumulators hold NaN, and the factors are read at the wait. A wait
   is a meeting of the whole warpgroup. Descriptors are decoded as the PTX manual lays them out, for rows of 128 bytes along k, with the
   swizzle of 128 bytes or none. */
#include "cuda/cuemu/cuemu.h"
#include "cuda/cuemu/internal.h"
#include "cuda/cuemu/tensor_map.h"

#include <algorithm>
#include <limits>

namespace cuemu {

void warpgroup_fence();
void warpgroup_multiply(float *d, unsigned columns, uint64_t a, uint64_t b, bool add, const void *where);
void warpgroup_commit();
void warpgroup_wait(unsigned pending, const void *where);

enum { kGroup = 128, kRows = 64, kDepth = 16, kColumnsMax = 256, kWarpLanes = 32, kWindow = 1 << 18 };

struct Product {
    uint64_t a, b;
    unsigned columns, group;
    bool add;
    const void *where;
    float *d[kGroup];
    unsigned came;
};

/* Accumulators that are under way: where they belong, and their values meanwhile. */
struct Held {
    float *place;
    std::vector<float> values;
};

struct Lane {
    bool fenced = false;
    unsigned issued = 0, committed = 0;
    std::vector<Held> held;
};

struct Warpgroup {
    std::deque<Product> products;    /* not done */
    unsigned done = 0, waiting = 0, target = 0;
    Queue queue;
    Lane lanes[kGroup];
};

static std::vector<Warpgroup> groups;    /* of the running block */

void start_warpgroups()
{
    for (Warpgroup &group : groups)
        group = Warpgroup();
}

void end_warpgroups(const void *where)
{
    for (const Warpgroup &group : groups)
        if (!group.products.empty())
            fault(where, "PRODUCT NOT AWAITED: the block ended with %zu products of a warpgroup under way, one begun at %s", group.products.size(),
                  place_of(group.products.front().where).c_str());
}

static Warpgroup &mine()
{
    size_t number = number_of(self) / kGroup;
    if (groups.size() <= number)
        groups.resize(number + 1);
    return groups[number];
}

static unsigned place_in_group() { return number_of(self) % kGroup; }

/* --- factors in shared memory --------------------------------------------------------------------------------------------------- */

struct Factor {
    char *start;
    size_t stride;    /* bytes from 8 rows to the next 8 */
    bool swizzle;

    /* The 16-byte piece (8 of k) of a row. */
    char *piece(unsigned row, unsigned half) const
    {
        auto address = reinterpret_cast<uintptr_t>(start) + row / 8 * stride + row % 8 * 128 + half * 16;
        return reinterpret_cast<char *>(swizzle ? swizzled(address) : address);
    }
};

/* Bits 0-13: address / 16, within the window of shared memory; 32-45: stride / 16; 49-51: offset of the pattern; 62-63: swizzle. */
static bool decode(Factor *factor, uint64_t descriptor, unsigned rows, const void *where)
{
    auto begin = reinterpret_cast<uintptr_t>(dynamic_start());
    uintptr_t address = (begin & ~uintptr_t(kWindow - 1)) | (descriptor & 0x3fff) << 4;
    if (address < begin)
        address += kWindow;
    *factor = {reinterpret_cast<char *>(address), size_t(descriptor >> 32 & 0x3fff) << 4, descriptor >> 62 == 1};
    if (descriptor >> 62 > 1 || descriptor >> 49 & 7)
        fault(where, "DESCRIPTOR: a swizzle or an offset of its pattern that is not emulated: %#llx", static_cast<unsigned long long>(descriptor));
    else if (factor->stride < 1024 || factor->stride % 1024)
        fault(where, "DESCRIPTOR: %zu bytes from 8 rows to the next 8, which take 1024", factor->stride);
    else if (factor->swizzle && address % 1024 >= 128)
        fault(where, "DESCRIPTOR: a swizzled tile must begin at a multiple of 1024 in shared memory; this one lies %zu bytes behind",
              size_t(address % 1024));
    else if (address + (rows / 8 - 1) * factor->stride + 1024 > begin + dynamic_bytes())
        fault(where, "OUT OF BOUNDS: a factor of %u rows runs over dynamic shared memory", rows);
    else
        return true;
    return false;
}

static void read_rows(const Factor &factor, unsigned first, unsigned rows, const void *where)
{
    for (unsigned row = first; row < first + rows; row++)
        for (unsigned half = 0; half < 2; half++)
            access(factor.piece(row, half), 16, Access::operand, where);
}

/* What the warp of the running thread reads: its 16 rows of A and all of B. */
static void read_factors(const Factor &a, const Factor &b, const Product &product)
{
    read_rows(a, number_of(self) % kGroup / kWarpLanes * 16, 16, product.where);
    read_rows(b, 0, product.columns, product.where);
}

static void check_arrived(const Factor &factor, unsigned rows, const void *where)
{
    for (unsigned row = 0; row < rows; row += 8)
        if (is_arriving(factor.start + row / 8 * factor.stride, 1024 - reinterpret_cast<uintptr_t>(factor.start) % 1024)) {
            fault(where, "COPY UNDER WAY: a factor is still being brought; wait for its mbarrier first");
            return;
        }
}

/* --- issue ------------------------------------------------------------------------------------------------------------------------ */

void warpgroup_fence() { mine().lanes[place_in_group()].fenced = true; }

static void hold(Lane &lane, float *d, unsigned n)
{
    for (const Held &held : lane.held)
        if (held.place == d)
            return;
    lane.held.push_back({d, std::vector<float>(d, d + n)});
    std::fill(d, d + n, std::numeric_limits<float>::quiet_NaN());
}

/* The first lane of the group to come brings the product, the others must bring the same. */
static Product *product_of(Warpgroup &group, const Lane &lane, const Product &wanted)
{
    size_t index = lane.issued - group.done;
    if (index == group.products.size())
        group.products.push_back(wanted);
    Product &product = group.products[index];
    if (product.a != wanted.a || product.b != wanted.b || product.columns != wanted.columns || product.add != wanted.add ||
        product.group != wanted.group) {
        fault(wanted.where, "DIVERGENT WARPGROUP: threads of one warpgroup bring different products, another at %s",
              place_of(product.where).c_str());
    }
    return &product;
}

void warpgroup_multiply(float *d, unsigned columns, uint64_t a, uint64_t b, bool add, const void *where)
{
    Warpgroup &group = mine();
    Lane &lane = group.lanes[place_in_group()];
    Factor left, right;
    if (!lane.fenced)
        fault(where, "WGMMA FENCE: accumulators are given to a product without a wgmma.fence since the last wait");
    Product *product = product_of(group, lane, {a, b, columns, lane.committed, add, where, {}, 0});
    lane.issued++;
    product->d[place_in_group()] = d;
    product->came++;
    hold(lane, d, columns / 2);
    if (place_in_group() % kWarpLanes || !decode(&left, a, kRows, where) || !decode(&right, b, columns, where))
        return;
    check_arrived(left, kRows, where);
    check_arrived(right, columns, where);
    if (tracking)
        read_factors(left, right, *product);
}

void warpgroup_commit()
{
    mine().lanes[place_in_group()].committed++;
}

/* --- the wait --------------------------------------------------------------------------------------------------------------------- */

static void unpack(float *to, const Factor &factor, unsigned rows)
{
    for (unsigned row = 0; row < rows; row++)
        for (unsigned half = 0; half < 2; half++) {
            auto *from = reinterpret_cast<const uint16_t *>(factor.piece(row, half));
            for (unsigned i = 0; i < 8; i++)
                to[row * kDepth + half * 8 + i] = __uint_as_float(uint32_t(from[i]) << 16);
        }
}

static float *values_of(Lane &lane, const float *place)
{
    for (Held &held : lane.held)
        if (held.place == place)
            return held.values.data();
    return nullptr;
}

/* f(element of the product, the lane's own) for all elements: lane 4g + t of warp w holds rows 16w + g and 8 on, columns 8j + 2t, 2t + 1. */
template <class F> static void each_element(Warpgroup &group, const Product &product, float *d, F f)
{
    for (unsigned i = 0; i < kGroup; i++) {
        float *own = values_of(group.lanes[i], product.d[i]);
        unsigned row = i / kWarpLanes * 16 + i % kWarpLanes / 4, column = 2 * (i % 4);
        for (unsigned e = 0; own && e < product.columns / 2; e++)
            f(d[(row + e % 4 / 2 * 8) * kColumnsMax + column + e / 4 * 8 + e % 2], own[e]);
    }
}

static void multiply(Warpgroup &group, const Product &product)
{
    static float a[kRows * kDepth], b[kColumnsMax * kDepth], across[kDepth * kColumnsMax], d[kRows * kColumnsMax];
    Factor left, right;
    if (product.came != kGroup)
        fault(product.where, "PARTIAL WARPGROUP: %u of 128 threads brought this product", product.came);
    if (!decode(&left, product.a, kRows, product.where) || !decode(&right, product.b, product.columns, product.where))
        return;
    for (unsigned warp = 0; tracking && warp < kGroup / kWarpLanes; warp++)
        as_thread(number_of(self) / kGroup * kGroup + warp * kWarpLanes, [&] { read_factors(left, right, product); });
    unpack(a, left, kRows);
    unpack(b, right, product.columns);
    for (unsigned k = 0; k < kDepth; k++)
        for (unsigned column = 0; column < product.columns; column++)
            across[k * kColumnsMax + column] = b[column * kDepth + k];
    each_element(group, product, d, [&](float &sum, float &own) { sum = product.add ? own : 0; });
    for (unsigned row = 0; row < kRows; row++)
        for (unsigned k = 0; k < kDepth; k++)
            for (unsigned column = 0; column < product.columns; column++)
                d[row * kColumnsMax + column] += a[row * kDepth + k] * across[k * kColumnsMax + column];
    each_element(group, product, d, [](float &sum, float &own) { own = sum; });
}

/* Accumulators that no product needs any more are the thread's again. */
static void give_back(Warpgroup &group, unsigned number)
{
    std::vector<Held> kept;
    for (Held &held : group.lanes[number].held) {
        bool needed = std::any_of(group.products.begin(), group.products.end(), [&](const Product &p) { return p.d[number] == held.place; });
        if (needed)
            kept.push_back(std::move(held));
        else
            std::copy(held.values.begin(), held.values.end(), held.place);
    }
    group.lanes[number].held = std::move(kept);
}

static void finish(Warpgroup &group)
{
    while (!group.products.empty() && group.products.front().group < group.target) {
        multiply(group, group.products.front());
        group.products.pop_front();
        group.done++;
    }
    for (unsigned i = 0; i < kGroup; i++)
        give_back(group, i);
}

void warpgroup_wait(unsigned pending, const void *where)
{
    Warpgroup &group = mine();
    Lane &lane = group.lanes[place_in_group()];
    unsigned target = lane.committed > pending ? lane.committed - pending : 0;
    lane.fenced = false;
    if (group.waiting && group.target != target)
        fault(where, "DIVERGENT WARPGROUP: threads of one warpgroup wait for different products");
    group.target = target;
    if (++group.waiting < kGroup) {
        wait_in(group.queue, "a wait of its warpgroup", where);
        return;
    }
    group.waiting = 0;
    finish(group);
    wake(group.queue);
}

}    // namespace cuemu
