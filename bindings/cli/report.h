/* The figures of a bench: a table with the bound beside each figure, the same as JSON, and a verdict in the last line. A figure
   without a bound is there to be read. A figure that others' work disturbed in every try is inconclusive: never a pass. */
#ifndef GB_CLI_REPORT_H
#define GB_CLI_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"

enum { GB_REPORT_ROWS_MAX = 64 };

typedef enum gb_bound { GB_BOUND_NONE, GB_BOUND_AT_LEAST, GB_BOUND_AT_MOST } gb_bound;

typedef struct gb_report_row {
    char name[64], unit[16], note[128];
    double value, bound;
    gb_bound direction;
    bool inconclusive;
} gb_report_row;

typedef struct gb_report {
    const char *bench;        /* "cpu" */
    char setting[256];        /* what was measured on what: threads, kernels, model */
    uint32_t n;
    gb_report_row rows[GB_REPORT_ROWS_MAX];
} gb_report;

/* Appends a figure and returns it. */
gb_report_row *gb_report_add(gb_report *report, const char *name, double value, const char *unit);
void gb_report_note(gb_report_row *row, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gb_report_bound(gb_report_row *row, gb_bound direction, double bound);
bool gb_report_holds(const gb_report_row *row);

/* GB_EIO when the file cannot be written: asked before a bench runs for minutes. */
int gb_report_can_write(const char *json_file, gb_error *err);

/* Prints the table and its last line to standard output, writes JSON to the file (NULL or "" = none). *code becomes the exit code:
   0, and with check 1 when a bound was missed or 75 when one is inconclusive. GB_EIO when the file cannot be written. */
int gb_report_finish(const gb_report *report, const char *json_file, bool check, int *code, gb_error *err);

/* "AMD EPYC, 2 CPUs, 2026-11-30": the machine and the day a figure needs beside it. */
void gb_report_machine(char *out, size_t capacity);

#endif
