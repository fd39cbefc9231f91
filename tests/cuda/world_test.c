/* Ranks with a device and a thread each against one device that does it all: bits, counts and tokens are the same whatever way rows travel;
   and ranks that never come, or whose communicators fail, leave nobody waiting. */
#include <pthread.h>
#include <stdlib.h>

#include "core/base/rng.h"
#include "cuda/cuemu/control.h"
#include "cuda/host/rank.h"
#include "tests/cuda/device.h"
#include "tests/forward/harness.h"

gb_backend_open_fn gimbal_backend_open;

enum { RANKS = 4, ROWS = 64, DEPTHS = 8, VOCAB = 320, PROMPT = 8 };

static const char *const ways[] = {"agrs", "sendrecv", "lsa"};
enum { WAYS = sizeof ways / sizeof *ways, LSA = WAYS - 1 };

#ifdef __SANITIZE_ADDRESS__
enum { ASAN = 1 };
#else
enum { ASAN = 0 };
#endif

/* Where accesses are checked and everything takes several times as long: the way whose kernels reach into the memory of other ranks, and one
   case of each kind; what only the host decides is left to the plain mode. */
static bool is_slow(void) { return ASAN || cuemu_tracks(); }
static size_t first_way(void) { return is_slow() ? LSA : 0; }

/* --- what a round computed, a number for the bits of each row --- */

typedef struct marks {
    uint64_t hidden[DEPTHS][ROWS], routes[DEPTHS][ROWS], logits[ROWS];
    float values[ROWS][VOCAB];    /* of the logits */
} marks;

static uint64_t mark(const void *row, size_t words)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < words; i++) sum = gb_mix64(sum ^ ((const uint32_t *)row)[i]) + 1;
    return sum;
}

/* A rank speaks for its engine's rows, the first rank of several; engine -1: for all. */
typedef struct watcher {
    marks *marks;
    const gb_model_config *config;
    int engine;
    bool silent, shares;
    gb_executor *cancels;    /* engine 1's work 0 of round seq, behind the first layer; or NULL */
    uint64_t seq;
} watcher;

static void mark_rows(const watcher *w, uint64_t *to, const gb_row_set *rows, uint32_t first, uint32_t n, const void *values, size_t words)
{
    for (uint32_t i = 0; i < rows->n_spans && !w->silent; i++) {
        const gb_span *s = &rows->spans[i];
        for (uint32_t row = s->row; row < s->row + s->count; row++)
            if ((w->engine < 0 || s->engine == (uint32_t)w->engine) && row >= first && row < first + n)
                to[row] = mark((const uint32_t *)values + (row - first) * words, words);
    }
}

static void watch_hidden(void *self, const gb_row_set *rows, uint32_t depth, const float *x)
{
    const watcher *w = self;
    if (w->cancels && depth == 1) gb_executor_cancel(w->cancels, w->seq, 1, 0);
    mark_rows(w, w->marks->hidden[depth], rows, 0, rows->n, x, w->config->hidden);
}

/* Ranks of one engine have a part of its routes each: nobody shows them whole. */
static void watch_routes(void *self, const gb_row_set *rows, uint32_t moe_layer, const int32_t *experts, const float *weights)
{
    const watcher *w = self;
    (void)weights;
    if (w->shares) return;
    mark_rows(w, w->marks->routes[moe_layer], rows, 0, rows->n, experts, w->config->experts_per_token);
}

static void watch_logits(void *self, const gb_row_set *rows, uint32_t first, uint32_t n, const float *logits)
{
    const watcher *w = self;
    mark_rows(w, w->marks->logits, rows, first, n, logits, w->config->vocab);
    for (uint32_t i = 0; i < rows->n_spans && !w->silent; i++) {
        const gb_span *s = &rows->spans[i];
        for (uint32_t row = s->row; row < s->row + s->count; row++)
            if ((w->engine < 0 || s->engine == (uint32_t)w->engine) && row >= first && row < first + n)
                memcpy(w->marks->values[row], logits + (size_t)(row - first) * VOCAB, sizeof w->marks->values[row]);
    }
}

static gb_forward_tap tap_of(watcher *w, bool whole_rounds)
{
    return (gb_forward_tap){.self = w, .hidden = whole_rounds ? NULL : watch_hidden, .routes = whole_rounds ? NULL : watch_routes,
                            .logits = watch_logits};
}

/* --- a crew: one device alone, and as many ranks that compute the same rounds --- */

typedef struct setting {
    const char *model, *way;
    uint32_t engines, spare_slots, timeout_ms;
    bool graphs;
} setting;

typedef struct crew crew;

typedef struct member {
    crew *crew;
    uint32_t rank;
    gb_ops *ops;
    gb_executor *executor;
    gb_result result;
    watcher watcher;
    bool absent;
    int status;
    gb_error err;
    char message[512];
} member;

struct crew {
    setting setting;
    harness alone;
    watcher watcher;
    marks alone_marks, marks;
    gb_weights *weights;
    gb_backend_options options;
    gb_cuda_ids ids[RANKS];
    member members[RANKS];
};

static void together(crew *c, void *(*act)(void *member))
{
    pthread_t threads[RANKS];
    for (uint32_t r = 0; r < RANKS; r++)
        if (!c->members[r].absent) CHECK_EQ(pthread_create(&threads[r], NULL, act, &c->members[r]), 0);
    for (uint32_t r = 0; r < RANKS; r++)
        if (!c->members[r].absent) pthread_join(threads[r], NULL);
}

static void *open_member(void *self)
{
    member *m = self;
    crew *c = m->crew;
    gb_cuda_seat seat = {.rank = m->rank, .device = (int)m->rank, .ids = c->ids[m->rank]};
    m->status = gb_cuda_rank_new(&m->ops, &c->alone.config, c->weights, &c->options, &seat, &m->err);
    return NULL;
}

static void open_executor(member *m)
{
    crew *c = m->crew;
    const gb_model_config *config = &c->alone.config;
    uint32_t per_engine = RANKS / c->setting.engines;
    gb_round_limits limits = {.engines = c->setting.engines, .ranks = RANKS, .max_works = HARNESS_WORKS, .max_tokens = ROWS,
                              .moe_layers = config->moe_layers, .experts = config->experts};
    m->watcher = (watcher){.marks = &c->marks, .config = config, .engine = (int)(m->rank / per_engine), .silent = m->rank % per_engine != 0,
                           .shares = per_engine > 1};
    gb_forward_tap tap = tap_of(&m->watcher, c->setting.graphs);
    CHECK_EQ(gb_forward_new(&m->executor, config, m->ops, &tap, &m->err), GB_OK);
    CHECK_EQ(gb_result_init(&m->result, &c->alone.arena, &limits), GB_OK);
}

static void open_alone(crew *c)
{
    static gb_forward_tap tap;
    c->watcher = (watcher){.marks = &c->alone_marks, .config = &c->alone.config, .engine = -1, .shares = RANKS / c->setting.engines > 1};
    tap = tap_of(&c->watcher, c->setting.graphs);
    harness_options options = {.directory = c->setting.model, .backend = gimbal_backend_open(GB_BACKEND_ABI), .engines = c->setting.engines,
                               .ranks = RANKS, .spare_slots = c->setting.spare_slots, .max_tokens = ROWS, .graphs = c->setting.graphs,
                               .other_tap = &tap};
    harness_open(&c->alone, &options);
}

/* Opens what is not absent; the statuses say how that went. */
static void open_ranks(crew *c)
{
    gb_error err = {0};
    c->options = (gb_backend_options){.limits = c->alone.ops->info.limits, .eager = !c->setting.graphs, .exchange = c->setting.way,
                                      .timeout_ms = c->setting.timeout_ms};
    CHECK_EQ(gb_weights_open(&c->weights, check_path(c->setting.model), &err), GB_OK);
    CHECK_EQ(gb_cuda_world_ids(c->ids, &c->options.limits, &err), GB_OK);
    for (uint32_t r = 0; r < RANKS; r++) {
        c->members[r].crew = c;
        c->members[r].rank = r;
    }
    together(c, open_member);
}

static void open_crew(crew *c, const setting *s)
{
    memset(c, 0, sizeof *c);
    c->setting = *s;
    cuemu_set_devices(RANKS);
    open_alone(c);
    open_ranks(c);
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_STR(c->members[r].err.text, "");
        CHECK_EQ(c->members[r].status, GB_OK);
        open_executor(&c->members[r]);
    }
}

static void *close_member(void *self)
{
    member *m = self;
    if (m->executor) gb_executor_free(m->executor);
    else gb_ops_free(m->ops);
    return NULL;
}

static void close_crew(crew *c)
{
    for (uint32_t r = 0; r < RANKS; r++) c->members[r].absent = false;
    together(c, close_member);
    gb_weights_free(c->weights);
    harness_close(&c->alone);
    cuemu_set_devices(1);
}

static void *run_member(void *self)
{
    member *m = self;
    m->status = m->executor->table->run(m->executor, &m->crew->alone.round, &m->result);    /* no wrapper: it wants all that was sent to arrive here */
    snprintf(m->message, sizeof m->message, "%s", gb_k_message());
    return NULL;
}

static void check_tokens(const crew *c, uint32_t engine)
{
    const gb_result *alone = &c->alone.result, *own = &c->members[engine * (RANKS / c->setting.engines)].result;
    for (uint32_t i = 0; i < c->alone.round.batches[engine].n_works; i++) {
        CHECK_EQ(own->sampled[engine][i].token, alone->sampled[engine][i].token);
        CHECK_EQ(own->sampled[engine][i].cancelled, alone->sampled[engine][i].cancelled);
    }
}

/* What all ranks sent is what all received, and what one device counts; where routes may differ (same = false) in all. */
static void check_counts(const crew *c, bool same)
{
    const gb_matrix *want = &c->alone.result.counts;
    uint64_t sent = 0, received = 0, wanted = 0;
    for (size_t i = 0; i < gb_matrix_cells(want); i++) {
        uint64_t sum = 0;
        for (uint32_t r = 0; r < RANKS; r++) sum += c->members[r].result.counts.counts[i];
        if (same) CHECK_EQ(sum, want->counts[i]);
        sent += sum;
        wanted += want->counts[i];
    }
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t other = 0; other < RANKS; other++) {
            uint64_t got = c->members[r].result.rank_tokens[other];
            if (same || other != r) CHECK_EQ(got, other == r ? c->alone.result.rank_tokens[r] : 0);
            received += got;
        }
    CHECK(sent > 0);
    CHECK_EQ(sent, wanted);
    CHECK_EQ(received, sent);
}

/* The round that was laid into the harness. */
static void run_both(crew *c)
{
    memset(&c->alone_marks, 0, sizeof c->alone_marks);
    memset(&c->marks, 0, sizeof c->marks);
    CHECK_EQ(harness_run(&c->alone), GB_OK);
    together(c, run_member);
    for (uint32_t r = 0; r < RANKS; r++) CHECK_EQ(c->members[r].status, GB_OK);
}

static void check_same(const crew *c)
{
    const marks *want = &c->alone_marks, *got = &c->marks;
    check_counts(c, true);
    CHECK(want->logits[0] != 0 && (c->setting.graphs || want->hidden[1][0] != 0));
    for (uint32_t engine = 0; engine < c->setting.engines; engine++) check_tokens(c, engine);
    for (uint32_t row = 0; row < ROWS; row++) {
        CHECK_EQ(got->logits[row], want->logits[row]);
        for (uint32_t depth = 0; depth < DEPTHS; depth++) {
            CHECK_EQ(got->hidden[depth][row], want->hidden[depth][row]);
            CHECK_EQ(got->routes[depth][row], want->routes[depth][row]);
        }
    }
}

/* --- rounds --- */

enum { SEQUENCES = 6, POSITIONS = 24 };

static int32_t text[SEQUENCES][POSITIONS];

static void write_text(uint32_t vocab)
{
    gb_rng rng;
    gb_rng_init(&rng, 5);
    for (uint32_t s = 0; s < SEQUENCES; s++)
        for (uint32_t i = 0; i < POSITIONS; i++) text[s][i] = (int32_t)gb_rng_below(&rng, vocab);
}

static void add(crew *c, uint32_t engine, uint32_t sequence, uint32_t start, uint32_t count)
{
    harness_add(&c->alone, engine, sequence, text[sequence], start + count, PROMPT, start, count, &harness_greedy);
}

static void clear_round(crew *c)
{
    harness_clear(&c->alone);
    write_text(c->alone.config.vocab);
}

/* Prompts of unlike length in chunks, one engine at first idle; then steps in which more and more take part. */
static void run_rounds(crew *c, void (*check)(const crew *c))
{
    uint32_t engines = c->setting.engines, last = engines - 1;
    clear_round(c);
    add(c, 0, 0, 0, PROMPT - 3);
    run_both(c);
    check(c);
    clear_round(c);
    add(c, 0, 0, PROMPT - 3, 3);
    for (uint32_t s = 1; s < SEQUENCES; s++) add(c, s % engines, s, 0, s);
    run_both(c);
    check(c);
    for (uint32_t step = 0; step < (is_slow() ? 1 : 3); step++) {
        clear_round(c);
        for (uint32_t s = 1; s < 3 + step && s < SEQUENCES; s++) add(c, step == 0 ? last : s % engines, s, s + step, 1);
        run_both(c);
        check(c);
    }
}

static crew *new_crew(const setting *s)
{
    crew *c = malloc(sizeof *c);
    CHECK(c != NULL);
    open_crew(c, s);
    return c;
}

static void free_crew(crew *c)
{
    close_crew(c);
    free(c);
}

static void check_model(const char *model, const char *way, bool graphs)
{
    crew *c = new_crew(&(setting){.model = model, .way = way, .engines = RANKS, .graphs = graphs});
    run_rounds(c, check_same);
    free_crew(c);
}

static void ranks_compute_the_bits_of_one_device(void)
{
    for (size_t way = first_way(); way < WAYS; way++) check_model("tests/golden/plain", ways[way], false);
}

static void steps_of_ranks_run_as_graphs(void)
{
    check_model("tests/golden/plain", "lsa", true);
    if (!is_slow()) check_model("tests/golden/dense-mixed", "agrs", true);
}

/* Rows of all engines move together; on the ranks only those of engine 1 do. */
static void a_work_that_is_cancelled_leaves_every_rank(void)
{
    for (size_t way = first_way(); way < WAYS; way++) {
        crew *c = new_crew(&(setting){.model = "tests/golden/plain", .way = ways[way], .engines = RANKS});
        clear_round(c);
        for (uint32_t s = 0; s < SEQUENCES; s++) add(c, s % RANKS, s, 0, s + 2);
        c->watcher.cancels = c->alone.executor;
        for (uint32_t r = 0; r < RANKS; r++) c->members[r].watcher.cancels = c->members[r].executor;
        c->watcher.seq = c->alone.round.seq + 1;
        for (uint32_t r = 0; r < RANKS; r++) c->members[r].watcher.seq = c->watcher.seq;
        run_both(c);
        check_same(c);
        CHECK(c->alone.result.sampled[1][0].cancelled && !c->alone.result.sampled[1][1].cancelled);
        free_crew(c);
    }
}

static gb_placement other_placement;

static void *run_by_another_map(void *self)
{
    member *m = self;
    gb_round round = m->crew->alone.round;
    if (m->rank == 1) round.placement = &other_placement;
    m->status = m->executor->table->run(m->executor, &round, &m->result);
    snprintf(m->message, sizeof m->message, "%s", gb_k_message());
    return NULL;
}

static void a_rank_with_another_version_of_the_map_is_found_out(void)
{
    for (size_t way = is_slow() ? LSA : 1; way < WAYS; way++) {
        crew *c = new_crew(&(setting){.model = "tests/golden/plain", .way = ways[way], .engines = RANKS});
        clear_round(c);
        for (uint32_t s = 0; s < RANKS; s++) add(c, s, s, 0, 2);
        other_placement = c->alone.placement;
        other_placement.version++;
        together(c, run_by_another_map);
        for (uint32_t r = 0; r < RANKS; r++) {
            CHECK_EQ(c->members[r].status, GB_EINTERNAL);
            CHECK_CONTAINS(c->members[r].message, "has routed by another version of the map");
        }
        run_both(c);
        check_same(c);
        free_crew(c);
    }
}

/* --- engines on several ranks --- */

static uint64_t bits_seen;

/* Partial sums are added in another order than by one device, so bits may differ; a row whose routes fell the other way counts as different. */
static void check_near(const crew *c)
{
    uint32_t far = 0, rows = 0;
    check_counts(c, false);
    for (uint32_t row = 0; row < ROWS; row++) {
        double difference = 0, size = 0;
        for (uint32_t i = 0; i < VOCAB; i++) {
            double want = c->alone_marks.values[row][i], got = c->marks.values[row][i];
            difference += (got - want) * (got - want);
            size += want * want;
        }
        rows += size > 0;
        far += difference > 0.04 * 0.04 * size;
        bits_seen = gb_mix64(bits_seen ^ c->marks.logits[row]) + 1;
    }
    CHECK(rows > 0);
    CHECK(far * 4 <= rows);
}

static uint64_t bits_of_rounds(const char *model, uint32_t engines, const char *way, bool graphs)
{
    crew *c = new_crew(&(setting){.model = model, .way = way, .engines = engines, .graphs = graphs});
    bits_seen = 0;
    run_rounds(c, check_near);
    free_crew(c);
    return bits_seen;
}

static void engines_on_several_ranks_compute_nearly_what_one_device_does(void)
{
    static const struct { const char *model; uint32_t engines; } kinds[] = {
        {"tests/golden/plain", 2}, {"tests/golden/attention-bias", 2}, {"tests/golden/dense-mixed", 2}, {"tests/golden/all-kv-heads", 1},
    };
    for (size_t i = 0; i < (is_slow() ? 1 : sizeof kinds / sizeof *kinds); i++) {
        uint64_t bits = bits_of_rounds(kinds[i].model, kinds[i].engines, ways[(LSA + i) % WAYS], true);
        if (i == 0 && !is_slow()) CHECK_EQ(bits_of_rounds(kinds[i].model, kinds[i].engines, "sendrecv", false), bits);
    }
}

static void check_refused(const setting *s, int status, const char *part)
{
    crew *c = calloc(1, sizeof *c);
    c->setting = *s;
    cuemu_set_devices(RANKS);
    open_alone(c);
    open_ranks(c);
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(c->members[r].status, status);
        CHECK_CONTAINS(c->members[r].err.text, part);
        CHECK(c->members[r].ops == NULL);
    }
    free_crew(c);
}

static void what_ranks_cannot_do_is_refused_with_a_remedy(void)
{
    check_refused(&(setting){.model = "tests/golden/plain", .engines = 1}, GB_EUNSUPPORTED, "2 kv heads cannot be split over the 4 ranks");
    check_refused(&(setting){.model = "tests/golden/plain", .engines = 4, .way = "post"}, GB_EINVAL, "by \"post\"");
}

/* --- experts that move --- */

typedef struct swap {
    uint32_t layer, rank[2];
    int32_t slot[2], place[2], spare[2];    /* an expert's home, and where the other one goes */
} swap;

static int32_t spare_of[DEPTHS][RANKS];
static const swap *swapping;

static void send_half(member *m, int half, bool sends)
{
    const swap *s = swapping;
    uint64_t bytes = m->ops->info.expert_bytes, part = bytes / 3;
    for (int piece = 0; piece < 2; piece++) {
        gb_copy copy = {.layer = s->layer, .from = s->place[half], .to = s->spare[!half], .offset = piece ? part : 0,
                        .bytes = piece ? bytes - part : part};
        CHECK_EQ(sends ? gb_cuda_send_expert(m->ops, &copy, s->rank[!half]) : gb_cuda_receive_expert(m->ops, &copy, s->rank[half]), GB_OK);
    }
}

static void *swap_member(void *self)
{
    member *m = self;
    for (int half = 0; half < 2; half++) {
        if (m->rank == swapping->rank[half]) send_half(m, half, true);
        if (m->rank == swapping->rank[!half]) send_half(m, half, false);
    }
    return NULL;
}

static swap plan_swap(const crew *c, uint32_t layer, uint32_t a, uint32_t b, uint32_t which)
{
    const gb_placement *p = &c->alone.placement;
    swap s = {.layer = layer, .rank = {a, b}};
    for (int half = 0; half < 2; half++) {
        s.slot[half] = (int32_t)(s.rank[half] * p->slots_per_rank + which);
        s.place[half] = gb_placement_layer_places(p, layer)[s.slot[half]];
        s.spare[half] = spare_of[layer][s.rank[half]];
    }
    return s;
}

static void swap_alone(crew *c, const swap *s)
{
    for (int half = 0; half < 2; half++) {
        gb_copy copy = {.layer = s->layer, .from = s->place[half], .to = s->spare[!half], .bytes = c->alone.ops->info.expert_bytes};
        CHECK_EQ(gb_ops_copy_expert(c->alone.ops, &copy), GB_OK);
        uint64_t sum = gb_ops_checksum(c->alone.ops, s->layer, (uint32_t)copy.from);
        CHECK_EQ(gb_ops_checksum(c->members[s->rank[half]].ops, s->layer, (uint32_t)copy.from), sum);
        CHECK_EQ(gb_ops_checksum(c->members[s->rank[!half]].ops, s->layer, (uint32_t)copy.to), sum);
        CHECK_EQ(gb_ops_checksum(c->members[s->rank[half]].ops, s->layer, (uint32_t)copy.to), 0);    /* not there */
    }
}

static void commit_swap(crew *c, const swap *s)
{
    gb_placement *p = &c->alone.placement;
    int32_t *experts = gb_placement_layer_slots(p, s->layer), *places = gb_placement_layer_places(p, s->layer);
    int32_t moved[2] = {experts[s->slot[1]], experts[s->slot[0]]};
    for (int half = 0; half < 2; half++) {
        experts[s->slot[half]] = moved[half];
        places[s->slot[half]] = s->spare[half];
        spare_of[s->layer][s->rank[half]] = s->place[half];
        for (uint32_t source = 0; source < p->sources; source++) gb_placement_routes(p, s->layer, source)[moved[half]] = s->slot[half];
    }
    p->version++;
}

static void *run_and_swap(void *self)
{
    pthread_t mover;
    CHECK_EQ(pthread_create(&mover, NULL, swap_member, self), 0);
    run_member(self);
    pthread_join(mover, NULL);
    return NULL;
}

/* Experts of every layer change ranks beside every third round. */
static void check_migration(uint32_t engines, const char *way, bool graphs)
{
    crew *c = new_crew(&(setting){.model = "tests/golden/plain", .way = way, .engines = engines, .graphs = graphs});
    for (uint32_t layer = 0; layer < DEPTHS; layer++)
        for (uint32_t r = 0; r < RANKS; r++) spare_of[layer][r] = (int32_t)(gb_placement_slots(&c->alone.placement) + r);
    for (uint32_t step = 0; step < 6; step++) {
        swap s = plan_swap(c, step % 2, step / 3, 3, step % 2);
        clear_round(c);
        for (uint32_t q = 0; q < SEQUENCES; q++) add(c, q % engines, q, step, 1);
        memset(&c->marks, 0, sizeof c->marks);
        CHECK_EQ(harness_run(&c->alone), GB_OK);
        swapping = &s;
        together(c, step % 3 == 2 ? run_and_swap : run_member);
        if (engines == RANKS) check_same(c);
        else check_near(c);
        if (step % 3 != 2) continue;
        swap_alone(c, &s);
        commit_swap(c, &s);
    }
    free_crew(c);
}

static void experts_that_change_ranks_change_no_bits(void)
{
    check_migration(RANKS, "lsa", true);
    if (is_slow()) return;
    check_migration(RANKS, "sendrecv", false);
    check_migration(2, "agrs", true);
}

static void a_place_of_another_rank_is_refused(void)
{
    if (is_slow()) return;
    crew *c = new_crew(&(setting){.model = "tests/golden/plain", .engines = RANKS});
    gb_copy copy = {.from = 0, .to = 1, .bytes = 16};
    CHECK_EQ(gb_ops_copy_expert(c->members[0].ops, &copy), GB_OK);
    CHECK_EQ(gb_ops_copy_expert(c->members[1].ops, &copy), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "place 1 of a layer is not on rank 1");
    CHECK_EQ(gb_cuda_send_expert(c->members[2].ops, &copy, 0), GB_EINVAL);
    CHECK_EQ(gb_cuda_receive_expert(c->members[3].ops, &copy, 0), GB_EINVAL);
    free_crew(c);
}

/* --- what must not hang --- */

enum { SOON_MS = 300, LATE_MS = 600000 };

static void lay_step(crew *c)
{
    clear_round(c);
    for (uint32_t s = 0; s < RANKS; s++) add(c, s, s, 0, 2);
}

static void check_down(const crew *c, const char *part)
{
    for (uint32_t r = 0; r < RANKS; r++)
        if (!c->members[r].absent) {
            CHECK_EQ(c->members[r].status, GB_EDOWN);
            CHECK_CONTAINS(c->members[r].message, part);
        }
}

/* One of them at least; NCCL tells the others before they have waited so long. */
static void check_waited(const crew *c)
{
    bool said = false;
    for (uint32_t r = 0; r < RANKS; r++)
        said |= strstr(c->members[r].message, "waited 300 ms") || strstr(c->members[r].err.text, "waited 300 ms");
    CHECK(said);
}

/* Everybody has all the time to get that far. */
static crew *crew_after_a_round(uint32_t timeout_ms, const char *way)
{
    crew *c = new_crew(&(setting){.model = "tests/golden/plain", .way = way, .engines = RANKS, .timeout_ms = LATE_MS});
    lay_step(c);
    run_both(c);
    for (uint32_t r = 0; r < RANKS; r++) ((gb_cuda *)c->members[r].ops)->world->timeout_ms = timeout_ms;
    return c;
}

static void a_rank_that_never_comes_is_waited_for_no_longer_than_the_timeout(void)
{
    for (size_t way = first_way(); way < WAYS; way++) {
        crew *c = crew_after_a_round(SOON_MS, ways[way]);
        c->members[2].absent = true;
        together(c, run_member);
        check_down(c, "");
        check_waited(c);
        together(c, run_member);    /* down for good, and at once */
        check_down(c, "is down");
        gb_copy copy = {.from = 0, .to = 1, .bytes = 16};
        CHECK_EQ(gb_cuda_send_expert(c->members[0].ops, &copy, 1), GB_EDOWN);
        free_crew(c);
    }
}

static void a_rank_that_is_never_opened_is_waited_for_no_longer_than_the_timeout(void)
{
    crew *c = calloc(1, sizeof *c);
    c->setting = (setting){.model = "tests/golden/plain", .engines = RANKS, .timeout_ms = SOON_MS};
    cuemu_set_devices(RANKS);
    open_alone(c);
    c->members[1].absent = true;
    open_ranks(c);
    for (uint32_t r = 0; r < RANKS; r++)
        if (!c->members[r].absent) {
            CHECK_EQ(c->members[r].status, GB_EDOWN);
            CHECK_CONTAINS(c->members[r].err.text, "is down");
        }
    check_waited(c);
    free_crew(c);
}

/* It fails alone; what it says goes to nobody, and the others learn it from the clock. */
static void a_rank_that_fails_in_the_middle_of_a_round_takes_nobody_along_for_ever(void)
{
    static const struct { const char *call, *way; } cases[] = {
        {"push_kernel", "lsa"}, {"land_kernel", "lsa"}, {"norm_kernel", "agrs"}, {"spread_kernel", "agrs"}, {"cudaMemcpyAsync", "agrs"},
    };
    for (size_t i = 0; i < (is_slow() ? 1 : sizeof cases / sizeof *cases); i++) {
        crew *c = crew_after_a_round(SOON_MS, cases[i].way);
        cuemu_fail_call(cases[i].call, 0, cudaErrorUnknown);
        together(c, run_member);
        check_down(c, "");
        together(c, run_member);
        check_down(c, "is down");
        free_crew(c);
    }
}

static void what_nccl_reports_ends_the_round(void)
{
    if (is_slow()) return;
    crew *c = crew_after_a_round(LATE_MS, "agrs");
    cuemu_fail_call("ncclCommGetAsyncError", 0, ncclRemoteError);
    together(c, run_member);
    check_down(c, "remote process exited");
    free_crew(c);
    c = crew_after_a_round(SOON_MS, "agrs");    /* a call that is refused is known to its rank only */
    cuemu_fail_call("ncclReduceScatter", 0, ncclInternalError);
    together(c, run_member);
    check_down(c, "");
    free_crew(c);
}

static void *give_up(void *self)
{
    member *m = self;
    gb_cuda_give_up(m->ops, "the process of rank 2 is gone");
    return NULL;
}

static void *run_in_vain(void *self)
{
    pthread_t other;
    CHECK_EQ(pthread_create(&other, NULL, give_up, self), 0);
    run_member(self);
    pthread_join(other, NULL);
    return NULL;
}

static void another_thread_can_give_up_for_a_rank_that_waits(void)
{
    if (is_slow()) return;
    crew *c = crew_after_a_round(LATE_MS, "agrs");
    c->members[2].absent = true;
    together(c, run_in_vain);
    for (uint32_t r = 0; r < RANKS; r++)
        if (r != 2) CHECK_EQ(c->members[r].status, GB_EDOWN);
    together(c, run_member);
    check_down(c, "is down");
    CHECK(strstr(c->members[0].message, "the process of rank 2 is gone") || strstr(c->members[1].message, "the process of rank 2 is gone") ||
          strstr(c->members[3].message, "the process of rank 2 is gone"));    /* the first; NCCL tells the others */
    free_crew(c);
}

static void a_fault_is_told_by_its_rank_and_the_next_round_is_none_the_worse(void)
{
    crew *c = crew_after_a_round(LATE_MS, "agrs");
    int32_t wrong[2] = {1, VOCAB};
    clear_round(c);
    for (uint32_t s = 0; s < RANKS; s++)
        harness_add(&c->alone, s, s, s == 1 ? wrong : text[s], 2, 2, 0, 2, &harness_greedy);
    together(c, run_member);
    for (uint32_t r = 0; r < RANKS; r++) CHECK_EQ(c->members[r].status, r == 1 ? GB_EINTERNAL : GB_OK);
    lay_step(c);
    run_both(c);
    check_same(c);
    free_crew(c);
}

TESTS(TEST(ranks_compute_the_bits_of_one_device), TEST(steps_of_ranks_run_as_graphs),
      TEST(engines_on_several_ranks_compute_nearly_what_one_device_does), TEST(what_ranks_cannot_do_is_refused_with_a_remedy),
      TEST(a_work_that_is_cancelled_leaves_every_rank), TEST(a_rank_with_another_version_of_the_map_is_found_out),
      TEST(experts_that_change_ranks_change_no_bits), TEST(a_place_of_another_rank_is_refused),
      TEST(a_rank_that_never_comes_is_waited_for_no_longer_than_the_timeout),
      TEST(a_rank_that_is_never_opened_is_waited_for_no_longer_than_the_timeout),
      TEST(a_rank_that_fails_in_the_middle_of_a_round_takes_nobody_along_for_ever), TEST(what_nccl_reports_ends_the_round),
      TEST(another_thread_can_give_up_for_a_rank_that_waits),
      TEST(a_fault_is_told_by_its_rank_and_the_next_round_is_none_the_worse))
