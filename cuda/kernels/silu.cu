/* out[row][f] = silu(gate) * up of products that came as sums[row] = gate | up in float32: what experts.cu does on the way, for products
   that cuBLAS made. 8 values a thread. */
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/number.cuh"

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads) silu_kernel(gb_k_silu_args a)
{
    const size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x, pieces = a.width / 8;
    if (i >= a.n * pieces) return;
    const size_t row = i / pieces, f = i % pieces * 8;
    const float *sums = a.sums + row * 2 * a.width + f;
    float gate[4], up[4];
    uint32_t pairs[4];
#pragma unroll
    for (int side = 0; side < 2; side++) {
        gb_load_floats(gate, sums + side * 4);
        gb_load_floats(up, sums + a.width + side * 4);
#pragma unroll
        for (int j = 0; j < 2; j++)
            pairs[side * 2 + j] = gb_pack_bf16(gb_silu(gate[2 * j]) * up[2 * j], gb_silu(gate[2 * j + 1]) * up[2 * j + 1]);
    }
    gb_store16(a.out + row * a.width + f, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
}

extern "C" int gb_k_silu(const gb_k_silu_args *a, cudaStream_t stream)
{
    if (a->width == 0 || a->width % 8) return gb_k_fail(GB_EINVAL, "silu: a width of %u is no multiple of 8", a->width);
    if (a->n == 0) return GB_OK;
    const uint64_t blocks = ((uint64_t)a->n * (a->width / 8) + kThreads - 1) / kThreads;
    if (blocks > kGridMax) return gb_k_fail(GB_EINVAL, "silu: %u rows of %u are too many", a->n, a->width);
    GB_LAUNCH(silu_kernel, (uint32_t)blocks, kThreads, 0, stream, *a);
    return gb_k_launched("silu");
}
