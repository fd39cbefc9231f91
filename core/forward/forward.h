/* The real executor: carries a round through the layers of a Qwen3-MoE model over a backend's op table (ops.h). From a
   checkpoint to an executor on the CPU:

       gb_model_config_load(&config, dir, &err);
       gb_weights_open(&weights, dir, &err);
       gb_weights_check(weights, &config, &err);
       gb_cpu_ops_new(&ops, &config, weights, &options, &err);      core/cpu/cpu.h; options.limits says how large
       gb_weights_free(weights);                                    everything needed was packed
       gb_forward_new(&executor, &config, ops, NULL, &err);

   All memory is taken here; a round allocates nothing. */
#ifndef GB_FORWARD_FORWARD_H
#define GB_FORWARD_FORWARD_H

#include "core/forward/executor.h"
#include "core/forward/ops.h"
#include "core/model/config.h"

/* A look at the activations of every round, for tests and tools. Any function may be NULL. With logits set, every row gets
   logits, not only those that sample. Pointers live until the function returns. */
typedef struct gb_forward_tap {
    void *self;
    /* x [rows][hidden]; depth 0 = embeddings, l + 1 = the output of layer l */
    void (*hidden)(void *self, const gb_row_set *rows, uint32_t depth, const float *x);
    /* experts and weights [rows][K] */
    void (*routes)(void *self, const gb_row_set *rows, uint32_t moe_layer, const int32_t *experts, const float *weights);
    /* logits [n][vocab] of rows first .. first + n - 1 */
    void (*logits)(void *self, const gb_row_set *rows, uint32_t first, uint32_t n, const float *logits);
} gb_forward_tap;

/* Takes ops: freed with the executor, and when this fails. config is copied, tap (NULL = none) too. */
int gb_forward_new(gb_executor **out, const gb_model_config *config, gb_ops *ops, const gb_forward_tap *tap, gb_error *err);

#endif
