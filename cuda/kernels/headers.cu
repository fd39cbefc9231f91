/* The messages of one source to all ranks, out of the offsets that dispatch wrote. One thread a word. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/groups.cuh"

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads) headers_kernel(gb_k_headers_args a)
{
    const uint32_t per_rank = a.slots / a.ranks, words = per_rank + GB_K_HEADER_WORDS, i = blockIdx.x * kThreads + threadIdx.x;
    if (i < a.ranks * words) a.headers[i] = gb_header_word(a.offsets, a.version, per_rank, i / words, i % words);
}

extern "C" int gb_k_headers(const gb_k_headers_args *a, cudaStream_t stream)
{
    if (a->ranks == 0 || a->ranks > GB_K_PEERS_MAX || a->slots == 0 || a->slots % a->ranks || a->slots > GB_K_SLOTS_MAX)
        return gb_k_fail(GB_EINVAL, "headers: %u slots on %u ranks; each rank needs the same number, at most %d on %d", a->slots, a->ranks,
                         GB_K_SLOTS_MAX, GB_K_PEERS_MAX);
    GB_LAUNCH(headers_kernel, gb_k_ceil(a->slots + a->ranks * GB_K_HEADER_WORDS, kThreads), kThreads, 0, stream, *a);
    return gb_k_launched("headers");
}
