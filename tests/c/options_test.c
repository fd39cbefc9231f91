#include "bindings/c/options.h"

#include <ctype.h>
#include <stdlib.h>

#include "tests/check.h"

static void defaults_fill_every_row(void)
{
    gb_options o;
    CHECK_EQ(gb_options_init(&o), GB_OK);
    CHECK_EQ(o.data_parallel_size, 1);
    CHECK_EQ(o.max_num_seqs, 64);
    CHECK_EQ(o.kv_cache_memory, 512 << 20);
    CHECK_EQ(o.rpc_port, -1);
    CHECK_STR(o.socket, "");
    CHECK_STR(o.dtype, "auto");
    for (uint32_t i = 0; i < gb_option_count; i++) CHECK_STR(o.sources[i], "default");
    gb_options_deinit(&o);
}

static void a_set_value_remembers_where_it_came_from(void)
{
    gb_options o;
    gb_error err = {0};
    char source[] = "config day.lua";
    gb_options_init(&o);
    CHECK_EQ(gb_options_set(&o, "max-num-seqs", "8", source, &err), GB_OK);
    memset(source, 'x', sizeof source - 1);    /* the options keep their own copy */
    CHECK_EQ(o.max_num_seqs, 8);
    CHECK_STR(o.sources[gb_options_find("max_num_seqs") - gb_option_rows], "config day.lua");
    gb_options_deinit(&o);
}

static void sizes_take_suffixes(void)
{
    gb_options o;
    gb_error err = {0};
    gb_options_init(&o);
    CHECK_EQ(gb_options_set(&o, "kv_cache_memory", "3K", "t", &err), GB_OK);
    CHECK_EQ(o.kv_cache_memory, 3 << 10);
    CHECK_EQ(gb_options_set(&o, "kv_cache_memory", "2g", "t", &err), GB_OK);
    CHECK_EQ(o.kv_cache_memory, 2LL << 30);
    gb_options_deinit(&o);
}

static void integers_that_are_none_are_refused(void)
{
    static const char *const bad[] = {"", " 8", "8 ", "8x", "8KB", "eight", "0x10", "1.5", "9223372036854775808",
                                      "9007199254740993G", "-1", "0", "4097", "nan"};
    gb_options o;
    gb_options_init(&o);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gb_error err = {0};
        CHECK_EQ(gb_options_set(&o, "max_num_seqs", bad[i], "command line", &err), GB_EINVAL);
        CHECK_CONTAINS(err.text, "max_num_seqs");
        CHECK_CONTAINS(err.text, "command line");
        CHECK_CONTAINS(err.text, "from 1 to 4096");
    }
    CHECK_EQ(o.max_num_seqs, 64);
    gb_options_deinit(&o);
}

static void the_largest_integer_is_a_seed_and_the_next_is_told_the_true_bound(void)
{
    gb_options o;
    gb_error err = {0};
    gb_options_init(&o);
    CHECK_EQ(gb_options_set(&o, "seed", "9223372036854775807", "t", &err), GB_OK);
    CHECK_EQ(o.seed, INT64_MAX);
    CHECK_EQ(gb_options_set(&o, "seed", "9223372036854775808", "t", &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "from 0 to 9223372036854775807;");
    CHECK_EQ(o.seed, INT64_MAX);
    gb_options_deinit(&o);
}

static void every_integer_option_takes_its_bounds_and_nothing_beyond(void)
{
    gb_options o;
    gb_options_init(&o);
    for (uint32_t i = 0; i < gb_option_count; i++) {
        const gb_option_row *row = &gb_option_rows[i];
        char text[64];
        gb_error err = {0};
        if (row->type != GB_OPTION_INT) continue;
        snprintf(text, sizeof text, "%.0f", row->low);
        CHECK_EQ(gb_options_set(&o, row->key, text, "t", &err), GB_OK);
        snprintf(text, sizeof text, "%.0f", row->low - 1);
        CHECK_EQ(gb_options_set(&o, row->key, text, "t", &err), GB_EINVAL);
        snprintf(text, sizeof text, "%.0f0", row->high);
        CHECK_EQ(gb_options_set(&o, row->key, text, "t", &err), GB_EINVAL);
    }
    gb_options_deinit(&o);
}

static void choices_are_listed_when_none_matches(void)
{
    static const char *const bad[] = {"", "float16", "auto|bfloat16", "aut", "autos"};
    gb_options o;
    gb_options_init(&o);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gb_error err = {0};
        CHECK_EQ(gb_options_set(&o, "dtype", bad[i], "t", &err), GB_EINVAL);
        CHECK_CONTAINS(err.text, "auto|bfloat16|float32");
    }
    CHECK_EQ(gb_options_set(&o, "dtype", "float32", "t", NULL), GB_OK);
    CHECK_STR(o.dtype, "float32");
    gb_options_deinit(&o);
}

static void flags_that_are_no_options_parse_by_the_same_rules(void)
{
    static const gb_option_row number = {"", "temperature", GB_OPTION_FLOAT, "1", 0, 100, "T", ""};
    static const gb_option_row truth = {"", "json", GB_OPTION_BOOL, "false", 0, 0, "", ""};
    gb_error err = {0};
    double t = -1;
    bool b = false;
    CHECK_EQ(gb_option_parse(&number, "0.7", &t, &err), GB_OK);
    CHECK_NEAR(t, 0.7, 1e-12);
    CHECK_EQ(gb_option_parse(&number, "inf", &t, &err), GB_EINVAL);
    CHECK_EQ(gb_option_parse(&number, "101", &t, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "from 0 to 100");
    CHECK_EQ(gb_option_parse(&truth, "yes", &b, &err), GB_OK);
    CHECK(b);
    CHECK_EQ(gb_option_parse(&truth, "maybe", &b, &err), GB_EINVAL);
}

static void an_unknown_option_gets_the_nearest_name(void)
{
    gb_options o;
    gb_error err = {0};
    gb_options_init(&o);
    CHECK_EQ(gb_options_set(&o, "max_num_sequences", "8", "config day.lua", &err), GB_ENOTFOUND);
    CHECK_CONTAINS(err.text, "config day.lua");
    CHECK_CONTAINS(err.text, "did you mean max_num_seqs?");
    CHECK_EQ(gb_options_set(&o, "qqqq", "8", "t", &err), GB_ENOTFOUND);
    CHECK_CONTAINS(err.text, "--help");
    gb_options_deinit(&o);
}

static void the_environment_is_read_by_name_and_its_mistakes_are_named(void)
{
    gb_options o;
    gb_error err = {0};
    gb_options_init(&o);
    setenv("GIMBAL_MAX_NUM_SEQS", "12", 1);
    CHECK_EQ(gb_options_read_environment(&o, &err), GB_OK);
    CHECK_EQ(o.max_num_seqs, 12);
    CHECK_STR(o.sources[gb_options_find("max_num_seqs") - gb_option_rows], "environment");
    setenv("GIMBAL_MAX_NUM_SEQS", "many", 1);
    CHECK_EQ(gb_options_read_environment(&o, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "environment");
    unsetenv("GIMBAL_MAX_NUM_SEQS");
    gb_options_deinit(&o);
}

static void printed_options_are_a_config_file_with_sources(void)
{
    gb_options o;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    gb_options_init(&o);
    gb_options_set(&o, "model", "a \"quoted\"\\name\n1", "command line", NULL);
    gb_options_set(&o, "kv_cache_memory", "1536K", "environment", NULL);
    gb_options_print(&o, out);
    fclose(out);
    CHECK_EQ(strncmp(text, "return {\n", 9), 0);
    CHECK_CONTAINS(text, "    model = \"a \\\"quoted\\\"\\\\name\\0101\",  -- command line\n");
    CHECK_CONTAINS(text, "    kv_cache_memory = \"1536K\",  -- environment\n");
    CHECK_CONTAINS(text, "    max_num_seqs = 64,  -- default\n");
    for (uint32_t i = 0; i < gb_option_count; i++) CHECK_CONTAINS(text, gb_option_rows[i].key);
    free(text);
    gb_options_deinit(&o);
}

static void help_names_every_flag_with_its_help(void)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    gb_options_help(out);
    fclose(out);
    for (uint32_t i = 0; i < gb_option_count; i++) {
        char flag[64] = "--[no-]";
        size_t n = gb_option_rows[i].type == GB_OPTION_BOOL ? 7 : 2;
        for (const char *c = gb_option_rows[i].key; *c; c++) flag[n++] = *c == '_' ? '-' : *c;
        flag[n] = '\0';
        CHECK_CONTAINS(text, flag);
        CHECK(strlen(gb_option_rows[i].help) > 2);
    }
    CHECK_CONTAINS(text, "[512M]");
    CHECK_CONTAINS(text, "\nScheduling:\n");
    free(text);
}

static void format_gives_plain_text_and_nothing_for_unset(void)
{
    gb_options o;
    char text[64];
    gb_options_init(&o);
    gb_options_format(&o, (uint32_t)(gb_options_find("kv_cache_memory") - gb_option_rows), text, sizeof text);
    CHECK_STR(text, "536870912");
    gb_options_format(&o, (uint32_t)(gb_options_find("socket") - gb_option_rows), text, sizeof text);
    CHECK_STR(text, "");
    gb_options_deinit(&o);
}

TESTS(TEST(defaults_fill_every_row), TEST(a_set_value_remembers_where_it_came_from), TEST(sizes_take_suffixes),
      TEST(integers_that_are_none_are_refused), TEST(the_largest_integer_is_a_seed_and_the_next_is_told_the_true_bound),
      TEST(every_integer_option_takes_its_bounds_and_nothing_beyond),
      TEST(choices_are_listed_when_none_matches), TEST(flags_that_are_no_options_parse_by_the_same_rules),
      TEST(an_unknown_option_gets_the_nearest_name), TEST(the_environment_is_read_by_name_and_its_mistakes_are_named),
      TEST(printed_options_are_a_config_file_with_sources), TEST(help_names_every_flag_with_its_help),
      TEST(format_gives_plain_text_and_nothing_for_unset))
