/* Which products of experts run: our kernels, which read the sizes of groups on the device (wgmma on Hopper, mma.sync elsewhere; one of the
   two for everything, for they need not give the same bits), or cuBLAS with a call for each group, for which the host must know the sizes
   and waits for them. cuBLAS is there to compare with and to fall back to: it chooses an algorithm for
   each number of rows, so it does not promise a row the same bits in every batch, and a step with it is no graph. */
#include "cuda/host/context.h"

#include <string.h>

#include "cuda/kernels/tensor_map.h"

enum { HOPPER = 90, ROWS_AT_ONCE = 1024 };    /* capability 9.0; rows of gate and up in float32 */

static const char *const names[] = {[GB_CUDA_MMA] = "mma", [GB_CUDA_WGMMA] = "wgmma", [GB_CUDA_CUBLAS] = "cublas"};

const char *gb_cuda_experts_name(const gb_cuda_expert_runner *e) { return names[e->family]; }

/* --- the choice --- */

/* sm_90a's instructions are those of 9.0 and of nothing newer. */
static bool has_wgmma(const gb_cuda *cuda) { return cuda->capability == HOPPER && gb_k_has_tensor_maps(); }

static int choose(gb_cuda *cuda, const char *wish)
{
    gb_cuda_expert_runner *e = &cuda->expert_runner;
    e->family = has_wgmma(cuda) ? GB_CUDA_WGMMA : GB_CUDA_MMA;
    if (!wish || strcmp(wish, "auto") == 0) return GB_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(wish, names[i]) != 0) continue;
        if (i == GB_CUDA_WGMMA && e->family != GB_CUDA_WGMMA)
            return gb_k_fail(GB_EUNSUPPORTED, "--cuda-experts wgmma needs a device of capability 9.0 and a driver with tensor maps; this one has %u.%u: "
                             "give auto or mma", cuda->capability / 10, cuda->capability % 10);
        e->family = (gb_cuda_family)i;
        return GB_OK;
    }
    return gb_k_fail(GB_EINVAL, "the products of experts run by wgmma, mma or cublas, or auto; there is no %s", wish);
}

static int open_cublas(gb_cuda *cuda)
{
    gb_cuda_expert_runner *e = &cuda->expert_runner;
    const gb_model_config *c = &cuda->config;
    size_t width = c->expert_intermediate > c->dense_intermediate ? c->expert_intermediate : c->dense_intermediate;
    size_t slots = cuda->base.info.slots ? cuda->base.info.slots : 1;
    GB_CUBLAS(cublasCreate(&e->blas));
    GB_CUBLAS(cublasSetStream(e->blas, cuda->compute));
    GB_TRY(gb_cuda_take(cuda, &e->sums, ROWS_AT_ONCE * 2 * width, sizeof *e->sums));
    GB_TRY(gb_cuda_take_pinned(cuda, &e->pinned_offsets, slots + 1, sizeof *e->pinned_offsets));
    return gb_cuda_take_pinned(cuda, &e->pinned_places, slots, sizeof *e->pinned_places);
}

int gb_cuda_experts_open(gb_cuda *cuda, const char *wish)
{
    gb_cuda_expert_runner *e = &cuda->expert_runner;
    GB_TRY(choose(cuda, wish));
    if (e->family != GB_CUDA_CUBLAS) return GB_OK;
    cuda->eager = true;
    return open_cublas(cuda);
}

void gb_cuda_experts_close(gb_cuda *cuda)
{
    if (cuda->expert_runner.blas) cublasDestroy(cuda->expert_runner.blas);
}

/* --- cuBLAS --- */

/* out[n][outputs] = in[n][k] W[outputs][k]^T; cuBLAS is column-major, so its matrices are the transposed ones. */
static int multiply(cublasHandle_t blas, void *out, cudaDataType_t type, const uint16_t *in, const uint16_t *weights, uint32_t n, uint32_t outputs,
                    uint32_t k)
{
    const float one = 1, zero = 0;
    GB_CUBLAS(cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)outputs, (int)n, (int)k, &one, weights, CUDA_R_16BF, (int)k, in, CUDA_R_16BF, (int)k,
                           &zero, out, type, (int)outputs, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    return GB_OK;
}

/* One group: rows first .. end - 1 with the weights of a place. */
static int multiply_group(gb_cuda *cuda, const gb_k_experts_args *a, uint32_t first, uint32_t end, const uint16_t *weights)
{
    const gb_cuda_expert_runner *e = &cuda->expert_runner;
    const uint32_t hidden = a->pool.hidden, width = a->pool.width;
    for (uint32_t row = first; row < end; row += ROWS_AT_ONCE) {
        uint32_t n = end - row < ROWS_AT_ONCE ? end - row : ROWS_AT_ONCE;
        gb_k_silu_args s = {.out = cuda->gated + (size_t)row * width, .sums = e->sums, .n = n, .width = width};
        GB_TRY(multiply(e->blas, e->sums, CUDA_R_32F, a->in + (size_t)row * hidden, weights, n, 2 * width, hidden));
        GB_TRY(gb_k_silu(&s, cuda->compute));
        GB_TRY(multiply(e->blas, cuda->expert_out + (size_t)row * hidden, CUDA_R_16BF, s.out, weights + (size_t)2 * width * hidden, n, hidden, width));
    }
    return GB_OK;
}

static int read_groups(gb_cuda *cuda, const gb_k_experts_args *a)
{
    const gb_cuda_expert_runner *e = &cuda->expert_runner;
    const uint32_t slots = a->pool.slots;
    GB_CUDA(cudaMemcpyAsync(e->pinned_offsets, a->offsets, (slots + 1) * sizeof *a->offsets, cudaMemcpyDeviceToHost, cuda->compute));
    if (a->pool.place_of_slot)
        GB_CUDA(cudaMemcpyAsync(e->pinned_places, a->pool.place_of_slot, slots * sizeof *e->pinned_places, cudaMemcpyDeviceToHost, cuda->compute));
    return gb_cuda_wait(cuda, cuda->compute);
}

static int run_cublas(gb_cuda *cuda, const gb_k_experts_args *a)
{
    const gb_cuda_expert_runner *e = &cuda->expert_runner;
    const size_t place_elements = (size_t)3 * a->pool.width * a->pool.hidden;
    if (a->max_rows == 0) return GB_OK;
    GB_TRY(read_groups(cuda, a));
    for (uint32_t slot = 0; slot < a->pool.slots; slot++) {
        uint32_t first = e->pinned_offsets[slot], end = e->pinned_offsets[slot + 1];
        int32_t place = a->pool.place_of_slot ? e->pinned_places[slot] : (int32_t)slot;
        if (first == end) continue;
        if (place < 0 || (uint32_t)place >= a->pool.places) return gb_k_fail(GB_EINTERNAL, "row %u has a slot that holds no expert: %u", first, slot);
        GB_TRY(multiply_group(cuda, a, first, end, a->pool.memory + (size_t)place * place_elements));
    }
    return GB_OK;
}

/* --- our kernels --- */

static int run_kernels(gb_cuda *cuda, gb_k_experts_args *a)
{
    const bool wgmma = cuda->expert_runner.family == GB_CUDA_WGMMA;
    a->fault = cuda->fault;
    a->processors = cuda->processors;
    a->out = cuda->gated;
    GB_TRY(wgmma ? gb_k_experts_wgmma_gate_up(a, cuda->compute) : gb_k_experts_gate_up(a, cuda->compute));
    a->in = cuda->gated;
    a->out = cuda->expert_out;
    return wgmma ? gb_k_experts_wgmma_down(a, cuda->compute) : gb_k_experts_down(a, cuda->compute);
}

int gb_cuda_run_experts(gb_cuda *cuda, gb_k_experts_args *a)
{
    return cuda->expert_runner.family == GB_CUDA_CUBLAS ? run_cublas(cuda, a) : run_kernels(cuda, a);
}
