/* A checkpoint opened for a test, with every activation that a tap shows kept by position; and the golden file beside it. */
#ifndef GB_TESTS_FORWARD_HARNESS_H
#define GB_TESTS_FORWARD_HARNESS_H

#include "core/cpu/cpu.h"
#include "core/cpu/matmul.h"
#include "core/forward/forward.h"

enum { HARNESS_POSITIONS = 512, HARNESS_WORKS = 40 };

typedef struct harness_options {
    const char *directory;       /* below the source tree */
    const gb_backend *backend;   /* NULL = cpu */
    const gb_matmul_rung *rung;  /* of cpu; NULL = the fastest */
    bool f32;
    uint32_t threads, engines, ranks, spare_slots, max_tokens;
    bool shared_ranks;    /* ranks without memory of their own */
    const gb_forward_tap *other_tap;    /* instead of the harness's own */
    const char *layout, *exchange;    /* of gb_backend_options */
    bool graphs;                 /* let the backend run whole steps: a tap sees logits only */
    const char *experts;         /* gb_backend_options.experts */
    bool tap;                    /* keep the activations of engine 0, work 0 */
} harness_options;

typedef struct harness {
    gb_model_config config;
    gb_ops *ops;
    gb_executor *executor;
    gb_arena arena;
    gb_round round;
    gb_result result;
    gb_placement placement;
    /* tapped, by position of work 0 of engine 0 */
    float *hidden;               /* [layers + 1][HARNESS_POSITIONS][hidden] */
    int32_t *experts;            /* [moe_layers][HARNESS_POSITIONS][K] */
    float *weights;              /* the same shape */
    float *logits;               /* [HARNESS_POSITIONS][vocab] */
} harness;

void harness_open(harness *h, const harness_options *options);    /* stops the program when it cannot */
void harness_close(harness *h);

/* Sampling that is greedy. */
extern const gb_sampling harness_greedy;

/* Empties the round; adds a work: positions start .. start + count - 1 of tokens[n_tokens]. Sequence `sequence` of an engine owns
   fixed KV blocks. Returns the work's index. */
void     harness_clear(harness *h);
uint32_t harness_add(harness *h, uint32_t engine, uint32_t sequence, const int32_t *tokens, uint32_t n_tokens, uint32_t n_prompt,
                     uint32_t start, uint32_t count, const gb_sampling *sampling);
int      harness_run(harness *h);

/* Computes tokens[n] as sequence 0 of engine 0 in chunks; returns the sampled token. */
int32_t harness_feed(harness *h, const int32_t *tokens, uint32_t n, uint32_t chunk, const gb_sampling *sampling);

/* Rungs that this CPU runs, in a list that ends with NULL. */
const gb_matmul_rung *const *harness_rungs(void);

/* The tensors of a golden file, float32 or int32. */
typedef struct golden golden;

golden *golden_open(const char *directory);
void    golden_close(golden *g);
/* "p1.logits" -> data and dims; stops the program when it is missing. */
const void *golden_find(const golden *g, uint32_t prompt, const char *name, uint32_t dims[3]);
uint32_t    golden_prompts(const golden *g);

#endif
