/* Device memory for the kernel tests, filled with 0xff where a test gives no values: whatever a kernel leaves out shows as NaN or -1. The
   same programs run on the emulator and on a GPU. A failed runtime call ends the program. */
#ifndef GB_TESTS_CUDA_DEVICE_H
#define GB_TESTS_CUDA_DEVICE_H

#include <stddef.h>

#include "core/base/rng.h"
#include "core/base/status.h"
#include "core/model/weights.h"
#include "cuda/kernels/kernels.h"
#include "tests/check.h"

enum { DEVICE_GUARD = 64 };    /* bytes of 0xff behind what a test asked for; device_free_all checks them */

void *device_new(size_t count, size_t size);
void *device_copy(const void *from, size_t count, size_t size);
void device_read(void *to, const void *from, size_t count, size_t size);    /* waits for all work */
bool device_is_hopper(void);    /* capability 9.0, which alone has wgmma */
void device_free_all(void);    /* at the end of each test; a kernel that wrote behind an array fails it here */

#define DEVICE_COPY(array) device_copy((array), sizeof(array) / sizeof *(array), sizeof *(array))

/* gb_rng_init with number; where the environment has GB_SEED=N, other values for each N, and the program says which N. */
void fresh_rng(gb_rng *rng, uint64_t number);

/* Values for tests, from -scale to scale. */
void fill_f32(float *out, size_t n, float scale, gb_rng *rng);
void fill_bf16(uint16_t *out, size_t n, float scale, gb_rng *rng);

gb_k_fault *fault_new(void);
gb_k_fault fault_read(const gb_k_fault *fault);

#endif
