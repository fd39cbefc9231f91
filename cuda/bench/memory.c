#include "cuda/bench/bench.h"
#include "cuda/bench/rivals.h"

enum { ALLOCATIONS_MAX = 128, ALIGNMENT = 256 };

static void *taken[ALLOCATIONS_MAX];
static uint32_t n_taken;

uint32_t gb_bench_sets(const gb_bench *b, double bytes)
{
    if (b->emulated) return 2;
    double sets = 4.0 * (double)b->l2_bytes / bytes + 2;
    return sets < GB_BENCH_SETS_MAX ? (uint32_t)sets : GB_BENCH_SETS_MAX;
}

int gb_bench_take(gb_bench *b, gb_bench_array *out, uint32_t sets, size_t count, size_t size)
{
    void *memory = NULL;
    size_t bytes = count * size, stride = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (n_taken == ALLOCATIONS_MAX) return gb_k_fail(GB_ENOMEM, "a step takes more than %d arrays", ALLOCATIONS_MAX);
    GB_CUDA(cudaMalloc(&memory, sets * stride + ALIGNMENT));
    taken[n_taken++] = memory;
    *out = (gb_bench_array){memory, stride, bytes, sets};
    GB_CUDA(cudaMemsetAsync(memory, 0, sets * stride + ALIGNMENT, b->stream));
    return GB_OK;
}

int gb_bench_put(gb_bench *b, gb_bench_array *out, uint32_t sets, const void *from, size_t count, size_t size)
{
    GB_TRY(gb_bench_take(b, out, sets, count, size));
    GB_CUDA(cudaStreamSynchronize(b->stream));
    for (uint32_t set = 0; set < sets; set++) GB_CUDA(cudaMemcpy(gb_bench_at(out, set), from, out->bytes, cudaMemcpyHostToDevice));
    return GB_OK;
}

int gb_bench_random_bf16(gb_bench *b, gb_bench_array *out, uint32_t sets, size_t count, float scale)
{
    GB_TRY(gb_bench_take(b, out, sets, count, sizeof(uint16_t)));
    return gb_b_fill_bf16((uint16_t *)out->memory, sets * out->stride / sizeof(uint16_t), scale, gb_mix64(b->seed + n_taken), b->stream);
}

int gb_bench_random_f32(gb_bench *b, gb_bench_array *out, uint32_t sets, size_t count, float scale)
{
    GB_TRY(gb_bench_take(b, out, sets, count, sizeof(float)));
    return gb_b_fill_f32((float *)out->memory, sets * out->stride / sizeof(float), scale, gb_mix64(b->seed + n_taken), b->stream);
}

void gb_bench_give_back(void)
{
    cudaDeviceSynchronize();
    while (n_taken) cudaFree(taken[--n_taken]);
}
