/* The inventory of a checkpoint: which tensors a config needs, and what a set of weights lacks, has too many of or has in
   the wrong shape. */
#include "core/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/json.h"

enum { LISTED = 10, LIST_BYTES = 640 };

/* The first names of one kind of trouble, as text, and how many there are in all. */
typedef struct listing {
    size_t n, used;
    char text[LIST_BYTES];
} listing;

typedef struct inventory {
    const gb_weights *weights;
    bool *known;            /* per tensor of the set: the config asks for it */
    listing missing, unexpected, misshapen;
} inventory;

__attribute__((format(printf, 2, 3))) static void list(listing *l, const char *format, ...)
{
    if (++l->n > LISTED) return;
    char item[256];
    va_list args;
    va_start(args, format);
    vsnprintf(item, sizeof item, format, args);
    va_end(args);
    if (l->used >= sizeof l->text) return;
    l->used += (size_t)snprintf(l->text + l->used, sizeof l->text - l->used, "%s%s", l->n > 1 ? ", " : "", item);
}

static void format_shape(char *out, size_t bytes, const uint64_t *dims, uint32_t n)
{
    size_t used = (size_t)snprintf(out, bytes, "[");
    for (uint32_t d = 0; d < n && used < bytes; d++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%llu", d ? "," : "", (unsigned long long)dims[d]);
    if (used < bytes) snprintf(out + used, bytes - used, "]");
}

static bool same_shape(const gb_tensor *t, const uint64_t *dims, uint32_t n)
{
    return t->n_dims == n && !memcmp(t->dims, dims, n * sizeof *dims);
}

/* Ticks off one tensor: [rows] when columns is 0, else [rows, columns]. */
static void want(inventory *inv, const char *name, uint64_t rows, uint64_t columns, bool optional)
{
    uint64_t dims[2] = {rows, columns};
    uint32_t n = columns ? 2 : 1;
    const gb_tensor *t = gb_weights_find(inv->weights, name);
    if (!t) {
        if (!optional) list(&inv->missing, "%s", name);
        return;
    }
    inv->known[t - gb_weights_at(inv->weights, 0)] = true;
    if (same_shape(t, dims, n)) return;
    char has[96], needs[64];
    format_shape(has, sizeof has, t->dims, t->n_dims);
    format_shape(needs, sizeof needs, dims, n);
    list(&inv->misshapen, "%s is %s, not %s", name, has, needs);
}

/* A tensor of layer l: "model.layers.<l>.<name>". */
static void want_in_layer(inventory *inv, uint32_t l, const char *name, uint64_t rows, uint64_t columns)
{
    char full[128];
    snprintf(full, sizeof full, "model.layers.%u.%s", l, name);
    want(inv, full, rows, columns, false);
}

static void want_projection(inventory *inv, const gb_model_config *c, uint32_t l, const char *name, uint64_t rows, uint64_t columns)
{
    char full[64];
    snprintf(full, sizeof full, "self_attn.%s_proj.weight", name);
    want_in_layer(inv, l, full, rows, columns);
    snprintf(full, sizeof full, "self_attn.%s_proj.bias", name);
    if (c->attention_bias) want_in_layer(inv, l, full, rows, 0);
}

/* gate, up and down of a gated unit; prefix is "mlp." or "mlp.experts.<e>.". */
static void want_gated(inventory *inv, const gb_model_config *c, uint32_t l, const char *prefix, uint64_t width)
{
    char full[64];
    snprintf(full, sizeof full, "%sgate_proj.weight", prefix);
    want_in_layer(inv, l, full, width, c->hidden);
    snprintf(full, sizeof full, "%sup_proj.weight", prefix);
    want_in_layer(inv, l, full, width, c->hidden);
    snprintf(full, sizeof full, "%sdown_proj.weight", prefix);
    want_in_layer(inv, l, full, c->hidden, width);
}

static void want_layer(inventory *inv, const gb_model_config *c, uint32_t l)
{
    uint64_t q = (uint64_t)c->heads * c->head_dim, kv = (uint64_t)c->kv_heads * c->head_dim;
    want_in_layer(inv, l, "input_layernorm.weight", c->hidden, 0);
    want_in_layer(inv, l, "post_attention_layernorm.weight", c->hidden, 0);
    want_in_layer(inv, l, "self_attn.q_norm.weight", c->head_dim, 0);
    want_in_layer(inv, l, "self_attn.k_norm.weight", c->head_dim, 0);
    want_projection(inv, c, l, "q", q, c->hidden);
    want_projection(inv, c, l, "k", kv, c->hidden);
    want_projection(inv, c, l, "v", kv, c->hidden);
    want_projection(inv, c, l, "o", c->hidden, q);
    if (!c->layer_is_moe[l]) {
        want_gated(inv, c, l, "mlp.", c->dense_intermediate);
        return;
    }
    want_in_layer(inv, l, "mlp.gate.weight", c->experts, c->hidden);
    for (uint32_t e = 0; e < c->experts; e++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "mlp.experts.%u.", e);
        want_gated(inv, c, l, prefix, c->expert_intermediate);
    }
}

static void want_model(inventory *inv, const gb_model_config *c)
{
    want(inv, "model.embed_tokens.weight", c->vocab, c->hidden, false);
    want(inv, "model.norm.weight", c->hidden, 0, false);
    want(inv, "lm_head.weight", c->vocab, c->hidden, c->tied_embeddings);
    for (uint32_t l = 0; l < c->layers; l++) want_layer(inv, c, l);
}

/* ". Missing: a, b and 7 more" behind the sentence. */
static void append(gb_error *err, const char *title, const listing *l)
{
    size_t used = strlen(err->text);
    if (!l->n) return;
    used += (size_t)snprintf(err->text + used, sizeof err->text - used, ". %s: %s", title, l->text);
    if (l->n > LISTED && used < sizeof err->text)
        snprintf(err->text + used, sizeof err->text - used, " and %zu more", l->n - LISTED);
}

int gb_weights_check(const gb_weights *w, const gb_model_config *config, gb_error *err)
{
    inventory inv = {.weights = w, .known = calloc(gb_weights_count(w) + 1, sizeof(bool))};
    if (!inv.known) return gb_fail(err, GB_ENOMEM, "no memory to check the weights");
    want_model(&inv, config);
    for (size_t i = 0; i < gb_weights_count(w); i++)
        if (!inv.known[i]) list(&inv.unexpected, "%s", gb_json_quote(gb_weights_at(w, i)->name).text);
    free(inv.known);
    if (!inv.missing.n && !inv.unexpected.n && !inv.misshapen.n) return GB_OK;
    int status = gb_fail(err, GB_EFORMAT, "the weights do not match config.json: %zu tensors missing, %zu unexpected, %zu misshapen",
                         inv.missing.n, inv.unexpected.n, inv.misshapen.n);
    if (err) {
        append(err, "Missing", &inv.missing);
        append(err, "Unexpected", &inv.unexpected);
        append(err, "Misshapen", &inv.misshapen);
    }
    return status;
}
