/* What every kernel file includes first: the few spellings in which nvcc and the emulator (cuda/cuemu, g++) differ, so that one
   source serves both. Everything else in a kernel file is plain CUDA C++.

       GB_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...)    parenthesise a template: (kernel<8>)
       GB_DYN_SHARED(float, s_rows);                                         the launch's shared_bytes, at 128 bytes
       GB_SHARED(float, s_max, [4][8]);                                      static shared memory; a scalar: GB_SHARED(int, s_n, )
       gb_load16, gb_store16                                                 16 aligned bytes of device memory at once

   Rules that keep both honest: early returns leave by whole warps and never before a barrier; warp intrinsics name the full set of
   lanes that take part; no __activemask, no spin-wait on another block (barrier.cu is the one exception), no plain __shared__; inline
   PTX in mma.cuh, tma.cuh, wgmma.cuh and sync.cuh only. */
#ifndef GB_CUDA_COMPAT_CUH
#define GB_CUDA_COMPAT_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#ifndef GB_CUEMU

#define GB_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) (kernel)<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define GB_DYN_SHARED(T, name) \
    extern __shared__ __align__(128) unsigned char gb_dynamic_shared[]; \
    T *name = reinterpret_cast<T *>(gb_dynamic_shared)
#define GB_SHARED(T, name, dims) __shared__ T name dims

__device__ __forceinline__ uint4 gb_load16(const void *from) { return *static_cast<const uint4 *>(from); }
/* As one instruction for certain: nvcc makes four of a plain store now and then. */
__device__ __forceinline__ void gb_store16(void *to, uint4 value) { __stwb(static_cast<uint4 *>(to), value); }

#endif

#endif
