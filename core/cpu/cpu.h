/* The CPU backend: packs a checkpoint's weights once, takes the KV cache and every activation at start, and runs the ops of
   core/forward/ops.h on a pool of threads. core/cpu/<op>.c is the specification of the same op elsewhere. */
#ifndef GB_CPU_CPU_H
#define GB_CPU_CPU_H

#include "core/forward/backend.h"

typedef struct gb_cpu_options {
    gb_ops_limits limits;
    uint32_t threads;       /* 0 = the CPUs this process may use */
    const char *kernels;    /* "auto" (measured), "scalar", "avx2", "avx512f", "avx512_bf16" */
    const struct gb_matmul_rung *rung;    /* matrix products given directly (tests); NULL = by name */
    bool f32;               /* weights, activations and KV cache in float32, else in bfloat16 with float32 sums */
} gb_cpu_options;

/* One engine, one rank, threads and kernels chosen here; a batch of 512 tokens of 64 works; float32 unless the checkpoint
   is bfloat16 (float16 has more mantissa than bfloat16 can hold). max_positions is the model's own. blocks_per_engine is
   left at 0: the caller knows how much memory there is. */
void gb_cpu_options_default(gb_cpu_options *options, const gb_model_config *config);

/* Bytes of one KV block over all layers: what blocks_per_engine multiplies. */
size_t gb_cpu_block_bytes(const gb_model_config *config, bool f32);

/* weights must have passed gb_weights_check; they are read, released (gb_weights_release) and not kept. GB_EINVAL for
   limits that do not fit the model, GB_ENOMEM, and what gb_matmul_choose says about kernels. */
int gb_cpu_ops_new(gb_ops **out, const gb_model_config *config, const gb_weights *weights, const gb_cpu_options *options,
                   gb_error *err);

/* The same behind the seam that plugins have. */
const gb_backend *gb_cpu_backend(void);

#endif
