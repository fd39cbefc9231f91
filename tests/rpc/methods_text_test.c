#include "bindings/rpc/prompt.h"
#include "tests/check.h"
#include "tests/rpc/fixture.h"

static void tokenize_and_detokenize_are_inverse(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "tokenize", "{\"text\": \"h\\u00e9!\"}");
    CHECK_EQ(json_int(r, "count"), 4);
    CHECK_EQ(json_integer_value(json_array_get(json_object_get(r, "tokens"), 1)), 0xc3);
    json_decref(r);
    r = peer_call(&p, "detokenize", "{\"tokens\": [104, 195, 169, 33]}");
    CHECK_STR(json_text(r, "text"), "h\xc3\xa9!");
    CHECK_EQ(json_int(r, "count"), 4);
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void empty_text_is_no_tokens_and_no_tokens_are_empty_text(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "tokenize", "{\"text\": \"\"}");
    CHECK_EQ(json_array_size(json_object_get(r, "tokens")), 0);
    json_decref(r);
    r = peer_call(&p, "detokenize", "{\"tokens\": []}");
    CHECK_STR(json_text(r, "text"), "");
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void special_tokens_are_parsed_and_kept(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "tokenize", "{\"text\": \"a<|end|>\"}");
    CHECK_EQ(json_int(r, "count"), 2);
    CHECK_EQ(json_integer_value(json_array_get(json_object_get(r, "tokens"), 1)), FIXTURE_END);
    json_decref(r);
    r = peer_call(&p, "detokenize", "{\"tokens\": [97, 256]}");
    CHECK_STR(json_text(r, "text"), "a<|end|>");
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void invalid_bytes_become_one_replacement_character_for_each_bad_part(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "detokenize", "{\"tokens\": [97, 240, 159, 152, 98, 255, 255]}");
    CHECK_STR(json_text(r, "text"), "a\xef\xbf\xbd" "b\xef\xbf\xbd\xef\xbf\xbd");
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void apply_template_gives_text_and_its_tokens(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *open = peer_call(&p, "apply_template", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}");
    json_t *shut = peer_call(&p, "apply_template",
                             "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"add_generation_prompt\": false}");
    CHECK_STR(json_text(open, "text"), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    CHECK_STR(json_text(shut, "text"), "<|im_start|>user\nhi<|im_end|>\n");
    CHECK_EQ(json_int(open, "count"), strlen(json_text(open, "text")));
    json_decref(open);
    json_decref(shut);
    peer_close(&p);
    fixture_close(&f);
}

static void messages_generate_through_the_template(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r =
        peer_call(&p, "generate", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"enable_thinking\": false}");
    CHECK_STR(json_text(r, "text"), f.script);
    CHECK_EQ(json_int(json_object_get(r, "usage"), "prompt_tokens"),
             strlen("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"));
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

TESTS(TEST(tokenize_and_detokenize_are_inverse), TEST(empty_text_is_no_tokens_and_no_tokens_are_empty_text),
      TEST(special_tokens_are_parsed_and_kept), TEST(invalid_bytes_become_one_replacement_character_for_each_bad_part),
      TEST(apply_template_gives_text_and_its_tokens), TEST(messages_generate_through_the_template))
