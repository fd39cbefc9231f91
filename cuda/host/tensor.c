/* Tensor parallelism: an engine on several ranks. Each has all rows of the engine, and some of the heads; so the output projection gives
   partial sums, which all ranks of the engine gather and add in the order of ranks (sum.cu). An all-reduce of NCCL would send less, but it
   chooses its order of adding by the size of the message, and then a row's bits would depend on the batch. Experts and dense layers
   take rows instead of heads: each rank a part of them, gathered afterwards. */
#include "cuda/host/rank.h"

int gb_cuda_take_tensor(gb_cuda *cuda)
{
    size_t floats = (size_t)cuda->part.tensor_ranks * cuda->max_rows * cuda->config.hidden;
    GB_TRY(gb_cuda_take(cuda, &cuda->world->parts, floats, sizeof *cuda->world->parts));
    GB_CUDA(cudaMemset(cuda->world->parts, 0, floats * sizeof *cuda->world->parts));    /* what a collective that is given up leaves */
    return GB_OK;
}

int gb_cuda_project_together(gb_cuda *cuda, const gb_cuda_layer *l)
{
    gb_cuda_world *w = cuda->world;
    size_t floats = (size_t)cuda->rows * cuda->config.hidden;
    float *own = w->parts + cuda->part.tensor_rank * floats;
    GB_TRY(gb_cuda_multiply(cuda, &cuda->o_product, own, cuda->attended, l->o, NULL, cuda->rows, false));
    GB_NCCL(cuda, w->engine, ncclAllGather(own, w->parts, floats, ncclFloat32, w->engine, cuda->compute));
    gb_k_sum_args a = {.x = cuda->x, .parts = w->parts, .bias = l->o_bias, .n = cuda->rows, .hidden = cuda->config.hidden,
                       .ranks = cuda->part.tensor_ranks, .stride = cuda->rows};
    return gb_k_sum(&a, cuda->compute);
}

int gb_cuda_gather_x(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    size_t floats = (size_t)cuda->share * cuda->config.hidden;
    GB_NCCL(cuda, w->engine, ncclAllGather(cuda->x + cuda->part.tensor_rank * floats, cuda->x, floats, ncclFloat32, w->engine, cuda->compute));
    return GB_OK;
}
