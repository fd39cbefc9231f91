#include "bindings/rpc/stream.h"

#include <stdlib.h>

#include "bindings/rpc/conn.h"
#include "tests/check.h"
#include "tests/rpc/fixture.h"

static const char answer[] = "The capital of France is Paris.";
enum { ANSWER_TOKENS = sizeof answer };    /* its bytes and the end token */

static const char stream_call[] = "{\"prompt\": \"Where is Paris?\", \"stream\": true, \"request_id\": \"a\", \"window\": 0}";

static uint32_t free_blocks(const fixture *f)
{
    gb_server_stats stats;
    gb_server_stats_get(f->instance.server, &stats);
    return stats.blocks_total - stats.blocks_used;
}

static uint32_t live(const fixture *f)
{
    gb_server_stats stats;
    gb_server_stats_get(f->instance.server, &stats);
    return stats.live;
}

/* Everything that has arrived of one stream, put together. */
typedef struct heard {
    char text[4096];
    uint32_t events, tokens;
    int64_t next_seq;
    bool done;
    int failed;    /* code */
} heard;

static void hear_token(heard *h, const json_t *map)
{
    CHECK_EQ(json_int(map, "seq"), h->next_seq);
    CHECK_EQ(json_int(map, "index"), 0);
    CHECK(!h->done && !h->failed);
    strncat(h->text, json_text(map, "text"), sizeof h->text - strlen(h->text) - 1);
    h->tokens += (uint32_t)json_array_size(json_object_get(map, "tokens"));
    h->events++;
    h->next_seq++;
}

static void hear(peer *p, heard *h)
{
    json_t *map;
    peer_receive(p);
    while ((map = peer_take(p, "token"))) {
        hear_token(h, map);
        json_decref(map);
    }
    if ((map = peer_take(p, "done"))) {
        CHECK(!h->done && !h->failed);
        h->done = true;
        json_decref(map);
    }
    if ((map = peer_take(p, "failed"))) {
        CHECK(!h->done && !h->failed);
        h->failed = (int)json_int(json_object_get(map, "error"), "code");
        json_decref(map);
    }
}

/* --- whole results --- */

static void a_whole_result_has_text_tokens_usage_and_timings(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "generate", "{\"prompt\": \"Where is Paris?\", \"request_id\": \"mine\"}");
    CHECK_STR(json_text(r, "request_id"), "mine");
    CHECK_STR(json_text(r, "text"), answer);
    CHECK_STR(json_text(r, "finish_reason"), "stop");
    CHECK_EQ(json_array_size(json_object_get(r, "tokens")), ANSWER_TOKENS);
    CHECK_EQ(json_integer_value(json_array_get(json_object_get(r, "tokens"), ANSWER_TOKENS - 1)), FIXTURE_END);
    CHECK_EQ(json_int(r, "stop_token"), FIXTURE_END);
    const json_t *usage = json_object_get(r, "usage");
    CHECK_EQ(json_int(usage, "prompt_tokens"), 15);
    CHECK_EQ(json_int(usage, "completion_tokens"), ANSWER_TOKENS);
    CHECK_EQ(json_int(usage, "total_tokens"), 15 + ANSWER_TOKENS);
    CHECK_NEAR(json_real_value(json_object_get(json_object_get(r, "timings"), "total_ms")), ANSWER_TOKENS, 0.001);
    CHECK(!json_object_get(r, "logprobs"));
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void the_server_makes_a_request_id_when_there_is_none(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *a = peer_call(&p, "generate", "{\"prompt\": \"x\"}"),
           *b = peer_call(&p, "generate", "{\"prompt\": \"x\", \"request_id\": null}");
    CHECK(strcmp(json_text(a, "request_id"), json_text(b, "request_id")) != 0);
    json_decref(a);
    json_decref(b);
    peer_close(&p);
    fixture_close(&f);
}

static void logprobs_come_for_each_token_and_are_finite(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "generate", "{\"prompt\": \"x\", \"sampling\": {\"logprobs\": 2, \"max_tokens\": 3}}");
    const json_t *logprobs = json_object_get(r, "logprobs"), *first = json_array_get(logprobs, 0);
    CHECK_EQ(json_array_size(logprobs), 3);
    CHECK_EQ(json_int(first, "token"), 'T');
    CHECK_NEAR(json_real_value(json_object_get(first, "logprob")), -0.5, 0);
    CHECK_EQ(json_array_size(json_object_get(first, "top")), 2);
    CHECK_NEAR(json_real_value(json_object_get(json_array_get(json_object_get(first, "top"), 1), "logprob")), -9999, 0);
    CHECK_STR(json_text(r, "finish_reason"), "length");
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void stop_texts_end_the_text_before_them(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "generate", "{\"prompt\": \"x\", \"sampling\": {\"stop\": [\"zebra\", \" of\"]}}");
    CHECK_STR(json_text(r, "text"), "The capital");
    CHECK_EQ(json_int(r, "stop_string"), 1);
    json_decref(r);
    r = peer_call(&p, "generate", "{\"prompt\": \"x\", \"sampling\": {\"stop\": \" of\", \"include_stop\": true}}");
    CHECK_STR(json_text(r, "text"), "The capital of");
    json_decref(r);
    r = peer_call(&p, "generate", "{\"prompt\": \"x\", \"sampling\": {\"stop_token_ids\": [112]}}");
    CHECK_STR(json_text(r, "text"), "The ca");
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

/* --- streams --- */

static void the_response_comes_before_the_first_event(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_post(&p, 9, "generate", stream_call);
    fixture_run(&f);
    peer_receive(&p);
    const json_t *first = json_array_get(p.messages, 0);
    CHECK_EQ(json_integer_value(json_array_get(first, 0)), 1);
    CHECK_EQ(json_integer_value(json_array_get(first, 1)), 9);
    const json_t *r = json_array_get(first, 3);
    CHECK_STR(json_text(r, "request_id"), "a");
    CHECK_EQ(json_int(r, "prompt_tokens"), 15);
    CHECK(json_int(r, "engine") < FIXTURE_ENGINES);
    peer_close(&p);
    fixture_close(&f);
}

static void a_stream_puts_together_what_a_whole_result_has(void)
{
    fixture f;
    peer p;
    heard h = {0};
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", stream_call));
    fixture_run(&f);
    hear(&p, &h);
    CHECK_STR(h.text, answer);
    CHECK_EQ(h.tokens, ANSWER_TOKENS);
    CHECK(h.done);
    CHECK_EQ(peer_waiting(&p), 0);
    peer_close(&p);
    fixture_close(&f);
}

static void done_tells_usage_and_why(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate",
                          "{\"prompt\": \"x\", \"stream\": true, \"sampling\": {\"max_tokens\": 5}, \"request_id\": \"b\"}"));
    fixture_run(&f);
    peer_receive(&p);
    json_t *done = peer_take(&p, "done");
    CHECK_STR(json_text(done, "request_id"), "b");
    CHECK_STR(json_text(done, "finish_reason"), "length");
    CHECK_EQ(json_int(json_object_get(done, "usage"), "completion_tokens"), 5);
    json_decref(done);
    peer_close(&p);
    fixture_close(&f);
}

static void text_that_was_held_back_comes_before_done(void)
{
    fixture f;
    peer p;
    heard h = {0};
    fixture_open(&f, &(fixture_options){.script = "one stop"});
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate",
                          "{\"prompt\": \"x\", \"stream\": true, \"window\": 0, \"sampling\": {\"stop\": \"stopping\"}}"));
    fixture_run(&f);
    hear(&p, &h);
    CHECK_STR(h.text, "one stop");
    CHECK(h.done);
    peer_close(&p);
    fixture_close(&f);
}

/* Characters of one to four bytes, one byte a token: no event ever holds half of one. */
static void a_character_split_over_tokens_comes_whole(void)
{
    static const char *const scripts[] = {"\xf0\x9f\x98\x80\xf0\x9f\x98\x81 ok", "\xe4\xbd\xa0\xe5\xa5\xbd",
                                          "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d", "\xc4\x8f\xc4\x8f"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        for (int window = 0; window < 3; window++) {
            fixture f;
            peer p;
            heard h = {0};
            char call[128];
            fixture_open(&f, &(fixture_options){.script = scripts[i]});
            peer_hello(&p, &f);
            snprintf(call, sizeof call, "{\"prompt\": \"x\", \"stream\": true, \"request_id\": \"a\", \"window\": %d}", window);
            json_decref(peer_call(&p, "generate", call));
            fixture_run(&f);
            hear(&p, &h);
            if (window) peer_notify(&p, "ack", "{\"request_id\": \"a\"}");
            hear(&p, &h);    /* text that is not UTF-8 would be no text here */
            CHECK_STR(h.text, scripts[i]);
            CHECK(h.done);
            peer_close(&p);
            fixture_close(&f);
        }
}

/* Bytes cut off in the middle of a character end as one U+FFFD, in a stream as in a whole result. */
static void an_unfinished_character_ends_as_a_replacement(void)
{
    fixture f;
    peer p;
    heard h = {0};
    fixture_open(&f, &(fixture_options){.script = "a\xf0\x9f\x98"});
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "generate", "{\"prompt\": \"x\"}");
    CHECK_STR(json_text(r, "text"), "a\xef\xbf\xbd");
    json_decref(r);
    json_decref(peer_call(&p, "generate", stream_call));
    fixture_run(&f);
    hear(&p, &h);
    CHECK_STR(h.text, "a\xef\xbf\xbd");
    peer_close(&p);
    fixture_close(&f);
}

static const char long_script[] =
    "The caf\xc3\xa9 \xe2\x80\x9cstop\xe2\x80\x9d by the r\xc3\xado \xf0\x9f\x98\x80 stops at the stopping stop.";

/* Up to three stop texts: pieces of the script, and some that are not in it. */
static void random_stops(char *out, size_t room)
{
    static const char *const pieces[] = {
        "stop", "stopp",         "stopping",  "\xc3\xa9", "\xf0\x9f\x98\x80 s", "\xc3\xado \xf0\x9f\x98\x80", "zebra",
        ".",    "the r\xc3\xad", "at the st", "T"};
    int n = rand() % 4;
    snprintf(out, room, "[");
    for (int i = 0; i < n; i++) {
        const char *piece = pieces[(size_t)rand() % (sizeof pieces / sizeof *pieces)];
        snprintf(out + strlen(out), room - strlen(out), "%s\"%s\"", i ? "," : "", piece);
    }
    snprintf(out + strlen(out), room - strlen(out), "]");
}

static void a_stream_is_its_whole_result_whatever_the_stops(void)
{
    fixture f;
    peer p;
    srand(7);
    fixture_open(&f, &(fixture_options){.script = long_script});
    peer_hello(&p, &f);
    for (int run = 0; run < 1000 && !check_failures; run++) {
        heard h = {0};
        char stops[256], call[512];
        random_stops(stops, sizeof stops);
        int max_tokens = 1 + rand() % 100;
        snprintf(call, sizeof call, "{\"prompt\": \"x\", \"sampling\": {\"stop\": %s, \"max_tokens\": %d}}", stops, max_tokens);
        json_t *whole = peer_call(&p, "generate", call);
        snprintf(call, sizeof call,
                 "{\"prompt\": \"x\", \"stream\": true, \"window\": 0, \"sampling\": {\"stop\": %s, \"max_tokens\": %d}}", stops,
                 max_tokens);
        json_decref(peer_call(&p, "generate", call));
        fixture_run(&f);
        hear(&p, &h);
        CHECK_STR(h.text, json_text(whole, "text"));
        CHECK_EQ(h.tokens, json_array_size(json_object_get(whole, "tokens")));
        CHECK(h.done);
        if (check_failures) printf("    %s, run %d\n", call, run);
        json_decref(whole);
    }
    peer_close(&p);
    fixture_close(&f);
}

/* --- credit --- */

static void a_reader_without_acks_gets_as_many_events_as_the_window_has(void)
{
    fixture f;
    peer p;
    heard h = {0};
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"window\": 4, \"request_id\": \"a\"}"));
    fixture_run(&f);
    hear(&p, &h);
    CHECK_EQ(h.events, 4);
    CHECK_STR(h.text, "The ");
    CHECK(!h.done);
    peer_close(&p);
    fixture_close(&f);
}

static void what_was_generated_without_credit_comes_as_one_event_after_an_ack(void)
{
    fixture f;
    peer p;
    heard h = {0};
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"window\": 4, \"request_id\": \"a\"}"));
    fixture_run(&f);
    hear(&p, &h);
    peer_notify(&p, "ack", "{\"request_id\": \"a\", \"n\": 1}");
    hear(&p, &h);
    CHECK_EQ(h.events, 5);
    CHECK_STR(h.text, answer);
    CHECK_EQ(h.tokens, ANSWER_TOKENS);
    CHECK(h.done);
    peer_notify(&p, "ack", "{\"request_id\": \"a\", \"n\": 4}");    /* it is gone: ignored */
    CHECK_EQ(peer_waiting(&p), 0);
    peer_close(&p);
    fixture_close(&f);
}

/* Random windows, acks and rounds: the events never outrun the credit, and the text is always whole. */
static void credit_is_never_exceeded_and_no_token_is_lost(void)
{
    srand(20261130);
    for (int run = 0; run < 200; run++) {
        fixture f;
        peer p;
        heard h = {0};
        char call[128];
        uint32_t window = 1 + (uint32_t)rand() % 7, acked = 0;
        fixture_open(&f, NULL);
        peer_hello(&p, &f);
        snprintf(call, sizeof call, "{\"prompt\": \"x\", \"stream\": true, \"window\": %u, \"request_id\": \"a\"}", window);
        json_decref(peer_call(&p, "generate", call));
        while (!h.done) {
            for (int i = rand() % 4; i > 0; i--) fixture_round(&f);
            hear(&p, &h);
            CHECK(h.events - acked <= window);
            uint32_t n = h.events > acked ? 1 + (uint32_t)rand() % (h.events - acked) : 0;
            snprintf(call, sizeof call, "{\"request_id\": \"a\", \"n\": %u}", n);
            if (n) peer_notify(&p, "ack", call);
            acked += n;
            if (check_failures) break;
        }
        CHECK_STR(h.text, answer);
        CHECK_EQ(h.tokens, ANSWER_TOKENS);
        peer_close(&p);
        fixture_close(&f);
    }
}

static void acks_of_another_connection_give_no_credit(void)
{
    fixture f;
    peer p, other;
    heard h = {0};
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_hello(&other, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"window\": 1, \"request_id\": \"a\"}"));
    fixture_run(&f);
    peer_notify(&other, "ack", "{\"request_id\": \"a\", \"n\": 100}");
    hear(&p, &h);
    CHECK_EQ(h.events, 1);
    peer_close(&p);
    peer_close(&other);
    fixture_close(&f);
}

/* --- slow readers --- */

static void an_ended_stream_waits_thirty_seconds_for_credit(void)
{
    fixture f;
    peer p;
    heard h = {0};
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"window\": 1, \"request_id\": \"a\"}"));
    fixture_run(&f);
    fixture_pass(&f, gb_seconds(29));
    hear(&p, &h);
    CHECK_EQ(h.failed, 0);
    fixture_pass(&f, gb_seconds(2));
    hear(&p, &h);
    CHECK_EQ(h.failed, GB_RPC_SLOW_READER);
    CHECK_STR(h.text, "T");
    json_decref(peer_call(&p, "generate", stream_call));    /* its name is free again */
    peer_close(&p);
    fixture_close(&f);
}

/* A stream that is full (256 KiB) and gets no credit for 30 s ends, and its request with it. */
static void a_full_stream_without_credit_for_thirty_seconds_is_ended(void)
{
    static const gb_event token = {
        .kind = GB_EVENT_TOKEN, .text = "0123456789abcdef", .text_bytes = 16, .stop_token = -1, .stop_string = -1};
    fixture f;
    peer p;
    heard h = {0};
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"window\": 1, \"request_id\": \"a\"}"));
    gb_rpc_stream *stream = gb_rpc_stream_find(f.service, "a");
    gb_event event = token;
    event.id = stream->id;
    event.at = f.now;
    while (gb_rpc_stream_find(f.service, "a") && stream->text.n < GB_RPC_STREAM_BYTES) gb_rpc_event(f.service, &event);
    fixture_pass(&f, gb_seconds(29));
    hear(&p, &h);
    CHECK_EQ(h.failed, 0);
    fixture_pass(&f, gb_seconds(1));
    hear(&p, &h);
    CHECK_EQ(h.failed, GB_RPC_SLOW_READER);
    fixture_run(&f);
    CHECK_EQ(live(&f), 0);
    peer_close(&p);
    fixture_close(&f);
}

static void credit_in_time_saves_a_full_stream(void)
{
    fixture f;
    peer p;
    heard h = {0};
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"window\": 1, \"request_id\": \"a\"}"));
    fixture_run(&f);
    fixture_pass(&f, gb_seconds(29));
    peer_notify(&p, "ack", "{\"request_id\": \"a\"}");
    hear(&p, &h);
    CHECK(h.done);
    CHECK_STR(h.text, answer);
    peer_close(&p);
    fixture_close(&f);
}

static void a_reader_that_does_not_read_holds_a_megabyte_at_most(void)
{
    fixture f;
    peer slow, fine;
    fixture_open(&f, &(fixture_options){.max_model_len = 60000, .queue_capacity = 4});
    peer_hello(&slow, &f);
    peer_hello(&fine, &f);
    slow.reads = false;
    peer_post(&slow, 50, "generate",
              "{\"prompt\": \"x\", \"stream\": true, \"window\": 0, \"sampling\": {\"ignore_eos\": true}}");
    json_decref(peer_call(
        &fine, "generate",
        "{\"prompt\": \"x\", \"stream\": true, \"window\": 0, \"sampling\": {\"ignore_eos\": true, \"max_tokens\": 2000}}"));
    while (fixture_round(&f)) {
        size_t backlog;
        gb_rpc_output(slow.conn, &backlog);
        CHECK(backlog < GB_RPC_BACKLOG_BYTES + 4096);
        if (check_failures) break;
    }
    json_t *map;
    peer_receive(&fine);
    uint32_t events = 0;
    while ((map = peer_take(&fine, "token"))) {
        events++;
        json_decref(map);
    }
    CHECK_EQ(events, 2000);
    slow.reads = true;
    peer_receive(&slow);
    map = peer_take(&slow, "failed");
    CHECK_EQ(json_int(json_object_get(map, "error"), "code"), GB_RPC_SLOW_READER);
    json_decref(map);
    CHECK_EQ(live(&f), 0);
    peer_close(&slow);
    peer_close(&fine);
    fixture_close(&f);
}

static void whole_results_of_a_connection_are_bounded(void)
{
    static char much[1 << 16];
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    memset(much, 'x', sizeof much);
    peer_post(&p, 30, "generate", "{\"prompt\": \"x\", \"request_id\": \"a\"}");
    gb_rpc_stream *stream = gb_rpc_stream_find(f.service, "a");
    gb_event event = {.kind = GB_EVENT_TOKEN, .id = stream->id, .at = f.now, .text = much, .text_bytes = sizeof much};
    uint32_t events = 0;
    for (; gb_rpc_stream_find(f.service, "a"); events++) gb_rpc_event(f.service, &event);
    CHECK_EQ(events, GB_RPC_WHOLE_BYTES / sizeof much);
    peer_receive(&p);
    json_t *response = peer_take_response(&p, 30);
    CHECK_EQ(json_int(json_array_get(response, 2), "code"), GB_RPC_TOO_LARGE);
    json_decref(response);
    fixture_run(&f);
    CHECK_EQ(live(&f), 0);
    peer_close(&p);
    fixture_close(&f);
}

/* --- abort, deadline, close --- */

static void an_aborted_stream_has_failed_when_abort_is_answered(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", stream_call));
    for (int i = 0; i < 3; i++) fixture_round(&f);
    peer_post(&p, 70, "abort", "{\"request_id\": \"a\"}");
    json_t *response = peer_take_response(&p, 70);
    CHECK_EQ(json_int(json_array_get(response, 3), "aborted"), 1);
    json_decref(response);
    heard h = {0};
    hear(&p, &h);
    CHECK_EQ(h.failed, GB_RPC_ABORTED);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"request_id\": \"a\"}"));    /* its name is free again */
    json_t *again = peer_call(&p, "abort", "{\"request_id\": \"a\"}");
    CHECK_EQ(json_int(again, "aborted"), 0);
    json_decref(again);
    peer_close(&p);
    fixture_close(&f);
}

static void abort_of_a_whole_call_answers_it_with_aborted(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_post(&p, 60, "generate", "{\"prompt\": \"x\", \"request_id\": \"w\"}");
    json_decref(peer_call(&p, "abort", "{\"request_id\": \"w\"}"));
    fixture_run(&f);
    peer_receive(&p);
    json_t *response = peer_take_response(&p, 60);
    CHECK_EQ(json_int(json_array_get(response, 2), "code"), GB_RPC_ABORTED);
    json_decref(response);
    peer_close(&p);
    fixture_close(&f);
}

static void abort_of_an_ended_stream_without_credit_drops_its_text(void)
{
    fixture f;
    peer p;
    heard h = {0};
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"window\": 1, \"request_id\": \"a\"}"));
    fixture_run(&f);
    json_t *r = peer_call(&p, "abort", "{\"request_id\": \"a\"}");
    CHECK_EQ(json_int(r, "aborted"), 1);
    json_decref(r);
    hear(&p, &h);
    CHECK_EQ(h.failed, GB_RPC_ABORTED);
    peer_close(&p);
    fixture_close(&f);
}

static void abort_all_is_of_the_server_for_an_admin_and_of_the_connection_for_others(void)
{
    fixture f;
    peer admin, user;
    fixture_open(&f, NULL);
    peer_hello(&admin, &f);
    peer_open(&user, &f, false);
    json_decref(peer_call(&user, "hello", "{}"));
    json_decref(peer_call(&admin, "generate", "{\"prompt\": \"x\", \"stream\": true, \"request_id\": \"of admin\"}"));
    for (int i = 0; i < 3; i++) json_decref(peer_call(&user, "generate", "{\"prompt\": \"x\", \"stream\": true}"));
    json_t *r = peer_call(&user, "abort", "{\"request_id\": \"of admin\"}");
    CHECK_EQ(json_int(r, "aborted"), 0);
    json_decref(r);
    r = peer_call(&user, "abort", "{\"all\": true}");
    CHECK_EQ(json_int(r, "aborted"), 3);
    json_decref(r);
    fixture_run(&f);
    json_decref(peer_call(&user, "generate", "{\"prompt\": \"x\", \"stream\": true}"));
    json_decref(peer_call(&admin, "generate", "{\"prompt\": \"x\", \"stream\": true, \"request_id\": \"second\"}"));
    r = peer_call(&admin, "abort", "{\"all\": true}");
    CHECK_EQ(json_int(r, "aborted"), 2);
    json_decref(r);
    peer_close(&admin);
    peer_close(&user);
    fixture_close(&f);
}

static void a_deadline_fails_the_request(void)
{
    fixture f;
    peer p;
    heard h = {0};
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"deadline_ms\": 5}"));
    fixture_run(&f);
    hear(&p, &h);
    CHECK_EQ(h.failed, GB_RPC_DEADLINE);
    CHECK(h.events < 6);
    peer_close(&p);
    fixture_close(&f);
}

static void closing_a_connection_aborts_its_requests_but_detached_ones(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", stream_call));
    peer_post(&p, 77, "generate", "{\"prompt\": \"x\"}");
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"detach\": true, \"request_id\": \"d\"}"));
    CHECK_EQ(live(&f), 3);
    peer_close(&p);
    CHECK_EQ(live(&f), 1);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "request_list", "{}");
    const json_t *first = json_array_get(json_object_get(r, "requests"), 0);
    CHECK_STR(json_text(first, "request_id"), "d");
    CHECK(json_is_true(json_object_get(first, "detached")));
    json_decref(r);
    peer_call_fails(&p, "generate", "{\"prompt\": \"x\", \"request_id\": \"d\"}", GB_RPC_INVALID_PARAMS, "request_id", "in use");
    fixture_run(&f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"request_id\": \"d\"}"));    /* it ended unheard */
    peer_close(&p);
    fixture_close(&f);
}

static void a_detached_request_can_be_aborted_by_an_admin(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"detach\": true, \"request_id\": \"d\"}"));
    peer_close(&p);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "abort", "{\"request_id\": \"d\"}");
    CHECK_EQ(json_int(r, "aborted"), 1);
    json_decref(r);
    fixture_run(&f);
    CHECK_EQ(live(&f), 0);
    peer_close(&p);
    fixture_close(&f);
}

static void a_thousand_streams_cut_at_once_free_every_block(void)
{
    enum { STREAMS = 1000, PEERS = 50 };
    static peer peers[PEERS];
    fixture f;
    fixture_open(&f, &(fixture_options){.queue_capacity = STREAMS, .max_model_len = 64});
    uint32_t before = free_blocks(&f);
    for (int i = 0; i < PEERS; i++) {
        peer_hello(&peers[i], &f);
        for (int s = 0; s < STREAMS / PEERS; s++)
            json_decref(peer_call(&peers[i], "generate", "{\"prompt\": \"Where is Paris?\", \"stream\": true}"));
    }
    for (int i = 0; i < 5; i++) fixture_round(&f);
    CHECK_EQ(live(&f), STREAMS);
    CHECK(free_blocks(&f) < before);
    gb_instance *instance = &f.instance;
    CHECK(gb_server_poll_round(instance->server, &instance->round, f.now));    /* a round is in flight when they go */
    for (int i = 0; i < PEERS; i++) peer_close(&peers[i]);
    gb_executor_run(instance->executor, &instance->round, &instance->result);
    gb_server_round_done(instance->server, &instance->result, f.now);
    fixture_run(&f);
    CHECK_EQ(live(&f), 0);
    CHECK_EQ(free_blocks(&f), before);
    gb_server_stats stats;
    gb_server_stats_get(instance->server, &stats);
    CHECK_EQ(stats.accepted, STREAMS);
    CHECK_EQ(stats.aborted, STREAMS);
    fixture_close(&f);
}

/* --- refusals --- */

static void a_full_server_says_when_to_try_again(void)
{
    fixture f;
    peer p;
    fixture_open(&f, &(fixture_options){.queue_capacity = 2});
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true}"));
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true}"));
    peer_post(&p, 40, "generate", "{\"prompt\": \"x\", \"stream\": true}");
    json_t *response = peer_take_response(&p, 40);
    const json_t *error = json_array_get(response, 2);
    CHECK_STR(json_text(error, "name"), "OVERLOADED");
    CHECK_EQ(json_int(json_object_get(error, "data"), "retry_after_ms"), GB_RPC_RETRY_AFTER_MS);
    json_decref(response);
    peer_close(&p);
    fixture_close(&f);
}

static void streams_of_a_connection_are_bounded(void)
{
    fixture f;
    peer p;
    fixture_open(&f, &(fixture_options){.queue_capacity = GB_RPC_STREAMS_MAX + 1, .max_model_len = 64});
    peer_hello(&p, &f);
    for (int i = 0; i < GB_RPC_STREAMS_MAX; i++) json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true}"));
    peer_call_fails(&p, "generate", "{\"prompt\": \"x\", \"stream\": true}", GB_RPC_OVERLOADED, NULL, "1024 live requests");
    peer_close(&p);
    fixture_close(&f);
}

static void a_draining_server_refuses_new_requests_and_finishes_old_ones(void)
{
    fixture f;
    peer p;
    heard h = {0};
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", stream_call));
    json_t *r = peer_call(&p, "drain", "{}");
    CHECK_EQ(json_int(r, "live"), 1);
    json_decref(r);
    json_t *goaway = peer_take(&p, "goaway");
    CHECK(goaway != NULL);
    json_decref(goaway);
    peer_call_fails(&p, "generate", "{\"prompt\": \"x\"}", GB_RPC_DRAINING, NULL, "draining");
    fixture_run(&f);
    hear(&p, &h);
    CHECK(h.done);
    CHECK_STR(h.text, answer);
    peer_close(&p);
    fixture_close(&f);
}

/* Sanitizers keep freed memory apart; under them the leak check at the end says it instead. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { KEEPS_FREED_MEMORY = true };
#else
enum { KEEPS_FREED_MEMORY = false };
#endif

static size_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*u %lu", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return pages * 4096;
}

/* Whole results, streams, aborts and closed connections in turn. */
static void one_of_each(fixture *f, peer *p, int i)
{
    if (i % 10 == 0) {
        peer_close(p);
        peer_hello(p, f);
    }
    if (i % 3 == 0) {
        json_decref(peer_call(p, "generate", "{\"prompt\": \"x\"}"));
    } else {
        heard h = {0};
        json_decref(peer_call(p, "generate", stream_call));
        for (int r = 0; r < i % 20; r++) fixture_round(f);
        if (i % 3 == 1) json_decref(peer_call(p, "abort", "{\"request_id\": \"a\"}"));
        fixture_run(f);
        hear(p, &h);
        CHECK(h.done || h.failed == GB_RPC_ABORTED);
    }
}

static void memory_is_flat_over_ten_thousand_requests(void)
{
    fixture f;
    peer p;
    size_t warm = 0;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    for (int i = 0; i < 10000; i++) {
        one_of_each(&f, &p, i);
        if (i == 1000) warm = resident_bytes();
        if (check_failures) break;
    }
    CHECK(KEEPS_FREED_MEMORY || resident_bytes() <= warm + (1 << 20));
    CHECK_EQ(live(&f), 0);
    CHECK_EQ(p.conn->n_streams, 0);
    CHECK_EQ(p.conn->held_bytes, 0);
    CHECK_EQ(p.conn->whole_bytes, 0);
    peer_close(&p);
    fixture_close(&f);
}

TESTS(TEST(a_whole_result_has_text_tokens_usage_and_timings), TEST(the_server_makes_a_request_id_when_there_is_none),
      TEST(logprobs_come_for_each_token_and_are_finite), TEST(stop_texts_end_the_text_before_them),
      TEST(the_response_comes_before_the_first_event), TEST(a_stream_puts_together_what_a_whole_result_has),
      TEST(done_tells_usage_and_why), TEST(text_that_was_held_back_comes_before_done),
      TEST(a_character_split_over_tokens_comes_whole), TEST(an_unfinished_character_ends_as_a_replacement),
      TEST(a_stream_is_its_whole_result_whatever_the_stops), TEST(whole_results_of_a_connection_are_bounded),
      TEST(a_reader_without_acks_gets_as_many_events_as_the_window_has),
      TEST(what_was_generated_without_credit_comes_as_one_event_after_an_ack),
      TEST(credit_is_never_exceeded_and_no_token_is_lost), TEST(acks_of_another_connection_give_no_credit),
      TEST(an_ended_stream_waits_thirty_seconds_for_credit), TEST(a_full_stream_without_credit_for_thirty_seconds_is_ended),
      TEST(credit_in_time_saves_a_full_stream), TEST(a_reader_that_does_not_read_holds_a_megabyte_at_most),
      TEST(an_aborted_stream_has_failed_when_abort_is_answered), TEST(abort_of_a_whole_call_answers_it_with_aborted),
      TEST(abort_of_an_ended_stream_without_credit_drops_its_text),
      TEST(abort_all_is_of_the_server_for_an_admin_and_of_the_connection_for_others), TEST(a_deadline_fails_the_request),
      TEST(closing_a_connection_aborts_its_requests_but_detached_ones), TEST(a_detached_request_can_be_aborted_by_an_admin),
      TEST(a_thousand_streams_cut_at_once_free_every_block), TEST(a_full_server_says_when_to_try_again),
      TEST(streams_of_a_connection_are_bounded), TEST(a_draining_server_refuses_new_requests_and_finishes_old_ones),
      TEST(memory_is_flat_over_ten_thousand_requests))
