#include "core/model/tokenizer.h"

#include <jansson.h>
#include <stdlib.h>

#include "tests/check.h"

/* ---- the bundled tokenizer ---- */

static gb_tokenizer *bundled(void)
{
    gb_tokenizer *t;
    gb_error err = {0};
    CHECK_EQ(gb_tokenizer_load(&t, check_path("examples/models/tiny-moe"), 4096, &err), GB_OK);
    CHECK_STR(err.text, "");
    return t;
}

static void check_encoded(const gb_tokenizer *t, const char *text, size_t bytes, const json_t *wanted)
{
    static int32_t ids[4096];
    gb_error err = {0};
    size_t n, i;
    const json_t *id;
    CHECK_EQ(gb_tokenizer_encode(t, text, bytes, ids, 4096, &n, &err), GB_OK);
    CHECK_EQ(n, json_array_size(wanted));
    json_array_foreach(wanted, i, id) CHECK_EQ(ids[i], json_integer_value(id));
}

static void check_decoded(const gb_tokenizer *t, const json_t *list, const json_t *wanted)
{
    static int32_t ids[4096];
    static char text[16384];
    gb_error err = {0};
    size_t bytes, i;
    const json_t *id;
    json_array_foreach(list, i, id) ids[i] = (int32_t)json_integer_value(id);
    CHECK_EQ(gb_tokenizer_decode(t, ids, json_array_size(list), text, sizeof text, &bytes, &err), GB_OK);
    CHECK(bytes == json_string_length(wanted) && !memcmp(text, json_string_value(wanted), bytes));
}

static void every_golden_vector_is_met(void)
{
    gb_tokenizer *t = bundled();
    FILE *f = fopen(check_path("tests/golden/tokenizer.jsonl"), "r");
    char *line = NULL;
    size_t capacity = 0, lines = 0;
    CHECK(f != NULL);
    while (f && getline(&line, &capacity, f) > 0) {
        json_t *vector = json_loads(line, JSON_ALLOW_NUL, NULL), *text = json_object_get(vector, "text");
        CHECK(vector != NULL);
        if (text) check_encoded(t, json_string_value(text), json_string_length(text), json_object_get(vector, "ids"));
        check_decoded(t, json_object_get(vector, "ids"), json_object_get(vector, "decoded"));
        if (check_failures) printf("    at line %zu\n", lines + 1);
        json_decref(vector);
        lines++;
        if (check_failures) break;
    }
    CHECK_EQ(lines, 1262);
    if (f) fclose(f);
    free(line);
    gb_tokenizer_free(t);
}

static void tokens_are_found_by_content_and_by_id(void)
{
    gb_tokenizer *t = bundled();
    size_t n;
    CHECK_EQ(gb_tokenizer_size(t), 4096);
    CHECK_EQ(gb_tokenizer_find(t, "<|im_end|>"), 4095);
    CHECK_EQ(gb_tokenizer_find(t, "the"), -1);
    CHECK(gb_tokenizer_is_special(t, 4093) && gb_tokenizer_is_special(t, 4095) && !gb_tokenizer_is_special(t, 64));
    CHECK(!memcmp(gb_tokenizer_bytes(t, 4095, &n), "<|im_end|>", 10) && n == 10);
    CHECK(!memcmp(gb_tokenizer_bytes(t, 220, &n), " ", 1) && n == 1);
    CHECK(gb_tokenizer_bytes(t, 4096, &n) == NULL && n == 0);
    CHECK(gb_tokenizer_bytes(t, -1, &n) == NULL && !gb_tokenizer_is_special(t, -1));
    gb_tokenizer_free(t);
}

static void tokens_are_counted_when_they_do_not_fit(void)
{
    gb_tokenizer *t = bundled();
    int32_t ids[4] = {-7, -7, -7, -7};
    size_t n;
    gb_error err = {0};
    CHECK_EQ(gb_tokenizer_encode(t, "1234567890", 10, ids, 3, &n, &err), GB_EFULL);
    CHECK_EQ(n, 10);
    CHECK_EQ(ids[2], 18);
    CHECK_EQ(ids[3], -7);
    CHECK_CONTAINS(err.text, "10 tokens; there is room for 3");
    CHECK_EQ(gb_tokenizer_encode(t, "12", 2, NULL, 0, &n, &err), GB_EFULL);
    CHECK_EQ(n, 2);
    CHECK_EQ(gb_tokenizer_encode(t, "", 0, NULL, 0, &n, &err), GB_OK);
    CHECK_EQ(n, 0);
    gb_tokenizer_free(t);
}

static void bad_text_and_bad_ids_are_refused(void)
{
    gb_tokenizer *t = bundled();
    int32_t ids[64];
    char text[8];
    size_t n;
    gb_error err = {0};
    CHECK_EQ(gb_tokenizer_encode(t, "ab\xff", 3, ids, 64, &n, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "not valid UTF-8 at byte 2");
    CHECK_EQ(gb_tokenizer_encode(t, "\xed\xa0\x80", 3, ids, 64, &n, &err), GB_EFORMAT);
    CHECK_EQ(gb_tokenizer_encode(t, "x", GB_TOKENIZER_TEXT_MAX + (size_t)1, ids, 64, &n, &err), GB_ETOOBIG);
    CHECK_CONTAINS(err.text, "at most 33554432");
    static const int32_t OUTSIDE[] = {64, 4096}, BELOW[] = {-1}, LONG[] = {64, 64, 64, 64, 64, 64, 64, 64, 64};
    CHECK_EQ(gb_tokenizer_decode(t, OUTSIDE, 2, text, 8, &n, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "token 1 is 4096; ids go from 0 to 4095");
    CHECK_EQ(gb_tokenizer_decode(t, BELOW, 1, text, 8, &n, &err), GB_EINVAL);
    CHECK_EQ(gb_tokenizer_decode(t, LONG, 9, text, 8, &n, &err), GB_EFULL);
    CHECK_EQ(n, 9);
    gb_tokenizer_free(t);
}

/* Time that grows with the square of a word would not end here. */
static void a_word_of_a_million_bytes_is_encoded(void)
{
    enum { N = 1 << 20 };
    static const char *const RUNS[] = {"a", "ab", "aaab", "\u4e2d"};
    gb_tokenizer *t = bundled();
    char *text = malloc(N), *back = malloc(N);
    int32_t *ids = malloc(N * sizeof *ids);
    for (size_t r = 0; r < sizeof RUNS / sizeof *RUNS; r++) {
        size_t part = strlen(RUNS[r]), bytes = N / part * part, n, m;
        gb_error err = {0};
        for (size_t i = 0; i < bytes; i += part) memcpy(text + i, RUNS[r], part);
        CHECK_EQ(gb_tokenizer_encode(t, text, bytes, ids, N, &n, &err), GB_OK);
        CHECK_EQ(gb_tokenizer_decode(t, ids, n, back, N, &m, &err), GB_OK);
        CHECK(m == bytes && !memcmp(text, back, bytes));
    }
    free(text);
    free(back);
    free(ids);
    gb_tokenizer_free(t);
}

/* ---- small tokenizers, built from the byte alphabet ---- */

/* The 256 tokens of the byte alphabet with ids from 0, as members of a JSON object. */
static const char *byte_vocab(void)
{
    static char text[8192];
    size_t at = 0;
    int32_t next = 256;
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\"\\u%04x\":%d", b ? "," : "", (unsigned)(printable ? b : next), b);
        next += !printable;
    }
    return text;
}

typedef struct shape {
    const char *vocab, *merges, *model, *added, *normalizer, *pre, *post, *decoder, *more;
} shape;

/* Parses a tokenizer with the parts that are given; the others are the plainest. */
static int parse(gb_tokenizer **t, shape s, gb_error *err)
{
    static char text[65536];
    snprintf(text, sizeof text,
             "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",%s\"vocab\":{%s%s},\"merges\":[%s]},\"added_tokens\":[%s],\"normalizer\":%s,"
             "\"pre_tokenizer\":%s,\"post_processor\":%s,\"decoder\":%s%s}",
             s.model ? s.model : "", byte_vocab(), s.vocab ? s.vocab : "", s.merges ? s.merges : "", s.added ? s.added : "",
             s.normalizer ? s.normalizer : "null",
             s.pre ? s.pre : "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}",
             s.post ? s.post : "null", s.decoder ? s.decoder : "{\"type\":\"ByteLevel\"}", s.more ? s.more : "");
    return gb_tokenizer_parse(t, text, strlen(text), "tokenizer.json", 300, err);
}

static gb_tokenizer *made(shape s)
{
    gb_tokenizer *t;
    gb_error err = {0};
    CHECK_EQ(parse(&t, s, &err), GB_OK);
    CHECK_STR(err.text, "");
    return t;
}

static void check_refused(int status, shape s, const char *part)
{
    gb_tokenizer *t;
    gb_error err = {0};
    CHECK_EQ(parse(&t, s, &err), status);
    CHECK_CONTAINS(err.text, part);
    CHECK_CONTAINS(err.text, "tokenizer.json");
    CHECK(t == NULL);
    gb_tokenizer_free(t);
}

/* The ids of text as "1 2 3". */
static void check_ids(gb_tokenizer *t, const char *text, const char *wanted)
{
    int32_t ids[64];
    char out[512] = "";
    size_t n = 0;
    gb_error err = {0};
    CHECK_EQ(gb_tokenizer_encode(t, text, strlen(text), ids, 64, &n, &err), GB_OK);
    for (size_t i = 0; i < n; i++) snprintf(out + strlen(out), sizeof out - strlen(out), "%s%d", i ? " " : "", ids[i]);
    CHECK_STR(out, wanted);
}

#define ABC ",\"ab\":256,\"bc\":257,\"abc\":258,\"cab\":259"

static void merges_go_by_rank_then_from_the_left(void)
{
    gb_tokenizer *t = made((shape){.vocab = ABC, .merges = "\"b c\",\"a b\",\"a bc\",\"c ab\""});
    check_ids(t, "abc", "258");
    check_ids(t, "ab", "256");
    check_ids(t, "cab", "259");
    check_ids(t, "cabc", "99 258");
    check_ids(t, "abcab", "258 256");
    gb_tokenizer_free(t);
    t = made((shape){.vocab = ",\"aa\":256", .merges = "\"a a\""});
    check_ids(t, "aaa", "256 97");
    check_ids(t, "aaaa", "256 256");
    gb_tokenizer_free(t);
}

static void merges_are_read_as_lines_and_as_pairs(void)
{
    gb_tokenizer *lines = made((shape){.vocab = ABC, .merges = "\"#version: 0.2\",\"a b\",\"b c\""});
    gb_tokenizer *pairs = made((shape){.vocab = ABC, .merges = "[\"a\",\"b\"],[\"b\",\"c\"]"});
    check_ids(lines, "abc", "256 99");
    check_ids(pairs, "abc", "256 99");
    gb_tokenizer_free(lines);
    gb_tokenizer_free(pairs);
}

static void a_word_that_is_a_token_needs_no_merge_when_merges_are_ignored(void)
{
    gb_tokenizer *t = made((shape){.vocab = ABC, .model = "\"ignore_merges\":true,", .merges = "\"a b\""});
    check_ids(t, "abc", "258");
    check_ids(t, "cab", "259");
    check_ids(t, "cabc", "99 256 99");
    gb_tokenizer_free(t);
}

#define ADDED(id, content, more) "{\"id\":" #id ",\"content\":\"" content "\",\"single_word\":false" more "}"

static void added_tokens_take_the_space_beside_them_when_they_say_so(void)
{
    gb_tokenizer *t = made((shape){.added = ADDED(256, "<l>", ",\"lstrip\":true") "," ADDED(257, "<r>", ",\"rstrip\":true") "," ADDED(258, "<s>", "")});
    check_ids(t, "a \\u2003<l> b", "97 32 92 117 50 48 48 51 256 32 98");
    check_ids(t, "a \u2003\n<l> b", "97 256 32 98");
    check_ids(t, "a <r> \t\u00a0b", "97 32 257 98");
    check_ids(t, "<r>  <l>", "257 256");
    check_ids(t, " <s> ", "32 258 32");
    gb_tokenizer_free(t);
}

static void the_longest_added_token_wins(void)
{
    gb_tokenizer *t = made((shape){.added = ADDED(256, "<a", "") "," ADDED(257, "<ab>", "") "," ADDED(258, "b>", "")});
    check_ids(t, "<ab><ab <b>", "257 256 98 32 60 258");
    gb_tokenizer_free(t);
}

static void normalized_added_tokens_are_matched_after_nfc(void)
{
    gb_tokenizer *t = made((shape){.normalizer = "{\"type\":\"NFC\"}",
                                   .added = ADDED(256, "e\u0301!", ",\"normalized\":true") "," ADDED(257, "e\u0301?", ",\"normalized\":false")});
    size_t n;
    check_ids(t, "e\u0301!", "256");
    check_ids(t, "\u00e9!", "256");
    check_ids(t, "e\u0301?", "257");
    check_ids(t, "\u00e9?", "195 169 63");
    CHECK_EQ(gb_tokenizer_find(t, "e\u0301!"), 256);
    gb_tokenizer_bytes(t, 256, &n);
    CHECK_EQ(n, 2);    /* the composed letter is one of the byte alphabet, and read as that byte: so does the reference */
    gb_tokenizer_free(t);
}

static void ids_without_a_token_are_left_out_of_a_text(void)
{
    gb_tokenizer *t = made((shape){.added = ADDED(290, "<x>", "")});
    static const int32_t IDS[] = {97, 270, 290, 299, 98};
    char text[16];
    size_t n;
    gb_error err = {0};
    CHECK_EQ(gb_tokenizer_size(t), 291);
    CHECK_EQ(gb_tokenizer_decode(t, IDS, 5, text, sizeof text, &n, &err), GB_OK);
    CHECK(n == 5 && !memcmp(text, "a<x>b", 5));
    gb_tokenizer_free(t);
}

static void bad_ids_are_refused(void)
{
    check_refused(GB_EFORMAT, (shape){.vocab = ",\"zz\":300"}, "token \"zz\" has the id 300; the model's ids go from 0 to 299");
    check_refused(GB_EFORMAT, (shape){.vocab = ",\"zz\":-1"}, "token \"zz\" has the id -1");
    check_refused(GB_EFORMAT, (shape){.vocab = ",\"zz\":9223372036854775807"}, "token \"zz\" has the id 9223372036854775807");
    check_refused(GB_EFORMAT, (shape){.vocab = ",\"zz\":9223372036854775808"}, "too big integer");
    check_refused(GB_EFORMAT, (shape){.vocab = ",\"zz\":256.0"}, "the id of token \"zz\" is not a whole number");
    check_refused(GB_EFORMAT, (shape){.vocab = ",\"zz\":\"256\""}, "the id of token \"zz\" is not a whole number");
    check_refused(GB_EFORMAT, (shape){.vocab = ",\"zz\":97"}, "two tokens have the id 97");
    check_refused(GB_EFORMAT, (shape){.vocab = ",\"a\":256"}, "duplicate object key");
    check_refused(GB_EFORMAT, (shape){.added = ADDED(300, "<x>", "")}, "token \"<x>\" has the id 300");
    check_refused(GB_EFORMAT, (shape){.added = ADDED(-5, "<x>", "")}, "token \"<x>\" has the id -5");
    check_refused(GB_EFORMAT, (shape){.added = ADDED(97, "<x>", "")}, "the added token \"<x>\" has the id 97 of another token");
    check_refused(GB_EFORMAT, (shape){.added = ADDED(256, "a", "")}, "the added token \"a\" has the id 256, but 97 in the vocabulary");
    check_refused(GB_EFORMAT, (shape){.added = ADDED(256, "<x>", "") "," ADDED(256, "<y>", "")}, "the id 256 of another token");
    check_refused(GB_EFORMAT, (shape){.added = ADDED(256, "<x>", "") "," ADDED(257, "<x>", "")}, "added token 257 is another's, too");
}

static void bad_merges_are_refused(void)
{
    check_refused(GB_EFORMAT, (shape){.merges = "\"a zz\""}, "merge 0 names the token \"zz\", which the vocabulary does not have");
    check_refused(GB_EFORMAT, (shape){.merges = "\"zz a\""}, "merge 0 names the token \"zz\"");
    check_refused(GB_EFORMAT, (shape){.vocab = ABC, .merges = "\"a b\",\"b a\""}, "merge 1 names the token \"ba\"");
    check_refused(GB_EFORMAT, (shape){.merges = "\"ab\""}, "merge 0 is not a pair");
    check_refused(GB_EFORMAT, (shape){.merges = "\"a b c\""}, "merge 0 is not a pair");
    check_refused(GB_EFORMAT, (shape){.merges = "[\"a\"]"}, "merge 0 is not a pair");
    check_refused(GB_EFORMAT, (shape){.merges = "[\"a\",\"b\",\"c\"]"}, "merge 0 is not a pair");
    check_refused(GB_EFORMAT, (shape){.merges = "[1,2]"}, "merge 0 is not a pair");
    check_refused(GB_EFORMAT, (shape){.merges = "7"}, "merge 0 is not a pair");
    check_refused(GB_EFORMAT, (shape){.merges = "\"\""}, "merge 0 is not a pair");
}

static void unknown_steps_are_refused_by_name(void)
{
    check_refused(GB_EUNSUPPORTED, (shape){.normalizer = "{\"type\":\"NFKC\"}"}, "normalizer \"NFKC\" is not supported");
    check_refused(GB_EUNSUPPORTED, (shape){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}"}, "\"Lowercase\"");
    check_refused(GB_EUNSUPPORTED, (shape){.pre = "{\"type\":\"Metaspace\"}"}, "pre_tokenizer \"Metaspace\" is not supported");
    check_refused(GB_EUNSUPPORTED, (shape){.pre = "null"}, "pre_tokenizer");
    check_refused(GB_EUNSUPPORTED, (shape){.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[]}"}, "no ByteLevel step");
    check_refused(GB_EUNSUPPORTED, (shape){.pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"}, "add_prefix_space is set");
    check_refused(GB_EUNSUPPORTED, (shape){.post = "{\"type\":\"TemplateProcessing\"}"}, "post_processor \"TemplateProcessing\" is not supported");
    check_refused(GB_EUNSUPPORTED, (shape){.post = "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"RobertaProcessing\"}]}"}, "RobertaProcessing");
    check_refused(GB_EUNSUPPORTED, (shape){.decoder = "{\"type\":\"WordPiece\"}"}, "decoder \"WordPiece\" is not supported");
    check_refused(GB_EUNSUPPORTED, (shape){.decoder = "null"}, "decoder");
    check_refused(GB_EUNSUPPORTED, (shape){.more = ",\"truncation\":{\"max_length\":5}"}, "truncation is set");
    check_refused(GB_EUNSUPPORTED, (shape){.more = ",\"padding\":{}"}, "padding is set");
    check_refused(GB_EUNSUPPORTED, (shape){.added = "{\"id\":256,\"content\":\"<x>\",\"single_word\":true}"}, "\"<x>\" sets single_word");
}

#define SPLIT(pattern, behavior, invert) \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{" pattern "},\"behavior\":\"" behavior "\",\"invert\":" invert "}," \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"

static void unknown_splits_are_refused_by_name(void)
{
    gb_tokenizer_free(made((shape){.pre = SPLIT("\"Regex\":\"a+\"", "Isolated", "false")}));
    check_refused(GB_EUNSUPPORTED, (shape){.pre = SPLIT("\"Regex\":\"a+\"", "Removed", "false")}, "behavior is \"Removed\"; only Isolated");
    check_refused(GB_EUNSUPPORTED, (shape){.pre = SPLIT("\"Regex\":\"a+\"", "Isolated", "true")}, "invert is set");
    check_refused(GB_EUNSUPPORTED, (shape){.pre = SPLIT("\"String\":\"a\"", "Isolated", "false")}, "pattern must be a Regex");
    check_refused(GB_EUNSUPPORTED, (shape){.pre = SPLIT("\"Regex\":\"\\\\w+\"", "Isolated", "false")}, "uses \"\\w\", which is not supported");
    check_refused(GB_EFORMAT, (shape){.pre = SPLIT("\"Regex\":\"(\"", "Isolated", "false")}, "is not a regex");
    check_refused(GB_EUNSUPPORTED, (shape){.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false},{\"type\":\"Split\"}]}"},
                  "behind ByteLevel");
}

static void unknown_models_are_refused_by_name(void)
{
    check_refused(GB_EFORMAT, (shape){.model = "\"type\":\"BPE\","}, "duplicate object key");
    check_refused(GB_EUNSUPPORTED, (shape){.model = "\"dropout\":0.1,"}, "dropout is set");
    check_refused(GB_EUNSUPPORTED, (shape){.model = "\"end_of_word_suffix\":\"</w>\","}, "end_of_word_suffix is set");
    check_refused(GB_EUNSUPPORTED, (shape){.model = "\"continuing_subword_prefix\":\"##\","}, "continuing_subword_prefix is set");
    check_refused(GB_EFORMAT, (shape){.model = "\"ignore_merges\":1,"}, "ignore_merges is a number");
    gb_tokenizer_free(made((shape){.model = "\"dropout\":0.0,\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":null,\"unk_token\":null,"}));
    static const struct {
        const char *text, *part;
        int status;
    } CASES[] = {
        {"{}", "model is missing", GB_EFORMAT},
        {"{\"version\":\"2.0\"}", "version is \"2.0\"", GB_EUNSUPPORTED},
        {"{\"model\":[]}", "model is a list", GB_EFORMAT},
        {"[]", "must be a JSON object", GB_EFORMAT},
        {"", "not valid JSON", GB_EFORMAT},
        {"{\"model\":{\"type\":\"Unigram\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"}}",
         "type is \"Unigram\"; only BPE", GB_EUNSUPPORTED},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"}}",
         "no token for the byte 0x00", GB_EUNSUPPORTED},
        {"{\"model\":{\"vocab\":{}},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"}}",
         "merges is missing", GB_EFORMAT},
        {"{\"model\":{\"vocab\":{\"\xff\":1}}}", "not valid JSON", GB_EFORMAT},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        gb_tokenizer *t;
        gb_error err = {0};
        CHECK_EQ(gb_tokenizer_parse(&t, CASES[i].text, strlen(CASES[i].text), "tokenizer.json", 300, &err), CASES[i].status);
        CHECK_CONTAINS(err.text, CASES[i].part);
        CHECK(t == NULL);
    }
}

static void every_cut_of_a_tokenizer_is_refused(void)
{
    FILE *f = fopen(check_path("examples/models/tiny-moe/tokenizer.json"), "r");
    char *text = malloc(1 << 20);
    size_t n = f ? fread(text, 1, 1 << 20, f) : 0;
    CHECK(n > 100000);
    for (size_t cut = 0; cut < n - 1; cut += cut < 2000 ? 7 : 997) {
        gb_tokenizer *t;
        gb_error err = {0};
        CHECK_EQ(gb_tokenizer_parse(&t, text, cut, "tokenizer.json", 4096, &err), GB_EFORMAT);
        CHECK(t == NULL && err.text[0]);
    }
    if (f) fclose(f);
    free(text);
}

static void a_tokenizer_with_more_ids_than_the_model_is_refused(void)
{
    gb_tokenizer *t;
    gb_error err = {0};
    CHECK_EQ(gb_tokenizer_load(&t, check_path("examples/models/tiny-moe"), 4095, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "examples/models/tiny-moe/tokenizer.json: token \"<|im_end|>\" has the id 4095; the model's ids go from 0 to 4094");
    CHECK_EQ(gb_tokenizer_load(&t, check_path("tests/golden/plain"), 320, &err), GB_ENOTFOUND);
    CHECK(t == NULL);
}

TESTS(TEST(every_golden_vector_is_met), TEST(tokens_are_found_by_content_and_by_id), TEST(tokens_are_counted_when_they_do_not_fit),
      TEST(bad_text_and_bad_ids_are_refused), TEST(a_word_of_a_million_bytes_is_encoded), TEST(merges_go_by_rank_then_from_the_left),
      TEST(merges_are_read_as_lines_and_as_pairs), TEST(a_word_that_is_a_token_needs_no_merge_when_merges_are_ignored),
      TEST(added_tokens_take_the_space_beside_them_when_they_say_so), TEST(the_longest_added_token_wins),
      TEST(normalized_added_tokens_are_matched_after_nfc), TEST(ids_without_a_token_are_left_out_of_a_text), TEST(bad_ids_are_refused),
      TEST(bad_merges_are_refused), TEST(unknown_steps_are_refused_by_name), TEST(unknown_splits_are_refused_by_name),
      TEST(unknown_models_are_refused_by_name), TEST(every_cut_of_a_tokenizer_is_refused),
      TEST(a_tokenizer_with_more_ids_than_the_model_is_refused))
