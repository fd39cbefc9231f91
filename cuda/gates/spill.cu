/* More live values than registers: ptxas must refuse it when spills are errors. */
__global__ void __launch_bounds__(1024, 2) spill(float *a, int n)
{
    float v[64];
#pragma unroll
    for (int i = 0; i < 64; i++) v[i] = a[i * 1024 + threadIdx.x];
    for (int round = 0; round < n; round++) {
#pragma unroll
        for (int i = 0; i < 64; i++) v[i] = v[i] * v[(i + 7) & 63] + v[(i + 13) & 63];
    }
#pragma unroll
    for (int i = 0; i < 64; i++) a[i * 1024 + threadIdx.x] = v[i];
}
