#include "bindings/cli/policy_check.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bindings/cli/command.h"
#include "tests/check.h"

/* The JSON report of a script, and its exit code. recorded: a file of snapshots, or NULL. */
static json_t *report_on(const char *source, const char *recorded, int *code)
{
    char path[] = "/tmp/gimbal-policy-XXXXXX", out[] = "/tmp/gimbal-report-XXXXXX";
    int fd = mkstemp(path), to = mkstemp(out), saved = dup(1);
    CHECK(fd >= 0 && to >= 0 && saved >= 0);
    CHECK_EQ(write(fd, source, strlen(source)), strlen(source));
    fflush(stdout);
    dup2(to, 1);
    *code = gb_policy_check(path, "-", recorded, 0, true);
    fflush(stdout);
    dup2(saved, 1);
    json_t *report = json_load_file(out, 0, NULL);
    close(fd), close(to), close(saved);
    unlink(path), unlink(out);
    CHECK(report != NULL);
    return report;
}

static json_t *report_of(const char *source, int *code) { return report_on(source, NULL, code); }

static json_t *tables_of(const json_t *report) { return json_object_get(report, "tables"); }
static json_int_t number(const json_t *row, const char *key) { return json_integer_value(json_object_get(row, key)); }

static void a_good_policy_is_timed_on_every_table(void)
{
    int code;
    json_t *report = report_of("local policy = {api = 1, name = 'good'}\nfunction policy.select_engine(_, engines) return engines.next end\n"
                               "function policy.order_queue(queue)\nfor i = 0, queue.n - 1 do queue.key[i] = queue.wait_ns[i] end\nend\nreturn policy\n", &code);
    CHECK_EQ(code, GB_EXIT_OK);
    CHECK(json_is_true(json_object_get(report, "ok")));
    CHECK_EQ(json_array_size(tables_of(report)), 17);    /* with the shipped snapshots of each hook */
    CHECK_EQ(json_array_size(json_object_get(report, "hooks")), 2);
    CHECK_EQ(number(json_array_get(tables_of(report), 0), "allocated_bytes"), 0);
    json_decref(report);
}

static void a_policy_for_one_server_is_tried_with_its_number_of_engines(void)
{
    static gb_check check;
    char path[] = "/tmp/gimbal-policy-XXXXXX";
    const char source[] = "return {api = 1, select_engine = function() return 1 end}\n";
    int fd = mkstemp(path);
    gb_error err = {{0}};
    gb_lua_budgets budgets;
    gb_lua_budgets_default(&budgets);
    CHECK_EQ(write(fd, source, sizeof source - 1), sizeof source - 1);
    close(fd);
    CHECK_EQ(gb_check_run(&check, path, "-", NULL, 2, &budgets, &err), GB_OK);
    CHECK(gb_check_is_good(&check));
    CHECK_CONTAINS(check.outcomes[0].tables, "2 engines");
    CHECK_EQ(gb_check_run(&check, path, "-", NULL, 1, &budgets, &err), GB_OK);
    CHECK(!gb_check_is_good(&check));
    CHECK_EQ(gb_check_run(&check, path, "-", NULL, 0, &budgets, &err), GB_OK);
    CHECK(!gb_check_is_good(&check));
    unlink(path);
}

static void an_unknown_global_fails_with_its_line(void)
{
    int code;
    json_t *report = report_of("local policy = {api = 1}\nfunction policy.select_engine(request)\nif request.priority == 77 then return tonumbre('3') end\n"
                               "return 0\nend\nreturn policy\n", &code);
    CHECK_EQ(code, GB_EXIT_FAILED);
    CHECK_EQ(number(json_array_get(json_object_get(report, "globals"), 0), "line"), 3);
    json_decref(report);
}

static void a_fault_on_a_large_table_fails_with_its_line(void)
{
    int code;
    json_t *report = report_of("local policy = {api = 1}\nfunction policy.order_queue(queue)\nif queue.n > 1000 then error('too long') end\n"
                               "for i = 0, queue.n - 1 do queue.key[i] = 1 end\nend\nreturn policy\n", &code);
    CHECK_EQ(code, GB_EXIT_FAILED);
    const json_t *row = json_array_get(tables_of(report), 2);
    CHECK(number(row, "faults") > 0);
    CHECK_CONTAINS(json_string_value(json_object_get(row, "fault")), ":3: too long");
    json_decref(report);
}

static void a_decision_that_allocates_is_seen(void)
{
    int code;
    json_t *report = report_of("local policy = {api = 1}\nlocal kept\nfunction policy.select_engine(_, engines)\nkept = {engines.n, engines.next}\n"
                               "return engines.next\nend\nreturn policy\n", &code);
    CHECK_EQ(code, GB_EXIT_OK);
    CHECK(number(json_array_get(tables_of(report), 0), "allocated_bytes") > 0);
    json_decref(report);
}

static void what_a_server_would_refuse_is_refused_in_its_words(void)
{
    int code;
    json_t *report = report_of("return {api = 2}\n", &code);
    CHECK_EQ(code, GB_EXIT_FAILED);
    CHECK_CONTAINS(json_string_value(json_object_get(report, "refusal")), "api 1");
    json_decref(report);
    report = report_of("return return\n", &code);
    CHECK_EQ(code, GB_EXIT_FAILED);
    CHECK_CONTAINS(json_string_value(json_object_get(report, "refusal")), ":1: ");
    json_decref(report);
    CHECK_EQ(gb_policy_check("/nowhere/x.lua", "-", NULL, 0, false), GB_EXIT_FAILED);
}

static const json_t *row_of(const json_t *report, const char *hook, const char *tables)
{
    size_t i;
    const json_t *row;
    json_array_foreach(tables_of(report), i, row) {
        if (strcmp(json_string_value(json_object_get(row, "hook")), hook) == 0 && strstr(json_string_value(json_object_get(row, "tables")), tables)) return row;
    }
    check_fail(__FILE__, __LINE__, "no row has %s on %s", hook, tables);
    return NULL;
}

#define LAST "function policy.select_engine(_, engines) return engines.n - 1 end\n"

static void windows_are_shown_to_a_policy_that_wants_them(void)
{
    int code;
    json_t *report = report_of("local policy, sum = {api = 1}, 0\n" LAST "function policy.on_window(window)\n"
                               "for i = 0, window.n - 1 do sum = sum + window.tokens[i] end\nend\nreturn policy\n", &code);
    CHECK_EQ(code, GB_EXIT_OK);
    CHECK_EQ(number(row_of(report, "on_window", "48 layers, 8 engines, 128 experts, 64 ranks"), "faults"), 0);
    json_decref(report);
    report = report_of("local policy = {api = 1}\n" LAST "function policy.on_window(window)\nif window.layers > 2 then error('too many') end\n"
                       "end\nreturn policy\n", &code);
    CHECK_EQ(code, GB_EXIT_FAILED);
    CHECK_CONTAINS(json_string_value(json_object_get(row_of(report, "on_window", "48 layers"), "fault")), ":4: too many");
    json_decref(report);
}

static void hooks_that_place_experts_are_tried_on_made_up_windows(void)
{
    int code;
    json_t *report = report_of("local policy = {api = 1}\nfunction policy.score_expert(layer, expert, ranks)\n"
                               "for r = 0, ranks.n - 1 do ranks.score[r] = ranks.load[r] end\nend\nreturn policy\n", &code);
    CHECK_EQ(code, GB_EXIT_OK);
    CHECK_EQ(number(row_of(report, "score_expert", "48 layers, 8 engines, 128 experts, 64 ranks"), "faults"), 0);
    json_decref(report);
    report = report_of("local policy = {api = 1}\nfunction policy.placement_cost(layer, window, out)\nif window.ranks > 20 then error('many') end\n"
                       "for i = 0, out.n - 1 do out.cost[i] = 1 end\nfor e = 0, out.experts - 1 do out.load[e] = 1 end\nend\nreturn policy\n", &code);
    CHECK_EQ(code, GB_EXIT_FAILED);
    CHECK_EQ(number(row_of(report, "placement_cost", "16 ranks"), "faults"), 0);
    CHECK_CONTAINS(json_string_value(json_object_get(row_of(report, "placement_cost", "64 ranks"), "fault")), ":3: many");
    json_decref(report);
}

static void a_hook_with_too_many_parameters_is_refused(void)
{
    int code;
    json_t *report = report_of("return {api = 1, select_engine = function(request, engines, now) return 0 end}\n", &code);
    CHECK_EQ(code, GB_EXIT_FAILED);
    CHECK_CONTAINS(json_string_value(json_object_get(report, "refusal")),
                   "policy.select_engine takes 3 parameters; it is called with (request, engines)");
    json_decref(report);
    report = report_of("return {api = 1, select_engine = function(...) return 0 end, import = function(state, from_version) end}\n", &code);
    CHECK_EQ(code, GB_EXIT_OK);
    json_decref(report);
}

static void state_is_handed_to_a_fresh_copy_of_the_policy(void)
{
    int code;
    static const char carries[] = "local policy, seen = {api = 1}, 0\nfunction policy.select_engine(_, engines) seen = seen + 1 return engines.next end\n"
                                  "function policy.export() return {seen = seen} end\n";
    char source[1024];
    snprintf(source, sizeof source, "%sfunction policy.import(state) seen = state.seen end\nreturn policy\n", carries);
    json_t *report = report_of(source, &code);
    CHECK_EQ(code, GB_EXIT_OK);
    CHECK_EQ(number(row_of(report, "export", "bytes of state"), "faults"), 0);
    CHECK_EQ(number(row_of(report, "import", "bytes of state"), "faults"), 0);
    json_decref(report);
    snprintf(source, sizeof source, "%sfunction policy.import(state) seen = state.scene + 1 end\nreturn policy\n", carries);
    report = report_of(source, &code);
    CHECK_EQ(code, GB_EXIT_FAILED);
    CHECK_CONTAINS(json_string_value(json_object_get(row_of(report, "import", "bytes of state"), "fault")), ":4: ");
    json_decref(report);
    report = report_of("local policy = {api = 1}\n" LAST "function policy.export() return {f = policy.export} end\nreturn policy\n", &code);
    CHECK_EQ(code, GB_EXIT_FAILED);
    CHECK_CONTAINS(json_string_value(json_object_get(row_of(report, "export", "state"), "fault")), "is a function");
    json_decref(report);
}

static void every_call_has_its_share_of_the_budget(void)
{
    int code;
    json_int_t calls = 0;
    json_t *report = report_of("local policy = {api = 1}\n" LAST "return policy\n", &code);
    const json_t *row = row_of(report, "select_engine", "8 engines, busy"), *shares = json_object_get(row, "shares");
    CHECK_EQ(json_array_size(shares), GB_CHECK_SHARES);
    for (size_t i = 0; i < json_array_size(shares); i++) calls += json_integer_value(json_array_get(shares, i));
    CHECK_EQ(calls, number(row, "calls"));
    CHECK(json_number_value(json_object_get(row, "p50_us")) <= json_number_value(json_object_get(row, "p99_us")));
    CHECK(json_number_value(json_object_get(row, "p99_us")) <= json_number_value(json_object_get(row, "max_us")));
    json_decref(report);
}

/* Of each kind of table a few faults are enough, so that a runaway does not hold a check up. */
static void a_policy_that_always_fails_is_not_tried_for_long(void)
{
    int code;
    json_t *report = report_of("local policy = {api = 1}\nfunction policy.select_engine(_, engines)\nif engines.n > 100 then while true do end end\n"
                               "return 0\nend\nreturn policy\n", &code);
    CHECK_EQ(code, GB_EXIT_FAILED);
    CHECK_CONTAINS(json_string_value(json_object_get(report, "refusal")), "time budget");
    json_decref(report);
    report = report_of("local policy = {api = 1}\nfunction policy.select_engine(_, engines)\nif gimbal.now() == 1e9 then error('late') end\n"
                       "return 0\nend\nreturn policy\n", &code);
    CHECK_EQ(code, GB_EXIT_FAILED);
    CHECK(number(row_of(report, "select_engine", "8 engines, idle"), "calls") < 20);
    json_decref(report);
}

static void recorded_snapshots_are_decided_too(void)
{
    int code;
    char path[] = "/tmp/gimbal-recorded-XXXXXX";
    int fd = mkstemp(path);
    static const char lines[] = "{\"gimbal_snapshot\":1,\"hook\":\"select_engine\",\"now_ns\":5,\"request\":{\"priority\":7},\"engines\":{\"n\":2,\"next\":0}}\n"
                                "{\"gimbal_snapshot\":1,\"hook\":\"order_queue\",\"now_ns\":5,\"queue\":{\"n\":2,\"engine\":0}}\n";
    CHECK_EQ(write(fd, lines, sizeof lines - 1), sizeof lines - 1);
    json_t *report = report_on("local policy = {api = 1}\nfunction policy.select_engine(request)\nif request.priority == 7 then error('seven') end\n"
                               "return 0\nend\nreturn policy\n", path, &code);
    CHECK_EQ(code, GB_EXIT_FAILED);
    CHECK_CONTAINS(json_string_value(json_object_get(row_of(report, "select_engine", "1 recorded snapshot"), "fault")), ":3: seven");
    json_decref(report);
    CHECK_EQ(write(fd, "{}\n", 3), 3);
    close(fd);
    gb_check check;
    gb_error err = {{0}};
    gb_lua_budgets budgets;
    gb_lua_budgets_default(&budgets);
    CHECK_EQ(gb_check_run(&check, check_path("lua/policies/gimbal.lua"), "-", path, 0, &budgets, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, ":3 is no snapshot");
    unlink(path);
}

TESTS(TEST(hooks_that_place_experts_are_tried_on_made_up_windows), TEST(a_hook_with_too_many_parameters_is_refused), TEST(windows_are_shown_to_a_policy_that_wants_them), TEST(state_is_handed_to_a_fresh_copy_of_the_policy),
      TEST(every_call_has_its_share_of_the_budget), TEST(a_policy_that_always_fails_is_not_tried_for_long),
      TEST(recorded_snapshots_are_decided_too), TEST(a_good_policy_is_timed_on_every_table),
      TEST(an_unknown_global_fails_with_its_line),
      TEST(a_fault_on_a_large_table_fails_with_its_line),
      TEST(a_decision_that_allocates_is_seen), TEST(a_policy_for_one_server_is_tried_with_its_number_of_engines),
      TEST(what_a_server_would_refuse_is_refused_in_its_words))
