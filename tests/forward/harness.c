#include "tests/forward/harness.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

enum { BLOCKS = HARNESS_POSITIONS / GB_BLOCK_TOKENS };

const gb_sampling harness_greedy = {.temperature = 0, .top_p = 1, .repetition_penalty = 1, .logprobs = -1, .max_tokens = 1};

static int32_t blocks_of[HARNESS_WORKS][BLOCKS];

static void must(bool ok, const char *what, const gb_error *err)
{
    if (ok) return;
    printf("harness: %s: %s\n", what, err ? err->text : "");
    exit(1);
}

/* --- the tap --- */

static const gb_span *tapped_span(const gb_row_set *rows)
{
    const gb_span *s = &rows->spans[0];
    return s->engine == 0 && s->work == 0 ? s : NULL;
}

static void keep_hidden(void *self, const gb_row_set *rows, uint32_t depth, const float *x)
{
    harness *h = self;
    const gb_span *s = tapped_span(rows);
    if (!s) return;
    size_t width = h->config.hidden;
    memcpy(h->hidden + (depth * (size_t)HARNESS_POSITIONS + s->start) * width, x + s->row * width, s->count * width * sizeof *x);
}

static void keep_routes(void *self, const gb_row_set *rows, uint32_t moe_layer, const int32_t *experts, const float *weights)
{
    harness *h = self;
    const gb_span *s = tapped_span(rows);
    if (!s) return;
    size_t K = h->config.experts_per_token, at = (moe_layer * (size_t)HARNESS_POSITIONS + s->start) * K;
    memcpy(h->experts + at, experts + s->row * K, s->count * K * sizeof *experts);
    memcpy(h->weights + at, weights + s->row * K, s->count * K * sizeof *weights);
}

static void keep_logits(void *self, const gb_row_set *rows, uint32_t first, uint32_t n, const float *logits)
{
    harness *h = self;
    const gb_span *s = tapped_span(rows);
    for (uint32_t row = first; s && row < first + n; row++)
        if (row >= s->row && row < s->row + s->count)
            memcpy(h->logits + (size_t)(s->start + row - s->row) * h->config.vocab, logits + (size_t)(row - first) * h->config.vocab,
                   h->config.vocab * sizeof *logits);
}

/* --- opening --- */

static void open_executor(harness *h, const harness_options *options)
{
    gb_error err = {0};
    gb_weights *weights = NULL;
    char dir[4096];
    snprintf(dir, sizeof dir, "%s", check_path(options->directory));
    must(gb_model_config_load(&h->config, dir, &err) == GB_OK, dir, &err);
    must(gb_weights_open(&weights, dir, &err) == GB_OK, dir, &err);
    must(gb_weights_check(weights, &h->config, &err) == GB_OK, dir, &err);
    gb_ops_limits limits = {.engines = options->engines ? options->engines : 1, .ranks = options->ranks ? options->ranks : 1,
                            .spare_slots = options->spare_slots, .private_ranks = !options->shared_ranks, .max_works = HARNESS_WORKS,
                            .max_tokens = options->max_tokens ? options->max_tokens : HARNESS_POSITIONS,
                            .max_positions = HARNESS_POSITIONS, .blocks_per_engine = HARNESS_WORKS * BLOCKS};
    uint32_t threads = options->threads ? options->threads : 1;
    if (options->backend) {
        gb_backend_options other = {.limits = limits, .f32 = options->f32, .threads = threads, .eager = !options->graphs,
                                    .experts = options->experts, .layout = options->layout, .exchange = options->exchange, .directory = dir};
        must(options->backend->ops_new(&h->ops, &h->config, weights, &other, &err) == GB_OK, "ops", &err);
    } else {
        gb_cpu_options cpu = {.limits = limits, .threads = threads, .kernels = "auto", .rung = options->rung, .f32 = options->f32};
        must(gb_cpu_ops_new(&h->ops, &h->config, weights, &cpu, &err) == GB_OK, "ops", &err);
    }
    gb_weights_free(weights);
    gb_forward_tap tap = {.self = h, .hidden = keep_hidden, .routes = keep_routes, .logits = keep_logits};
    if (options->graphs) tap.hidden = NULL, tap.routes = NULL;
    const gb_forward_tap *shown = options->tap ? &tap : options->other_tap;
    must(gb_forward_new(&h->executor, &h->config, h->ops, shown, &err) == GB_OK, "executor", &err);
}

void harness_open(harness *h, const harness_options *options)
{
    gb_error err = {0};
    memset(h, 0, sizeof *h);
    gb_arena_init(&h->arena);
    open_executor(h, options);
    const gb_model_config *c = &h->config;
    const gb_executor_info *info = &h->executor->info;
    gb_round_limits limits = {.engines = info->engines, .ranks = info->ranks, .max_works = info->max_works, .max_tokens = info->max_tokens,
                              .moe_layers = c->moe_layers, .experts = c->experts};
    must(gb_round_init(&h->round, &h->arena, &limits) == GB_OK && gb_result_init(&h->result, &h->arena, &limits) == GB_OK, "round", NULL);
    h->round.counts_due = true;
    int placed = gb_placement_init(&h->placement, &h->arena, c->moe_layers, info->engines, c->experts, info->ranks, options->spare_slots, &err);
    must(placed == GB_OK, "placement", &err);
    h->round.placement = &h->placement;
    h->hidden = GB_ARENA_NEW(&h->arena, float, (size_t)(c->layers + 1) * HARNESS_POSITIONS * c->hidden);
    h->experts = GB_ARENA_NEW(&h->arena, int32_t, (size_t)c->moe_layers * HARNESS_POSITIONS * c->experts_per_token);
    h->weights = GB_ARENA_NEW(&h->arena, float, (size_t)c->moe_layers * HARNESS_POSITIONS * c->experts_per_token);
    h->logits = GB_ARENA_NEW(&h->arena, float, (size_t)HARNESS_POSITIONS * c->vocab);
    must(h->hidden && h->experts && h->weights && h->logits, "tap", NULL);
    for (int32_t s = 0; s < HARNESS_WORKS; s++)    /* blocks in an order that is not that of positions */
        for (int32_t b = 0; b < BLOCKS; b++) blocks_of[s][b] = s + HARNESS_WORKS * ((b * 5 + 3) % BLOCKS);
}

void harness_close(harness *h)
{
    gb_executor_free(h->executor);
    gb_arena_deinit(&h->arena);
}

/* --- rounds --- */

void harness_clear(harness *h)
{
    for (uint32_t e = 0; e < h->round.n_engines; e++) h->round.batches[e].n_works = h->round.batches[e].n_tokens = 0;
}

uint32_t harness_add(harness *h, uint32_t engine, uint32_t sequence, const int32_t *tokens, uint32_t n_tokens, uint32_t n_prompt,
                     uint32_t start, uint32_t count, const gb_sampling *sampling)
{
    gb_batch *batch = &h->round.batches[engine];
    batch->works[batch->n_works] = (gb_work){.id = batch->n_works + 1, .tokens = tokens, .n_tokens = n_tokens,
                                             .n_prompt = n_prompt, .start = start, .count = count, .blocks = blocks_of[sequence], .samples = start + count == n_tokens,
                                             .sampling = sampling};
    batch->n_tokens += count;
    return batch->n_works++;
}

int harness_run(harness *h)
{
    h->round.seq++;
    return gb_executor_run(h->executor, &h->round, &h->result);
}

int32_t harness_feed(harness *h, const int32_t *tokens, uint32_t n, uint32_t chunk, const gb_sampling *sampling)
{
    for (uint32_t start = 0; start < n; start += chunk) {
        harness_clear(h);
        harness_add(h, 0, 0, tokens, n, n, start, n - start < chunk ? n - start : chunk, sampling);
        CHECK_EQ(harness_run(h), GB_OK);
    }
    return h->result.sampled[0][0].token;
}

const gb_matmul_rung *const *harness_rungs(void)
{
    static const gb_matmul_rung *rungs[8];
    uint32_t n = 0;
    for (uint32_t i = 0; i < gb_matmul_rung_count; i++)
        if (gb_matmul_rungs[i]->supported()) rungs[n++] = gb_matmul_rungs[i];
    rungs[n] = NULL;
    return rungs;
}

/* --- golden files: safetensors with I32 beside F32, which no checkpoint has --- */

struct golden {
    char *file;
    json_t *header;
    const char *data;
};

golden *golden_open(const char *directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/golden.safetensors", check_path(directory));
    FILE *f = fopen(path, "rb");
    must(f != NULL, path, NULL);
    fseek(f, 0, SEEK_END);
    long bytes = ftell(f);
    rewind(f);
    golden *g = calloc(1, sizeof *g);
    g->file = malloc((size_t)bytes);
    must(fread(g->file, 1, (size_t)bytes, f) == (size_t)bytes, path, NULL);
    fclose(f);
    uint64_t header;
    memcpy(&header, g->file, sizeof header);
    g->header = json_loadb(g->file + 8, header, 0, NULL);
    must(g->header != NULL, path, NULL);
    g->data = g->file + 8 + header;
    return g;
}

void golden_close(golden *g)
{
    json_decref(g->header);
    free(g->file);
    free(g);
}

const void *golden_find(const golden *g, uint32_t prompt, const char *name, uint32_t dims[3])
{
    char full[64];
    snprintf(full, sizeof full, "p%u.%s", prompt, name);
    json_t *t = json_object_get(g->header, full), *shape = json_object_get(t, "shape");
    must(t && json_array_size(shape) <= 3, full, NULL);
    for (size_t i = 0; i < 3; i++) dims[i] = i < json_array_size(shape) ? (uint32_t)json_integer_value(json_array_get(shape, i)) : 1;
    return g->data + json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
}

uint32_t golden_prompts(const golden *g)
{
    uint32_t n = 0;
    for (char name[32];; n++) {
        snprintf(name, sizeof name, "p%u.input_ids", n);
        if (!json_object_get(g->header, name)) return n;
    }
}
