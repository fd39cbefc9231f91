/* Any bytes as a safetensors file: refused, or every tensor can be read to its end and compared with a config. */
#include <stdlib.h>

#include "core/base/assert.h"
#include "core/model/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const gb_tensor *t)
{
    size_t elements = t->bytes / gb_dtype_bytes(t->dtype), step;
    float out[64], sum = 0;
    for (size_t i = 0; i < elements; i += step) {
        step = elements - i < 64 ? elements - i : 64;
        gb_tensor_read_f32(t, out, i, step);
        sum += out[0];
    }
    volatile float kept = sum;    /* so that the reads are not optimized away */
    (void)kept;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const gb_model_config CONFIG = {.vocab = 4, .hidden = 2, .layers = 1, .heads = 1, .kv_heads = 1, .head_dim = 2, .experts = 2,
                                           .experts_per_token = 1, .expert_intermediate = 1, .moe_layers = 1, .layer_is_moe = {true}};
    gb_weights *w;
    gb_error err = {0};
    if (gb_weights_new(&w)) return 0;
    int status = gb_weights_add_file(w, data, size, "model.safetensors", &err);
    GB_ASSERT((status == GB_OK) == (err.text[0] == '\0'));
    for (size_t i = 0; i < gb_weights_count(w); i++) {
        const gb_tensor *t = gb_weights_at(w, i);
        GB_ASSERT(gb_weights_find(w, t->name) == t);
        read_all(t);
    }
    gb_weights_check(w, &CONFIG, &err);
    gb_weights_free(w);
    return 0;
}
