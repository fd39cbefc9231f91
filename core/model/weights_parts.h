/* The inside of a set of tensors, shared by the file that keeps them (weights.c, which needs no library) and the one that maps
   checkpoints (weights_files.c). */
#ifndef GB_MODEL_WEIGHTS_PARTS_H
#define GB_MODEL_WEIGHTS_PARTS_H

#include "core/base/arena.h"
#include "core/model/weights.h"

typedef struct gb_mapping {
    void *base;
    size_t bytes;
} gb_mapping;

struct gb_weights {
    gb_tensor *tensors;
    size_t n, capacity;
    uint32_t *slots;         /* open addressing: index + 1 of a tensor by the hash of its name; 0 = free */
    size_t n_slots;          /* a power of two, more than twice n */
    gb_arena names;
    gb_mapping *files;
    size_t n_files;
};

#endif
