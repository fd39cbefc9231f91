#include "tests/cuda/zoo.h"

#include "cuda/kernels/tensor_map.h"
#include "cuda/kernels/wgmma.cuh"

/* Each kernel is wrong where `right` is false. All but those that say otherwise run as one block of ZOO_THREADS. */

__global__ void no_syncwarp(int *out, bool right)
{
    GB_SHARED(int, s_value, [64]);
    int i = threadIdx.x;
    s_value[i] = i;
    if (right)
        __syncwarp();
    out[i] = s_value[i ^ 1];
}

__global__ void write_after_read(int *out, bool right)
{
    GB_SHARED(int, s_value, [64]);
    int sum = 0;
    for (int i = 0; i < 4; i++) {
        s_value[threadIdx.x] = i;
        __syncthreads();
        sum += s_value[63 - threadIdx.x];
        if (right)
            __syncthreads();
    }
    out[threadIdx.x] = sum;
}

__global__ void two_blocks_add(int *out, bool right)
{
    if (threadIdx.x != 0)
        return;
    if (right)
        atomicAdd(out, 1);
    else
        out[0] += 1;
}

__global__ void atomic_meets_plain(int *out, bool right)
{
    atomicAdd(&out[0], 1);
    if (right)
        __syncthreads();
    if (threadIdx.x == 63)
        out[1] = out[0];
}

__global__ void divergent_barrier(int *out, bool right)
{
    if (right || threadIdx.x < 32) {
        __syncthreads();
    } else {
        out[threadIdx.x] = 1;
        __syncthreads();
    }
    out[threadIdx.x] = 0;
}

__global__ void early_exit(int *out, bool right)
{
    if (!right && threadIdx.x == 5)
        return;
    __syncthreads();
    out[threadIdx.x] = 0;
}

__global__ void lane_not_in_mask(int *out, bool right)
{
    out[threadIdx.x] = __shfl_xor_sync(right ? 0xffffffffu : 0x0000ffffu, int(threadIdx.x), 1);
}

/* Only the lower half comes, but its mask names the whole warp. */
__global__ void half_a_warp_waits(int *out, bool right)
{
    if (threadIdx.x % 32 < 16)
        __syncwarp(right ? 0x0000ffffu : 0xffffffffu);
    else if (!right)
        __syncthreads();
    out[threadIdx.x] = 0;
}

__global__ void warp_diverges(int *out, bool right)
{
    if (right || threadIdx.x % 2)
        out[threadIdx.x] = int(__ballot_sync(0xffffffffu, 1));
    else
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 2);
}

__global__ void shuffle_from_exited(int *out, bool right)
{
    if (threadIdx.x >= 16)
        return;
    out[threadIdx.x] = __shfl_sync(right ? 0x0000ffffu : 0xffffffffu, int(threadIdx.x), right ? 3 : 20);
}

__global__ void unset_device(int *out, const int *in, bool right)
{
    out[threadIdx.x] = right ? 1 : in[threadIdx.x];
}

__global__ void unset_shared(int *out, bool right)
{
    GB_DYN_SHARED(int, s_value);
    if (right || threadIdx.x < 63)
        s_value[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = s_value[63 - threadIdx.x];
}

__global__ void shared_overrun(int *out, bool right)
{
    GB_SHARED(int, s_value, [64]);
    s_value[threadIdx.x + (right ? 0 : 1)] = 1;
    __syncthreads();
    out[threadIdx.x] = s_value[threadIdx.x | 1];
}

__global__ void write_past_end(int *out, bool right)
{
    out[threadIdx.x + (right ? 0 : 1)] = 1;
}

__global__ void far_out(int *out, bool right)
{
    out[right ? threadIdx.x : 100000 + threadIdx.x] = 1;
}

__global__ void misaligned(int *out, const int *in, bool right)
{
    if (threadIdx.x < 8)
        gb_store16(out + threadIdx.x * 4, gb_load16(in + threadIdx.x * 4 + (right ? 0 : 1)));
}

__global__ void misaligned_pair(int *out, bool right)
{
    if (threadIdx.x < 16)
        *reinterpret_cast<long long *>(out + threadIdx.x * 2 + (right ? 0 : 1)) = 1;
}

__global__ void copy_not_awaited(int *out, const int *in, bool right)
{
    GB_SHARED(int4, s_value, [16]);
    if (threadIdx.x < 16)
        gb_cp_async16(&s_value[threadIdx.x], in + threadIdx.x * 4, true);
    gb_cp_commit();
    if (right)
        gb_cp_wait<0>();
    __syncthreads();
    out[threadIdx.x] = s_value[threadIdx.x / 4].x;
}

/* The second copy goes into memory that others still read: the two-stage pipeline without its second barrier. */
__global__ void copy_overtakes_read(int *out, const int *in, bool right)
{
    GB_SHARED(int4, s_value, [16]);
    int sum = 0;
    for (int i = 0; i < 2; i++) {
        if (threadIdx.x < 16)
            gb_cp_async16(&s_value[threadIdx.x], in + threadIdx.x * 4, true);
        gb_cp_commit();
        gb_cp_wait<0>();
        __syncthreads();
        sum += s_value[15 - threadIdx.x / 4].x;
        if (right)
            __syncthreads();
    }
    out[threadIdx.x] = sum;
}

__global__ void much_shared(int *out)
{
    GB_DYN_SHARED(int, s_value);
    s_value[threadIdx.x] = 1;
    out[threadIdx.x] = s_value[threadIdx.x];
}

__global__ void fill(int *out, int value) { out[threadIdx.x] = value; }
__global__ void copy(int *out, const int *in) { out[threadIdx.x] = in[threadIdx.x]; }

__global__ void trapping(int *out, bool right)
{
    if (!right && threadIdx.x == 3)
        __trap();
    out[threadIdx.x] = 1;
}

__global__ void partial_mma(int *out, bool right)
{
    float d[4] = {0, 0, 0, 0};
    uint32_t a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
    if (!right && threadIdx.x % 32 == 31)
        return;
    gb_mma_16816(d, a, b);
    out[threadIdx.x] = int(d[0]);
}

static void run_with_much_shared(int *out, bool right, cudaStream_t stream)
{
    enum { kBytes = 64 * 1024 };
    if (right)
        cudaFuncSetAttribute(reinterpret_cast<const void *>(much_shared), cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    GB_LAUNCH(much_shared, 1, ZOO_THREADS, kBytes, stream, out);
}

/* The input, as 2 rows of 64 bfloat16, brought by a tensor copy; in two rounds where the second could overtake who still reads. */
__global__ void tensor_copy(int *out, const __grid_constant__ CUtensorMap map, zoo_animal animal, bool right)
{
    enum { kBytes = 256 };
    GB_DYN_SHARED(unsigned char, s_memory);
    unsigned char *s_tile = s_memory + (1024 - gb_shared_address(s_memory) % 1024) % 1024;
    auto *s_barrier = reinterpret_cast<uint64_t *>(s_tile + 1024);
    const bool wrong = !right;
    const int rounds = animal == ZOO_TENSOR_OVERTAKES_READ ? 2 : 1;
    if (threadIdx.x == 0) {
        gb_mbarrier_init(s_barrier, 1);
        gb_fence_async();
    }
    if (!(wrong && animal == ZOO_MBARRIER_NOT_SHARED))
        __syncthreads();
    for (int round = 0; round < rounds; round++) {
        if (threadIdx.x == 0) {
            gb_mbarrier_arrive_expect(s_barrier, wrong && animal == ZOO_TENSOR_WRONG_BYTES ? 2 * kBytes : kBytes);
            gb_tensor_load_2d(s_tile + (wrong && animal == ZOO_TENSOR_MISALIGNED ? 128 : 0), &map, s_barrier, 0, 0);
        }
        if (wrong && animal == ZOO_TENSOR_NOT_AWAITED)
            return;
        if (!(wrong && animal == ZOO_TENSOR_READ_EARLY))
            gb_mbarrier_wait(s_barrier, unsigned(round));
        out[threadIdx.x] = reinterpret_cast<int *>(s_tile)[threadIdx.x];
        if (right)
            __syncthreads();
    }
}

/* D = A B^T with A[r][k] = r where k is 0, B[n][k] = 1 where k is 0, else 0: D[7][0] is 7. */
__global__ void small_product(int *out, zoo_animal animal, bool right)
{
    GB_DYN_SHARED(unsigned char, s_memory);
    unsigned char *s_a = s_memory + (1024 - gb_shared_address(s_memory) % 1024) % 1024, *s_b = s_a + 8192;
    const unsigned row = threadIdx.x % 64, thread = threadIdx.x;
    const bool wrong = !right;
    float d[4] = {0, 0, 0, 0};
    for (unsigned piece = 0; piece < 8; piece++) {
        const unsigned place = row * 128 + ((piece ^ row % 8) << 4);
        if (thread < 64)
            *reinterpret_cast<uint4 *>(s_a + place) = make_uint4(piece ? 0 : __float_as_uint(float(row)) >> 16, 0, 0, 0);
        else if (row < 8)
            *reinterpret_cast<uint4 *>(s_b + place) = make_uint4(piece ? 0 : __float_as_uint(1.0f) >> 16, 0, 0, 0);
    }
    if (!(wrong && animal == ZOO_WGMMA_HIDDEN_STORE))
        gb_fence_async();
    __syncthreads();
    const uint64_t swizzle = wrong && animal == ZOO_WGMMA_WRONG_SWIZZLE ? (uint64_t)1 << 62 : 0;
    if (!(wrong && animal == ZOO_WGMMA_NO_FENCE))
        gb_wgmma_fence();
    if (!(wrong && animal == ZOO_WGMMA_PARTIAL && thread == 5))
        gb_wgmma<8>(d, gb_wgmma_tile(s_a, 0) ^ swizzle, gb_wgmma_tile(s_b, 0), false);
    gb_wgmma_commit();
    if (!(wrong && animal == ZOO_WGMMA_READ_EARLY))
        gb_wgmma_wait<0>();
    if (thread == 28)
        out[0] = d[0] == 7.0f ? 7 : -1;
}

static void run_tensor_copy(zoo_animal animal, int *out, const int *in, bool right, cudaStream_t stream)
{
    const gb_k_tensor rows = {reinterpret_cast<const uint16_t *>(in), 64, 2, 0, 0, 2};
    CUtensorMap map;
    if (gb_k_tensor_map(&map, &rows) == 0)
        GB_LAUNCH(tensor_copy, 1, ZOO_THREADS, 4096, stream, out, map, animal, right);
}

static int host_memory[ZOO_INTS];

extern "C" void zoo_run(zoo_animal animal, int is_right, int *out, const int *in, cudaStream_t stream)
{
    bool right = is_right != 0;
    switch (animal) {
    case ZOO_NO_SYNCWARP: GB_LAUNCH(no_syncwarp, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_WRITE_AFTER_READ: GB_LAUNCH(write_after_read, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_TWO_BLOCKS_ADD: GB_LAUNCH(two_blocks_add, 2, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_ATOMIC_MEETS_PLAIN: GB_LAUNCH(atomic_meets_plain, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_DIVERGENT_BARRIER: GB_LAUNCH(divergent_barrier, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_EARLY_EXIT: GB_LAUNCH(early_exit, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_LANE_NOT_IN_MASK: GB_LAUNCH(lane_not_in_mask, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_HALF_A_WARP_WAITS: GB_LAUNCH(half_a_warp_waits, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_WARP_DIVERGES: GB_LAUNCH(warp_diverges, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_SHUFFLE_FROM_EXITED: GB_LAUNCH(shuffle_from_exited, 1, 32, 0, stream, out, right); break;
    case ZOO_UNSET_DEVICE: GB_LAUNCH(unset_device, 1, ZOO_THREADS, 0, stream, out, in, right); break;
    case ZOO_UNSET_SHARED: GB_LAUNCH(unset_shared, 1, ZOO_THREADS, 256, stream, out, right); break;
    case ZOO_SHARED_OVERRUN: GB_LAUNCH(shared_overrun, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_WRITE_PAST_END: GB_LAUNCH(write_past_end, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_FAR_OUT: GB_LAUNCH(far_out, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_MISALIGNED: GB_LAUNCH(misaligned, 1, ZOO_THREADS, 0, stream, out, in, right); break;
    case ZOO_MISALIGNED_PAIR: GB_LAUNCH(misaligned_pair, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_COPY_NOT_AWAITED: GB_LAUNCH(copy_not_awaited, 1, ZOO_THREADS, 0, stream, out, in, right); break;
    case ZOO_COPY_OVERTAKES_READ: GB_LAUNCH(copy_overtakes_read, 1, ZOO_THREADS, 0, stream, out, in, right); break;
    case ZOO_TOO_MUCH_SHARED: run_with_much_shared(out, right, stream); break;
    case ZOO_TOO_MANY_THREADS: GB_LAUNCH(fill, 1, right ? ZOO_THREADS : 2048, 0, stream, out, 1); break;
    case ZOO_HOST_MEMORY: GB_LAUNCH(fill, 1, ZOO_THREADS, 0, stream, right ? out : host_memory, 1); break;
    case ZOO_TRAP: GB_LAUNCH(trapping, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_PARTIAL_MMA: GB_LAUNCH(partial_mma, 1, ZOO_THREADS, 0, stream, out, right); break;
    case ZOO_NO_PEER_ACCESS: GB_LAUNCH(copy, 1, ZOO_THREADS, 0, stream, out, in); break;
    case ZOO_TENSOR_READ_EARLY:
    case ZOO_TENSOR_WRONG_BYTES:
    case ZOO_TENSOR_MISALIGNED:
    case ZOO_TENSOR_NOT_AWAITED:
    case ZOO_TENSOR_OVERTAKES_READ:
    case ZOO_MBARRIER_NOT_SHARED: run_tensor_copy(animal, out, in, right, stream); break;
    case ZOO_WGMMA_READ_EARLY:
    case ZOO_WGMMA_WRONG_SWIZZLE:
    case ZOO_WGMMA_NO_FENCE:
    case ZOO_WGMMA_HIDDEN_STORE:
    case ZOO_WGMMA_PARTIAL: GB_LAUNCH(small_product, 1, 128, 16 * 1024, stream, out, animal, right); break;
    case ZOO_ANIMALS: break;
    }
}

extern "C" void zoo_fill(int *out, int value, cudaStream_t stream) { GB_LAUNCH(fill, 1, ZOO_THREADS, 0, stream, out, value); }
extern "C" void zoo_copy(int *out, const int *in, cudaStream_t stream) { GB_LAUNCH(copy, 1, ZOO_THREADS, 0, stream, out, in); }
