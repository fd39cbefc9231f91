/* gimbal bench NAME: one file a bench, their flags in one table. */
#ifndef GB_CLI_BENCH_H
#define GB_CLI_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "bindings/cli/report.h"

typedef struct gb_bench_flags {
    const char *json;            /* file, or "" */
    bool check;
    int64_t threads, rounds;
    const char *model, *kernels, *write_model, *peer;
} gb_bench_flags;

/* Each prints its report (report.h) and returns the exit code. */
int gb_bench_cpu(const gb_bench_flags *flags);
int gb_bench_serve(const gb_bench_flags *flags);
int gb_bench_place(const gb_bench_flags *flags);
int gb_bench_policy(const gb_bench_flags *flags);

/* The rows of bench policy about score_expert. */
int gb_bench_score(gb_report *report, int64_t rounds, gb_error *err);

/* And those about changing a policy. */
int gb_bench_swap(gb_report *report, int64_t rounds, gb_error *err);

#endif
