/* The staged tables become the live ones between two kernels of the compute stream: whoever runs before sees the old map, whoever
   runs behind it the new one. */
#include "cuda/kernels/launch.cuh"

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads) commit_kernel(gb_k_commit_args a)
{
    const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
    if (i < a.words) a.live[i] = a.staged[i];
}

extern "C" int gb_k_commit(const gb_k_commit_args *a, cudaStream_t stream)
{
    if (a->live == a->staged) return gb_k_fail(GB_EINVAL, "commit: the staged tables are the live ones");
    if (a->words == 0) return GB_OK;
    if (a->words > kGridMax) return gb_k_fail(GB_EINVAL, "commit: %u words are more than a grid has", a->words);
    GB_LAUNCH(commit_kernel, gb_k_ceil(a->words, kThreads), kThreads, 0, stream, *a);
    return gb_k_launched("commit");
}
