/* The safetensors format: 8 bytes of header length (little-endian), a JSON header, and one buffer that the tensors fill
   without overlap or hole. A file is checked whole before the first tensor is handed out. Pure: no file, no mapping. */
#ifndef GB_MODEL_SAFETENSORS_H
#define GB_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

enum {
    GB_SAFETENSORS_HEADER_MAX = 100 * 1000 * 1000,    /* the reference reader's cap */
    GB_SAFETENSORS_DIMS_MAX = 8,
};

typedef struct gb_safetensor {
    const char *name, *dtype;    /* "BF16", "F32", "I32", ... */
    uint32_t n_dims;
    uint64_t dims[GB_SAFETENSORS_DIMS_MAX];
    const void *data;            /* inside the file; unaligned */
    size_t bytes;
} gb_safetensor;

/* Called for each tensor, in the order of their data; what it returns other than 0 ends the walk. The tensor's strings live
   until it returns. */
typedef int gb_safetensor_visit(void *self, const gb_safetensor *tensor, gb_error *err);

/* name is what sentences call the file. GB_EFORMAT says which rule was broken and by which tensor. */
int gb_safetensors_read(const void *file, size_t bytes, const char *name, gb_safetensor_visit *visit, void *self, gb_error *err);

#endif
