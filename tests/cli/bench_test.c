#include "bindings/cli/bench.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/cli/command.h"
#include "tests/check.h"

static int bench(const char *const *words)
{
    const char *argv[16] = {"gimbal", "bench"};
    int n = 2;
    while (*words) argv[n++] = *words++;
    return gb_command_main(n, (char *const *)argv);
}

#define BENCH(...) bench((const char *const[]){__VA_ARGS__, NULL})

static double value_of(const json_t *report, const char *name)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(report, "rows"), i, row) {
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0) return json_number_value(json_object_get(row, "value"));
    }
    return NAN;
}

/* Only that it runs and counts right: how fast is the machine's business. */
static void bench_cpu_reports_every_figure_of_a_small_model(void)
{
    char file[] = "/tmp/gimbal-bench-XXXXXX";
    int fd = mkstemp(file);
    CHECK(fd >= 0);
    CHECK_EQ(BENCH("cpu", "--model", "tiny", "--rounds", "1", "--threads", "2", "--peer", "none", "--json", file), GB_EXIT_OK);
    json_t *report = json_load_file(file, 0, NULL);
    CHECK(value_of(report, "probe: memory read") > 0);
    CHECK(value_of(report, "probe: best arithmetic peak") > 0);
    CHECK(value_of(report, "decode, 1 sequence") > 0);
    CHECK(value_of(report, "decode, 1 sequence: share of read") > 0);
    CHECK(value_of(report, "prefill, 512 tokens: share of peak") > 0);
    double experts = value_of(report, "decode, 8 sequences: distinct experts");
    CHECK(experts > 4 && experts <= 32);    /* 8 x 4 choices among 32 */
    json_decref(report);
    close(fd);
    unlink(file);
}

static void bench_policy_times_every_hook_in_lua_and_in_c(void)
{
    char file[] = "/tmp/gimbal-bench-XXXXXX";
    int fd = mkstemp(file);
    CHECK(fd >= 0);
    CHECK_EQ(BENCH("policy", "--rounds", "1", "--json", file), GB_EXIT_OK);
    json_t *report = json_load_file(file, 0, NULL);
    CHECK(value_of(report, "select_engine, 8 engines: p50") > 0);
    CHECK(value_of(report, "select_engine, 512 engines: p50") > 0);
    CHECK(value_of(report, "  over the built-in in C") > 0);
    CHECK(value_of(report, "order_queue, 1024 waiting, sort included: p50") > 0);
    CHECK(value_of(report, "a hook that is absent") >= 0);
    CHECK(value_of(report, "score_expert, 48x128 on 4 ranks") > 0);
    CHECK(value_of(report, "score_expert, 48x128 on 64 ranks") > 0);
    CHECK(value_of(report, "  plans that differ from C's") == 0);
    json_decref(report);
    close(fd);
    unlink(file);
}

static void mistakes_end_before_anything_is_measured(void)
{
    CHECK_EQ(BENCH("cpus"), GB_EXIT_USAGE);
    CHECK_EQ(BENCH("--check"), GB_EXIT_USAGE);
    CHECK_EQ(BENCH("cpu", "--model", "m9t"), GB_EXIT_DATA);
    CHECK_EQ(BENCH("cpu", "--json", "/nowhere/x.json"), GB_EXIT_DATA);
    CHECK_EQ(BENCH("cpu", "--model", "tiny", "--kernels", "sse9", "--peer", "none"), GB_EXIT_USAGE);
}

static void write_model_writes_the_files_and_measures_nothing(void)
{
    char dir[] = "/tmp/gimbal-bench-XXXXXX", path[64];
    CHECK(mkdtemp(dir) != NULL);
    CHECK_EQ(BENCH("cpu", "--model", "tiny", "--write-model", dir), GB_EXIT_OK);
    snprintf(path, sizeof path, "%s/config.json", dir);
    CHECK_EQ(unlink(path), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(rmdir(dir), 0);
}

TESTS(TEST(bench_cpu_reports_every_figure_of_a_small_model),
      TEST(bench_policy_times_every_hook_in_lua_and_in_c),
      TEST(mistakes_end_before_anything_is_measured),
      TEST(write_model_writes_the_files_and_measures_nothing))
