#include "tests/cuda/device.h"

#include <stdlib.h>

enum { ALLOCATIONS = 512 };

static struct { char *memory; size_t bytes; } taken[ALLOCATIONS];
static size_t n_taken;

static void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(2);
}

void *device_new(size_t count, size_t size)
{
    void *memory = NULL;
    size_t bytes = (count * size + 15) / 16 * 16;
    if (n_taken == ALLOCATIONS) exit(2);
    must(cudaMalloc(&memory, bytes + DEVICE_GUARD), "cudaMalloc");
    must(cudaMemset(memory, 0xff, bytes + DEVICE_GUARD), "cudaMemset");
    taken[n_taken].memory = memory;
    taken[n_taken++].bytes = bytes;
    return memory;
}

void *device_copy(const void *from, size_t count, size_t size)
{
    void *memory = device_new(count, size);
    if (count && size) must(cudaMemcpy(memory, from, count * size, cudaMemcpyHostToDevice), "cudaMemcpy");
    return memory;
}

void device_read(void *to, const void *from, size_t count, size_t size)
{
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    if (count && size) must(cudaMemcpy(to, from, count * size, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

bool device_is_hopper(void)
{
    int major = 0, minor = 0;
    must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
    must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "cudaDeviceGetAttribute");
    return major == 9 && minor == 0;
}

void device_free_all(void)
{
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    while (n_taken) {
        unsigned char guard[DEVICE_GUARD];
        n_taken--;
        must(cudaMemcpy(guard, taken[n_taken].memory + taken[n_taken].bytes, sizeof guard, cudaMemcpyDeviceToHost), "cudaMemcpy");
        for (size_t i = 0; i < sizeof guard; i++) CHECK_EQ(guard[i], 0xff);
        must(cudaFree(taken[n_taken].memory), "cudaFree");
    }
}

/* 0 = as in the tests. */
static uint64_t seed_of_environment(void)
{
    static uint64_t seed;
    static bool known;
    const char *text = getenv("GB_SEED");
    if (!known && text) {
        seed = strtoull(text, NULL, 0);
        printf("seed %" PRIu64 "\n", seed);
    }
    known = true;
    return seed;
}

void fresh_rng(gb_rng *rng, uint64_t number)
{
    uint64_t seed = seed_of_environment();
    gb_rng_init(rng, seed ? gb_mix64(seed + gb_mix64(number)) : number);
}

void fill_f32(float *out, size_t n, float scale, gb_rng *rng)
{
    for (size_t i = 0; i < n; i++) out[i] = (float)(2 * gb_rng_uniform(rng) - 1) * scale;
}

void fill_bf16(uint16_t *out, size_t n, float scale, gb_rng *rng)
{
    for (size_t i = 0; i < n; i++) out[i] = gb_f32_to_bf16((float)(2 * gb_rng_uniform(rng) - 1) * scale);
}

gb_k_fault *fault_new(void)
{
    gb_k_fault none = {0};
    return device_copy(&none, 1, sizeof none);
}

gb_k_fault fault_read(const gb_k_fault *fault)
{
    gb_k_fault f;
    device_read(&f, fault, 1, sizeof f);
    return f;
}
