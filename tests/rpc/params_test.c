#include "bindings/rpc/params.h"

#include <stdlib.h>

#include "bindings/rpc/conn.h"
#include "tests/check.h"
#include "tests/rpc/fixture.h"

/* --- every method against every wrong value, from the method table --- */

/* JSON values of every type; which of them a field of some type takes. */
static const struct sample {
    const char *json;
    gb_rpc_type type;
    bool is_list;
} samples[] = {
    {"true", GB_RPC_BOOL, false}, {"1", GB_RPC_INT, false},         {"0.5", GB_RPC_FLOAT, false}, {"\"a\"", GB_RPC_STRING, false},
    {"{}", GB_RPC_MAP, false},    {"[true]", GB_RPC_BOOL, true},    {"[1]", GB_RPC_INT, true},    {"[0.5]", GB_RPC_FLOAT, true},
    {"[\"a\"]", GB_RPC_STRING, true}, {"[{}]", GB_RPC_MAP, true},   {"[[]]", GB_RPC_ANY, true},   {"[null]", GB_RPC_ANY, true},
};

static bool is_of_type(const gb_rpc_field *f, const struct sample *s)
{
    bool type_fits = f->type == s->type || (f->type == GB_RPC_FLOAT && s->type == GB_RPC_INT) ||
                     (f->type == GB_RPC_TEXT && s->type == GB_RPC_STRING);
    bool shape_fits = f->shape == GB_RPC_ONE_OR_LIST || (f->shape == GB_RPC_LIST) == s->is_list;
    return type_fits && shape_fits;
}

/* The map {outer: {inner: value}}, or {inner: value} without outer. */
static char *nest(const char *outer, const char *inner, const char *value)
{
    static char json[512];
    if (outer) snprintf(json, sizeof json, "{\"%s\": {\"%s\": %s}}", outer, inner, value);
    else snprintf(json, sizeof json, "{\"%s\": %s}", inner, value);
    return json;
}

/* Wrong types are refused with a path that begins with the parameter's; right types are not refused at that path. */
static uint32_t try_field(peer *p, const gb_rpc_method *m, const char *outer, const gb_rpc_field *f)
{
    char path[256];
    uint32_t tried = 0;
    snprintf(path, sizeof path, "%s%s%s", outer ? outer : "", outer ? "." : "", f->name);
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++, tried++) {
        peer_post(p, ++p->last_msgid, m->name, nest(outer, f->name, samples[i].json));
        json_t *response = peer_take_response(p, p->last_msgid);
        const json_t *error = json_array_get(response, 2), *said = json_object_get(json_object_get(error, "data"), "path");
        bool blamed = json_is_string(said) && strncmp(json_string_value(said), path, strlen(path)) == 0;
        bool wrong_type =
            blamed && strstr(json_text(error, "message"), " must be ") && !strstr(json_text(error, "message"), " is ");
        if (wrong_type == is_of_type(f, &samples[i]) && !(f->type == GB_RPC_MAP && samples[i].type == GB_RPC_MAP))
            check_fail(__FILE__, __LINE__, "%s %s = %s: %s", m->name, path, samples[i].json,
                       error ? json_string_value(json_object_get(error, "message")) : "");
        if (wrong_type) CHECK_EQ(json_int(error, "code"), GB_RPC_INVALID_PARAMS);
        json_decref(response);
    }
    return tried;
}

static uint32_t try_fields(peer *p, const gb_rpc_method *m, const char *outer, const gb_rpc_field *fields)
{
    uint32_t tried = 0;
    for (const gb_rpc_field *f = fields; f->name; f++) {
        tried += try_field(p, m, outer, f);
        if (f->fields && f->shape == GB_RPC_ONE && !outer) tried += try_fields(p, m, f->name, f->fields);
    }
    return tried;
}

static void every_parameter_of_every_method_refuses_every_wrong_type(void)
{
    uint32_t tried = 0;
    for (const gb_rpc_theme *t = gb_rpc_themes; t->title; t++)
        for (const gb_rpc_method *m = t->methods; m->name; m++) {
            fixture f;
            peer p;
            fixture_open(&f, NULL);
            peer_hello(&p, &f);
            tried += try_fields(&p, m, NULL, m->params);
            CHECK(!gb_rpc_wants_close(p.conn));
            peer_close(&p);
            fixture_close(&f);
        }
    CHECK(tried > 500);
}

static uint32_t try_range(peer *p, const gb_rpc_method *m, const char *outer, const gb_rpc_field *f)
{
    char value[64];
    uint32_t tried = 0;
    if ((f->type != GB_RPC_INT && f->type != GB_RPC_FLOAT) || f->shape != GB_RPC_ONE || (f->low == 0 && f->high == 0)) return 0;
    for (int side = 0; side < 2; side++) {
        if (side ? f->high == INT64_MAX : f->low == INT64_MIN) continue;
        snprintf(value, sizeof value, "%lld", (long long)(side ? f->high + 1 : f->low - 1));
        peer_post(p, ++p->last_msgid, m->name, nest(outer, f->name, value));
        json_t *response = peer_take_response(p, p->last_msgid);
        const json_t *error = json_array_get(response, 2);
        if (!json_is_object(error)) check_fail(__FILE__, __LINE__, "%s %s = %s was taken", m->name, f->name, value);
        else {
            CHECK_EQ(json_int(error, "code"), GB_RPC_INVALID_PARAMS);
            CHECK_CONTAINS(json_text(error, "message"), " must be ");
            CHECK_CONTAINS(json_text(error, "message"), f->name);
        }
        json_decref(response);
        tried++;
    }
    return tried;
}

static void every_number_of_every_method_refuses_what_is_outside_its_range(void)
{
    uint32_t tried = 0;
    for (const gb_rpc_theme *t = gb_rpc_themes; t->title; t++)
        for (const gb_rpc_method *m = t->methods; m->name; m++) {
            fixture f;
            peer p;
            fixture_open(&f, NULL);
            peer_hello(&p, &f);
            for (const gb_rpc_field *outer = m->params; outer->name; outer++) {
                tried += try_range(&p, m, NULL, outer);
                for (const gb_rpc_field *inner = outer->shape == GB_RPC_ONE ? outer->fields : NULL; inner && inner->name; inner++)
                    tried += try_range(&p, m, outer->name, inner);
            }
            peer_close(&p);
            fixture_close(&f);
        }
    CHECK(tried > 40);
}

/* --- generate --- */

static void one_fails(const char *method, const char *params, const char *path, const char *part)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_call_fails(&p, method, params, GB_RPC_INVALID_PARAMS, path, part);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\"}"));    /* the server lives */
    peer_close(&p);
    fixture_close(&f);
}

static void max_tokens_outside_its_range_is_refused_with_the_range(void)
{
    static const char *const bad[] = {"0", "-1", "-9223372036854775808", "2147483648", "9223372036854775807"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char params[128];
        snprintf(params, sizeof params, "{\"prompt\": \"x\", \"sampling\": {\"max_tokens\": %s}}", bad[i]);
        one_fails("generate", params, "sampling.max_tokens", "must be 1..2147483647");
    }
}

/* JSON has no unsigned 64-bit integers, so these bytes are written by hand. */
static void two_to_the_63_is_refused_and_not_taken_for_a_negative_number(void)
{
    fixture f;
    peer p;
    gb_pack call;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    gb_pack_init(&call, 1000);
    gb_pack_array(&call, 4);
    gb_pack_int(&call, 0);
    gb_pack_int(&call, 5);
    gb_pack_str(&call, "generate");
    gb_pack_array(&call, 1);
    gb_pack_map(&call, 2);
    gb_pack_str(&call, "prompt");
    gb_pack_str(&call, "x");
    gb_pack_str(&call, "sampling");
    gb_pack_map(&call, 1);
    gb_pack_str(&call, "max_tokens");
    gb_pack_uint(&call, UINT64_C(1) << 63);
    peer_send(&p, call.data, call.n);
    json_t *response = peer_take_response(&p, 5);
    CHECK_CONTAINS(json_text(json_array_get(response, 2), "message"),
                   "sampling.max_tokens is 9223372036854775808, but must be 1..2147483647");
    json_decref(response);
    gb_pack_deinit(&call);
    peer_close(&p);
    fixture_close(&f);
}

static void max_tokens_beyond_the_context_is_cut_to_it(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r =
        peer_call(&p, "generate", "{\"prompt\": \"x\", \"sampling\": {\"max_tokens\": 2147483647, \"ignore_eos\": true}}");
    CHECK_EQ(json_array_size(json_object_get(r, "tokens")), 255);
    CHECK_STR(json_text(r, "finish_reason"), "length");
    json_decref(r);
    r = peer_call(&p, "generate", "{\"prompt\": \"x\", \"sampling\": {\"max_tokens\": 1}}");
    CHECK_STR(json_text(r, "text"), "T");
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void a_prompt_is_exactly_one_of_three_and_not_empty(void)
{
    one_fails("generate", "{}", "prompt", "give one of prompt, tokens and messages, not none");
    one_fails("generate", "{\"prompt\": \"x\", \"tokens\": [1]}", "prompt", "not several");
    one_fails("generate", "{\"prompt\": \"\"}", "prompt", "prompt is empty");
    one_fails("generate", "{\"tokens\": []}", "tokens", "tokens is empty");
    one_fails("generate", "{\"messages\": []}", "messages", "messages is empty");
}

static void token_ids_out_of_range_are_named_with_their_index(void)
{
    one_fails("generate", "{\"tokens\": [1, 2, 257]}", "tokens[2]", "tokens[2] is 257, but token ids of this model are 0..256");
    one_fails("generate", "{\"tokens\": [1, -1]}", "tokens[1]", "tokens[1] is -1, but must be 0..2147483647");
    one_fails("generate", "{\"tokens\": [1, \"two\"]}", "tokens[1]", "tokens[1] must be an integer, not a string");
    one_fails("detokenize", "{\"tokens\": [65, 1000000]}", "tokens[1]", "tokens[1] is 1000000");
    one_fails("generate", "{\"prompt\": \"x\", \"sampling\": {\"stop_token_ids\": [300]}}", "sampling.stop_token_ids[0]", "300");
}

static void a_prompt_longer_than_the_context_is_refused_with_both_figures(void)
{
    fixture f;
    peer p;
    char params[1024] = "{\"prompt\": \"";
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    memset(params + strlen(params), 'x', 300);
    strcat(params, "\"}");
    peer_call_fails(&p, "generate", params, GB_RPC_CONTEXT_LENGTH, NULL, "the prompt has 300 tokens, but the context holds 256");
    peer_close(&p);
    fixture_close(&f);
}

static void text_of_too_many_tokens_is_refused_with_both_figures(void)
{
    uint32_t n = GB_RPC_VALUES_MAX + 1;
    fixture f;
    peer p;
    char *params = malloc(n + 32);
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    int head = sprintf(params, "{\"text\": \"");
    memset(params + head, ' ', n);
    strcpy(params + head + n, "\"}");
    peer_call_fails(&p, "tokenize", params, GB_RPC_TOO_LARGE, "text", "text has 1052673 tokens, but at most 1052672 are allowed");
    free(params);
    peer_close(&p);
    fixture_close(&f);
}

static void messages_are_checked_one_by_one(void)
{
    one_fails("generate", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, 5]}", "messages[1]", "must be a map");
    one_fails("generate", "{\"messages\": [{\"role\": \"user\"}]}", "messages[0].content", "messages[0].content is required");
    one_fails("generate", "{\"messages\": [{\"role\": \"user\", \"content\": [1]}]}", "messages[0].content", "must be a string");
    one_fails("generate", "{\"messages\": [{\"role\": \"user\", \"contents\": \"x\"}]}", "messages[0].contents",
              "did you mean content?");
}

static void sampling_values_are_refused_by_name_and_range(void)
{
    one_fails("generate", "{\"prompt\": \"x\", \"sampling\": {\"temperature\": -0.1}}", "sampling.temperature",
              "must be in [0, 100]");
    one_fails("generate", "{\"prompt\": \"x\", \"sampling\": {\"top_p\": 0}}", "sampling.top_p", "must be in (0, 1]");
    one_fails("generate", "{\"prompt\": \"x\", \"sampling\": {\"top_p\": 1.5}}", "sampling.top_p", "must be in (0, 1]");
    one_fails("generate", "{\"prompt\": \"x\", \"sampling\": {\"repetition_penalty\": 0.0}}", "sampling.repetition_penalty",
              "must be in (0, 10]");
    one_fails("generate", "{\"prompt\": \"x\", \"sampling\": {\"logprobs\": 21}}", "sampling.logprobs", "must be 0..20");
    one_fails("generate", "{\"prompt\": \"x\", \"sampling\": {\"min_tokens\": 5, \"max_tokens\": 4}}", "sampling",
              "min_tokens is 5, above max_tokens 4");
    one_fails("generate", "{\"prompt\": \"x\", \"sampling\": {\"stop\": \"\"}}", "sampling.stop", "must have 1..256");
    one_fails("generate", "{\"prompt\": \"x\", \"sampling\": {\"stop\": [\"a\", \"\"]}}", "sampling.stop[1]", "must have 1..256");
    one_fails("generate", "{\"prompt\": \"x\", \"n\": 2}", "n", "n is 2, but must be 1..1");
    one_fails("generate", "{\"prompt\": \"x\", \"n\": 1000000000}", "n", "must be 1..1");
}

static void too_many_stops_are_refused(void)
{
    one_fails("generate",
              "{\"prompt\": \"x\", \"sampling\": {\"stop\": "
              "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"0\",\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\"]}}",
              "sampling.stop", "has 17 entries, but at most 16");
    one_fails("generate", "{\"prompt\": \"x\", \"sampling\": {\"stop_token_ids\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}}",
              "sampling.stop_token_ids", "has 17 entries, but at most 16");
}

static void integers_are_accepted_for_floats_and_nil_is_absent(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(
        peer_call(&p, "generate",
                  "{\"prompt\": \"x\", \"sampling\": {\"temperature\": 0, \"top_p\": 1, \"max_tokens\": null, \"stop\": null}}"));
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"tokens\": null, \"sampling\": null, \"stream\": null}"));
    peer_close(&p);
    fixture_close(&f);
}

static void request_ids_are_short_text_without_control_characters(void)
{
    char params[512] = "{\"prompt\": \"x\", \"request_id\": \"";
    one_fails("generate", "{\"prompt\": \"x\", \"request_id\": \"\"}", "request_id", "must have 1..128");
    one_fails("generate", "{\"prompt\": \"x\", \"request_id\": \"a\\nb\"}", "request_id", "control character at byte 1");
    memset(params + strlen(params), 'i', 129);
    strcat(params, "\"}");
    one_fails("generate", params, "request_id", "has 129 bytes");
}

static void a_request_id_in_use_is_refused(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"request_id\": \"a\"}"));
    peer_call_fails(&p, "generate", "{\"prompt\": \"x\", \"request_id\": \"a\"}", GB_RPC_INVALID_PARAMS, "request_id", "in use");
    peer_close(&p);
    fixture_close(&f);
}

static void a_model_without_tokenizer_takes_ids_only_and_says_so(void)
{
    fixture f;
    peer p;
    fixture_open(&f, &(fixture_options){.no_tokenizer = true, .no_template = true});
    peer_hello(&p, &f);
    peer_call_fails(&p, "generate", "{\"prompt\": \"x\"}", GB_RPC_INVALID_PARAMS, "prompt", "no tokenizer.json");
    peer_call_fails(&p, "generate", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}", GB_RPC_INVALID_PARAMS,
                    "messages", "no chat template");
    peer_call_fails(&p, "tokenize", "{\"text\": \"x\"}", GB_RPC_INVALID_PARAMS, "text", "no tokenizer.json");
    peer_call_fails(&p, "detokenize", "{\"tokens\": [1]}", GB_RPC_INVALID_PARAMS, "tokens", "no tokenizer.json");
    json_t *r = peer_call(&p, "generate", "{\"tokens\": [1, 2]}");
    CHECK_STR(json_text(r, "text"), "");
    CHECK_EQ(json_array_size(json_object_get(r, "tokens")), 32);
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

/* --- names --- */

static void unknown_names_are_ignored_but_slips_are_refused(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(
        peer_call(&p, "generate", "{\"prompt\": \"x\", \"adapter\": \"none\", \"sampling\": {\"mirostat\": 2}, \"user\": {}}"));
    json_decref(peer_call(&p, "ping", "{\"whatever\": [1, 2]}"));
    peer_close(&p);
    fixture_close(&f);
    one_fails("generate", "{\"promt\": \"x\"}", "promt", "promt is unknown: did you mean prompt?");
    one_fails("generate", "{\"prompt\": \"x\", \"sampling\": {\"max_token\": 5}}", "sampling.max_token",
              "did you mean max_tokens?");
    one_fails("generate", "{\"prompt\": \"x\", \"sampling\": {\"maxTokens\": 5}}", "sampling.maxTokens",
              "did you mean max_tokens?");
}

static void a_name_in_the_wrong_map_is_refused(void)
{
    one_fails("generate", "{\"prompt\": \"x\", \"max_tokens\": 5}", "max_tokens", "max_tokens belongs into the map sampling");
}

static bool check_bytes(const char *bytes, size_t n, const gb_rpc_field *fields, gb_rpc_error *error)
{
    msgpack_unpacked unpacked;
    msgpack_unpacked_init(&unpacked);
    size_t at = 0;
    CHECK_EQ(msgpack_unpack_next(&unpacked, bytes, n, &at), MSGPACK_UNPACK_SUCCESS);
    *error = (gb_rpc_error){0};
    bool ok = gb_rpc_check(&unpacked.data, fields, error);
    msgpack_unpacked_destroy(&unpacked);
    return ok;
}

static const gb_rpc_field some_fields[] = {
    {.name = "ratio", .type = GB_RPC_FLOAT, .doc = ""}, {.name = "label", .type = GB_RPC_TEXT, .doc = ""}, {0},
};

static void what_json_cannot_say_is_checked_too(void)
{
    gb_rpc_error error;
    CHECK(!check_bytes("\x82\xa5ratio\x01\xa5ratio\x02", 15, some_fields, &error));
    CHECK_CONTAINS(error.sentence.text, "ratio is given twice");
    CHECK(!check_bytes("\x81\x05\x01", 3, some_fields, &error));
    CHECK_CONTAINS(error.sentence.text, "names of parameters are strings, not an integer");
    CHECK(!check_bytes("\x81\xa5ratio\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", 16, some_fields, &error));
    CHECK_CONTAINS(error.sentence.text, "must be finite");
    CHECK(!check_bytes("\x81\xa5ratio\xca\x7f\x80\x00\x00", 12, some_fields, &error));
    CHECK_CONTAINS(error.sentence.text, "must be finite");
    CHECK(!check_bytes("\x81\xa5label\xc4\x01x", 10, some_fields, &error));
    CHECK_CONTAINS(error.sentence.text, "label must be a string, not binary data");
    CHECK(!check_bytes("\x81\xa5label\xd4\x01x", 10, some_fields, &error));
    CHECK_CONTAINS(error.sentence.text, "not an extension value");
    CHECK(!check_bytes("\x81\xa5label\xa2\xc3\x28", 10, some_fields, &error));
    CHECK_CONTAINS(error.sentence.text, "not UTF-8 at byte 0");
    CHECK(check_bytes("\x81\xa5\xff\xfe\xfd\xfc\xfb\x01", 8, some_fields, &error));    /* an unknown name may be anything */
}

static void a_map_with_too_many_names_is_refused(void)
{
    char params[4096] = "{";
    for (int i = 0; i < GB_RPC_NAMES_MAX + 1; i++) snprintf(params + strlen(params), 64, "%s\"unknown %d\": 1", i ? ", " : "", i);
    strcat(params, "}");
    one_fails("tokenize", params, NULL, "has 65 entries, but at most 64");
}

TESTS(TEST(every_parameter_of_every_method_refuses_every_wrong_type),
      TEST(every_number_of_every_method_refuses_what_is_outside_its_range),
      TEST(max_tokens_outside_its_range_is_refused_with_the_range),
      TEST(two_to_the_63_is_refused_and_not_taken_for_a_negative_number), TEST(max_tokens_beyond_the_context_is_cut_to_it),
      TEST(a_prompt_is_exactly_one_of_three_and_not_empty), TEST(token_ids_out_of_range_are_named_with_their_index),
      TEST(a_prompt_longer_than_the_context_is_refused_with_both_figures),
      TEST(text_of_too_many_tokens_is_refused_with_both_figures), TEST(messages_are_checked_one_by_one),
      TEST(sampling_values_are_refused_by_name_and_range), TEST(too_many_stops_are_refused),
      TEST(integers_are_accepted_for_floats_and_nil_is_absent), TEST(request_ids_are_short_text_without_control_characters),
      TEST(a_request_id_in_use_is_refused), TEST(a_model_without_tokenizer_takes_ids_only_and_says_so),
      TEST(unknown_names_are_ignored_but_slips_are_refused), TEST(a_name_in_the_wrong_map_is_refused),
      TEST(what_json_cannot_say_is_checked_too), TEST(a_map_with_too_many_names_is_refused))
