#include "core/model/config.h"

#include <stdlib.h>

#include "tests/check.h"

/* A whole config in two parts: what a test leaves alone, and what it may replace. */
static const char BASE[] =
    "\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"hidden_act\":\"silu\",\"torch_dtype\":\"bfloat16\"";
static const char *const SHAPE[] = {
    "\"vocab_size\":320", "\"hidden_size\":64", "\"num_hidden_layers\":4", "\"num_attention_heads\":4", "\"num_key_value_heads\":2",
    "\"head_dim\":16", "\"intermediate_size\":96", "\"moe_intermediate_size\":32", "\"num_experts\":8", "\"num_experts_per_tok\":2",
    "\"max_position_embeddings\":512",
};

/* Parses BASE and SHAPE with the fields of `change`, which replace those of the same name; "-key" removes a field. */
static int parse_with(gb_model_config *c, const char *change, gb_error *err)
{
    char text[4096], key[64];
    size_t used = (size_t)snprintf(text, sizeof text, "{%s", BASE);
    bool removed = change[0] == '-';
    for (size_t i = 0; i < sizeof SHAPE / sizeof *SHAPE; i++) {
        snprintf(key, sizeof key, "%.*s:", (int)strcspn(SHAPE[i], ":"), SHAPE[i]);
        bool gone = removed ? !strncmp(key + 1, change + 1, strlen(change + 1)) : strstr(change, key) != NULL;
        if (!gone) used += (size_t)snprintf(text + used, sizeof text - used, ",%s", SHAPE[i]);
    }
    snprintf(text + used, sizeof text - used, "%s%s}", removed || !*change ? "" : ",", removed ? "" : change);
    return gb_model_config_parse(c, text, strlen(text), "config.json", err);
}

static void check_refused(int status, const char *change, const char *part)
{
    gb_model_config c;
    gb_error err = {0};
    int got = parse_with(&c, change, &err);
    if (got != status) printf("    with %s: %s\n", change, err.text);
    CHECK_EQ(got, status);
    CHECK_CONTAINS(err.text, part);
    CHECK_CONTAINS(err.text, "config.json");
}

static gb_model_config parsed(const char *change)
{
    gb_model_config c;
    gb_error err = {0};
    int status = parse_with(&c, change, &err);
    if (status) printf("    with %s: %s\n", change, err.text);
    CHECK_EQ(status, GB_OK);
    return c;
}

static gb_model_config loaded(const char *dir)
{
    gb_model_config c;
    gb_error err = {0};
    int status = gb_model_config_load(&c, check_path(dir), &err);
    if (status) printf("    %s\n", err.text);
    CHECK_EQ(status, GB_OK);
    return c;
}

static void the_bundled_model_is_read(void)
{
    gb_model_config c = loaded("examples/models/tiny-moe");
    CHECK_EQ(c.vocab, 4096);
    CHECK_EQ(c.hidden, 256);
    CHECK_EQ(c.layers, 4);
    CHECK_EQ(c.moe_layers, 4);
    CHECK_EQ(c.heads, 4);
    CHECK_EQ(c.kv_heads, 2);
    CHECK_EQ(c.head_dim, 64);
    CHECK_EQ(c.experts, 32);
    CHECK_EQ(c.experts_per_token, 4);
    CHECK_EQ(c.expert_intermediate, 64);
    CHECK_EQ(c.max_positions, 2048);
    CHECK(c.norm_topk_prob && c.tied_embeddings && !c.attention_bias);
    CHECK_EQ(c.dtype, GB_BF16);
    CHECK_EQ(c.bos_id, 4093);
    CHECK_EQ(c.n_end_ids, 1);
    CHECK_EQ(c.end_ids[0], 4095);
    CHECK_STR(c.architecture, "Qwen3MoeForCausalLM");
    CHECK_EQ(c.sliding_window, 0);
}

/* config.json of Qwen3-30B-A3B as published; its parameters are those that the model's page counts. */
static void a_published_config_is_read(void)
{
    static const char TEXT[] =
        "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,\"bos_token_id\":151643,"
        "\"decoder_sparse_step\":1,\"eos_token_id\":151645,\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":2048,"
        "\"initializer_range\":0.02,\"intermediate_size\":6144,\"max_position_embeddings\":40960,\"max_window_layers\":48,"
        "\"mlp_only_layers\":[],\"model_type\":\"qwen3_moe\",\"moe_intermediate_size\":768,\"norm_topk_prob\":true,"
        "\"num_attention_heads\":32,\"num_experts\":128,\"num_experts_per_tok\":8,\"num_hidden_layers\":48,\"num_key_value_heads\":4,"
        "\"output_router_logits\":false,\"rms_norm_eps\":1e-06,\"rope_scaling\":null,\"rope_theta\":1000000.0,"
        "\"router_aux_loss_coef\":0.001,\"sliding_window\":null,\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\","
        "\"transformers_version\":\"4.51.0\",\"use_cache\":true,\"use_sliding_window\":false,\"vocab_size\":151936}";
    gb_model_config c;
    gb_error err = {0};
    CHECK_EQ(gb_model_config_parse(&c, TEXT, strlen(TEXT), "config.json", &err), GB_OK);
    CHECK_STR(err.text, "");
    CHECK_EQ(c.moe_layers, 48);
    CHECK_EQ(c.head_dim, 128);
    CHECK_EQ(gb_model_config_parameters(&c), 30532122624);
    CHECK_EQ(gb_model_config_active_parameters(&c), 30532122624 - 48ull * 120 * 3 * 2048 * 768);
}

static void dense_and_routed_layers_follow_step_and_list(void)
{
    gb_model_config c = loaded("tests/golden/dense-mixed");
    static const bool WANTED[] = {false, true, false, false, false};
    for (int l = 0; l < 5; l++) CHECK_EQ(c.layer_is_moe[l], WANTED[l]);
    CHECK_EQ(c.moe_layers, 1);
    CHECK_EQ(c.dense_intermediate, 96);
}

static void a_window_covers_every_layer_unless_layer_types_say_otherwise(void)
{
    gb_model_config c = loaded("tests/golden/sliding-window");
    CHECK_EQ(c.sliding_window, 24);
    CHECK(c.layer_slides[0] && c.layer_slides[1]);
    c = parsed("\"use_sliding_window\":true,\"sliding_window\":7,\"max_window_layers\":28,"
               "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\",\"sliding_attention\"]");
    CHECK_EQ(c.sliding_window, 7);
    CHECK(!c.layer_slides[0] && c.layer_slides[1] && !c.layer_slides[2] && c.layer_slides[3]);
    c = parsed("\"use_sliding_window\":false,\"sliding_window\":24,\"max_window_layers\":4");
    CHECK_EQ(c.sliding_window, 0);
    CHECK(!c.layer_slides[0]);
    CHECK_EQ(parsed("\"use_sliding_window\":true,\"sliding_window\":null").sliding_window, 0);
    CHECK_EQ(parsed("\"use_sliding_window\":true").sliding_window, 4096);
    check_refused(GB_EUNSUPPORTED, "\"use_sliding_window\":true,\"sliding_window\":24,\"max_window_layers\":2", "max_window_layers is 2");
    check_refused(GB_EFORMAT, "\"layer_types\":[\"full_attention\"]", "1 entries for 4 layers");
    check_refused(GB_EUNSUPPORTED, "\"layer_types\":[\"full_attention\",\"linear_attention\",\"full_attention\",\"full_attention\"]",
                  "\"linear_attention\"");
    check_refused(GB_EFORMAT, "\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\",\"sliding_attention\"]", "no window");
    check_refused(GB_EFORMAT, "\"use_sliding_window\":true,\"sliding_window\":0", "sliding_window is 0");
}

static void defaults_are_those_of_the_reference(void)
{
    gb_model_config c = parsed("");
    CHECK(!c.norm_topk_prob && !c.tied_embeddings && !c.attention_bias);
    CHECK_EQ(c.moe_layers, 4);
    CHECK_NEAR(c.norm_epsilon, 1e-6f, 1e-12);
    CHECK_NEAR(c.rope.theta, 10000, 0);
    CHECK_EQ(c.rope.kind, GB_ROPE_DEFAULT);
    CHECK_EQ(c.bos_id, -1);
    CHECK_EQ(c.n_end_ids, 0);
    c = parsed("-head_dim");
    CHECK_EQ(c.head_dim, 16);
    CHECK_EQ(parsed("\"head_dim\":null").head_dim, 16);
    CHECK_EQ(parsed("-intermediate_size").dense_intermediate, 0);
    CHECK_EQ(parsed("\"num_local_experts\":8").experts, 8);
}

static void newer_spellings_mean_the_same(void)
{
    gb_model_config c = loaded("tests/golden/new-keys");
    CHECK_EQ(c.dtype, GB_BF16);
    CHECK_NEAR(c.rope.theta, 50000, 0);
    c = parsed("\"rope_theta\":7.0,\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2,\"rope_theta\":9}");
    CHECK_NEAR(c.rope.theta, 9, 0);
    CHECK_EQ(c.rope.kind, GB_ROPE_LINEAR);
    c = parsed("\"rope_theta\":7.0,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}");
    CHECK_NEAR(c.rope.theta, 7, 0);
    CHECK_EQ(c.rope.kind, GB_ROPE_LINEAR);
    check_refused(GB_EFORMAT, "\"rope_scaling\":{\"type\":\"default\"},\"rope_parameters\":{\"rope_type\":\"default\"}", "keep one");
    check_refused(GB_EFORMAT, "\"dtype\":\"float16\"", "differ");
}

static void a_missing_field_is_refused_by_name(void)
{
    static const char *const KEYS[] = {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                                       "moe_intermediate_size", "num_experts\"", "num_experts_per_tok", "max_position_embeddings"};
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        char change[64], part[64];
        snprintf(change, sizeof change, "-%s", KEYS[i]);
        snprintf(part, sizeof part, "%.*s is missing", (int)strcspn(KEYS[i], "\""), KEYS[i]);
        check_refused(GB_EFORMAT, change, part);
    }
    gb_model_config c;
    gb_error err = {0};
    CHECK_EQ(gb_model_config_parse(&c, "{}", 2, "config.json", &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "architectures is missing");
}

static void absurd_numbers_are_refused_by_name_and_range(void)
{
    static const char *const KEYS[] = {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                                       "head_dim", "moe_intermediate_size", "num_experts", "num_experts_per_tok", "max_position_embeddings",
                                       "decoder_sparse_step", "bos_token_id", "eos_token_id"};
    static const char *const VALUES[] = {"-1", "9223372036854775808", "18446744073709551616", "1e300", "2.5", "4294967296", "-2147483649"};
    for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++)
        for (size_t v = 0; v < sizeof VALUES / sizeof *VALUES; v++) {
            char change[128], part[128];
            snprintf(change, sizeof change, "\"%s\":%s", KEYS[k], VALUES[v]);
            snprintf(part, sizeof part, "%s is ", KEYS[k]);
            check_refused(GB_EFORMAT, change, part);
            check_refused(GB_EFORMAT, change, "must be a whole number between");
        }
    for (size_t k = 0; k < 11; k++) {
        char change[128];
        snprintf(change, sizeof change, "\"%s\":0", KEYS[k]);
        check_refused(GB_EFORMAT, change, "is 0; it must be");
    }
}

static void numbers_that_do_not_fit_each_other_are_refused(void)
{
    check_refused(GB_EFORMAT, "\"num_key_value_heads\":3", "num_attention_heads 4 is not a multiple of num_key_value_heads 3");
    check_refused(GB_EFORMAT, "\"num_experts_per_tok\":9", "num_experts_per_tok is 9; it must be a whole number between 1 and 8");
    check_refused(GB_EFORMAT, "\"max_position_embeddings\":1", "max_position_embeddings is 1; it must be a whole number between 2 and");
    check_refused(GB_EFORMAT, "\"head_dim\":15", "head_dim is 15; it must be even");
    check_refused(GB_EFORMAT, "\"head_dim\":null,\"num_attention_heads\":6", "head_dim is missing");
    check_refused(GB_EFORMAT, "\"mlp_only_layers\":[4]", "mlp_only_layers is 4");
    check_refused(GB_EFORMAT, "\"mlp_only_layers\":[\"1\"]", "mlp_only_layers is a string");
    check_refused(GB_EUNSUPPORTED, "\"mlp_only_layers\":[0,1,2,3]", "no layer with experts");
    check_refused(GB_EUNSUPPORTED, "\"decoder_sparse_step\":5", "no layer with experts");
    check_refused(GB_EFORMAT, "\"eos_token_id\":320", "eos_token_id is 320");
    check_refused(GB_EFORMAT, "\"eos_token_id\":[1,320]", "eos_token_id is 320");
    check_refused(GB_EFORMAT, "\"bos_token_id\":320", "bos_token_id is 320");
    check_refused(GB_EFORMAT, "\"num_local_experts\":9", "differ");
    check_refused(GB_EFORMAT, "\"intermediate_size\":null,\"decoder_sparse_step\":2", "intermediate_size is missing");
}

static void wrong_types_are_refused_by_name(void)
{
    check_refused(GB_EFORMAT, "\"hidden_size\":\"64\"", "hidden_size is a string; it must be a whole number");
    check_refused(GB_EFORMAT, "\"hidden_size\":[64]", "hidden_size is a list");
    check_refused(GB_EFORMAT, "\"norm_topk_prob\":1", "norm_topk_prob is a number; it must be true or false");
    check_refused(GB_EFORMAT, "\"rope_scaling\":\"yarn\"", "rope_scaling is a string; it must be an object");
    check_refused(GB_EFORMAT, "\"rms_norm_eps\":true", "rms_norm_eps is a boolean; it must be a number");
    check_refused(GB_EFORMAT, "\"rms_norm_eps\":0", "rms_norm_eps is 0");
    check_refused(GB_EFORMAT, "\"mlp_only_layers\":3", "mlp_only_layers is a number; it must be a list");
}

static void fields_that_would_change_the_arithmetic_are_refused_by_name(void)
{
    gb_model_config c;
    gb_error err = {0};
    static const char OTHER[] = "{\"architectures\":[\"LlamaForCausalLM\"]}", RELATIVE[] = "{\"model_type\":\"qwen3_next\"}";
    CHECK_EQ(gb_model_config_parse(&c, OTHER, strlen(OTHER), "config.json", &err), GB_EUNSUPPORTED);
    CHECK_CONTAINS(err.text, "LlamaForCausalLM");
    CHECK_CONTAINS(err.text, "only Qwen3MoeForCausalLM is supported");
    CHECK_EQ(gb_model_config_parse(&c, RELATIVE, strlen(RELATIVE), "config.json", &err), GB_EUNSUPPORTED);
    CHECK_CONTAINS(err.text, "qwen3_next");
    check_refused(GB_EUNSUPPORTED, "\"quantization_config\":{\"quant_method\":\"fp8\"}", "quantization_config is not supported");
    check_refused(GB_EUNSUPPORTED, "\"dual_chunk_attention_config\":{\"chunk_size\":262144}", "dual_chunk_attention_config");
    check_refused(GB_EUNSUPPORTED, "\"shared_expert_intermediate_size\":512", "shared_expert_intermediate_size is 512.0; only 0.0");
    check_refused(GB_EUNSUPPORTED, "\"partial_rotary_factor\":0.5", "partial_rotary_factor is 0.5; only 1.0");
    check_refused(GB_EUNSUPPORTED, "\"attn_logit_softcapping\":30", "attn_logit_softcapping");
    check_refused(GB_EUNSUPPORTED, "\"use_qk_norm\":false", "use_qk_norm is false; only true");
    parsed("\"quantization_config\":null,\"shared_expert_intermediate_size\":0,\"partial_rotary_factor\":1.0,\"use_qk_norm\":true");
    parsed("\"attention_dropout\":0.1,\"initializer_range\":0.02,\"router_aux_loss_coef\":0.001,\"unheard_of\":[1,2,3]");
}

static void an_unknown_activation_or_dtype_is_refused(void)
{
    static const char *const TEXTS[] = {
        "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"hidden_act\":\"gelu\"}",
        "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"vocab_size\":9,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":1,"
        "\"num_key_value_heads\":1,\"num_experts\":2,\"num_experts_per_tok\":1,\"moe_intermediate_size\":4,\"max_position_embeddings\":8,"
        "\"torch_dtype\":\"float8_e4m3fn\"}",
    };
    static const char *const PARTS[] = {"hidden_act is \"gelu\"; only \"silu\"", "dtype is \"float8_e4m3fn\""};
    for (int i = 0; i < 2; i++) {
        gb_model_config c;
        gb_error err = {0};
        CHECK_EQ(gb_model_config_parse(&c, TEXTS[i], strlen(TEXTS[i]), "config.json", &err), GB_EUNSUPPORTED);
        CHECK_CONTAINS(err.text, PARTS[i]);
    }
}

static void unknown_rope_rules_are_refused_by_name(void)
{
    static const char *const TYPES[] = {"dynamic", "longrope", "su", "proportional", "mrope"};
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        char change[128];
        snprintf(change, sizeof change, "\"rope_scaling\":{\"rope_type\":\"%s\",\"factor\":2}", TYPES[i]);
        check_refused(GB_EUNSUPPORTED, change, TYPES[i]);
    }
    check_refused(GB_EUNSUPPORTED, "\"rope_scaling\":{\"rope_type\":\"default\",\"mrope_section\":[1]}", "rope_scaling.mrope_section");
    check_refused(GB_EUNSUPPORTED, "\"rope_scaling\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}", "partial_rotary_factor");
    check_refused(GB_EFORMAT, "\"rope_scaling\":{\"rope_type\":\"linear\"}", "rope_scaling.factor is missing");
    check_refused(GB_EFORMAT, "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":0}", "rope_scaling.factor is 0");
    check_refused(GB_EFORMAT, "\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8}", "rope_parameters.low_freq_factor is missing");
    check_refused(GB_EFORMAT, "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4}",
                  "high_freq_factor 4 must be above");
    check_refused(GB_EFORMAT, "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":1,\"beta_slow\":2}", "beta_fast 1");
    check_refused(GB_EFORMAT, "\"rope_theta\":1", "rope_theta is 1");
    check_refused(GB_EFORMAT, "\"rope_theta\":-10000", "rope_theta is -10000");
}

/* Frequencies as Hugging Face transformers 5.24 computes them for the same fields (ROPE_INIT_FUNCTIONS, float32), head_dim 16. */
static void check_frequencies(const char *change, const double *wanted, double wanted_factor)
{
    gb_model_config c = parsed(change);
    double inv_freq[8], factor;
    gb_rope_frequencies(&c, inv_freq, &factor);
    for (int i = 0; i < 8; i++) CHECK_NEAR(inv_freq[i] / wanted[i], 1, 2e-6);
    CHECK_NEAR(factor, wanted_factor, 1e-12);
}

#include "tests/model/rope_vectors.h"

static void rope_frequencies_are_those_of_the_reference(void)
{
    for (size_t i = 0; i < sizeof ROPE_VECTORS / sizeof *ROPE_VECTORS; i++)
        check_frequencies(ROPE_VECTORS[i].fields, ROPE_VECTORS[i].inv_freq, ROPE_VECTORS[i].attention_factor);
}

static void malformed_json_is_refused_with_its_place(void)
{
    gb_model_config c;
    static char deep[5000];
    memset(deep, '[', 2000);
    static const struct {
        const char *text, *part;
    } CASES[] = {
        {"", "not valid JSON"},
        {"{\"hidden_size\":64,}", "line 1"},
        {"{\"hidden_size\":64,\"hidden_size\":65}", "duplicate object key"},
        {"{\"hidden_size\":01}", "not valid JSON"},
        {"{\"hidden_size\":NaN}", "not valid JSON"},
        {"{\"architectures\":\"\xff\xfe\"}", "not valid JSON"},
        {"{\"architectures\":\"\xed\xa0\x80\"}", "not valid JSON"},
        {"{} {}", "end of file expected"},
        {"[1]", "must be a JSON object"},
        {"{\"rope_theta\":1e999}", "not valid JSON"},
        {deep, "nested more than 32 deep"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        gb_error err = {0};
        CHECK_EQ(gb_model_config_parse(&c, CASES[i].text, strlen(CASES[i].text), "config.json", &err), GB_EFORMAT);
        CHECK_CONTAINS(err.text, CASES[i].part);
    }
    gb_error err = {0};
    CHECK_EQ(gb_model_config_parse(&c, "{\"a\0b\":1}", 9, "config.json", &err), GB_EFORMAT);
}

static void a_missing_directory_or_file_is_named(void)
{
    gb_model_config c;
    gb_error err = {0};
    CHECK_EQ(gb_model_config_load(&c, "/nonexistent/model", &err), GB_ENOTFOUND);
    CHECK_CONTAINS(err.text, "model directory /nonexistent/model");
    CHECK_EQ(gb_model_config_load(&c, check_path("tests/golden"), &err), GB_ENOTFOUND);
    CHECK_CONTAINS(err.text, "tests/golden/config.json");
    CHECK_EQ(gb_model_config_load(&c, check_path("CMakeLists.txt"), &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "is not a directory");
}

static void parameters_are_counted_whole_and_per_token(void)
{
    gb_model_config c = loaded("examples/models/tiny-moe");
    CHECK_EQ(gb_model_config_parameters(&c), 8162048);
    uint64_t idle = 4ull * (32 - 4) * 3 * 256 * 64;
    CHECK_EQ(gb_model_config_active_parameters(&c), 8162048 - idle);
    c = loaded("tests/golden/attention-bias");
    gb_model_config without = loaded("tests/golden/plain");
    CHECK_EQ(gb_model_config_parameters(&c) - gb_model_config_parameters(&without), 2 * (64 + 32 + 32 + 64));
}

static int parse_generation(gb_generation_config *g, const char *text, gb_error *err)
{
    return gb_generation_config_parse(g, text, strlen(text), "generation_config.json", 4096, err);
}

static void generation_defaults_are_read_and_absent_ones_marked(void)
{
    gb_generation_config g;
    gb_error err = {0};
    CHECK_EQ(gb_generation_config_load(&g, check_path("examples/models/tiny-moe"), 4096, &err), GB_OK);
    CHECK(g.has_do_sample && !g.do_sample && !g.has_temperature && !g.has_top_p && !g.has_top_k && !g.has_min_p && !g.has_repetition_penalty);
    CHECK_EQ(g.n_end_ids, 2);
    CHECK_EQ(g.end_ids[0], 4095);
    CHECK_EQ(g.end_ids[1], 4093);
    CHECK_EQ(gb_generation_config_load(&g, check_path("tests/golden/plain"), 4096, &err), GB_OK);
    CHECK(!g.has_do_sample && g.n_end_ids == 0);
    CHECK_STR(err.text, "");
    CHECK_EQ(parse_generation(&g, "{\"do_sample\":true,\"temperature\":0.6,\"top_p\":0.95,\"top_k\":20,\"min_p\":0.1,"
                                  "\"repetition_penalty\":1.05,\"eos_token_id\":[7,7,8]}", &err), GB_OK);
    CHECK(g.do_sample && g.has_temperature && g.has_top_p && g.has_top_k && g.has_min_p && g.has_repetition_penalty);
    CHECK_NEAR(g.temperature, 0.6, 0);
    CHECK_NEAR(g.top_p, 0.95, 0);
    CHECK_EQ(g.top_k, 20);
    CHECK_NEAR(g.min_p, 0.1, 0);
    CHECK_NEAR(g.repetition_penalty, 1.05, 0);
    CHECK_EQ(g.n_end_ids, 2);
}

static void absurd_generation_defaults_are_refused_by_name(void)
{
    static const struct {
        const char *text, *part;
    } CASES[] = {
        {"{\"temperature\":-1}", "temperature is -1"}, {"{\"top_p\":1.5}", "top_p is 1.5"}, {"{\"top_k\":-1}", "top_k is -1"},
        {"{\"top_k\":2.5}", "top_k is 2.5"}, {"{\"min_p\":2}", "min_p is 2"}, {"{\"repetition_penalty\":0}", "repetition_penalty is 0"},
        {"{\"eos_token_id\":-1}", "eos_token_id is -1"}, {"{\"eos_token_id\":\"x\"}", "eos_token_id is a string"},
        {"{\"do_sample\":0}", "do_sample is a number"}, {"{\"eos_token_id\":4096}", "eos_token_id is 4096; it must be a whole number between 0 and 4095"},
        {"{\"temperature\":101}", "temperature is 101"}, {"{\"top_k\":1048577}", "top_k is 1048577"},
        {"{\"repetition_penalty\":11}", "repetition_penalty is 11"},
        {"{\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", "more than 16 ids"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        gb_generation_config g;
        gb_error err = {0};
        CHECK(parse_generation(&g, CASES[i].text, &err) < 0);
        CHECK_CONTAINS(err.text, CASES[i].part);
    }
}

TESTS(TEST(the_bundled_model_is_read), TEST(a_published_config_is_read), TEST(dense_and_routed_layers_follow_step_and_list),
      TEST(a_window_covers_every_layer_unless_layer_types_say_otherwise), TEST(defaults_are_those_of_the_reference),
      TEST(newer_spellings_mean_the_same), TEST(a_missing_field_is_refused_by_name), TEST(absurd_numbers_are_refused_by_name_and_range),
      TEST(numbers_that_do_not_fit_each_other_are_refused), TEST(wrong_types_are_refused_by_name),
      TEST(fields_that_would_change_the_arithmetic_are_refused_by_name), TEST(an_unknown_activation_or_dtype_is_refused),
      TEST(unknown_rope_rules_are_refused_by_name), TEST(rope_frequencies_are_those_of_the_reference),
      TEST(malformed_json_is_refused_with_its_place), TEST(a_missing_directory_or_file_is_named),
      TEST(parameters_are_counted_whole_and_per_token), TEST(generation_defaults_are_read_and_absent_ones_marked),
      TEST(absurd_generation_defaults_are_refused_by_name))
