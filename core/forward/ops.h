/* The op seam: what a backend (cpu, cuda) does to the rows of a round. The backend holds the weights, the KV cache and the
   activations; core/forward holds the loop over layers and passes only plain data. Activations by name:

       x        [rows][hidden]   the residual stream
       h        [rows][hidden]   normed x
       routes   [rows][K]        each row's experts, highest weight first, and their weights
       logits   [n][vocab]       of the rows given to head

   A row's result never depends on the other rows, on how many there are or on their order (batch invariance): bit for bit.
   Callers use the gb_ops_* wrappers, which check the arguments, never the table. One thread at a time, but for
   gb_ops_cancel. Every entry but the optional ones returns 0 or a GB_E* of the device. */
#ifndef GB_FORWARD_OPS_H
#define GB_FORWARD_OPS_H

#include "core/flow/copy.h"
#include "core/flow/round.h"

/* How large rounds can be and how the work is laid out. */
typedef struct gb_ops_limits {
    uint32_t engines, ranks;       /* ranks is a multiple of engines and divides the experts */
    uint32_t spare_slots;          /* slots of each rank and layer beyond experts / ranks */
    bool private_ranks;            /* each rank has its experts in memory of its own, and a spare place in each layer */
    uint32_t max_works;            /* sequences in one batch */
    uint32_t max_tokens;           /* positions in one batch; rows of a round are at most engines x max_tokens */
    uint32_t max_positions;        /* of one sequence; may exceed the model's own maximum */
    uint32_t blocks_per_engine;    /* KV blocks of GB_BLOCK_TOKENS positions */
} gb_ops_limits;

typedef struct gb_ops_info {
    const char *backend;              /* "cpu" */
    char kernels[64];                 /* which variant runs, for the start-up log */
    gb_ops_limits limits;
    uint32_t layers, moe_layers, experts, experts_per_token;
    uint32_t slots, places;           /* of one MoE layer, all ranks; places hold weights (placement.h) */
    uint32_t hidden, vocab;
    uint32_t head_rows;               /* rows that head takes at once */
    uint64_t weight_bytes, kv_bytes;  /* resident */
    uint64_t expert_bytes;            /* of one place */
    uint32_t threads;
    bool keeps_counts;                /* until gb_ops_finish asks for them */
} gb_ops_info;

/* Consecutive positions of one sequence in consecutive rows: what is left of one work. */
typedef struct gb_span {
    uint32_t engine, work;      /* whose; the engine is the source of its tokens */
    uint32_t row, count;        /* rows row .. row + count - 1 */
    uint32_t start;             /* position of the first */
    const int32_t *tokens;      /* [count] */
    const int32_t *blocks;      /* the sequence's KV blocks in position order */
} gb_span;

/* The rows of a round, engine after engine; spans cover 0 .. n - 1 in order. */
typedef struct gb_row_set {
    uint32_t n, n_spans;
    const gb_span *spans;
} gb_row_set;

typedef enum gb_norm { GB_NORM_ATTENTION, GB_NORM_MLP } gb_norm;

/* A row of logits and where its token goes. */
typedef struct gb_pick {
    uint32_t logits_row;
    const gb_work *work;
    gb_sampled *out;
} gb_pick;

/* What gb_ops_read copies out: float32 [n][hidden], int32 [n][K], float32 [n][K], float32 [n][vocab]. */
typedef enum gb_readable { GB_READ_X, GB_READ_EXPERTS, GB_READ_WEIGHTS, GB_READ_LOGITS } gb_readable;

typedef struct gb_ops gb_ops;

typedef struct gb_ops_table {
    int (*embed)(gb_ops *ops, const gb_row_set *rows);
    int (*compact)(gb_ops *ops, const gb_row_set *rows, const uint32_t *from);
    int (*norm)(gb_ops *ops, const gb_row_set *rows, gb_norm norm, uint32_t layer);
    int (*attention)(gb_ops *ops, const gb_row_set *rows, uint32_t layer);
    int (*mlp)(gb_ops *ops, const gb_row_set *rows, uint32_t layer);
    int (*router)(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer);
    int (*dispatch)(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement, gb_matrix *counts,
                    uint64_t *rank_tokens);
    int (*experts)(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer);
    int (*combine)(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer);
    int (*head)(gb_ops *ops, const uint32_t *rows, uint32_t n);
    int (*sample)(gb_ops *ops, const gb_pick *picks, uint32_t n);
    int (*finish)(gb_ops *ops, gb_matrix *due);    /* optional where counts are not kept */
    int (*copy_expert)(gb_ops *ops, const gb_copy *copy);
    uint64_t (*checksum)(gb_ops *ops, uint32_t moe_layer, uint32_t place);
    int (*read)(gb_ops *ops, gb_readable what, uint32_t first, uint32_t n, void *out);
    void (*cancel)(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work);
    bool (*cancelled)(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work);
    void (*free)(gb_ops *ops);
} gb_ops_table;

/* A backend's context begins with this. */
struct gb_ops {
    const gb_ops_table *table;
    gb_ops_info info;
};

/* x = embedding of each row's token. Begins a round. */
int gb_ops_embed(gb_ops *ops, const gb_row_set *rows);
/* Rows were dropped: the rows of rows->spans[i] lie at from[i] (>= its new row) and move down. Only x survives. */
int gb_ops_compact(gb_ops *ops, const gb_row_set *rows, const uint32_t *from);

/* h = x / rms(x) * weight of the layer's norm. */
int gb_ops_norm(gb_ops *ops, const gb_row_set *rows, gb_norm norm, uint32_t layer);
/* q, k, v of h; q and k normed per head and rotated; k, v written to the KV cache; x += output projection of attention. */
int gb_ops_attention(gb_ops *ops, const gb_row_set *rows, uint32_t layer);
/* A dense layer: x += down(silu(gate h) * up h). */
int gb_ops_mlp(gb_ops *ops, const gb_row_set *rows, uint32_t layer);

/* routes = top K of softmax(router h), all in float32; the lower expert goes first among equals. */
int gb_ops_router(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer);
/* Groups the routed rows by the slot that placement names for (source, expert, token); adds every sent token to counts, unless the backend
   keeps them, and every received one to rank_tokens[ranks], there when the round is finished. */
int gb_ops_dispatch(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement, gb_matrix *counts,
                    uint64_t *rank_tokens);
/* Each slot's expert over its group: down(silu(gate h) * up h). */
int gb_ops_experts(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer);
/* x += sum of a row's expert outputs times their weights, in the order of routes (so slots do not matter). */
int gb_ops_combine(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer);

/* logits of n rows of x (final norm included); n <= info.head_rows. */
int gb_ops_head(gb_ops *ops, const uint32_t *rows, uint32_t n);
/* Draws a token from each row of logits, which is used up. A row whose logits are no numbers gives token -1. */
int gb_ops_sample(gb_ops *ops, const gb_pick *picks, uint32_t n);

/* Ends a round: waits for what it left to a device and says whether the device had a fault. due, or NULL: where kept counts go, of all
   rounds since they last went. A round that did not end, or not well, takes kept counts with it when the next begins; a round without
   rows is finish alone, and nothing after one that did not end. */
int gb_ops_finish(gb_ops *ops, gb_matrix *due);

/* Some bytes of the expert in one place go to another place of the layer. No round may be reading the place that is written. */
int gb_ops_copy_expert(gb_ops *ops, const gb_copy *copy);
/* Of all weights in a place: equal for equal experts. */
uint64_t gb_ops_checksum(gb_ops *ops, uint32_t moe_layer, uint32_t place);

/* Copies activations out, for tests and tools; valid right after the op that made them. */
int gb_ops_read(gb_ops *ops, gb_readable what, uint32_t first, uint32_t n, void *out);

/* The mailbox of cancelled works, here because it needs an atomic: cancel may be called by any one thread at any time,
   cancelled by the thread that runs the round. A flag counts for its round only. */
void gb_ops_cancel(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work);
bool gb_ops_cancelled(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work);

void gb_ops_free(gb_ops *ops);

#endif
