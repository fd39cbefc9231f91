#include "core/forward/forward.h"

#include <stdlib.h>
#include <time.h>

#include "core/base/arena.h"
#include "core/base/assert.h"

typedef struct forward {
    gb_executor base;
    gb_model_config config;
    gb_ops *ops;
    gb_arena arena;
    gb_forward_tap tap;
    /* the running round */
    const gb_round *round;
    gb_result *result;
    gb_row_set rows;
    bool failed;           /* the latest round that had rows: what the backend kept of it goes with the next one's embed */
    gb_span *spans;        /* [engines * max_works], behind rows.spans */
    uint32_t *from;        /* [engines * max_works] where a span's rows lay before a compaction */
    uint32_t *head_rows;   /* [info.head_rows] */
    gb_pick *picks;        /* [info.head_rows] */
    float *tapped;         /* room for what a tap looks at, when there is one */
    int32_t *tapped_experts;
} forward;

static gb_time clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return gb_seconds((uint64_t)t.tv_sec) + (uint64_t)t.tv_nsec;
}

/* --- the rows of a round --- */

static void clear_result(gb_result *result, const gb_round *round, uint32_t ranks)
{
    gb_matrix_clear(&result->counts);
    for (uint32_t r = 0; r < ranks; r++) result->rank_tokens[r] = 0;
    for (uint32_t e = 0; e < round->n_engines; e++)
        for (uint32_t i = 0; i < round->batches[e].n_works; i++) {
            result->sampled[e][i].token = -1;
            result->sampled[e][i].cancelled = false;
        }
}

/* Lays the works of all batches one after the other. */
static void gather_rows(forward *f)
{
    gb_row_set *rows = &f->rows;
    *rows = (gb_row_set){.spans = f->spans};
    for (uint32_t e = 0; e < f->round->n_engines; e++)
        for (uint32_t i = 0; i < f->round->batches[e].n_works; i++) {
            const gb_work *w = &f->round->batches[e].works[i];
            f->spans[rows->n_spans++] = (gb_span){.engine = e, .work = i, .row = rows->n, .count = w->count, .start = w->start,
                                                  .tokens = w->tokens + w->start, .blocks = w->blocks};
            rows->n += w->count;
        }
}

/* Takes the rows of works that were cancelled out of the round; what is left moves together. */
static int drop_cancelled(forward *f)
{
    gb_row_set *rows = &f->rows;
    uint32_t kept = 0, next_row = 0;
    for (uint32_t i = 0; i < rows->n_spans; i++) {
        gb_span s = f->spans[i];
        if (gb_ops_cancelled(f->ops, f->round->seq, s.engine, s.work)) {
            f->result->sampled[s.engine][s.work].cancelled = true;
            continue;
        }
        f->from[kept] = s.row;
        s.row = next_row;
        next_row += s.count;
        f->spans[kept++] = s;
    }
    if (kept == rows->n_spans) return GB_OK;
    rows->n_spans = kept;
    rows->n = next_row;
    return rows->n ? gb_ops_compact(f->ops, rows, f->from) : GB_OK;
}

/* --- taps --- */

static int tap_hidden(forward *f, uint32_t depth)
{
    if (!f->tap.hidden) return GB_OK;
    int rc = gb_ops_read(f->ops, GB_READ_X, 0, f->rows.n, f->tapped);
    if (rc == GB_OK) f->tap.hidden(f->tap.self, &f->rows, depth, f->tapped);
    return rc;
}

static int tap_routes(forward *f, uint32_t moe_layer)
{
    if (!f->tap.routes) return GB_OK;
    int rc = gb_ops_read(f->ops, GB_READ_EXPERTS, 0, f->rows.n, f->tapped_experts);
    if (rc == GB_OK) rc = gb_ops_read(f->ops, GB_READ_WEIGHTS, 0, f->rows.n, f->tapped);
    if (rc == GB_OK) f->tap.routes(f->tap.self, &f->rows, moe_layer, f->tapped_experts, f->tapped);
    return rc;
}

static int tap_logits(forward *f)
{
    for (uint32_t first = 0; f->tap.logits && first < f->rows.n; first += f->ops->info.head_rows) {
        uint32_t n = f->rows.n - first < f->ops->info.head_rows ? f->rows.n - first : f->ops->info.head_rows;
        for (uint32_t i = 0; i < n; i++) f->head_rows[i] = first + i;
        int rc = gb_ops_head(f->ops, f->head_rows, n);
        if (rc == GB_OK) rc = gb_ops_read(f->ops, GB_READ_LOGITS, 0, n, f->tapped);
        if (rc != GB_OK) return rc;
        f->tap.logits(f->tap.self, &f->rows, first, n, f->tapped);
    }
    return GB_OK;
}

/* --- the layers --- */

static int run_attention(forward *f, uint32_t layer)
{
    int rc = gb_ops_norm(f->ops, &f->rows, GB_NORM_ATTENTION, layer);
    return rc == GB_OK ? gb_ops_attention(f->ops, &f->rows, layer) : rc;
}

static int run_moe(forward *f, uint32_t moe_layer)
{
    int rc = gb_ops_router(f->ops, &f->rows, moe_layer);
    if (rc == GB_OK) rc = tap_routes(f, moe_layer);
    if (rc == GB_OK) rc = gb_ops_dispatch(f->ops, &f->rows, moe_layer, f->round->placement, &f->result->counts, f->result->rank_tokens);
    if (rc == GB_OK) rc = gb_ops_experts(f->ops, &f->rows, moe_layer);
    return rc == GB_OK ? gb_ops_combine(f->ops, &f->rows, moe_layer) : rc;
}

static int run_mlp(forward *f, uint32_t layer, uint32_t moe_layer)
{
    int rc = gb_ops_norm(f->ops, &f->rows, GB_NORM_MLP, layer);
    if (rc != GB_OK) return rc;
    return f->config.layer_is_moe[layer] ? run_moe(f, moe_layer) : gb_ops_mlp(f->ops, &f->rows, layer);
}

/* Cancelled works leave where only x is alive: before each half of a layer. */
static int run_layers(forward *f)
{
    int rc = GB_OK;
    for (uint32_t layer = 0, moe_layer = 0; layer < f->config.layers; layer++) {
        if (rc == GB_OK) rc = drop_cancelled(f);
        if (rc == GB_OK && f->rows.n) rc = run_attention(f, layer);
        if (rc == GB_OK) rc = drop_cancelled(f);
        if (rc == GB_OK && f->rows.n) rc = run_mlp(f, layer, moe_layer);
        if (rc == GB_OK && f->rows.n) rc = tap_hidden(f, layer + 1);
        if (rc != GB_OK || f->rows.n == 0) return rc;
        moe_layer += f->config.layer_is_moe[layer];
    }
    return drop_cancelled(f);
}

/* --- tokens --- */

static int sample_rows(forward *f, uint32_t n)
{
    int rc = gb_ops_head(f->ops, f->head_rows, n);
    return rc == GB_OK ? gb_ops_sample(f->ops, f->picks, n) : rc;
}

static int run_sampling(forward *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->rows.n_spans; i++) {
        const gb_span *s = &f->spans[i];
        const gb_work *work = &f->round->batches[s->engine].works[s->work];
        if (!work->samples) continue;
        f->head_rows[n] = s->row + s->count - 1;
        f->picks[n] = (gb_pick){.logits_row = n, .work = work, .out = &f->result->sampled[s->engine][s->work]};
        if (++n < f->ops->info.head_rows) continue;
        int rc = sample_rows(f, n);
        if (rc != GB_OK) return rc;
        n = 0;
    }
    return n ? sample_rows(f, n) : GB_OK;
}

static int run_rows(forward *f)
{
    int rc = gb_ops_embed(f->ops, &f->rows);
    if (rc == GB_OK) rc = tap_hidden(f, 0);
    if (rc == GB_OK) rc = run_layers(f);
    if (rc == GB_OK && f->rows.n) rc = tap_logits(f);
    if (rc == GB_OK && f->rows.n) rc = run_sampling(f);
    return rc;
}

/* --- the executor --- */

static int forward_run(gb_executor *executor, const gb_round *round, gb_result *result)
{
    forward *f = (forward *)executor;
    gb_time began = clock_now();
    f->round = round;
    f->result = result;
    clear_result(result, round, f->base.info.ranks);
    gather_rows(f);
    bool is_empty = f->rows.n == 0;
    int rc = f->rows.n ? run_rows(f) : GB_OK;
    if (rc == GB_OK && !(f->failed && is_empty)) rc = gb_ops_finish(f->ops, round->counts_due ? &result->counts : NULL);
    f->failed = is_empty ? f->failed : rc != GB_OK;
    result->counts_pending = f->ops->info.keeps_counts && !round->counts_due;
    result->elapsed = gb_time_since(began, clock_now());
    return rc;
}

static void forward_cancel(gb_executor *executor, uint64_t round_seq, uint32_t engine, uint32_t work)
{
    gb_ops_cancel(((forward *)executor)->ops, round_seq, engine, work);
}

static int forward_copy(gb_executor *executor, const gb_copy_list *list)
{
    forward *f = (forward *)executor;
    int rc = GB_OK;
    for (uint32_t i = 0; rc == GB_OK && i < list->n; i++) rc = gb_ops_copy_expert(f->ops, &list->copies[i]);
    return rc;
}

static uint64_t forward_checksum(gb_executor *executor, uint32_t moe_layer, uint32_t place)
{
    return gb_ops_checksum(((forward *)executor)->ops, moe_layer, place);
}

static void forward_free(gb_executor *executor)
{
    forward *f = (forward *)executor;
    gb_ops_free(f->ops);
    gb_arena_deinit(&f->arena);
    free(f);
}

static const gb_executor_table forward_table = {.run = forward_run, .cancel = forward_cancel, .copy = forward_copy,
                                                .checksum = forward_checksum, .free = forward_free};

static void fill_info(gb_executor_info *to, const gb_ops_info *from)
{
    *to = (gb_executor_info){
        .backend = from->backend,
        .engines = from->limits.engines,
        .ranks = from->limits.ranks,
        .moe_layers = from->moe_layers,
        .experts = from->experts,
        .experts_per_token = from->experts_per_token,
        .vocab = from->vocab,
        .max_positions = from->limits.max_positions,
        .blocks_per_engine = from->limits.blocks_per_engine,
        .max_works = from->limits.max_works,
        .max_tokens = from->limits.max_tokens,
        .weight_bytes = from->weight_bytes,
        .kv_bytes = from->kv_bytes,
        .private_ranks = from->limits.private_ranks,
        .expert_bytes = from->expert_bytes,
        .threads = from->threads,
    };
    for (size_t i = 0; i < sizeof to->kernels; i++) to->kernels[i] = from->kernels[i];
}

static size_t max_of(size_t a, size_t b) { return a > b ? a : b; }

static int take_memory(forward *f)
{
    const gb_ops_info *info = &f->ops->info;
    uint32_t works = info->limits.engines * info->limits.max_works;
    f->spans = GB_ARENA_NEW(&f->arena, gb_span, works);
    f->from = GB_ARENA_NEW(&f->arena, uint32_t, works);
    f->head_rows = GB_ARENA_NEW(&f->arena, uint32_t, info->head_rows);
    f->picks = GB_ARENA_NEW(&f->arena, gb_pick, info->head_rows);
    if (!f->spans || !f->from || !f->head_rows || !f->picks) return GB_ENOMEM;
    if (!f->tap.hidden && !f->tap.routes && !f->tap.logits) return GB_OK;
    size_t rows = (size_t)info->limits.engines * info->limits.max_tokens;
    size_t per_row = max_of(info->hidden, info->experts_per_token);
    f->tapped = GB_ARENA_NEW(&f->arena, float, max_of(rows * per_row, (size_t)info->head_rows * info->vocab));
    f->tapped_experts = GB_ARENA_NEW(&f->arena, int32_t, rows * info->experts_per_token);
    return f->tapped && f->tapped_experts ? GB_OK : GB_ENOMEM;
}

int gb_forward_new(gb_executor **out, const gb_model_config *config, gb_ops *ops, const gb_forward_tap *tap, gb_error *err)
{
    GB_ASSERT(config->layers == ops->info.layers && config->moe_layers == ops->info.moe_layers);
    forward *f = calloc(1, sizeof *f);
    if (!f) {
        gb_ops_free(ops);
        return gb_fail(err, GB_ENOMEM, "out of memory for the executor");
    }
    f->base.table = &forward_table;
    f->config = *config;
    f->ops = ops;
    if (tap) f->tap = *tap;
    gb_arena_init(&f->arena);
    fill_info(&f->base.info, &ops->info);
    if (take_memory(f) != GB_OK) {
        forward_free(&f->base);
        return gb_fail(err, GB_ENOMEM, "out of memory for the rows of a round");
    }
    *out = &f->base;
    return GB_OK;
}
