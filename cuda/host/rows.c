/* The tables of a round: for each row its token, position, engine and KV blocks; the tiles of attention. Laid out once for the largest
   round, written in pinned memory, sent as far as it is used.

   A rank of a world is told the rows of all engines. It lays those of its own, and pads them to as many as the busiest engine has: what
   all ranks must decide alike (how long collectives are, whether the round is a graph and which) follows from rows that all of them know. */
#include "cuda/host/context.h"

#include <string.h>

#include "core/base/assert.h"

/* --- memory --- */

/* Takes arrays out of base, or only counts when base is NULL. */
typedef struct cursor {
    char *base;
    size_t used;
} cursor;

static void *take(cursor *c, size_t bytes)
{
    void *at = c->base ? c->base + c->used : NULL;
    c->used += (bytes + 15) / 16 * 16;
    return at;
}

static void place_tiles(gb_cuda_tiles *t, cursor *c, const gb_cuda *cuda)
{
    t->partials = take(c, cuda->max_partials * sizeof *t->partials);
    t->merges = take(c, cuda->max_spans * sizeof *t->merges);    /* padding included: a bucket is at most all spans */
    t->wholes = take(c, cuda->max_rows * sizeof *t->wholes);
}

static void place_tables(gb_cuda_tables *t, cursor *c, const gb_cuda *cuda)
{
    size_t rows = cuda->max_rows * sizeof(int32_t);
    t->dense_offsets = take(c, 2 * sizeof *t->dense_offsets);
    t->tokens = take(c, rows);
    t->positions = take(c, rows);
    t->engines = take(c, rows);
    t->first_block = take(c, rows);
    t->from = take(c, rows);
    for (int windowed = 0; windowed < 2; windowed++) place_tiles(&t->tiles[windowed], c, cuda);
    t->blocks = take(c, cuda->max_blocks * sizeof *t->blocks);
    t->bytes = c->used;
}

static uint32_t ceil_of(uint32_t n, uint32_t unit) { return (n + unit - 1) / unit; }

int gb_cuda_take_tables(gb_cuda *cuda)
{
    const gb_ops_limits *limits = &cuda->base.info.limits;
    cursor measure = {0}, pinned = {0}, device = {0};
    cuda->own_spans = GB_ARENA_NEW(&cuda->arena, gb_span, cuda->max_spans);
    cuda->own_from = GB_ARENA_NEW(&cuda->arena, uint32_t, cuda->max_spans);
    if (!cuda->own_spans || !cuda->own_from) return gb_k_fail(GB_ENOMEM, "out of memory for the tables of a round");
    cuda->max_blocks = cuda->max_spans * ceil_of(limits->max_positions, GB_BLOCK_TOKENS);
    cuda->max_partials = cuda->max_spans * (ceil_of(limits->max_positions, GB_K_CHUNK) + 1);
    place_tables(&cuda->tables, &measure, cuda);
    GB_TRY(gb_cuda_take_pinned(cuda, &pinned.base, measure.used, 1));
    GB_TRY(gb_cuda_take(cuda, &device.base, measure.used, 1));
    place_tables(&cuda->pinned, &pinned, cuda);
    place_tables(&cuda->tables, &device, cuda);
    memset(cuda->pinned.dense_offsets, 0, measure.used);
    return GB_OK;
}

/* --- a round --- */

/* The spans of the engines that are here, their rows counted from 0; own_from says where those rows lie now. */
static gb_row_set take_own(gb_cuda *cuda, const gb_row_set *rows, const uint32_t *from)
{
    const gb_cuda_part *part = &cuda->part;
    gb_row_set own = {.spans = cuda->own_spans};
    uint32_t before = cuda->first_row;
    cuda->first_row = 0;
    for (uint32_t i = 0; i < rows->n_spans; i++) {
        gb_span s = rows->spans[i];
        if (s.engine < part->engine || s.engine >= part->engine + part->engines) continue;
        if (own.n_spans == 0) cuda->first_row = s.row;
        s.engine -= part->engine;
        s.row -= cuda->first_row;
        cuda->own_from[own.n_spans] = from ? from[i] - before : s.row;
        cuda->own_spans[own.n_spans++] = s;
        own.n += s.count;
    }
    cuda->own_rows = own.n;
    return own;
}

static void lay_span(gb_cuda *cuda, const gb_span *s, uint32_t from, uint32_t first_block)
{
    gb_cuda_tables *t = &cuda->pinned;
    for (uint32_t i = 0; i < s->count; i++) {
        t->tokens[s->row + i] = s->tokens[i];
        t->positions[s->row + i] = (int32_t)(s->start + i);
        t->engines[s->row + i] = (int32_t)s->engine;
        t->first_block[s->row + i] = (int32_t)first_block;
        t->from[s->row + i] = (int32_t)(from + i);
    }
}

static uint32_t lay_spans(gb_cuda *cuda, const gb_row_set *rows)
{
    uint32_t n_blocks = 0;
    for (uint32_t i = 0; i < rows->n_spans; i++) {
        const gb_span *s = &rows->spans[i];
        uint32_t n = ceil_of(s->start + s->count, GB_BLOCK_TOKENS);
        GB_ASSERT(n_blocks + n <= cuda->max_blocks);
        lay_span(cuda, s, cuda->own_from[i], n_blocks);
        memcpy(cuda->pinned.blocks + n_blocks, s->blocks, n * sizeof *s->blocks);
        n_blocks += n;
    }
    return n_blocks;
}

static uint32_t first_chunk(uint32_t position, uint32_t window)
{
    return window && position + 1 > window ? (position + 1 - window) / GB_K_CHUNK : 0;
}

static uint32_t last_chunk(const gb_span *s) { return (s->start + s->count - 1) / GB_K_CHUNK; }

/* Few query rows: every chunk of positions on its own, then a merge. */
static bool goes_by_chunks(const gb_cuda *cuda, const gb_span *s)
{
    return s->count * (cuda->config.heads / cuda->config.kv_heads) <= GB_K_TILE_ROWS;
}

static void add_partials(gb_cuda *cuda, gb_cuda_tiles *t, const gb_span *s, uint32_t window)
{
    uint32_t first = first_chunk(s->start, window), last = last_chunk(s);
    GB_ASSERT(t->n_partials + last - first < cuda->max_partials);
    t->merges[t->n_merges++] = (gb_k_merge_tile){s->row, s->count, t->n_partials, last - first + 1};
    for (uint32_t chunk = first; chunk <= last; chunk++)
        t->partials[t->n_partials++] = (gb_k_tile){s->row, s->count, s->start, chunk, chunk};
}

static void add_wholes(gb_cuda_tiles *t, const gb_span *s, uint32_t positions, uint32_t window)
{
    for (uint32_t at = 0; at < s->count; at += positions) {
        uint32_t n = s->count - at < positions ? s->count - at : positions, start = s->start + at;
        t->wholes[t->n_wholes++] = (gb_k_tile){s->row + at, n, start, first_chunk(start, window), (start + n - 1) / GB_K_CHUNK};
    }
}

/* Both ways give the same bits, so only speed chooses. */
static void lay_tiles(gb_cuda *cuda, gb_cuda_tiles *t, const gb_row_set *rows, uint32_t window)
{
    uint32_t group = cuda->config.heads / cuda->config.kv_heads;
    t->n_partials = t->n_merges = t->n_wholes = 0;
    for (uint32_t i = 0; i < rows->n_spans; i++) {
        const gb_span *s = &rows->spans[i];
        if (goes_by_chunks(cuda, s)) add_partials(cuda, t, s, window);
        else add_wholes(t, s, GB_K_PREFILL_ROWS / group, window);
    }
}

/* --- what all ranks decide alike --- */

/* Of the busiest engine; alone, all engines are one. */
typedef struct agreement {
    uint32_t rows, partials;
    bool steps;    /* every sequence has one row */
} agreement;

static uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }
static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static agreement agree(const gb_cuda *cuda, const gb_row_set *rows)
{
    agreement all = {.steps = true};
    uint32_t engine_rows = 0, engine_partials = 0;
    for (uint32_t i = 0; i < rows->n_spans; i++) {
        const gb_span *s = &rows->spans[i];
        if (cuda->world && i && s->engine != rows->spans[i - 1].engine) engine_rows = engine_partials = 0;
        engine_rows += s->count;
        engine_partials += goes_by_chunks(cuda, s) ? last_chunk(s) + 1 : 0;
        all.rows = most(all.rows, engine_rows);
        all.partials = most(all.partials, engine_partials);
        all.steps &= s->count == 1;
    }
    return all;
}

static uint32_t bucket_of(uint32_t n)
{
    uint32_t bucket = 0;
    while (1u << bucket < n) bucket++;
    return bucket;
}

static bool can_wait(const gb_cuda *cuda, const agreement *all)
{
    return !cuda->eager && all->steps && all->rows <= GB_CUDA_PARTIALS && all->partials <= GB_CUDA_PARTIALS;
}

/* Padding rows have no token and no position. */
static void pad_rows(gb_cuda *cuda, uint32_t rows)
{
    gb_cuda_tables *t = &cuda->pinned;
    const gb_cuda_part *part = &cuda->part;
    for (rows = ceil_of(rows, part->unit) * part->unit; cuda->rows < rows; cuda->rows++) {
        t->tokens[cuda->rows] = -1;
        t->positions[cuda->rows] = t->engines[cuda->rows] = t->first_block[cuda->rows] = t->from[cuda->rows] = 0;
    }
    cuda->share = rows / part->tensor_ranks;
    cuda->share_first = part->tensor_rank * cuda->share;
    t->dense_offsets[1] = cuda->share;
}

/* Padding tiles have no rows. A window sees no more chunks than none. */
static void pad_tiles(gb_cuda_tiles *t, uint32_t merges, uint32_t partials)
{
    while (t->n_merges < merges) t->merges[t->n_merges++] = (gb_k_merge_tile){0};
    while (t->n_partials < partials) t->partials[t->n_partials++] = (gb_k_tile){0};
}

static void pad_to_buckets(gb_cuda *cuda, const agreement *all)
{
    cuda->row_bucket = bucket_of(all->rows);
    cuda->partial_bucket = bucket_of(all->partials);
    uint32_t rows = least(1u << cuda->row_bucket, cuda->max_spans), partials = least(1u << cuda->partial_bucket, cuda->max_partials);
    pad_rows(cuda, rows);
    for (int windowed = 0; windowed < 2; windowed++) pad_tiles(&cuda->pinned.tiles[windowed], rows, partials);
}

/* --- to the device --- */

static int send(const gb_cuda *cuda, void *to, const void *from, size_t bytes)
{
    if (bytes) GB_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, cuda->compute));
    return GB_OK;
}

static int send_tiles(const gb_cuda *cuda, const gb_cuda_tiles *to, const gb_cuda_tiles *from)
{
    GB_TRY(send(cuda, to->partials, from->partials, from->n_partials * sizeof *from->partials));
    GB_TRY(send(cuda, to->merges, from->merges, from->n_merges * sizeof *from->merges));
    return send(cuda, to->wholes, from->wholes, from->n_wholes * sizeof *from->wholes);
}

static int send_tables(gb_cuda *cuda, uint32_t n_blocks)
{
    const gb_cuda_tables *to = &cuda->tables, *from = &cuda->pinned;
    size_t rows = cuda->rows * sizeof(int32_t);
    GB_TRY(send(cuda, to->dense_offsets, from->dense_offsets, 2 * sizeof *from->dense_offsets));
    GB_TRY(send(cuda, to->tokens, from->tokens, rows));
    GB_TRY(send(cuda, to->positions, from->positions, rows));
    GB_TRY(send(cuda, to->engines, from->engines, rows));
    GB_TRY(send(cuda, to->first_block, from->first_block, rows));
    GB_TRY(send(cuda, to->from, from->from, rows));
    for (int windowed = 0; windowed < 2; windowed++) GB_TRY(send_tiles(cuda, &to->tiles[windowed], &from->tiles[windowed]));
    GB_TRY(send(cuda, to->blocks, from->blocks, n_blocks * sizeof *from->blocks));
    GB_CUDA(cudaEventRecord(cuda->uploaded, cuda->compute));
    return GB_OK;
}

int gb_cuda_lay_rows(gb_cuda *cuda, const gb_row_set *rows, const uint32_t *from)
{
    agreement all = agree(cuda, rows);
    GB_TRY(gb_cuda_wait_event(cuda, cuda->uploaded));    /* the last upload still reads what is written now */
    gb_row_set own = take_own(cuda, rows, from);
    cuda->rows = own.n;
    uint32_t n_blocks = lay_spans(cuda, &own);
    for (int windowed = 0; windowed < 2; windowed++)
        lay_tiles(cuda, &cuda->pinned.tiles[windowed], &own, windowed ? cuda->config.sliding_window : 0);
    cuda->waits = !from && can_wait(cuda, &all);
    if (cuda->waits) pad_to_buckets(cuda, &all);
    else pad_rows(cuda, all.rows);
    return send_tables(cuda, n_blocks);
}

gb_k_rows gb_cuda_rows(const gb_cuda *cuda)
{
    const gb_cuda_tables *t = &cuda->tables;
    return (gb_k_rows){cuda->rows, t->tokens, t->positions, t->engines, t->first_block, t->blocks};
}

gb_k_rows gb_cuda_share_rows(const gb_cuda *cuda)
{
    const gb_cuda_tables *t = &cuda->tables;
    uint32_t first = cuda->share_first;
    return (gb_k_rows){cuda->share, t->tokens + first, t->positions + first, t->engines + first, t->first_block + first, t->blocks};
}
