/* One kernel for each instruction that gates.py counts, named has_<instruction>: it must show there, and none of them in `plain`. So a
   toolkit that encodes an instruction otherwise fails the gate instead of passing it blindly. */
#include "cuda/kernels/wgmma.cuh"

extern "C" {

__global__ void plain(float *a) { a[threadIdx.x] *= 2.0f; }

__global__ void has_ldg_128(const float4 *a, float4 *b)
{
    float4 v = a[threadIdx.x];
    v.x += 1.0f;
    b[threadIdx.x] = v;
}

__global__ void has_stg_128(float4 *b) { b[threadIdx.x] = make_float4(1, 2, 3, 4); }

__global__ void has_lds_128(float4 *b)
{
    GB_SHARED(float4, s_value, [64]);
    s_value[threadIdx.x] = make_float4(b[threadIdx.x].x, 1, 2, 3);
    __syncthreads();
    b[threadIdx.x] = s_value[63 - threadIdx.x];
}

/* An array with an index that the compiler cannot know: local memory. */
__global__ void has_local(int *b, int n)
{
    int a[64], sum = 0;
    for (int i = 0; i < 64; i++)
        a[i] = b[i] * n;
    for (int i = 0; i < n; i++) {
        a[b[i] & 63] += i;
        sum += a[(b[i] * 7) & 63];
    }
    b[0] = sum;
}

__global__ void has_atoms_inc(unsigned *b)
{
    GB_SHARED(unsigned, s_count, [128]);
    s_count[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&s_count[b[threadIdx.x] & 127], 1u);
    __syncthreads();
    b[threadIdx.x] = s_count[threadIdx.x];
}

__global__ void has_red(unsigned *b) { atomicAdd(&b[threadIdx.x & 7], b[threadIdx.x + 64]); }
__global__ void has_shfl(float *b) { b[threadIdx.x] += __shfl_xor_sync(0xffffffffu, b[threadIdx.x], 1); }

__global__ void has_hmma(const uint32_t *p, float *out)
{
    float d[4] = {0, 0, 0, 0};
    uint32_t a[4] = {p[0], p[1], p[2], p[3]}, b[2] = {p[4], p[5]};
    gb_mma_16816(d, a, b);
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void has_ldsm(uint32_t *out)
{
    GB_SHARED(uint4, s_rows, [32]);
    uint32_t r[4];
    s_rows[threadIdx.x] = make_uint4(threadIdx.x, 1, 2, 3);
    __syncthreads();
    gb_ldmatrix_x4(r, &s_rows[threadIdx.x]);
    out[threadIdx.x] = r[0] + r[1] + r[2] + r[3];
}

__global__ void has_ldgsts_128(const float4 *a, float4 *b)
{
    GB_SHARED(float4, s_value, [64]);
    gb_cp_async16(&s_value[threadIdx.x], a + threadIdx.x, true);
    gb_cp_commit();
    gb_cp_wait<0>();
    __syncthreads();
    b[threadIdx.x] = s_value[63 - threadIdx.x];
}

__global__ void has_hgmma(float *out)
{
    GB_DYN_SHARED(unsigned char, s_tile);
    float d[4];
    gb_wgmma_fence();
    gb_wgmma<8>(d, gb_wgmma_tile(s_tile, 0), gb_wgmma_tile(s_tile + 8192, 0), false);
    gb_wgmma_commit();
    gb_wgmma_wait<0>();
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void has_utmaldg(const __grid_constant__ CUtensorMap map)
{
    GB_DYN_SHARED(unsigned char, s_tile);
    gb_tensor_load_2d(s_tile, &map, reinterpret_cast<uint64_t *>(s_tile + 1024), 0, 0);
}

__global__ void has_syncs()
{
    GB_SHARED(uint64_t, s_barrier, [1]);
    gb_mbarrier_init(s_barrier, 1);
    gb_mbarrier_wait(s_barrier, 1);
}

__global__ void has_stsm(uint32_t *out)
{
    GB_SHARED(uint4, s_rows, [32]);
    const uint32_t r[4] = {threadIdx.x, 1, 2, 3};
    gb_stmatrix_x4_trans(&s_rows[threadIdx.x], r);
    __syncthreads();
    out[threadIdx.x] = s_rows[31 - threadIdx.x].x;
}

}
