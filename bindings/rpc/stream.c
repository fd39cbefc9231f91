#include "bindings/rpc/stream.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/rpc/conn.h"
#include "core/base/assert.h"

static const double LOWEST_LOGPROB = -9999;    /* stands for minus infinity, which JSON cannot carry */

/* --- birth, lookup, death --- */

static gb_rpc_stream **bucket_of(gb_rpc_service *service, const char *request_id)
{
    uint32_t hash = 2166136261u;    /* FNV-1a */
    for (const char *c = request_id; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    return &service->buckets[hash % GB_RPC_BUCKETS];
}

static gb_rpc_stream **slot_of(gb_rpc_service *service, gb_request_id id)
{
    uint32_t slot = (uint32_t)id;
    GB_ASSERT(slot < gb_server_options_get(service->instance->server)->queue_capacity);
    return &service->streams_by_slot[slot];
}

gb_rpc_stream *gb_rpc_stream_find(gb_rpc_service *service, const char *request_id)
{
    gb_rpc_stream *s = *bucket_of(service, request_id);
    while (s && strcmp(s->request_id, request_id) != 0) s = s->next_in_bucket;
    return s;
}

gb_rpc_stream *gb_rpc_stream_of(gb_rpc_service *service, gb_request_id id)
{
    gb_rpc_stream *s = *slot_of(service, id);
    return s && s->id == id ? s : NULL;
}

static void link_to_conn(gb_rpc_stream *s, gb_rpc_conn *conn)
{
    s->conn = conn;
    s->next = conn->streams;
    if (s->next) s->next->previous = s;
    conn->streams = s;
    conn->n_streams++;
}

static void unlink_from_conn(gb_rpc_stream *s)
{
    if (!s->conn) return;
    if (s->next) s->next->previous = s->previous;
    if (s->previous) s->previous->next = s->next;
    else s->conn->streams = s->next;
    s->conn->n_streams--;
    s->conn = NULL;
    s->next = s->previous = NULL;
}

gb_rpc_stream *gb_rpc_stream_new(gb_rpc_conn *conn, gb_request_id id, const gb_rpc_stream_options *options)
{
    gb_rpc_service *service = conn->service;
    GB_ASSERT(!gb_rpc_stream_find(service, options->request_id));
    gb_rpc_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    *s = (gb_rpc_stream){.service = service, .id = id, .detach = options->detach, .whole = options->whole,
                         .msgid = options->msgid, .window = options->window, .starved_at = GB_NEVER};
    snprintf(s->request_id, sizeof s->request_id, "%s", options->request_id);
    gb_pack_init(&s->text, GB_RPC_MESSAGE_MAX);
    gb_pack_init(&s->tokens, GB_RPC_MESSAGE_MAX);
    gb_pack_init(&s->logprobs, GB_RPC_MESSAGE_MAX);
    link_to_conn(s, conn);
    gb_rpc_stream **bucket = bucket_of(service, s->request_id);
    s->next_in_bucket = *bucket;
    *bucket = s;
    *slot_of(service, id) = s;
    return s;
}

static size_t held_bytes(const gb_rpc_stream *s) { return s->text.n + s->tokens.n + s->logprobs.n; }

/* What the connection holds for its streams, kept as sums so that a limit costs nothing to check. */
static size_t *held_sum(const gb_rpc_stream *s) { return s->whole ? &s->conn->whole_bytes : &s->conn->held_bytes; }

static void empty(gb_rpc_stream *s)
{
    if (s->conn) *held_sum(s) -= held_bytes(s);
    gb_pack_clear(&s->text);
    gb_pack_clear(&s->tokens);
    gb_pack_clear(&s->logprobs);
    s->n_tokens = s->n_logprobs = 0;
}

void gb_rpc_stream_free(gb_rpc_stream *s)
{
    gb_rpc_stream **at = bucket_of(s->service, s->request_id);
    while (*at != s) at = &(*at)->next_in_bucket;
    *at = s->next_in_bucket;
    if (*slot_of(s->service, s->id) == s) *slot_of(s->service, s->id) = NULL;
    empty(s);
    unlink_from_conn(s);
    gb_pack_deinit(&s->text);
    gb_pack_deinit(&s->tokens);
    gb_pack_deinit(&s->logprobs);
    free(s);
}

/* --- taking in --- */

static double finite_logprob(float value) { return isfinite(value) ? (double)value : LOWEST_LOGPROB; }

static void pack_logprob(gb_pack *out, int32_t token, float value)
{
    gb_pack_str(out, "token");
    gb_pack_int(out, token);
    gb_pack_str(out, "logprob");
    gb_pack_float(out, finite_logprob(value));
}

static void pack_logprobs(gb_pack *out, int32_t token, const gb_logprobs *logprobs)
{
    gb_pack_map(out, 3);
    pack_logprob(out, token, logprobs->chosen);
    gb_pack_str(out, "top");
    gb_pack_array(out, logprobs->n);
    for (uint32_t i = 0; i < logprobs->n; i++) {
        gb_pack_map(out, 2);
        pack_logprob(out, logprobs->ids[i], logprobs->values[i]);
    }
}

/* False when memory ends. */
static bool take(gb_rpc_stream *s, const gb_event *event)
{
    size_t before = held_bytes(s);
    gb_pack_raw(&s->text, event->text, event->text_bytes);
    if (event->kind == GB_EVENT_TOKEN) {
        gb_pack_int(&s->tokens, event->token);
        s->n_tokens++;
    }
    if (event->kind == GB_EVENT_TOKEN && event->logprobs) {
        pack_logprobs(&s->logprobs, event->token, event->logprobs);
        s->n_logprobs++;
    }
    *held_sum(s) += held_bytes(s) - before;
    return !s->text.overflow && !s->tokens.overflow && !s->logprobs.overflow;
}

/* --- sending out --- */

static void pack_text(gb_pack_list *map, const gb_rpc_stream *s)
{
    gb_pack_text(gb_pack_key(map, "text"), (const char *)s->text.data, s->text.n);
    gb_pack_array(gb_pack_key(map, "tokens"), s->n_tokens);
    gb_pack_raw(map->pack, s->tokens.data, s->tokens.n);
    if (s->n_logprobs == 0) return;
    gb_pack_array(gb_pack_key(map, "logprobs"), s->n_logprobs);
    gb_pack_raw(map->pack, s->logprobs.data, s->logprobs.n);
}

static void pack_end(gb_pack_list *map, const gb_event *end)
{
    const gb_usage *u = &end->usage;
    gb_pack_key_str(map, "finish_reason", end->finish == GB_FINISH_LENGTH ? "length" : "stop");
    if (end->stop_token >= 0) gb_pack_key_int(map, "stop_token", end->stop_token);
    if (end->stop_string >= 0) gb_pack_key_int(map, "stop_string", end->stop_string);
    gb_pack_list usage = gb_pack_begin_map(gb_pack_key(map, "usage"));
    gb_pack_key_uint(&usage, "prompt_tokens", u->prompt_tokens);
    gb_pack_key_uint(&usage, "completion_tokens", u->completion_tokens);
    gb_pack_key_uint(&usage, "total_tokens", (uint64_t)u->prompt_tokens + u->completion_tokens);
    gb_pack_key_uint(&usage, "cached_tokens", u->cached_tokens);
    gb_pack_end(&usage);
    gb_pack_list timings = gb_pack_begin_map(gb_pack_key(map, "timings"));
    gb_pack_key_float(&timings, "queued_ms", gb_to_ms(end->timings.queued));
    gb_pack_key_float(&timings, "prefill_ms", gb_to_ms(end->timings.prefill));
    gb_pack_key_float(&timings, "decode_ms", gb_to_ms(end->timings.decode));
    gb_pack_key_float(&timings, "total_ms", gb_to_ms(end->timings.total));
    gb_pack_end(&timings);
}

static void send_tokens(gb_rpc_stream *s)
{
    gb_pack_list map = gb_pack_begin_map(gb_rpc_conn_notify(s->conn, "token"));
    gb_pack_key_str(&map, "request_id", s->request_id);
    gb_pack_key_int(&map, "index", 0);
    gb_pack_key_uint(&map, "seq", s->seq++);
    pack_text(&map, s);
    gb_pack_end(&map);
    gb_rpc_conn_ready(s->conn);
    if (s->window) s->unacked++;
    empty(s);
}

static void send_done(gb_rpc_stream *s)
{
    gb_pack_list map = gb_pack_begin_map(gb_rpc_conn_notify(s->conn, "done"));
    gb_pack_key_str(&map, "request_id", s->request_id);
    gb_pack_key_int(&map, "index", 0);
    pack_end(&map, &s->end);
    gb_pack_end(&map);
    gb_rpc_conn_ready(s->conn);
}

static void send_failed(gb_rpc_stream *s, int code, const char *sentence)
{
    gb_rpc_error error = {.code = code};
    gb_fail(&error.sentence, GB_EINVAL, "%s", sentence);
    if (s->whole) {
        gb_rpc_conn_reject(s->conn, s->msgid, &error);
        return;
    }
    gb_pack_list map = gb_pack_begin_map(gb_rpc_conn_notify(s->conn, "failed"));
    gb_pack_key_str(&map, "request_id", s->request_id);
    gb_rpc_error_pack(gb_pack_key(&map, "error"), &error);
    gb_pack_end(&map);
    gb_rpc_conn_ready(s->conn);
}

static void answer_whole(gb_rpc_stream *s)
{
    gb_pack *reply = &s->service->reply;
    gb_pack_clear(reply);
    gb_pack_list map = gb_pack_begin_map(reply);
    gb_pack_key_str(&map, "request_id", s->request_id);
    pack_text(&map, s);
    pack_end(&map, &s->end);
    gb_pack_end(&map);
    if (reply->overflow) send_failed(s, GB_RPC_TOO_LARGE, "the result is too large for one message: set stream");
    else gb_rpc_conn_answer(s->conn, s->msgid, reply);
}

/* --- credit --- */

static bool has_credit(const gb_rpc_stream *s) { return s->window == 0 || s->unacked < s->window; }
static bool holds_something(const gb_rpc_stream *s) { return s->n_tokens > 0 || s->text.n > 0; }

static void watch_the_reader(gb_rpc_stream *s, gb_time now)
{
    bool starves = s->ended || held_bytes(s) >= GB_RPC_STREAM_BYTES;
    if (!starves) s->starved_at = GB_NEVER;
    else if (s->starved_at == GB_NEVER) s->starved_at = now;
    if (starves) gb_rpc_service_wake(s->service, s->starved_at + s->service->options.slow_reader);
}

/* Sends what may be sent; frees the stream when that was all of it. */
static void flush(gb_rpc_stream *s, gb_time now)
{
    if (gb_rpc_conn_unread_events(s->conn) + s->conn->held_bytes > GB_RPC_BACKLOG_BYTES) {
        gb_rpc_stream_stop(s, GB_RPC_SLOW_READER, "the client does not read: its connection holds as many events as it may", now);
        return;
    }
    if (holds_something(s) && has_credit(s)) send_tokens(s);
    if (holds_something(s)) {
        watch_the_reader(s, now);
        return;
    }
    s->starved_at = GB_NEVER;
    if (!s->ended) return;
    send_done(s);
    gb_rpc_stream_free(s);
}

static void finish_whole(gb_rpc_stream *s, gb_time now)
{
    if (s->conn->whole_bytes > GB_RPC_WHOLE_BYTES) {
        gb_rpc_stream_stop(s, GB_RPC_TOO_LARGE, "the whole results of this connection are too large together: set stream", now);
    } else if (s->ended) {
        answer_whole(s);
        gb_rpc_stream_free(s);
    }
}

/* --- doors --- */

void gb_rpc_stream_event(gb_rpc_stream *s, const gb_event *event)
{
    bool is_end = event->kind != GB_EVENT_TOKEN;
    bool is_failure = event->kind == GB_EVENT_FAILED || event->kind == GB_EVENT_ABORTED;
    s->ended = is_end;
    if (!s->conn) {
        if (is_end) gb_rpc_stream_free(s);
        return;
    }
    if (is_failure) {
        int status = event->kind == GB_EVENT_ABORTED ? GB_EABORTED : event->status;
        send_failed(s, gb_rpc_error_of_status(status), gb_status_message(status));
        gb_rpc_stream_free(s);
        return;
    }
    if (is_end) s->end = *event;
    if (!take(s, event)) gb_rpc_stream_stop(s, GB_RPC_OVERLOADED, "out of memory for the text of the request", event->at);
    else if (s->whole) finish_whole(s, event->at);
    else flush(s, event->at);
}

void gb_rpc_stream_ack(gb_rpc_stream *s, uint64_t n, gb_time now)
{
    s->unacked -= n < s->unacked ? (uint32_t)n : s->unacked;
    if (s->conn && !s->whole) flush(s, now);
}

void gb_rpc_stream_tick(gb_rpc_stream *s, gb_time now)
{
    if (s->starved_at == GB_NEVER) return;
    gb_time end_at = s->starved_at + s->service->options.slow_reader;
    if (now >= end_at)
        gb_rpc_stream_stop(s, GB_RPC_SLOW_READER, "the client gave no credit for too long: acknowledge token events", now);
    else gb_rpc_service_wake(s->service, end_at);
}

void gb_rpc_stream_stop(gb_rpc_stream *s, int code, const char *sentence, gb_time now)
{
    if (!s->ended) gb_server_cancel(s->service->instance->server, s->id, now);
    if (s->conn) send_failed(s, code, sentence);
    gb_rpc_stream_free(s);
}

void gb_rpc_stream_orphan(gb_rpc_stream *s, gb_time now)
{
    if (s->detach && !s->ended) {
        empty(s);
        unlink_from_conn(s);
        return;
    }
    if (!s->ended) gb_server_cancel(s->service->instance->server, s->id, now);
    gb_rpc_stream_free(s);
}
