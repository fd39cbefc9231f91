/* Launchers of the kernels, plain C: one cuda/kernels/<op>.cu each, the twin of core/cpu/<op>.c where there is one. Arguments are
   structs of plain data; pointers are device memory, 16-byte aligned, borrowed until the work behind them on the stream is done.
   bfloat16 is uint16_t. A launcher checks the shapes it was given and returns GB_OK, GB_EINVAL (nothing was launched) or
   GB_EDOWN (the device refused), and gb_k_message() says why in a sentence. Zero rows are GB_OK and launch nothing, but where others
   read how many there were: dispatch and arrive still write offsets, push its headers.

   Every kernel is batch-invariant: the bits of a row's result depend on that row alone. Values that only a kernel can see and that
   must not be there (a token beyond the vocabulary, a position beyond the longest, a KV block or an expert that does not exist, a slot
   without place) are written to the fault words, first come first kept, and treated as absent; whoever ends the round looks at them. */
#ifndef GB_CUDA_KERNELS_H
#define GB_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GB_K_BLOCK_TOKENS = 16,        /* positions in a KV block, as GB_BLOCK_TOKENS */
    GB_K_CHUNK = 256,              /* positions of one partial result of attention; chunks start at its multiples */
    GB_K_TILE_ROWS = 16,           /* query rows (positions x heads of a group) of a decode tile */
    GB_K_PREFILL_ROWS = 64,        /* and of a prefill tile */
    GB_K_EXPERTS_MAX = 1024,
    GB_K_TOP_MAX = 32,             /* experts of a token */
    GB_K_SLOTS_MAX = 4096,         /* of one layer */
    GB_K_PEERS_MAX = 64,           /* ranks that push into each other's windows */
    GB_K_VOCAB_MAX = 1 << 19,      /* of a row that is sampled */
};

/* What a kernel found that must not be there. */
typedef enum gb_k_fault_kind {
    GB_K_FAULT_NONE, GB_K_FAULT_TOKEN, GB_K_FAULT_POSITION, GB_K_FAULT_BLOCK, GB_K_FAULT_EXPERT, GB_K_FAULT_SLOT,
    GB_K_FAULT_VERSION,    /* a sender routed by another version of the map */
    GB_K_FAULT_ROOM,       /* more rows arrived than there is room for */
    GB_K_FAULT_BARRIER,    /* a rank did not come to the barrier in time */
} gb_k_fault_kind;
typedef struct gb_k_fault {
    uint32_t kind, row;
    int32_t value;
} gb_k_fault;

const char *gb_k_message(void);    /* of the calling thread; "" when nothing failed yet */

/* The rows of a round; a row whose token is -1 is padding: it is computed, but routed nowhere and counted nowhere. */
typedef struct gb_k_rows {
    uint32_t n;
    const int32_t *tokens;         /* [n] */
    const int32_t *positions;      /* [n] */
    const int32_t *engines;        /* [n] */
    const int32_t *first_block;    /* [n] where the KV blocks of the row's sequence begin in blocks */
    const int32_t *blocks;
} gb_k_rows;

/* embed.cu: x[row] = table[token], zeros for padding */
typedef struct gb_k_embed_args {
    float *x;                      /* [n][hidden] */
    const uint16_t *table;         /* [vocab][hidden] */
    const int32_t *tokens;         /* [n] */
    gb_k_fault *fault;
    uint32_t n, hidden, vocab;
} gb_k_embed_args;
int gb_k_embed(const gb_k_embed_args *a, cudaStream_t stream);

/* compact.cu: out[i] = x[from[i]]; out and x are different memory */
typedef struct gb_k_compact_args {
    float *out;                    /* [n][hidden] */
    const float *x;
    const int32_t *from;           /* [n] */
    uint32_t n, hidden;
} gb_k_compact_args;
int gb_k_compact(const gb_k_compact_args *a, cudaStream_t stream);

/* norm.cu: x[row] += residual[row] where there is one, then h[i] = x[row] / rms(x[row]) * weight, row = index[i] or i */
typedef struct gb_k_norm_args {
    uint16_t *h;                   /* [n][hidden] */
    float *h32;                    /* [n][hidden] the same before rounding, or NULL */
    float *x;
    const float *residual;         /* like x, or NULL */
    const float *weight;           /* [hidden] */
    const int32_t *index;          /* [n], distinct, or NULL */
    uint32_t n, hidden;
    float epsilon;
} gb_k_norm_args;
int gb_k_norm(const gb_k_norm_args *a, cudaStream_t stream);

/* The KV cache of one layer, bfloat16: [engine][block][keys, values][kv_heads][GB_K_BLOCK_TOKENS][head_dim] */
typedef struct gb_k_kv {
    uint16_t *memory;
    uint32_t engines, blocks;      /* blocks of one engine */
    uint32_t kv_heads, head_dim;
} gb_k_kv;

/* attention_prepare.cu: q | k | v of each row plus bias; q and k: RMS norm per head, then rotary positions; q as bfloat16 to q,
   k and v to the KV cache */
typedef struct gb_k_prepare_args {
    uint16_t *q;                   /* [n][heads * head_dim] */
    gb_k_kv kv;
    const float *qkv;              /* [n][(heads + 2 kv_heads) * head_dim] */
    const float *bias;             /* [(heads + 2 kv_heads) * head_dim] or NULL */
    const float *q_norm, *k_norm;  /* [head_dim] */
    const float *angles;           /* [positions][head_dim / 2][2] cosine and sine */
    gb_k_rows rows;
    gb_k_fault *fault;
    uint32_t heads, positions;     /* positions: of angles */
    float epsilon;
} gb_k_prepare_args;
int gb_k_attention_prepare(const gb_k_prepare_args *a, cudaStream_t stream);

/* Rows row .. row + n - 1 of one sequence at consecutive positions; their query heads of one kv head are the rows of a matrix. No rows:
   padding. */
typedef struct gb_k_tile {
    uint32_t row, n, position;     /* position of the first */
    uint32_t chunk, last_chunk;    /* the chunks it attends to */
} gb_k_tile;

/* attention_decode.cu: partial results of (tile, chunk) pairs: each tile here has one chunk (chunk == last_chunk).
   attention_prefill.cu: whole results of tiles. attention_merge.cu: partial results of a tile in the order of chunks.
   All three give a row the same bits, whatever its tile. head_dim is 16, 32, 64, 96 or 128. */
typedef struct gb_k_attention_args {
    uint16_t *out;                 /* [rows][heads * head_dim]; not of decode */
    float *partial;                /* [tiles][kv_heads][GB_K_TILE_ROWS][head_dim + 2] sums, highest, normaliser; decode only */
    const uint16_t *q;             /* [rows][heads * head_dim] */
    gb_k_kv kv;
    gb_k_rows rows;
    const gb_k_tile *tiles;        /* [n_tiles] */
    uint32_t n_tiles, heads, window;    /* window: positions a query sees, 0 = all */
    float scale;
} gb_k_attention_args;
int gb_k_attention_decode(const gb_k_attention_args *a, cudaStream_t stream);
int gb_k_attention_prefill(const gb_k_attention_args *a, cudaStream_t stream);

/* A decode tile and which partial results are its own, one for each chunk: the first, counted from that of number 0. */
typedef struct gb_k_merge_tile {
    uint32_t row, n, first, chunks;
} gb_k_merge_tile;

typedef struct gb_k_merge_args {
    uint16_t *out;
    const float *partial;
    const gb_k_merge_tile *tiles;    /* [n_tiles] */
    uint32_t first;                /* number of the partial result that partial begins with */
    uint32_t n_tiles, heads, kv_heads, head_dim;
} gb_k_merge_args;
int gb_k_attention_merge(const gb_k_merge_args *a, cudaStream_t stream);

/* router.cu: experts, weights = top K of softmax(logits), the lower expert first among equals; weights divided by their sum when
   normalize. Padding rows get experts -1 and weights 0. */
typedef struct gb_k_router_args {
    int32_t *experts;              /* [n][K] */
    float *weights;                /* [n][K] */
    const float *logits;           /* [n][E] */
    const int32_t *tokens;         /* [n], -1 = padding; NULL = none is */
    uint32_t n, E, K, normalize;
} gb_k_router_args;
int gb_k_router(const gb_k_router_args *a, cudaStream_t stream);

/* The tables of one MoE layer on the device (core/flow/placement.h). */
typedef struct gb_k_map {
    const int32_t *route;          /* [sources][E] slot */
    const int32_t *other;          /* [sources][E] second slot or -1 */
    const uint16_t *other_share;   /* [sources][E] */
    uint32_t sources, E, ranks, slots;
} gb_k_map;

/* dispatch.cu: in one pass over the routes, slot and place in the slot's group of each, tokens by source and expert (sent), and
   by the last block: where each slot's group begins, tokens by rank (received). work must be zero before the first call; each
   call leaves it zero. */
typedef struct gb_k_dispatch_args {
    int32_t *slot_of_route;        /* [n][K] -1 = not routed */
    uint32_t *place_in_slot;       /* [n][K] any order within a slot */
    uint32_t *offsets;             /* [slots + 1] */
    uint32_t *sent;                /* [sources][E] added to */
    uint32_t *received;            /* [ranks] added to */
    uint32_t *work;                /* [slots + 1] */
    const int32_t *experts;        /* [n][K] -1 = not routed */
    gb_k_map map;
    gb_k_rows rows;
    gb_k_fault *fault;
    uint32_t K;
} gb_k_dispatch_args;
int gb_k_dispatch(const gb_k_dispatch_args *a, cudaStream_t stream);

/* permute.cu: grouped[offsets[slot] + place] = h[row] for each route; grouped_of_route says where */
typedef struct gb_k_permute_args {
    uint16_t *grouped;             /* [n * K][hidden] */
    int32_t *grouped_of_route;     /* [n][K] -1 = not routed */
    const uint16_t *h;             /* [n][hidden] */
    const int32_t *slot_of_route;
    const uint32_t *place_in_slot, *offsets;
    uint32_t n, K, hidden;
} gb_k_permute_args;
int gb_k_permute(const gb_k_permute_args *a, cudaStream_t stream);

/* experts.cu. The experts of a layer: equal places, each [2 * width][hidden] (gate, then up) and [hidden][width] (down). */
typedef struct gb_k_pool {
    const uint16_t *memory;        /* place 0 */
    const int32_t *place_of_slot;  /* [slots] -1 = the slot is empty; NULL = slot i is place i */
    uint32_t places, slots, hidden, width;
} gb_k_pool;

/* out[row] = silu(gate in[row]) * (up in[row]), or down in[row], with the weights of the row's slot: rows offsets[slot] ..
   offsets[slot + 1] - 1 */
typedef struct gb_k_experts_args {
    uint16_t *out;                 /* gate_up: [rows][width]; down: [rows][hidden] */
    const uint16_t *in;            /* gate_up: [rows][hidden]; down: [rows][width] */
    const uint32_t *offsets;       /* [slots + 1] on the device */
    gb_k_pool pool;
    gb_k_fault *fault;
    uint32_t max_rows;             /* offsets[slots] is at most this; chooses tiles and grid, not results */
    uint32_t processors;           /* of the device */
} gb_k_experts_args;
int gb_k_experts_gate_up(const gb_k_experts_args *a, cudaStream_t stream);
int gb_k_experts_down(const gb_k_experts_args *a, cudaStream_t stream);
/* experts_wgmma.cu: the same for devices of capability 9.0 whose driver has tensor maps (tensor_map.h); in has max_rows rows */
int gb_k_experts_wgmma_gate_up(const gb_k_experts_args *a, cudaStream_t stream);
int gb_k_experts_wgmma_down(const gb_k_experts_args *a, cudaStream_t stream);

/* silu.cu: out[row] = silu(gate) * up, sums[row] = gate | up: what cuBLAS's products of gate and up need */
typedef struct gb_k_silu_args {
    uint16_t *out;                 /* [n][width] */
    const float *sums;             /* [n][2 * width] */
    uint32_t n, width;
} gb_k_silu_args;
int gb_k_silu(const gb_k_silu_args *a, cudaStream_t stream);

/* combine.cu: x[row] += sum over k of weights[row][k] * out[grouped_of_route[row][k]], in the order of k */
typedef struct gb_k_combine_args {
    float *x;                      /* [n][hidden] */
    const uint16_t *out;           /* [n * K][hidden] */
    const int32_t *grouped_of_route;    /* [n][K] -1 = nothing; NULL: route i is row i */
    const float *weights;          /* [n][K]; NULL = 1 */
    const uint32_t *abandoned;     /* [1] barrier's, or NULL: out may still be written then, and nothing is added */
    uint32_t n, K, hidden;
} gb_k_combine_args;
int gb_k_combine(const gb_k_combine_args *a, cudaStream_t stream);

/* --- Between ranks. A rank of a round that several devices share sends the rows of its own engine (it is a source) and computes those
   that reach its own slots, first_slot .. first_slot + slots - 1. Rows travel in bfloat16, one for each route, and come back the same
   way; the source sums them in the order of routes, so all ways of travelling give the same bits. --- */

/* arrive.cu: dispatch's second half where everybody's routes are here (all-gather): slot among ours and place of each route, where our
   groups begin, tokens received. work must be zero before the first call; each call leaves it zero. */
typedef struct gb_k_arrive_args {
    int32_t *own_slot_of_route;    /* [n][K] 0 .. slots - 1, -1 = not ours */
    uint32_t *place_in_slot;       /* [n][K] any order within a slot */
    uint32_t *offsets;             /* [slots + 1] */
    uint32_t *received;            /* [1] added to */
    uint32_t *work;                /* [slots + 1] */
    const int32_t *slot_of_route;  /* [n][K] of the whole layer, as dispatch wrote it; -1 = not routed */
    uint32_t n, K, first_slot, slots;
} gb_k_arrive_args;
int gb_k_arrive(const gb_k_arrive_args *a, cudaStream_t stream);

/* spread.cu: out[route] = in[grouped_of_route[route]], -0.0 (which changes no sum) where that is -1; permute's way back */
typedef struct gb_k_spread_args {
    uint16_t *out;                 /* [n * K][hidden] */
    const uint16_t *in;            /* [rows][hidden] */
    const int32_t *grouped_of_route;    /* [n][K] */
    uint32_t n, K, hidden;
} gb_k_spread_args;
int gb_k_spread(const gb_k_spread_args *a, cudaStream_t stream);

/* What a source tells each rank beside its rows: how many go to each of the rank's slots, where they begin among the source's grouped rows,
   and the version of the map. A message is slots + GB_K_HEADER_WORDS words. */
enum { GB_K_HEADER_BEGIN, GB_K_HEADER_VERSION, GB_K_HEADER_WORDS };    /* words behind the counts */

/* headers.cu: the messages of one source to all ranks, out of the offsets that dispatch wrote */
typedef struct gb_k_headers_args {
    uint32_t *headers;             /* [ranks][slots / ranks + GB_K_HEADER_WORDS] */
    const uint32_t *offsets;       /* [slots + 1] */
    const uint32_t *version;       /* [1] */
    uint32_t ranks, slots;
} gb_k_headers_args;
int gb_k_headers(const gb_k_headers_args *a, cudaStream_t stream);

/* push.cu: permute into the memory of others: the row of each route goes to rows[rank of its slot][source][its number among the source's
   rows for that rank], and grouped_of_route says where it will come back; the headers go along. A source's part of a window is stride rows;
   a row beyond is a fault (row, its number) and stays here. Behind a barrier that was abandoned nothing goes anywhere. */
typedef struct gb_k_push_args {
    uint16_t *const *rows;         /* [ranks] on the device: each rank's [sources][stride][hidden] */
    uint32_t *const *headers;      /* [ranks] on the device: each rank's [sources][slots / ranks + GB_K_HEADER_WORDS] */
    int32_t *grouped_of_route;     /* [n][K] -1 = not routed */
    const uint16_t *h;             /* [n][hidden] */
    const int32_t *slot_of_route;
    const uint32_t *place_in_slot, *offsets;
    const uint32_t *version;       /* [1] */
    const uint32_t *abandoned;     /* [1] barrier's, or NULL */
    gb_k_fault *fault;
    uint32_t n, K, hidden, source, ranks, slots, stride;
} gb_k_push_args;
int gb_k_push(const gb_k_push_args *a, cudaStream_t stream);

/* land.cu: what the headers of all sources say together: where the rows of each (slot, source) begin in the grouped order (slot, source, row)
   and from where on they lie in the order of arrival (source, slot, row), offsets of slots, start[source] in the order of arrival
   (multiples of stride, or one behind the other when stride is 0), tokens received. A version that is not ours (fault: source, its version), more
   rows of a source than stride (source, rows), more in all than capacity (sources, rows) are faults, and nothing is taken then; nor behind
   a barrier that was abandoned, where headers may be anything. */
typedef struct gb_k_land_args {
    uint32_t *begin, *from;        /* [slots][sources] */
    uint32_t *offsets;             /* [slots + 1] */
    uint32_t *start;               /* [sources + 1] */
    uint32_t *received;            /* [1] added to */
    const uint32_t *headers;       /* [sources][slots + GB_K_HEADER_WORDS] */
    const uint32_t *version;       /* [1] */
    const uint32_t *abandoned;     /* [1] barrier's, or NULL */
    gb_k_fault *fault;
    uint32_t sources, slots, stride, capacity;
} gb_k_land_args;
int gb_k_land(const gb_k_land_args *a, cudaStream_t stream);

/* regroup.cu: grouped[i] = the row of the order of arrival that comes i-th in the grouped order; and back: row i of out goes to
   back[its source][header begin + its number among the source's rows], or, where back is NULL, to returned in the order of arrival. A
   source's back is back_rows rows; what would go beyond is a fault (source, row) and goes nowhere. */
typedef struct gb_k_regroup_args {
    uint16_t *grouped;             /* [capacity][hidden]; of regroup */
    const uint16_t *arrived;       /* of regroup */
    const uint16_t *out;           /* [capacity][hidden]; of bring_back */
    uint16_t *const *back;         /* [sources] on the device, or NULL */
    uint16_t *returned;
    const uint32_t *begin, *from, *offsets, *start;    /* land's */
    const uint32_t *headers;       /* of bring_back with back */
    gb_k_fault *fault;             /* of bring_back with back */
    uint32_t sources, slots, hidden, capacity;         /* capacity: chooses the grid; land took no more */
    uint32_t back_rows;            /* of bring_back with back */
} gb_k_regroup_args;
int gb_k_regroup(const gb_k_regroup_args *a, cudaStream_t stream);
int gb_k_bring_back(const gb_k_regroup_args *a, cudaStream_t stream);

/* peers.cu: where the memory of every rank's window of NCCL lies for this device; asked once, when the window is there */
typedef struct gb_k_peers_args {
    void **peers;                  /* [ranks] */
    void *window;                  /* ncclWindow_t */
    uint32_t ranks;
} gb_k_peers_args;
int gb_k_peers(const gb_k_peers_args *a, cudaStream_t stream);
/* How many ranks of a communicator (ncclComm_t) reach each other's windows so: its own among them. */
uint32_t gb_k_reachable(void *comm);

/* barrier.cu: returns on the device when every rank's barrier has begun and what they wrote before is visible. flags[rank] is a
   window of [ranks] words, zero at first, that the others write; epoch counts. A rank that does not come within the limit (0 = none) is
   a fault of row = that rank, and the barrier ends. Where the fault says so before, or begins to, nobody is waited for; it may be pinned
   host memory. Then what others have written is not known, and abandoned is 1 from then on: what is queued behind looks there. The only
   kernel that waits for others; the emulator has its own (cuda/cuemu). */
typedef struct gb_k_barrier_args {
    uint32_t *const *flags;        /* [ranks] on the device */
    uint32_t *epoch;               /* [1] */
    gb_k_fault *fault;
    uint64_t limit_ns;
    uint32_t rank, ranks;
    uint32_t *abandoned;           /* [1] zero at first; or NULL */
} gb_k_barrier_args;
int gb_k_barrier(const gb_k_barrier_args *a, cudaStream_t stream);

/* sum.cu: x[i] += (the parts in the order of ranks + bias): an all-reduce whose order never changes, behind an all-gather */
typedef struct gb_k_sum_args {
    float *x;                      /* [n][hidden] */
    const float *parts;            /* [ranks][stride rows][hidden] */
    const float *bias;             /* [hidden] or NULL */
    uint32_t n, hidden, ranks, stride;
} gb_k_sum_args;
int gb_k_sum(const gb_k_sum_args *a, cudaStream_t stream);

/* sample.cu. How a row's token is chosen: gb_sampling, made ready. */
typedef struct gb_k_choice {
    uint64_t uniform;              /* where in the distribution, of 2^64 */
    uint64_t top_p;                /* of 2^64; 0 = off */
    uint32_t top_k;                /* 0 = off */
    float rate;                    /* 1 / temperature; 0 = the best token */
    float min_p;                   /* 0 = off */
    float repetition_penalty, frequency_penalty, presence_penalty;    /* of the row's edits */
} gb_k_choice;

/* What changes a logit: a token that is banned, or stands in the sequence. */
enum { GB_K_EDIT_GENERATED = 0x3fffffff, GB_K_EDIT_BAN = 0x40000000 };
typedef struct gb_k_edit {
    uint32_t row;
    int32_t token;                 /* each of a row once */
    uint32_t what;                 /* how often it was generated; GB_K_EDIT_BAN */
} gb_k_edit;

/* logits of the edits' tokens, banned or penalized */
typedef struct gb_k_adjust_args {
    float *logits;                 /* [rows][vocab] */
    const gb_k_edit *edits;        /* [n] */
    const gb_k_choice *choices;    /* [rows] */
    gb_k_fault *fault;
    uint32_t n, rows, vocab;
} gb_k_adjust_args;
int gb_k_adjust(const gb_k_adjust_args *a, cudaStream_t stream);

/* The token that core/model/sampler.h gives, or its neighbour where rounding decides (sample.cu says how rarely); the lowest id among
   equals; -1 when a logit is NaN or +inf, or all are -inf. */
typedef struct gb_k_sample_args {
    int32_t *out;                  /* [n] */
    const float *logits;           /* [n][vocab] */
    const gb_k_choice *choices;    /* [n] */
    uint32_t n, vocab;             /* vocab <= GB_K_VOCAB_MAX */
} gb_k_sample_args;
int gb_k_sample(const gb_k_sample_args *a, cudaStream_t stream);

/* commit.cu: the staged tables of all layers become the live ones */
typedef struct gb_k_commit_args {
    int32_t *live;
    const int32_t *staged;
    uint32_t words;
} gb_k_commit_args;
int gb_k_commit(const gb_k_commit_args *a, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
