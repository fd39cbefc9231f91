/* The emulator's device side: included first (g++ -x c++ -include cuda/cuemu/cuemu.h), it turns a .cu file into ordinary C++ that
   runs on the host. One block runs at a time, each CUDA thread on a fiber of its own; types come from the real CUDA headers, the
   runtime functions from cuda/cuemu's own library (cudart.cpp and its neighbours). Everything here runs on a kernel's fiber.

   Checked as a kernel runs: who takes part in warp intrinsics and barriers, guards around and poison in device and shared memory.
   Built with -fsanitize=thread (and without libtsan) every load and store is checked too: races, bounds, alignment, first use. */
#ifndef GB_CUEMU_H
#define GB_CUEMU_H

#define GB_CUEMU 1

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __align__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

/* Functions of the emulator that a kernel calls: never inlined, so that the return address is the kernel's line, and not checked
   by the track build as if they were the kernel's own. */
#define CUEMU_PLAIN __attribute__((no_sanitize("thread")))
#define CUEMU_CALL CUEMU_PLAIN __attribute__((noinline)) inline
#define CUEMU_HERE __builtin_return_address(0)

namespace cuemu {

struct Thread {
    uint3 index;
    unsigned lane, warp;
};

struct Block {
    dim3 grid, block;
    uint3 index;
};

extern Thread *self;    /* the CUDA thread that runs now */
extern Block here;

/* operand: a read by a tensor core, from shared memory; fetch: a read by a tensor copy, which may meet what nobody set; deliver: what it
   writes. These three go through the asynchronous proxy. */
enum class Access { read, write, atomic, operand, fetch, deliver };

/* What the lanes named by mask bring to a warp intrinsic; ready when all of them came. The last to leave gives it back. */
struct Meeting {
    uint32_t mask, arrived, left;
    int kind;
    const void *where;
    void (*together)(Meeting *);
    uint64_t value[32];
    Meeting *next;
};

/* Kinds of warp intrinsics, for the check that all lanes of a mask met in the same one. */
enum Kind {
    kSyncWarp, kShuffle, kShuffleXor, kShuffleDown, kShuffleUp, kBallot, kAll, kMatchAny, kReduceAdd, kReduceMax, kReduceMin,
    kReduceAnd, kReduceOr, kReduceXor, kMma, kLdMatrix, kStMatrix
};

enum BarrierKind { kBarrier, kBarrierCount, kBarrierAnd, kBarrierOr };

int barrier(BarrierKind kind, int value, const void *where);
/* together runs once, on the last lane to come, while what the others brought still lies on their fibers. */
Meeting *meet(Kind kind, uint32_t mask, uint64_t value, const void *where, void (*together)(Meeting *) = nullptr);
void leave(Meeting *meeting);

void *dynamic_shared();
void *static_shared(const void *key, size_t bytes, size_t align);

/* A load or store of a kernel that the compiler does not show: atomics, 16-byte accesses, copies. */
void access(const void *address, size_t bytes, Access kind, const void *where);
void unset(const void *address, size_t bytes);    /* poisoned again: its contents are on their way */

void fault(const void *where, const char *format, ...) __attribute__((format(printf, 2, 3)));
[[noreturn]] void trap(const void *where);

void async_copy16(void *to, const void *from, bool valid, const void *where);
void async_commit();
void async_wait(unsigned pending);

cudaError_t enqueue_kernel(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, const void *kernel, const char *name,
                           std::function<void()> body, const void *where);
void enter_kernel();
void leave_kernel();

/* A barrier between ranks (cuda/kernels/barrier.cu), as an operation of the stream: a kernel that waits for another one would never end
   here. gave_up(missing rank, epoch) is called when limit_ns have passed, if there is a limit. */
struct RankBarrier {
    uint32_t *const *flags;
    uint32_t *epoch;
    unsigned rank, ranks;
    uint64_t limit_ns;
    std::function<void(unsigned, uint32_t)> gave_up;
    std::function<bool()> is_over;    /* nobody is waited for any more */
};
/* Where the peer's part of a window of NCCL lies (nccl_device.h). */
void *window_pointer(const void *window, size_t offset, int peer, const void *where);
cudaError_t enqueue_rank_barrier(const RankBarrier &barrier, cudaStream_t stream);

template <class... Parameters, class... Arguments>
CUEMU_CALL void launch(const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                       cudaStream_t stream, Arguments &&...arguments)
{
    std::tuple<std::decay_t<Parameters>...> copied(std::forward<Arguments>(arguments)...);
    auto body = [kernel, copied]() {
        auto own = copied;
        enter_kernel();
        std::apply([kernel](auto &...each) { kernel(each...); }, own);
        leave_kernel();
    };
    enqueue_kernel(grid, block, shared_bytes, stream, reinterpret_cast<const void *>(kernel), name, body, CUEMU_HERE);
}

template <class T> CUEMU_PLAIN inline uint64_t to_word(T value)
{
    static_assert(sizeof(T) <= 8, "warp intrinsics take at most 8 bytes");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    return word;
}

template <class T> CUEMU_PLAIN inline T from_word(uint64_t word)
{
    T value;
    memcpy(&value, &word, sizeof value);
    return value;
}

template <class T> CUEMU_PLAIN inline T take_lane(Meeting *meeting, unsigned lane, const void *where)
{
    if (!(meeting->arrived >> lane & 1))
        fault(where, "SHUFFLE reads lane %u, which does not take part", lane);
    T value = from_word<T>(meeting->value[lane]);
    leave(meeting);
    return value;
}

/* f(lane's value) for every lane that takes part. */
template <class F> CUEMU_PLAIN inline void each_lane(Meeting *meeting, F f)
{
    for (unsigned lane = 0; lane < 32; lane++)
        if (meeting->arrived >> lane & 1)
            f(lane, meeting->value[lane]);
    leave(meeting);
}

}    // namespace cuemu

#define threadIdx (cuemu::self->index)
#define blockIdx (cuemu::here.index)
#define blockDim (cuemu::here.block)
#define gridDim (cuemu::here.grid)
constexpr int warpSize = 32;

/* The spellings of cuda/kernels/compat.cuh. */
#define GB_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    cuemu::launch(#kernel, kernel, grid, block, shared_bytes, stream, ##__VA_ARGS__)
#define GB_DYN_SHARED(T, name) T *name = static_cast<T *>(cuemu::dynamic_shared())
#define GB_SHARED(T, name, dims) \
    static char name##_key; \
    T(&name) dims = *reinterpret_cast<T(*) dims>(cuemu::static_shared(&name##_key, sizeof(T dims), alignof(T)))

CUEMU_CALL uint4 gb_load16(const void *from)
{
    cuemu::access(from, 16, cuemu::Access::read, CUEMU_HERE);
    uint4 value;
    memcpy(&value, from, sizeof value);
    return value;
}

CUEMU_CALL void gb_store16(void *to, uint4 value)
{
    cuemu::access(to, 16, cuemu::Access::write, CUEMU_HERE);
    memcpy(to, &value, sizeof value);
}

/* --- barriers and fences ---------------------------------------------------------------------------------------------------- */

CUEMU_CALL void __syncthreads() { cuemu::barrier(cuemu::kBarrier, 0, CUEMU_HERE); }
CUEMU_CALL int __syncthreads_count(int value) { return cuemu::barrier(cuemu::kBarrierCount, value, CUEMU_HERE); }
CUEMU_CALL int __syncthreads_and(int value) { return cuemu::barrier(cuemu::kBarrierAnd, value, CUEMU_HERE); }
CUEMU_CALL int __syncthreads_or(int value) { return cuemu::barrier(cuemu::kBarrierOr, value, CUEMU_HERE); }
CUEMU_CALL void __syncwarp(unsigned mask = 0xffffffffu) { cuemu::leave(cuemu::meet(cuemu::kSyncWarp, mask, 0, CUEMU_HERE)); }
/* One block runs at a time and stores are seen at once: fences have nothing to do here, and nothing is proven about them. */
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
CUEMU_CALL void __trap() { cuemu::trap(CUEMU_HERE); }

/* --- warp intrinsics -------------------------------------------------------------------------------------------------------- */

template <class T> CUEMU_CALL T __shfl_sync(unsigned mask, T value, int from, int width = 32)
{
    auto *meeting = cuemu::meet(cuemu::kShuffle, mask, cuemu::to_word(value), CUEMU_HERE);
    unsigned lane = cuemu::self->lane;
    return cuemu::take_lane<T>(meeting, (lane & ~(width - 1u)) | (from & (width - 1u)), CUEMU_HERE);
}

template <class T> CUEMU_CALL T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    auto *meeting = cuemu::meet(cuemu::kShuffleXor, mask, cuemu::to_word(value), CUEMU_HERE);
    unsigned lane = cuemu::self->lane, from = lane ^ bits;
    bool beyond = (from & ~(width - 1u)) > (lane & ~(width - 1u));
    return cuemu::take_lane<T>(meeting, beyond ? lane : from, CUEMU_HERE);
}

template <class T> CUEMU_CALL T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32)
{
    auto *meeting = cuemu::meet(cuemu::kShuffleDown, mask, cuemu::to_word(value), CUEMU_HERE);
    unsigned lane = cuemu::self->lane, from = lane + distance;
    return cuemu::take_lane<T>(meeting, from / width != lane / width ? lane : from, CUEMU_HERE);
}

template <class T> CUEMU_CALL T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32)
{
    auto *meeting = cuemu::meet(cuemu::kShuffleUp, mask, cuemu::to_word(value), CUEMU_HERE);
    unsigned lane = cuemu::self->lane;
    return cuemu::take_lane<T>(meeting, lane % width < distance ? lane : lane - distance, CUEMU_HERE);
}

namespace cuemu {

CUEMU_PLAIN inline unsigned ballot(unsigned mask, int vote, const void *where)
{
    unsigned votes = 0;
    each_lane(meet(kBallot, mask, vote != 0, where), [&](unsigned lane, uint64_t value) { votes |= unsigned(value) << lane; });
    return votes;
}

}    // namespace cuemu

CUEMU_CALL unsigned __ballot_sync(unsigned mask, int vote) { return cuemu::ballot(mask, vote, CUEMU_HERE); }
CUEMU_CALL int __any_sync(unsigned mask, int vote) { return cuemu::ballot(mask, vote, CUEMU_HERE) != 0; }
CUEMU_CALL int __all_sync(unsigned mask, int vote) { return cuemu::ballot(mask, !vote, CUEMU_HERE) == 0; }

template <class T> CUEMU_CALL unsigned __match_any_sync(unsigned mask, T value)
{
    uint64_t mine = cuemu::to_word(value);
    unsigned same = 0;
    cuemu::each_lane(cuemu::meet(cuemu::kMatchAny, mask, mine, CUEMU_HERE),
                     [&](unsigned lane, uint64_t other) { same |= unsigned(other == mine) << lane; });
    return same;
}

#define CUEMU_REDUCE(name, kind, T, start, expression) \
    CUEMU_CALL T name(unsigned mask, T value) \
    { \
        T a = start; \
        cuemu::each_lane(cuemu::meet(kind, mask, cuemu::to_word(value), CUEMU_HERE), [&](unsigned, uint64_t word) { \
            T b = cuemu::from_word<T>(word); \
            a = expression; \
        }); \
        return a; \
    }
CUEMU_REDUCE(__reduce_add_sync, cuemu::kReduceAdd, unsigned, 0u, a + b)
CUEMU_REDUCE(__reduce_add_sync, cuemu::kReduceAdd, int, 0, a + b)
CUEMU_REDUCE(__reduce_max_sync, cuemu::kReduceMax, unsigned, 0u, a > b ? a : b)
CUEMU_REDUCE(__reduce_max_sync, cuemu::kReduceMax, int, INT32_MIN, a > b ? a : b)
CUEMU_REDUCE(__reduce_min_sync, cuemu::kReduceMin, unsigned, UINT32_MAX, a < b ? a : b)
CUEMU_REDUCE(__reduce_min_sync, cuemu::kReduceMin, int, INT32_MAX, a < b ? a : b)
CUEMU_REDUCE(__reduce_and_sync, cuemu::kReduceAnd, unsigned, UINT32_MAX, a & b)
CUEMU_REDUCE(__reduce_or_sync, cuemu::kReduceOr, unsigned, 0u, a | b)
CUEMU_REDUCE(__reduce_xor_sync, cuemu::kReduceXor, unsigned, 0u, a ^ b)

/* --- atomics ---------------------------------------------------------------------------------------------------------------- */

namespace cuemu {

template <class T, class F> CUEMU_PLAIN inline T atomically(T *address, const void *where, F next)
{
    access(address, sizeof(T), Access::atomic, where);
    T old = *address;
    *address = next(old);
    return old;
}

}    // namespace cuemu

#define CUEMU_ATOMIC(name, T, expression) \
    CUEMU_CALL T name(T *address, T value) \
    { \
        return cuemu::atomically(address, CUEMU_HERE, [=]([[maybe_unused]] T old) CUEMU_PLAIN -> T { return expression; }); \
    }
CUEMU_ATOMIC(atomicAdd, int, old + value)
CUEMU_ATOMIC(atomicAdd, unsigned, old + value)
CUEMU_ATOMIC(atomicAdd, unsigned long long, old + value)
CUEMU_ATOMIC(atomicAdd, float, old + value)
CUEMU_ATOMIC(atomicAdd, double, old + value)
CUEMU_ATOMIC(atomicSub, int, old - value)
CUEMU_ATOMIC(atomicSub, unsigned, old - value)
CUEMU_ATOMIC(atomicMax, int, old > value ? old : value)
CUEMU_ATOMIC(atomicMax, unsigned, old > value ? old : value)
CUEMU_ATOMIC(atomicMax, unsigned long long, old > value ? old : value)
CUEMU_ATOMIC(atomicMin, int, old < value ? old : value)
CUEMU_ATOMIC(atomicMin, unsigned, old < value ? old : value)
CUEMU_ATOMIC(atomicAnd, unsigned, old & value)
CUEMU_ATOMIC(atomicOr, unsigned, old | value)
CUEMU_ATOMIC(atomicXor, unsigned, old ^ value)
CUEMU_ATOMIC(atomicExch, int, value)
CUEMU_ATOMIC(atomicExch, unsigned, value)
CUEMU_ATOMIC(atomicExch, unsigned long long, value)
CUEMU_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)

#define CUEMU_CAS(T) \
    CUEMU_CALL T atomicCAS(T *address, T expected, T value) \
    { \
        return cuemu::atomically(address, CUEMU_HERE, [=]([[maybe_unused]] T old) CUEMU_PLAIN -> T { return old == expected ? value : old; }); \
    }
CUEMU_CAS(int)
CUEMU_CAS(unsigned)
CUEMU_CAS(unsigned long long)

/* --- loads, bits, mathematics ----------------------------------------------------------------------------------------------- */

template <class T> __forceinline__ T __ldg(const T *address) { return *address; }
template <class T> __forceinline__ T __ldcs(const T *address) { return *address; }
template <class T> __forceinline__ T __ldcg(const T *address) { return *address; }
template <class T> __forceinline__ void __stcs(T *address, T value) { *address = value; }
template <class T> __forceinline__ void __stcg(T *address, T value) { *address = value; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
inline float __int_as_float(int x) { return cuemu::from_word<float>(uint32_t(x)); }
inline int __float_as_int(float x) { return cuemu::from_word<int>(cuemu::to_word(x)); }
inline unsigned __float_as_uint(float x) { return cuemu::from_word<unsigned>(cuemu::to_word(x)); }
inline float __uint_as_float(unsigned x) { return cuemu::from_word<float>(x); }

/* The fast device functions are a few units less accurate than these. */
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
template <class T> inline T min(T a, T b) { return a < b ? a : b; }
template <class T> inline T max(T a, T b) { return a > b ? a : b; }

#endif
