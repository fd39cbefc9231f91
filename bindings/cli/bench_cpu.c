/* The CPU engine against the machine it runs on: decode is bound by memory bandwidth, prefill by arithmetic, so each figure is a
   share of what a probe right before and after it reached. Generated weights (synthetic.h), random tokens, short contexts. */
#include "bindings/cli/bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bindings/cli/bench_counting.h"
#include "bindings/cli/bench_peer.h"
#include "bindings/cli/command.h"
#include "bindings/cli/report.h"
#include "core/base/rng.h"
#include "core/cpu/cpu.h"
#include "core/cpu/memory.h"
#include "core/cpu/probe.h"
#include "core/forward/forward.h"

enum {
    SEQUENCES = 8, PREFILL = 512, POSITIONS = 512, BLOCKS_EACH = POSITIONS / GB_BLOCK_TOKENS,
    TRIES_PER_ROUND = 3,              /* disturbed samples are taken again: at most this many tries for each wanted one */
    SAMPLES_MAX = 100 * TRIES_PER_ROUND,
};
static const size_t PROBE_BYTES_MAX = (size_t)1 << 30;    /* read by a probe: as much as the model, no more than this */
static const double QUIET = 0.3;      /* CPUs that others may use beside a sample that counts */
static const struct timespec PATIENCE = {.tv_sec = 1};    /* for a neighbour to end what disturbed a sample */

/* What is run: so many steps of `sequences` works with `count` positions each, with a probe after every `stretch` of them. */
typedef struct workload {
    const char *name;
    uint32_t sequences, count, steps, stretch;
} workload;

enum { DECODE_1, DECODE_8, PREFILL_512, WORKLOADS };
static const workload workloads[WORKLOADS] = {
    [DECODE_1] = {"decode, 1 sequence", 1, 1, 32, 8},
    [DECODE_8] = {"decode, 8 sequences", SEQUENCES, 1, 16, 4},
    [PREFILL_512] = {"prefill, 512 tokens", 1, PREFILL, 1, 1},
};

typedef struct sample {
    double tokens_per_s, seconds;
    double bytes, operations;          /* that the whole run needs at least */
    double distinct_experts;           /* of a layer and step */
    double read, peak;                 /* probed: bytes/s and operations/s, mean over the stretches of before and after */
    double others;                     /* CPUs */
} sample;

typedef struct samples {
    uint32_t n;
    sample all[SAMPLES_MAX];
    uint32_t n_peer;
    double peer[SAMPLES_MAX];          /* tokens/s */
} samples;

typedef struct bench {
    const gb_bench_flags *flags;
    gb_threads *threads;               /* for the probes; the engine has its own */
    gb_model_config config;
    gb_ops *ops;                       /* the executor's */
    gb_executor *executor;
    gb_arena arena;
    gb_round round;
    gb_result result;
    gb_placement placement;
    gb_sampling greedy;
    gb_rng rng;
    int32_t *tokens;                   /* [SEQUENCES][POSITIONS] */
    int32_t *blocks;                   /* [SEQUENCES][BLOCKS_EACH] */
    void *probe_memory;
    size_t probe_bytes;
    gb_bench_counting counting;
    double counting_share[WORKLOADS];  /* % of the MoE layers' CPU time */
    gb_bench_peer peer;
    bool has_peer;
    double peaks[GB_PEAKS];            /* highest seen of each */
    samples of[WORKLOADS];
} bench;

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- what a step needs at least ---- */

static double attention_parameters(const gb_model_config *c)
{
    double q = (double)c->heads * c->head_dim, kv = (double)c->kv_heads * c->head_dim;
    return c->hidden * (q + 2 * kv) + q * c->hidden;
}

static double expert_parameters(const gb_model_config *c) { return 3.0 * c->hidden * c->expert_intermediate; }

/* Bytes of weights and KV cache that a step must read: every matrix once, the experts that were chosen, the KV of all positions. */
static double step_bytes(const gb_model_config *c, double distinct_experts, double positions_seen)
{
    double element = sizeof(uint16_t), router = (double)c->experts * c->hidden * sizeof(float);
    double layer = attention_parameters(c) * element + router + distinct_experts * expert_parameters(c) * element;
    double kv = positions_seen * c->layers * 2 * c->kv_heads * c->head_dim * element;
    return c->layers * layer + (double)c->vocab * c->hidden * element + kv;
}

/* Multiplications and additions: all rows through the layers, sampled rows through the head, scores and values of attention. */
static double step_operations(const gb_model_config *c, double rows, double sampled, double positions_seen)
{
    double layer = attention_parameters(c) + (double)c->experts * c->hidden + c->experts_per_token * expert_parameters(c);
    double attention = 4.0 * c->heads * c->head_dim * positions_seen * c->layers;
    return 2 * (rows * c->layers * layer + sampled * c->vocab * c->hidden) + attention;
}

static double distinct_experts(const bench *b)
{
    uint32_t distinct = 0;
    for (size_t i = 0; i < gb_matrix_cells(&b->result.counts); i++) distinct += b->result.counts.counts[i] != 0;
    return (double)distinct / b->config.moe_layers;
}

/* ---- running ---- */

static void new_tokens(bench *b)
{
    for (uint32_t i = 0; i < SEQUENCES * POSITIONS; i++) b->tokens[i] = (int32_t)gb_rng_below(&b->rng, b->config.vocab);
}

/* Positions start .. start + count - 1 of the first sequences; random tokens go in whatever was sampled, so that routing varies. */
static int run_step(bench *b, const workload *w, uint32_t start, gb_error *err)
{
    gb_batch *batch = &b->round.batches[0];
    b->round.seq++;
    batch->n_works = w->sequences;
    batch->n_tokens = w->sequences * w->count;
    for (uint32_t i = 0; i < w->sequences; i++) {
        batch->works[i] = (gb_work){.id = i + 1, .tokens = b->tokens + i * POSITIONS, .n_tokens = start + w->count, .n_prompt = start + w->count,
                                    .start = start, .count = w->count, .blocks = b->blocks + i * BLOCKS_EACH, .samples = true,
                                    .sampling = &b->greedy};
    }
    int status = gb_executor_run(b->executor, &b->round, &b->result);
    return status ? gb_fail(err, status, "a round of %s failed: %s", w->name, gb_status_message(status)) : GB_OK;
}

static double probe_peak(bench *b)
{
    double best = 0;
    for (int i = 0; i < GB_PEAKS; i++) {
        double rate = gb_probe_flops(b->threads, (gb_peak)i);
        if (rate > b->peaks[i]) b->peaks[i] = rate;
        if (rate > best) best = rate;
    }
    return best;
}

static void probe(bench *b, sample *s, double weight)
{
    s->read += weight * gb_probe_read(b->threads, b->probe_memory, b->probe_bytes);
    s->peak += weight * probe_peak(b);
}

/* One step, and what it needed at least. */
static int measure_step(bench *b, const workload *w, uint32_t step, sample *s, gb_error *err)
{
    double start = seconds_now();
    int status = run_step(b, w, step * w->count, err);
    s->seconds += seconds_now() - start;
    double first = (double)step * w->count, seen = w->sequences * (w->count * first + w->count * (w->count + 1.0) / 2);
    double distinct = distinct_experts(b);
    s->bytes += step_bytes(&b->config, distinct, w->count == 1 ? seen : first + w->count);
    s->operations += step_operations(&b->config, (double)w->sequences * w->count, w->sequences, seen);
    s->distinct_experts += distinct / w->steps;
    return status;
}

static int take_sample(bench *b, const workload *w, sample *s, gb_error *err)
{
    gb_meter meter;
    double half = 0.5 * w->stretch / w->steps;    /* of a stretch's weight, to the probe at each of its ends */
    *s = (sample){0};
    new_tokens(b);
    gb_meter_start(&meter);
    probe(b, s, half);
    for (uint32_t step = 0; step < w->steps; step++) {
        int status = measure_step(b, w, step, s, err);
        if (status) return status;
        if ((step + 1) % w->stretch == 0) probe(b, s, step + 1 < w->steps ? 2 * half : half);
    }
    s->others = gb_meter_others(&meter);
    s->tokens_per_s = w->sequences * w->count * w->steps / s->seconds;
    return GB_OK;
}

/* Right after an undisturbed sample of ours: beside a busy neighbour the ratio would say more about the neighbour. */
static int sample_peer(bench *b, const workload *w, samples *to, gb_error *err)
{
    double seconds = 0;
    if (!b->has_peer || to->all[to->n].others > QUIET) return GB_OK;
    int status = w->count > 1 ? gb_bench_peer_prefill(&b->peer, w->count, &seconds, err)
                              : gb_bench_peer_decode(&b->peer, w->sequences, w->steps, &seconds, err);
    if (!status) to->peer[to->n_peer++] = w->sequences * w->count * w->steps / seconds;
    return status;
}

static uint32_t quiet(const samples *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) n += s->all[i].others <= QUIET;
    return n;
}

/* Rounds over all workloads until each has its undisturbed samples, or has tried often enough. */
static int run_rounds(bench *b, gb_error *err)
{
    uint32_t wanted = (uint32_t)b->flags->rounds, tries = wanted * TRIES_PER_ROUND;
    for (uint32_t round = 0; round < tries; round++) {
        bool all_done = true;
        for (int i = 0; i < WORKLOADS; i++) {
            samples *s = &b->of[i];
            if (quiet(s) >= wanted) continue;
            all_done = false;
            int status = take_sample(b, &workloads[i], &s->all[s->n], err);
            if (!status) status = sample_peer(b, &workloads[i], s, err);
            if (status) return status;
            if (s->all[s->n++].others > QUIET) nanosleep(&PATIENCE, NULL);
        }
        if (all_done) break;
    }
    return GB_OK;
}

/* Steps of each workload under the counting's clocks; not among the samples, which run without them. */
static int measure_counting(bench *b, gb_error *err)
{
    gb_bench_counting *c = &b->counting;
    if (gb_bench_counting_watch(c, &b->arena, b->ops)) return gb_fail(err, GB_ENOMEM, "out of memory for the bench");
    for (int i = 0; i < WORKLOADS; i++) {
        const workload *w = &workloads[i];
        c->layers = c->counting = 0;
        new_tokens(b);
        for (uint32_t step = 0; step < w->steps; step++) {
            int status = run_step(b, w, step * w->count, err);
            if (status) return status;
            gb_bench_counting_round(c, &b->result);
        }
        b->counting_share[i] = 100 * c->counting / c->layers;
    }
    return GB_OK;
}

/* ---- reporting ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t n)
{
    if (n == 0) return 0;
    qsort(values, n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static double rate_of(const sample *s) { return s->tokens_per_s; }
static double read_of(const sample *s) { return s->read / 1e9; }
static double peak_of(const sample *s) { return s->peak / 1e9; }
static double distinct_of(const sample *s) { return s->distinct_experts; }
static double others_of(const sample *s) { return s->others; }
static double share_of_read(const sample *s) { return 100 * s->bytes / s->seconds / s->read; }
static double share_of_peak(const sample *s) { return 100 * s->operations / s->seconds / s->peak; }

/* The roofline takes whichever of memory and arithmetic needs longer for the whole run. */
static double share_of_roofline(const sample *s)
{
    double memory = s->bytes / s->read, arithmetic = s->operations / s->peak;
    return 100 * (memory > arithmetic ? memory : arithmetic) / s->seconds;
}

/* Median over undisturbed samples; over all of them when there is none, which the row then says. */
static double median_of(const samples *s, double (*value)(const sample *))
{
    double values[SAMPLES_MAX];
    uint32_t n = 0, undisturbed = quiet(s);
    for (uint32_t i = 0; i < s->n; i++) {
        if (undisturbed == 0 || s->all[i].others <= QUIET) values[n++] = value(&s->all[i]);
    }
    return median(values, n);
}

static gb_report_row *add(gb_report *report, const samples *s, const char *name, double (*value)(const sample *), const char *unit)
{
    return gb_report_add(report, name, median_of(s, value), unit);
}

static void add_share(gb_report *report, const bench *b, const samples *s, const char *name, double (*value)(const sample *), double bound)
{
    gb_report_row *row = add(report, s, name, value, "%");
    if (strcmp(b->flags->model, "m1b") == 0) gb_report_bound(row, GB_BOUND_AT_LEAST, bound);
    row->inconclusive = quiet(s) == 0;
    gb_report_note(row, "%u of %u tries undisturbed", quiet(s), s->n);
}

static void add_peer(gb_report *report, const bench *b, const samples *s, const char *name)
{
    double values[SAMPLES_MAX], ours = median_of(s, rate_of);
    if (!b->has_peer || s->n_peer == 0) return;
    memcpy(values, s->peer, s->n_peer * sizeof *values);
    double theirs = median(values, s->n_peer);
    gb_report_note(gb_report_add(report, name, ours / theirs, "x"), "%s: %.1f tok/s", b->peer.name, theirs);
}

static void add_counting(gb_report *report, const bench *b)
{
    for (int i = 0; i < WORKLOADS; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s: counting of experts", workloads[i].name);
        gb_report_row *row = gb_report_add(report, name, b->counting_share[i], "%");
        gb_report_bound(row, GB_BOUND_AT_MOST, 1);
        gb_report_note(row, "CPU time, of the MoE layers'");
    }
}

static void fill_report(gb_report *report, const bench *b)
{
    const gb_executor_info *info = &b->executor->info;
    const samples *one = &b->of[DECODE_1], *eight = &b->of[DECODE_8], *prefill = &b->of[PREFILL_512];
    snprintf(report->setting, sizeof report->setting, "model %s, kernels %s, %u threads; medians of %d undisturbed samples",
             b->flags->model, info->kernels, info->threads, (int)b->flags->rounds);
    add(report, one, "probe: memory read", read_of, "GB/s");
    add(report, prefill, "probe: best arithmetic peak", peak_of, "GFLOP/s");
    for (int i = 0; i < GB_PEAKS; i++) {
        char name[64];
        snprintf(name, sizeof name, "probe: %s, highest", gb_peak_name((gb_peak)i));
        if (b->peaks[i] > 0) gb_report_add(report, name, b->peaks[i] / 1e9, "GFLOP/s");
    }
    add(report, one, "decode, 1 sequence", rate_of, "tok/s");
    add_share(report, b, one, "decode, 1 sequence: share of read", share_of_read, 85);
    add_peer(report, b, one, "decode, 1 sequence: over the peer");
    add(report, eight, "decode, 8 sequences", rate_of, "tok/s");
    gb_report_note(add(report, eight, "decode, 8 sequences: distinct experts", distinct_of, ""), "of %u, a layer and step", b->config.experts);
    add_share(report, b, eight, "decode, 8 sequences: share of roofline", share_of_roofline, 75);
    add_peer(report, b, eight, "decode, 8 sequences: over the peer");
    add(report, prefill, "prefill, 512 tokens", rate_of, "tok/s");
    add_share(report, b, prefill, "prefill, 512 tokens: share of peak", share_of_peak, 60);
    add_peer(report, b, prefill, "prefill, 512 tokens: over the peer");
    add(report, prefill, "CPU used by others beside prefill", others_of, "CPUs");
    add_counting(report, b);
}

/* ---- set-up ---- */

static int open_executor(bench *b, const gb_synthetic *model, gb_error *err)
{
    gb_cpu_options options;
    b->config = model->config;
    gb_cpu_options_default(&options, &b->config);
    options.limits.max_works = SEQUENCES;
    options.limits.max_tokens = PREFILL;
    options.limits.max_positions = POSITIONS;
    options.limits.blocks_per_engine = SEQUENCES * BLOCKS_EACH;
    options.threads = gb_threads_count(b->threads);
    options.kernels = b->flags->kernels;
    int status = gb_cpu_ops_new(&b->ops, &b->config, model->weights, &options, err);
    return status ? status : gb_forward_new(&b->executor, &b->config, b->ops, NULL, err);
}

static int take_memory(bench *b, gb_error *err)
{
    const gb_model_config *c = &b->config;
    gb_round_limits limits = {.engines = 1, .ranks = 1, .max_works = SEQUENCES, .max_tokens = PREFILL, .moe_layers = c->moe_layers, .experts = c->experts};
    b->tokens = GB_ARENA_NEW(&b->arena, int32_t, SEQUENCES * POSITIONS);
    b->blocks = GB_ARENA_NEW(&b->arena, int32_t, SEQUENCES * BLOCKS_EACH);
    b->probe_bytes = b->executor->info.weight_bytes < PROBE_BYTES_MAX ? b->executor->info.weight_bytes : PROBE_BYTES_MAX;
    b->probe_memory = gb_memory_map(b->probe_bytes);
    if (!b->tokens || !b->blocks || !b->probe_memory || gb_round_init(&b->round, &b->arena, &limits) ||
        gb_result_init(&b->result, &b->arena, &limits)) {
        return gb_fail(err, GB_ENOMEM, "out of memory for the bench");
    }
    memset(b->probe_memory, 1, b->probe_bytes);
    for (int32_t i = 0; i < SEQUENCES * BLOCKS_EACH; i++) b->blocks[i] = i;
    gb_rng_init(&b->rng, 1);
    gb_sampling_default(&b->greedy);
    b->greedy.temperature = 0;
    b->greedy.logprobs = -1;
    b->round.n_engines = 1;
    b->round.placement = &b->placement;
    int status = gb_placement_init(&b->placement, &b->arena, c->moe_layers, 1, c->experts, 1, 0, err);
    if (!status) gb_placement_linear(&b->placement);
    return status;
}

static int open_peer(bench *b, const gb_synthetic *model)
{
    gb_error why = {0};
    int status = gb_bench_peer_open(&b->peer, b->flags->peer, model, gb_threads_count(b->threads), &why);
    b->has_peer = status == GB_OK;
    if (b->has_peer) printf("peer: %s\n", b->peer.name);
    else printf("no peer found: %s\n", why.text);
    fflush(stdout);
    return status;
}

static int measure(bench *b, gb_error *err)
{
    int status = take_memory(b, err);
    for (int i = 0; i < WORKLOADS && !status; i++) {    /* once for nothing: pages, caches, clocks */
        sample warm_up;
        status = take_sample(b, &workloads[i], &warm_up, err);
    }
    if (!status) status = run_rounds(b, err);
    return status ? status : measure_counting(b, err);
}

static int run(bench *b, int *code, gb_error *err)
{
    gb_report report = {.bench = "cpu"};
    gb_synthetic model;
    uint32_t threads = b->flags->threads ? (uint32_t)b->flags->threads : gb_threads_available();
    int status = gb_threads_new(&b->threads, threads, err);
    if (!status) status = gb_synthetic_init(&model, b->flags->model, b->threads, err);
    if (status) return status;
    if (*b->flags->write_model) {
        status = gb_synthetic_write(&model, b->flags->write_model, err);
        if (!status) printf("wrote %s: config.json and model.safetensors, %.1f MB\n", b->flags->write_model, (double)model.bytes / 1e6);
        gb_synthetic_deinit(&model);
        return status;
    }
    status = open_executor(b, &model, err);
    if (!status) open_peer(b, &model);
    gb_synthetic_deinit(&model);
    if (!status) status = measure(b, err);
    if (status) return status;
    fill_report(&report, b);
    return gb_report_finish(&report, b->flags->json, b->flags->check, code, err);
}

int gb_bench_cpu(const gb_bench_flags *flags)
{
    gb_error err = {0};
    int code = GB_EXIT_OK;
    bench *b = calloc(1, sizeof *b);
    if (!b) return gb_command_failed(GB_ENOMEM, &err);
    b->flags = flags;
    gb_arena_init(&b->arena);
    int status = run(b, &code, &err);
    gb_bench_peer_close(&b->peer);
    gb_executor_free(b->executor);
    gb_memory_unmap(b->probe_memory, b->probe_bytes);
    gb_threads_free(b->threads);
    gb_arena_deinit(&b->arena);
    free(b);
    return status ? gb_command_failed(status, &err) : code;
}
