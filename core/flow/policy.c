#include "core/flow/policy.h"

#include "core/base/assert.h"

const char *gb_hook_name(gb_hook hook)
{
    switch (hook) {
    case GB_HOOK_SELECT: return "select_engine";
    case GB_HOOK_ORDER: return "order_queue";
    case GB_HOOKS: break;
    }
    GB_UNREACHABLE();
}
