#include "core/flow/policy.h"

#include "tests/check.h"

static void the_hooks_are_named_in_one_sentence(void)
{
    char all[GB_HOOK_NAMES_BYTES];
    gb_hook_names(all);
    for (int hook = 0; hook < GB_HOOKS; hook++) CHECK_CONTAINS(all, gb_hook_name((gb_hook)hook));
    CHECK_CONTAINS(all, " and ");
}

TESTS(TEST(the_hooks_are_named_in_one_sentence))
