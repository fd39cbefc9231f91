#include "bindings/lua/lua_desk.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bindings/lua/embedded.h"
#include "bindings/lua/lua_file.h"
#include "bindings/lua/lua_host.h"
#include "bindings/lua/lua_policy.h"

struct gb_lua_desk {
    char chunk[256], sha256[GB_SHA256_HEX + 1];
    gb_lua_counts counts;
    gb_lua_policy *script;
    gb_policy policy;
};

enum { DESK_SEED = 1 };

int gb_lua_desk_open(gb_lua_desk **out, const char *chunk, const char *text, size_t bytes, uint32_t engines, const gb_lua_budgets *budgets, gb_error *err)
{
    gb_lua_host_prepare();
    gb_lua_desk *desk = calloc(1, sizeof *desk);
    if (!desk) return gb_fail(err, GB_ENOMEM, "out of memory for policy %s", chunk);
    snprintf(desk->chunk, sizeof desk->chunk, "%s", chunk);
    gb_sha256_hex(desk->sha256, text, bytes);
    gb_lua_script script = {.chunk = desk->chunk, .source = text, .bytes = bytes, .engines = engines};
    gb_lua_vm_options_default(&script.vm);
    script.vm.seed = DESK_SEED;
    if (budgets) script.budgets = *budgets;
    else gb_lua_budgets_default(&script.budgets);
    script.vm.memory_bytes = script.budgets.memory_bytes;
    script.vm.place_memory_bytes = script.budgets.place_memory_bytes;
    int status = gb_lua_policy_new(&desk->script, &script, &desk->counts, err);
    if (status) {
        free(desk);
        return status;
    }
    desk->policy = (gb_policy){.name = gb_lua_policy_name(desk->script), .self = desk->script};
    if (gb_lua_policy_has(desk->script, GB_HOOK_SELECT)) desk->policy.select_engine = gb_lua_policy_select;
    if (gb_lua_policy_has(desk->script, GB_HOOK_ORDER)) desk->policy.order_queue = gb_lua_policy_order;
    gb_lua_policy_label(desk->script, gb_lua_policy_name(desk->script), 0);
    *out = desk;
    return GB_OK;
}

int gb_lua_desk_open_file(gb_lua_desk **out, const char *path, uint32_t engines, gb_error *err)
{
    gb_lua_text text;
    int status = gb_lua_file_read(&text, path, "a policy", GB_LUA_SOURCE_MAX, err);
    if (status) return status;
    status = gb_lua_desk_open(out, path, text.data, text.bytes, engines, NULL, err);
    gb_lua_text_free(&text);
    return status;
}

int gb_lua_desk_open_shipped(gb_lua_desk **out, const char *name, uint32_t engines, gb_error *err)
{
    char path[128];
    snprintf(path, sizeof path, "lua/policies/%s.lua", name);
    const gb_embedded_file *file = gb_embedded_find(path);
    if (!file) return gb_fail(err, GB_ENOTFOUND, "no policy named %s is shipped", name);
    return gb_lua_desk_open(out, path, file->data, file->bytes, engines, NULL, err);
}

void gb_lua_desk_close(gb_lua_desk *desk)
{
    if (!desk) return;
    gb_lua_policy_free(desk->script);
    free(desk);
}

const gb_policy *gb_lua_desk_policy(const gb_lua_desk *desk) { return &desk->policy; }
bool gb_lua_desk_has(const gb_lua_desk *desk, gb_hook hook) { return gb_lua_policy_has(desk->script, hook); }

int gb_lua_desk_place(gb_lua_desk *desk, gb_rearrangement *r)
{
    bool costs = gb_lua_desk_has(desk, GB_HOOK_COST);
    int answer = GB_POLICY_NIL;
    if (costs || gb_lua_desk_has(desk, GB_HOOK_SCORE)) answer = gb_lua_policy_place(desk->script, costs ? GB_HOOK_COST : GB_HOOK_SCORE, r, 0);
    if (answer != GB_OK) gb_rearrange_built_in(r);
    else if (costs) gb_rearrange_search(r);
    return answer;
}

const char *gb_lua_desk_name(const gb_lua_desk *desk) { return desk->policy.name; }
const char *gb_lua_desk_fault(const gb_lua_desk *desk) { return desk->counts.last_fault; }

const char *gb_lua_desk_sha256(const gb_lua_desk *desk) { return desk->sha256; }

int gb_lua_desk_restore(gb_lua_desk *desk, const gb_lua_snapshot *snapshot, gb_error *err)
{
    return gb_lua_policy_restore_params(desk->script, snapshot, err);
}

int gb_lua_desk_set(gb_lua_desk *desk, const gb_lua_setting *setting, gb_error *err)
{
    return gb_lua_policy_set_param(desk->script, setting->name, &setting->value, err);
}

bool gb_lua_desk_set_number(gb_lua_desk *desk, const char *param, double number)
{
    gb_error ignored;
    return gb_lua_policy_set_param(desk->script, param, &(gb_lua_value){.type = GB_LUA_NUMBER, .number = number}, &ignored) == GB_OK;
}

void gb_lua_desk_try(gb_lua_desk *desk, gb_lua_snapshot *snapshot, gb_lua_trial *trial)
{
    gb_lua_policy_try(desk->script, snapshot, trial);
}

/* ---- windows and state ---- */

bool gb_lua_desk_wants_windows(const gb_lua_desk *desk) { return gb_lua_policy_wants_windows(desk->script); }

int gb_lua_desk_window(gb_lua_desk *desk, const gb_window_table *window, gb_time now, gb_error *err)
{
    return gb_lua_desk_wants_windows(desk) ? gb_lua_policy_window(desk->script, window, now, err) : GB_OK;
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int hand_over(gb_lua_policy *from, gb_lua_policy *to, gb_lua_carry *carry, gb_lua_handover *h, gb_error *err)
{
    uint64_t start = thread_cpu_ns();
    int status = gb_lua_policy_export(from, &h->exported, carry, err);
    h->export_ns = thread_cpu_ns() - start;
    if (status || !h->exported) return status;
    h->bytes = carry->bytes;
    start = thread_cpu_ns();
    status = gb_lua_policy_import(to, carry, 1, err);
    h->import_ns = thread_cpu_ns() - start;
    return status;
}

int gb_lua_desk_hand_over(gb_lua_desk *from, gb_lua_desk *to, gb_lua_handover *handover, gb_error *err)
{
    *handover = (gb_lua_handover){.exports = gb_lua_policy_exports(from->script), .imports = gb_lua_policy_imports(to->script)};
    gb_lua_carry *carry = malloc(sizeof *carry);
    if (!carry) return gb_fail(err, GB_ENOMEM, "out of memory for the state of policy %s", from->chunk);
    int status = hand_over(from->script, to->script, carry, handover, err);
    free(carry);
    return status;
}
