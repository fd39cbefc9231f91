/* Results: a line of ten fields with tabs between them, which tools/device_check.sh turns into a table and JSON:

       step  item  size  value  unit  spread %  fraction  of  bound  verdict

   "-" stands for what there is not. Bounds are predictions made before any of this ran on a GPU (docs/speed.md). */
#include "cuda/bench/bench.h"

#include <stdarg.h>
#include <string.h>

typedef enum bound_kind { AT_MOST_US, AT_LEAST_FRACTION, AT_MOST_RATIO } bound_kind;

static const struct {
    const char *step, *item, *size;
    bound_kind kind;
    double value;
} bounds[] = {
    {"kernels", "dispatch", "64 tokens", AT_MOST_US, 3.5},
    {"kernels", "dispatch", "8192 tokens", AT_MOST_US, 6},
    {"kernels", "dispatch", "1048576 tokens", AT_LEAST_FRACTION, 0.60},
    {"kernels", "router", "8192 tokens", AT_MOST_US, 12},
    {"kernels", "attention decode", "64 x 2048 positions", AT_LEAST_FRACTION, 0.70},
    {"kernels", "experts mma", "64 tokens", AT_LEAST_FRACTION, 0.75},
    {"kernels", "experts mma", "8192 tokens", AT_LEAST_FRACTION, 0.35},
    {"kernels", "experts wgmma", "64 tokens", AT_LEAST_FRACTION, 0.75},
    {"kernels", "experts wgmma", "8192 tokens", AT_LEAST_FRACTION, 0.65},
    {"kernels", "permute", "8192 tokens", AT_LEAST_FRACTION, 0.80},
    {"kernels", "combine", "8192 tokens", AT_LEAST_FRACTION, 0.80},
    {"kernels", "commit", "48 layers", AT_MOST_US, 5},
    {"counting", "fused dispatch", "8192 tokens, uniform", AT_MOST_RATIO, 1.15},    /* to the map alone */
    {"counting", "fused dispatch", "1048576 tokens, zipf", AT_MOST_RATIO, 1.30},    /* to uniform ids */
    {"ranks", "stall of a commit", "64 tokens", AT_MOST_US, 5},
    {"layers", "decode beside copies", "64 sequences", AT_MOST_RATIO, 1.05},        /* to the same without copies */
};

static const char *const bound_formats[] = {[AT_MOST_US] = "<= %g us", [AT_LEAST_FRACTION] = ">= %g of the ceiling", [AT_MOST_RATIO] = "<= %g times"};

void gb_bench_list_bounds(FILE *to)
{
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        char text[48];
        snprintf(text, sizeof text, bound_formats[bounds[i].kind], bounds[i].value);
        fprintf(to, "%s\t%s\t%s\t%s\n", bounds[i].step, bounds[i].item, bounds[i].size, text);
    }
}

/* Which ceiling a row is a fraction of, and the fraction; NULL = none. */
static const char *ceiling_of(const gb_bench *b, const gb_bench_row *row, double *fraction)
{
    double seconds = row->time.us * 1e-6;
    if (row->flops > 0 && b->ceilings.flops > 0) return *fraction = row->flops / seconds / b->ceilings.flops, "cuBLAS";
    if (row->bytes > 0 && row->reads && b->ceilings.read > 0) return *fraction = row->bytes / seconds / b->ceilings.read, "read";
    if (row->bytes > 0 && !row->reads && b->ceilings.copy > 0) return *fraction = row->bytes / seconds / b->ceilings.copy, "copy";
    return NULL;
}

static bool holds(bound_kind kind, double bound, const gb_bench_row *row, double fraction)
{
    switch (kind) {
    case AT_MOST_US: return row->time.us <= bound;
    case AT_LEAST_FRACTION: return fraction >= bound;
    case AT_MOST_RATIO: return row->ratio > 0 && row->ratio <= bound;
    }
    return false;
}

void gb_bench_report(gb_bench *b, const gb_bench_row *row)
{
    char share[32] = "-", bound[48] = "-";
    double fraction = 0;
    const char *of = ceiling_of(b, row, &fraction), *verdict = "-";
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        if (strcmp(bounds[i].step, row->step) || strcmp(bounds[i].item, row->item) || strcmp(bounds[i].size, row->size)) continue;
        snprintf(bound, sizeof bound, bound_formats[bounds[i].kind], bounds[i].value);
        if (bounds[i].kind == AT_LEAST_FRACTION && !of) verdict = "no ceiling";
        else verdict = holds(bounds[i].kind, bounds[i].value, row, fraction) ? "met" : "missed";
    }
    if (b->emulated) of = NULL, verdict = "emulated: not a measurement";
    if (of) snprintf(share, sizeof share, "%.3f", fraction);
    if (!of && row->ratio > 0 && !b->emulated) {
        of = "times";
        snprintf(share, sizeof share, "%.3f", row->ratio);
    }
    fprintf(b->rows, "%s\t%s\t%s\t%.3f\tus\t%.1f\t%s\t%s\t%s\t%s\n", row->step, row->item, row->size, row->time.us, 100 * row->time.spread, share,
            of ? of : "-", bound, verdict);
    fflush(b->rows);
}

void gb_bench_report_ceiling(gb_bench *b, const char *item, const char *size, double value, const char *unit, double spread)
{
    fprintf(b->rows, "ceilings\t%s\t%s\t%.3f\t%s\t%.1f\t-\t-\t-\t%s\n", item, size, value, unit, 100 * spread,
            b->emulated ? "emulated: not a measurement" : "-");
    fflush(b->rows);
}

/* What the step of ceilings wrote, for steps that run in programs of their own. */
void gb_bench_read_ceilings(gb_bench *b, FILE *rows)
{
    char line[512], item[64];
    double value;
    while (fgets(line, sizeof line, rows)) {
        if (sscanf(line, "ceilings\t%63[^\t]\t%*[^\t]\t%lf", item, &value) != 2) continue;
        if (strcmp(item, "copy") == 0) b->ceilings.copy = value * 1e9;
        if (strcmp(item, "read") == 0) b->ceilings.read = value * 1e9;
        if (strcmp(item, "cuBLAS") == 0) b->ceilings.flops = value * 1e12;
        if (strcmp(item, "launch") == 0) b->ceilings.launch_us = value;
    }
}

void gb_bench_wrong(gb_bench *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("WRONG: ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    b->wrong++;
}
