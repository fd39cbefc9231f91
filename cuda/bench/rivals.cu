#include "cuda/bench/rivals.h"

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kThreads = 256;
constexpr uint32_t kSharedCounts = 8 * 1024;    /* words; more are counted in device memory */

/* --- measuring --- */

__global__ void nothing_kernel() {}

extern "C" int gb_b_nothing(cudaStream_t stream)
{
    GB_LAUNCH(nothing_kernel, 1, 32, 0, stream);
    return gb_k_launched("nothing");
}

__global__ void __launch_bounds__(kThreads) read_kernel(uint32_t *sink, const uint4 *from, size_t n)
{
    uint32_t sum = 0;
    for (size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x; i < n; i += (size_t)gridDim.x * kThreads) {
        const uint4 v = gb_load16(from + i);
        sum += v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0xdeadbeef) atomicAdd(sink, 1u);    /* so that the loads stay; on random data hardly ever */
}

extern "C" int gb_b_read(uint32_t *sink, const uint32_t *from, size_t words, uint32_t processors, cudaStream_t stream)
{
    GB_LAUNCH(read_kernel, processors * 8, kThreads, 0, stream, sink, reinterpret_cast<const uint4 *>(from), words / 4);
    return gb_k_launched("read");
}

__device__ __forceinline__ float noise(uint64_t seed, uint64_t i, float scale)
{
    uint64_t x = seed + i * 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return ((float)(uint32_t)(x >> 40) * (2.0f / 16777216.0f) - 1.0f) * scale;
}

template <typename T> __global__ void __launch_bounds__(kThreads) fill_kernel(T *out, size_t n, float scale, uint64_t seed)
{
    for (size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x; i < n; i += (size_t)gridDim.x * kThreads) {
        const float x = noise(seed, i, scale);
        if constexpr (sizeof(T) == 2) out[i] = (T)gb_round_bf16(x);
        else out[i] = x;
    }
}

static unsigned fill_grid(size_t n)
{
    const size_t blocks = (n + kThreads - 1) / kThreads;
    return (unsigned)(blocks < 4096 ? blocks : 4096);
}

extern "C" int gb_b_fill_bf16(uint16_t *out, size_t n, float scale, uint64_t seed, cudaStream_t stream)
{
    if (n == 0) return GB_OK;
    GB_LAUNCH((fill_kernel<uint16_t>), fill_grid(n), kThreads, 0, stream, out, n, scale, seed);
    return gb_k_launched("fill");
}

extern "C" int gb_b_fill_f32(float *out, size_t n, float scale, uint64_t seed, cudaStream_t stream)
{
    if (n == 0) return GB_OK;
    GB_LAUNCH((fill_kernel<float>), fill_grid(n), kThreads, 0, stream, out, n, scale, seed);
    return gb_k_launched("fill");
}

/* --- counting --- */

__device__ __forceinline__ int32_t cell_of(const gb_k_dispatch_args &a, uint32_t route)
{
    const uint32_t row = route / a.K;
    const int32_t expert = a.experts[route];
    if (a.rows.tokens[row] < 0 || expert < 0 || (uint32_t)expert >= a.map.E) return -1;
    return (int32_t)(a.rows.engines[row] * a.map.E) + expert;
}

template <bool kCounts> __global__ void __launch_bounds__(kThreads) map_kernel(gb_k_dispatch_args a)
{
    const uint32_t route = blockIdx.x * kThreads + threadIdx.x;
    if (route >= a.rows.n * a.K) return;
    const int32_t cell = cell_of(a, route);
    a.slot_of_route[route] = cell < 0 ? -1 : a.map.route[cell];
    if (kCounts && cell >= 0) atomicAdd(&a.sent[cell], 1u);
}

__global__ void __launch_bounds__(kThreads) count_kernel(gb_k_dispatch_args a, uint32_t per_block)
{
    GB_DYN_SHARED(uint32_t, s_sent);
    const uint32_t cells = a.map.sources * a.map.E, routes = a.rows.n * a.K;
    for (uint32_t i = threadIdx.x; i < cells; i += kThreads) s_sent[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < per_block; i += kThreads) {
        const uint32_t route = blockIdx.x * per_block + i;
        const int32_t cell = route < routes ? cell_of(a, route) : -1;
        if (cell >= 0) atomicAdd(&s_sent[cell], 1u);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < cells; i += kThreads)
        if (s_sent[i]) atomicAdd(&a.sent[i], s_sent[i]);
}

extern "C" int gb_b_map_only(const gb_k_dispatch_args *a, cudaStream_t stream)
{
    if (a->rows.n == 0) return GB_OK;
    GB_LAUNCH((map_kernel<false>), gb_k_ceil(a->rows.n * a->K, kThreads), kThreads, 0, stream, *a);
    return gb_k_launched("map");
}

extern "C" int gb_b_map_and_count_globally(const gb_k_dispatch_args *a, cudaStream_t stream)
{
    if (a->rows.n == 0) return GB_OK;
    GB_LAUNCH((map_kernel<true>), gb_k_ceil(a->rows.n * a->K, kThreads), kThreads, 0, stream, *a);
    return gb_k_launched("map");
}

extern "C" int gb_b_count_apart(const gb_k_dispatch_args *a, cudaStream_t stream)
{
    const uint32_t cells = a->map.sources * a->map.E, per_block = 4 * kThreads;
    if (cells > kSharedCounts) return gb_k_fail(GB_EINVAL, "count: %u counters are more than %u", cells, kSharedCounts);
    if (a->rows.n == 0) return GB_OK;
    GB_LAUNCH(count_kernel, gb_k_ceil(a->rows.n * a->K, per_block), kThreads, cells * sizeof(uint32_t), stream, *a, per_block);
    return gb_k_launched("count");
}
