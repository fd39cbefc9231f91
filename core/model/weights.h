/* Tensors of a checkpoint by name: views into mmapped safetensors files (single, or sharded with an index). The views
   live as long as the gb_weights; a loader that has packed what it needs calls gb_weights_release to drop the pages.
   Filled by one thread; any thread may read it afterwards. */
#ifndef GB_MODEL_WEIGHTS_H
#define GB_MODEL_WEIGHTS_H

#include <stddef.h>

#include "core/model/config.h"

enum { GB_TENSOR_DIMS_MAX = 8 };

typedef struct gb_tensor {
    const char *name;
    gb_dtype dtype;
    uint32_t n_dims;
    uint64_t dims[GB_TENSOR_DIMS_MAX];
    const void *data;       /* unaligned for its type: read with memcpy or unaligned loads */
    size_t bytes;
} gb_tensor;

typedef struct gb_weights gb_weights;

/* Maps DIR/model.safetensors or the shards of DIR/model.safetensors.index.json. Header checks: length, JSON, duplicate
   names, dtype, shape x dtype = bytes without overflow, offsets inside the file, contiguous and without overlap. */
int gb_weights_open(gb_weights **out, const char *dir, gb_error *err);

/* An empty set that gb_weights_add fills with borrowed tensors: generated models in benches and tests. The name is copied,
   the data is not. GB_EEXIST for a name that is there; pointers from gb_weights_at and _find hold until the next add. */
int gb_weights_new(gb_weights **out);
int gb_weights_add(gb_weights *w, const gb_tensor *tensor);

/* Adds the tensors of a whole safetensors file that lies in memory and stays there; `name` is what sentences call it. */
int gb_weights_add_file(gb_weights *w, const void *file, size_t bytes, const char *name, gb_error *err);

void gb_weights_free(gb_weights *w);

size_t           gb_weights_count(const gb_weights *w);
const gb_tensor *gb_weights_at(const gb_weights *w, size_t index);
const gb_tensor *gb_weights_find(const gb_weights *w, const char *name);    /* NULL when absent */

/* Compares names and shapes with what config needs: GB_EFORMAT with the missing, unexpected and misshapen tensors listed
   (the first ten of each, and how many in all). lm_head.weight may stand beside tied embeddings; nobody reads it then.
   Rotary tables of old checkpoints were never added: gb_weights_open skips them. */
int gb_weights_check(const gb_weights *w, const gb_model_config *config, gb_error *err);

/* Tells the kernel that the mapped pages are not needed any more (they come back from the file if read again). */
void gb_weights_release(const gb_weights *w);

/* count elements of a tensor from element `first`, as float32; any dtype. */
void gb_tensor_read_f32(const gb_tensor *t, float *out, size_t first, size_t count);

static inline float gb_bf16_to_f32(uint16_t x)
{
    union { uint32_t u; float f; } v = {.u = (uint32_t)x << 16};
    return v.f;
}
uint16_t gb_f32_to_bf16(float x);    /* round to nearest even; NaN stays NaN */
float    gb_f16_to_f32(uint16_t x);

#endif
