/* The only file that knows NCCL's device functions: what they tell is a pointer for each rank, and kernels take it from there. A thread a
   rank. */
#include "cuda/kernels/launch.cuh"

#ifdef GB_CUEMU
#include "cuda/cuemu/nccl_device.h"
#else
#include <nccl_device.h>
#endif

__global__ void __launch_bounds__(GB_K_PEERS_MAX) peers_kernel(gb_k_peers_args a)
{
    if (threadIdx.x < a.ranks) a.peers[threadIdx.x] = ncclGetLsaPointer(static_cast<ncclWindow_t>(a.window), 0, (int)threadIdx.x);
}

extern "C" int gb_k_peers(const gb_k_peers_args *a, cudaStream_t stream)
{
    if (a->ranks == 0 || a->ranks > GB_K_PEERS_MAX)
        return gb_k_fail(GB_EINVAL, "peers: windows of %u ranks; at most %d are supported", a->ranks, GB_K_PEERS_MAX);
    GB_LAUNCH(peers_kernel, 1, GB_K_PEERS_MAX, 0, stream, *a);
    return gb_k_launched("peers");
}

extern "C" uint32_t gb_k_reachable(void *comm)
{
#ifdef GB_CUEMU
    int ranks = 0;    /* devices of one process, or memory that its processes share */
    return ncclCommCount(static_cast<ncclComm_t>(comm), &ranks) == ncclSuccess ? (uint32_t)ranks : 0;
#else
    return (uint32_t)ncclTeamLsa(static_cast<ncclComm_t>(comm)).nRanks;
#endif
}
