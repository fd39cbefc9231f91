#include "bindings/rpc/service.h"

#include <stdlib.h>

#include "bindings/rpc/errors.h"
#include "bindings/rpc/frame.h"
#include "bindings/rpc/json.h"
#include "bindings/rpc/method.h"
#include "tests/check.h"
#include "tests/rpc/fixture.h"

/* --- hello and rights --- */

static void without_hello_only_ping_and_api_info_answer(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_open(&p, &f, true);
    json_decref(peer_call(&p, "ping", "{}"));
    json_decref(peer_call(&p, "api_info", ""));
    peer_call_fails(&p, "model_info", "{}", GB_RPC_UNAUTHENTICATED, NULL, "hello first");
    json_decref(peer_call(&p, "hello", "{\"client\": \"test\"}"));
    json_decref(peer_call(&p, "model_info", "{}"));
    peer_close(&p);
    fixture_close(&f);
}

static void hello_says_who_serves_and_what_is_allowed(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_open(&p, &f, true);
    json_t *hello =
        peer_call(&p, "hello", "{\"client\": \"test\", \"version\": \"1\", \"features\": [\"credit\", \"time travel\"]}");
    CHECK_STR(json_text(hello, "server"), "gimbal");
    CHECK_EQ(json_int(hello, "api_level"), GB_RPC_API_LEVEL);
    CHECK(json_is_true(json_object_get(hello, "admin")));
    CHECK_EQ(json_int(json_object_get(hello, "limits"), "max_message"), GB_RPC_MESSAGE_MAX);
    CHECK_EQ(json_int(json_object_get(hello, "limits"), "window"), GB_RPC_WINDOW);
    json_decref(hello);
    peer_close(&p);
    fixture_close(&f);
}

static void a_connection_without_hello_is_closed_after_five_seconds(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_open(&p, &f, true);
    fixture_pass(&f, gb_seconds(5) - 1);
    CHECK(!gb_rpc_wants_close(p.conn));
    fixture_pass(&f, 1);
    CHECK(gb_rpc_wants_close(p.conn));
    peer_receive(&p);
    json_t *event = peer_take(&p, "error_event");
    CHECK_EQ(json_int(event, "code"), GB_RPC_UNAUTHENTICATED);
    json_decref(event);
    peer_close(&p);
    fixture_close(&f);
}

/* What a connection is before the call in question. */
typedef enum standing { NO_HELLO, USER, ADMIN, UNIX, STANDINGS } standing;

static void open_as(peer *p, fixture *f, standing who)
{
    peer_open(p, f, who == UNIX);
    if (who == USER) json_decref(peer_call(p, "hello", "{\"auth\": \"the key\"}"));
    if (who == ADMIN) json_decref(peer_call(p, "hello", "{\"auth\": \"the token\"}"));
    if (who == UNIX) json_decref(peer_call(p, "hello", "{}"));
}

static int code_of_empty_call(fixture *f, standing who, const char *method)
{
    peer p;
    open_as(&p, f, who);
    peer_post(&p, 99, method, "{}");
    json_t *response = peer_take_response(&p, 99);
    const json_t *error = json_array_get(response, 2);
    int code = json_is_null(error) ? 0 : (int)json_int(error, "code");
    json_decref(response);
    peer_close(&p);
    return code;
}

/* Every method, from every standing: refused by rights exactly where the table says so. */
static void rights_are_those_of_the_method_table(void)
{
    for (const gb_rpc_theme *t = gb_rpc_themes; t->title; t++)
        for (const gb_rpc_method *m = t->methods; m->name; m++)
            for (standing who = NO_HELLO; who < STANDINGS; who++) {
                fixture f;
                fixture_open(&f, &(fixture_options){.api_key = "the key", .admin_token = "the token"});
                int code = code_of_empty_call(&f, who, m->name);
                bool is_hello = strcmp(m->name, "hello") == 0;
                bool needs_hello = m->right != GB_RPC_NEEDS_NOTHING && who == NO_HELLO;
                bool needs_admin = m->right == GB_RPC_NEEDS_ADMIN && who == USER;
                if (!is_hello && (code == GB_RPC_UNAUTHENTICATED) != needs_hello)
                    check_fail(__FILE__, __LINE__, "%s as %d: %d", m->name, who, code);
                if ((code == GB_RPC_FORBIDDEN) != needs_admin) check_fail(__FILE__, __LINE__, "%s as %d: %d", m->name, who, code);
                fixture_close(&f);
            }
}

static void a_wrong_key_is_refused_and_costs_the_connection(void)
{
    static const char *const wrong[] = {"{}", "{\"auth\": \"the kez\"}", "{\"auth\": \"the key \"}", "{\"auth\": \"t\"}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fixture f;
        peer p;
        fixture_open(&f, &(fixture_options){.api_key = "the key", .admin_token = "the token"});
        peer_open(&p, &f, false);
        peer_call_fails(&p, "hello", wrong[i], GB_RPC_UNAUTHENTICATED, "auth", "API key");
        CHECK(gb_rpc_wants_close(p.conn));
        peer_close(&p);
        fixture_close(&f);
    }
}

static void without_a_key_tcp_is_open_but_never_admin(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_open(&p, &f, false);
    json_t *hello = peer_call(&p, "hello", "{\"auth\": \"whatever\"}");
    CHECK(json_is_false(json_object_get(hello, "admin")));
    json_decref(hello);
    peer_call_fails(&p, "policy_load", "{\"source\": \"return {}\"}", GB_RPC_FORBIDDEN, NULL, "admin token");
    peer_close(&p);
    fixture_close(&f);
}

static void where_only_admins_need_a_token_a_wrong_one_is_refused_and_none_is_fine(void)
{
    fixture f;
    peer p;
    fixture_open(&f, &(fixture_options){.admin_token = "the token"});
    peer_open(&p, &f, false);
    json_t *hello = peer_call(&p, "hello", "{}");
    CHECK(json_is_false(json_object_get(hello, "admin")));
    json_decref(hello);
    hello = peer_call(&p, "hello", "{\"auth\": \"the token\"}");    /* hello may be repeated to become an admin */
    CHECK(json_is_true(json_object_get(hello, "admin")));
    json_decref(hello);
    peer_call_fails(&p, "hello", "{\"auth\": \"the tokem\"}", GB_RPC_UNAUTHENTICATED, "auth", "neither the API key nor the admin token");
    CHECK(gb_rpc_wants_close(p.conn));
    peer_close(&p);
    fixture_close(&f);
}

/* --- frames --- */

static void a_session_cut_at_every_byte_gives_the_same_answers(void)
{
    size_t n[3], at = 0;
    char *calls[3] = {peer_pack_call(1, "hello", "{}", &n[0]), peer_pack_call(2, "tokenize", "{\"text\": \"abc\"}", &n[1]),
                      peer_pack_call(3, "generate", "{\"prompt\": \"abc\", \"sampling\": {\"max_tokens\": 4}}", &n[2])};
    char session[1024];
    for (int i = 0; i < 3; i++) {
        memcpy(session + at, calls[i], n[i]);
        at += n[i];
        free(calls[i]);
    }
    for (size_t cut = 0; cut <= at; cut++) {
        fixture f;
        peer p;
        fixture_open(&f, NULL);
        peer_open(&p, &f, true);
        peer_send(&p, session, cut);
        peer_send(&p, session + cut, at - cut);
        fixture_run(&f);
        peer_receive(&p);
        json_t *response = peer_take_response(&p, 3);
        CHECK_STR(json_text(json_array_get(response, 3), "text"), "The ");
        CHECK_EQ(peer_waiting(&p), 2);
        json_decref(response);
        peer_close(&p);
        fixture_close(&f);
    }
}

static void a_session_that_arrives_byte_by_byte_is_understood(void)
{
    fixture f;
    peer p;
    size_t n;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    char *bytes = peer_pack_call(7, "tokenize", "{\"text\": \"hello\"}", &n);
    for (size_t i = 0; i < n; i++) peer_send(&p, bytes + i, 1);
    json_t *response = peer_take_response(&p, 7);
    CHECK_EQ(json_int(json_array_get(response, 3), "count"), 5);
    json_decref(response);
    free(bytes);
    peer_close(&p);
    fixture_close(&f);
}

static void check_closed_with(fixture *f, const void *bytes, size_t n, int code, const char *part)
{
    peer p;
    peer_hello(&p, f);
    peer_send(&p, bytes, n);
    CHECK(p.status != 0);
    CHECK(gb_rpc_wants_close(p.conn));
    json_t *event = peer_take(&p, "error_event");
    CHECK_EQ(json_int(event, "code"), code);
    CHECK_CONTAINS(json_text(event, "message"), part);
    json_decref(event);
    peer_post(&p, 1, "ping", "{}");    /* nothing is answered after it */
    CHECK_EQ(peer_waiting(&p), 0);
    peer_close(&p);
}

static void a_malformed_frame_is_reported_and_closes_only_its_connection(void)
{
    fixture f;
    peer witness;
    char deep[1000];
    fixture_open(&f, NULL);
    peer_hello(&witness, &f);
    memset(deep, 0x91, sizeof deep);
    check_closed_with(&f, "\xc1", 1, GB_RPC_PARSE, "0xc1");
    check_closed_with(&f, "\xdd\x04\xf2\x7f\x80", 5, GB_RPC_PARSE, "announces");
    check_closed_with(&f, "\xdf\xff\xff\xff\xff", 5, GB_RPC_PARSE, "announces");
    check_closed_with(&f, deep, sizeof deep, GB_RPC_PARSE, "deeper");
    json_decref(peer_call(&witness, "ping", "{}"));
    peer_close(&witness);
    fixture_close(&f);
}

static void msgpack_that_is_no_call_is_reported_and_closes(void)
{
    static const char *const messages[] = {
        "1", "\"ping\"", "{}", "[]", "[0]", "[0, 1, \"ping\"]", "[0, -1, \"ping\", [{}]]", "[0, 4294967296, \"ping\", [{}]]",
        "[0, 1, 7, [{}]]", "[1, 1, null, {}]", "[2, \"ping\"]", "[3, 1, \"ping\", [{}]]", "[0, 1, \"ping\", [{}], 5]", "[2, 5, [{}]]",
    };
    fixture f;
    fixture_open(&f, NULL);
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        size_t n;
        char *bytes = peer_pack(messages[i], &n);
        check_closed_with(&f, bytes, n, GB_RPC_INVALID_REQUEST, "a message must be");
        free(bytes);
    }
    fixture_close(&f);
}

static void params_are_an_array_of_one_map(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "ping", ""));
    json_decref(peer_call(&p, "ping", "null"));
    peer_call_fails(&p, "ping", "1", GB_RPC_INVALID_PARAMS, NULL, "one map");
    peer_call_fails(&p, "ping", "[]", GB_RPC_INVALID_PARAMS, NULL, "one map");
    peer_call_fails(&p, "ping", "{}, {}", GB_RPC_INVALID_PARAMS, NULL, "one map");
    peer_close(&p);
    fixture_close(&f);
}

static void an_unknown_method_is_named_with_its_neighbour(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_call_fails(&p, "generat", "{}", GB_RPC_NO_METHOD, NULL, "did you mean generate?");
    peer_call_fails(&p, "make_tea", "{}", GB_RPC_NO_METHOD, NULL, "no method make_tea: api_info");
    peer_call_fails(&p, "", "{}", GB_RPC_NO_METHOD, NULL, "no method");
    peer_call_fails(&p, "\\u0007\\u00e9ping", "{}", GB_RPC_NO_METHOD, NULL, "no method ???ping");    /* echoed as printable ASCII */
    peer_close(&p);
    fixture_close(&f);
}

static void an_incomplete_frame_is_waited_for_thirty_seconds(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_send(&p, "\x94\x00", 2);
    fixture_pass(&f, gb_seconds(30) - 1);
    CHECK(!gb_rpc_wants_close(p.conn));
    fixture_pass(&f, 1);
    CHECK(gb_rpc_wants_close(p.conn));
    peer_close(&p);
    fixture_close(&f);
}

/* --- msgids and limits --- */

static void a_msgid_in_use_is_refused_and_closes(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_post(&p, 5, "generate", "{\"prompt\": \"x\"}");
    peer_post(&p, 5, "ping", "{}");
    CHECK(p.status != 0);
    fixture_run(&f);
    peer_receive(&p);
    CHECK_EQ(peer_waiting(&p), 1);    /* error_event is the last thing: the request was ended with the connection */
    json_t *event = peer_take(&p, "error_event");
    CHECK_EQ(json_int(event, "code"), GB_RPC_INVALID_REQUEST);
    CHECK_CONTAINS(json_text(event, "message"), "msgid");
    json_decref(event);
    peer_close(&p);
    fixture_close(&f);
}

static void a_msgid_may_be_used_again_once_it_is_answered(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    for (int i = 0; i < 3; i++) {
        peer_post(&p, 5, "generate", "{\"prompt\": \"x\"}");
        fixture_run(&f);
        peer_receive(&p);
        json_t *response = peer_take_response(&p, 5);
        CHECK(response && json_is_null(json_array_get(response, 2)));
        json_decref(response);
    }
    peer_close(&p);
    fixture_close(&f);
}

static void the_sixty_fifth_unanswered_call_is_refused_and_the_others_go_on(void)
{
    fixture f;
    peer p;
    fixture_open(&f, &(fixture_options){.queue_capacity = 128});
    peer_hello(&p, &f);
    for (uint32_t i = 0; i < GB_RPC_INFLIGHT_MAX; i++) peer_post(&p, 1000 + i, "generate", "{\"prompt\": \"x\"}");
    CHECK_EQ(peer_waiting(&p), 0);
    peer_post(&p, 2000, "ping", "{}");
    json_t *refused = peer_take_response(&p, 2000);
    CHECK_EQ(json_int(json_array_get(refused, 2), "code"), GB_RPC_OVERLOADED);
    CHECK(json_int(json_object_get(json_array_get(refused, 2), "data"), "retry_after_ms") > 0);
    json_decref(refused);
    fixture_run(&f);
    peer_receive(&p);
    CHECK_EQ(peer_waiting(&p), GB_RPC_INFLIGHT_MAX);
    json_decref(peer_call(&p, "ping", "{}"));
    peer_close(&p);
    fixture_close(&f);
}

static void connections_are_counted_and_bounded(void)
{
    fixture f;
    fixture_open(&f, NULL);
    for (int i = 0; i < GB_RPC_CONNECTIONS_MAX; i++) CHECK(gb_rpc_open(f.service, true, f.now) != NULL);
    CHECK(gb_rpc_open(f.service, true, f.now) == NULL);
    fixture_close(&f);
}

static void calls_are_not_read_while_their_answers_are_not(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    p.reads = false;
    uint32_t sent = 0;
    while (gb_rpc_wants_input(p.conn)) peer_post(&p, ++sent, "api_info", "{}");
    size_t backlog;
    gb_rpc_output(p.conn, &backlog);
    CHECK(backlog > GB_RPC_BACKLOG_BYTES && backlog < 2 * GB_RPC_BACKLOG_BYTES);
    for (int i = 0; i < 100; i++) peer_post(&p, ++sent, "api_info", "{}");    /* they wait */
    size_t later;
    gb_rpc_output(p.conn, &later);
    CHECK_EQ(later, backlog);
    CHECK(!gb_rpc_wants_close(p.conn));
    p.reads = true;
    peer_receive(&p);
    CHECK_EQ(peer_waiting(&p), sent);
    CHECK(gb_rpc_wants_input(p.conn));
    peer_close(&p);
    fixture_close(&f);
}

static void a_client_that_calls_and_never_reads_is_closed(void)
{
    fixture f;
    peer p;
    size_t n;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    p.reads = false;
    char *call = peer_pack_call(1, "api_info", "{}", &n);
    for (uint32_t i = 0; p.status == 0 && i < 4u * GB_RPC_MESSAGE_MAX / n; i++) peer_send(&p, call, n);
    CHECK_EQ(p.status, GB_ESLOW);
    free(call);
    peer_close(&p);
    fixture_close(&f);
}

/* --- notifications --- */

static void a_notification_that_fails_is_reported_as_an_event(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_notify(&p, "ack", "{\"n\": 1}");
    json_t *event = peer_take(&p, "error_event");
    CHECK_STR(json_text(event, "method"), "ack");
    CHECK_EQ(json_int(event, "code"), GB_RPC_INVALID_PARAMS);
    json_decref(event);
    peer_notify(&p, "generate", "{\"prompt\": \"x\"}");
    event = peer_take(&p, "error_event");
    CHECK_EQ(json_int(event, "code"), GB_RPC_INVALID_REQUEST);
    json_decref(event);
    peer_notify(&p, "ping", "{}");
    CHECK_EQ(peer_waiting(&p), 0);
    CHECK(!gb_rpc_wants_close(p.conn));
    peer_close(&p);
    fixture_close(&f);
}

/* --- the driver's side --- */

static void a_connection_is_named_ready_once_for_what_is_queued(void)
{
    fixture f;
    peer a, b;
    int first = 1, second = 2;
    fixture_open(&f, NULL);
    peer_open(&a, &f, true);
    peer_open(&b, &f, true);
    gb_rpc_set_user(a.conn, &first);
    gb_rpc_set_user(b.conn, &second);
    a.reads = b.reads = false;
    peer_post(&b, 1, "ping", "{}");
    peer_post(&a, 1, "ping", "{}");
    peer_post(&b, 2, "ping", "{}");
    CHECK(gb_rpc_user(gb_rpc_next_ready(f.service)) == &second);
    CHECK(gb_rpc_user(gb_rpc_next_ready(f.service)) == &first);
    CHECK(gb_rpc_next_ready(f.service) == NULL);
    peer_post(&a, 2, "ping", "{}");
    CHECK(gb_rpc_next_ready(f.service) == a.conn);
    peer_post(&a, 3, "ping", "{}");
    peer_close(&a);    /* a ready connection may close */
    CHECK(gb_rpc_next_ready(f.service) == NULL);
    peer_close(&b);
    fixture_close(&f);
}

static void output_taken_in_pieces_loses_nothing(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_open(&p, &f, true);
    p.reads = false;
    for (uint32_t i = 0; i < 20; i++) peer_post(&p, i, "api_info", "{}");
    size_t n, total = 0, whole = 0;
    const uint8_t *bytes;
    gb_frame frame;
    gb_error err;
    uint8_t *copy = NULL;
    gb_rpc_output(p.conn, &n);
    copy = malloc(n);
    while ((bytes = gb_rpc_output(p.conn, &n))) {
        size_t piece = n < 1777 ? n : 1777;
        memcpy(copy + total, bytes, piece);
        total += piece;
        gb_rpc_sent(p.conn, piece, f.now);
    }
    for (size_t at = 0; at < total; at += frame.at) {
        gb_frame_init(&frame);
        CHECK_EQ(gb_frame_scan(&frame, copy + at, total - at, &err), GB_FRAME_WHOLE);
        whole++;
    }
    CHECK_EQ(whole, 20);
    free(copy);
    peer_close(&p);
    fixture_close(&f);
}

static void goaway_reaches_those_who_said_hello(void)
{
    fixture f;
    peer greeted, silent;
    fixture_open(&f, NULL);
    peer_hello(&greeted, &f);
    peer_open(&silent, &f, true);
    gb_rpc_goaway(f.service, "shutting down", gb_seconds(3));
    peer_receive(&greeted);
    peer_receive(&silent);
    json_t *event = peer_take(&greeted, "goaway");
    CHECK_STR(json_text(event, "reason"), "shutting down");
    CHECK_NEAR(json_real_value(json_object_get(event, "deadline_ms")), 3000, 0);
    CHECK_EQ(peer_waiting(&silent), 0);
    json_decref(event);
    peer_close(&greeted);
    peer_close(&silent);
    fixture_close(&f);
}

TESTS(TEST(without_hello_only_ping_and_api_info_answer), TEST(hello_says_who_serves_and_what_is_allowed),
      TEST(a_connection_without_hello_is_closed_after_five_seconds), TEST(rights_are_those_of_the_method_table),
      TEST(a_wrong_key_is_refused_and_costs_the_connection), TEST(without_a_key_tcp_is_open_but_never_admin),
      TEST(where_only_admins_need_a_token_a_wrong_one_is_refused_and_none_is_fine),
      TEST(a_session_cut_at_every_byte_gives_the_same_answers), TEST(a_session_that_arrives_byte_by_byte_is_understood),
      TEST(a_malformed_frame_is_reported_and_closes_only_its_connection), TEST(msgpack_that_is_no_call_is_reported_and_closes),
      TEST(params_are_an_array_of_one_map), TEST(an_unknown_method_is_named_with_its_neighbour),
      TEST(an_incomplete_frame_is_waited_for_thirty_seconds), TEST(a_msgid_in_use_is_refused_and_closes),
      TEST(a_msgid_may_be_used_again_once_it_is_answered), TEST(the_sixty_fifth_unanswered_call_is_refused_and_the_others_go_on),
      TEST(connections_are_counted_and_bounded), TEST(calls_are_not_read_while_their_answers_are_not),
      TEST(a_client_that_calls_and_never_reads_is_closed), TEST(a_notification_that_fails_is_reported_as_an_event),
      TEST(a_connection_is_named_ready_once_for_what_is_queued), TEST(output_taken_in_pieces_loses_nothing),
      TEST(goaway_reaches_those_who_said_hello))
