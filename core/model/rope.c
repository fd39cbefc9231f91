#include "core/model/rope.h"

#include <math.h>
#include <string.h>

static const double THETA_DEFAULT = 10000.0, THETA_MIN = 1.0001, THETA_MAX = 1e12, FACTOR_MAX = 1e6;

static const struct {
    const char *name;
    gb_rope_kind kind;
} KINDS[] = {{"default", GB_ROPE_DEFAULT}, {"linear", GB_ROPE_LINEAR}, {"yarn", GB_ROPE_YARN}, {"llama3", GB_ROPE_LLAMA3}};

static const char *const KNOWN[] = {
    "rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
    "mscale", "mscale_all_dim", "truncate", "low_freq_factor", "high_freq_factor", "partial_rotary_factor",
};

static gb_rope_kind parse_kind(gb_fields *f)
{
    const char *type = gb_fields_string(f, "rope_type", gb_fields_string(f, "type", "default"));
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (!strcmp(type, KINDS[i].name)) return KINDS[i].kind;
    gb_fields_fail(f, GB_EUNSUPPORTED, "rope_type is \"%s\"; supported are default, linear, yarn and llama3", gb_json_quote(type).text);
    return GB_ROPE_DEFAULT;
}

/* Every member of the block is arithmetic, so one that we do not know cannot be ignored. */
static void refuse_unknown(gb_fields *f)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)f->object, key, value) {
        bool known = json_is_null(value);
        for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN && !known; i++) known = !strcmp(key, KNOWN[i]);
        if (!known) gb_fields_fail(f, GB_EUNSUPPORTED, "%s is not a rope field this build knows", gb_json_quote(key).text);
    }
    if (gb_fields_real(f, "partial_rotary_factor", 0, 1, 1) != 1)
        gb_fields_fail(f, GB_EUNSUPPORTED, "partial_rotary_factor must be 1: this architecture rotates whole heads");
}

static double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0; }

static void parse_yarn(gb_rope *rope, gb_fields *f, uint32_t max_positions)
{
    rope->factor = gb_fields_real(f, "factor", 1, FACTOR_MAX, fmax(1, max_positions / rope->original_max_positions));
    rope->beta_fast = gb_fields_real(f, "beta_fast", 0, FACTOR_MAX, 0);
    rope->beta_slow = gb_fields_real(f, "beta_slow", 0, FACTOR_MAX, 0);
    if (rope->beta_fast == 0) rope->beta_fast = 32;    /* the reference reads 0 as absent, too */
    if (rope->beta_slow == 0) rope->beta_slow = 1;
    if (rope->beta_fast < rope->beta_slow)
        gb_fields_fail(f, GB_EFORMAT, "beta_fast %g must not be below beta_slow %g", rope->beta_fast, rope->beta_slow);
    rope->mscale = gb_fields_real(f, "mscale", 0, 1000, 0);
    rope->mscale_all_dim = gb_fields_real(f, "mscale_all_dim", 0, 1000, 0);
    rope->truncate = gb_fields_bool(f, "truncate", true);
    double inferred = rope->mscale != 0 && rope->mscale_all_dim != 0
        ? yarn_mscale(rope->factor, rope->mscale) / yarn_mscale(rope->factor, rope->mscale_all_dim)
        : yarn_mscale(rope->factor, 1);
    rope->attention_factor = gb_fields_real(f, "attention_factor", 1e-6, 1000, inferred);
}

static void parse_llama3(gb_rope *rope, gb_fields *f)
{
    rope->factor = gb_fields_need_real(f, "factor", 1, FACTOR_MAX);
    rope->low_freq_factor = gb_fields_need_real(f, "low_freq_factor", 1e-6, FACTOR_MAX);
    rope->high_freq_factor = gb_fields_need_real(f, "high_freq_factor", 1e-6, FACTOR_MAX);
    if (rope->high_freq_factor <= rope->low_freq_factor)
        gb_fields_fail(f, GB_EFORMAT, "high_freq_factor %g must be above low_freq_factor %g", rope->high_freq_factor,
                       rope->low_freq_factor);
}

static void parse_block(gb_rope *rope, gb_fields *f, uint32_t max_positions, double outer_original)
{
    rope->kind = parse_kind(f);
    refuse_unknown(f);
    rope->theta = gb_fields_real(f, "rope_theta", THETA_MIN, THETA_MAX, rope->theta);
    double inner = gb_fields_real(f, "original_max_position_embeddings", 1, GB_POSITIONS_MAX, max_positions);
    rope->original_max_positions = outer_original != 0 ? outer_original : inner;
    if (rope->kind == GB_ROPE_LINEAR) rope->factor = gb_fields_need_real(f, "factor", 1, FACTOR_MAX);
    if (rope->kind == GB_ROPE_YARN) parse_yarn(rope, f, max_positions);
    if (rope->kind == GB_ROPE_LLAMA3) parse_llama3(rope, f);
}

void gb_rope_parse(gb_rope *rope, gb_fields *config, uint32_t max_positions)
{
    json_t *scaling = gb_fields_object(config, "rope_scaling"), *parameters = gb_fields_object(config, "rope_parameters");
    *rope = (gb_rope){.kind = GB_ROPE_DEFAULT, .factor = 1, .attention_factor = 1, .truncate = true,
                      .original_max_positions = max_positions};
    rope->theta = gb_fields_real(config, "rope_theta", THETA_MIN, THETA_MAX, THETA_DEFAULT);
    /* Written beside the block, it wins over the one inside: so does the reference. */
    double original = gb_fields_real(config, "original_max_position_embeddings", 1, GB_POSITIONS_MAX, 0);
    if (scaling && parameters)
        gb_fields_fail(config, GB_EFORMAT, "rope_scaling and rope_parameters are two spellings of one block; keep one");
    if (config->status || (!scaling && !parameters)) return;

    char where[1024];
    snprintf(where, sizeof where, "%s%s.", config->where, scaling ? "rope_scaling" : "rope_parameters");
    gb_fields block = {.object = scaling ? scaling : parameters, .where = where, .err = config->err};
    parse_block(rope, &block, max_positions, original);
    config->status = block.status;
}
