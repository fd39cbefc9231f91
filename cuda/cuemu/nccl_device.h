/* What kernels use of NCCL's device functions, whose own header does not compile without nvcc:

       #ifdef GB_CUEMU
       #include "cuda/cuemu/nccl_device.h"
       #else
       #include <nccl_device.h>
       #endif */
#ifndef GB_CUEMU_NCCL_DEVICE_H
#define GB_CUEMU_NCCL_DEVICE_H

#include <nccl.h>

#include "cuda/cuemu/cuemu.h"

CUEMU_CALL void *ncclGetLsaPointer(ncclWindow_t window, size_t offset, int peer)
{
    return cuemu::window_pointer(window, offset, peer, CUEMU_HERE);
}

#endif
