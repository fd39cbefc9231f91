/* gimbal policy diff A B: two policies on recorded decisions, of a journal or of a running server. */
#include "bindings/cli/policy_verbs.h"

#include <stdlib.h>
#include <string.h>

#include "bindings/lua/lua_diff.h"

static void print_diff(const json_t *diff)
{
    size_t i;
    json_t *one;
    json_int_t differing = 0;
    json_array_foreach(json_object_get(diff, "hooks"), i, one) {
        gb_policy_print_comparison(one, "a", "b");
        differing += gb_policy_int(one, "decisions") - gb_policy_int(one, "agreed");
    }
    printf("%lld decisions looked at, %lld of hooks that neither has%s%s\n", (long long)gb_policy_int(diff, "decisions"),
           (long long)gb_policy_int(diff, "left_out"), json_is_true(json_object_get(diff, "cut")) ? "; the journal's last line is cut off and left out" : "",
           json_is_true(json_object_get(diff, "out_of_time")) ? "; there were more, but the time was up" : "");
    if (!differing) return;
    printf("%10s  %-16s %8s %8s %8s  %s\n", "decision", "hook", "a", "b", "live", "inputs");
    json_array_foreach(json_object_get(diff, "differences"), i, one)
        printf("%10lld  %-16s %8lld %8lld %8lld  %s\n", (long long)gb_policy_int(one, "decision"), gb_policy_text(one, "hook"), (long long)gb_policy_int(one, "a"),
               (long long)gb_policy_int(one, "b"), (long long)gb_policy_int(one, "live"), gb_policy_text(one, "inputs"));
    if (differing > (json_int_t)json_array_size(json_object_get(diff, "differences"))) printf("and %lld more\n", (long long)(differing - (json_int_t)i));
}

/* ---- of a running server ---- */

static int find(gb_remote *remote, const char *word, json_int_t *version, gb_error *err)
{
    *version = 0;
    return strcmp(word, "builtin") == 0 ? GB_OK : gb_policy_find_version(remote, word, version, err);
}

int gb_policy_diff(gb_remote *remote, const gb_args *args, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    json_int_t a, b;
    json_t *result = NULL;
    int status = find(remote, args->words[1], &a, err);
    if (!status) status = find(remote, args->words[2], &b, err);
    if (status) return status;
    json_t *params = json_pack("{s:I, s:I}", "a", a, "b", b);
    if (params && gb_args_given(args, "most")) json_object_set_new(params, "most", json_integer(f->most));
    status = gb_remote_call(remote, "policy_diff", params, &result, err);
    if (!status && f->json) gb_policy_print_json(result);
    else if (!status) print_diff(result);
    json_decref(result);
    return status;
}

/* ---- of a journal ---- */

static json_t *side_json(const gb_lua_comparison *c, int which, gb_hook hook)
{
    const gb_lua_side *side = &c->sides[which];
    json_t *json = json_pack("{s:I, s:I, s:f, s:f, s:f}", "nils", (json_int_t)side->nils, "faults", (json_int_t)side->faults, "mean_us",
                             gb_lua_costs_mean_ns(&side->costs) / 1e3, "p50_us", gb_lua_costs_within_ns(&side->costs, 0.5) / 1e3, "p99_us",
                             gb_lua_costs_within_ns(&side->costs, 0.99) / 1e3);
    if (json && hook == GB_HOOK_SELECT) {
        json_object_set_new(json, "spread", json_real(gb_lua_side_spread(c, which)));
        json_object_set_new(json, "moe_pressure", json_real(gb_lua_side_moe(c, which)));
    }
    if (json && side->last_fault[0]) json_object_set_new(json, "last_fault", json_string(side->last_fault));
    return json;
}

static json_t *hooks_json(const gb_lua_diff *diff)
{
    json_t *hooks = json_array();
    for (int hook = GB_HOOK_SELECT; hook <= GB_HOOK_ORDER; hook++) {
        const gb_lua_comparison *c = &diff->comparisons[hook];
        if (!c->decisions) continue;
        json_array_append_new(hooks, json_pack("{s:s, s:I, s:I, s:f, s:o, s:o}", "hook", gb_hook_name((gb_hook)hook), "decisions", (json_int_t)c->decisions,
                                               "agreed", (json_int_t)c->agreed, "agreement_percent", 100.0 * (double)c->agreed / (double)c->decisions, "a",
                                               side_json(c, 0, (gb_hook)hook), "b", side_json(c, 1, (gb_hook)hook)));
    }
    return hooks;
}

/* As the server answers policy_diff, with "cut" besides. */
static json_t *diff_json(const gb_lua_diff *diff)
{
    json_t *differences = json_array();
    for (uint64_t i = 0; i < diff->n_differences && i < GB_LUA_DIFFERENCES_KEPT; i++) {
        const gb_lua_difference *d = &diff->differences[i];
        char inputs[17];
        snprintf(inputs, sizeof inputs, "%016llx", (unsigned long long)d->inputs);
        json_array_append_new(differences, json_pack("{s:I, s:s, s:s, s:i, s:i, s:i}", "decision", (json_int_t)d->decision, "hook", gb_hook_name(d->hook),
                                                     "inputs", inputs, "a", d->answers[0], "b", d->answers[1], "live", d->live));
    }
    return json_pack("{s:I, s:I, s:b, s:b, s:o, s:o}", "decisions", (json_int_t)diff->decisions, "left_out", (json_int_t)diff->left_out, "cut", diff->cut,
                     "out_of_time", diff->out_of_time, "hooks", hooks_json(diff), "differences", differences);
}

static int open_desk(gb_lua_desk **desk, const char *word, uint32_t engines, gb_error *err)
{
    size_t n = strlen(word);
    if (strcmp(word, "builtin") == 0) return GB_OK;
    if (strchr(word, '/') || (n > 4 && strcmp(word + n - 4, ".lua") == 0)) return gb_lua_desk_open_file(desk, word, engines, err);
    return gb_lua_desk_open_shipped(desk, word, engines, err);
}

static int run_diff(gb_lua_diff *diff, const gb_args *args, const char *path, gb_error *err)
{
    gb_lua_journal_reader *reader = NULL;
    gb_lua_journal_header header;
    gb_lua_desk *desks[2] = {NULL, NULL};
    int status = gb_lua_journal_read(&reader, path, &header, err);
    for (int side = 0; side < 2 && !status; side++) status = open_desk(&desks[side], args->words[1 + side], header.engines, err);
    if (!status) status = gb_lua_diff_run(diff, desks, reader, &header, 0, err);
    for (int side = 0; side < 2; side++) gb_lua_desk_close(desks[side]);
    gb_lua_journal_read_end(reader);
    return status;
}

int gb_policy_diff_journal(const gb_args *args)
{
    static gb_lua_diff diff;
    const gb_policy_flags *f = args->values;
    gb_error err = {{0}};
    int status = run_diff(&diff, args, f->on, &err);
    if (status) return gb_command_failed(status, &err);
    json_t *json = diff_json(&diff);
    if (f->json) gb_policy_print_json(json);
    else print_diff(json);
    json_decref(json);
    return GB_EXIT_OK;
}
