#include "core/serve/admission.h"

#include "tests/check.h"
#include "tests/serve/fake.h"

static gb_server_options options;
static gb_error err;
static uint32_t max_tokens;

static int check(const gb_request *request)
{
    err = (gb_error){{0}};
    max_tokens = 0;
    return gb_admission_check(&options, request, gb_ms(100), &max_tokens, &err);
}

static void an_empty_prompt_is_refused(void)
{
    fake_options(&options);
    gb_request r = fake_request(0, 1);
    CHECK_EQ(check(&r), GB_EINVAL);
    CHECK_CONTAINS(err.text, "empty");
}

static void token_ids_out_of_range_are_refused_with_id_position_and_range(void)
{
    int32_t tokens[3] = {1, 2, 100};
    fake_options(&options);
    gb_request r = fake_request(3, 1);
    r.tokens = tokens;
    CHECK_EQ(check(&r), GB_EINVAL);
    CHECK_CONTAINS(err.text, "token 100 at position 2");
    CHECK_CONTAINS(err.text, "0..99");
    tokens[2] = -1;
    CHECK_EQ(check(&r), GB_EINVAL);
    tokens[2] = 99;
    CHECK_EQ(check(&r), GB_OK);
}

static void a_prompt_as_long_as_the_context_is_refused_with_both_figures(void)
{
    fake_options(&options);
    gb_request r = fake_request(256, 1);
    CHECK_EQ(check(&r), GB_ECONTEXT);
    CHECK_CONTAINS(err.text, "256 tokens");
    CHECK_CONTAINS(err.text, "context holds 256");
    r = fake_request(10000, 1);
    CHECK_EQ(check(&r), GB_ECONTEXT);
    r = fake_request(255, 1);
    CHECK_EQ(check(&r), GB_OK);
    CHECK_EQ(max_tokens, 1);
}

static void a_prompt_that_never_fits_one_engines_kv_is_refused_with_both_figures(void)
{
    fake_options(&options);
    options.blocks_per_engine = 4;
    gb_request r = fake_request(65, 1);
    CHECK_EQ(check(&r), GB_ECONTEXT);
    CHECK_CONTAINS(err.text, "65 tokens");
    CHECK_CONTAINS(err.text, "one engine holds 64");
    r = fake_request(64, 1);
    CHECK_EQ(check(&r), GB_OK);
}

static void max_tokens_is_cut_to_what_context_and_kv_leave(void)
{
    fake_options(&options);
    gb_request r = fake_request(200, 1000000);
    CHECK_EQ(check(&r), GB_OK);
    CHECK_EQ(max_tokens, 56);
    options.blocks_per_engine = 4;
    r = fake_request(60, UINT32_MAX);
    CHECK_EQ(check(&r), GB_OK);
    CHECK_EQ(max_tokens, 5);    /* 4 places, and the last token needs none */
    r = fake_request(60, 3);
    CHECK_EQ(check(&r), GB_OK);
    CHECK_EQ(max_tokens, 3);
}

static void sampling_out_of_range_is_refused(void)
{
    fake_options(&options);
    gb_request r = fake_request(5, 0);
    CHECK_EQ(check(&r), GB_EINVAL);
    CHECK_CONTAINS(err.text, "max_tokens is 0");
}

static void stop_ids_must_be_in_the_vocabulary(void)
{
    fake_options(&options);
    gb_request r = fake_request(5, 1);
    gb_sampling *s = fake_sampling(&r);
    s->n_stop_ids = 2;
    s->stop_ids[0] = 99;
    s->stop_ids[1] = 100;
    CHECK_EQ(check(&r), GB_EINVAL);
    CHECK_CONTAINS(err.text, "stop_token_ids[1] is 100");
    s->stop_ids[1] = -1;
    CHECK_EQ(check(&r), GB_EINVAL);
}

static void stop_strings_without_a_tokenizer_are_refused_with_the_remedy(void)
{
    fake_options(&options);
    gb_request r = fake_request(5, 1);
    fake_sampling(&r)->n_stop_strings = 1;
    fake_sampling(&r)->stop_string_bytes[0] = 1;
    CHECK_EQ(check(&r), GB_EUNSUPPORTED);
    CHECK_CONTAINS(err.text, "stop_token_ids");
}

static void a_deadline_in_the_past_is_refused(void)
{
    fake_options(&options);
    gb_request r = fake_request(5, 1);
    r.deadline = gb_ms(100);
    CHECK_EQ(check(&r), GB_EDEADLINE);
    r.deadline = gb_ms(100) + 1;
    CHECK_EQ(check(&r), GB_OK);
}

#define REFUSED(field, value, words) \
    do { \
        fake_options(&options); \
        options.field = (value); \
        err = (gb_error){{0}}; \
        CHECK_EQ(gb_admission_check_options(&options, &err), GB_EINVAL); \
        CHECK_CONTAINS(err.text, words); \
    } while (0)

static void absurd_options_are_refused_by_name_and_range(void)
{
    fake_options(&options);
    CHECK_EQ(gb_admission_check_options(&options, &err), GB_OK);
    REFUSED(engines, 0, "engines is 0, but must be in 1..512");
    REFUSED(engines, GB_ENGINES_MAX + 1, "engines is 513");
    REFUSED(ranks, 5, "5 ranks cannot be shared evenly by 2 engines");
    REFUSED(vocab, 0, "vocab");
    REFUSED(max_model_len, 1, "max_model_len is 1, but must be in 2..1048576");
    REFUSED(max_num_seqs, 0, "max_num_seqs");
    REFUSED(max_batched_tokens, 0, "max_batched_tokens");
    REFUSED(queue_capacity, 0, "queue_capacity");
    REFUSED(queue_capacity, GB_SERVER_QUEUE_MAX + 1, "65537");
    REFUSED(blocks_per_engine, 0, "blocks_per_engine");
    REFUSED(window_rounds, 0, "window_rounds");
    REFUSED(n_end_ids, GB_SERVER_END_IDS_MAX + 1, "n_end_ids is 17");
    fake_options(&options);
    options.n_end_ids = 1;
    options.end_ids[0] = 100;
    CHECK_EQ(gb_admission_check_options(&options, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "end token 100");
}

static void experts_that_do_not_divide_over_the_ranks_are_refused_at_start(void)
{
    gb_server *server = NULL;
    fake_options(&options);
    options.experts = 9;
    err = (gb_error){{0}};
    CHECK_EQ(gb_server_new(&server, &options, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "9 experts");
}

TESTS(TEST(an_empty_prompt_is_refused), TEST(token_ids_out_of_range_are_refused_with_id_position_and_range),
      TEST(a_prompt_as_long_as_the_context_is_refused_with_both_figures),
      TEST(a_prompt_that_never_fits_one_engines_kv_is_refused_with_both_figures), TEST(max_tokens_is_cut_to_what_context_and_kv_leave),
      TEST(sampling_out_of_range_is_refused), TEST(stop_ids_must_be_in_the_vocabulary),
      TEST(stop_strings_without_a_tokenizer_are_refused_with_the_remedy), TEST(a_deadline_in_the_past_is_refused),
      TEST(absurd_options_are_refused_by_name_and_range), TEST(experts_that_do_not_divide_over_the_ranks_are_refused_at_start))
