/* The inside of the CUDA backend: one context on one device with weights, KV cache and the activations of the running round, all
   taken at start. Alone it is all ranks: their slots are places in one pool of equal expert buffers. Or it is one rank of a world
   (world.h, rank.h), with its engine's rows and KV cache, its share of the heads and its own experts. Owned by the thread that runs
   rounds; another thread touches the flags of cancel.c and, to copy experts, the migrate stream.

   Work is queued on the compute stream and nobody waits for it before tokens are sampled or the round is finished. The host writes
   the tables of a round into pinned memory that the last upload must have left (the event uploaded).

   A round in which every sequence has one row waits: its ops only note what they are given, and the whole step runs as one graph when
   somebody wants its logits or its end (step.c). Rows and partial results are padded to a power of two, so that few graphs do. The ranks
   of a world pad every round to as many rows as the busiest engine has: collectives of one size, and the same graphs everywhere. */
#ifndef GB_CUDA_CONTEXT_H
#define GB_CUDA_CONTEXT_H

#include <cublasLt.h>
#include <cublas_v2.h>

#include "core/base/arena.h"
#include "core/forward/backend.h"
#include "cuda/host/check.h"

enum {
    GB_CUDA_HEAD_ROWS = 64,          /* rows of logits at once */
    GB_CUDA_ROW_EDITS = 1024,        /* bans and penalties of a row of logits, if all rows have as many; where they find no room the host samples */
    GB_CUDA_PARTIALS = 1024,         /* (tile, chunk) pairs of one launch of attention_decode, unless one row needs more */
    GB_CUDA_ALLOCATIONS = 64,        /* of device and pinned memory */
    GB_CUDA_BUCKETS = 11,            /* powers of two up to GB_CUDA_PARTIALS: of rows and of partial results of a graph */
};

/* y[m][n] (+)= x[m][k] W[n][k]^T through cublasLt. One algorithm for every m, chosen at start without split sums: so a row has the
   same bits in every batch. */
typedef struct gb_cuda_product {
    uint32_t n, k;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t weights, in, out;
    cublasLtMatmulAlgo_t algorithm;
} gb_cuda_product;

/* How experts' products run, for as long as the context lives (experts.c). */
typedef enum gb_cuda_family { GB_CUDA_MMA, GB_CUDA_WGMMA, GB_CUDA_CUBLAS } gb_cuda_family;

typedef struct gb_cuda_expert_runner {
    gb_cuda_family family;
    cublasHandle_t blas;           /* of cuBLAS, and so is what follows */
    float *sums;                   /* gate and up of some rows */
    uint32_t *pinned_offsets;
    int32_t *pinned_places;
} gb_cuda_expert_runner;

typedef struct gb_cuda_layer {
    const float *attention_norm, *mlp_norm;    /* [hidden] */
    const float *q_norm, *k_norm;              /* [head_dim] */
    const float *qkv_bias, *o_bias;            /* NULL without attention_bias */
    const uint16_t *qkv, *o;
    const uint16_t *mlp;                       /* of a dense layer: gate, up, down as in a place */
    const float *router;                       /* of a MoE layer */
} gb_cuda_layer;

/* Attention's tiles of a round for one window: those computed by chunks and merged, and those computed whole. */
typedef struct gb_cuda_tiles {
    gb_k_tile *partials;                       /* one chunk each */
    gb_k_merge_tile *merges;
    gb_k_tile *wholes;
    uint32_t n_partials, n_merges, n_wholes;
} gb_cuda_tiles;

/* What a round needs to know about its rows; the same layout in pinned memory and on the device. */
typedef struct gb_cuda_tables {
    int32_t *tokens, *positions, *engines, *first_block, *from;    /* [max_rows] */
    uint32_t *dense_offsets;                   /* [2] 0, rows: the only group of a dense layer */
    int32_t *blocks;                           /* [max_blocks] */
    gb_cuda_tiles tiles[2];                    /* without and with the model's window */
    size_t bytes;
} gb_cuda_tables;

/* Where experts live, all layers; live and staged on the device, and pinned. */
typedef struct gb_cuda_maps {
    int32_t *route, *other, *place;            /* [moe_layers][part.engines][experts] twice, [moe_layers][part.slots] */
    uint32_t *version;                         /* [1] */
    uint16_t *other_share;
    uint32_t words;                            /* of all of it */
} gb_cuda_maps;

/* What of the model and of a round is computed here: everything, or a rank's share. */
typedef struct gb_cuda_part {
    uint32_t rank, engine, engines;            /* engine: the first of those whose rows and KV cache are here */
    uint32_t tensor_ranks, tensor_rank;        /* ranks of the engine, and which of them this is; 1, 0 alone */
    uint32_t heads, kv_heads;
    uint32_t first_slot, slots, places;        /* of one MoE layer */
    uint32_t unit;                             /* rows are a multiple of it */
} gb_cuda_part;

typedef struct gb_cuda {
    gb_ops base;
    gb_model_config config;
    gb_cuda_part part;
    struct gb_cuda_world *world;               /* NULL: alone */
    gb_arena arena;
    int device;
    uint32_t processors, capability;           /* 90: 9.0 */
    cudaStream_t compute, migrate, statistics;
    cudaEvent_t uploaded, counted;
    cublasLtHandle_t lt;
    gb_cuda_product qkv_product, o_product, router_product, head_product;
    gb_cuda_expert_runner expert_runner;
    void *device_memory[GB_CUDA_ALLOCATIONS], *pinned_memory[GB_CUDA_ALLOCATIONS];
    uint32_t n_device, n_pinned;

    uint32_t max_rows, max_spans, max_blocks, max_partials, q_dim, kv_dim, qkv_dim;
    uint32_t max_share, max_arrivals;          /* rows between attention and experts; rows for the experts of a layer */
    struct gb_cuda_flags *cancelled;           /* [engines * max_works] */

    gb_cuda_layer *layers;
    uint16_t *embedding, *head;                /* the same when tied */
    float *final_norm;
    uint16_t *pool;                            /* [moe_layers][places] */
    size_t place_elements;
    uint16_t *kv;                              /* [layers] as gb_k_kv */
    size_t kv_layer_elements;
    float *angles;                             /* [max_positions][head_dim / 2][2] */

    gb_cuda_tables pinned, tables;
    gb_span *own_spans;                        /* [max_spans] of the engines that are here, rows counted from 0 */
    uint32_t *own_from;                        /* [max_spans] where their rows lay */
    uint32_t first_row, own_rows;              /* which rows of the round they are */
    uint32_t rows;                             /* of the running round, with padding */
    uint32_t share_first, share;               /* those of them that this rank routes: all, unless the engine has several ranks */
    bool eager;                                /* no graphs */
    bool waits;                                /* the round has not begun to run */
    uint32_t row_bucket, partial_bucket;       /* which graph it will be */
    bool seen[GB_CUDA_BUCKETS][GB_CUDA_BUCKETS];                 /* a step of these buckets has run */
    cudaGraphExec_t graphs[GB_CUDA_BUCKETS][GB_CUDA_BUCKETS];    /* NULL = not captured yet */
    gb_cuda_maps pinned_maps, staged, live;
    const gb_placement *placement;             /* of the live maps, and its version */
    uint32_t placement_version;

    float *x, *x_moved;                        /* [max_rows][hidden], and where rows stand that compaction moves */
    uint16_t *h;
    float *h32;                                /* h of a MoE layer before rounding, for its router */
    float *qkv;
    uint16_t *q, *attended;
    float *partial;
    float *router_logits, *weights;
    int32_t *experts, *slot_of_route, *grouped_of_route;
    uint32_t *place_in_slot, *offsets, *dispatch_work;
    const uint32_t *group_offsets;             /* [part.slots + 1] of the rows for experts; offsets when alone */
    uint16_t *grouped, *gated, *expert_out;
    uint32_t *sent, *received;                 /* [moe_layers][part.engines][experts] since counts left, [ranks] of this round */
    uint32_t *pinned_sent, *pinned_received;
    uint64_t *kept;                            /* counts that had to leave before they were due */
    uint64_t counted_rows, counted_most;       /* since counts left; what a counter holds */
    bool loses_counts;                         /* a round has begun and not ended well */
    uint64_t *rank_tokens;                     /* where the round wants them; NULL before its first dispatch */
    gb_k_fault *fault, *pinned_fault;
    int32_t *head_rows, *pinned_head_rows;
    uint16_t *head_h;
    float *logits, *pinned_logits;             /* [head_rows][vocab]; [vocab] */
    int32_t *sampled, *pinned_sampled;         /* [head_rows] */
    gb_k_choice *choices, *pinned_choices;     /* [head_rows] */
    gb_k_edit *edits, *pinned_edits;           /* [max_edits] */
    uint32_t max_edits, n_edits, *edit_of_token;          /* [vocab] zeros between two works */
    void *sampler_scratch;
} gb_cuda;

/* memory.c: taken until the context ends; GB_ENOMEM. Device memory is not cleared. */
int gb_cuda_take(gb_cuda *cuda, void *out, size_t count, size_t size);
int gb_cuda_take_pinned(gb_cuda *cuda, void *out, size_t count, size_t size);
void gb_cuda_give_back(gb_cuda *cuda);

/* backend.c: an op table, of one rank where a seat is given. */
struct gb_cuda_seat;
int gb_cuda_open(gb_ops **out, const gb_model_config *config, const gb_weights *weights, const gb_backend_options *options,
                 const struct gb_cuda_seat *seat, gb_error *err);
void gb_cuda_free(gb_ops *ops);

/* wait.c: until the stream, or the event, has done all it was given. In a world for no longer than its timeout. */
int gb_cuda_wait(gb_cuda *cuda, cudaStream_t stream);
int gb_cuda_wait_event(gb_cuda *cuda, cudaEvent_t event);

/* weights.c: takes the memory and fills it. */
int gb_cuda_load_weights(gb_cuda *cuda, const gb_weights *weights);

/* rows.c: the tables of a round; laid and uploaded when rows changed. from = where spans' rows lay, or NULL: nothing was computed yet,
   and the round waits if it can. */
int gb_cuda_take_tables(gb_cuda *cuda);
int gb_cuda_lay_rows(gb_cuda *cuda, const gb_row_set *rows, const uint32_t *from);
gb_k_rows gb_cuda_rows(const gb_cuda *cuda);
gb_k_rows gb_cuda_share_rows(const gb_cuda *cuda);

/* counts.c: statistics, and the end of a round. */
int gb_cuda_take_counts(gb_cuda *cuda);
int gb_cuda_begin_counts(gb_cuda *cuda);
int gb_cuda_finish(gb_ops *ops, gb_matrix *due);

/* step.c: runs a round that waits, as a graph. */
int  gb_cuda_start(gb_cuda *cuda);
void gb_cuda_free_graphs(gb_cuda *cuda);

/* maps.c: where experts live. */
int gb_cuda_take_maps(gb_cuda *cuda);
int gb_cuda_commit_maps(gb_cuda *cuda, const gb_placement *placement);
gb_k_map gb_cuda_map(const gb_cuda *cuda, uint32_t moe_layer);
/* Where a place of all ranks (placement.h) is in this context's pool; -1: not here. */
int32_t gb_cuda_local_place(const gb_cuda *cuda, int32_t place);

/* product.c */
int  gb_cuda_product_new(gb_cuda *cuda, gb_cuda_product *p, uint32_t n, uint32_t k, bool f32, bool bias);
void gb_cuda_product_free(gb_cuda_product *p);
/* x is bfloat16, or float32 for an f32 product; add: y += */
int  gb_cuda_multiply(gb_cuda *cuda, gb_cuda_product *p, float *y, const void *x, const void *weights, const float *bias, uint32_t m, bool add);

/* experts.c: wish is gb_backend_options.experts. Runs gate, up and down of in's groups: from a->in through gated to expert_out. */
int  gb_cuda_experts_open(gb_cuda *cuda, const char *wish);
void gb_cuda_experts_close(gb_cuda *cuda);
const char *gb_cuda_experts_name(const gb_cuda_expert_runner *e);
int  gb_cuda_run_experts(gb_cuda *cuda, gb_k_experts_args *a);

/* ops.c: the launches behind embed and dispatch. */
int gb_cuda_launch_embed(gb_cuda *cuda);
int gb_cuda_launch_dispatch(gb_cuda *cuda, uint32_t moe_layer);

/* The ops; a file each or, where the kernel is all there is to it, ops.c. */
int  gb_cuda_embed(gb_ops *ops, const gb_row_set *rows);
int  gb_cuda_compact(gb_ops *ops, const gb_row_set *rows, const uint32_t *from);
int  gb_cuda_norm(gb_ops *ops, const gb_row_set *rows, gb_norm norm, uint32_t layer);
int  gb_cuda_attention(gb_ops *ops, const gb_row_set *rows, uint32_t layer);
int  gb_cuda_mlp(gb_ops *ops, const gb_row_set *rows, uint32_t layer);
int  gb_cuda_router(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer);
int  gb_cuda_dispatch(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement, gb_matrix *counts,
                      uint64_t *rank_tokens);
int  gb_cuda_experts(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer);
int  gb_cuda_combine(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer);
int  gb_cuda_head(gb_ops *ops, const uint32_t *rows, uint32_t n);
int  gb_cuda_sample(gb_ops *ops, const gb_pick *picks, uint32_t n);
int  gb_cuda_copy_expert(gb_ops *ops, const gb_copy *copy);
uint64_t gb_cuda_checksum(gb_ops *ops, uint32_t moe_layer, uint32_t place);
int  gb_cuda_read(gb_ops *ops, gb_readable what, uint32_t first, uint32_t n, void *out);

/* cancel.c */
int  gb_cuda_flags_new(gb_cuda *cuda);
void gb_cuda_cancel(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work);
bool gb_cuda_cancelled(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work);

#endif
