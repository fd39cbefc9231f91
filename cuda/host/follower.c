#define _GNU_SOURCE
#include "cuda/host/follower.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "cuda/host/check.h"

enum {
    UNWRITTEN = 0x7fa5a5a5,     /* words of a row that another rank answers for: no activation and no expert looks so */
    UNSAMPLED = INT32_MIN,      /* the token of such a pick */
};

typedef struct follower {
    const gb_follower_start *start;
    bool process;
    gb_time sign_every, last_sign;
    _Atomic(gb_ops *) ops;         /* NULL until it is open */
    atomic_bool closing;           /* the end of the sockets is no surprise */
    pthread_t copier, listener;
    bool copies, listens;          /* they run */
    gb_wire_buffer answer, copied; /* of the thread that runs rounds, and of the copier */
    gb_arena arena;
    /* the running round */
    int status;                    /* the first failure, and its sentence */
    char why[GB_FOLLOWER_WHY_BYTES];
    gb_wire_rows rows;
    gb_placement placements[2];    /* by turns, so that a new one is another pointer, too */
    uint32_t placement;
    gb_matrix counts;
    uint64_t *rank_tokens;         /* [ranks] */
    uint32_t *head_rows;           /* [head_rows] each */
    gb_pick *picks;
    gb_work *works;
    gb_sampling *samplings;
    gb_sampled *sampled;
    gb_wire_buffer readable;       /* what was read, before it is cut into answers */
} follower;

static gb_ops *ops_of(follower *r) { return atomic_load_explicit(&r->ops, memory_order_acquire); }

/* --- answers --- */

static void put_answer(gb_wire_buffer *out, int status, const char *why)
{
    gb_wire_begin(out, GB_WIRE_ANSWER);
    gb_wire_put_numbers(out, (uint32_t)status, 0);
    if (status != GB_OK) gb_wire_put(out, why, strnlen(why, GB_FOLLOWER_WHY_BYTES - 1) + 1, 1);
}

/* What memory had no room for is a failure of its own. A gang that is gone hears nothing. */
static void send_answer(const follower *r, int pair, gb_wire_buffer *out)
{
    if (out->failed) {
        gb_wire_clear(out);
        put_answer(out, GB_ENOMEM, "out of memory for an answer");
    }
    gb_wire_send(r->start->sockets[pair], out, GB_NEVER);
    gb_wire_clear(out);
}

static void give_sign(follower *r)
{
    gb_time now = gb_wire_now();
    if (gb_time_since(r->last_sign, now) < r->sign_every) return;
    r->last_sign = now;
    gb_wire_begin(&r->answer, GB_WIRE_ALIVE);
    send_answer(r, GB_WIRE_ROUNDS, &r->answer);
}

/* --- the ops of a round: what m says, to the table. Those that are asked put what was asked for behind the answer's head. --- */

typedef int op(follower *r, gb_wire_message *m);

static int is_cut(const gb_wire_message *m, const char *what)
{
    return m->cut ? gb_k_fail(GB_EFORMAT, "a message about %s is shorter than it says", what) : GB_OK;
}

static int get_rows(follower *r, gb_wire_message *m)
{
    int status = gb_wire_get_rows(m, &r->rows, &ops_of(r)->info.limits);
    return status ? gb_k_fail(status, "a message about the rows of a round cannot be used: %s", gb_status_message(status)) : GB_OK;
}

static void clear_counts(follower *r)
{
    memset(r->rank_tokens, 0, ops_of(r)->info.limits.ranks * sizeof *r->rank_tokens);
    gb_matrix_clear(&r->counts);
}

static int embed(follower *r, gb_wire_message *m)
{
    clear_counts(r);
    GB_TRY(get_rows(r, m));
    return gb_ops_embed(ops_of(r), &r->rows.set);
}

static int compact(follower *r, gb_wire_message *m)
{
    GB_TRY(get_rows(r, m));
    for (uint32_t i = 0; r->rows.from && i < r->rows.set.n_spans; i++)
        if (r->rows.from[i] < r->rows.set.spans[i].row) return gb_k_fail(GB_EFORMAT, "a compaction moves rows up");
    return r->rows.from ? gb_ops_compact(ops_of(r), &r->rows.set, r->rows.from) : gb_k_fail(GB_EFORMAT, "a compaction does not say from where");
}

/* The layer, which may be anything in a damaged message. */
static int get_layer(follower *r, gb_wire_message *m, uint32_t *layer, uint32_t *more, bool moe)
{
    const gb_ops_info *info = &ops_of(r)->info;
    gb_wire_get_numbers(m, layer, more);
    if (m->cut || *layer >= (moe ? info->moe_layers : info->layers)) return gb_k_fail(GB_EFORMAT, "a message names layer %u, which is none", *layer);
    return r->rows.set.n ? GB_OK : gb_k_fail(GB_EFORMAT, "a message is about rows before there are any");
}

static int norm(follower *r, gb_wire_message *m)
{
    uint32_t layer, which;
    GB_TRY(get_layer(r, m, &layer, &which, false));
    return gb_ops_norm(ops_of(r), &r->rows.set, which ? GB_NORM_MLP : GB_NORM_ATTENTION, layer);
}

/* Ops of a layer that are told nothing else. */
#define LAYER_OP(name, moe) \
    static int name(follower *r, gb_wire_message *m) \
    { \
        uint32_t layer, nothing; \
        GB_TRY(get_layer(r, m, &layer, &nothing, moe)); \
        return gb_ops_##name(ops_of(r), &r->rows.set, layer); \
    }
LAYER_OP(attention, false)
LAYER_OP(mlp, false)
LAYER_OP(router, true)
LAYER_OP(experts, true)
LAYER_OP(combine, true)
#undef LAYER_OP

static int map(follower *r, gb_wire_message *m)
{
    r->placement = !r->placement;
    int status = gb_wire_get_placement(m, &r->placements[r->placement]);
    return status ? gb_k_fail(status, "a message about where experts live has another size than the model needs") : GB_OK;
}

static int dispatch(follower *r, gb_wire_message *m)
{
    uint32_t layer, nothing;
    GB_TRY(get_layer(r, m, &layer, &nothing, true));
    return gb_ops_dispatch(ops_of(r), &r->rows.set, layer, &r->placements[r->placement], &r->counts, r->rank_tokens);
}

static int head(follower *r, gb_wire_message *m)
{
    uint32_t n, nothing;
    gb_wire_get_numbers(m, &n, &nothing);
    if (n == 0 || n > ops_of(r)->info.head_rows) return gb_k_fail(GB_EFORMAT, "a message asks for logits of %u rows", n);
    gb_wire_get(m, r->head_rows, n, sizeof *r->head_rows);
    for (uint32_t i = 0; i < n; i++)
        if (r->head_rows[i] >= r->rows.set.n) return gb_k_fail(GB_EFORMAT, "a message asks for logits of row %u, which is none", r->head_rows[i]);
    GB_TRY(is_cut(m, "logits"));
    return gb_ops_head(ops_of(r), r->head_rows, n);
}

static int sample(follower *r, gb_wire_message *m)
{
    uint32_t n, nothing;
    gb_wire_get_numbers(m, &n, &nothing);
    if (n > ops_of(r)->info.head_rows) return gb_k_fail(GB_EFORMAT, "a message asks for %u tokens", n);
    memset(r->sampled, 0, n * sizeof *r->sampled);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row;
        gb_wire_get_pick(m, &row, &r->works[i], &r->samplings[i]);
        r->sampled[i].token = UNSAMPLED;
        r->picks[i] = (gb_pick){.logits_row = row, .work = &r->works[i], .out = &r->sampled[i]};
        if (row >= ops_of(r)->info.head_rows) return gb_k_fail(GB_EFORMAT, "a message asks for a token of logits %u, which are none", row);
    }
    GB_TRY(is_cut(m, "tokens"));
    GB_TRY(gb_ops_sample(ops_of(r), r->picks, n));
    for (uint32_t i = 0; i < n; i++) {
        if (r->sampled[i].token == UNSAMPLED) continue;
        gb_wire_put_numbers(&r->answer, i, 0);
        gb_wire_put(&r->answer, &r->sampled[i], 1, sizeof r->sampled[i]);
    }
    return GB_OK;
}

/* Tokens received by rank, then the rows of counts that are not all zero. */
static int finish(follower *r, gb_wire_message *m)
{
    const gb_ops_info *info = &ops_of(r)->info;
    uint32_t due, nothing;
    gb_wire_get_numbers(m, &due, &nothing);
    GB_TRY(gb_ops_finish(ops_of(r), due ? &r->counts : NULL));
    gb_wire_put(&r->answer, r->rank_tokens, info->limits.ranks, sizeof *r->rank_tokens);
    for (uint32_t i = 0; i < info->moe_layers * info->limits.engines; i++) {
        const uint64_t *row = r->counts.counts + (size_t)i * info->experts;
        uint64_t any = 0;
        for (uint32_t e = 0; e < info->experts; e++) any |= row[e];
        if (!any) continue;
        gb_wire_put_numbers(&r->answer, i, 0);
        gb_wire_put(&r->answer, row, info->experts, sizeof *row);
    }
    clear_counts(r);
    return GB_OK;
}

static int forget(follower *r, gb_wire_message *m)
{
    (void)m;
    int status = gb_ops_finish(ops_of(r), &r->counts);
    clear_counts(r);
    return status == GB_EDOWN ? status : GB_OK;    /* a round that failed may say so again */
}

static bool is_written(const uint32_t *row, size_t words)
{
    for (size_t i = 0; i < words; i++)
        if (row[i] != UNWRITTEN) return true;
    return false;
}

static int read_rows(follower *r, gb_wire_message *m)
{
    uint32_t asked[4];
    gb_wire_get(m, asked, 4, sizeof *asked);
    uint32_t first = asked[1], n = asked[2];
    const gb_ops_limits *limits = &ops_of(r)->info.limits;
    uint32_t rows = asked[0] == GB_READ_LOGITS ? ops_of(r)->info.head_rows : limits->engines * limits->max_tokens;
    if (m->cut || asked[0] > GB_READ_LOGITS || first > rows || n > rows - first) return gb_k_fail(GB_EFORMAT, "a message reads what there is not");
    size_t words = gb_wire_words(&ops_of(r)->info, (gb_readable)asked[0]);
    gb_wire_clear(&r->readable);
    uint32_t *out = gb_wire_room(&r->readable, n * words, sizeof *out);
    if (!out) return gb_k_fail(GB_ENOMEM, "out of memory for activations");
    for (size_t i = 0; i < n * words; i++) out[i] = UNWRITTEN;
    GB_TRY(gb_ops_read(ops_of(r), (gb_readable)asked[0], first, n, out));
    for (uint32_t i = 0; i < n; i++) {
        if (!is_written(out + i * words, words)) continue;
        gb_wire_put_numbers(&r->answer, i, 0);
        gb_wire_put(&r->answer, out + i * words, words, sizeof *out);
    }
    return GB_OK;
}

/* --- carrying out --- */

static const struct { op *run; bool asks; } ops[GB_WIRE_KINDS] = {
    [GB_WIRE_EMBED] = {embed}, [GB_WIRE_COMPACT] = {compact}, [GB_WIRE_NORM] = {norm}, [GB_WIRE_ATTENTION] = {attention},
    [GB_WIRE_MLP] = {mlp}, [GB_WIRE_ROUTER] = {router}, [GB_WIRE_MAP] = {map}, [GB_WIRE_DISPATCH] = {dispatch},
    [GB_WIRE_EXPERTS] = {experts}, [GB_WIRE_COMBINE] = {combine}, [GB_WIRE_HEAD] = {head}, [GB_WIRE_SAMPLE] = {sample, true},
    [GB_WIRE_FINISH] = {finish, true}, [GB_WIRE_READ] = {read_rows, true}, [GB_WIRE_FORGET] = {forget},
};

static void note(follower *r, int status)
{
    if (status == GB_OK || r->status != GB_OK) return;
    r->status = status;
    snprintf(r->why, sizeof r->why, "%s", gb_k_message());
}

/* A failure is told once, unless the device is down; a map is kept whatever became of the round. */
static void carry_out(follower *r, gb_wire_message *m)
{
    if (m->kind == GB_WIRE_EMBED && r->status != GB_EDOWN) r->status = GB_OK;
    if (!ops[m->kind].run) note(r, gb_k_fail(GB_EFORMAT, "message %d is none of a round", (int)m->kind));
    else if (ops[m->kind].asks) put_answer(&r->answer, GB_OK, NULL);
    if (ops[m->kind].run && (r->status == GB_OK || m->kind == GB_WIRE_MAP)) note(r, ops[m->kind].run(r, m));
    if (!ops[m->kind].asks) {
        give_sign(r);
        return;
    }
    if (r->status != GB_OK) {
        gb_wire_clear(&r->answer);
        put_answer(&r->answer, r->status, r->why);
        if (r->status != GB_EDOWN) r->status = GB_OK;
    }
    r->last_sign = gb_wire_now();
    send_answer(r, GB_WIRE_ROUNDS, &r->answer);
}

static void run_rounds(follower *r)
{
    gb_wire_reader in = {.socket = r->start->sockets[GB_WIRE_ROUNDS]};
    gb_wire_message m;
    while (gb_wire_receive(&in, &m, GB_NEVER) == GB_OK && m.kind != GB_WIRE_CLOSE) carry_out(r, &m);
    gb_wire_free(&in.bytes);
}

/* --- copies, on a thread beside --- */

static int copy_bytes(follower *r, gb_wire_message *m)
{
    const gb_ops_info *info = &ops_of(r)->info;
    uint32_t peer, nothing;
    gb_copy copy;
    gb_wire_get_numbers(m, &peer, &nothing);
    gb_wire_get(m, &copy, 1, sizeof copy);
    if (m->cut || peer >= info->limits.ranks || copy.layer >= info->moe_layers || copy.offset > info->expert_bytes ||
        copy.bytes > info->expert_bytes - copy.offset)
        return gb_k_fail(GB_EFORMAT, "a message about a copy of an expert cannot be used");
    if (m->kind == GB_WIRE_COPY) return gb_ops_copy_expert(ops_of(r), &copy);
    return m->kind == GB_WIRE_SEND ? r->start->calls->send(ops_of(r), &copy, peer) : r->start->calls->receive(ops_of(r), &copy, peer);
}

static int sum_place(follower *r, gb_wire_message *m, uint64_t *sum)
{
    uint32_t layer, place;
    gb_wire_get_numbers(m, &layer, &place);
    if (m->cut || layer >= ops_of(r)->info.moe_layers || place >= ops_of(r)->info.places)
        return gb_k_fail(GB_EFORMAT, "a message about the sum of an expert cannot be used");
    *sum = gb_ops_checksum(ops_of(r), layer, place);
    return GB_OK;
}

static void *run_copies(void *self)
{
    follower *r = self;
    gb_wire_reader in = {.socket = r->start->sockets[GB_WIRE_COPIES]};
    gb_wire_message m;
    while (gb_wire_receive(&in, &m, GB_NEVER) == GB_OK) {
        uint64_t sum = 0;
        int status = m.kind == GB_WIRE_CHECKSUM ? sum_place(r, &m, &sum) : copy_bytes(r, &m);
        put_answer(&r->copied, status, status ? gb_k_message() : NULL);
        if (status == GB_OK) gb_wire_put(&r->copied, &sum, 1, sizeof sum);
        send_answer(r, GB_WIRE_COPIES, &r->copied);
    }
    gb_wire_free(&in.bytes);
    return NULL;
}

/* --- control, on a thread that is always there to hear --- */

static void *listen_to_gang(void *self)
{
    follower *r = self;
    char why[GB_FOLLOWER_WHY_BYTES];
    for (;;) {
        ssize_t n = recv(r->start->sockets[GB_WIRE_CONTROL], why, sizeof why - 1, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        why[n] = '\0';
        if (ops_of(r)) r->start->calls->give_up(ops_of(r), why);
    }
    if (r->process && !atomic_load(&r->closing)) _exit(GB_FOLLOWER_ORPHAN);
    return NULL;
}

/* --- life --- */

static int take_memory(follower *r, gb_error *err)
{
    const gb_ops_info *info = &ops_of(r)->info;
    const gb_ops_limits *l = &info->limits;
    int status = GB_OK;
    for (int i = 0; i < 2 && info->moe_layers && status == GB_OK; i++)
        status = gb_placement_init(&r->placements[i], &r->arena, info->moe_layers, l->engines, info->experts, l->ranks, l->spare_slots, err);
    if (status == GB_OK) status = gb_matrix_init(&r->counts, &r->arena, info->moe_layers, l->engines, info->experts);
    r->rank_tokens = GB_ARENA_NEW(&r->arena, uint64_t, l->ranks);
    r->head_rows = GB_ARENA_NEW(&r->arena, uint32_t, info->head_rows);
    r->picks = GB_ARENA_NEW(&r->arena, gb_pick, info->head_rows);
    r->works = GB_ARENA_NEW(&r->arena, gb_work, info->head_rows);
    r->samplings = GB_ARENA_NEW(&r->arena, gb_sampling, info->head_rows);
    r->sampled = GB_ARENA_NEW(&r->arena, gb_sampled, info->head_rows);
    if (status == GB_OK && r->rank_tokens && r->head_rows && r->picks && r->works && r->samplings && r->sampled) return GB_OK;
    return gb_fail(err, GB_ENOMEM, "out of memory for the rounds of rank %u", r->start->seat.rank);
}

static int open_table(follower *r, gb_error *err)
{
    const gb_follower_start *s = r->start;
    gb_weights *own = NULL;
    gb_ops *table = NULL;
    int status = s->weights ? GB_OK : gb_weights_open(&own, s->options.directory ? s->options.directory : "", err);
    if (!status && own) status = gb_weights_check(own, s->config, err);
    if (!status) status = s->calls->open(&table, s->config, own ? own : s->weights, &s->options, &s->seat, err);
    gb_weights_free(own);
    if (status) return status;
    atomic_store_explicit(&r->ops, table, memory_order_release);
    status = take_memory(r, err);
    if (!status) r->copies = pthread_create(&r->copier, NULL, run_copies, r) == 0;
    return !status && !r->copies ? gb_fail(err, GB_ENOMEM, "no thread for the copies of rank %u", s->seat.rank) : status;
}

/* The ends of the other two threads come through their sockets. */
static void close_rank(follower *r)
{
    atomic_store(&r->closing, true);
    for (int i = 0; i < GB_WIRE_PAIRS; i++) shutdown(r->start->sockets[i], SHUT_RDWR);
    if (r->copies) pthread_join(r->copier, NULL);
    if (r->listens) pthread_join(r->listener, NULL);
    gb_ops_free(ops_of(r));
    for (int i = 0; i < GB_WIRE_PAIRS; i++) close(r->start->sockets[i]);
    gb_wire_free(&r->answer);
    gb_wire_free(&r->copied);
    gb_wire_free(&r->readable);
    gb_wire_free_rows(&r->rows);
    gb_arena_deinit(&r->arena);
}

static void run(const gb_follower_start *start, bool process)
{
    uint32_t timeout_ms = start->options.timeout_ms ? start->options.timeout_ms : GB_BACKEND_TIMEOUT_MS;
    follower r = {.start = start, .process = process, .sign_every = gb_ms(timeout_ms) / GB_FOLLOWER_SIGNS};
    gb_error err = {0};
    gb_arena_init(&r.arena);
    r.listens = pthread_create(&r.listener, NULL, listen_to_gang, &r) == 0;
    int status = r.listens ? open_table(&r, &err) : gb_fail(&err, GB_ENOMEM, "no thread for rank %u", start->seat.rank);
    put_answer(&r.answer, status, err.text);
    if (status == GB_OK) gb_wire_put(&r.answer, &ops_of(&r)->info, 1, sizeof(gb_ops_info));
    send_answer(&r, GB_WIRE_ROUNDS, &r.answer);
    if (status == GB_OK) run_rounds(&r);
    close_rank(&r);
}

void gb_follower_run(const gb_follower_start *start) { run(start, false); }

/* --- a process of its own --- */

static void put_text(gb_wire_buffer *out, const char *text)
{
    uint32_t bytes = text ? (uint32_t)strlen(text) + 1 : 0;
    gb_wire_put_numbers(out, bytes, 0);
    gb_wire_put(out, text, bytes, 1);
}

static const char *get_text(gb_wire_message *m)
{
    uint32_t bytes, nothing;
    gb_wire_get_numbers(m, &bytes, &nothing);
    const char *text = gb_wire_view(m, bytes, 1);
    m->cut = m->cut || (bytes && text[bytes - 1] != '\0');
    return bytes && !m->cut ? text : NULL;
}

void gb_follower_put_start(gb_wire_buffer *out, const gb_follower_start *start)
{
    const gb_backend_options *o = &start->options;
    gb_wire_begin(out, GB_WIRE_OPEN);
    gb_wire_put(out, start->config, 1, sizeof *start->config);
    gb_wire_put(out, &start->seat, 1, sizeof start->seat);
    gb_wire_put(out, &o->limits, 1, sizeof o->limits);
    gb_wire_put(out, (const uint32_t[]){o->f32, o->threads, o->eager, o->timeout_ms}, 4, sizeof(uint32_t));
    put_text(out, o->kernels);
    put_text(out, o->experts);
    put_text(out, o->exchange);
    put_text(out, o->directory);
}

static int get_start(gb_wire_message *m, gb_follower_start *start, gb_model_config *config)
{
    gb_backend_options *o = &start->options;
    uint32_t numbers[4];
    gb_wire_get(m, config, 1, sizeof *config);
    gb_wire_get(m, &start->seat, 1, sizeof start->seat);
    gb_wire_get(m, &o->limits, 1, sizeof o->limits);
    gb_wire_get(m, numbers, 4, sizeof *numbers);
    o->f32 = numbers[0];
    o->threads = numbers[1];
    o->eager = numbers[2];
    o->timeout_ms = numbers[3];
    o->kernels = get_text(m);
    o->experts = get_text(m);
    o->exchange = get_text(m);
    o->directory = get_text(m);
    start->config = config;
    return m->cut ? GB_EFORMAT : GB_OK;
}

/* A line that the gang has no room for is lost, as with any slow reader of a log. */
static void send_line(void *self, gb_log_level level, const char *text)
{
    const int *socket = self;
    gb_follower_line line = {.level = (int32_t)level};
    snprintf(line.text, sizeof line.text, "%s", text);
    send(*socket, &line, offsetof(gb_follower_line, text) + strlen(line.text) + 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The gang decides when it is over: it has heard what was asked of the whole group of processes. */
static void leave_signals_to_the_gang(void)
{
    static const int asked[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) signal(asked[i], SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

int gb_follower_serve(const gb_follower_calls *calls, int socket, gb_error *err)
{
    gb_follower_start start = {.calls = calls, .sockets = {socket, socket + 1, socket + 2}};
    gb_wire_reader in = {.socket = socket};
    gb_model_config config;
    gb_wire_message m;
    leave_signals_to_the_gang();
    gb_log_set_sink(send_line, &start.sockets[GB_WIRE_CONTROL], GB_LOG_DEBUG);
    int status = gb_wire_receive(&in, &m, GB_NEVER);
    if (!status) status = m.kind == GB_WIRE_OPEN ? get_start(&m, &start, &config) : GB_EFORMAT;
    if (!status) run(&start, true);
    else gb_fail(err, status, "a rank is started by gimbal itself, which tells it what to do through descriptor %d; nothing came", socket);
    gb_wire_free(&in.bytes);
    return status;
}
