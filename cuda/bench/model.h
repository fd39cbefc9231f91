/* A model of a given shape with random weights, opened by the backend of this program, and rounds over it. */
#ifndef GB_CUDA_BENCH_MODEL_H
#define GB_CUDA_BENCH_MODEL_H

#include "core/forward/forward.h"
#include "cuda/bench/bench.h"

enum { GB_BENCH_BATCH_MAX = 64 };

/* How far sequences may go. Each owns the KV blocks of `positions` positions. */
typedef struct gb_bench_model_limits {
    uint32_t layers, sequences, positions, max_tokens;
    const char *experts, *layout, *exchange;    /* as in gb_backend_options */
} gb_bench_model_limits;

typedef struct gb_bench_model {
    gb_executor *executor;
    gb_arena arena;
    gb_round round;
    gb_result result;
    gb_placement placement;
    gb_bench_model_limits limits;
    int32_t *tokens;           /* [sequences][positions] */
    uint32_t *known;           /* [sequences] tokens so far: prompt, then what was sampled */
    uint32_t *computed;        /* [sequences] positions in the KV cache */
    int32_t *blocks;           /* [sequences][blocks of one] */
} gb_bench_model;

/* GB_EINVAL or GB_EUNSUPPORTED when the backend does not know one of these or cannot do it here. */
int  gb_bench_open_model(gb_bench *b, gb_bench_model *m, const gb_bench_model_limits *limits);
void gb_bench_close_model(gb_bench_model *m);
/* A prompt of n random tokens; equal seeds, equal prompts. */
void gb_bench_prompt(gb_bench *b, gb_bench_model *m, uint32_t sequence, uint32_t n, uint64_t seed);
/* One round: at most max_tokens positions of sequences first .. first + n - 1, whose tokens are kept. GB_EINTERNAL for a token that is none.
   seconds: on the host's clock. */
int  gb_bench_step(gb_bench_model *m, uint32_t first, uint32_t n, double *seconds);
/* The spare place of the first layer becomes a copy of place 0, as a migration does it; any thread. */
int  gb_bench_copy_expert(gb_bench_model *m);

#endif
