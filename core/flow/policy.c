#include "core/flow/policy.h"

#include <stdio.h>

#include "core/base/assert.h"

const char *gb_hook_name(gb_hook hook)
{
    switch (hook) {
    case GB_HOOK_SELECT: return "select_engine";
    case GB_HOOK_ORDER: return "order_queue";
    case GB_HOOK_SCORE: return "score_expert";
    case GB_HOOK_COST: return "placement_cost";
    case GB_HOOKS: break;
    }
    GB_UNREACHABLE();
}

void gb_hook_names(char out[GB_HOOK_NAMES_BYTES])
{
    int n = 0;
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        const char *before = hook == 0 ? "" : hook == GB_HOOKS - 1 ? " and " : ", ";
        n += snprintf(out + n, (size_t)(GB_HOOK_NAMES_BYTES - n), "%s%s", before, gb_hook_name((gb_hook)hook));
        GB_ASSERT(n < GB_HOOK_NAMES_BYTES);
    }
}
