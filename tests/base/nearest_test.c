#include "core/base/nearest.h"

#include <stddef.h>

#include "tests/check.h"

static const char *nearest_of(const char *word)
{
    gb_nearest nearest = gb_nearest_to(word);
    gb_nearest_offer(&nearest, "serve");
    gb_nearest_offer(&nearest, "generate");
    gb_nearest_offer(&nearest, "max-num-seqs");
    return gb_nearest_found(&nearest);
}

static void distance_counts_insertions_deletions_and_substitutions(void)
{
    CHECK_EQ(gb_edit_distance("", ""), 0);
    CHECK_EQ(gb_edit_distance("", "abc"), 3);
    CHECK_EQ(gb_edit_distance("kitten", "sitting"), 3);
    CHECK_EQ(gb_edit_distance("flaw", "lawn"), 2);
    CHECK_EQ(gb_edit_distance("serve", "server"), 1);
}

static void case_and_dashes_do_not_count(void) { CHECK_EQ(gb_edit_distance("MAX_num-seqs", "max-num_seqs"), 0); }

static void a_typing_mistake_finds_the_name_that_was_meant(void)
{
    CHECK_STR(nearest_of("sevre"), "serve");
    CHECK_STR(nearest_of("genrate"), "generate");
    CHECK_STR(nearest_of("max_num_seq"), "max-num-seqs");
}

static void a_word_like_nothing_known_finds_nothing(void)
{
    CHECK(nearest_of("zzzzzz") == NULL);
    CHECK(nearest_of("") == NULL);
    CHECK(nearest_of("x") == NULL);
}

static void names_too_long_are_never_near(void)
{
    char word[GB_NEAREST_BYTES + 2];
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    CHECK_EQ(gb_edit_distance(word, "a"), UINT32_MAX);
    CHECK(nearest_of(word) == NULL);
}

TESTS(TEST(distance_counts_insertions_deletions_and_substitutions), TEST(case_and_dashes_do_not_count),
      TEST(a_typing_mistake_finds_the_name_that_was_meant), TEST(a_word_like_nothing_known_finds_nothing),
      TEST(names_too_long_are_never_near))
