#include "bindings/cli/bench.h"

#include <string.h>

#include "bindings/cli/command.h"
#include "bindings/cli/report.h"

static const gb_flag flags[] = {
    GB_FLAG(gb_bench_flags, check, BOOL, "false", 0, 0, "", "exit with 1 when a bound is missed, 75 when others' work made a figure inconclusive"),
    GB_FLAG(gb_bench_flags, json, STRING, "", 0, 0, "FILE", "write the table as JSON, too"),
    GB_FLAG(gb_bench_flags, rounds, INT, "5", 1, 100, "N", "undisturbed samples behind each median"),
    GB_FLAG(gb_bench_flags, model, STRING, "m1b", 0, 0, "NAME", "cpu: generated model m1b (the bounds are for it) or tiny (a quick look); serve: a directory instead of the bundled one"),
    GB_FLAG(gb_bench_flags, threads, INT, "0", 0, 1024, "N", "compute threads (default: the CPUs this process may use)"),
    GB_FLAG(gb_bench_flags, kernels, STRING, "auto", 0, 0, "NAME", "auto (measured), scalar, avx2, avx512f or avx512_bf16"),
    GB_FLAG(gb_bench_flags, write_model, STRING, "", 0, 0, "DIR", "cpu: only write the generated model there (2 GB), for other programs"),
    GB_FLAG(gb_bench_flags, peer, STRING, "auto", 0, 0, "PYTHON", "cpu: Python that has llama_cpp (auto: .venv, then python3; none: no peer)"),
};

static const struct {
    const char *name;
    int (*run)(const gb_bench_flags *flags);
} benches[] = {
    {"cpu", gb_bench_cpu},
    {"serve", gb_bench_serve},
    {"place", gb_bench_place},
    {"policy", gb_bench_policy},
};

static int run(const gb_args *args)
{
    gb_error err = {0};
    char names[128] = "";
    int status = gb_report_can_write(((const gb_bench_flags *)args->values)->json, &err);
    if (status) return gb_command_failed(status, &err);
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
        if (args->n_words && strcmp(args->words[0], benches[i].name) == 0) return benches[i].run(args->values);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", benches[i].name);
    }
    if (args->n_words) gb_fail(&err, GB_EINVAL, "no bench is called \"%s\"; there is %s", args->words[0], names);
    else gb_fail(&err, GB_EINVAL, "gimbal bench needs the name of a bench: %s", names);
    return gb_command_failed(GB_EINVAL, &err);
}

const gb_command gb_command_bench = {
    .name = "bench", .arguments = "NAME", .summary = "measure, with the bound beside each figure: cpu, serve, place, policy",
    .flags = flags, .n_flags = sizeof flags / sizeof *flags, .values_bytes = sizeof(gb_bench_flags), .max_words = 1, .run = run,
};
