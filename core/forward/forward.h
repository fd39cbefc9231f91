/* The real executor: carries a round through the layers of a Qwen3-MoE model over a backend's op table (ops.h). */
#ifndef GB_FORWARD_FORWARD_H
#define GB_FORWARD_FORWARD_H

#include "core/forward/executor.h"
#include "core/forward/ops.h"
#include "core/model/config.h"

typedef struct gb_forward_options {
    uint32_t engines, ranks;
    uint32_t max_works;            /* per batch */
    uint32_t max_tokens;           /* per batch */
    uint32_t max_positions;        /* per sequence; may exceed the model's own maximum */
    uint32_t blocks_per_engine;
} gb_forward_options;

/* Takes ops (frees them with the executor). config is kept by reference. */
int gb_forward_new(gb_executor **out, const gb_model_config *config, gb_ops *ops, const gb_forward_options *options,
                   gb_error *err);

#endif
