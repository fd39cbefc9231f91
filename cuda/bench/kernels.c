/* Each kernel at sizes of decode and of prefill, replayed from a graph over inputs that do not stay in L2. */
#include "cuda/bench/rivals.h"
#include "cuda/bench/routes.h"
#include "cuda/kernels/tensor_map.h"

#include <stdlib.h>

enum { COMMIT_LAYERS = 48, BATCH = 64, CONTEXT = 2048, PROMPT = 8192 };

static int report(gb_bench *b, gb_bench_row *row, gb_bench_work *work, void *self, uint32_t sets)
{
    row->step = "kernels";
    GB_TRY(gb_bench_replay(b, &row->time, work, self, sets));
    gb_bench_report(b, row);
    return GB_OK;
}

static void name_tokens(gb_bench_row *row, uint32_t n) { snprintf(row->size, sizeof row->size, "%u tokens", n); }

/* --- rows: embed, norm, compact --- */

typedef struct rows_case {
    gb_bench_shape shape;
    uint32_t n;
    gb_bench_array tokens, table, x, out, h, weight, from, fault;
} rows_case;

static int embed(void *self, uint32_t set, cudaStream_t stream)
{
    const rows_case *c = self;
    const gb_k_embed_args a = {.x = gb_bench_at(&c->x, set), .table = gb_bench_at(&c->table, 0), .tokens = gb_bench_at(&c->tokens, set),
                               .fault = gb_bench_at(&c->fault, 0), .n = c->n, .hidden = c->shape.hidden, .vocab = c->shape.vocab};
    return gb_k_embed(&a, stream);
}

static int norm(void *self, uint32_t set, cudaStream_t stream)
{
    const rows_case *c = self;
    const gb_k_norm_args a = {.h = gb_bench_at(&c->h, set), .x = gb_bench_at(&c->x, set), .weight = gb_bench_at(&c->weight, 0), .n = c->n,
                              .hidden = c->shape.hidden, .epsilon = 1e-6f};
    return gb_k_norm(&a, stream);
}

static int norm_residual(void *self, uint32_t set, cudaStream_t stream)
{
    const rows_case *c = self;
    const gb_k_norm_args a = {.h = gb_bench_at(&c->h, set), .x = gb_bench_at(&c->x, set), .residual = gb_bench_at(&c->out, set),
                              .weight = gb_bench_at(&c->weight, 0), .n = c->n, .hidden = c->shape.hidden, .epsilon = 1e-6f};
    return gb_k_norm(&a, stream);
}

static int compact(void *self, uint32_t set, cudaStream_t stream)
{
    const rows_case *c = self;
    const gb_k_compact_args a = {.out = gb_bench_at(&c->out, set), .x = gb_bench_at(&c->x, set), .from = gb_bench_at(&c->from, 0), .n = c->n,
                                 .hidden = c->shape.hidden};
    return gb_k_compact(&a, stream);
}

static int make_rows(gb_bench *b, rows_case *c, uint32_t n, uint32_t sets)
{
    int32_t *words = malloc((size_t)n * 2 * sizeof *words);
    if (!words) return gb_k_fail(GB_ENOMEM, "out of memory for %u rows", n);
    gb_rng rng;
    gb_rng_init(&rng, b->seed + n);
    for (uint32_t i = 0; i < n; i++) {
        words[i] = (int32_t)gb_rng_below(&rng, c->shape.vocab);
        words[n + i] = (int32_t)i;
    }
    int status = gb_bench_put(b, &c->tokens, sets, words, n, 4);
    if (status == GB_OK) status = gb_bench_put(b, &c->from, 1, words + n, n, 4);
    free(words);
    GB_TRY(status);
    const size_t elements = (size_t)n * c->shape.hidden;
    GB_TRY(gb_bench_random_bf16(b, &c->table, 1, (size_t)c->shape.vocab * c->shape.hidden, 1));
    GB_TRY(gb_bench_random_f32(b, &c->x, sets, elements, 1));
    GB_TRY(gb_bench_random_f32(b, &c->out, sets, elements, 1));
    GB_TRY(gb_bench_random_f32(b, &c->weight, 1, c->shape.hidden, 1));
    GB_TRY(gb_bench_take(b, &c->h, sets, elements, 2));
    return gb_bench_take(b, &c->fault, 1, 1, sizeof(gb_k_fault));
}

static int time_rows(gb_bench *b, uint32_t n)
{
    const double elements = (double)n * b->shape.hidden;
    const struct { const char *name; gb_bench_work *work; double bytes; } works[] = {
        {"embed", embed, 6}, {"norm", norm, 6}, {"norm with residual", norm_residual, 14}, {"compact", compact, 8},
    };
    rows_case c = {.shape = b->shape, .n = n};
    const uint32_t sets = gb_bench_sets(b, elements * 10);
    GB_TRY(make_rows(b, &c, n, sets));
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        gb_bench_row row = {.item = works[i].name, .bytes = works[i].bytes * elements};
        name_tokens(&row, n);
        GB_TRY(report(b, &row, works[i].work, &c, sets));
    }
    gb_bench_give_back();
    return GB_OK;
}

/* --- attention --- */

typedef struct attention_case {
    gb_bench_shape shape;
    uint32_t sequences, context, rows, blocks, n_tiles, n_merges;
    gb_bench_array q, out, kv, partial, tiles, merges, tokens, positions, engines, first_block, block_table, qkv, norm, angles, fault;
} attention_case;

static gb_k_rows attention_rows(const attention_case *c)
{
    return (gb_k_rows){c->rows, gb_bench_at(&c->tokens, 0), gb_bench_at(&c->positions, 0), gb_bench_at(&c->engines, 0),
                       gb_bench_at(&c->first_block, 0), gb_bench_at(&c->block_table, 0)};
}

static gb_k_attention_args attention_args(const attention_case *c, uint32_t set)
{
    return (gb_k_attention_args){
        .out = gb_bench_at(&c->out, set), .partial = gb_bench_at(&c->partial, 0), .q = gb_bench_at(&c->q, set),
        .kv = {gb_bench_at(&c->kv, set), 1, c->blocks, c->shape.kv_heads, c->shape.head_dim}, .rows = attention_rows(c),
        .tiles = gb_bench_at(&c->tiles, 0), .n_tiles = c->n_tiles, .heads = c->shape.heads, .scale = 0.088f,
    };
}

static int decode(void *self, uint32_t set, cudaStream_t stream)
{
    const attention_case *c = self;
    const gb_k_attention_args a = attention_args(c, set);
    const gb_k_merge_args m = {.out = a.out, .partial = a.partial, .tiles = gb_bench_at(&c->merges, 0), .n_tiles = c->n_merges,
                               .heads = c->shape.heads, .kv_heads = c->shape.kv_heads, .head_dim = c->shape.head_dim};
    GB_TRY(gb_k_attention_decode(&a, stream));
    return gb_k_attention_merge(&m, stream);
}

static int prefill(void *self, uint32_t set, cudaStream_t stream)
{
    const gb_k_attention_args a = attention_args(self, set);
    return gb_k_attention_prefill(&a, stream);
}

static int prepare(void *self, uint32_t set, cudaStream_t stream)
{
    const attention_case *c = self;
    const gb_k_prepare_args a = {
        .q = gb_bench_at(&c->q, set), .kv = {gb_bench_at(&c->kv, set), 1, c->blocks, c->shape.kv_heads, c->shape.head_dim},
        .qkv = gb_bench_at(&c->qkv, set), .q_norm = gb_bench_at(&c->norm, 0), .k_norm = gb_bench_at(&c->norm, 0), .angles = gb_bench_at(&c->angles, 0),
        .rows = attention_rows(c), .fault = gb_bench_at(&c->fault, 0), .heads = c->shape.heads, .positions = c->context, .epsilon = 1e-6f,
    };
    return gb_k_attention_prepare(&a, stream);
}

/* Rows: the last position of each sequence (decode), or all of one sequence (prefill). Blocks of sequences lie one behind the other. */
static int put_rows(gb_bench *b, attention_case *c)
{
    const uint32_t of_sequence = (c->context + GB_K_BLOCK_TOKENS - 1) / GB_K_BLOCK_TOKENS;
    int32_t *words = calloc((size_t)c->rows * 4 + c->blocks, sizeof *words), *table = words + (size_t)c->rows * 4;
    if (!words) return gb_k_fail(GB_ENOMEM, "out of memory for %u rows", c->rows);
    for (uint32_t i = 0; i < c->rows; i++) {
        words[i] = 1;
        words[c->rows + i] = (int32_t)(c->sequences == c->rows ? c->context - 1 : i);
        words[3 * c->rows + i] = (int32_t)(c->sequences == c->rows ? i * of_sequence : 0);
    }
    for (uint32_t i = 0; i < c->blocks; i++) table[i] = (int32_t)((i * 7 + 3) % c->blocks);    /* blocks is no multiple of 7: a permutation */
    int status = gb_bench_put(b, &c->tokens, 1, words, c->rows, 4);
    if (status == GB_OK) status = gb_bench_put(b, &c->positions, 1, words + c->rows, c->rows, 4);
    if (status == GB_OK) status = gb_bench_put(b, &c->engines, 1, words + 2 * (size_t)c->rows, c->rows, 4);
    if (status == GB_OK) status = gb_bench_put(b, &c->first_block, 1, words + 3 * (size_t)c->rows, c->rows, 4);
    if (status == GB_OK) status = gb_bench_put(b, &c->block_table, 1, table, c->blocks, 4);
    free(words);
    return status;
}

static int put_decode_tiles(gb_bench *b, attention_case *c)
{
    const uint32_t chunks = (c->context + GB_K_CHUNK - 1) / GB_K_CHUNK;
    c->n_merges = c->sequences;
    c->n_tiles = c->sequences * chunks;
    gb_k_tile *tiles = malloc(c->n_tiles * sizeof *tiles);
    gb_k_merge_tile *merges = malloc(c->n_merges * sizeof *merges);
    int status = tiles && merges ? GB_OK : gb_k_fail(GB_ENOMEM, "out of memory for %u tiles", c->n_tiles);
    for (uint32_t s = 0; s < c->sequences && status == GB_OK; s++) {
        merges[s] = (gb_k_merge_tile){s, 1, s * chunks, chunks};
        for (uint32_t i = 0; i < chunks; i++) tiles[s * chunks + i] = (gb_k_tile){s, 1, c->context - 1, i, i};
    }
    if (status == GB_OK) status = gb_bench_put(b, &c->tiles, 1, tiles, c->n_tiles, sizeof *tiles);
    if (status == GB_OK) status = gb_bench_put(b, &c->merges, 1, merges, c->n_merges, sizeof *merges);
    free(tiles);
    free(merges);
    GB_TRY(status);
    return gb_bench_take(b, &c->partial, 1, (size_t)c->n_tiles * c->shape.kv_heads * GB_K_TILE_ROWS * (c->shape.head_dim + 2), 4);
}

static int put_prefill_tiles(gb_bench *b, attention_case *c)
{
    const uint32_t of_tile = GB_K_PREFILL_ROWS / (c->shape.heads / c->shape.kv_heads);
    c->n_tiles = (c->rows + of_tile - 1) / of_tile;
    gb_k_tile *tiles = malloc(c->n_tiles * sizeof *tiles);
    if (!tiles) return gb_k_fail(GB_ENOMEM, "out of memory for %u tiles", c->n_tiles);
    for (uint32_t i = 0; i < c->n_tiles; i++) {
        const uint32_t row = i * of_tile, n = c->rows - row < of_tile ? c->rows - row : of_tile;
        tiles[i] = (gb_k_tile){row, n, row, 0, (row + n - 1) / GB_K_CHUNK};
    }
    int status = gb_bench_put(b, &c->tiles, 1, tiles, c->n_tiles, sizeof *tiles);
    free(tiles);
    return status;
}

static int make_attention(gb_bench *b, attention_case *c, uint32_t sets)
{
    const gb_bench_shape *s = &c->shape;
    const uint32_t of_sequence = (c->context + GB_K_BLOCK_TOKENS - 1) / GB_K_BLOCK_TOKENS;
    const size_t row = (size_t)s->heads * s->head_dim;
    c->blocks = c->sequences * of_sequence;
    if (c->blocks % 7 == 0) c->blocks++;
    GB_TRY(put_rows(b, c));
    GB_TRY(gb_bench_random_bf16(b, &c->kv, sets, (size_t)c->blocks * 2 * s->kv_heads * GB_K_BLOCK_TOKENS * s->head_dim, 1));
    GB_TRY(gb_bench_random_bf16(b, &c->q, sets, c->rows * row, 1));
    GB_TRY(gb_bench_take(b, &c->out, sets, c->rows * row, 2));
    GB_TRY(gb_bench_random_f32(b, &c->qkv, sets, c->rows * (row + 2 * (size_t)s->kv_heads * s->head_dim), 1));
    GB_TRY(gb_bench_random_f32(b, &c->norm, 1, s->head_dim, 1));
    GB_TRY(gb_bench_random_f32(b, &c->angles, 1, (size_t)c->context * s->head_dim, 1));
    return gb_bench_take(b, &c->fault, 1, 1, sizeof(gb_k_fault));
}

static int time_decode(gb_bench *b, uint32_t sequences, uint32_t context)
{
    attention_case c = {.shape = b->shape, .sequences = sequences, .context = context, .rows = sequences};
    gb_bench_row row = {.item = "attention decode", .reads = true,
                        .bytes = (double)sequences * context * 2 * b->shape.kv_heads * b->shape.head_dim * 2};
    gb_bench_row prepared = {.item = "attention prepare", .bytes = (double)sequences * (b->shape.heads + 2 * b->shape.kv_heads) * b->shape.head_dim * 6};
    const uint32_t sets = gb_bench_sets(b, row.bytes);
    GB_TRY(make_attention(b, &c, sets));
    GB_TRY(put_decode_tiles(b, &c));
    snprintf(row.size, sizeof row.size, "%u x %u positions", sequences, context);
    GB_TRY(report(b, &row, decode, &c, sets));
    name_tokens(&prepared, sequences);
    GB_TRY(report(b, &prepared, prepare, &c, sets));
    gb_bench_give_back();
    return GB_OK;
}

static int time_prefill(gb_bench *b, uint32_t n)
{
    attention_case c = {.shape = b->shape, .sequences = 1, .context = n, .rows = n};
    const double qkv = (double)(b->shape.heads + 2 * b->shape.kv_heads) * b->shape.head_dim;
    gb_bench_row row = {.item = "attention prefill", .flops = 4.0 * n * (n + 1.0) / 2 * b->shape.heads * b->shape.head_dim};
    gb_bench_row prepared = {.item = "attention prepare", .bytes = n * qkv * 6};
    const uint32_t sets = gb_bench_sets(b, n * qkv * 2);
    GB_TRY(make_attention(b, &c, sets));
    GB_TRY(put_prefill_tiles(b, &c));
    name_tokens(&row, n);
    name_tokens(&prepared, n);
    GB_TRY(report(b, &row, prefill, &c, sets));
    GB_TRY(report(b, &prepared, prepare, &c, sets));
    gb_bench_give_back();
    return GB_OK;
}

/* --- router, dispatch, permute, experts, combine --- */

typedef struct moe_case {
    gb_bench_shape shape;
    uint32_t n, processors;
    gb_bench_routes routes;
    gb_bench_array logits, weights, chosen, h, grouped, grouped_of_route, gated, out, x, pool, fault;
} moe_case;

static int route(void *self, uint32_t set, cudaStream_t stream)
{
    const moe_case *c = self;
    const gb_k_router_args a = {.experts = gb_bench_at(&c->chosen, set), .weights = gb_bench_at(&c->weights, set), .logits = gb_bench_at(&c->logits, set),
                                .n = c->n, .E = c->shape.experts, .K = c->shape.K, .normalize = 1};
    return gb_k_router(&a, stream);
}

static int dispatch(void *self, uint32_t set, cudaStream_t stream)
{
    const moe_case *c = self;
    const gb_k_dispatch_args a = gb_bench_dispatch_args(&c->routes, set);
    return gb_k_dispatch(&a, stream);
}

/* Every set has the same routes; places within a slot may differ, so each has its own. */
static int permute(void *self, uint32_t set, cudaStream_t stream)
{
    const moe_case *c = self;
    const gb_k_dispatch_args d = gb_bench_dispatch_args(&c->routes, set);
    const gb_k_permute_args a = {.grouped = gb_bench_at(&c->grouped, set), .grouped_of_route = gb_bench_at(&c->grouped_of_route, set),
                                 .h = gb_bench_at(&c->h, set), .slot_of_route = d.slot_of_route, .place_in_slot = d.place_in_slot, .offsets = d.offsets,
                                 .n = c->n, .K = c->shape.K, .hidden = c->shape.hidden};
    return gb_k_permute(&a, stream);
}

typedef int experts_launcher(const gb_k_experts_args *a, cudaStream_t stream);

static int run_experts(const moe_case *c, uint32_t set, cudaStream_t stream, experts_launcher *gate_up, experts_launcher *down)
{
    const gb_k_dispatch_args d = gb_bench_dispatch_args(&c->routes, set);
    gb_k_experts_args a = {
        .out = gb_bench_at(&c->gated, set), .in = gb_bench_at(&c->grouped, set), .offsets = d.offsets,
        .pool = {gb_bench_at(&c->pool, 0), NULL, c->shape.experts, c->shape.experts, c->shape.hidden, c->shape.width},
        .fault = gb_bench_at(&c->fault, 0), .max_rows = c->n * c->shape.K, .processors = c->processors,
    };
    GB_TRY(gate_up(&a, stream));
    a.in = a.out;
    a.out = gb_bench_at(&c->out, set);
    return down(&a, stream);
}

static int experts_mma(void *self, uint32_t set, cudaStream_t stream) { return run_experts(self, set, stream, gb_k_experts_gate_up, gb_k_experts_down); }

static int experts_wgmma(void *self, uint32_t set, cudaStream_t stream)
{
    return run_experts(self, set, stream, gb_k_experts_wgmma_gate_up, gb_k_experts_wgmma_down);
}

static bool has_wgmma(void)
{
    struct cudaDeviceProp properties;
    return cudaGetDeviceProperties(&properties, 0) == cudaSuccess && properties.major == 9 && properties.minor == 0 && gb_k_has_tensor_maps();
}

static int combine(void *self, uint32_t set, cudaStream_t stream)
{
    const moe_case *c = self;
    const gb_k_combine_args a = {.x = gb_bench_at(&c->x, set), .out = gb_bench_at(&c->out, set), .grouped_of_route = gb_bench_at(&c->grouped_of_route, set),
                                 .weights = gb_bench_at(&c->weights, set), .n = c->n, .K = c->shape.K, .hidden = c->shape.hidden};
    return gb_k_combine(&a, stream);
}

static int make_moe(gb_bench *b, moe_case *c, uint32_t sets)
{
    const gb_bench_shape *s = &c->shape;
    const size_t routes = (size_t)c->n * s->K;
    GB_TRY(gb_bench_make_routes(b, &c->routes, c->n, false, sets));
    GB_TRY(gb_bench_random_f32(b, &c->logits, sets, (size_t)c->n * s->experts, 4));
    GB_TRY(gb_bench_take(b, &c->weights, sets, routes, 4));
    GB_TRY(gb_bench_take(b, &c->chosen, sets, routes, 4));
    GB_TRY(gb_bench_random_bf16(b, &c->h, sets, (size_t)c->n * s->hidden, 1));
    GB_TRY(gb_bench_take(b, &c->grouped, sets, routes * s->hidden, 2));
    GB_TRY(gb_bench_take(b, &c->grouped_of_route, sets, routes, 4));
    GB_TRY(gb_bench_take(b, &c->gated, sets, routes * s->width, 2));
    GB_TRY(gb_bench_take(b, &c->out, sets, routes * s->hidden, 2));
    GB_TRY(gb_bench_random_f32(b, &c->x, sets, (size_t)c->n * s->hidden, 1));
    GB_TRY(gb_bench_random_bf16(b, &c->pool, 1, (size_t)3 * s->experts * s->width * s->hidden, 0.05f));
    return gb_bench_take(b, &c->fault, 1, 1, sizeof(gb_k_fault));
}

static int check_faults(gb_bench *b, const gb_bench_array *fault, const char *what)
{
    gb_k_fault f;
    GB_CUDA(cudaStreamSynchronize(b->stream));
    GB_CUDA(cudaMemcpy(&f, gb_bench_at(fault, 0), sizeof f, cudaMemcpyDeviceToHost));
    if (f.kind != GB_K_FAULT_NONE) gb_bench_wrong(b, "%s: fault %u in row %u, value %d", what, f.kind, f.row, f.value);
    return GB_OK;
}

/* In the order of a layer, for each stage needs what the one before left in every set. */
static int time_moe_stages(gb_bench *b, moe_case *c, uint32_t sets)
{
    const double routes = (double)c->n * c->shape.K, row = 2.0 * c->shape.hidden;
    const double weights = 6.0 * c->shape.experts * c->shape.width * c->shape.hidden;
    const bool decodes = routes < 64.0 * c->shape.experts;    /* then reading weights is the work */
    const double read = decodes ? weights : 0, flops = decodes ? 0 : 6 * routes * c->shape.width * c->shape.hidden;
    const struct { const char *name; gb_bench_work *work; double bytes, flops; bool reads; } works[] = {
        {"router", route, (double)c->n * c->shape.experts * 4 + routes * 8, 0, true},
        {"dispatch", dispatch, gb_bench_routes_bytes(c->n, c->shape.K), 0, false},
        {"permute", permute, c->n * row + routes * row, 0, false},
        {"experts mma", experts_mma, read, flops, true},
        {"experts wgmma", has_wgmma() ? experts_wgmma : NULL, read, flops, true},
        {"combine", combine, routes * row + c->n * 4.0 * row, 0, false},
    };
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        gb_bench_row line = {.item = works[i].name, .bytes = works[i].bytes, .flops = works[i].flops, .reads = works[i].reads};
        name_tokens(&line, c->n);
        if (works[i].work) GB_TRY(report(b, &line, works[i].work, c, sets));
    }
    GB_TRY(check_faults(b, &c->fault, "experts"));
    return check_faults(b, &c->routes.fault, "dispatch");
}

static int time_moe(gb_bench *b, uint32_t n)
{
    moe_case c = {.shape = b->shape, .n = n, .processors = b->processors};
    const uint32_t sets = gb_bench_sets(b, (double)n * b->shape.K * b->shape.hidden * 2);
    int status = make_moe(b, &c, sets);
    if (status == GB_OK) status = time_moe_stages(b, &c, sets);
    gb_bench_free_routes(&c.routes);
    return status;
}

/* So many tokens that only their routes fit. */
static int time_dispatch(gb_bench *b, uint32_t n)
{
    moe_case c = {.shape = b->shape, .n = n};
    gb_bench_row row = {.item = "dispatch", .bytes = gb_bench_routes_bytes(n, b->shape.K)};
    const uint32_t sets = gb_bench_sets(b, row.bytes);
    name_tokens(&row, n);
    int status = gb_bench_make_routes(b, &c.routes, n, false, sets);
    if (status == GB_OK) status = report(b, &row, dispatch, &c, sets);
    if (status == GB_OK) status = check_faults(b, &c.routes.fault, "dispatch");
    gb_bench_free_routes(&c.routes);
    return status;
}

/* --- sample, commit --- */

typedef struct pick_case {
    uint32_t n, vocab, words;
    gb_bench_array logits, out, choices, staged, live;
} pick_case;

static int sample(void *self, uint32_t set, cudaStream_t stream)
{
    const pick_case *c = self;
    const gb_k_sample_args a = {.out = gb_bench_at(&c->out, 0), .logits = gb_bench_at(&c->logits, set), .choices = gb_bench_at(&c->choices, 0),
                                .n = c->n, .vocab = c->vocab};
    return gb_k_sample(&a, stream);
}

/* The best token, or temperature 0.7 with top-p 0.9: a row is read once, or nine times. */
static int time_sample(gb_bench *b, pick_case *c, bool warm, uint32_t sets)
{
    gb_bench_row row = {.item = warm ? "sample top-p" : "sample best", .bytes = 4.0 * c->n * b->shape.vocab, .reads = true};
    gb_k_choice choices[BATCH] = {{0}};
    for (uint32_t i = 0; warm && i < c->n; i++)
        choices[i] = (gb_k_choice){.rate = 1 / 0.7f, .top_p = UINT64_MAX / 10 * 9, .uniform = UINT64_MAX / c->n * i};
    GB_CUDA(cudaMemcpyAsync(gb_bench_at(&c->choices, 0), choices, c->n * sizeof *choices, cudaMemcpyHostToDevice, b->stream));
    GB_CUDA(cudaStreamSynchronize(b->stream));
    snprintf(row.size, sizeof row.size, "%u x %u logits", c->n, c->vocab);
    return report(b, &row, sample, c, sets);
}

static int commit(void *self, uint32_t set, cudaStream_t stream)
{
    const pick_case *c = self;
    const gb_k_commit_args a = {.live = gb_bench_at(&c->live, set), .staged = gb_bench_at(&c->staged, set), .words = c->words};
    return gb_k_commit(&a, stream);
}

static int time_picks(gb_bench *b, uint32_t n)
{
    pick_case c = {.n = n, .vocab = b->shape.vocab, .words = COMMIT_LAYERS * (GB_BENCH_SOURCES * 5 * b->shape.experts / 2 + b->shape.experts)};
    gb_bench_row tables = {.item = "commit", .bytes = 8.0 * c.words};
    const uint32_t sets = gb_bench_sets(b, 4.0 * n * b->shape.vocab);
    GB_TRY(gb_bench_random_f32(b, &c.logits, sets, (size_t)n * c.vocab, 9));
    GB_TRY(gb_bench_take(b, &c.out, 1, n, 4));
    GB_TRY(gb_bench_take(b, &c.choices, 1, n, sizeof(gb_k_choice)));
    GB_TRY(gb_bench_take(b, &c.staged, sets, c.words, 4));
    GB_TRY(gb_bench_take(b, &c.live, sets, c.words, 4));
    snprintf(tables.size, sizeof tables.size, "%d layers", COMMIT_LAYERS);
    GB_TRY(time_sample(b, &c, false, sets));
    GB_TRY(time_sample(b, &c, true, sets));
    GB_TRY(report(b, &tables, commit, &c, sets));
    gb_bench_give_back();
    return GB_OK;
}

int gb_bench_kernels_step(gb_bench *b)
{
    const uint32_t batch = b->emulated ? 3 : BATCH, context = b->emulated ? 270 : CONTEXT, prompt = b->emulated ? 40 : PROMPT;
    GB_TRY(time_moe(b, batch));
    GB_TRY(time_moe(b, prompt));
    GB_TRY(time_decode(b, batch, context));
    GB_TRY(time_prefill(b, prompt));
    GB_TRY(time_dispatch(b, b->emulated ? 300 : 1048576));
    GB_TRY(time_rows(b, batch));
    GB_TRY(time_rows(b, prompt));
    GB_TRY(time_picks(b, batch));
    GB_TRY(gb_bench_time_between(b, batch));
    return gb_bench_time_between(b, prompt);
}
