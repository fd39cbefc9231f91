#include "bindings/cli/args.h"

#include <stdlib.h>

#include "tests/check.h"

typedef struct sample {
    const char *prompt;
    int64_t max_tokens;
    double temperature;
    bool chat;
} sample;

static const gb_flag flags[] = {
    GB_FLAG(sample, prompt, STRING, "", 0, 0, "TEXT", "the prompt"),
    GB_FLAG(sample, max_tokens, INT, "16", 1, 100, "N", "most tokens"),
    GB_FLAG(sample, temperature, FLOAT, "1", 0, 100, "T", "0 is greedy"),
    GB_FLAG(sample, chat, BOOL, "false", 0, 0, "", "as a chat message"),
};

typedef struct fixture {
    gb_options options;
    sample values;
    gb_args args;
    gb_error err;
    int status;
} fixture;

/* Parses words (NULL ends them). */
static void parse(fixture *f, char *const *words)
{
    *f = (fixture){0};
    gb_options_init(&f->options);
    f->args = (gb_args){.flags = flags, .n_flags = 4, .values = &f->values, .options = &f->options, .max_words = 2};
    int n = 0;
    while (words[n]) n++;
    f->status = gb_args_parse(&f->args, n, words, &f->err);
}

#define PARSE(f, ...) parse((f), (char *[]){__VA_ARGS__, NULL})

static void done(fixture *f) { gb_options_deinit(&f->options); }

static void flags_options_and_words_go_to_their_places(void)
{
    fixture f;
    PARSE(&f, "DIR", "--prompt", "hello", "--max-num-seqs=8", "--max_tokens", "5", "--chat", "-dp", "2", "--temperature=0");
    CHECK_EQ(f.status, GB_OK);
    CHECK_EQ(f.args.n_words, 1);
    CHECK_STR(f.args.words[0], "DIR");
    CHECK_STR(f.values.prompt, "hello");
    CHECK_EQ(f.values.max_tokens, 5);
    CHECK_NEAR(f.values.temperature, 0, 0);
    CHECK(f.values.chat);
    CHECK_EQ(f.options.max_num_seqs, 8);
    CHECK_EQ(f.options.data_parallel_size, 2);
    CHECK_STR(f.options.sources[gb_options_find("max_num_seqs") - gb_option_rows], "command line");
    done(&f);
}

static void a_flag_that_is_absent_has_its_default_and_was_not_given(void)
{
    fixture f;
    PARSE(&f, "--chat");
    CHECK_STR(f.values.prompt, "");
    CHECK_EQ(f.values.max_tokens, 16);
    CHECK(!gb_args_given(&f.args, "max_tokens"));
    CHECK(gb_args_given(&f.args, "chat"));
    done(&f);
}

static void the_command_line_beats_the_environment(void)
{
    fixture f;
    setenv("GIMBAL_MAX_NUM_SEQS", "9", 1);
    setenv("GIMBAL_MAX_QUEUE", "10", 1);
    PARSE(&f, "--max-num-seqs", "8");
    unsetenv("GIMBAL_MAX_NUM_SEQS");
    unsetenv("GIMBAL_MAX_QUEUE");
    CHECK_EQ(f.options.max_num_seqs, 8);
    CHECK_EQ(f.options.max_queue, 10);
    done(&f);
}

static void values_may_begin_with_a_dash_and_two_dashes_end_the_flags(void)
{
    fixture f;
    PARSE(&f, "--rpc-port", "-1", "--prompt", "--x", "--", "--chat", "-");
    CHECK_EQ(f.status, GB_OK);
    CHECK_EQ(f.options.rpc_port, -1);
    CHECK_STR(f.values.prompt, "--x");
    CHECK(!f.values.chat);
    CHECK_EQ(f.args.n_words, 2);
    CHECK_STR(f.args.words[0], "--chat");
    CHECK_STR(f.args.words[1], "-");
    done(&f);
}

static void an_option_that_is_on_is_turned_off_by_its_no(void)
{
    fixture f;
    PARSE(&f, "--chat");
    CHECK(f.options.enable_prefix_caching);
    done(&f);
    PARSE(&f, "--no-enable-prefix-caching");
    CHECK_EQ(f.status, GB_OK);
    CHECK(!f.options.enable_prefix_caching);
    done(&f);
    PARSE(&f, "--no-enable-prefix-caching", "--enable-prefix-caching");
    CHECK(f.options.enable_prefix_caching);
    done(&f);
    PARSE(&f, "--no-enable-prefix-caching=true");
    CHECK_EQ(f.status, GB_EINVAL);
    CHECK_CONTAINS(f.err.text, "takes no value");
    done(&f);
    PARSE(&f, "--no-max-queue");
    CHECK_EQ(f.status, GB_ENOTFOUND);
    done(&f);
}

static void an_unknown_flag_gets_the_nearest_name(void)
{
    static const char *const cases[][2] = {
        {"--max-num-sequences", "did you mean --max-num-seqs?"}, {"--promt=x", "did you mean --prompt?"},
        {"--hlep", "did you mean --help?"}, {"--print-confg", "did you mean --print-config?"}, {"-x", "unknown flag -x"},
        {"-prompt", "did you mean --prompt?"}, {"---prompt", "did you mean --prompt?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        char word[64];
        snprintf(word, sizeof word, "%s", cases[i][0]);
        PARSE(&f, word, "1");
        CHECK_EQ(f.status, GB_ENOTFOUND);
        CHECK_CONTAINS(f.err.text, cases[i][1]);
        done(&f);
    }
}

static void wrong_values_are_named_with_what_was_expected(void)
{
    fixture f;
    PARSE(&f, "--max-tokens", "0");
    CHECK_EQ(f.status, GB_EINVAL);
    CHECK_CONTAINS(f.err.text, "--max-tokens \"0\": expected an integer from 1 to 100");
    done(&f);
    PARSE(&f, "--dtype", "int8");
    CHECK_EQ(f.status, GB_EINVAL);
    CHECK_CONTAINS(f.err.text, "auto|bfloat16|float32");
    done(&f);
    PARSE(&f, "--chat=perhaps");
    CHECK_EQ(f.status, GB_EINVAL);
    done(&f);
}

static void a_missing_value_and_a_word_too_many_are_errors(void)
{
    fixture f;
    PARSE(&f, "--prompt");
    CHECK_EQ(f.status, GB_EINVAL);
    CHECK_CONTAINS(f.err.text, "--prompt needs a value (TEXT)");
    done(&f);
    PARSE(&f, "a", "b", "c");
    CHECK_EQ(f.status, GB_EINVAL);
    CHECK_CONTAINS(f.err.text, "unexpected argument \"c\"");
    done(&f);
}

static void help_is_answered_even_when_the_config_file_is_missing(void)
{
    fixture f;
    PARSE(&f, "--config", "/nonexistent.lua", "--help");
    CHECK_EQ(f.status, GB_OK);
    CHECK(f.args.help);
    done(&f);
    PARSE(&f, "--config", "/nonexistent.lua");
    CHECK(f.status != GB_OK);
    CHECK_CONTAINS(f.err.text, "/nonexistent.lua");
    done(&f);
}

TESTS(TEST(flags_options_and_words_go_to_their_places), TEST(a_flag_that_is_absent_has_its_default_and_was_not_given),
      TEST(the_command_line_beats_the_environment), TEST(values_may_begin_with_a_dash_and_two_dashes_end_the_flags),
      TEST(an_option_that_is_on_is_turned_off_by_its_no), TEST(an_unknown_flag_gets_the_nearest_name), TEST(wrong_values_are_named_with_what_was_expected),
      TEST(a_missing_value_and_a_word_too_many_are_errors), TEST(help_is_answered_even_when_the_config_file_is_missing))
