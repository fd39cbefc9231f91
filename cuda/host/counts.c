/* Statistics: A stays on the device, added to by every round, and leaves for the host when the core says that it is due, or before a counter
   could overflow: one copy on a stream of its own, behind the event counted. B is its sum over sources, which the host forms. What arrived
   at each rank and the fault words are small and leave with every round. */
#include "cuda/host/rank.h"

#include <string.h>

static size_t cells_of(const gb_cuda *cuda)
{
    return (size_t)cuda->base.info.moe_layers * cuda->part.engines * cuda->base.info.experts;
}

int gb_cuda_take_counts(gb_cuda *cuda)
{
    size_t cells = cells_of(cuda), ranks = cuda->base.info.limits.ranks;
    cuda->counted_most = UINT32_MAX;
    GB_TRY(gb_cuda_take(cuda, &cuda->sent, cells, sizeof(uint32_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->received, ranks, sizeof(uint32_t)));
    GB_TRY(gb_cuda_take(cuda, &cuda->fault, 1, sizeof(gb_k_fault)));
    GB_TRY(gb_cuda_take_pinned(cuda, &cuda->pinned_sent, cells, sizeof(uint32_t)));
    GB_TRY(gb_cuda_take_pinned(cuda, &cuda->pinned_received, ranks, sizeof(uint32_t)));
    GB_TRY(gb_cuda_take_pinned(cuda, &cuda->pinned_fault, 1, sizeof(gb_k_fault)));
    cuda->kept = GB_ARENA_NEW(&cuda->arena, uint64_t, cells);
    if (!cuda->kept) return gb_k_fail(GB_ENOMEM, "out of memory for counts of experts");
    GB_CUDA(cudaMemset(cuda->sent, 0, cells * sizeof *cuda->sent));
    GB_CUDA(cudaMemset(cuda->fault, 0, sizeof *cuda->fault));
    return GB_OK;
}

/* Whatever the statistics stream still does is over first. */
static int forget_counts(gb_cuda *cuda)
{
    GB_TRY(gb_cuda_wait(cuda, cuda->statistics));
    memset(cuda->kept, 0, cells_of(cuda) * sizeof *cuda->kept);
    GB_CUDA(cudaMemsetAsync(cuda->sent, 0, cells_of(cuda) * sizeof *cuda->sent, cuda->compute));
    GB_CUDA(cudaMemsetAsync(cuda->fault, 0, sizeof *cuda->fault, cuda->compute));
    cuda->counted_rows = 0;
    cuda->loses_counts = false;
    return GB_OK;
}

int gb_cuda_begin_counts(gb_cuda *cuda)
{
    if (cuda->loses_counts) GB_TRY(forget_counts(cuda));
    cuda->rank_tokens = NULL;
    cuda->loses_counts = true;    /* unless this round ends well */
    return GB_OK;
}

/* From the device into kept. The host waits for the other stream first: then only the event stands between the copy and kernels that count. */
static int collect(gb_cuda *cuda)
{
    size_t cells = cells_of(cuda), bytes = cells * sizeof *cuda->sent;
    GB_CUDA(cudaEventRecord(cuda->counted, cuda->compute));
    GB_CUDA(cudaStreamWaitEvent(cuda->statistics, cuda->counted, 0));
    GB_CUDA(cudaMemcpyAsync(cuda->pinned_sent, cuda->sent, bytes, cudaMemcpyDeviceToHost, cuda->statistics));
    GB_CUDA(cudaMemsetAsync(cuda->sent, 0, bytes, cuda->statistics));
    GB_TRY(gb_cuda_wait(cuda, cuda->statistics));
    for (size_t i = 0; i < cells; i++) cuda->kept[i] += cuda->pinned_sent[i];
    cuda->counted_rows = 0;
    return GB_OK;
}

/* Sources that are here stand one behind the other in both. */
static void deliver(gb_cuda *cuda, gb_matrix *due)
{
    size_t cells = (size_t)cuda->part.engines * cuda->base.info.experts;
    for (uint32_t layer = 0; layer < cuda->base.info.moe_layers; layer++) {
        uint64_t *row = gb_matrix_row(due, layer, cuda->part.engine);
        for (size_t i = 0; i < cells; i++) row[i] += cuda->kept[layer * cells + i];
    }
    memset(cuda->kept, 0, cells_of(cuda) * sizeof *cuda->kept);
}

/* A row counts at most once in a cell. */
static bool could_overflow(const gb_cuda *cuda) { return cuda->counted_rows + cuda->max_rows > cuda->counted_most; }

static int check_fault(const gb_k_fault *fault)
{
    static const char *const names[] = {
        [GB_K_FAULT_TOKEN] = "row %u has a token outside of the vocabulary: %d", [GB_K_FAULT_POSITION] = "row %u has a position beyond the longest sequence: %d",
        [GB_K_FAULT_BLOCK] = "row %u has a KV block that does not exist: %d", [GB_K_FAULT_EXPERT] = "row %u has an expert that does not exist: %d",
        [GB_K_FAULT_SLOT] = "row %u has a slot that holds no expert: %d",
        [GB_K_FAULT_VERSION] = "rank %u has routed by another version of the map: %d",
        [GB_K_FAULT_ROOM] = "more rows than there is room for at their rank: %u, %d", [GB_K_FAULT_BARRIER] = "rank %u did not come to the barrier: %d",
    };
    if (fault->kind == GB_K_FAULT_NONE) return GB_OK;
    return gb_k_fail(GB_EINTERNAL, names[fault->kind], fault->row, fault->value);
}

int gb_cuda_finish(gb_ops *ops, gb_matrix *due)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    uint32_t ranks = ops->info.limits.ranks;
    GB_TRY(gb_cuda_start(cuda));
    GB_CUDA(cudaMemcpyAsync(cuda->pinned_fault, cuda->fault, sizeof *cuda->fault, cudaMemcpyDeviceToHost, cuda->compute));
    if (cuda->rank_tokens)
        GB_CUDA(cudaMemcpyAsync(cuda->pinned_received, cuda->received, ranks * sizeof *cuda->received, cudaMemcpyDeviceToHost, cuda->compute));
    if (due || could_overflow(cuda)) GB_TRY(collect(cuda));
    GB_TRY(gb_cuda_wait(cuda, cuda->compute));
    int status = check_fault(cuda->pinned_fault);
    if (status != GB_OK) {
        GB_TRY(forget_counts(cuda));
        return status;
    }
    for (uint32_t r = 0; cuda->rank_tokens && r < ranks; r++) cuda->rank_tokens[r] += cuda->pinned_received[r];
    if (due) deliver(cuda, due);
    cuda->rank_tokens = NULL;
    cuda->loses_counts = false;
    return GB_OK;
}
