#include "bindings/lua/lua_config.h"

#include <stdlib.h>
#include <unistd.h>

#include "bindings/lua/embedded.h"
#include "tests/check.h"

static gb_error err;
static gb_options options;

static int load_bytes(const char *text, size_t bytes)
{
    char path[] = "/tmp/gimbal-config-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, text, bytes), bytes);
    close(fd);
    CHECK_EQ(gb_options_init(&options), 0);
    err.text[0] = 0;
    int status = gb_lua_config_load(&options, path, &err);
    unlink(path);
    return status;
}

static int load(const char *text) { return load_bytes(text, strlen(text)); }

static const char *source_of(const char *key) { return options.sources[gb_options_find(key) - gb_option_rows]; }

static void a_config_file_sets_options_and_they_remember_it(void)
{
    CHECK_EQ(load("return { data_parallel_size = 2, kv_cache_memory = '64M', model = 'models/x', seed = 2^40, rpc_port = 0 }"), 0);
    CHECK_STR(err.text, "");
    CHECK_EQ(options.data_parallel_size, 2);
    CHECK_EQ(options.kv_cache_memory, 64 << 20);
    CHECK_EQ(options.seed, (int64_t)1 << 40);
    CHECK_EQ(options.rpc_port, 0);
    CHECK_STR(options.model, "models/x");
    CHECK_CONTAINS(source_of("model"), "config /tmp/gimbal-config-");
    CHECK_STR(source_of("threads"), "default");
    CHECK_CONTAINS(options.config, "/tmp/gimbal-config-");
    gb_options_deinit(&options);
}

static void a_config_file_may_compute_its_values(void)
{
    CHECK_EQ(load("local engines = 2\nlocal t = {}\nfor i = 1, 3 do t.max_num_seqs = i * 16 end\nt.data_parallel_size = engines\nreturn t"), 0);
    CHECK_EQ(options.max_num_seqs, 48);
    gb_options_deinit(&options);
}

static void every_mistake_in_a_config_file_is_one_sentence(void)
{
    static const struct {
        const char *text, *refusal;
        int status;
    } files[] = {
        {"return {", "unexpected symbol near '<eof>'", GB_EINVAL},
        {"", "returned a nil; a config file returns a table of options", GB_EINVAL},
        {"return 5", "returned a number; a config file returns a table", GB_EINVAL},
        {"return { data_paralel_size = 2 }", "did you mean data_parallel_size?", GB_ENOTFOUND},
        {"return { 5 }", "a value without a name", GB_EINVAL},
        {"return { threads = {} }", "threads is a table; an option is a text, a number or a boolean", GB_EINVAL},
        {"return { threads = 1.5 }", "threads = \"1.5\"", GB_EINVAL},
        {"return { threads = -1 }", "an integer from 0 to 1024", GB_EINVAL},
        {"return { threads = 0/0 }", "threads = \"", GB_EINVAL},
        {"return { threads = 1e300 }", "threads = \"", GB_EINVAL},
        {"return { dtype = 'float8' }", "expected one of auto|bfloat16|float32", GB_EINVAL},
        {"return { dtype = true }", "expected one of auto|bfloat16|float32", GB_EINVAL},
        {"return { model = 'a\\0b' }", "model is a string", GB_EINVAL},
        {"return { threads = os.time() }", "os is not defined here", GB_EINVAL},
        {"return { threads = ('4'):rep(2) }", "attempt to index", GB_EINVAL},
        {"print('x')", "print is not defined here", GB_EINVAL},
        {"while true do end", "more than 20000000 instructions; this file never ends", GB_EINVAL},
        {"local s = 'x' while true do s = s .. s end", "not enough memory", GB_ENOMEM},
        {"local function f(n) return 1 + f(n) end return f(1)", "stack overflow", GB_EINVAL},
        {"\x1bLJ", "is Lua bytecode", GB_EINVAL},
        {"\xef\xbb\xbfreturn {}", "byte order mark", GB_EINVAL},
        {"return {\r\n}", ":1: a carriage return", GB_EINVAL},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CHECK_EQ(load(files[i].text), files[i].status);
        CHECK_CONTAINS(err.text, files[i].refusal);
        CHECK_CONTAINS(err.text, "/tmp/gimbal-config-");
        gb_options_deinit(&options);
    }
    CHECK_EQ(load_bytes("return {}\n\0", 11), GB_EINVAL);
    CHECK_CONTAINS(err.text, ":2: a NUL byte at offset 10");
    gb_options_deinit(&options);
}

static void files_that_are_none_are_refused(void)
{
    CHECK_EQ(gb_options_init(&options), 0);
    CHECK_EQ(gb_lua_config_load(&options, "/nowhere/gimbal.lua", &err), GB_ENOTFOUND);
    CHECK_STR(err.text, "/nowhere/gimbal.lua does not exist; check the path");
    CHECK_EQ(gb_lua_config_load(&options, "/tmp", &err), GB_EINVAL);
    CHECK_STR(err.text, "/tmp is a directory; a config file is one .lua file");
    CHECK_EQ(gb_lua_config_load(&options, "/dev/zero", &err), GB_EINVAL);
    CHECK_STR(err.text, "/dev/zero is not a regular file; a config file is one .lua file");
    gb_options_deinit(&options);
}

static void the_default_config_names_every_option_with_its_default(void)
{
    const gb_embedded_file *file = gb_embedded_find("lua/config/default.lua");
    CHECK(file != NULL);
    for (uint32_t i = 0; file && i < gb_option_count; i++) {
        const gb_option_row *row = &gb_option_rows[i];
        char set[256], commented[256];
        snprintf(set, sizeof set, "\n    %s = ", row->key);
        snprintf(commented, sizeof commented, "\n    -- %s = \"%s\",\n", row->key, row->metavar);
        CHECK_CONTAINS(file->data, *row->text ? set : commented);
        char help[256];
        snprintf(help, sizeof help, "\n    -- %.100s", row->help);
        CHECK_CONTAINS(file->data, help);
    }
}

static void the_default_config_changes_nothing(void)
{
    const gb_embedded_file *file = gb_embedded_find("lua/config/default.lua");
    gb_options defaults;
    CHECK_EQ(gb_options_init(&defaults), 0);
    CHECK_EQ(load_bytes(file->data, file->bytes), 0);
    CHECK_STR(err.text, "");
    for (uint32_t i = 0; i < gb_option_count; i++) {
        char is[4096], was[4096];
        gb_options_format(&options, i, is, sizeof is);
        gb_options_format(&defaults, i, was, sizeof was);
        CHECK_STR(is, was);
    }
    gb_options_deinit(&options);
    gb_options_deinit(&defaults);
}

static void what_print_config_prints_can_be_loaded_again(void)
{
    char *text = NULL;
    size_t bytes = 0;
    CHECK_EQ(gb_options_init(&options), 0);
    CHECK_EQ(gb_options_set(&options, "model", "dir with \"quotes\"", "test", &err), 0);
    CHECK_EQ(gb_options_set(&options, "threads", "3", "test", &err), 0);
    FILE *out = open_memstream(&text, &bytes);
    gb_options_print(&options, out);
    fclose(out);
    gb_options_deinit(&options);
    CHECK_EQ(load_bytes(text, bytes), 0);
    CHECK_STR(err.text, "");
    CHECK_STR(options.model, "dir with \"quotes\"");
    CHECK_EQ(options.threads, 3);
    gb_options_deinit(&options);
    free(text);
}

TESTS(TEST(a_config_file_sets_options_and_they_remember_it), TEST(a_config_file_may_compute_its_values),
      TEST(every_mistake_in_a_config_file_is_one_sentence), TEST(files_that_are_none_are_refused),
      TEST(the_default_config_names_every_option_with_its_default), TEST(the_default_config_changes_nothing),
      TEST(what_print_config_prints_can_be_loaded_again))
