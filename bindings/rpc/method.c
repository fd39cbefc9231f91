#include "bindings/rpc/method.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bindings/rpc/params.h"

const gb_rpc_field gb_rpc_no_fields[] = {{0}};

const gb_rpc_theme gb_rpc_themes[] = {
    {"Session", gb_rpc_session_methods},
    {"Text and tokens", gb_rpc_text_methods},
    {"Generating", gb_rpc_generate_methods},
    {"Looking in", gb_rpc_look_methods},
    {"Policies", gb_rpc_policy_methods},
    {"What policies did", gb_rpc_policy_log_methods},
    {"Checking policies", gb_rpc_policy_check_methods},
    {"Changing policies", gb_rpc_policy_change_methods},
    {"Comparing policies", gb_rpc_policy_shadow_methods},
    {"Comparing policies on recorded decisions", gb_rpc_policy_diff_methods},
    {"Moving experts", gb_rpc_place_methods},
    {"Subscriptions", gb_rpc_subscribe_methods},
    {0},
};

const gb_rpc_method *gb_rpc_method_find(const char *name, size_t bytes)
{
    for (const gb_rpc_theme *t = gb_rpc_themes; t->title; t++)
        for (const gb_rpc_method *m = t->methods; m->name; m++)
            if (strlen(m->name) == bytes && memcmp(m->name, name, bytes) == 0) return m;
    return NULL;
}

const gb_rpc_method *gb_rpc_method_nearest(const char *name, size_t bytes)
{
    for (const gb_rpc_theme *t = gb_rpc_themes; t->title; t++)
        for (const gb_rpc_method *m = t->methods; m->name; m++)
            if (gb_rpc_is_near(name, bytes, m->name)) return m;
    return NULL;
}

gb_rpc_outcome gb_rpc_fail(gb_rpc_call *call, int code, const char *path, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(call->error.sentence.text, sizeof call->error.sentence.text, format, args);
    va_end(args);
    call->error.code = code;
    snprintf(call->error.path, sizeof call->error.path, "%s", path ? path : "");
    return GB_RPC_FAILED;
}

gb_rpc_outcome gb_rpc_fail_status(gb_rpc_call *call, int status, const char *path)
{
    call->error.code = gb_rpc_error_of_status(status);
    snprintf(call->error.path, sizeof call->error.path, "%s", path ? path : "");
    if (!call->error.sentence.text[0]) gb_fail(&call->error.sentence, status, "%s", gb_status_message(status));
    return GB_RPC_FAILED;
}
