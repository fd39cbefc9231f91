/* A decode step as one graph for each pair of buckets (rows, partial results). The first time a pair comes by, its kernels run one by one,
   for what a kernel needs to be loaded cannot happen while a stream is captured; the second time they are captured, and replayed from
   then on. All that differs between two steps of a pair lies in tables at fixed addresses, which the round has sent. The graph covers the embedding and the
   layers; maps are committed before it, logits come behind it. */
#include "cuda/host/context.h"

#include "core/base/assert.h"

static int run_half(gb_cuda *cuda, const gb_row_set *rows, uint32_t layer, uint32_t moe_layer)
{
    GB_TRY(gb_cuda_norm(&cuda->base, rows, GB_NORM_MLP, layer));
    if (!cuda->config.layer_is_moe[layer]) return gb_cuda_mlp(&cuda->base, rows, layer);
    GB_TRY(gb_cuda_router(&cuda->base, rows, moe_layer));
    GB_TRY(gb_cuda_launch_dispatch(cuda, moe_layer));
    GB_TRY(gb_cuda_experts(&cuda->base, rows, moe_layer));
    return gb_cuda_combine(&cuda->base, rows, moe_layer);
}

/* What core/forward asks for, op by op, when a round does not wait. */
static int run_layers(gb_cuda *cuda)
{
    gb_row_set rows = {.n = cuda->rows};
    GB_TRY(gb_cuda_launch_embed(cuda));
    for (uint32_t layer = 0, moe_layer = 0; layer < cuda->config.layers; layer++) {
        GB_TRY(gb_cuda_norm(&cuda->base, &rows, GB_NORM_ATTENTION, layer));
        GB_TRY(gb_cuda_attention(&cuda->base, &rows, layer));
        GB_TRY(run_half(cuda, &rows, layer, moe_layer));
        moe_layer += cuda->config.layer_is_moe[layer];
    }
    return GB_OK;
}

/* Capturing is this thread's affair: experts are copied beside it. */
static int capture(gb_cuda *cuda, cudaGraphExec_t *out)
{
    cudaGraph_t graph = NULL;
    GB_CUDA(cudaStreamBeginCapture(cuda->compute, cudaStreamCaptureModeThreadLocal));
    int status = run_layers(cuda);
    cudaError_t error = cudaStreamEndCapture(cuda->compute, &graph);
    if (status == GB_OK && error == cudaSuccess) error = cudaGraphInstantiate(out, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    if (status == GB_OK && error != cudaSuccess)
        status = gb_k_fail(GB_EDOWN, "a step of %u rows could not become a graph: %s; --enforce-eager does without", cuda->rows,
                           cudaGetErrorString(error));
    return status;
}

int gb_cuda_start(gb_cuda *cuda)
{
    if (!cuda->waits) return GB_OK;
    GB_ASSERT(cuda->row_bucket < GB_CUDA_BUCKETS && cuda->partial_bucket < GB_CUDA_BUCKETS);
    bool *seen = &cuda->seen[cuda->row_bucket][cuda->partial_bucket];
    cudaGraphExec_t *graph = &cuda->graphs[cuda->row_bucket][cuda->partial_bucket];
    cuda->waits = false;
    if (!*seen) {
        *seen = true;
        return run_layers(cuda);
    }
    if (!*graph) GB_TRY(capture(cuda, graph));
    GB_CUDA(cudaGraphLaunch(*graph, cuda->compute));
    return GB_OK;
}

void gb_cuda_free_graphs(gb_cuda *cuda)
{
    for (uint32_t i = 0; i < GB_CUDA_BUCKETS; i++)
        for (uint32_t j = 0; j < GB_CUDA_BUCKETS; j++)
            if (cuda->graphs[i][j]) cudaGraphExecDestroy(cuda->graphs[i][j]);
}
