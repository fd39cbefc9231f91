/* Words that ranks tell each other things with, and the clock of the device: PTX, for nvcc only. What a thread wrote or saw before a
   release is visible to whoever acquires the word on another device. */
#ifndef GB_CUDA_SYNC_CUH
#define GB_CUDA_SYNC_CUH

#include <stdint.h>

__device__ __forceinline__ void gb_release(uint32_t *to, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

__device__ __forceinline__ uint32_t gb_acquire(const uint32_t *from)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ uint64_t gb_nanoseconds()
{
    uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

#endif
