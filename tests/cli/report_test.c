#include "bindings/cli/report.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/cli/command.h"
#include "tests/check.h"

static gb_report_row *row(gb_report *report, double value, gb_bound direction, double bound)
{
    gb_report_row *r = gb_report_add(report, "share", value, "%");
    gb_report_bound(r, direction, bound);
    return r;
}

static int finish(const gb_report *report, bool check)
{
    int code = -1;
    gb_error err = {0};
    CHECK_EQ(gb_report_finish(report, NULL, check, &code, &err), 0);
    return code;
}

static void bounds_hold_in_their_direction(void)
{
    gb_report report = {.bench = "test"};
    CHECK(gb_report_holds(row(&report, 85, GB_BOUND_AT_LEAST, 85)));
    CHECK(!gb_report_holds(row(&report, 84.9, GB_BOUND_AT_LEAST, 85)));
    CHECK(gb_report_holds(row(&report, 0.1, GB_BOUND_AT_MOST, 0.1)));
    CHECK(!gb_report_holds(row(&report, 0.2, GB_BOUND_AT_MOST, 0.1)));
    CHECK(!gb_report_holds(row(&report, NAN, GB_BOUND_AT_LEAST, 85)));
    CHECK(gb_report_holds(gb_report_add(&report, "info", 1, "x")));
}

static void check_fails_for_a_missed_bound_and_only_with_check(void)
{
    gb_report report = {.bench = "test"};
    row(&report, 90, GB_BOUND_AT_LEAST, 85);
    CHECK_EQ(finish(&report, true), GB_EXIT_OK);
    row(&report, 80, GB_BOUND_AT_LEAST, 85);
    CHECK_EQ(finish(&report, true), GB_EXIT_FAILED);
    CHECK_EQ(finish(&report, false), GB_EXIT_OK);
}

static void an_inconclusive_figure_is_never_a_pass(void)
{
    gb_report report = {.bench = "test"};
    row(&report, 90, GB_BOUND_AT_LEAST, 85)->inconclusive = true;
    CHECK_EQ(finish(&report, true), GB_EXIT_RETRY);
    row(&report, 80, GB_BOUND_AT_LEAST, 85);
    CHECK_EQ(finish(&report, true), GB_EXIT_FAILED);
}

static void json_holds_the_same_rows_and_the_last_line(void)
{
    char file[] = "/tmp/gimbal-report-XXXXXX";
    int code, fd = mkstemp(file);
    gb_error err = {0};
    gb_report report = {.bench = "test", .setting = "two threads"};
    gb_report_note(row(&report, 80.5, GB_BOUND_AT_LEAST, 85), "of %d tries", 3);
    gb_report_add(&report, "rate", 12.25, "tok/s");
    CHECK(fd >= 0);
    CHECK_EQ(gb_report_finish(&report, file, false, &code, &err), 0);
    json_t *json = json_load_file(file, 0, NULL), *first = json_array_get(json_object_get(json, "rows"), 0);
    CHECK_STR(json_string_value(json_object_get(json, "bench")), "test");
    CHECK_STR(json_string_value(json_object_get(json, "setting")), "two threads");
    CHECK_STR(json_string_value(json_object_get(first, "direction")), "at_least");
    CHECK_STR(json_string_value(json_object_get(first, "note")), "of 3 tries");
    CHECK_NEAR(json_real_value(json_object_get(first, "value")), 80.5, 1e-9);
    CHECK(json_is_false(json_object_get(first, "pass")));
    CHECK(!json_object_get(json_array_get(json_object_get(json, "rows"), 1), "bound"));
    CHECK_CONTAINS(json_string_value(json_object_get(json, "summary")), "missed: share");
    json_decref(json);
    close(fd), unlink(file);
    CHECK_EQ(gb_report_can_write("", &err), 0);
    CHECK_EQ(gb_report_can_write("/nowhere/x.json", &err), GB_EIO);
    CHECK_EQ(gb_report_finish(&report, "/nowhere/x.json", false, &code, &err), GB_EIO);
    CHECK_CONTAINS(err.text, "/nowhere/x.json");
}

TESTS(TEST(bounds_hold_in_their_direction),
      TEST(check_fails_for_a_missed_bound_and_only_with_check),
      TEST(an_inconclusive_figure_is_never_a_pass),
      TEST(json_holds_the_same_rows_and_the_last_line))
