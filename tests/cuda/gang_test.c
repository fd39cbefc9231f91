/* A gang of ranks that are not on devices: each is the whole cpu backend, which answers for its own engine and rank only. So what the gang
   says, merges and survives can be seen to the bit, with ranks on threads and in processes. The environment variable GANG_TEST makes one
   of them misbehave. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/rng.h"
#include "cuda/host/check.h"
#include "cuda/host/gang.h"
#include "tests/check.h"
#include "tests/forward/harness.h"

extern char **environ;

static const char model[] = "tests/golden/plain";

enum { ENGINES = 2, RANKS = 4, PROMPT = 40 };

/* --- a rank --- */

/* "kill 2 3": what rank 2 does when its third round begins (counted from 1). */
typedef struct orders {
    char what[16];
    uint32_t rank, round;
} orders;

typedef struct fake {
    gb_ops base;
    gb_ops *cpu;
    uint32_t rank, engine, rounds;
    bool answers;                  /* the first rank of its engine */
    orders order;
    atomic_bool given_up;
    gb_arena arena;
    uint32_t *engine_of_row, *engine_of_logits;
    gb_matrix counts, kept, *wanted_counts;
    uint64_t *rank_tokens, *wanted_tokens;
    gb_pick *picks;
    char *all;                     /* what a read of everybody's rows gives */
} fake;

static fake *of(gb_ops *ops) { return (fake *)ops; }

static void sleep_ms(long ms) { nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL); }

static bool is_ordered(const fake *f, const char *what)
{
    return strcmp(f->order.what, what) == 0 && f->order.rank == f->rank && f->order.round == f->rounds;
}

static int obey(fake *f)
{
    if (is_ordered(f, "kill")) raise(SIGKILL);
    if (is_ordered(f, "stop")) raise(SIGSTOP);
    if (is_ordered(f, "exit")) _exit(3);
    if (is_ordered(f, "lose")) return gb_k_fail(GB_EDOWN, "the device is lost");
    if (is_ordered(f, "refuse")) return gb_k_fail(GB_EINVAL, "no such shape");
    if (!is_ordered(f, "hang")) return GB_OK;
    while (!atomic_load(&f->given_up)) sleep_ms(1);
    return gb_k_fail(GB_EDOWN, "it was given up");
}

static void note_rows(fake *f, const gb_row_set *rows)
{
    for (uint32_t i = 0; i < rows->n_spans; i++)
        for (uint32_t row = 0; row < rows->spans[i].count; row++) f->engine_of_row[rows->spans[i].row + row] = rows->spans[i].engine;
}

static int fake_embed(gb_ops *ops, const gb_row_set *rows)
{
    fake *f = of(ops);
    f->rounds++;
    f->wanted_tokens = NULL;
    note_rows(f, rows);
    gb_matrix_clear(&f->counts);
    memset(f->rank_tokens, 0, RANKS * sizeof *f->rank_tokens);
    int status = obey(f);
    return status ? status : gb_ops_embed(f->cpu, rows);
}

static int fake_compact(gb_ops *ops, const gb_row_set *rows, const uint32_t *from)
{
    note_rows(of(ops), rows);
    return gb_ops_compact(of(ops)->cpu, rows, from);
}

static void dawdle(const fake *f)
{
    if (is_ordered(f, "dawdle")) sleep_ms(GB_GANG_GRACE_MS / 5);
}

static int fake_norm(gb_ops *ops, const gb_row_set *rows, gb_norm norm, uint32_t layer)
{
    dawdle(of(ops));
    return gb_ops_norm(of(ops)->cpu, rows, norm, layer);
}

static int fake_attention(gb_ops *ops, const gb_row_set *rows, uint32_t layer)
{
    dawdle(of(ops));
    return gb_ops_attention(of(ops)->cpu, rows, layer);
}

static int fake_mlp(gb_ops *ops, const gb_row_set *rows, uint32_t layer) { return gb_ops_mlp(of(ops)->cpu, rows, layer); }
static int fake_router(gb_ops *ops, const gb_row_set *rows, uint32_t layer) { return gb_ops_router(of(ops)->cpu, rows, layer); }
static int fake_experts(gb_ops *ops, const gb_row_set *rows, uint32_t layer) { return gb_ops_experts(of(ops)->cpu, rows, layer); }
static int fake_combine(gb_ops *ops, const gb_row_set *rows, uint32_t layer) { return gb_ops_combine(of(ops)->cpu, rows, layer); }

static int fake_dispatch(gb_ops *ops, const gb_row_set *rows, uint32_t layer, const gb_placement *placement, gb_matrix *counts, uint64_t *rank_tokens)
{
    fake *f = of(ops);
    f->wanted_counts = counts;
    f->wanted_tokens = rank_tokens;
    return gb_ops_dispatch(f->cpu, rows, layer, placement, &f->counts, f->rank_tokens);
}

static void add_own_counts(fake *f, gb_matrix *to)
{
    for (uint32_t l = 0; f->answers && l < to->layers; l++)
        for (uint32_t e = 0; e < to->experts; e++) gb_matrix_row(to, l, f->engine)[e] += gb_matrix_row(&f->counts, l, f->engine)[e];
}

/* Counts of the round go to those that are kept, if any are. */
static int fake_finish(gb_ops *ops, gb_matrix *due)
{
    fake *f = of(ops);
    int status = gb_ops_finish(f->cpu, NULL);
    if (is_ordered(f, "fault")) {
        f->rounds++;
        gb_matrix_clear(&f->kept);
        return gb_k_fail(GB_EINTERNAL, "row 2 has an expert that does not exist");
    }
    if (f->wanted_tokens) {
        f->wanted_tokens[f->rank] += f->rank_tokens[f->rank];
        add_own_counts(f, ops->info.keeps_counts ? &f->kept : f->wanted_counts);
    }
    if (due && ops->info.keeps_counts) {
        gb_matrix_add(due, &f->kept);
        gb_matrix_clear(&f->kept);
    }
    f->wanted_tokens = NULL;
    return status;
}

static int fake_head(gb_ops *ops, const uint32_t *rows, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) of(ops)->engine_of_logits[i] = of(ops)->engine_of_row[rows[i]];
    return gb_ops_head(of(ops)->cpu, rows, n);
}

static int fake_sample(gb_ops *ops, const gb_pick *picks, uint32_t n)
{
    fake *f = of(ops);
    uint32_t own = 0;
    for (uint32_t i = 0; i < n; i++)
        if (f->answers && f->engine_of_logits[picks[i].logits_row] == f->engine) f->picks[own++] = picks[i];
    return own ? gb_ops_sample(f->cpu, f->picks, own) : GB_OK;
}

static int fake_read(gb_ops *ops, gb_readable what, uint32_t first, uint32_t n, void *out)
{
    fake *f = of(ops);
    size_t bytes = gb_wire_words(&ops->info, what) * sizeof(uint32_t);
    const uint32_t *engines = what == GB_READ_LOGITS ? f->engine_of_logits : f->engine_of_row;
    int status = gb_ops_read(f->cpu, what, first, n, f->all);
    for (uint32_t i = 0; i < n && f->answers; i++)
        if (engines[first + i] == f->engine) memcpy((char *)out + i * bytes, f->all + i * bytes, bytes);
    return status;
}

static uint32_t rank_of(const gb_ops *ops, int32_t place)
{
    uint32_t slots = ops->info.slots, p = (uint32_t)place;
    return p < slots ? p / (slots / RANKS) : p - slots;
}

static int fake_copy(gb_ops *ops, const gb_copy *copy)
{
    bool own = rank_of(ops, copy->from) == of(ops)->rank && rank_of(ops, copy->to) == of(ops)->rank;
    return own ? gb_ops_copy_expert(of(ops)->cpu, copy) : gb_k_fail(GB_EINVAL, "that copy is another rank's");
}

static int fake_send(gb_ops *ops, const gb_copy *copy, uint32_t to)
{
    bool own = rank_of(ops, copy->from) == of(ops)->rank && rank_of(ops, copy->to) == to;
    return own ? GB_OK : gb_k_fail(GB_EINVAL, "that is another rank's to send");
}

static int fake_receive(gb_ops *ops, const gb_copy *copy, uint32_t from)
{
    bool own = rank_of(ops, copy->to) == of(ops)->rank && rank_of(ops, copy->from) == from;
    if (strcmp(of(ops)->order.what, "drop") == 0) _exit(3);
    return own ? gb_ops_copy_expert(of(ops)->cpu, copy) : gb_k_fail(GB_EINVAL, "that is another rank's to receive");
}

static uint64_t fake_checksum(gb_ops *ops, uint32_t layer, uint32_t place)
{
    return rank_of(ops, (int32_t)place) == of(ops)->rank ? gb_ops_checksum(of(ops)->cpu, layer, place) : 0;
}

static void fake_free(gb_ops *ops)
{
    gb_ops_free(of(ops)->cpu);
    gb_arena_deinit(&of(ops)->arena);
    free(ops);
}

static void fake_give_up(gb_ops *ops, const char *why)
{
    (void)why;
    atomic_store(&of(ops)->given_up, true);
}

static const gb_ops_table fake_table = {
    .embed = fake_embed, .compact = fake_compact, .norm = fake_norm, .attention = fake_attention, .mlp = fake_mlp, .router = fake_router,
    .dispatch = fake_dispatch, .experts = fake_experts, .combine = fake_combine, .head = fake_head, .sample = fake_sample, .finish = fake_finish,
    .copy_expert = fake_copy, .checksum = fake_checksum, .read = fake_read, .free = fake_free,
};

static int fake_ids(gb_cuda_ids *ids, const gb_ops_limits *limits, gb_error *err)
{
    (void)err;
    for (uint32_t r = 0; r < limits->ranks; r++) memset(&ids[r], (int)r, sizeof ids[r]);
    return GB_OK;
}

static bool take_memory(fake *f)
{
    const gb_ops_info *info = &f->base.info;
    size_t rows = (size_t)info->limits.engines * info->limits.max_tokens, width = info->vocab > info->hidden ? info->vocab : info->hidden;
    f->engine_of_row = GB_ARENA_NEW(&f->arena, uint32_t, rows);
    f->engine_of_logits = GB_ARENA_NEW(&f->arena, uint32_t, info->head_rows);
    f->rank_tokens = GB_ARENA_NEW(&f->arena, uint64_t, info->limits.ranks);
    f->picks = GB_ARENA_NEW(&f->arena, gb_pick, info->head_rows);
    f->all = gb_arena_take(&f->arena, rows, width * sizeof(float));
    bool counts = gb_matrix_init(&f->counts, &f->arena, info->moe_layers, info->limits.engines, info->experts) == GB_OK &&
                  gb_matrix_init(&f->kept, &f->arena, info->moe_layers, info->limits.engines, info->experts) == GB_OK;
    return counts && f->engine_of_row && f->engine_of_logits && f->rank_tokens && f->picks && f->all;
}

static int fake_open(gb_ops **out, const gb_model_config *config, const gb_weights *weights, const gb_backend_options *options,
                     const gb_cuda_seat *seat, gb_error *err)
{
    fake *f = calloc(1, sizeof *f);
    gb_cpu_options cpu = {.limits = options->limits, .threads = 1, .kernels = "scalar", .f32 = options->f32};
    const unsigned char *id = (const unsigned char *)&seat->ids;
    const char *text = getenv("GANG_TEST");
    int status = GB_OK;
    f->base.table = &fake_table;
    f->rank = seat->rank;
    f->engine = seat->rank / (RANKS / ENGINES);
    f->answers = seat->rank % (RANKS / ENGINES) == 0;
    gb_arena_init(&f->arena);
    if (text) sscanf(text, "%15s %u %u", f->order.what, &f->order.rank, &f->order.round);
    if (is_ordered(f, "kill")) raise(SIGKILL);
    if (id[0] != seat->rank || seat->device != (int)seat->rank) status = gb_fail(err, GB_EINVAL, "rank %u has another's seat", seat->rank);
    else if (is_ordered(f, "fail")) status = gb_fail(err, GB_ENOMEM, "no room on the device");
    else if (is_ordered(f, "alone")) status = gb_fail(err, GB_EDOWN, "the others do not come");
    else status = gb_cpu_ops_new(&f->cpu, config, weights, &cpu, err);
    if (status == GB_OK) {
        f->base.info = f->cpu->info;
        f->base.info.keeps_counts = getenv("GANG_KEEPS") != NULL;
        if (!take_memory(f)) status = gb_fail(err, GB_ENOMEM, "out of memory");
    }
    if (status) fake_free(&f->base);
    else *out = &f->base;
    return status;
}

static const gb_follower_calls calls = {.ids = fake_ids, .open = fake_open, .send = fake_send, .receive = fake_receive, .give_up = fake_give_up};

/* --- a gang of them, as a backend --- */

static bool processes;
static uint32_t timeout_ms;

static int gang_ops_new(gb_ops **out, const gb_model_config *config, const gb_weights *weights, const gb_backend_options *options, gb_error *err)
{
    gb_backend_options own = *options;
    own.directory = check_path(model);
    own.timeout_ms = timeout_ms;
    return gb_gang_new(out, &calls, config, weights, &own, processes, err);
}

static const gb_backend gang_backend = {.name = "gang", .ops_new = gang_ops_new};

static const gb_matmul_rung *scalar(void)
{
    for (uint32_t i = 0; i < gb_matmul_rung_count; i++)
        if (strcmp(gb_matmul_rungs[i]->name, "scalar") == 0) return gb_matmul_rungs[i];
    return NULL;
}

static harness_options options_of(bool gang)
{
    return (harness_options){.directory = model, .backend = gang ? &gang_backend : NULL, .rung = scalar(), .engines = ENGINES, .ranks = RANKS,
                             .spare_slots = 1, .max_tokens = 128, .tap = true};
}

/* Runs the claim with ranks on threads, then in processes; nothing may be left of them. */
static void in_both_layouts(void (*claim)(void))
{
    for (int i = 0; i < 2; i++) {
        processes = i;
        timeout_ms = 0;
        claim();
        CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
        CHECK_EQ(errno, ECHILD);
    }
}

static void give_order(const char *order) { order ? setenv("GANG_TEST", order, 1) : unsetenv("GANG_TEST"); }

/* --- the same bits --- */

static void random_tokens(int32_t *tokens, uint32_t n, uint32_t vocab, uint64_t seed)
{
    gb_rng rng;
    gb_rng_init(&rng, seed);
    for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)gb_rng_below(&rng, vocab);
}

static void check_same_result(const harness *gang, const harness *one)
{
    const gb_result *got = &gang->result, *want = &one->result;
    CHECK_EQ(got->status, GB_OK);
    for (size_t i = 0; i < gb_matrix_cells(&want->counts); i++) CHECK_EQ(got->counts.counts[i], want->counts.counts[i]);
    for (uint32_t r = 0; r < RANKS; r++) CHECK_EQ(got->rank_tokens[r], want->rank_tokens[r]);
    for (uint32_t e = 0; e < ENGINES; e++)
        for (uint32_t w = 0; w < one->round.batches[e].n_works; w++) {
            const gb_sampled *a = &got->sampled[e][w], *b = &want->sampled[e][w];
            CHECK_EQ(a->token, b->token);
            CHECK_EQ(a->cancelled, b->cancelled);
            if (b->token < 0 || one->round.batches[e].works[w].sampling->logprobs < 0) continue;
            CHECK_EQ(a->logprobs.n, b->logprobs.n);
            CHECK(memcmp(a->logprobs.ids, b->logprobs.ids, b->logprobs.n * sizeof *b->logprobs.ids) == 0);
            CHECK(memcmp(a->logprobs.values, b->logprobs.values, b->logprobs.n * sizeof *b->logprobs.values) == 0);
        }
}

static void check_same_activations(const harness *gang, const harness *one)
{
    const gb_model_config *c = &one->config;
    size_t positions = HARNESS_POSITIONS;
    CHECK(memcmp(gang->hidden, one->hidden, (c->layers + 1) * positions * c->hidden * sizeof(float)) == 0);
    CHECK(memcmp(gang->experts, one->experts, c->moe_layers * positions * c->experts_per_token * sizeof(int32_t)) == 0);
    CHECK(memcmp(gang->weights, one->weights, c->moe_layers * positions * c->experts_per_token * sizeof(float)) == 0);
    CHECK(memcmp(gang->logits, one->logits, positions * c->vocab * sizeof(float)) == 0);
}

/* Prompts in chunks on both engines, some of which decode. */
static void run_rounds(harness *h, int32_t tokens[4][PROMPT + 4], const gb_sampling *const sampling[4])
{
    for (uint32_t start = 0, step = 0; start < PROMPT + 4; start += step < 3 ? 14 : 1, step++) {
        harness_clear(h);
        for (uint32_t s = 0; s < 4; s++) {
            uint32_t count = step < 3 ? (start + 14 > PROMPT ? PROMPT - start : 14) : 1, at = step < 3 ? start : PROMPT + step - 3;
            harness_add(h, s % ENGINES, s, tokens[s], at + count, PROMPT, at, count, sampling[s]);
        }
        CHECK_EQ(harness_run(h), GB_OK);
    }
}

static void rounds_give_the_bits_of_one_table_in(void)
{
    harness h[2];
    int32_t tokens[4][PROMPT + 4];
    gb_sampling warm, listed = harness_greedy, shy = harness_greedy;
    gb_sampling_default(&warm);
    warm.seed = 5;
    listed.logprobs = 4;
    shy.repetition_penalty = 1.3f;
    shy.presence_penalty = 0.5f;
    const gb_sampling *const sampling[] = {&harness_greedy, &warm, &listed, &shy};
    for (int gang = 0; gang < 2; gang++) {
        harness_options options = options_of(gang);
        harness_open(&h[gang], &options);
        for (uint32_t s = 0; s < 4; s++) random_tokens(tokens[s], PROMPT + 4, h[gang].config.vocab, s);
        run_rounds(&h[gang], tokens, sampling);
    }
    check_same_activations(&h[1], &h[0]);
    check_same_result(&h[1], &h[0]);
    CHECK_CONTAINS(h[1].executor->info.kernels, processes ? "4 ranks, processes" : "4 ranks, threads");
    CHECK_EQ(h[1].executor->info.kv_bytes, RANKS * h[0].executor->info.kv_bytes);
    harness_close(&h[0]);
    harness_close(&h[1]);
}

static void rounds_give_the_bits_of_one_table(void) { in_both_layouts(rounds_give_the_bits_of_one_table_in); }

/* Without taps a step is one message; some works leave on the way, one of them before anything was computed. */
static void cancel_one(void *self, const gb_row_set *rows, uint32_t depth, const float *x)
{
    harness *h = self;
    (void)rows, (void)x;
    if (depth == 1) gb_executor_cancel(h->executor, h->round.seq, 1, 0);
}

static void works_that_are_cancelled_leave_in(void)
{
    harness h[2];
    int32_t tokens[4][PROMPT];
    const int32_t banned[] = {3, 4};
    for (int gang = 0; gang < 2; gang++) {
        harness_options options = options_of(gang);
        gb_forward_tap tap = {.self = &h[gang], .hidden = cancel_one};
        options.tap = false;
        options.other_tap = &tap;
        harness_open(&h[gang], &options);
        for (uint32_t s = 0; s < 4; s++) {
            random_tokens(tokens[s], PROMPT, h[gang].config.vocab, s);
            harness_add(&h[gang], s % ENGINES, s, tokens[s], PROMPT, PROMPT, 0, PROMPT, &harness_greedy);
        }
        h[gang].round.batches[0].works[1].banned = banned;
        h[gang].round.batches[0].works[1].n_banned = 2;
        gb_executor_cancel(h[gang].executor, h[gang].round.seq + 1, 0, 0);
        CHECK_EQ(harness_run(&h[gang]), GB_OK);
    }
    CHECK(h[1].result.sampled[0][0].cancelled && h[1].result.sampled[1][0].cancelled);
    check_same_result(&h[1], &h[0]);
    harness_close(&h[0]);
    harness_close(&h[1]);
}

static uint64_t sum_counts(const harness *h)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < gb_matrix_cells(&h->result.counts); i++) sum += h->result.counts.counts[i];
    return sum;
}

/* Both engines: what each sends is kept by its own ranks. */
static int run_two(harness *h, bool due)
{
    static const int32_t tokens[] = {1, 2, 3};
    harness_clear(h);
    for (uint32_t e = 0; e < ENGINES; e++) harness_add(h, e, e, tokens, 3, 3, 0, 3, &harness_greedy);
    h->round.counts_due = due;
    return harness_run(h);
}

static void counts_that_ranks_keep_come_when_they_are_due_in(void)
{
    harness h;
    harness_options options = options_of(true);
    options.tap = false;
    setenv("GANG_KEEPS", "1", 1);
    give_order("fault 2 4");
    harness_open(&h, &options);
    uint64_t of_a_round = (uint64_t)ENGINES * 3 * h.config.experts_per_token * h.config.moe_layers;
    CHECK_EQ(run_two(&h, false), GB_OK);
    CHECK(h.result.counts_pending && sum_counts(&h) == 0);
    CHECK_EQ(run_two(&h, false), GB_OK);
    harness_clear(&h);
    h.round.counts_due = true;    /* in a round without rows */
    CHECK_EQ(harness_run(&h), GB_OK);
    CHECK_EQ(sum_counts(&h), 2 * of_a_round);
    CHECK_EQ(run_two(&h, false), GB_OK);
    CHECK_EQ(run_two(&h, false), GB_EINTERNAL);    /* one rank's counts are gone, and so are the others' */
    CHECK_CONTAINS(gb_k_message(), "rank 2: row 2 has an expert that does not exist");
    CHECK_EQ(run_two(&h, true), GB_OK);
    CHECK_EQ(sum_counts(&h), of_a_round);
    harness_close(&h);
    give_order(NULL);
    unsetenv("GANG_KEEPS");
}

static void counts_that_ranks_keep_come_when_they_are_due(void) { in_both_layouts(counts_that_ranks_keep_come_when_they_are_due_in); }

static void works_that_are_cancelled_leave(void) { in_both_layouts(works_that_are_cancelled_leave_in); }

/* The round may be empty then: no question but the last one. */
static void a_round_whose_works_are_all_cancelled_is_over_in(void)
{
    harness h;
    const int32_t tokens[] = {1, 2};
    harness_options options = options_of(true);
    options.tap = false;
    harness_open(&h, &options);
    harness_add(&h, 1, 0, tokens, 2, 2, 0, 2, &harness_greedy);
    gb_executor_cancel(h.executor, h.round.seq + 1, 1, 0);
    CHECK_EQ(harness_run(&h), GB_OK);
    CHECK(h.result.sampled[1][0].cancelled);
    CHECK_EQ(harness_run(&h), GB_OK);
    CHECK(h.result.sampled[1][0].token >= 0);
    harness_close(&h);
}

static void a_round_whose_works_are_all_cancelled_is_over(void) { in_both_layouts(a_round_whose_works_are_all_cancelled_is_over_in); }

/* --- experts --- */

/* The first expert and the last change ranks, as if their weights had moved. */
static void swap_experts(gb_placement *p, uint32_t layer)
{
    int32_t *slots = gb_placement_layer_slots(p, layer), *places = gb_placement_layer_places(p, layer);
    int32_t last = (int32_t)p->experts - 1, a = gb_placement_routes(p, layer, 0)[0], b = gb_placement_routes(p, layer, 0)[last], place = places[a];
    slots[a] = last;
    slots[b] = 0;
    places[a] = places[b];
    places[b] = place;
    for (uint32_t source = 0; source < p->sources; source++) {
        gb_placement_routes(p, layer, source)[0] = b;
        gb_placement_routes(p, layer, source)[last] = a;
    }
}

static void a_new_map_reaches_every_rank_in(void)
{
    harness h[2];
    int32_t tokens[PROMPT];
    uint64_t before[RANKS], moved = 0;
    for (int gang = 0; gang < 2; gang++) {
        harness_options options = options_of(gang);
        harness_open(&h[gang], &options);
        random_tokens(tokens, PROMPT, h[gang].config.vocab, 1);
        harness_feed(&h[gang], tokens, PROMPT, PROMPT, &harness_greedy);
        memcpy(before, h[gang].result.rank_tokens, sizeof before);
        for (uint32_t l = 0; l < h[gang].config.moe_layers; l++) swap_experts(&h[gang].placement, l);
        h[gang].placement.version++;
        harness_feed(&h[gang], tokens, PROMPT, PROMPT, &harness_greedy);
    }
    for (uint32_t r = 0; r < RANKS; r++) moved += before[r] != h[1].result.rank_tokens[r];
    CHECK(moved > 0);
    check_same_activations(&h[1], &h[0]);
    check_same_result(&h[1], &h[0]);
    harness_close(&h[0]);
    harness_close(&h[1]);
}

static void a_new_map_reaches_every_rank(void) { in_both_layouts(a_new_map_reaches_every_rank_in); }

/* The ranks refuse what is not theirs. */
static void copies_go_to_the_ranks_that_have_the_places_in(void)
{
    harness h;
    harness_options options = options_of(true);
    harness_open(&h, &options);
    uint64_t bytes = h.ops->info.expert_bytes;
    int32_t per_rank = (int32_t)h.placement.slots_per_rank, slots = RANKS * per_rank;
    const gb_copy copies[] = {
        {.layer = 0, .from = 0, .to = per_rank - 1, .bytes = bytes},             /* within rank 0 */
        {.layer = 1, .from = 1, .to = 3 * per_rank, .bytes = bytes},             /* from rank 0 to 3 */
        {.layer = 1, .from = 2 * per_rank, .to = slots + 1, .bytes = bytes},     /* from rank 2 to the spare place of rank 1 */
        {.layer = 0, .from = slots + 3, .to = slots, .bytes = bytes / 2},
    };
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        CHECK_EQ(gb_ops_copy_expert(h.ops, &copies[i]), GB_OK);
        if (copies[i].bytes < bytes) continue;
        CHECK(gb_ops_checksum(h.ops, copies[i].layer, (uint32_t)copies[i].from) != 0);
        CHECK_EQ(gb_ops_checksum(h.ops, copies[i].layer, (uint32_t)copies[i].to),
                 gb_ops_checksum(h.ops, copies[i].layer, (uint32_t)copies[i].from));
    }
    harness_close(&h);
}

static void copies_go_to_the_ranks_that_have_the_places(void) { in_both_layouts(copies_go_to_the_ranks_that_have_the_places_in); }

/* --- what goes wrong --- */

static int run_one(harness *h)
{
    static const int32_t tokens[] = {1, 2, 3};
    harness_clear(h);
    harness_add(h, 0, 0, tokens, 3, 3, 0, 3, &harness_greedy);
    return harness_run(h);
}

/* The order comes true in the second round. What says it becomes the sentence of every later call. */
static void check_fall(const char *order, const char *sentence)
{
    harness h;
    harness_options options = options_of(true);
    give_order(order);
    options.tap = false;
    harness_open(&h, &options);
    CHECK_EQ(run_one(&h), GB_OK);
    CHECK_EQ(run_one(&h), GB_EDOWN);
    CHECK_CONTAINS(gb_k_message(), sentence);
    CHECK_EQ(run_one(&h), GB_EDOWN);
    CHECK_CONTAINS(gb_k_message(), sentence);
    gb_copy copy = {.layer = 0, .from = 0, .to = 1, .bytes = h.ops->info.expert_bytes};
    CHECK_EQ(gb_ops_copy_expert(h.ops, &copy), GB_EDOWN);
    CHECK_CONTAINS(gb_k_message(), sentence);
    CHECK_EQ(gb_ops_checksum(h.ops, 0, 0), 0);
    harness_close(&h);
    give_order(NULL);
}

static void a_rank_that_loses_its_device_takes_all_down_in(void) { check_fall("lose 2 2", "rank 2: the device is lost"); }
static void a_rank_that_loses_its_device_takes_all_down(void) { in_both_layouts(a_rank_that_loses_its_device_takes_all_down_in); }

/* It hears the end of the gang, or the test would not end. */
static void a_rank_that_gives_no_sign_takes_all_down_in(void)
{
    timeout_ms = 100;
    check_fall("hang 1 2", "rank 1 has given no sign for 2.1 s");
}
static void a_rank_that_gives_no_sign_takes_all_down(void) { in_both_layouts(a_rank_that_gives_no_sign_takes_all_down_in); }

static void a_process_that_dies_is_named_with_its_end(void)
{
    processes = true;
    timeout_ms = 0;
    check_fall("kill 3 2", "was killed by signal 9 (Killed)");
    check_fall("exit 0 2", "ended with exit status 3");
    CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
}

static void a_process_that_stands_still_is_killed_in_the_end(void)
{
    processes = true;
    timeout_ms = 50;
    check_fall("stop 1 2", "rank 1 has given no sign for 2.0 s");
    CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
}

/* Longer than the gang has patience, but a bit at a time. */
static void a_rank_that_is_slow_but_at_work_is_waited_for(void)
{
    harness h;
    harness_options options = options_of(true);
    processes = false;
    timeout_ms = 10;
    give_order("dawdle 1 1");
    options.tap = false;
    harness_open(&h, &options);
    CHECK(3 * h.config.layers * (GB_GANG_GRACE_MS / 5) > GB_GANG_GRACE_MS + timeout_ms);    /* it dawdles three times in a layer */
    CHECK_EQ(run_one(&h), GB_OK);
    harness_close(&h);
    give_order(NULL);
}

/* What is no loss of a device ends the round only. */
static void a_round_that_a_rank_refuses_is_over_and_the_next_one_is_not_in(void)
{
    harness h;
    harness_options options = options_of(true);
    give_order("refuse 2 2");
    harness_open(&h, &options);
    CHECK_EQ(run_one(&h), GB_OK);
    int32_t token = h.result.sampled[0][0].token;
    CHECK_EQ(run_one(&h), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "rank 2: no such shape");
    CHECK_EQ(run_one(&h), GB_OK);
    CHECK_EQ(h.result.sampled[0][0].token, token);
    harness_close(&h);
    give_order(NULL);
}

static void a_round_that_a_rank_refuses_is_over_and_the_next_one_is_not(void)
{
    in_both_layouts(a_round_that_a_rank_refuses_is_over_and_the_next_one_is_not_in);
}

static void a_rank_that_dies_in_a_copy_takes_all_down(void)
{
    harness h;
    harness_options options = options_of(true);
    processes = true;
    timeout_ms = 0;
    give_order("drop 9 9");
    options.tap = false;
    harness_open(&h, &options);
    gb_copy copy = {.layer = 0, .from = 0, .to = (int32_t)h.placement.slots_per_rank, .bytes = 64};
    CHECK_EQ(gb_ops_copy_expert(h.ops, &copy), GB_EDOWN);
    CHECK_CONTAINS(gb_k_message(), "rank 1 (process ");
    CHECK_CONTAINS(gb_k_message(), "ended with exit status 3");
    CHECK_EQ(run_one(&h), GB_EDOWN);
    harness_close(&h);
    give_order(NULL);
    CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
}

static void check_opening(const char *order, int status, const char *sentence)
{
    gb_model_config config;
    gb_weights *weights = NULL;
    gb_ops *ops = NULL;
    gb_error err = {0};
    gb_backend_options options = {.limits = {.engines = ENGINES, .ranks = RANKS, .private_ranks = true, .max_works = 2, .max_tokens = 16,
                                             .max_positions = 64, .blocks_per_engine = 8}};
    CHECK_EQ(gb_model_config_load(&config, check_path(model), &err), GB_OK);
    CHECK_EQ(gb_weights_open(&weights, check_path(model), &err), GB_OK);
    give_order(order);
    CHECK_EQ(gang_ops_new(&ops, &config, weights, &options, &err), status);
    CHECK_CONTAINS(err.text, sentence);
    give_order(NULL);
    gb_weights_free(weights);
}

static void opening_fails_with_the_sentence_of_that_rank_in(void)
{
    check_opening("fail 2 0", GB_ENOMEM, "backend cuemu: rank 2: no room on the device");
    check_opening("alone 1 0", GB_EDOWN, "backend cuemu: rank 1: the others do not come");
    if (processes) check_opening("kill 1 0", GB_EDOWN, "was killed by signal 9 (Killed)");
}

static void opening_fails_with_the_sentence_of_that_rank(void) { in_both_layouts(opening_fails_with_the_sentence_of_that_rank_in); }

/* --- processes whose gang is gone --- */

/* This program again: opens a gang of processes, says so on standard output, and waits to be killed. */
static int be_a_gang(void)
{
    harness h;
    harness_options options = options_of(true);
    processes = true;
    options.tap = false;
    harness_open(&h, &options);
    if (run_one(&h) != GB_OK || write(STDOUT_FILENO, "ready", 5) != 5) return 1;
    pause();
    return 1;
}

static void ranks_end_when_their_gang_is_killed(void)
{
    int out[2], ended;
    pid_t pid = 0;
    char said[5], program[] = "gang_test", verb[] = "gang", *const argv[] = {program, verb, NULL};
    uint32_t left = 0;
    posix_spawn_file_actions_t files;
    prctl(PR_SET_CHILD_SUBREAPER, 1);    /* its ranks become ours */
    CHECK_EQ(pipe(out), 0);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
    CHECK_EQ(posix_spawn(&pid, "/proc/self/exe", &files, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&files);
    close(out[1]);
    CHECK_EQ(read(out[0], said, sizeof said), 5);
    close(out[0]);
    kill(pid, SIGKILL);
    while (waitpid(-1, &ended, 0) > 0) left++;
    CHECK_EQ(left, 1 + RANKS);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

int main(int argc, char **argv)
{
    static const check_test tests[] = {
        TEST(rounds_give_the_bits_of_one_table), TEST(works_that_are_cancelled_leave),
        TEST(counts_that_ranks_keep_come_when_they_are_due), TEST(a_round_whose_works_are_all_cancelled_is_over),
        TEST(a_new_map_reaches_every_rank), TEST(copies_go_to_the_ranks_that_have_the_places), TEST(a_rank_that_loses_its_device_takes_all_down),
        TEST(a_rank_that_gives_no_sign_takes_all_down), TEST(a_process_that_dies_is_named_with_its_end),
        TEST(a_process_that_stands_still_is_killed_in_the_end), TEST(a_rank_that_is_slow_but_at_work_is_waited_for),
        TEST(a_round_that_a_rank_refuses_is_over_and_the_next_one_is_not), TEST(a_rank_that_dies_in_a_copy_takes_all_down),
        TEST(opening_fails_with_the_sentence_of_that_rank), TEST(ranks_end_when_their_gang_is_killed),
    };
    gb_error err = {0};
    if (argc > 1 && strcmp(argv[1], "rank") == 0) return gb_follower_serve(&calls, GB_BACKEND_RANK_SOCKET, &err);
    if (argc > 1 && strcmp(argv[1], "gang") == 0) return be_a_gang();
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
