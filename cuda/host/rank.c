/* The op table of a rank: that of a context alone, but for what concerns rows of other engines, and for ranks that are down. */
#include "cuda/host/rank.h"

#include <string.h>

int gb_cuda_take_rank(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    uint32_t n = cuda->base.info.head_rows;
    w->heads = GB_ARENA_NEW(&cuda->arena, uint32_t, n);
    w->head_rows = GB_ARENA_NEW(&cuda->arena, uint32_t, n);
    w->picks = GB_ARENA_NEW(&cuda->arena, gb_pick, n);
    if (!w->heads || !w->head_rows || !w->picks) return gb_k_fail(GB_ENOMEM, "out of memory for the rows of logits");
    GB_TRY(gb_cuda_take_exchange(cuda));
    return cuda->part.tensor_ranks > 1 ? gb_cuda_take_tensor(cuda) : GB_OK;
}

/* --- ops that go on as they are --- */

/* When a rank says that it is down, nothing of it is under way to others any more. */
static int alive(gb_ops *ops)
{
    int status = gb_cuda_alive((gb_cuda *)ops);
    if (status != GB_OK) gb_cuda_drain((gb_cuda *)ops);
    return status;
}

/* A rank that fails in the middle of a round is out of step with the collectives of the others. */
static int in_step(gb_ops *ops, int status)
{
    if (status == GB_OK) return GB_OK;
    gb_cuda_give_up(ops, gb_k_message());
    gb_cuda_drain((gb_cuda *)ops);
    return status;
}

static int rank_embed(gb_ops *ops, const gb_row_set *rows)
{
    GB_TRY(alive(ops));
    return in_step(ops, gb_cuda_embed(ops, rows));
}

static int rank_compact(gb_ops *ops, const gb_row_set *rows, const uint32_t *from)
{
    GB_TRY(alive(ops));
    return in_step(ops, gb_cuda_compact(ops, rows, from));
}

static int rank_norm(gb_ops *ops, const gb_row_set *rows, gb_norm norm, uint32_t layer)
{
    GB_TRY(alive(ops));
    return in_step(ops, gb_cuda_norm(ops, rows, norm, layer));
}

static int rank_attention(gb_ops *ops, const gb_row_set *rows, uint32_t layer)
{
    GB_TRY(alive(ops));
    return in_step(ops, gb_cuda_attention(ops, rows, layer));
}

static int rank_mlp(gb_ops *ops, const gb_row_set *rows, uint32_t layer)
{
    GB_TRY(alive(ops));
    return in_step(ops, gb_cuda_mlp(ops, rows, layer));
}

static int rank_router(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    GB_TRY(alive(ops));
    return in_step(ops, gb_cuda_router(ops, rows, moe_layer));
}

static int rank_dispatch(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement, gb_matrix *counts,
                         uint64_t *rank_tokens)
{
    GB_TRY(alive(ops));
    return in_step(ops, gb_cuda_dispatch(ops, rows, moe_layer, placement, counts, rank_tokens));
}

static int rank_experts(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    GB_TRY(alive(ops));
    return in_step(ops, gb_cuda_experts(ops, rows, moe_layer));
}

static int rank_combine(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    GB_TRY(alive(ops));
    return in_step(ops, gb_cuda_combine(ops, rows, moe_layer));
}

/* A fault that a kernel found concerns this round only. */
static int rank_finish(gb_ops *ops, gb_matrix *due)
{
    GB_TRY(alive(ops));
    GB_CUDA(cudaSetDevice(((gb_cuda *)ops)->device));    /* a round without rows has begun nowhere */
    int status = gb_cuda_finish(ops, due);
    return status == GB_EINTERNAL ? status : in_step(ops, status);
}

/* --- logits: of the engine's rows, by its first rank --- */

/* Every rank starts a round that waits, also one without logits of its own. */
static int rank_head(gb_ops *ops, const uint32_t *rows, uint32_t n)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    gb_cuda_world *w = cuda->world;
    GB_TRY(alive(ops));
    w->n_heads = 0;
    for (uint32_t i = 0; i < n && cuda->part.tensor_rank == 0; i++) {
        if (rows[i] < cuda->first_row || rows[i] - cuda->first_row >= cuda->own_rows) continue;
        w->head_rows[w->n_heads] = rows[i] - cuda->first_row;
        w->heads[w->n_heads++] = i;
    }
    return in_step(ops, w->n_heads ? gb_cuda_head(ops, w->head_rows, w->n_heads) : gb_cuda_start(cuda));
}

/* A rank without tokens answers when its part of the round is over: then it has heard of what failed, as those that wait for tokens have. */
static int rank_sample(gb_ops *ops, const gb_pick *picks, uint32_t n)
{
    gb_cuda_world *w = ((gb_cuda *)ops)->world;
    uint32_t own = 0;
    GB_TRY(alive(ops));
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < w->n_heads; j++)
            if (w->heads[j] == picks[i].logits_row) {
                w->picks[own] = picks[i];
                w->picks[own++].logits_row = j;
            }
    return in_step(ops, own ? gb_cuda_sample(ops, w->picks, own) : gb_cuda_wait((gb_cuda *)ops, ((gb_cuda *)ops)->compute));
}

/* --- looking in --- */

static int read_logits(gb_ops *ops, uint32_t first, uint32_t n, float *out)
{
    const gb_cuda_world *w = ((gb_cuda *)ops)->world;
    for (uint32_t i = 0; i < w->n_heads; i++)
        if (w->heads[i] >= first && w->heads[i] - first < n)
            GB_TRY(gb_cuda_read(ops, GB_READ_LOGITS, i, 1, out + (size_t)(w->heads[i] - first) * ops->info.vocab));
    return GB_OK;
}

/* Rows of a buffer that begins with row `begin` of the round, as far as they are among those that are asked for. */
static int read_rows(gb_ops *ops, gb_readable what, uint32_t begin, uint32_t end, uint32_t first, uint32_t n, void *out)
{
    size_t width = what == GB_READ_X ? ops->info.hidden : ops->info.experts_per_token;    /* of 4 bytes */
    uint32_t from = begin > first ? begin : first, to = end < first + n ? end : first + n;
    if (from >= to) return gb_cuda_start((gb_cuda *)ops);
    return gb_cuda_read(ops, what, from - begin, to - from, (char *)out + (size_t)(from - first) * width * 4);
}

/* x is the same on all ranks of an engine, and the first one tells it; routes are of a rank's share. */
static int rank_read(gb_ops *ops, gb_readable what, uint32_t first, uint32_t n, void *out)
{
    const gb_cuda *cuda = (const gb_cuda *)ops;
    uint32_t begin = cuda->first_row, end = begin + cuda->own_rows, share = begin + cuda->share_first, share_end = share + cuda->share;
    GB_TRY(alive(ops));
    if (what == GB_READ_LOGITS) return in_step(ops, read_logits(ops, first, n, out));
    if (what == GB_READ_X) return in_step(ops, read_rows(ops, what, begin, cuda->part.tensor_rank == 0 ? end : begin, first, n, out));
    return in_step(ops, read_rows(ops, what, share, share_end < end ? share_end : end, first, n, out));
}

const gb_ops_table gb_cuda_rank_table = {
    .embed = rank_embed, .compact = rank_compact, .norm = rank_norm, .attention = rank_attention, .mlp = rank_mlp, .router = rank_router,
    .dispatch = rank_dispatch, .experts = rank_experts, .combine = rank_combine, .head = rank_head, .sample = rank_sample, .finish = rank_finish,
    .copy_expert = gb_cuda_copy_expert, .checksum = gb_cuda_checksum, .read = rank_read, .cancel = gb_cuda_cancel,
    .cancelled = gb_cuda_cancelled, .free = gb_cuda_free,
};
