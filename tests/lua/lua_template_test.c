#include "bindings/lua/lua_template.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

static gb_error err;

static gb_lua_template *load(const char *name, const char *dir)
{
    gb_lua_template *t = NULL;
    err.text[0] = 0;
    CHECK_EQ(gb_lua_template_new(&t, name, dir, &err), 0);
    CHECK_STR(err.text, "");
    return t;
}

static gb_message message(const char *role, const char *content)
{
    return (gb_message){.role = role, .content = content, .role_bytes = strlen(role), .content_bytes = strlen(content)};
}

static void check_text(gb_lua_template *t, const gb_message *messages, size_t n, bool generate, bool think, const char *expected)
{
    char *text = NULL;
    size_t bytes = 0;
    CHECK_EQ(gb_lua_template_apply(t, &text, &bytes, messages, n, generate, think, &err), 0);
    CHECK_STR(text, expected);
    CHECK_EQ(bytes, strlen(expected));
    free(text);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fputs(text, f);
    fclose(f);
}

/* A directory with one file; the caller removes both. */
static void make_model(char dir[64], char path[128], const char *file, const char *text)
{
    strcpy(dir, "/tmp/gimbal-template-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, 128, "%s/%s", dir, file);
    write_file(path, text);
}

static void remove_model(const char *dir, const char *path)
{
    unlink(path);
    rmdir(dir);
}

static void auto_finds_chatml_for_the_bundled_model(void)
{
    gb_lua_template *t = load("auto", check_path("examples/models/tiny-moe"));
    CHECK_STR(gb_lua_template_name(t), "chatml");
    gb_message talk[] = {message("system", "Be brief."), message("user", "Hi")};
    check_text(t, talk, 2, true, true, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    check_text(t, talk, 1, false, true, "<|im_start|>system\nBe brief.<|im_end|>\n");
    check_text(t, talk, 0, true, true, "<|im_start|>assistant\n");
    gb_lua_template_free(t);
}

static void qwen3_thinks_unless_told_not_to(void)
{
    gb_lua_template *t = load("qwen3", "/nowhere");
    gb_message talk[] = {message("user", "q"), message("assistant", "<think>\nhm\n</think>\n\nyes"), message("user", "r")};
    check_text(t, talk, 3, true, true,
               "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n");
    check_text(t, talk, 1, true, false, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    check_text(t, talk, 2, false, true,
               "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nyes<|im_end|>\n");
    gb_lua_template_free(t);
}

static void a_role_that_a_template_does_not_know_is_one_sentence(void)
{
    gb_lua_template *t = load("chatml", "/nowhere");
    gb_message talk[] = {message("user", "q"), message("robot", "beep")};
    char *text = NULL;
    size_t bytes;
    CHECK_EQ(gb_lua_template_apply(t, &text, &bytes, talk, 2, true, true, &err), GB_EINVAL);
    CHECK_STR(err.text, "role \"robot\" is unknown to the chatml template; it takes system, user and assistant");
    CHECK(text == NULL);
    check_text(t, talk, 1, false, true, "<|im_start|>user\nq<|im_end|>\n");    /* and it lives on */
    gb_lua_template_free(t);
}

static void contents_keep_every_byte(void)
{
    gb_lua_template *t = load("chatml", "/nowhere");
    gb_message talk = {.role = "user", .role_bytes = 4, .content = "a\0b", .content_bytes = 3};
    char *text;
    size_t bytes;
    CHECK_EQ(gb_lua_template_apply(t, &text, &bytes, &talk, 1, false, true, &err), 0);
    CHECK_EQ(bytes, strlen("<|im_start|>user\n") + 3 + strlen("<|im_end|>\n"));
    CHECK(memcmp(text + strlen("<|im_start|>user\n"), "a\0b", 3) == 0);
    free(text);
    gb_lua_template_free(t);
}

static void long_conversations_do_not_add_up_in_memory(void)
{
    enum { BYTES = 4 << 20 };
    gb_lua_template *t = load("qwen3", "/nowhere");
    char *content = malloc(BYTES);
    memset(content, '\n', BYTES);
    gb_message talk[] = {message("user", "q"), {.role = "assistant", .role_bytes = 9, .content = content, .content_bytes = BYTES}};
    for (int i = 0; i < 20; i++) {    /* several copies each: far more than the state may hold */
        char *text = NULL;
        size_t bytes;
        CHECK_EQ(gb_lua_template_apply(t, &text, &bytes, talk, 2, true, true, &err), 0);
        free(text);
    }
    free(content);
    gb_lua_template_free(t);
}

static void auto_knows_what_a_models_own_template_asks_for(void)
{
    static const struct {
        const char *file, *text, *name;
    } models[] = {
        {"tokenizer_config.json", "{\"chat_template\": \"<|im_start|> <|im_end|> </think> <tool_response> enable_thinking is false\"}", "qwen3"},
        {"tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\", \"template\": \"<|im_start|>{{m.role}}<|im_end|>\"}]}", "chatml"},
        {"chat_template.jinja", "<|im_start|>{{m.role}}<|im_end|>", "chatml"},
        {"tokenizer_config.json", "{\"chat_template\": \"<|im_start|>system\\nYou are helpful<|im_end|>\"}", NULL},
        {"tokenizer_config.json", "{\"chat_template\": \"[INST] {{m.content}} [/INST]\"}", NULL},
        {"tokenizer_config.json", "{\"chat_template\": 5}", NULL},
        {"tokenizer_config.json", "{}", NULL},
        {"unrelated", "", NULL},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char dir[64], path[128];
        gb_lua_template *t = NULL;
        make_model(dir, path, models[i].file, models[i].text);
        CHECK_EQ(gb_lua_template_new(&t, "auto", dir, &err), models[i].name ? 0 : GB_ENOTFOUND);
        if (models[i].name) CHECK_STR(gb_lua_template_name(t), models[i].name);
        else CHECK_CONTAINS(err.text, "name one with --chat-template");
        gb_lua_template_free(t);
        remove_model(dir, path);
    }
}

static void templates_that_cannot_work_are_refused(void)
{
    static const struct {
        const char *text, *refusal;
        int status;
    } files[] = {
        {"return {", "unexpected symbol", GB_EINVAL},
        {"return 5", "returned a number; a template returns function(messages, options)", GB_EINVAL},
        {"return io.open('/etc/passwd')", "io is not defined here", GB_EINVAL},
        {"while true do end", "this file never ends", GB_EINVAL},
        {"local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end", "not enough memory", GB_ENOMEM},
    };
    gb_lua_template *t = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char dir[64], path[128];
        make_model(dir, path, "mine.lua", files[i].text);
        CHECK_EQ(gb_lua_template_new(&t, path, dir, &err), files[i].status);
        CHECK_CONTAINS(err.text, files[i].refusal);
        remove_model(dir, path);
    }
    CHECK_EQ(gb_lua_template_new(&t, "llama", "/nowhere", &err), GB_ENOTFOUND);
    CHECK_STR(err.text, "there is no chat template \"llama\"; use auto, chatml, qwen3 or a .lua file");
    CHECK_EQ(gb_lua_template_new(&t, "/nowhere/x.lua", "/nowhere", &err), GB_ENOTFOUND);
    CHECK_STR(err.text, "/nowhere/x.lua does not exist; check the path");
}

static void a_template_that_never_ends_or_returns_no_text_is_an_error(void)
{
    static const struct {
        const char *text, *refusal;
    } files[] = {
        {"return function() while true do end end", "this file never ends"},
        {"return function() return {} end", "returned a table; it must return the text"},
        {"return function(messages) return messages[9].role end", "attempt to index"},
        {"return function() error({}) end", "an error that is no text"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char dir[64], path[128], *text = NULL;
        size_t bytes;
        make_model(dir, path, "mine.lua", files[i].text);
        gb_lua_template *t = load(path, dir);
        gb_message talk = message("user", "q");
        CHECK_EQ(gb_lua_template_apply(t, &text, &bytes, &talk, 1, true, true, &err), GB_EINVAL);
        CHECK_CONTAINS(err.text, files[i].refusal);
        gb_lua_template_free(t);
        remove_model(dir, path);
    }
}

static void a_broken_tokenizer_config_is_named_with_its_line(void)
{
    char dir[64], path[128];
    gb_lua_template *t = NULL;
    make_model(dir, path, "tokenizer_config.json", "{\n\"chat_template\": }");
    CHECK_EQ(gb_lua_template_new(&t, "auto", dir, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "tokenizer_config.json:2:");
    remove_model(dir, path);
}

TESTS(TEST(auto_finds_chatml_for_the_bundled_model), TEST(qwen3_thinks_unless_told_not_to),
      TEST(a_role_that_a_template_does_not_know_is_one_sentence), TEST(contents_keep_every_byte),
      TEST(long_conversations_do_not_add_up_in_memory), TEST(auto_knows_what_a_models_own_template_asks_for),
      TEST(templates_that_cannot_work_are_refused), TEST(a_template_that_never_ends_or_returns_no_text_is_an_error),
      TEST(a_broken_tokenizer_config_is_named_with_its_line))
