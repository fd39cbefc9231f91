#include "bindings/cli/policy_check.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bindings/cli/command.h"
#include "tests/check.h"

/* The JSON report of a script, and its exit code. */
static json_t *report_of(const char *source, int *code)
{
    char path[] = "/tmp/gimbal-policy-XXXXXX", out[] = "/tmp/gimbal-report-XXXXXX";
    int fd = mkstemp(path), to = mkstemp(out), saved = dup(1);
    CHECK(fd >= 0 && to >= 0 && saved >= 0);
    CHECK_EQ(write(fd, source, strlen(source)), strlen(source));
    fflush(stdout);
    dup2(to, 1);
    *code = gb_policy_check(path, true);
    fflush(stdout);
    dup2(saved, 1);
    json_t *report = json_load_file(out, 0, NULL);
    close(fd), close(to), close(saved);
    unlink(path), unlink(out);
    CHECK(report != NULL);
    return report;
}

static json_t *tables_of(const json_t *report) { return json_object_get(report, "tables"); }
static json_int_t number(const json_t *row, const char *key) { return json_integer_value(json_object_get(row, key)); }

static void a_good_policy_is_timed_on_every_table(void)
{
    int code;
    json_t *report = report_of("local policy = {api = 1, name = 'good'}\nfunction policy.select_engine(_, engines) return engines.next end\n"
                               "function policy.order_queue(queue)\nfor i = 0, queue.n - 1 do queue.key[i] = queue.wait_ns[i] end\nend\nreturn policy\n", &code);
    CHECK_EQ(code, GB_EXIT_OK);
    CHECK(json_is_true(json_object_get(report, "ok")));
    CHECK_EQ(json_array_size(tables_of(report)), 15);
    CHECK_EQ(json_array_size(json_object_get(report, "hooks")), 2);
    CHECK_EQ(number(json_array_get(tables_of(report), 0), "allocated_bytes"), 0);
    json_decref(report);
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
    CHECK_EQ(gb_policy_check("/nowhere/x.lua", false), GB_EXIT_FAILED);
}

TESTS(TEST(a_good_policy_is_timed_on_every_table),
      TEST(an_unknown_global_fails_with_its_line),
      TEST(a_fault_on_a_large_table_fails_with_its_line),
      TEST(a_decision_that_allocates_is_seen),
      TEST(what_a_server_would_refuse_is_refused_in_its_words))
