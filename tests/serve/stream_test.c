#include "core/serve/stream.h"

#include "core/base/rng.h"
#include "tests/check.h"
#include "tests/serve/fake_text.h"

enum { OUT_BYTES = 1 << 16 };

static gb_tokenizer *tokenizer;
static gb_stream_shared shared;
static gb_stream stream;
static gb_sampling sampling;
static char scratch[GB_STOP_STRING_BYTES + 64];
static const int32_t ends[] = {0};

/* What a client has by now. */
static char out[OUT_BYTES];
static size_t n_out, last_bytes;
static uint32_t generated;

static void start(const char *const *words, const char *const *special)
{
    tokenizer = fake_tokenizer(words, special);
    shared = (gb_stream_shared){.tokenizer = tokenizer, .end_ids = ends, .n_end_ids = 1, .token_bytes_max = 64, .scratch = scratch};
    gb_sampling_default(&sampling);
    sampling.max_tokens = 100000;
}

static void stop(void) { gb_tokenizer_free(tokenizer); }

static void stop_at(const char *string)
{
    sampling.stop_string_bytes[sampling.n_stop_strings] = (uint16_t)strlen(string);
    memcpy(sampling.stop_strings[sampling.n_stop_strings++], string, strlen(string));
}

static void open_stream(void)
{
    gb_stream_open(&stream, &shared, &sampling);
    n_out = generated = 0;
    out[0] = 0;
}

static gb_stream_verdict push(int32_t token)
{
    gb_stream_verdict verdict = gb_stream_push(&stream, &shared, token, ++generated, out + n_out, &last_bytes);
    CHECK(last_bytes <= gb_stream_text_max(&shared));
    n_out += last_bytes;
    out[n_out] = 0;
    return verdict;
}

static void close_stream(void)
{
    n_out += gb_stream_close(&stream, out + n_out);
    out[n_out] = 0;
}

/* Byte by byte, until it ends. */
static gb_stream_verdict push_text(const char *text)
{
    gb_stream_verdict verdict = {GB_FINISH_NONE, -1, -1};
    for (; *text && verdict.finish == GB_FINISH_NONE; text++) verdict = push((unsigned char)*text);
    return verdict;
}

/* --- stop strings --- */

static void without_stop_strings_every_token_leaves_at_once(void)
{
    start((const char *const[]){"hello", "world", NULL}, NULL);
    open_stream();
    push(256);
    CHECK_STR(out, "hello");
    push(257);
    CHECK_STR(out, "helloworld");
    stop();
}

static void a_stop_string_over_four_tokens_leaves_nothing_of_itself(void)
{
    start((const char *const[]){"ABC", "DEF", "HI", NULL}, NULL);
    stop_at("DEFGHIJ");
    open_stream();
    push(256);
    CHECK_STR(out, "ABC");
    static const int32_t parts[] = {257, 'G', 258};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(push(parts[i]).finish, GB_FINISH_NONE);
        CHECK_STR(out, "ABC");
    }
    gb_stream_verdict verdict = push('J');
    CHECK_EQ(verdict.finish, GB_FINISH_STOP);
    CHECK_EQ(verdict.stop_string, 0);
    CHECK_EQ(verdict.stop_token, -1);
    close_stream();
    CHECK_STR(out, "ABC");
    stop();
}

/* Held back only while the tail is a beginning of a stop string; never more. */
static void text_is_held_back_only_while_it_may_become_a_stop_string(void)
{
    start(NULL, NULL);
    stop_at("END");
    open_stream();
    push('x');
    CHECK_STR(out, "x");
    push('E');
    CHECK_EQ(last_bytes, 0);
    push('N');
    CHECK_EQ(last_bytes, 0);
    push('E');
    CHECK_STR(out, "xEN");
    push('x');
    CHECK_STR(out, "xENEx");
    stop();
}

static void what_was_held_back_comes_at_the_end(void)
{
    start(NULL, NULL);
    stop_at("STOP");
    sampling.max_tokens = 4;
    open_stream();
    CHECK_EQ(push_text("aSTO").finish, GB_FINISH_LENGTH);
    CHECK_STR(out, "a");
    close_stream();
    CHECK_STR(out, "aSTO");
    stop();
}

static void a_stop_string_inside_one_token_cuts_it(void)
{
    start((const char *const[]){"one.two", NULL}, NULL);
    stop_at(".");
    open_stream();
    CHECK_EQ(push(256).stop_string, 0);
    close_stream();
    CHECK_STR(out, "one");
    stop();
}

static void the_stop_string_stays_when_asked_for(void)
{
    start((const char *const[]){"one.two", NULL}, NULL);
    stop_at(".");
    sampling.include_stop = true;
    open_stream();
    push(256);
    close_stream();
    CHECK_STR(out, "one.");
    stop();
}

static void the_first_complete_stop_string_wins_and_the_longest_of_those(void)
{
    start(NULL, NULL);
    stop_at("bcde");
    stop_at("cd");
    stop_at("bcd");
    open_stream();
    CHECK_EQ(push_text("abcdef").stop_string, 2);
    close_stream();
    CHECK_STR(out, "a");
    stop();
}

static void a_false_start_does_not_hide_a_later_match(void)
{
    start(NULL, NULL);
    stop_at("aab");
    open_stream();
    CHECK_EQ(push_text("xaaab").stop_string, 0);
    close_stream();
    CHECK_STR(out, "xa");
    stop();
}

static void the_longest_stop_string_is_matched(void)
{
    char longest[GB_STOP_STRING_BYTES + 1];
    start(NULL, NULL);
    memset(longest, 'z', GB_STOP_STRING_BYTES);
    longest[GB_STOP_STRING_BYTES] = 0;
    stop_at(longest);
    open_stream();
    longest[GB_STOP_STRING_BYTES - 1] = 'y';
    CHECK_EQ(push_text(longest).finish, GB_FINISH_NONE);
    CHECK_EQ(n_out, GB_STOP_STRING_BYTES);
    longest[GB_STOP_STRING_BYTES - 1] = 'z';
    CHECK_EQ(push_text(longest).stop_string, 0);
    CHECK_EQ(n_out, GB_STOP_STRING_BYTES);
    stop();
}

static void a_stop_string_may_cut_between_characters_only(void)
{
    start(NULL, NULL);
    stop_at("\xe6\x97\xa5");    /* one character of three bytes */
    open_stream();
    CHECK_EQ(push_text("\xe6\x97\xa4x").finish, GB_FINISH_NONE);
    CHECK_STR(out, "\xe6\x97\xa4x");
    CHECK_EQ(push_text("\xe6\x97\xa5").stop_string, 0);
    close_stream();
    CHECK_STR(out, "\xe6\x97\xa4x");
    stop();
}

/* A special token has no text; a stop string that spells it is matched by its id. */
static void a_special_token_spelled_as_a_stop_string_stops(void)
{
    start(NULL, (const char *const[]){"<|im_end|>", "<|other|>", NULL});
    stop_at("x");
    stop_at("<|im_end|>");
    open_stream();
    push('a');
    CHECK_EQ(push(257).finish, GB_FINISH_NONE);
    CHECK_STR(out, "a");
    gb_stream_verdict verdict = push(256);
    CHECK_EQ(verdict.finish, GB_FINISH_STOP);
    CHECK_EQ(verdict.stop_string, 1);
    close_stream();
    CHECK_STR(out, "a");
    stop();
}

static void a_stop_string_goes_through_a_special_token_without_text(void)
{
    start(NULL, (const char *const[]){"<|x|>", NULL});
    stop_at("ab");
    open_stream();
    push('a');
    push(256);
    CHECK_EQ(push('b').stop_string, 0);
    close_stream();
    CHECK_STR(out, "");
    stop();
}

static void stop_strings_are_looked_for_after_min_tokens_only(void)
{
    start(NULL, NULL);
    stop_at("b");
    sampling.min_tokens = 3;
    open_stream();
    CHECK_EQ(push_text("abb").finish, GB_FINISH_NONE);
    CHECK_STR(out, "abb");
    CHECK_EQ(push_text("ab").stop_string, 0);
    close_stream();
    CHECK_STR(out, "abba");
    stop();
}

/* --- ids --- */

static void an_end_token_ends_without_text(void)
{
    start(NULL, NULL);
    open_stream();
    push('a');
    gb_stream_verdict verdict = push(0);
    CHECK_EQ(verdict.finish, GB_FINISH_STOP);
    CHECK_EQ(verdict.stop_token, 0);
    close_stream();
    CHECK_STR(out, "a");
    sampling.ignore_eos = true;
    open_stream();
    CHECK_EQ(push(0).finish, GB_FINISH_NONE);
    stop();
}

static void a_stop_id_ends_and_its_text_stays_only_when_asked_for(void)
{
    start(NULL, NULL);
    sampling.n_stop_ids = 1;
    sampling.stop_ids[0] = 'c';
    open_stream();
    CHECK_EQ(push_text("abc").stop_token, 'c');
    CHECK_STR(out, "ab");
    sampling.include_stop = true;
    open_stream();
    CHECK_EQ(push_text("abc").stop_token, 'c');
    CHECK_STR(out, "abc");
    stop();
}

static void text_held_for_a_stop_string_is_released_when_an_id_ends_the_request(void)
{
    start(NULL, NULL);
    stop_at("abc");
    open_stream();
    push_text("xab");
    CHECK_EQ(push(0).finish, GB_FINISH_STOP);
    close_stream();
    CHECK_STR(out, "xab");
    stop();
}

static void the_last_token_allowed_ends_with_length_unless_it_stops(void)
{
    start(NULL, NULL);
    sampling.max_tokens = 2;
    open_stream();
    CHECK_EQ(push('a').finish, GB_FINISH_NONE);
    CHECK_EQ(push('b').finish, GB_FINISH_LENGTH);
    open_stream();
    push('a');
    CHECK_EQ(push(0).finish, GB_FINISH_STOP);
    stop();
}

static void stop_ids_and_ends_are_what_min_tokens_bans(void)
{
    start(NULL, NULL);
    sampling.n_stop_ids = 1;
    sampling.stop_ids[0] = 9;
    open_stream();
    CHECK_EQ(stream.n_banned, 2);
    CHECK_EQ(stream.banned[0], 9);
    CHECK_EQ(stream.banned[1], 0);
    sampling.ignore_eos = true;
    open_stream();
    CHECK_EQ(stream.n_banned, 1);
    stop();
}

/* --- characters --- */

static void a_character_split_over_tokens_leaves_whole(void)
{
    start(NULL, NULL);
    open_stream();
    static const char *const texts[] = {"\xf0\x9f\x98\x80", "\xe6\x97\xa5\xe6\x9c\xac", "\xc4\x8f", "\xd7\xa9\xd7\x9c"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        open_stream();
        for (const char *c = texts[i]; *c; c++) {
            push((unsigned char)*c);
            for (size_t b = 0; b < n_out; b++) CHECK(out[b] == texts[i][b]);
        }
        CHECK_STR(out, texts[i]);
    }
    stop();
}

static void an_unfinished_character_becomes_one_replacement_at_the_end(void)
{
    start(NULL, NULL);
    open_stream();
    push_text("a\xf0\x9f\x98");
    CHECK_STR(out, "a");
    close_stream();
    CHECK_STR(out, "a\xef\xbf\xbd");
    stop();
}

static void text_goes_on_after_a_broken_character(void)
{
    start(NULL, NULL);
    open_stream();
    push_text("\xe6\x97 x");
    CHECK_STR(out, "\xef\xbf\xbd x");
    stop();
}

static void without_a_tokenizer_there_is_no_text_but_ends_work(void)
{
    start(NULL, NULL);
    shared.tokenizer = NULL;
    open_stream();
    CHECK_EQ(push('a').finish, GB_FINISH_NONE);
    CHECK_EQ(push(0).stop_token, 0);
    close_stream();
    CHECK_STR(out, "");
    stop();
}

static void ids_without_a_token_have_no_text(void)
{
    start(NULL, NULL);
    stop_at("q");
    open_stream();
    CHECK_EQ(push(400).finish, GB_FINISH_NONE);
    CHECK_STR(out, "");
    stop();
}

/* --- any split gives the same text --- */

/* Words over a few letters: every string of length 2 and 3, so that any text can be split in many ways. */
static const char *const *all_words(void)
{
    static char store[64][4];
    static const char *words[65];
    int n = 0;
    for (int length = 2; length <= 3; length++)
        for (int i = 0; i < (length == 2 ? 9 : 27); i++, n++) {
            snprintf(store[n], sizeof store[n], length == 2 ? "%c%c" : "%c%c%c", 'a' + i % 3, 'a' + i / 3 % 3, 'a' + i / 9);
            words[n] = store[n];
        }
    words[n] = NULL;
    return words;
}

static int32_t word_id(const char *const *words, const char *text, int length)
{
    if (length == 1) return (unsigned char)*text;
    for (int i = 0; words[i]; i++)
        if ((int)strlen(words[i]) == length && memcmp(words[i], text, (size_t)length) == 0) return 256 + i;
    return -1;
}

/* By definition: the shortest beginning of the text that ends with a stop string, without the longest such string. */
static int expected_cut(const char *text, int n, int *stop_string)
{
    for (int end = 1; end <= n; end++) {
        int best = -1;
        for (uint32_t s = 0; s < sampling.n_stop_strings; s++) {
            int length = sampling.stop_string_bytes[s];
            bool matches = length <= end && memcmp(text + end - length, sampling.stop_strings[s], (size_t)length) == 0;
            if (matches && (best < 0 || length > sampling.stop_string_bytes[best])) best = (int)s;
        }
        *stop_string = best;
        if (best >= 0) return end - sampling.stop_string_bytes[best];
    }
    return n;
}

static void any_split_into_tokens_gives_the_same_text_and_the_same_stop(void)
{
    gb_rng rng;
    const char *const *words = all_words();
    gb_rng_init(&rng, 3);
    start(words, NULL);
    for (int round = 0; round < 5000; round++) {
        char text[41], cut_text[41];
        int n = (int)gb_rng_below(&rng, 40) + 1, stop_string = -1;
        for (int i = 0; i < n; i++) text[i] = (char)('a' + gb_rng_below(&rng, 3));
        text[n] = 0;
        sampling.n_stop_strings = 0;
        for (uint64_t k = 1 + gb_rng_below(&rng, 3); k > 0; k--) {
            char string[8];
            size_t length = 1 + gb_rng_below(&rng, 6);
            for (size_t i = 0; i < length; i++) string[i] = (char)('a' + gb_rng_below(&rng, 3));
            string[length] = 0;
            stop_at(string);
        }
        int cut = expected_cut(text, n, &stop_string);
        snprintf(cut_text, sizeof cut_text, "%.*s", cut, text);
        open_stream();
        gb_stream_verdict verdict = {GB_FINISH_NONE, -1, -1};
        for (int at = 0; at < n && verdict.finish == GB_FINISH_NONE;) {
            int length = 1 + (int)gb_rng_below(&rng, 3);
            if (length > n - at) length = n - at;
            verdict = push(word_id(words, text + at, length));
            at += length;
        }
        close_stream();
        CHECK_STR(out, cut_text);
        CHECK_EQ(verdict.stop_string, stop_string);
    }
    stop();
}

TESTS(TEST(without_stop_strings_every_token_leaves_at_once), TEST(a_stop_string_over_four_tokens_leaves_nothing_of_itself),
      TEST(text_is_held_back_only_while_it_may_become_a_stop_string), TEST(what_was_held_back_comes_at_the_end),
      TEST(a_stop_string_inside_one_token_cuts_it), TEST(the_stop_string_stays_when_asked_for),
      TEST(the_first_complete_stop_string_wins_and_the_longest_of_those), TEST(a_false_start_does_not_hide_a_later_match),
      TEST(the_longest_stop_string_is_matched), TEST(a_stop_string_may_cut_between_characters_only),
      TEST(a_special_token_spelled_as_a_stop_string_stops), TEST(a_stop_string_goes_through_a_special_token_without_text),
      TEST(stop_strings_are_looked_for_after_min_tokens_only), TEST(an_end_token_ends_without_text),
      TEST(a_stop_id_ends_and_its_text_stays_only_when_asked_for),
      TEST(text_held_for_a_stop_string_is_released_when_an_id_ends_the_request),
      TEST(the_last_token_allowed_ends_with_length_unless_it_stops), TEST(stop_ids_and_ends_are_what_min_tokens_bans),
      TEST(a_character_split_over_tokens_leaves_whole), TEST(an_unfinished_character_becomes_one_replacement_at_the_end),
      TEST(text_goes_on_after_a_broken_character), TEST(without_a_tokenizer_there_is_no_text_but_ends_work),
      TEST(ids_without_a_token_have_no_text), TEST(any_split_into_tokens_gives_the_same_text_and_the_same_stop))
