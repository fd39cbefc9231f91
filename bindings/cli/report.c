#include "bindings/cli/report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bindings/c/version.h"
#include "bindings/cli/command.h"
#include "core/base/assert.h"

/* ---- rows ---- */

gb_report_row *gb_report_add(gb_report *report, const char *name, double value, const char *unit)
{
    GB_ASSERT(report->n < GB_REPORT_ROWS_MAX);
    gb_report_row *row = &report->rows[report->n++];
    *row = (gb_report_row){.value = value};
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->unit, sizeof row->unit, "%s", unit);
    return row;
}

void gb_report_note(gb_report_row *row, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(row->note, sizeof row->note, format, args);
    va_end(args);
}

void gb_report_bound(gb_report_row *row, gb_bound direction, double bound)
{
    row->direction = direction;
    row->bound = bound;
}

bool gb_report_holds(const gb_report_row *row)
{
    if (row->direction == GB_BOUND_AT_LEAST) return row->value >= row->bound;
    if (row->direction == GB_BOUND_AT_MOST) return row->value <= row->bound;
    return true;
}

/* ---- the machine ---- */

static void cpu_name(char *out, size_t capacity)
{
    char line[256];
    snprintf(out, capacity, "unknown CPU");
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        const char *value = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (!value) continue;
        snprintf(out, capacity, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
        break;
    }
    fclose(f);
}

void gb_report_machine(char *out, size_t capacity)
{
    char cpu[128], day[32];
    time_t now = time(NULL);
    cpu_name(cpu, sizeof cpu);
    strftime(day, sizeof day, "%Y-%m-%d", localtime(&now));
    snprintf(out, capacity, "%s, %ld CPUs, %s", cpu, sysconf(_SC_NPROCESSORS_ONLN), day);
}

/* ---- the table ---- */

static const char *verdict(const gb_report_row *row)
{
    if (row->direction == GB_BOUND_NONE) return "";
    if (row->inconclusive) return "inconclusive";
    return gb_report_holds(row) ? "ok" : "MISSED";
}

static void format_bound(char *out, size_t capacity, const gb_report_row *row)
{
    if (row->direction == GB_BOUND_NONE) out[0] = '\0';
    else snprintf(out, capacity, "%s %.4g", row->direction == GB_BOUND_AT_LEAST ? ">=" : "<=", row->bound);
}

static void print_rows(const gb_report *report)
{
    char bound[32], value[32];
    printf("%-44s%10s %-8s%s\n", "figure", "value", "", "bound");
    for (uint32_t i = 0; i < report->n; i++) {
        const gb_report_row *row = &report->rows[i];
        format_bound(bound, sizeof bound, row);
        snprintf(value, sizeof value, row->value >= 1000 ? "%.0f" : "%.4g", row->value);
        printf("%-44s%10s %s", row->name, value, row->unit);
        if (row->direction != GB_BOUND_NONE) printf("%*s%-10s%s", (int)(8 - strlen(row->unit)), "", bound, verdict(row));
        printf("%s%s\n", row->note[0] ? "   " : "", row->note);
    }
}

typedef struct tally {
    uint32_t bounds, held, missed, inconclusive;
} tally;

static tally count(const gb_report *report)
{
    tally t = {0};
    for (uint32_t i = 0; i < report->n; i++) {
        const gb_report_row *row = &report->rows[i];
        if (row->direction == GB_BOUND_NONE) continue;
        t.bounds++;
        if (row->inconclusive) t.inconclusive++;
        else if (gb_report_holds(row)) t.held++;
        else t.missed++;
    }
    return t;
}

static void append_rows(char *out, size_t capacity, const gb_report *report, bool inconclusive)
{
    for (uint32_t i = 0, n = 0; i < report->n; i++) {
        const gb_report_row *row = &report->rows[i];
        if (row->direction == GB_BOUND_NONE || row->inconclusive != inconclusive || (!inconclusive && gb_report_holds(row))) continue;
        size_t used = strlen(out);
        snprintf(out + used, capacity - used, "%s%s (%.4g %s, bound %.4g)", n++ ? ", " : "", row->name, row->value, row->unit, row->bound);
    }
}

static void summary(char *out, size_t capacity, const gb_report *report, tally t)
{
    if (t.bounds) snprintf(out, capacity, "bench %s: %u of %u bounds hold", report->bench, t.held, t.bounds);
    else snprintf(out, capacity, "bench %s: no bounds for this setting", report->bench);
    if (t.missed) {
        strncat(out, "; missed: ", capacity - strlen(out) - 1);
        append_rows(out, capacity, report, false);
    }
    if (t.inconclusive) {
        strncat(out, "; inconclusive, for others used this machine in every try: ", capacity - strlen(out) - 1);
        append_rows(out, capacity, report, true);
    }
}

/* ---- JSON ---- */

static json_t *row_json(const gb_report_row *row)
{
    json_t *value = isfinite(row->value) ? json_real(row->value) : json_null();
    json_t *o = json_pack("{s:s, s:o, s:s}", "name", row->name, "value", value, "unit", row->unit);
    if (row->note[0]) json_object_set_new(o, "note", json_string(row->note));
    if (row->direction == GB_BOUND_NONE) return o;
    json_object_set_new(o, "bound", json_real(row->bound));
    json_object_set_new(o, "direction", json_string(row->direction == GB_BOUND_AT_LEAST ? "at_least" : "at_most"));
    json_object_set_new(o, "pass", row->inconclusive ? json_null() : json_boolean(gb_report_holds(row)));
    return o;
}

static int write_json(const gb_report *report, const char *file, const char *machine, const char *last_line, gb_error *err)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < report->n; i++) json_array_append_new(rows, row_json(&report->rows[i]));
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:s}", "bench", report->bench, "version", gb_version(), "git", gb_git_revision(),
                          "machine", machine, "setting", report->setting, "rows", rows, "summary", last_line);
    errno = 0;
    int failed = json_dump_file(o, file, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    json_decref(o);
    return failed ? gb_fail(err, GB_EIO, "%s cannot be written: %s", file, strerror(errno)) : GB_OK;
}

int gb_report_can_write(const char *json_file, gb_error *err)
{
    FILE *f = *json_file ? fopen(json_file, "a") : NULL;
    if (*json_file && !f) return gb_fail(err, GB_EIO, "%s cannot be written: %s", json_file, strerror(errno));
    if (f) fclose(f);
    return GB_OK;
}

int gb_report_finish(const gb_report *report, const char *json_file, bool check, int *code, gb_error *err)
{
    char machine[256], last_line[2048];
    tally t = count(report);
    gb_report_machine(machine, sizeof machine);
    summary(last_line, sizeof last_line, report, t);
    printf("%s\n%s\n\n", machine, report->setting);
    print_rows(report);
    printf("\n%s\n", last_line);
    *code = !check ? GB_EXIT_OK : t.missed ? GB_EXIT_FAILED : t.inconclusive ? GB_EXIT_RETRY : GB_EXIT_OK;
    return json_file && *json_file ? write_json(report, json_file, machine, last_line, err) : GB_OK;
}
