/* From a checkpoint's tensors to packed matrices, layer by layer: one list of strips (up to 64 rows of one tensor) per
   layer, packed by all threads; then the source's pages are given back, so that the model is in memory once. */
#include "core/cpu/context.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/assert.h"
#include "core/model/weights.h"

enum { STRIP_ROWS = 64 };

typedef enum strip_kind { STRIP_PLAIN, STRIP_GATE, STRIP_UP } strip_kind;

typedef struct strip {
    gb_packed *to;
    const gb_tensor *from;
    strip_kind kind;
    uint32_t to_row, from_row, rows;
} strip;

typedef struct packer {
    gb_cpu *cpu;
    const gb_weights *weights;
    strip *strips;
    uint32_t n_strips, capacity;
    float *scratch;           /* [threads][STRIP_ROWS * widest] */
    size_t scratch_floats;
    bool failed;              /* out of memory for the list */
} packer;

/* --- how much, and where --- */

static void place_matrix(gb_region *region, gb_packed *w, uint32_t n, uint32_t k, bool f32)
{
    gb_packed_init(w, n, k, f32, gb_region_take(region, gb_packed_bytes(n, k, f32)));
}

static void place_mlp(gb_cpu *cpu, gb_cpu_mlp *mlp, uint32_t width)
{
    place_matrix(&cpu->weights.region, &mlp->gate_up, 2 * width, cpu->config.hidden, cpu->f32);
    place_matrix(&cpu->weights.region, &mlp->down, cpu->config.hidden, width, cpu->f32);
}

static void place_vectors(gb_cpu *cpu, gb_cpu_layer *l)
{
    gb_region *region = &cpu->weights.region;
    const gb_model_config *c = &cpu->config;
    l->attention_norm = gb_region_take(region, c->hidden * sizeof(float));
    l->mlp_norm = gb_region_take(region, c->hidden * sizeof(float));
    l->q_norm = gb_region_take(region, c->head_dim * sizeof(float));
    l->k_norm = gb_region_take(region, c->head_dim * sizeof(float));
    l->qkv_bias = c->attention_bias ? gb_region_take(region, cpu->qkv_dim * sizeof(float)) : NULL;
    l->o_bias = c->attention_bias ? gb_region_take(region, c->hidden * sizeof(float)) : NULL;
}

static void place_all(gb_cpu *cpu)
{
    gb_cpu_weights *weights = &cpu->weights;
    const gb_model_config *c = &cpu->config;
    place_matrix(&weights->region, &weights->embedding, c->vocab, c->hidden, cpu->f32);
    if (c->tied_embeddings) weights->head = weights->embedding;
    else place_matrix(&weights->region, &weights->head, c->vocab, c->hidden, cpu->f32);
    weights->final_norm = gb_region_take(&weights->region, c->hidden * sizeof(float));
    for (uint32_t layer = 0, moe_layer = 0; layer < c->layers; layer++) {
        gb_cpu_layer *l = &weights->layers[layer];
        place_vectors(cpu, l);
        place_matrix(&weights->region, &l->qkv, cpu->qkv_dim, c->hidden, cpu->f32);
        place_matrix(&weights->region, &l->o, c->hidden, cpu->q_dim, cpu->f32);
        if (!c->layer_is_moe[layer]) {
            place_mlp(cpu, &l->mlp, c->dense_intermediate);
            continue;
        }
        gb_cpu_moe *moe = &weights->moe[moe_layer++];
        place_matrix(&weights->region, &moe->router, c->experts, c->hidden, true);
        for (uint32_t place = 0; place < cpu->base.info.places; place++) place_mlp(cpu, &moe->places[place], c->expert_intermediate);
    }
}

static int take_tables(gb_cpu *cpu)
{
    gb_cpu_weights *weights = &cpu->weights;
    weights->layers = GB_ARENA_NEW(&cpu->arena, gb_cpu_layer, cpu->config.layers);
    weights->moe = GB_ARENA_NEW(&cpu->arena, gb_cpu_moe, cpu->config.moe_layers);
    if (!weights->layers || !weights->moe) return GB_ENOMEM;
    for (uint32_t i = 0; i < cpu->config.moe_layers; i++) {
        weights->moe[i].places = GB_ARENA_NEW(&cpu->arena, gb_cpu_mlp, cpu->base.info.places);
        if (!weights->moe[i].places) return GB_ENOMEM;
    }
    return GB_OK;
}

/* Twice over the same routine: the first time nothing is mapped and only the sizes add up. */
static int map_weights(gb_cpu *cpu, gb_error *err)
{
    gb_cpu_weights *weights = &cpu->weights;
    if (take_tables(cpu) != GB_OK) return gb_fail(err, GB_ENOMEM, "out of memory for the tables of weights");
    place_all(cpu);
    weights->bytes = weights->region.used;
    weights->region = (gb_region){.base = gb_memory_map(weights->bytes)};
    if (!weights->region.base) return gb_fail(err, GB_ENOMEM, "out of memory for %zu bytes of packed weights", weights->bytes);
    place_all(cpu);
    GB_ASSERT(weights->region.used == weights->bytes);
    return GB_OK;
}

/* --- strips --- */

static const gb_tensor *find(const packer *p, const char *format, uint32_t layer, const char *part)
{
    char name[160];
    snprintf(name, sizeof name, format, layer, part);
    const gb_tensor *t = gb_weights_find(p->weights, name);
    GB_ASSERT(t);    /* gb_weights_check has seen it */
    return t;
}

static bool grow(packer *p)
{
    uint32_t capacity = p->capacity ? 2 * p->capacity : 1024;
    strip *strips = realloc(p->strips, capacity * sizeof *strips);
    if (!strips) return false;
    p->strips = strips;
    p->capacity = capacity;
    return true;
}

/* All rows of a tensor become rows to_row .. of a matrix (or of its gate or up half). */
static void add_strips(packer *p, gb_packed *to, uint32_t to_row, const gb_tensor *from, strip_kind kind)
{
    uint32_t n = (uint32_t)from->dims[0];
    for (uint32_t row = 0; row < n; row += STRIP_ROWS) {
        if (p->n_strips == p->capacity && !grow(p)) p->failed = true;
        if (p->failed) return;
        uint32_t rows = n - row < STRIP_ROWS ? n - row : STRIP_ROWS;
        p->strips[p->n_strips++] = (strip){to, from, kind, to_row + row, row, rows};
    }
}

static void pack_strips(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    packer *p = self;
    float *rows = p->scratch + thread * p->scratch_floats;
    for (uint32_t i = begin; i < end; i++) {
        const strip *s = &p->strips[i];
        gb_tensor_read_f32(s->from, rows, (size_t)s->from_row * s->to->k, (size_t)s->rows * s->to->k);
        if (s->kind == STRIP_PLAIN) gb_packed_rows(s->to, rows, s->to_row, s->rows);
        else gb_packed_gated_rows(s->to, rows, s->kind == STRIP_UP, s->to_row, s->rows);
    }
}

static int pack_list(packer *p)
{
    if (p->failed) return GB_ENOMEM;
    gb_threads_for(p->cpu->threads, p->n_strips, 1, pack_strips, p);
    p->n_strips = 0;
    gb_weights_release(p->weights);
    return GB_OK;
}

/* --- a model --- */

static void read_vector(float *to, const gb_tensor *from) { gb_tensor_read_f32(from, to, 0, (size_t)from->dims[0]); }

static void pack_mlp(packer *p, gb_cpu_mlp *mlp, uint32_t layer, const char *prefix)
{
    char format[96];
    snprintf(format, sizeof format, "model.layers.%%u.mlp.%s%%s_proj.weight", prefix);
    add_strips(p, &mlp->gate_up, 0, find(p, format, layer, "gate"), STRIP_GATE);
    add_strips(p, &mlp->gate_up, 0, find(p, format, layer, "up"), STRIP_UP);
    add_strips(p, &mlp->down, 0, find(p, format, layer, "down"), STRIP_PLAIN);
}

/* Experts start where the linear placement has them: E / R consecutive ones on each rank, then its empty slots; where ranks share
   memory, at the place of their number. Nobody touches an empty place before an expert comes. */
static uint32_t first_place(const gb_cpu *cpu, uint32_t expert)
{
    uint32_t ranks = cpu->base.info.limits.ranks, per_rank = cpu->config.experts / ranks;
    return cpu->base.info.limits.private_ranks ? expert / per_rank * (cpu->base.info.slots / ranks) + expert % per_rank : expert;
}

static void pack_moe(packer *p, gb_cpu_moe *moe, uint32_t layer)
{
    const gb_cpu *cpu = p->cpu;
    add_strips(p, &moe->router, 0, find(p, "model.layers.%u.mlp.%s.weight", layer, "gate"), STRIP_PLAIN);
    for (uint32_t e = 0; e < cpu->config.experts; e++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "experts.%u.", e);
        pack_mlp(p, &moe->places[first_place(cpu, e)], layer, prefix);
    }
}

static void pack_attention(packer *p, gb_cpu_layer *l, uint32_t layer)
{
    const char *norm = "model.layers.%u.%s_layernorm.weight", *weight = "model.layers.%u.self_attn.%s.weight";
    const char *bias = "model.layers.%u.self_attn.%s.bias";
    uint32_t k_row = p->cpu->q_dim, v_row = k_row + p->cpu->kv_dim;
    read_vector(l->attention_norm, find(p, norm, layer, "input"));
    read_vector(l->mlp_norm, find(p, norm, layer, "post_attention"));
    read_vector(l->q_norm, find(p, weight, layer, "q_norm"));
    read_vector(l->k_norm, find(p, weight, layer, "k_norm"));
    add_strips(p, &l->qkv, 0, find(p, weight, layer, "q_proj"), STRIP_PLAIN);
    add_strips(p, &l->qkv, k_row, find(p, weight, layer, "k_proj"), STRIP_PLAIN);
    add_strips(p, &l->qkv, v_row, find(p, weight, layer, "v_proj"), STRIP_PLAIN);
    add_strips(p, &l->o, 0, find(p, weight, layer, "o_proj"), STRIP_PLAIN);
    if (!l->qkv_bias) return;
    read_vector(l->qkv_bias, find(p, bias, layer, "q_proj"));
    read_vector(l->qkv_bias + k_row, find(p, bias, layer, "k_proj"));
    read_vector(l->qkv_bias + v_row, find(p, bias, layer, "v_proj"));
    read_vector(l->o_bias, find(p, bias, layer, "o_proj"));
}

static int pack_ends(packer *p)
{
    gb_cpu_weights *weights = &p->cpu->weights;
    read_vector(weights->final_norm, gb_weights_find(p->weights, "model.norm.weight"));
    add_strips(p, &weights->embedding, 0, gb_weights_find(p->weights, "model.embed_tokens.weight"), STRIP_PLAIN);
    if (!p->cpu->config.tied_embeddings) add_strips(p, &weights->head, 0, gb_weights_find(p->weights, "lm_head.weight"), STRIP_PLAIN);
    return pack_list(p);
}

static int pack_layers(packer *p)
{
    int rc = pack_ends(p);
    for (uint32_t layer = 0, moe_layer = 0; rc == GB_OK && layer < p->cpu->config.layers; layer++) {
        gb_cpu_layer *l = &p->cpu->weights.layers[layer];
        pack_attention(p, l, layer);
        if (p->cpu->config.layer_is_moe[layer]) pack_moe(p, &p->cpu->weights.moe[moe_layer++], layer);
        else pack_mlp(p, &l->mlp, layer, "");
        rc = pack_list(p);
    }
    return rc;
}

static uint32_t widest_input(const gb_cpu *cpu)
{
    const gb_model_config *c = &cpu->config;
    uint32_t widths[] = {c->hidden, cpu->q_dim, c->dense_intermediate, c->expert_intermediate}, widest = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) widest = widths[i] > widest ? widths[i] : widest;
    return widest;
}

int gb_cpu_pack(gb_cpu *cpu, const gb_weights *weights, gb_error *err)
{
    packer p = {.cpu = cpu, .weights = weights, .scratch_floats = (size_t)STRIP_ROWS * widest_input(cpu)};
    int rc = map_weights(cpu, err);
    if (rc != GB_OK) return rc;
    p.scratch = malloc(gb_threads_count(cpu->threads) * p.scratch_floats * sizeof *p.scratch);
    rc = p.scratch ? pack_layers(&p) : GB_ENOMEM;
    free(p.scratch);
    free(p.strips);
    return rc == GB_OK ? GB_OK : gb_fail(err, rc, "out of memory while packing weights");
}
