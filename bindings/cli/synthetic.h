/* Models made of numbers from a hash, so that a bench needs no download and every program can make the same weights:

       h = FNV-1a 64 of the tensor's Hugging Face name
       x = splitmix64 finaliser of h + (i + 1) * 0x9E3779B97F4A7C15      for element i, row-major
       s = sum of the four 16-bit fields of x - 131070                    about normal, deviation 37837.22
       value = bfloat16(float32(s) * float32(gain / sqrt(fan_in) / 37837.22)), to nearest even

   gain is 1, 1.5 for routers; embeddings are scaled by 0.5, norms are ones. Routing is nearly uniform. There is no tokenizer,
   so no row of lm_head is zeroed for tokens that are not text: a server takes and gives token ids. */
#ifndef GB_CLI_SYNTHETIC_H
#define GB_CLI_SYNTHETIC_H

#include "core/cpu/threads.h"
#include "core/model/config.h"
#include "core/model/weights.h"

typedef struct gb_synthetic {
    const char *name;
    gb_model_config config;
    gb_weights *weights;     /* views into data */
    void *data;              /* the tensors one after the other, as a safetensors file holds them */
    size_t bytes;
} gb_synthetic;

/* name: "m1b" (1.0 G parameters, 0.2 G active: hidden 1024, 12 layers, 64 experts, 8 a token) or "tiny" (22 M: hidden 256,
   6 layers, 32 experts, 4 a token). GB_ENOTFOUND for another, GB_ENOMEM. */
int  gb_synthetic_init(gb_synthetic *model, const char *name, gb_threads *threads, gb_error *err);
void gb_synthetic_deinit(gb_synthetic *model);

/* Writes DIR/config.json and DIR/model.safetensors; the directory is made if its parent exists. */
int gb_synthetic_write(const gb_synthetic *model, const char *dir, gb_error *err);

/* n values of one tensor from element `first`, for tests. */
void gb_synthetic_values(uint16_t *out, const char *name, double scale, size_t first, size_t n);

#endif
