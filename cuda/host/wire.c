#define _GNU_SOURCE
#include "cuda/host/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "core/base/assert.h"

typedef struct header {
    uint32_t kind, bytes;    /* of the body */
} header;

static size_t padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

gb_time gb_wire_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return gb_seconds((uint64_t)t.tv_sec) + (uint64_t)t.tv_nsec;
}

/* --- writing --- */

void gb_wire_free(gb_wire_buffer *out)
{
    free(out->bytes);
    *out = (gb_wire_buffer){0};
}

/* Room for so many bytes in all. */
static bool grow(gb_wire_buffer *b, size_t bytes)
{
    size_t capacity = b->capacity ? b->capacity : GB_WIRE_READ_BYTES;
    if (b->failed || bytes <= b->capacity) return !b->failed;
    while (capacity < bytes) capacity *= 2;
    char *larger = realloc(b->bytes, capacity);
    b->failed = !larger;
    if (larger) {
        b->bytes = larger;
        b->capacity = capacity;
    }
    return !b->failed;
}

static void *append(gb_wire_buffer *out, size_t bytes)
{
    size_t at = out->n;
    if (!grow(out, at + padded(bytes))) return NULL;
    out->n = at + padded(bytes);
    return memset(out->bytes + at, 0, padded(bytes));
}

static void seal(gb_wire_buffer *out)
{
    if (out->n == 0) return;
    size_t body = out->n - out->began - sizeof(header);
    out->failed = out->failed || body > GB_WIRE_BYTES_MAX;
    ((header *)(out->bytes + out->began))->bytes = (uint32_t)body;
}

void gb_wire_begin(gb_wire_buffer *out, gb_wire_kind kind)
{
    if (!out->failed) seal(out);
    size_t began = out->n;
    header *h = append(out, sizeof *h);
    if (!h) return;
    out->began = began;
    h->kind = kind;
}

void *gb_wire_room(gb_wire_buffer *out, size_t count, size_t size)
{
    GB_ASSERT(size == 0 || count <= SIZE_MAX / 2 / size);
    return append(out, count * size);
}

void gb_wire_put(gb_wire_buffer *out, const void *from, size_t count, size_t size)
{
    void *to = count ? gb_wire_room(out, count, size) : NULL;
    if (to) memcpy(to, from, count * size);
}

void gb_wire_put_numbers(gb_wire_buffer *out, uint32_t a, uint32_t b) { gb_wire_put(out, (const uint32_t[]){a, b}, 2, sizeof a); }

/* Milliseconds for poll until the deadline, rounded up. */
static int patience(gb_time deadline)
{
    if (deadline == GB_NEVER) return -1;
    gb_time left = gb_time_since(gb_wire_now(), deadline), ms = (left + 999999) / 1000000;
    return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

static int await(int socket, short events, gb_time deadline)
{
    struct pollfd p = {.fd = socket, .events = events};
    int n = poll(&p, 1, patience(deadline));
    if (n > 0 || (n < 0 && errno == EINTR)) return GB_OK;
    return n == 0 ? GB_EDEADLINE : GB_EDOWN;
}

int gb_wire_send(int socket, gb_wire_buffer *out, gb_time deadline)
{
    size_t sent = 0;
    if (!out->failed) seal(out);
    if (out->failed) return GB_ENOMEM;
    while (sent < out->n) {
        ssize_t n = send(socket, out->bytes + sent, out->n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        int status = n >= 0 || errno == EINTR ? GB_OK : errno == EAGAIN ? await(socket, POLLOUT, deadline) : GB_EDOWN;
        if (status) return status;
        sent += n > 0 ? (size_t)n : 0;
    }
    return GB_OK;
}

void gb_wire_clear(gb_wire_buffer *out)
{
    out->n = 0;
    out->failed = false;
}

/* --- reading --- */

/* The header of the next message. False while it has not come. */
static bool read_header(const gb_wire_reader *in, header *h)
{
    if (in->bytes.n - in->at < sizeof *h) return false;
    memcpy(h, in->bytes.bytes + in->at, sizeof *h);
    return true;
}

static bool is_sane(const header *h) { return h->kind < GB_WIRE_KINDS && h->bytes <= GB_WIRE_BYTES_MAX && h->bytes % 8 == 0; }

bool gb_wire_next(gb_wire_reader *in, gb_wire_message *m)
{
    header h;
    if (!read_header(in, &h) || !is_sane(&h) || in->bytes.n - in->at - sizeof h < h.bytes) return false;
    const char *body = in->bytes.bytes + in->at + sizeof h;
    *m = (gb_wire_message){.kind = (gb_wire_kind)h.kind, .at = body, .end = body + h.bytes};
    in->at += sizeof h + h.bytes;
    return true;
}

/* To read at once: what is left of the message, or more if more has come. */
static size_t wanted(const gb_wire_reader *in)
{
    header h = {0};
    read_header(in, &h);
    size_t left = sizeof h + h.bytes - (in->bytes.n - in->at);
    return left > GB_WIRE_READ_BYTES ? left : GB_WIRE_READ_BYTES;
}

int gb_wire_fill(gb_wire_reader *in)
{
    header h;
    if (read_header(in, &h) && !is_sane(&h)) return GB_EFORMAT;
    size_t there = in->bytes.n - in->at, want = wanted(in);
    if (in->at) memmove(in->bytes.bytes, in->bytes.bytes + in->at, there);
    in->bytes.n = there;
    in->at = 0;
    if (!grow(&in->bytes, there + want)) return GB_ENOMEM;
    ssize_t n = recv(in->socket, in->bytes.bytes + there, want, MSG_DONTWAIT);
    if (n > 0) in->bytes.n += (size_t)n;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)) ? GB_OK : GB_EDOWN;
}

int gb_wire_receive(gb_wire_reader *in, gb_wire_message *m, gb_time deadline)
{
    while (!gb_wire_next(in, m)) {
        size_t had = in->bytes.n - in->at;
        int status = gb_wire_fill(in);
        if (status == GB_OK && in->bytes.n == had) status = await(in->socket, POLLIN, deadline);
        if (status) return status;
    }
    return GB_OK;
}

const void *gb_wire_view(gb_wire_message *m, size_t count, size_t size)
{
    const char *at = m->at;
    size_t there = (size_t)(m->end - at);
    m->cut = m->cut || (size && count > there / size) || padded(count * size) > there;
    if (m->cut) return NULL;
    m->at += padded(count * size);
    return at;
}

void gb_wire_get(gb_wire_message *m, void *to, size_t count, size_t size)
{
    const void *from = gb_wire_view(m, count, size);
    if (from) memcpy(to, from, count * size);
    else memset(to, 0, count * size);
}

void gb_wire_get_numbers(gb_wire_message *m, uint32_t *a, uint32_t *b)
{
    uint32_t numbers[2];
    gb_wire_get(m, numbers, 2, sizeof *numbers);
    *a = numbers[0];
    *b = numbers[1];
}

size_t gb_wire_words(const gb_ops_info *info, gb_readable what)
{
    switch (what) {
    case GB_READ_X: return info->hidden;
    case GB_READ_EXPERTS:
    case GB_READ_WEIGHTS: return info->experts_per_token;
    case GB_READ_LOGITS: return info->vocab;
    }
    return 0;
}

/* --- rows --- */

static uint32_t blocks_of(const gb_span *s) { return (s->start + s->count + GB_BLOCK_TOKENS - 1) / GB_BLOCK_TOKENS; }

void gb_wire_put_rows(gb_wire_buffer *out, const gb_row_set *rows, const uint32_t *from)
{
    gb_wire_put_numbers(out, rows->n_spans, from != NULL);
    for (uint32_t i = 0; i < rows->n_spans; i++) {
        const gb_span *s = &rows->spans[i];
        const uint32_t numbers[] = {s->engine, s->work, s->row, s->count, s->start, from ? from[i] : 0};
        gb_wire_put(out, numbers, sizeof numbers / sizeof *numbers, sizeof *numbers);
        gb_wire_put(out, s->tokens, s->count, sizeof *s->tokens);
        gb_wire_put(out, s->blocks, blocks_of(s), sizeof *s->blocks);
    }
}

static bool is_span(const gb_span *s, uint32_t next_row, const gb_ops_limits *limits)
{
    return s->row == next_row && s->count >= 1 && s->count <= limits->max_positions && s->start <= limits->max_positions - s->count &&
           s->engine < limits->engines && s->work < limits->max_works;
}

/* The body comes into memory of the rows; spans point into it. */
static gb_wire_message keep_body(gb_wire_message *m, gb_wire_buffer *memory, size_t tail)
{
    size_t bytes = (size_t)(m->end - m->at);
    gb_wire_message kept = {.cut = m->cut || !grow(memory, bytes + tail)};
    if (kept.cut) return kept;
    memcpy(memory->bytes, m->at, bytes);
    kept.at = memory->bytes;
    kept.end = memory->bytes + bytes;
    return kept;
}

int gb_wire_get_rows(gb_wire_message *m, gb_wire_rows *rows, const gb_ops_limits *limits)
{
    uint32_t n_spans, moves, next_row = 0;
    gb_wire_message peek = *m;
    gb_wire_get_numbers(&peek, &n_spans, &moves);
    if (peek.cut || n_spans == 0 || n_spans > limits->engines * limits->max_works) return GB_EFORMAT;
    gb_wire_message body = keep_body(&peek, &rows->memory, n_spans * (sizeof(gb_span) + sizeof(uint32_t)));
    if (rows->memory.failed) return GB_ENOMEM;
    gb_span *spans = (gb_span *)(uintptr_t)body.end;
    uint32_t *from = (uint32_t *)(spans + n_spans);
    for (uint32_t i = 0; i < n_spans && !body.cut; i++) {
        uint32_t numbers[6];
        gb_wire_get(&body, numbers, 6, sizeof *numbers);
        gb_span s = {.engine = numbers[0], .work = numbers[1], .row = numbers[2], .count = numbers[3], .start = numbers[4]};
        if (body.cut || !is_span(&s, next_row, limits)) return GB_EFORMAT;
        s.tokens = gb_wire_view(&body, s.count, sizeof *s.tokens);
        s.blocks = gb_wire_view(&body, blocks_of(&s), sizeof *s.blocks);
        spans[i] = s;
        from[i] = numbers[5];
        next_row += s.count;
        if (next_row > limits->engines * limits->max_tokens) return GB_EFORMAT;
    }
    rows->set = (gb_row_set){.n = next_row, .n_spans = n_spans, .spans = spans};
    rows->from = moves ? from : NULL;
    return body.cut ? GB_EFORMAT : GB_OK;
}

void gb_wire_free_rows(gb_wire_rows *rows) { gb_wire_free(&rows->memory); }

/* --- placements --- */

void gb_wire_put_placement(gb_wire_buffer *out, const gb_placement *p)
{
    size_t slots = (size_t)p->layers * gb_placement_slots(p), routes = (size_t)p->layers * p->sources * p->experts;
    gb_wire_put_numbers(out, p->version, 0);
    gb_wire_put(out, p->expert_of_slot, slots, sizeof *p->expert_of_slot);
    gb_wire_put(out, p->place, slots, sizeof *p->place);
    gb_wire_put(out, p->route, routes, sizeof *p->route);
    gb_wire_put(out, p->other, routes, sizeof *p->other);
    gb_wire_put(out, p->other_share, routes, sizeof *p->other_share);
}

int gb_wire_get_placement(gb_wire_message *m, gb_placement *p)
{
    size_t slots = (size_t)p->layers * gb_placement_slots(p), routes = (size_t)p->layers * p->sources * p->experts;
    uint32_t nothing;
    gb_wire_get_numbers(m, &p->version, &nothing);
    gb_wire_get(m, p->expert_of_slot, slots, sizeof *p->expert_of_slot);
    gb_wire_get(m, p->place, slots, sizeof *p->place);
    gb_wire_get(m, p->route, routes, sizeof *p->route);
    gb_wire_get(m, p->other, routes, sizeof *p->other);
    gb_wire_get(m, p->other_share, routes, sizeof *p->other_share);
    return m->cut ? GB_EFORMAT : GB_OK;
}

/* --- picks --- */

enum { SAMPLING_BYTES = offsetof(gb_sampling, stop_ids) };    /* what follows is about text */

static bool counts_tokens(const gb_sampling *s)
{
    return s->repetition_penalty != 1 || s->frequency_penalty != 0 || s->presence_penalty != 0;
}

void gb_wire_put_pick(gb_wire_buffer *out, const gb_pick *pick)
{
    const gb_work *w = pick->work;
    const uint32_t numbers[] = {pick->logits_row, w->n_tokens, w->n_prompt, w->start, w->count, w->n_banned, counts_tokens(w->sampling)};
    gb_wire_put(out, numbers, sizeof numbers / sizeof *numbers, sizeof *numbers);
    gb_wire_put(out, &w->id, 1, sizeof w->id);
    gb_wire_put(out, w->sampling, SAMPLING_BYTES, 1);
    gb_wire_put(out, w->banned, w->n_banned, sizeof *w->banned);
    if (counts_tokens(w->sampling)) gb_wire_put(out, w->tokens, w->n_tokens, sizeof *w->tokens);
}

void gb_wire_get_pick(gb_wire_message *m, uint32_t *logits_row, gb_work *work, gb_sampling *sampling)
{
    uint32_t numbers[7];
    gb_wire_get(m, numbers, 7, sizeof *numbers);
    *logits_row = numbers[0];
    *work = (gb_work){.n_tokens = numbers[1], .n_prompt = numbers[2], .start = numbers[3], .count = numbers[4], .n_banned = numbers[5],
                      .samples = true, .sampling = sampling};
    gb_wire_get(m, &work->id, 1, sizeof work->id);
    *sampling = (gb_sampling){0};
    gb_wire_get(m, sampling, SAMPLING_BYTES, 1);
    work->banned = gb_wire_view(m, work->n_banned, sizeof *work->banned);
    if (numbers[6]) work->tokens = gb_wire_view(m, work->n_tokens, sizeof *work->tokens);
}
