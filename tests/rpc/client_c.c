/* The C client against the fixture behind sockets; with_server.sh starts it. */
#include "bindings/clients/c/gimbal_client.h"

#include <stdlib.h>

#include "tests/check.h"

static gimbal_error error;

static gimbal_client *open_unix(void)
{
    gimbal_client *client = NULL;
    if (gimbal_open(&client, getenv("GIMBAL_SOCKET"), NULL, &error)) check_fail(__FILE__, __LINE__, "%s", error.message);
    return client;
}

static void pack_prompt(gimbal_client *client, bool stream, int window)
{
    msgpack_packer *params = gimbal_begin(client);
    msgpack_pack_map(params, 3);
    gimbal_pack_text(params, "prompt");
    gimbal_pack_text(params, "Where is Paris?");
    gimbal_pack_text(params, "stream");
    if (stream) msgpack_pack_true(params);
    else msgpack_pack_false(params);
    gimbal_pack_text(params, "window");
    msgpack_pack_int(params, window);
}

static void a_call_returns_the_result(void)
{
    gimbal_client *client = open_unix();
    const msgpack_object *result = NULL;
    size_t n = 0;
    pack_prompt(client, false, 0);
    CHECK_EQ(gimbal_call(client, "generate", &result, &error), 0);
    const char *text = gimbal_text(result, "text", &n);
    CHECK(n == 31 && memcmp(text, "The capital of France is Paris.", 31) == 0);
    CHECK_EQ(gimbal_int(gimbal_get(result, "usage"), "prompt_tokens", -1), 15);
    CHECK_EQ(gimbal_int(result, "text", -7), -7);
    CHECK(gimbal_get(result, "nothing") == NULL);
    gimbal_close(client);
}

static void a_refused_call_says_code_and_path(void)
{
    gimbal_client *client = open_unix();
    CHECK_EQ(gimbal_call(client, "generate", NULL, &error), -32602);
    CHECK_STR(error.name, "INVALID_PARAMS");
    CHECK_STR(error.path, "prompt");
    CHECK_CONTAINS(error.message, "give one of");
    CHECK_EQ(gimbal_call(client, "ping", NULL, &error), 0);    /* the connection lives */
    gimbal_close(client);
}

static void a_stream_with_a_small_window_comes_whole(void)
{
    gimbal_client *client = open_unix();
    gimbal_event event;
    char text[64] = "";
    pack_prompt(client, true, 2);
    CHECK_EQ(gimbal_call(client, "generate", NULL, &error), 0);
    while (!gimbal_next(client, &event, &error) && strcmp(event.name, "token") == 0) {
        size_t n;
        const char *part = gimbal_text(event.map, "text", &n);
        strncat(text, part, n);
    }
    CHECK_STR(event.name, "done");
    CHECK_STR(text, "The capital of France is Paris.");
    gimbal_close(client);
}

static void events_that_come_during_a_call_are_kept(void)
{
    gimbal_client *client = open_unix();
    gimbal_event event;
    int tokens = 0;
    pack_prompt(client, true, 0);
    CHECK_EQ(gimbal_call(client, "generate", NULL, &error), 0);
    for (int i = 0; i < 50; i++) CHECK_EQ(gimbal_call(client, "ping", NULL, &error), 0);
    while (!gimbal_next(client, &event, &error) && strcmp(event.name, "token") == 0) tokens++;
    CHECK_STR(event.name, "done");
    CHECK(tokens >= 31);
    gimbal_close(client);
}

static void tcp_needs_the_key(void)
{
    gimbal_client *client = NULL;
    CHECK_EQ(gimbal_open(&client, getenv("GIMBAL_TCP"), NULL, &error), 1001);
    CHECK_STR(error.path, "auth");
    CHECK_EQ(gimbal_open(&client, getenv("GIMBAL_TCP"), "wrong", &error), 1001);
    CHECK_EQ(gimbal_open(&client, getenv("GIMBAL_TCP"), "the key", &error), 0);
    CHECK_EQ(gimbal_call(client, "drain", NULL, &error), 1002);
    CHECK_STR(error.name, "FORBIDDEN");
    gimbal_close(client);
}

static void nobody_there_is_an_error_with_a_sentence(void)
{
    gimbal_client *client = NULL;
    CHECK_EQ(gimbal_open(&client, "/nonexistent/gimbal.sock", NULL, &error), GIMBAL_LOST);
    CHECK_CONTAINS(error.message, "No such file");
    CHECK_EQ(gimbal_open(&client, "127.0.0.1:1", NULL, &error), GIMBAL_LOST);
    CHECK_CONTAINS(error.message, "refused");
    CHECK_EQ(gimbal_open(&client, "nowhere", NULL, &error), GIMBAL_LOST);
    CHECK_CONTAINS(error.message, "host:port");
}

static void shutdown_comes_last(void)
{
    gimbal_client *client = open_unix();
    CHECK_EQ(gimbal_call(client, "shutdown", NULL, &error), 0);
    gimbal_close(client);
}

TESTS(TEST(a_call_returns_the_result), TEST(a_refused_call_says_code_and_path), TEST(a_stream_with_a_small_window_comes_whole),
      TEST(events_that_come_during_a_call_are_kept), TEST(tcp_needs_the_key), TEST(nobody_there_is_an_error_with_a_sentence),
      TEST(shutdown_comes_last))
