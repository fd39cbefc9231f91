/* What the emulator keeps in the 128 bytes of a CUtensorMap: a box of a tensor of 16-bit words, and how it lies in shared memory. */
#ifndef GB_CUEMU_TENSOR_MAP_H
#define GB_CUEMU_TENSOR_MAP_H

#include <cstdint>

namespace cuemu {

enum { kMapDims = 3, kWord = 2 };

struct TensorMap {
    enum : uint64_t { kMagic = 0x67696d62616c6d61 };
    uint64_t magic;
    char *address;
    uint64_t strides[kMapDims];    /* bytes from one to the next; [0] is a word */
    uint32_t dims[kMapDims], boxes[kMapDims];
    uint32_t rank;
    bool swizzled;                 /* 128 bytes */

    uint32_t row_bytes() const { return boxes[0] * kWord; }
    uint32_t rows() const { return boxes[1] * boxes[2]; }
    uint32_t bytes() const { return row_bytes() * rows(); }
};

/* Where the 16-byte piece at a linear address lies when 8 rows of 128 bytes are swizzled: bits 4-6 are xored with bits 7-9. */
inline uintptr_t swizzled(uintptr_t address) { return address ^ (address >> 7 & 7) << 4; }

}    // namespace cuemu

#endif
