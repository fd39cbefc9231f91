#include "bindings/rpc/subscribe.h"

#include "bindings/rpc/conn.h"
#include "tests/check.h"
#include "tests/rpc/fixture.h"

static int64_t subscribe(peer *p, const char *params)
{
    json_t *r = peer_call(p, "subscribe", params);
    int64_t id = json_int(r, "sub_id");
    json_decref(r);
    return id;
}

static uint32_t count_events(peer *p, json_t **last)
{
    uint32_t n = 0;
    json_t *event;
    peer_receive(p);
    if (last) *last = NULL;
    while ((event = peer_take(p, "event"))) {
        n++;
        if (last) json_decref(*last);
        if (last) *last = event;
        else json_decref(event);
    }
    return n;
}

static void a_snapshot_comes_after_the_answer_and_then_only_when_it_changed(void)
{
    fixture f;
    peer p;
    json_t *event;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    int64_t id = subscribe(&p, "{\"topics\": [\"stats\"], \"min_interval_ms\": 100}");
    CHECK_EQ(peer_waiting(&p), 0);
    fixture_pass(&f, 0);
    CHECK_EQ(count_events(&p, &event), 1);
    CHECK_EQ(json_int(event, "sub_id"), id);
    CHECK_STR(json_text(event, "topic"), "stats");
    CHECK_EQ(json_int(event, "seq"), 0);
    CHECK_EQ(json_int(event, "skipped"), 0);
    CHECK_EQ(json_int(json_object_get(event, "data"), "accepted"), 0);
    json_decref(event);
    fixture_pass(&f, gb_seconds(10));
    CHECK_EQ(count_events(&p, NULL), 0);    /* nothing happened */
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\"}"));
    fixture_pass(&f, gb_ms(100));
    CHECK_EQ(count_events(&p, &event), 1);
    CHECK_EQ(json_int(json_object_get(event, "data"), "finished"), 1);
    CHECK_EQ(json_int(event, "seq"), 1);
    json_decref(event);
    peer_close(&p);
    fixture_close(&f);
}

static void snapshots_keep_their_interval(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    subscribe(&p, "{\"topics\": [\"engines\"], \"min_interval_ms\": 10}");
    json_decref(peer_call(&p, "generate",
                          "{\"prompt\": \"x\", \"stream\": true, \"sampling\": {\"max_tokens\": 100, \"ignore_eos\": true}}"));
    for (int i = 0; i < 100; i++) fixture_round(&f);    /* 1 ms each */
    uint32_t n = count_events(&p, NULL);
    CHECK(n >= 9 && n <= 11);
    peer_close(&p);
    fixture_close(&f);
}

static void every_topic_has_a_snapshot_like_its_method(void)
{
    fixture f;
    peer p;
    json_t *event;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    subscribe(&p, "{\"topics\": [\"stats\", \"engines\", \"experts\", \"placement\", \"policies\"]}");
    fixture_pass(&f, 0);
    peer_receive(&p);
    static const char *const methods[][2] = {
        {"stats", "server_stats"}, {"engines", "engine_list"}, {"experts", "expert_matrix"}, {"placement", "placement_get"}, {"policies", "policy_list"},
    };
    for (int i = 0; i < 5; i++) {
        event = peer_take(&p, "event");
        CHECK_STR(json_text(event, "topic"), methods[i][0]);
        json_t *r = peer_call(&p, methods[i][1], "{}");
        CHECK(json_equal(json_object_get(event, "data"), r));
        json_decref(r);
        json_decref(event);
    }
    peer_close(&p);
    fixture_close(&f);
}

static void without_ack_the_next_snapshot_waits_and_counts_what_it_skipped(void)
{
    fixture f;
    peer p;
    char params[64];
    json_t *event;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    int64_t id = subscribe(&p, "{\"topics\": [\"stats\"], \"min_interval_ms\": 10, \"ack\": true}");
    fixture_pass(&f, 0);
    CHECK_EQ(count_events(&p, NULL), 1);
    for (int i = 0; i < 5; i++) {
        json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"sampling\": {\"max_tokens\": 1}}"));
        fixture_pass(&f, gb_ms(10));
    }
    CHECK_EQ(count_events(&p, NULL), 0);
    snprintf(params, sizeof params, "{\"sub_id\": %lld}", (long long)id);
    peer_notify(&p, "ack", params);
    fixture_pass(&f, gb_ms(10));
    CHECK_EQ(count_events(&p, &event), 1);
    CHECK_EQ(json_int(event, "skipped"), 4);    /* five changes, and the newest is here */
    CHECK_EQ(json_int(json_object_get(event, "data"), "finished"), 5);
    CHECK_EQ(json_int(event, "seq"), 1);
    json_decref(event);
    peer_close(&p);
    fixture_close(&f);
}

static void a_subscriber_that_does_not_read_gets_no_queue(void)
{
    fixture f;
    peer p, busy;
    json_t *event;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_hello(&busy, &f);
    subscribe(&p, "{\"topics\": [\"stats\"], \"min_interval_ms\": 10}");
    p.reads = false;
    for (int i = 0; i < 3000; i++) {
        json_decref(peer_call(&busy, "generate", "{\"prompt\": \"x\", \"sampling\": {\"max_tokens\": 1}}"));
        fixture_pass(&f, gb_ms(10));
        CHECK(gb_rpc_conn_backlog(p.conn) < GB_RPC_BACKLOG_BYTES);
        if (check_failures) break;
    }
    p.reads = true;
    count_events(&p, NULL);
    fixture_pass(&f, gb_ms(10));
    CHECK_EQ(count_events(&p, &event), 1);
    CHECK(json_int(event, "skipped") > 0);
    CHECK_EQ(json_int(json_object_get(event, "data"), "finished"), 3000);
    json_decref(event);
    peer_close(&p);
    peer_close(&busy);
    fixture_close(&f);
}

static void unsubscribe_ends_it(void)
{
    fixture f;
    peer p;
    char params[64];
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    int64_t id = subscribe(&p, "{\"topics\": [\"stats\"], \"min_interval_ms\": 10}");
    snprintf(params, sizeof params, "{\"sub_id\": %lld}", (long long)id);
    for (int again = 0; again < 2; again++) {
        json_t *r = peer_call(&p, "unsubscribe", params);
        CHECK_EQ(json_is_true(json_object_get(r, "removed")), !again);
        json_decref(r);
    }
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\"}"));
    fixture_pass(&f, gb_seconds(1));
    CHECK_EQ(count_events(&p, NULL), 0);
    CHECK_EQ(gb_rpc_deadline(f.service), GB_NEVER);
    peer_close(&p);
    fixture_close(&f);
}

static void subscriptions_are_bounded_and_topics_checked(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_call_fails(&p, "subscribe", "{\"topics\": [\"weather\"]}", GB_RPC_INVALID_PARAMS, "topics",
                    "no topic weather: topics are stats, engines");
    peer_call_fails(&p, "subscribe", "{\"topics\": []}", GB_RPC_INVALID_PARAMS, "topics", "topics is empty");
    peer_call_fails(&p, "subscribe", "{}", GB_RPC_INVALID_PARAMS, "topics", "required");
    for (int i = 0; i < GB_RPC_SUBSCRIPTIONS_MAX; i++) subscribe(&p, "{\"topics\": [\"placement\"]}");
    peer_call_fails(&p, "subscribe", "{\"topics\": [\"stats\"]}", GB_RPC_OVERLOADED, NULL, "16 subscriptions");
    peer_close(&p);
    fixture_close(&f);
}

TESTS(TEST(a_snapshot_comes_after_the_answer_and_then_only_when_it_changed), TEST(snapshots_keep_their_interval),
      TEST(every_topic_has_a_snapshot_like_its_method), TEST(without_ack_the_next_snapshot_waits_and_counts_what_it_skipped),
      TEST(a_subscriber_that_does_not_read_gets_no_queue), TEST(unsubscribe_ends_it),
      TEST(subscriptions_are_bounded_and_topics_checked))
