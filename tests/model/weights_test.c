#include "core/model/weights.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

/* A safetensors image: header length, header, then `data` bytes of zeros. free() is the caller's. */
static unsigned char *image(const char *header, uint64_t announced, size_t data, size_t *bytes)
{
    size_t n = strlen(header);
    *bytes = 8 + n + data;
    unsigned char *file = calloc(*bytes, 1);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)(announced >> 8 * i);
    memcpy(file + 8, header, n);
    return file;
}

static int add_image(gb_weights *w, const char *header, size_t data, gb_error *err)
{
    size_t bytes;
    unsigned char *file = image(header, strlen(header), data, &bytes);
    int status = gb_weights_add_file(w, file, bytes, "model.safetensors", err);
    free(file);
    return status;
}

static void check_header(int status, const char *header, size_t data, const char *part)
{
    gb_weights *w;
    gb_error err = {0};
    CHECK_EQ(gb_weights_new(&w), GB_OK);
    int got = add_image(w, header, data, &err);
    if (got != status) printf("    %.100s\n", header);
    CHECK_EQ(got, status);
    CHECK_CONTAINS(err.text, part);
    CHECK_EQ(gb_weights_count(w), 0);
    gb_weights_free(w);
}

static void a_golden_checkpoint_opens_whole(const char *dir, size_t tensors)
{
    gb_weights *w;
    gb_error err = {0};
    gb_model_config c;
    char path[4096];
    snprintf(path, sizeof path, "%s", check_path(dir));
    CHECK_EQ(gb_weights_open(&w, path, &err), GB_OK);
    CHECK_STR(err.text, "");
    if (!w) return;
    CHECK_EQ(gb_weights_count(w), tensors);
    CHECK_EQ(gb_model_config_load(&c, path, &err), GB_OK);
    CHECK_EQ(gb_weights_check(w, &c, &err), GB_OK);
    CHECK_STR(err.text, "");
    for (size_t i = 0; i < gb_weights_count(w); i++) {
        const gb_tensor *t = gb_weights_at(w, i);
        CHECK(gb_weights_find(w, t->name) == t);
        CHECK_EQ(t->dtype, c.dtype);
    }
    CHECK(gb_weights_find(w, "model.layers.0.mlp.gate.weigh") == NULL);
    gb_weights_free(w);
}

static void every_golden_checkpoint_matches_its_config(void)
{
    static const char *const DIRS[] = {"plain", "tied", "no-renorm", "dense-mixed", "wide-heads", "all-kv-heads", "attention-bias", "odd-sizes",
                                       "top-1", "all-experts", "many-experts", "rope-linear", "rope-yarn", "rope-llama3", "sliding-window",
                                       "large-theta", "f16-sharded", "f32", "new-keys"};
    static const size_t TENSORS[] = {69, 68, 69, 80, 69, 69, 77, 57, 69, 45, 789, 69, 69, 69, 69, 69, 69, 69, 69};
    for (size_t i = 0; i < sizeof DIRS / sizeof *DIRS; i++) {
        char dir[128];
        snprintf(dir, sizeof dir, "tests/golden/%s", DIRS[i]);
        a_golden_checkpoint_opens_whole(dir, TENSORS[i]);
    }
    a_golden_checkpoint_opens_whole("examples/models/tiny-moe", 422);
}

static void tensors_are_views_with_shape_and_values(void)
{
    gb_weights *w;
    gb_error err = {0};
    static const char HEADER[] = "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[6,14]},"
                                 "\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]},"
                                 "\"c\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[14,16]},"
                                 "\"d\":{\"dtype\":\"F16\",\"shape\":[0,4],\"data_offsets\":[16,16]}}";
    static const unsigned char DATA[] = {0x80, 0x3f, 0x00, 0xc0, 0x00, 0x00, 0, 0, 0x80, 0x3e, 0, 0, 0x40, 0x41, 0x00, 0x3c};
    size_t bytes;
    unsigned char *file = image(HEADER, strlen(HEADER), sizeof DATA, &bytes);
    memcpy(file + bytes - sizeof DATA, DATA, sizeof DATA);
    CHECK_EQ(gb_weights_new(&w), GB_OK);
    CHECK_EQ(gb_weights_add_file(w, file, bytes, "x", &err), GB_OK);
    CHECK_EQ(gb_weights_count(w), 4);
    const gb_tensor *a = gb_weights_find(w, "a"), *b = gb_weights_find(w, "b"), *c = gb_weights_find(w, "c");
    float out[3];
    gb_tensor_read_f32(a, out, 0, 3);
    CHECK(out[0] == 1 && out[1] == -2 && out[2] == 0);
    gb_tensor_read_f32(b, out, 1, 1);
    CHECK(out[0] == 12);
    CHECK(b->n_dims == 2 && b->dims[0] == 2 && b->dims[1] == 1 && b->bytes == 8);
    gb_tensor_read_f32(c, out, 0, 1);
    CHECK(out[0] == 1 && c->n_dims == 0);
    CHECK_EQ(gb_weights_find(w, "d")->bytes, 0);
    gb_weights_free(w);
    free(file);
}

#define ENTRY(name, dtype, shape, begin, end) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void headers_that_break_a_rule_are_refused(void)
{
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[2]", 4, 12) "}", 12, "overlap");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[2]", 0, 8) "}", 8, "overlap");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[2]", 12, 20) "}", 20, "leave holes");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[2]", 4, 12) "}", 12, "leave holes");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[2]", 0, 8) "}", 9, "1 bytes after the last tensor");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[2]", 0, 8) "}", 7, "the file is cut short");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[2]", 0, 8) "}", 0, "ends at byte 8 of 0");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[3]", 0, 8) "}", 8, "its shape needs 12");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[2]", 8, 0) "}", 8, "data_offsets");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[2]", -8, 0) "}", 8, "data_offsets");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[2]", 0.0, 8.0) "}", 8, "data_offsets");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[4611686018427387904,4]", 0, 0) "}", 0, "overflows");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[9223372036854775807,9223372036854775807]", 0, 4) "}", 4, "overflows");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[9223372036854775808]", 0, 4) "}", 4, "too big integer");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[-2]", 0, 8) "}", 8, "shape that is not");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,2]", 0, 8) "}", 8, "at most 8 dimensions");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "2", 0, 8) "}", 8, "shape");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F33", "[2]", 0, 8) "}", 8, "dtype \"F33\"");
    check_header(GB_EUNSUPPORTED, "{" ENTRY("a", "I64", "[1]", 0, 8) "}", 8, "dtype I64; supported are BF16, F16 and F32");
    check_header(GB_EUNSUPPORTED, "{" ENTRY("a", "F8_E4M3", "[8]", 0, 8) "}", 8, "dtype F8_E4M3");
    check_header(GB_EFORMAT, "{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("a", "F32", "[2]", 8, 16) "}", 16, "duplicate object key");
    check_header(GB_EFORMAT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "data_offsets");
    check_header(GB_EFORMAT, "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no dtype");
    check_header(GB_EFORMAT, "{\"a\":[]}", 0, "is not described by an object");
    check_header(GB_EFORMAT, "[1]", 0, "must be a JSON object");
    check_header(GB_EFORMAT, "{\"a\":", 0, "not valid JSON");
    check_header(GB_EFORMAT, "{\"\xff\":1}", 0, "not valid JSON");
}

static void a_header_length_beyond_the_file_or_the_cap_is_refused(void)
{
    static const struct {
        uint64_t announced;
        const char *part;
    } CASES[] = {{0, "between 2 and 100000000"}, {1, "between 2"}, {3, "cut short"}, {100000000, "cut short"}, {100000001, "between 2"},
                 {UINT64_MAX, "between 2"}, {UINT64_MAX - 7, "between 2"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        gb_weights *w;
        gb_error err = {0};
        size_t bytes;
        unsigned char *file = image("{}", CASES[i].announced, 0, &bytes);
        CHECK_EQ(gb_weights_new(&w), GB_OK);
        CHECK_EQ(gb_weights_add_file(w, file, bytes, "m", &err), GB_EFORMAT);
        CHECK_CONTAINS(err.text, CASES[i].part);
        for (size_t cut = 0; cut < 8; cut++) {
            CHECK_EQ(gb_weights_add_file(w, file, cut, "m", &err), GB_EFORMAT);
            CHECK_CONTAINS(err.text, "too short for a safetensors header");
        }
        gb_weights_free(w);
        free(file);
    }
}

static void a_header_nested_a_thousand_deep_is_refused(void)
{
    static char header[8192] = "{\"a\":";
    memset(header + 5, '[', 1000);
    memset(header + 1005, ']', 1000);
    header[2005] = '}';
    check_header(GB_EFORMAT, header, 0, "nested more than 32 deep");
}

static void every_cut_of_a_file_is_refused(void)
{
    static const char HEADER[] = "{" ENTRY("a", "BF16", "[3]", 0, 6) "," ENTRY("b", "F32", "[2]", 6, 14) "}";
    size_t bytes;
    unsigned char *file = image(HEADER, strlen(HEADER), 14, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        gb_weights *w;
        gb_error err = {0};
        unsigned char *part = malloc(cut + 1);    /* its own piece, so that a read past the cut is seen */
        memcpy(part, file, cut);
        CHECK_EQ(gb_weights_new(&w), GB_OK);
        CHECK_EQ(gb_weights_add_file(w, part, cut, "m", &err), GB_EFORMAT);
        CHECK(err.text[0] != '\0');
        gb_weights_free(w);
        free(part);
    }
    free(file);
}

static void rotary_tables_of_old_checkpoints_are_skipped(void)
{
    gb_weights *w;
    gb_error err = {0};
    CHECK_EQ(gb_weights_new(&w), GB_OK);
    CHECK_EQ(add_image(w, "{" ENTRY("model.layers.0.self_attn.rotary_emb.inv_freq", "F64", "[1]", 0, 8) "}", 8, &err), GB_OK);
    CHECK_EQ(gb_weights_count(w), 0);
    gb_weights_free(w);
}

/* ---- inventories ---- */

static gb_model_config small_config(void)
{
    return (gb_model_config){.vocab = 7, .hidden = 4, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 2, .experts = 2,
                             .experts_per_token = 1, .expert_intermediate = 3, .moe_layers = 1, .layer_is_moe = {true}};
}

static void add_shape(gb_weights *w, const char *name, uint64_t rows, uint64_t columns)
{
    gb_tensor t = {.name = name, .dtype = GB_F32, .n_dims = columns ? 2 : 1, .dims = {rows, columns}};
    CHECK_EQ(gb_weights_add(w, &t), GB_OK);
}

static gb_weights *small_weights(const char *without)
{
    static const struct {
        const char *name;
        uint64_t rows, columns;
    } TENSORS[] = {
        {"model.embed_tokens.weight", 7, 4}, {"model.norm.weight", 4, 0}, {"lm_head.weight", 7, 4},
        {"model.layers.0.input_layernorm.weight", 4, 0}, {"model.layers.0.post_attention_layernorm.weight", 4, 0},
        {"model.layers.0.self_attn.q_norm.weight", 2, 0}, {"model.layers.0.self_attn.k_norm.weight", 2, 0},
        {"model.layers.0.self_attn.q_proj.weight", 4, 4}, {"model.layers.0.self_attn.k_proj.weight", 2, 4},
        {"model.layers.0.self_attn.v_proj.weight", 2, 4}, {"model.layers.0.self_attn.o_proj.weight", 4, 4},
        {"model.layers.0.mlp.gate.weight", 2, 4},
        {"model.layers.0.mlp.experts.0.gate_proj.weight", 3, 4}, {"model.layers.0.mlp.experts.0.up_proj.weight", 3, 4},
        {"model.layers.0.mlp.experts.0.down_proj.weight", 4, 3}, {"model.layers.0.mlp.experts.1.gate_proj.weight", 3, 4},
        {"model.layers.0.mlp.experts.1.up_proj.weight", 3, 4}, {"model.layers.0.mlp.experts.1.down_proj.weight", 4, 3},
    };
    gb_weights *w;
    CHECK_EQ(gb_weights_new(&w), GB_OK);
    for (size_t i = 0; i < sizeof TENSORS / sizeof *TENSORS; i++)
        if (strcmp(TENSORS[i].name, without) != 0) add_shape(w, TENSORS[i].name, TENSORS[i].rows, TENSORS[i].columns);
    return w;
}

static void missing_unexpected_and_misshapen_tensors_are_listed_by_name(void)
{
    gb_model_config c = small_config();
    gb_error err = {0};
    gb_weights *w = small_weights("");
    CHECK_EQ(gb_weights_check(w, &c, &err), GB_OK);
    gb_weights_free(w);

    w = small_weights("model.norm.weight");
    add_shape(w, "model.layers.1.mlp.gate.weight", 2, 4);
    c.expert_intermediate = 5;
    CHECK_EQ(gb_weights_check(w, &c, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "1 tensors missing, 1 unexpected, 6 misshapen");
    CHECK_CONTAINS(err.text, "Missing: model.norm.weight. Unexpected: model.layers.1.mlp.gate.weight. Misshapen: ");
    CHECK_CONTAINS(err.text, "model.layers.0.mlp.experts.0.gate_proj.weight is [3,4], not [5,4]");
    gb_weights_free(w);
}

static void a_long_list_ends_with_how_many_more(void)
{
    gb_model_config c = small_config();
    gb_error err = {0};
    gb_weights *w;
    c.experts = 100;
    CHECK_EQ(gb_weights_new(&w), GB_OK);
    for (int i = 0; i < 40; i++) {
        char name[64];
        snprintf(name, sizeof name, "odd.%d", i);
        add_shape(w, name, 1, 0);
    }
    CHECK_EQ(gb_weights_check(w, &c, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "312 tensors missing, 40 unexpected, 0 misshapen");
    CHECK_CONTAINS(err.text, " and 302 more. Unexpected: odd.0, odd.1, ");
    CHECK_CONTAINS(err.text, "odd.9 and 30 more");
    gb_weights_free(w);
}

static void a_tied_head_may_be_there_or_not(void)
{
    gb_model_config c = small_config();
    gb_error err = {0};
    gb_weights *with = small_weights(""), *without = small_weights("lm_head.weight");
    CHECK_EQ(gb_weights_check(without, &c, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "Missing: lm_head.weight");
    c.tied_embeddings = true;
    CHECK_EQ(gb_weights_check(with, &c, &err), GB_OK);
    CHECK_EQ(gb_weights_check(without, &c, &err), GB_OK);
    gb_weights_free(with);
    gb_weights_free(without);
}

static void a_name_is_added_once(void)
{
    gb_weights *w = small_weights("");
    gb_tensor t = {.name = "lm_head.weight"};
    CHECK_EQ(gb_weights_add(w, &t), GB_EEXIST);
    gb_weights_free(w);
}

/* ---- directories ---- */

static void write_file(const char *dir, const char *name, const void *bytes, size_t n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static void write_shard(const char *dir, const char *name, const char *header, size_t data)
{
    size_t bytes;
    unsigned char *file = image(header, strlen(header), data, &bytes);
    write_file(dir, name, file, bytes);
    free(file);
}

static void check_open(const char *dir, int status, const char *part)
{
    gb_weights *w;
    gb_error err = {0};
    CHECK_EQ(gb_weights_open(&w, dir, &err), status);
    CHECK_CONTAINS(err.text, part);
    CHECK((w != NULL) == (status == GB_OK));
    gb_weights_free(w);
}

static void write_index(const char *dir, const char *text) { write_file(dir, "model.safetensors.index.json", text, strlen(text)); }

static void an_index_and_its_shards_must_agree(void)
{
    char dir[] = "/tmp/gimbal-weights-XXXXXX", command[128];
    CHECK(mkdtemp(dir) != NULL);
    check_open(dir, GB_ENOTFOUND, "has neither model.safetensors nor model.safetensors.index.json");
    write_shard(dir, "1.safetensors", "{" ENTRY("a", "F32", "[2]", 0, 8) "}", 8);
    write_shard(dir, "2.safetensors", "{" ENTRY("b", "F32", "[2]", 0, 8) "}", 8);
    write_shard(dir, "3.safetensors", "{" ENTRY("a", "F32", "[2]", 0, 8) "}", 8);
    write_index(dir, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}");
    check_open(dir, GB_OK, "");
    write_index(dir, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\"}}");
    check_open(dir, GB_EFORMAT, "tensor b is in 1.safetensors, but it is not");
    write_index(dir, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"4.safetensors\"}}");
    check_open(dir, GB_EFORMAT, "names the shard 4.safetensors, which is not in");
    write_index(dir, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"3.safetensors\"}}");
    check_open(dir, GB_EFORMAT, "tensor a is in another shard, too");
    write_index(dir, "{\"weight_map\":{\"a\":\"../1.safetensors\"}}");
    check_open(dir, GB_EFORMAT, "must be a name beside the index");
    write_index(dir, "{\"weight_map\":{\"a\":7}}");
    check_open(dir, GB_EFORMAT, "must be a name beside the index");
    write_index(dir, "{\"metadata\":{}}");
    check_open(dir, GB_EFORMAT, "has no weight_map");
    write_index(dir, "{");
    check_open(dir, GB_EFORMAT, "not valid JSON");
    write_file(dir, "model.safetensors", "", 0);
    check_open(dir, GB_EFORMAT, "is empty");
    snprintf(command, sizeof command, "%s/model.safetensors", dir);
    CHECK(unlink(command) == 0 && mkdir(command, 0700) == 0);
    check_open(dir, GB_EIO, "is not a regular file");
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK_EQ(system(command), 0);
    check_open("/nonexistent/model", GB_ENOTFOUND, "model directory /nonexistent/model");
}

static void released_pages_come_back_from_the_file(void)
{
    gb_weights *w;
    gb_error err = {0};
    float before[16], after[16];
    CHECK_EQ(gb_weights_open(&w, check_path("tests/golden/plain"), &err), GB_OK);
    const gb_tensor *t = gb_weights_find(w, "model.norm.weight");
    gb_tensor_read_f32(t, before, 0, 16);
    gb_weights_release(w);
    gb_tensor_read_f32(t, after, 0, 16);
    CHECK(!memcmp(before, after, sizeof before));
    gb_weights_free(w);
}

/* ---- numbers ---- */

static float from_bits(uint32_t u)
{
    union { uint32_t u; float f; } v = {.u = u};
    return v.f;
}

static uint32_t bits(float f)
{
    union { float f; uint32_t u; } v = {.f = f};
    return v.u;
}

static void halves_become_floats_exactly(void)
{
    for (uint32_t x = 0; x < 0x10000; x++) {
        uint32_t exponent = x >> 10 & 31, mantissa = x & 0x3ff;
        double magnitude = exponent ? ldexp(1024 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24);
        float got = gb_f16_to_f32((uint16_t)x);
        if (exponent == 31) CHECK(mantissa ? isnan(got) : isinf(got));
        else CHECK(fabsf(got) == magnitude);
        CHECK_EQ(signbit(got) != 0, x >> 15);
    }
}

static void bfloat16_rounds_to_nearest_even_and_keeps_nan(void)
{
    for (uint32_t x = 0; x < 0x10000; x++) {
        float f = gb_bf16_to_f32((uint16_t)x);
        if (isnan(f)) CHECK(isnan(gb_bf16_to_f32(gb_f32_to_bf16(f))));
        else CHECK_EQ(gb_f32_to_bf16(f), x);
    }
    CHECK_EQ(gb_f32_to_bf16(from_bits(0x3f808000)), 0x3f80);    /* a tie goes to the even neighbour below */
    CHECK_EQ(gb_f32_to_bf16(from_bits(0x3f818000)), 0x3f82);    /* and above */
    CHECK_EQ(gb_f32_to_bf16(from_bits(0x3f808001)), 0x3f81);
    CHECK_EQ(gb_f32_to_bf16(from_bits(0x3f817fff)), 0x3f81);
    CHECK_EQ(gb_f32_to_bf16(from_bits(0x00008000)), 0x0000);    /* denormals round like the rest */
    CHECK_EQ(gb_f32_to_bf16(from_bits(0x00018000)), 0x0002);
    CHECK_EQ(gb_f32_to_bf16(from_bits(0x7f7fffff)), 0x7f80);    /* beyond the largest: infinity */
    CHECK_EQ(gb_f32_to_bf16(from_bits(0xff800000)), 0xff80);
    CHECK(isnan(gb_bf16_to_f32(gb_f32_to_bf16(from_bits(0x7f800001)))));
    CHECK_EQ(bits(gb_bf16_to_f32(0x8000)), 0x80000000u);
}

TESTS(TEST(every_golden_checkpoint_matches_its_config), TEST(tensors_are_views_with_shape_and_values),
      TEST(headers_that_break_a_rule_are_refused), TEST(a_header_length_beyond_the_file_or_the_cap_is_refused),
      TEST(a_header_nested_a_thousand_deep_is_refused), TEST(every_cut_of_a_file_is_refused),
      TEST(rotary_tables_of_old_checkpoints_are_skipped), TEST(missing_unexpected_and_misshapen_tensors_are_listed_by_name),
      TEST(a_long_list_ends_with_how_many_more), TEST(a_tied_head_may_be_there_or_not), TEST(a_name_is_added_once),
      TEST(an_index_and_its_shards_must_agree), TEST(released_pages_come_back_from_the_file), TEST(halves_become_floats_exactly),
      TEST(bfloat16_rounds_to_nearest_even_and_keeps_nan))
