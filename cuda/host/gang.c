#define _GNU_SOURCE
#include "cuda/host/gang.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "core/base/log.h"
#include "cuda/host/check.h"
#include "cuda/host/member.h"

enum { LOOK_EVERY_MS = 5 };    /* for a rank whose end explains what another one says */

typedef struct gang {
    gb_ops base;
    gb_arena arena;
    bool processes;
    atomic_bool opens, closes;     /* opens: until every rank is open, the first failure ends it */
    uint32_t ranks;
    gb_time patience;              /* with a rank that was asked and gives no sign */
    gb_member *members;            /* [ranks] */
    struct pollfd *polled[GB_WIRE_CONTROL];    /* [ranks] each */
    gb_wire_buffer out;            /* ops that have not left yet: the same for all */
    bool defers;                   /* ops leave with the next question */
    const gb_placement *placement; /* that the ranks have, and its version */
    uint32_t placement_version;
    gb_matrix *counts;             /* where they go; NULL: nobody wants any */
    uint64_t *rank_tokens;         /* the round's, since its first dispatch */
    bool forgets;                  /* a round failed: what other ranks keep of it goes, too */
    _Atomic uint64_t *cancelled;   /* [engines * max_works]: seq + 1 of the round that the work was cancelled for */
    pthread_mutex_t copying;       /* one copy or sum at a time */
    gb_wire_buffer copy;
    pthread_t watcher;             /* passes log lines of processes on, and sees them end */
    bool watches;
    pthread_mutex_t fate;          /* who died, and of the next two */
    atomic_bool down;
    char why[GB_FOLLOWER_WHY_BYTES];
} gang;

/* --- the end of the gang, by whichever thread sees it --- */

/* While ranks open, the sentence is for whoever wanted them, and not for the log. */
static int report(gang *g, int status, const char *sentence)
{
    if (!atomic_load(&g->opens)) return gb_k_fail(status, "%s", sentence);
    if (sentence != g->why) snprintf(g->why, sizeof g->why, "%.*s", (int)sizeof g->why - 1, sentence);
    return status;
}

/* The first reason counts. All ranks hear it, and it becomes the sentence of the call. Holds fate. */
static int go_down(gang *g, const char *why)
{
    if (!atomic_load(&g->down)) snprintf(g->why, sizeof g->why, "%s", why);
    atomic_store(&g->down, true);
    for (uint32_t r = 0; r < g->ranks; r++) gb_member_give_up(&g->members[r], g->why);
    return report(g, GB_EDOWN, g->why);
}

static int fall(gang *g, const char *why)
{
    pthread_mutex_lock(&g->fate);
    int status = go_down(g, why);
    pthread_mutex_unlock(&g->fate);
    return status;
}

static int check_up(gang *g)
{
    if (!atomic_load(&g->down)) return GB_OK;
    pthread_mutex_lock(&g->fate);
    int status = gb_k_fail(GB_EDOWN, "%s", g->why);
    pthread_mutex_unlock(&g->fate);
    return status;
}

/* The socket of a rank is closed. */
static int lose(gang *g, gb_member *m)
{
    char why[GB_FOLLOWER_WHY_BYTES];
    pthread_mutex_lock(&g->fate);
    gb_member_epitaph(m, why, sizeof why);
    int status = go_down(g, why);
    pthread_mutex_unlock(&g->fate);
    return status;
}

static int lose_silent(gang *g, const gb_member *m)
{
    char why[GB_FOLLOWER_WHY_BYTES];
    snprintf(why, sizeof why, "rank %u has given no sign for %.1f s (--collective-timeout-ms bounds what it may wait for)", m->start.seat.rank,
             gb_to_ms(g->patience) / 1e3);
    return fall(g, why);
}

static gb_member *find_dead(gang *g)
{
    for (uint32_t r = 0; r < g->ranks; r++)
        if (gb_member_has_died(&g->members[r])) return &g->members[r];
    return NULL;
}

/* Without what the sentence about all ranks says itself. */
static const char *bare(const char *why)
{
    static const char backend[] = "backend " GB_CUDA_NAME ": ";
    return strncmp(why, backend, sizeof backend - 1) == 0 ? why + sizeof backend - 1 : why;
}

static void name_rank(char out[GB_FOLLOWER_WHY_BYTES], const gb_member *m, const char *why)
{
    int room = GB_FOLLOWER_WHY_BYTES - 32;
    if (strncmp(bare(why), "rank ", 5) == 0) snprintf(out, GB_FOLLOWER_WHY_BYTES, "%.*s", room, bare(why));
    else snprintf(out, GB_FOLLOWER_WHY_BYTES, "rank %u: %.*s", m->start.seat.rank, room, bare(why));
}

/* A rank that says GB_EDOWN may only have seen another one die: then that is the news. */
static int lose_reporting(gang *g, const gb_member *m, const char *its_why)
{
    char why[GB_FOLLOWER_WHY_BYTES];
    gb_time until = gb_wire_now() + gb_ms(GB_GANG_BLAME_MS);
    pthread_mutex_lock(&g->fate);
    gb_member *dead = find_dead(g);
    for (; g->processes && !dead && gb_wire_now() < until; dead = find_dead(g))
        nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY_MS * 1000000}, NULL);
    if (dead) gb_member_epitaph(dead, why, sizeof why);
    else name_rank(why, m, its_why);
    int status = go_down(g, why);
    pthread_mutex_unlock(&g->fate);
    return status;
}

/* --- answers --- */

/* Adds what a rank answers to what the caller wants. */
typedef void merge(gang *g, const gb_member *from, gb_wire_message *m, void *into);

typedef struct question {
    int pair;
    merge *merge;    /* NULL: nothing but a status comes back */
    void *into;
} question;

static gb_member_line *line_of(gb_member *m, const question *q) { return &m->lines[q->pair]; }

static int take_answer(gang *g, gb_member *m, gb_wire_message *answer, const question *q)
{
    uint32_t code, nothing;
    char sentence[GB_FOLLOWER_WHY_BYTES];
    gb_wire_get_numbers(answer, &code, &nothing);
    int status = (int)code;
    if (status == GB_OK && q->merge) q->merge(g, m, answer, q->into);
    if (answer->cut || answer->kind != GB_WIRE_ANSWER) return fall(g, "a rank gave an answer that makes no sense");
    if (status == GB_OK) return GB_OK;
    size_t bytes = strnlen(answer->at, (size_t)(answer->end - answer->at));
    const char *why = answer->at + bytes < answer->end ? answer->at : gb_status_message(status);
    if (status == GB_EDOWN) return lose_reporting(g, m, why);
    name_rank(sentence, m, why);
    return report(g, status, sentence);
}

/* What this rank has said by now. *status = the first failure. Nonzero: nobody needs to wait for the others. */
static int hear(gang *g, gb_member *m, const question *q, int *status)
{
    gb_member_line *line = line_of(m, q);
    gb_wire_message message;
    int filled = line->awaited ? gb_wire_fill(&line->in) : GB_OK;
    while (line->awaited && gb_wire_next(&line->in, &message)) {
        line->last_sign = gb_wire_now();
        if (message.kind == GB_WIRE_ALIVE) continue;
        line->awaited = false;
        int answer = take_answer(g, m, &message, q);
        if (answer == GB_EDOWN || (answer != GB_OK && atomic_load(&g->opens))) return answer;
        if (*status == GB_OK) *status = answer;
    }
    if (!line->awaited || filled == GB_OK) return GB_OK;
    return filled == GB_EDOWN ? lose(g, m) : fall(g, "a rank gave an answer that makes no sense");
}

/* Until a rank has something to say, or one was silent for too long. */
static int wait_for_any(gang *g, const question *q)
{
    struct pollfd *polled = g->polled[q->pair];
    const gb_member *quietest = NULL;
    gb_time end = GB_NEVER;
    nfds_t n = 0;
    for (uint32_t r = 0; r < g->ranks; r++) {
        const gb_member_line *line = line_of(&g->members[r], q);
        if (!line->awaited) continue;
        polled[n++] = (struct pollfd){.fd = line->in.socket, .events = POLLIN};
        if (line->last_sign + g->patience >= end) continue;
        end = line->last_sign + g->patience;
        quietest = &g->members[r];
    }
    gb_time left_ms = (gb_time_since(gb_wire_now(), end) + 999999) / 1000000;
    return poll(polled, n, left_ms < INT32_MAX ? (int)left_ms : INT32_MAX) == 0 ? lose_silent(g, quietest) : GB_OK;
}

/* Every answer that is awaited. */
static int collect(gang *g, const question *q)
{
    int status = GB_OK;
    for (bool any = true; any;) {
        any = false;
        for (uint32_t r = 0; r < g->ranks; r++) {
            GB_TRY(hear(g, &g->members[r], q, &status));
            any = any || line_of(&g->members[r], q)->awaited;
        }
        if (any) GB_TRY(wait_for_any(g, q));
    }
    return status;
}

static int send_to(gang *g, gb_member *m, int pair, gb_wire_buffer *out)
{
    int status = gb_wire_send(m->sockets[pair], out, gb_wire_now() + g->patience);
    if (status == GB_OK) return GB_OK;
    if (status == GB_EDOWN) return lose(g, m);
    return status == GB_EDEADLINE ? lose_silent(g, m) : fall(g, "out of memory for a message to the ranks");
}

static void await_answer(gb_member_line *line)
{
    line->awaited = true;
    line->last_sign = gb_wire_now();
}

/* --- rounds: what core/forward says, to all --- */

/* What waits leaves. */
static int flush(gang *g)
{
    int status = check_up(g);
    for (uint32_t r = 0; r < g->ranks && status == GB_OK; r++) status = send_to(g, &g->members[r], GB_WIRE_ROUNDS, &g->out);
    gb_wire_clear(&g->out);
    return status;
}

static int ask(gang *g, merge *with, void *into)
{
    question q = {.pair = GB_WIRE_ROUNDS, .merge = with, .into = into};
    GB_TRY(flush(g));
    for (uint32_t r = 0; r < g->ranks; r++) await_answer(&g->members[r].lines[GB_WIRE_ROUNDS]);
    int status = collect(g, &q);
    g->forgets = g->forgets || (status != GB_OK && g->base.info.keeps_counts);
    return status;
}

static int tell(gang *g, gb_wire_kind kind, uint32_t a, uint32_t b)
{
    gb_wire_begin(&g->out, kind);
    gb_wire_put_numbers(&g->out, a, b);
    return check_up(g);
}

/* Half a layer ends with it: what came before may run. */
static int tell_last(gang *g, gb_wire_kind kind, uint32_t layer)
{
    GB_TRY(tell(g, kind, layer, 0));
    return g->defers && g->out.n < GB_GANG_FLUSH_BYTES ? GB_OK : flush(g);
}

/* The first message of a round. */
static void begin_round(gang *g)
{
    if (g->forgets) gb_wire_begin(&g->out, GB_WIRE_FORGET);
    g->forgets = false;
}

static int gang_embed(gb_ops *ops, const gb_row_set *rows)
{
    gang *g = (gang *)ops;
    begin_round(g);
    g->counts = NULL;
    g->rank_tokens = NULL;
    g->defers = rows->n == rows->n_spans;
    gb_wire_begin(&g->out, GB_WIRE_EMBED);
    gb_wire_put_rows(&g->out, rows, NULL);
    return check_up(g);
}

static int gang_compact(gb_ops *ops, const gb_row_set *rows, const uint32_t *from)
{
    gang *g = (gang *)ops;
    gb_wire_begin(&g->out, GB_WIRE_COMPACT);
    gb_wire_put_rows(&g->out, rows, from);
    return check_up(g);
}

static int gang_norm(gb_ops *ops, const gb_row_set *rows, gb_norm norm, uint32_t layer)
{
    (void)rows;
    return tell((gang *)ops, GB_WIRE_NORM, layer, norm == GB_NORM_MLP);
}

static int gang_attention(gb_ops *ops, const gb_row_set *rows, uint32_t layer)
{
    (void)rows;
    return tell_last((gang *)ops, GB_WIRE_ATTENTION, layer);
}

static int gang_mlp(gb_ops *ops, const gb_row_set *rows, uint32_t layer)
{
    (void)rows;
    return tell_last((gang *)ops, GB_WIRE_MLP, layer);
}

static int gang_router(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    (void)rows;
    return tell((gang *)ops, GB_WIRE_ROUTER, moe_layer, 0);
}

static int gang_dispatch(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer, const gb_placement *placement, gb_matrix *counts,
                         uint64_t *rank_tokens)
{
    gang *g = (gang *)ops;
    (void)rows;
    if (g->placement != placement || g->placement_version != placement->version) {
        gb_wire_begin(&g->out, GB_WIRE_MAP);
        gb_wire_put_placement(&g->out, placement);
        g->placement = placement;
        g->placement_version = placement->version;
    }
    g->counts = ops->info.keeps_counts ? NULL : counts;
    g->rank_tokens = rank_tokens;
    return tell(g, GB_WIRE_DISPATCH, moe_layer, 0);
}

static int gang_experts(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    (void)rows;
    return tell((gang *)ops, GB_WIRE_EXPERTS, moe_layer, 0);
}

static int gang_combine(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    (void)rows;
    return tell_last((gang *)ops, GB_WIRE_COMBINE, moe_layer);
}

static int gang_head(gb_ops *ops, const uint32_t *rows, uint32_t n)
{
    gang *g = (gang *)ops;
    int status = tell(g, GB_WIRE_HEAD, n, 0);
    gb_wire_put(&g->out, rows, n, sizeof *rows);
    return status;
}

/* --- rounds: questions --- */

typedef struct wanted_tokens {
    const gb_pick *picks;
    uint32_t n, answered;
} wanted_tokens;

static void merge_tokens(gang *g, const gb_member *from, gb_wire_message *m, void *into)
{
    wanted_tokens *want = into;
    (void)g, (void)from;
    while (m->at < m->end && !m->cut) {
        uint32_t pick, nothing;
        gb_wire_get_numbers(m, &pick, &nothing);
        m->cut = m->cut || pick >= want->n;
        if (!m->cut) gb_wire_get(m, want->picks[pick].out, 1, sizeof *want->picks[pick].out);
        want->answered++;
    }
}

static int gang_sample(gb_ops *ops, const gb_pick *picks, uint32_t n)
{
    gang *g = (gang *)ops;
    wanted_tokens want = {.picks = picks, .n = n};
    GB_TRY(tell(g, GB_WIRE_SAMPLE, n, 0));
    for (uint32_t i = 0; i < n; i++) gb_wire_put_pick(&g->out, &picks[i]);
    GB_TRY(ask(g, merge_tokens, &want));
    return want.answered == n ? GB_OK : gb_k_fail(GB_EINTERNAL, "the ranks gave %u tokens where %u were wanted", want.answered, n);
}

static void merge_counts(gang *g, const gb_member *from, gb_wire_message *m, void *into)
{
    const gb_ops_info *info = &g->base.info;
    const uint64_t *received = gb_wire_view(m, info->limits.ranks, sizeof *received);
    (void)from, (void)into;
    for (uint32_t r = 0; received && g->rank_tokens && r < info->limits.ranks; r++) g->rank_tokens[r] += received[r];
    while (m->at < m->end && !m->cut) {
        uint32_t row, nothing;
        gb_wire_get_numbers(m, &row, &nothing);
        const uint64_t *sent = gb_wire_view(m, info->experts, sizeof *sent);
        m->cut = m->cut || row >= info->moe_layers * info->limits.engines;
        for (uint32_t e = 0; !m->cut && g->counts && e < info->experts; e++) g->counts->counts[(size_t)row * info->experts + e] += sent[e];
    }
}

/* It may be all that is asked in a round. */
static int gang_finish(gb_ops *ops, gb_matrix *due)
{
    gang *g = (gang *)ops;
    begin_round(g);
    if (ops->info.keeps_counts) g->counts = due;
    GB_TRY(tell(g, GB_WIRE_FINISH, due != NULL, 0));
    int status = ask(g, merge_counts, NULL);
    g->counts = NULL;
    g->rank_tokens = NULL;
    return status;
}

typedef struct wanted_rows {
    uint32_t *out;
    size_t words;    /* of a row */
    uint32_t n, answered;
} wanted_rows;

static void merge_rows(gang *g, const gb_member *from, gb_wire_message *m, void *into)
{
    wanted_rows *want = into;
    (void)g, (void)from;
    while (m->at < m->end && !m->cut) {
        uint32_t row, nothing;
        gb_wire_get_numbers(m, &row, &nothing);
        m->cut = m->cut || row >= want->n;
        if (!m->cut) gb_wire_get(m, want->out + row * want->words, want->words, sizeof *want->out);
        want->answered++;
    }
}

static int gang_read(gb_ops *ops, gb_readable what, uint32_t first, uint32_t n, void *out)
{
    gang *g = (gang *)ops;
    wanted_rows want = {.out = out, .words = gb_wire_words(&ops->info, what), .n = n};
    gb_wire_begin(&g->out, GB_WIRE_READ);
    gb_wire_put(&g->out, (const uint32_t[]){what, first, n, 0}, 4, sizeof(uint32_t));
    GB_TRY(ask(g, merge_rows, &want));
    return want.answered == n ? GB_OK : gb_k_fail(GB_EINTERNAL, "the ranks gave %u rows where %u were wanted", want.answered, n);
}

/* --- copies of experts, on any one thread beside the rounds --- */

static uint32_t rank_of_place(const gang *g, uint32_t place)
{
    uint32_t slots = g->base.info.slots;
    return place < slots ? place / (slots / g->ranks) : place - slots;
}

static int tell_copy(gang *g, gb_wire_kind kind, uint32_t rank, uint32_t peer, const gb_copy *copy)
{
    gb_member *m = &g->members[rank];
    gb_wire_clear(&g->copy);
    gb_wire_begin(&g->copy, kind);
    gb_wire_put_numbers(&g->copy, peer, 0);
    gb_wire_put(&g->copy, copy, 1, sizeof *copy);
    GB_TRY(send_to(g, m, GB_WIRE_COPIES, &g->copy));
    await_answer(&m->lines[GB_WIRE_COPIES]);
    return GB_OK;
}

static int copy_between(gang *g, const gb_copy *copy)
{
    question q = {.pair = GB_WIRE_COPIES};
    uint32_t from = rank_of_place(g, (uint32_t)copy->from), to = rank_of_place(g, (uint32_t)copy->to);
    GB_TRY(check_up(g));
    GB_TRY(tell_copy(g, from == to ? GB_WIRE_COPY : GB_WIRE_SEND, from, to, copy));
    if (from != to) GB_TRY(tell_copy(g, GB_WIRE_RECEIVE, to, from, copy));
    return collect(g, &q);
}

static int gang_copy_expert(gb_ops *ops, const gb_copy *copy)
{
    gang *g = (gang *)ops;
    pthread_mutex_lock(&g->copying);
    int status = copy_between(g, copy);
    pthread_mutex_unlock(&g->copying);
    return status;
}

static void merge_sum(gang *g, const gb_member *from, gb_wire_message *m, void *into)
{
    (void)g, (void)from;
    gb_wire_get(m, into, 1, sizeof(uint64_t));
}

static int sum_place(gang *g, uint64_t *sum, uint32_t moe_layer, uint32_t place)
{
    question q = {.pair = GB_WIRE_COPIES, .merge = merge_sum, .into = sum};
    gb_member *m = &g->members[rank_of_place(g, place)];
    gb_wire_clear(&g->copy);
    gb_wire_begin(&g->copy, GB_WIRE_CHECKSUM);
    gb_wire_put_numbers(&g->copy, moe_layer, place);
    GB_TRY(check_up(g));
    GB_TRY(send_to(g, m, GB_WIRE_COPIES, &g->copy));
    await_answer(&m->lines[GB_WIRE_COPIES]);
    return collect(g, &q);
}

static uint64_t gang_checksum(gb_ops *ops, uint32_t moe_layer, uint32_t place)
{
    gang *g = (gang *)ops;
    uint64_t sum = 0;
    pthread_mutex_lock(&g->copying);
    int status = sum_place(g, &sum, moe_layer, place);
    pthread_mutex_unlock(&g->copying);
    return status == GB_OK ? sum : 0;
}

/* --- cancelled works: the ranks hear of them by compactions --- */

static _Atomic uint64_t *flag(gb_ops *ops, uint32_t engine, uint32_t work)
{
    return &((gang *)ops)->cancelled[(size_t)engine * ops->info.limits.max_works + work];
}

static void gang_cancel(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work)
{
    atomic_store_explicit(flag(ops, engine, work), round_seq + 1, memory_order_release);
}

static bool gang_cancelled(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work)
{
    return atomic_load_explicit(flag(ops, engine, work), memory_order_acquire) == round_seq + 1;
}

/* --- log lines and ends of processes, on a thread until all of them are over --- */

/* Noticed while nobody asks it anything. */
static void notice_end(gang *g, gb_member *m)
{
    char why[GB_FOLLOWER_WHY_BYTES];
    pthread_mutex_lock(&g->fate);
    if (!atomic_load(&g->opens) && !atomic_load(&g->closes) && !atomic_load(&g->down)) {
        gb_member_epitaph(m, why, sizeof why);
        go_down(g, why);
    }
    pthread_mutex_unlock(&g->fate);
}

static bool pass_line(const gb_member *m)
{
    gb_follower_line line;
    ssize_t n = recv(m->sockets[GB_WIRE_CONTROL], &line, sizeof line, 0);
    if (n <= (ssize_t)offsetof(gb_follower_line, text)) return n > 0;
    line.text[sizeof line.text - 1] = '\0';
    gb_log((gb_log_level)line.level, "rank %u: %s", m->start.seat.rank, line.text);
    return true;
}

static void *watch(void *self)
{
    gang *g = self;
    struct pollfd polled[GB_RANKS_MAX];
    for (uint32_t r = 0; r < g->ranks; r++) polled[r] = (struct pollfd){.fd = g->members[r].sockets[GB_WIRE_CONTROL], .events = POLLIN};
    for (uint32_t open = g->ranks; open > 0;) {
        poll(polled, g->ranks, -1);
        for (uint32_t r = 0; r < g->ranks; r++) {
            if (!polled[r].revents || pass_line(&g->members[r])) continue;
            notice_end(g, &g->members[r]);
            polled[r].fd = -1;    /* poll passes over it */
            polled[r].revents = 0;
            open--;
        }
    }
    return NULL;
}

/* --- life --- */

/* A thread that was left behind still uses its member, so that memory stays, too. */
static void gang_free(gb_ops *ops)
{
    gang *g = (gang *)ops;
    pthread_mutex_lock(&g->fate);    /* from here on nobody else looks at processes */
    atomic_store(&g->closes, true);
    pthread_mutex_unlock(&g->fate);
    bool grace = !atomic_load(&g->down) && !atomic_load(&g->opens), all = true;
    gb_time patience = grace || !g->processes ? g->patience + gb_ms(GB_MEMBER_FAREWELL_MS) : gb_ms(GB_MEMBER_EXIT_MS);
    gb_time deadline = gb_wire_now() + patience;
    for (uint32_t r = 0; r < g->ranks; r++) gb_member_leave(&g->members[r], grace);
    for (uint32_t r = 0; r < g->ranks; r++) all = gb_member_end(&g->members[r], deadline) && all;
    if (g->watches) pthread_join(g->watcher, NULL);
    for (uint32_t r = 0; r < g->ranks; r++)
        if (!g->members[r].runs) gb_member_close(&g->members[r]);
    gb_wire_free(&g->out);
    gb_wire_free(&g->copy);
    if (!all && !g->processes) return;
    pthread_mutex_destroy(&g->copying);
    pthread_mutex_destroy(&g->fate);
    gb_arena_deinit(&g->arena);
    free(g);
}

static const gb_ops_table gang_table = {
    .embed = gang_embed, .compact = gang_compact, .norm = gang_norm, .attention = gang_attention, .mlp = gang_mlp, .router = gang_router,
    .dispatch = gang_dispatch, .experts = gang_experts, .combine = gang_combine, .head = gang_head, .sample = gang_sample, .finish = gang_finish,
    .copy_expert = gang_copy_expert, .checksum = gang_checksum, .read = gang_read, .cancel = gang_cancel, .cancelled = gang_cancelled,
    .free = gang_free,
};

/* The first rank's, and bytes of all. */
static void merge_info(gang *g, const gb_member *from, gb_wire_message *m, void *into)
{
    gb_ops_info *all = into, one;
    gb_wire_get(m, &one, 1, sizeof one);
    uint64_t weight_bytes = all->weight_bytes + one.weight_bytes, kv_bytes = all->kv_bytes + one.kv_bytes;
    if (from->start.seat.rank == 0) {
        *all = one;
        all->backend = GB_CUDA_NAME;
        all->threads = g->ranks;
        snprintf(all->kernels, sizeof all->kernels, "%.*s, %u rank%s, %s", (int)sizeof all->kernels - 24, one.kernels, g->ranks,
                 g->ranks == 1 ? "" : "s", g->processes ? "processes" : "threads");
    }
    all->weight_bytes = weight_bytes;
    all->kv_bytes = kv_bytes;
}

static int take_memory(gang *g, const gb_ops_limits *limits)
{
    g->members = GB_ARENA_NEW(&g->arena, gb_member, limits->ranks);
    for (int i = 0; i < GB_WIRE_CONTROL; i++) g->polled[i] = GB_ARENA_NEW(&g->arena, struct pollfd, limits->ranks);
    g->cancelled = GB_ARENA_NEW(&g->arena, _Atomic uint64_t, (size_t)limits->engines * limits->max_works);
    return g->members && g->polled[0] && g->polled[1] && g->cancelled ? GB_OK : report(g, GB_ENOMEM, "out of memory for the ranks");
}

static int start_ranks(gang *g, const gb_follower_start *start, const gb_cuda_ids *ids, gb_error *err)
{
    uint32_t n = start->options.limits.ranks;
    for (uint32_t r = 0; r < n; r++) {
        gb_follower_start own = *start;
        own.seat = (gb_cuda_seat){.rank = r, .device = (int)r, .ids = ids[r]};
        gb_member_init(&g->members[r], &own);
        g->ranks = r + 1;
        int status = gb_member_start(&g->members[r], g->processes, err);
        if (status) return report(g, status, err->text);
    }
    g->watches = g->processes && pthread_create(&g->watcher, NULL, watch, g) == 0;
    return GB_OK;
}

static int open_ranks(gang *g, const gb_follower_start *start, gb_error *err)
{
    question q = {.pair = GB_WIRE_ROUNDS, .merge = merge_info, .into = &g->base.info};
    const gb_ops_limits *limits = &start->options.limits;
    GB_TRY(take_memory(g, limits));
    gb_cuda_ids *ids = GB_ARENA_NEW(&g->arena, gb_cuda_ids, limits->ranks);
    if (!ids) return report(g, GB_ENOMEM, "out of memory for the ranks");
    int status = start->calls->ids(ids, limits, err);
    if (status) return report(g, status, bare(err->text));
    GB_TRY(start_ranks(g, start, ids, err));
    for (uint32_t r = 0; r < g->ranks; r++) await_answer(&g->members[r].lines[GB_WIRE_ROUNDS]);
    return collect(g, &q);
}

static gb_time max_of(gb_time a, gb_time b) { return a > b ? a : b; }

int gb_gang_new(gb_ops **out, const gb_follower_calls *calls, const gb_model_config *config, const gb_weights *weights,
                const gb_backend_options *options, bool processes, gb_error *err)
{
    gang *g = calloc(1, sizeof *g);
    gb_error reason = {0};
    if (!g) return gb_fail(err, GB_ENOMEM, "out of memory for the ranks");
    gb_time timeout = gb_ms(options->timeout_ms ? options->timeout_ms : GB_BACKEND_TIMEOUT_MS);
    gb_follower_start start = {.calls = calls, .config = config, .weights = weights, .options = *options};
    start.options.log = NULL;    /* a rank's lines come through the log of this plugin */
    g->base.table = &gang_table;
    g->processes = processes;
    atomic_store(&g->opens, true);
    g->patience = max_of(timeout * GB_GANG_OPEN_TIMES, gb_ms(GB_GANG_OPEN_MS));
    pthread_mutex_init(&g->copying, NULL);
    pthread_mutex_init(&g->fate, NULL);
    gb_arena_init(&g->arena);
    int status = open_ranks(g, &start, &reason);
    if (status) {
        gb_fail(err, status, "backend " GB_CUDA_NAME ": %s", g->why);
        gang_free(&g->base);
        return status;
    }
    atomic_store(&g->opens, false);
    g->patience = timeout + gb_ms(GB_GANG_GRACE_MS);
    *out = &g->base;
    return GB_OK;
}
