/* What serving adds to computing. One process holds a tiny model; its executor is driven in turns by hand-made rounds (decode
   steps of 8 sequences, nothing else) and by the whole server: loop, serving core, Lua policies, RPC, a Unix socket, and a
   client on this thread that reads 8 streams of the same lengths. Both decode the same positions with the same threads, so the
   difference of their medians is what serving adds to each token of each stream, the client's own work included. */
#include "bindings/cli/bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "bindings/c/instance.h"
#include "bindings/cli/command.h"
#include "bindings/cli/report.h"
#include "bindings/clients/c/gimbal_client.h"
#include "bindings/uv/driver.h"
#include "core/cpu/probe.h"

enum {
    STREAMS = 8, PROMPT = 16, STEPS = 200, POSITIONS = PROMPT + STEPS + 1,
    BLOCKS_EACH = (POSITIONS + GB_BLOCK_TOKENS - 1) / GB_BLOCK_TOKENS,
    LONG_PROMPT = 2000, BATCH = 2048,    /* a long prefill is one round, the worst case for whoever waits */
    TRIES_PER_ROUND = 3, SAMPLES_MAX = 100 * TRIES_PER_ROUND,
};
static const double QUIET = 0.3;         /* CPUs that others may use beside a sample that counts */
static const char DEFAULT_MODEL[] = "examples/models/tiny-moe";

typedef struct sample {
    double raw_us, served_us;            /* medians of a step and of a token's period */
    double tokens_per_s;                 /* of all streams */
    double loop_us, client_us;           /* CPU time of the loop's thread and of ours for one token of one stream */
    double stats_ms, cancel_ms;          /* slowest answer during a long prefill; abort until its blocks are free */
    double others;                       /* CPUs */
} sample;

typedef struct bench {
    const gb_bench_flags *flags;
    gb_options options;
    gb_instance *instance;
    gb_driver *driver;
    uv_thread_t thread;
    bool runs;
    char directory[64], path[80];
    gimbal_client *client, *watcher;
    int32_t tokens[STREAMS][LONG_PROMPT];
    int32_t blocks[STREAMS][BLOCKS_EACH];
    gb_sampling greedy;
    uint32_t n;
    sample samples[SAMPLES_MAX];
} bench;

static double now_us(void) { return (double)uv_hrtime() / 1000; }

/* CPU time of a thread. */
static double cpu_us(pthread_t thread)
{
    clockid_t clock;
    struct timespec t;
    if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &t)) return 0;
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1000;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    if (n == 0) return 0;
    qsort(values, n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* ---- rounds made by hand ---- */

static int run_step(bench *b, uint32_t start, uint32_t count, gb_error *err)
{
    gb_instance *instance = b->instance;
    gb_batch *batch = &instance->round.batches[0];
    instance->round.seq++;
    instance->round.placement = gb_server_placement(instance->server);
    batch->n_works = STREAMS;
    batch->n_tokens = STREAMS * count;
    for (uint32_t i = 0; i < STREAMS; i++)
        batch->works[i] = (gb_work){.id = i + 1, .tokens = b->tokens[i], .n_tokens = start + count, .n_prompt = PROMPT, .start = start, .count = count,
                                    .blocks = b->blocks[i], .samples = true, .sampling = &b->greedy};
    int status = gb_executor_run(instance->executor, &instance->round, &instance->result);
    if (status) return gb_fail(err, status, "a round failed: %s", gb_status_message(status));
    for (uint32_t i = 0; i < STREAMS; i++) b->tokens[i][start + count] = instance->result.sampled[0][i].token;
    return GB_OK;
}

/* Median time of a decode step. */
static int measure_raw(bench *b, sample *s, gb_error *err)
{
    double us[STEPS];
    int status = run_step(b, 0, PROMPT, err);
    for (uint32_t i = 0; i < STEPS && !status; i++) {
        double start = now_us();
        status = run_step(b, PROMPT + i, 1, err);
        us[i] = now_us() - start;
    }
    s->raw_us = median(us, STEPS);
    return status;
}

/* ---- the same through the server ---- */

static int said(const gimbal_error *error, gb_error *err) { return gb_fail(err, GB_EIO, "the client: %s", error->message); }

static int send_generate(gimbal_client *client, const int32_t *tokens, uint32_t n, uint32_t max_tokens, gb_error *err)
{
    gimbal_error error;
    msgpack_packer *p = gimbal_begin(client);
    msgpack_pack_map(p, 3);
    gimbal_pack_text(p, "stream");
    msgpack_pack_true(p);
    gimbal_pack_text(p, "tokens");
    msgpack_pack_array(p, n);
    for (uint32_t i = 0; i < n; i++) msgpack_pack_int32(p, tokens[i]);
    gimbal_pack_text(p, "sampling");
    msgpack_pack_map(p, 3);
    gimbal_pack_text(p, "temperature");
    msgpack_pack_int(p, 0);
    gimbal_pack_text(p, "max_tokens");
    msgpack_pack_uint32(p, max_tokens);
    gimbal_pack_text(p, "ignore_eos");
    msgpack_pack_true(p);
    return gimbal_call(client, "generate", NULL, &error) ? said(&error, err) : GB_OK;
}

/* Arrival times of the first token of each burst: a round brings one token to each stream. */
typedef struct arrivals {
    uint32_t tokens, ended;
    double at[STEPS + 1];    /* when the last of so many rounds' tokens came */
} arrivals;

static int receive_all(bench *b, arrivals *a, gb_error *err)
{
    gimbal_error error;
    gimbal_event event;
    while (a->ended < STREAMS) {
        if (gimbal_next(b->client, &event, &error)) return said(&error, err);
        if (strcmp(event.name, "failed") == 0) return gb_fail(err, GB_EDOWN, "a stream failed");
        if (strcmp(event.name, "done") == 0) a->ended++;
        if (strcmp(event.name, "token") != 0) continue;
        a->tokens += gimbal_get(event.map, "tokens")->via.array.size;
        if (a->tokens % STREAMS == 0 && a->tokens / STREAMS <= STEPS + 1) a->at[a->tokens / STREAMS - 1] = now_us();
    }
    return a->tokens == STREAMS * (STEPS + 1) ? GB_OK : gb_fail(err, GB_EINTERNAL, "%u tokens came instead of %u", a->tokens, STREAMS * (STEPS + 1));
}

/* Median time between a token and the next, and tokens a second. */
static int measure_served(bench *b, sample *s, gb_error *err)
{
    arrivals a = {0};
    double us[STEPS], loop = cpu_us(b->thread), client = cpu_us(pthread_self());
    int status = GB_OK;
    for (uint32_t i = 0; i < STREAMS && !status; i++) status = send_generate(b->client, b->tokens[i], PROMPT, STEPS + 1, err);
    if (!status) status = receive_all(b, &a, err);
    if (status) return status;
    s->loop_us = (cpu_us(b->thread) - loop) / a.tokens;
    s->client_us = (cpu_us(pthread_self()) - client) / a.tokens;
    for (uint32_t i = 0; i < STEPS; i++) us[i] = a.at[i + 1] - a.at[i];
    s->tokens_per_s = STREAMS * STEPS / (a.at[STEPS] - a.at[0]) * 1e6;
    s->served_us = median(us, STEPS);
    return GB_OK;
}

/* ---- a long prefill ---- */

static int read_stats(bench *b, int64_t *live, int64_t *blocks, gb_error *err)
{
    gimbal_error error;
    const msgpack_object *stats;
    if (gimbal_call(b->watcher, "server_stats", &stats, &error)) return said(&error, err);
    *live = gimbal_int(stats, "live", -1);
    *blocks = gimbal_int(stats, "blocks_used", -1);
    return GB_OK;
}

static int await_stats(bench *b, bool busy, gb_error *err)
{
    int64_t live, blocks;
    int status;
    do status = read_stats(b, &live, &blocks, err);
    while (!status && busy != (blocks > 0) && (live > 0 || !busy));
    return status;
}

/* Reads the rest of the only stream. */
static int read_end(bench *b, gb_error *err)
{
    gimbal_error error;
    gimbal_event event;
    do if (gimbal_next(b->client, &event, &error)) return said(&error, err);
    while (strcmp(event.name, "done") != 0 && strcmp(event.name, "failed") != 0);
    return GB_OK;
}

/* Slowest answer to server_stats while one round prefills a long prompt. */
static int measure_stats(bench *b, sample *s, gb_error *err)
{
    int64_t live = 1, blocks = 1;
    int status = send_generate(b->client, b->tokens[0], LONG_PROMPT, 1, err);
    while (!status && live > 0) {
        double start = now_us();
        status = read_stats(b, &live, &blocks, err);
        double ms = (now_us() - start) / 1000;
        if (ms > s->stats_ms) s->stats_ms = ms;
    }
    if (!status) status = await_stats(b, false, err);
    return status ? status : read_end(b, err);
}

/* From an abort in the middle of that round until no block is held. */
static int measure_cancel(bench *b, sample *s, gb_error *err)
{
    gimbal_error error;
    int status = send_generate(b->client, b->tokens[1], LONG_PROMPT, 1, err);
    if (!status) status = await_stats(b, true, err);
    if (status) return status;
    usleep(20000);
    double start = now_us();
    msgpack_packer *p = gimbal_begin(b->watcher);
    msgpack_pack_map(p, 1);
    gimbal_pack_text(p, "all");
    msgpack_pack_true(p);
    if (gimbal_call(b->watcher, "abort", NULL, &error)) return said(&error, err);
    status = await_stats(b, false, err);
    s->cancel_ms = (now_us() - start) / 1000;
    return status ? status : read_end(b, err);
}

/* ---- samples ---- */

static int take_sample(bench *b, sample *s, gb_error *err)
{
    gb_meter meter;
    *s = (sample){0};
    gb_meter_start(&meter);
    int status = measure_raw(b, s, err);
    if (!status) status = measure_served(b, s, err);
    if (!status) status = measure_stats(b, s, err);
    if (!status) status = measure_cancel(b, s, err);
    s->others = gb_meter_others(&meter);
    return status;
}

static uint32_t quiet(const bench *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) n += b->samples[i].others <= QUIET;
    return n;
}

static int take_samples(bench *b, gb_error *err)
{
    sample warm_up;
    uint32_t wanted = (uint32_t)b->flags->rounds;
    int status = take_sample(b, &warm_up, err);
    while (!status && quiet(b) < wanted && b->n < wanted * TRIES_PER_ROUND) status = take_sample(b, &b->samples[b->n++], err);
    return status;
}

/* ---- reporting ---- */

static double raw_of(const sample *s) { return s->raw_us / 1000; }
static double served_of(const sample *s) { return s->served_us / 1000; }
static double added_of(const sample *s) { return (s->served_us - s->raw_us) / 1000; }
static double rate_of(const sample *s) { return s->tokens_per_s; }
static double loop_of(const sample *s) { return s->loop_us; }
static double client_of(const sample *s) { return s->client_us; }
static double stats_of(const sample *s) { return s->stats_ms; }
static double cancel_of(const sample *s) { return s->cancel_ms; }
static double others_of(const sample *s) { return s->others; }

/* A median over undisturbed samples; over all of them when there is none, which the row then says. */
static gb_report_row *add(gb_report *report, const bench *b, const char *name, double (*value)(const sample *), const char *unit)
{
    double values[SAMPLES_MAX];
    uint32_t n = 0, undisturbed = quiet(b);
    for (uint32_t i = 0; i < b->n; i++)
        if (undisturbed == 0 || b->samples[i].others <= QUIET) values[n++] = value(&b->samples[i]);
    return gb_report_add(report, name, median(values, n), unit);
}

static void add_bounded(gb_report *report, const bench *b, const char *name, double (*value)(const sample *), double most)
{
    gb_report_row *row = add(report, b, name, value, "ms");
    gb_report_bound(row, GB_BOUND_AT_MOST, most);
    row->inconclusive = quiet(b) == 0;
    gb_report_note(row, "%u of %u tries undisturbed", quiet(b), b->n);
}

static void fill_report(gb_report *report, const bench *b)
{
    const gb_executor_info *info = &b->instance->executor->info;
    report->bench = "serve";
    snprintf(report->setting, sizeof report->setting, "model %.64s, kernels %s, %u threads, %d streams over one Unix socket; medians of %d undisturbed samples",
             b->instance->model_name, info->kernels, info->threads, STREAMS, (int)b->flags->rounds);
    add(report, b, "decode step of 8 sequences, executor alone", raw_of, "ms");
    add(report, b, "a token to the next, 8 streams of a client", served_of, "ms");
    add_bounded(report, b, "added to each token by serving", added_of, 0.10);
    gb_report_note(add(report, b, "CPU time of the loop for a token", loop_of, "us"), "of one stream");
    gb_report_note(add(report, b, "CPU time of the client for a token", client_of, "us"), "of one stream");
    add(report, b, "tokens of all streams", rate_of, "tok/s");
    add_bounded(report, b, "server_stats beside a prefill, slowest", stats_of, 50);
    add_bounded(report, b, "abort in a prefill until its blocks are free", cancel_of, 250);
    add(report, b, "CPU used by others", others_of, "CPUs");
}

/* ---- set-up ---- */

static int set_options(bench *b, gb_error *err)
{
    char threads[16];
    snprintf(threads, sizeof threads, "%d", (int)b->flags->threads);
    const char *model = strcmp(b->flags->model, "m1b") == 0 ? DEFAULT_MODEL : b->flags->model;
    const char *const values[][2] = {{"model", model}, {"threads", threads}, {"cpu_kernels", b->flags->kernels}, {"max_num_seqs", "8"},
                                     {"max_num_batched_tokens", "2048"}, {"max_model_len", "2048"}};
    gb_options_init(&b->options);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        int status = gb_options_set(&b->options, values[i][0], values[i][1], "bench", err);
        if (status) return status;
    }
    return GB_OK;
}

static void fill_prompts(bench *b)
{
    uint32_t vocab = b->instance->config.vocab;
    for (uint32_t i = 0; i < STREAMS; i++) {
        for (uint32_t j = 0; j < LONG_PROMPT; j++) b->tokens[i][j] = (int32_t)((i * 131 + j * 17 + 1) % vocab);
        for (uint32_t j = 0; j < BLOCKS_EACH; j++) b->blocks[i][j] = (int32_t)(i * BLOCKS_EACH + j);
    }
    gb_instance_sampling(b->instance, &b->greedy);
    b->greedy.temperature = 0;
    b->greedy.max_tokens = STEPS + 1;
}

static void run_driver(void *driver) { gb_driver_run(driver); }

static int start_server(bench *b, gb_error *err)
{
    gb_driver_options options = {.shutdown_timeout = 0, .stats_every = GB_NEVER};
    gimbal_error error;
    snprintf(b->directory, sizeof b->directory, "/tmp/gimbal_bench_XXXXXX");
    if (!mkdtemp(b->directory)) return gb_fail(err, GB_EIO, "no temporary directory can be made");
    snprintf(b->path, sizeof b->path, "%s/s", b->directory);
    int status = gb_driver_new(&b->driver, b->instance, &options, err);
    if (!status) status = gb_driver_listen_unix(b->driver, b->path, err);
    if (status) return status;
    if (uv_thread_create(&b->thread, run_driver, b->driver)) return gb_fail(err, GB_ENOMEM, "the server's thread cannot be started");
    b->runs = true;
    if (gimbal_open(&b->client, b->path, NULL, &error) || gimbal_open(&b->watcher, b->path, NULL, &error)) return said(&error, err);
    return GB_OK;
}

static int run(bench *b, int *code, gb_error *err)
{
    static gb_report report;
    int status = set_options(b, err);
    if (!status) status = gb_instance_open(&b->instance, &b->options, err);
    if (status) return status;
    fill_prompts(b);
    status = start_server(b, err);
    if (!status) status = take_samples(b, err);
    if (status) return status;
    fill_report(&report, b);
    return gb_report_finish(&report, b->flags->json, b->flags->check, code, err);
}

static void tear_down(bench *b)
{
    if (b->client) gimbal_close(b->client);
    if (b->watcher) gimbal_close(b->watcher);
    if (b->runs) {
        gb_driver_wake(b->driver);
        uv_thread_join(&b->thread);
    }
    gb_driver_free(b->driver);
    if (*b->directory) rmdir(b->directory);
    gb_instance_close(b->instance);
    gb_options_deinit(&b->options);
}

int gb_bench_serve(const gb_bench_flags *flags)
{
    gb_error err = {0};
    int code = GB_EXIT_OK;
    bench *b = calloc(1, sizeof *b);
    if (!b) return gb_command_failed(GB_ENOMEM, &err);
    b->flags = flags;
    int status = run(b, &code, &err);
    tear_down(b);
    free(b);
    return status ? gb_command_failed(status, &err) : code;
}
