/* The inside of the CPU backend: one context with packed weights, KV cache, threads and the activations of the running
   round. Every core/cpu/<op>.c implements gb_cpu_<op> of the table in cpu.c. Owned by the thread that runs rounds; the
   flags of cancel.c are the only thing another thread touches. */
#ifndef GB_CPU_CONTEXT_H
#define GB_CPU_CONTEXT_H

#include "core/base/arena.h"
#include "core/cpu/vector.h"
#include "core/cpu/kv.h"
#include "core/cpu/matmul.h"
#include "core/cpu/memory.h"
#include "core/cpu/threads.h"
#include "core/forward/ops.h"
#include "core/model/weights.h"

enum {
    GB_CPU_BLOCK_ROWS = 96,    /* rows that pass while a panel of weights stays in the cache; the unit of work with a panel */
    GB_CPU_RUN_PANELS = 16,    /* units that a thread takes at once at most: it then reads memory in long runs */
};

/* A gated MLP: down(silu(gate x) * up x), gate and up packed as one matrix. */
typedef struct gb_cpu_mlp {
    gb_packed gate_up, down;
} gb_cpu_mlp;

typedef struct gb_cpu_layer {
    float *attention_norm, *mlp_norm;    /* [hidden] */
    float *q_norm, *k_norm;              /* [head_dim] */
    float *qkv_bias, *o_bias;            /* NULL without attention_bias */
    gb_packed qkv, o;
    gb_cpu_mlp mlp;                      /* of a dense layer */
} gb_cpu_layer;

typedef struct gb_cpu_moe {
    gb_packed router;                    /* always float32 */
    gb_cpu_mlp *places;                  /* [info.places] */
} gb_cpu_moe;

typedef struct gb_cpu_weights {
    gb_region region;
    size_t bytes;                        /* mapped */
    gb_packed embedding, head;           /* the same matrix when tied */
    float *final_norm;                   /* [hidden] */
    gb_cpu_layer *layers;
    gb_cpu_moe *moe;                     /* [moe_layers] */
} gb_cpu_weights;

/* Consecutive rows of one span; the unit of work of everything that knows positions. */
typedef struct gb_cpu_tile {
    uint32_t span, offset, n;            /* rows span.row + offset ... */
} gb_cpu_tile;

/* At most GB_CPU_BLOCK_ROWS consecutive rows of one slot's group; the unit of work of the experts. */
typedef struct gb_cpu_piece {
    uint32_t place, first, n;            /* grouped rows first .. first + n - 1 */
} gb_cpu_piece;

typedef struct gb_cpu {
    gb_ops base;
    gb_model_config config;
    const gb_matmul_rung *rung, *head_rung;    /* head_rung takes float32: logits are where rounding shows most */
    const gb_vector *vector;
    gb_threads *threads;
    gb_arena arena;
    bool f32, bf16_inputs;               /* bf16_inputs: inputs of matrix products are bfloat16, else float32 */
    uint32_t max_rows, q_dim, kv_dim, qkv_dim;
    gb_cpu_weights weights;
    gb_cpu_kv kv;
    struct gb_cpu_flags *cancelled;      /* [engines * max_works] */

    double *inv_freq;                    /* [head_dim / 2] */
    double attention_factor;

    float *x;                            /* [rows][hidden] */
    float *h;                            /* [rows][hidden] normed x */
    void *h_inputs;                      /* h as inputs: h itself, or its bfloat16 copy */
    float *cos, *sin;                    /* [rows][head_dim / 2] of each row's position */
    gb_cpu_tile *tiles;                  /* [rows] the rows, cut for the threads */
    uint32_t n_tiles, tile_rows;         /* rows of a whole tile: as many as one call of attention takes */
    float *qkv;                          /* [rows][q_dim + 2 kv_dim] */
    void *attended;                      /* inputs [rows][q_dim] */

    float *router_logits;                /* [rows][experts] */
    int32_t *experts;                    /* [rows][K] */
    float *expert_weights;               /* [rows][K] */
    uint32_t *slot_fill;                 /* [slots] rows of a slot, then where its next row goes */
    uint32_t *row_of_grouped;            /* [rows * K] */
    uint32_t *grouped_of_route;          /* [rows][K] */
    gb_cpu_piece *pieces;
    uint32_t n_pieces;
    void *gated;                         /* inputs [rows * K][expert_intermediate] or [rows][dense_intermediate] */
    float *expert_out;                   /* [rows * K][hidden] */

    float *head_x;                       /* [head_rows][hidden] normed rows */
    float *logits;                       /* [head_rows][vocab] */
    char *thread_scratch;                /* [threads][thread_scratch_bytes] */
    size_t thread_scratch_bytes;
    void *activations;                   /* the mapping that holds all of these */
    size_t activation_bytes;
} gb_cpu;

static inline size_t gb_cpu_input_bytes(const gb_cpu *cpu) { return cpu->bf16_inputs ? sizeof(uint16_t) : sizeof(float); }
static inline void *gb_cpu_scratch(const gb_cpu *cpu, uint32_t thread)
{
    return cpu->thread_scratch + thread * cpu->thread_scratch_bytes;
}
static inline float *gb_cpu_x(const gb_cpu *cpu, uint32_t row) { return cpu->x + (size_t)row * cpu->config.hidden; }

/* pack.c: measures, maps and fills the weights. */
int gb_cpu_pack(gb_cpu *cpu, const gb_weights *weights, gb_error *err);

/* rows.c: the tiles and rotary angles of the rows, anew when rows changed; one row as inputs. */
void gb_cpu_lay_rows(gb_cpu *cpu, const gb_row_set *rows);
void gb_cpu_store_inputs(const gb_cpu *cpu, void *inputs, size_t at, const float *values, uint32_t n);

/* linear.c */
/* y[m][w->n] = x W^T, and y[m] += x W^T; x are inputs of the rung (cpu->rung for the second), y rows are y_stride floats apart. */
void gb_cpu_multiply(gb_cpu *cpu, const gb_matmul_rung *rung, float *y, size_t y_stride, const void *x, size_t x_stride,
                     const gb_packed *w, uint32_t m);
void gb_cpu_add_product(gb_cpu *cpu, float *y, size_t y_stride, const void *x, size_t x_stride, const gb_packed *w, uint32_t m);

/* The ops. */
int  gb_cpu_embed(gb_ops *ops, const gb_row_set *rows);
int  gb_cpu_compact(gb_ops *ops, const gb_row_set *rows, const uint32_t *from);
int  gb_cpu_norm(gb_ops *ops, const gb_row_set *rows, gb_norm norm, uint32_t layer);
int  gb_cpu_attention(gb_ops *ops, const gb_row_set *rows, uint32_t layer);
int  gb_cpu_dense_mlp(gb_ops *ops, const gb_row_set *rows, uint32_t layer);
int  gb_cpu_router(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer);
int  gb_cpu_dispatch(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement, gb_matrix *counts,
                     uint64_t *rank_tokens);
int  gb_cpu_experts(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer);
int  gb_cpu_combine(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer);
int  gb_cpu_head(gb_ops *ops, const uint32_t *rows, uint32_t n);
int  gb_cpu_sample(gb_ops *ops, const gb_pick *picks, uint32_t n);
int  gb_cpu_copy_expert(gb_ops *ops, const gb_copy *copy);
uint64_t gb_cpu_checksum(gb_ops *ops, uint32_t moe_layer, uint32_t place);

/* cancel.c */
int  gb_cpu_flags_new(gb_cpu *cpu);    /* GB_ENOMEM */
void gb_cpu_cancel(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work);
bool gb_cpu_cancelled(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work);

#endif
